//! Applications that talk through the gateway while it is upgraded, and count what they see.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sluice_lab::netns::Netns;

/// Longer than a retransmission takes, even the second one.
const PATIENCE: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(2);

fn inside<T: Send>(netns: &Netns, work: impl FnOnce() -> T + Send) -> T {
    netns.enter(work).unwrap()
}

/// Answers everything with itself, as long as the process lives.
pub fn serve_echo(netns: &Netns, address: &str) {
    let address: SocketAddr = address.parse().unwrap();
    let listener = inside(netns, || TcpListener::bind(address).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let (mut stream, mut buffer) = (stream, [0; 1024]);
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
}

fn connect(netns: &Netns, address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = inside(netns, || TcpStream::connect_timeout(&address, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn talk(stream: &mut TcpStream, word: u64) -> std::io::Result<()> {
    stream.write_all(&word.to_be_bytes())?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    if answer != word.to_be_bytes() {
        return Err(std::io::Error::other("another answer"));
    }
    Ok(())
}

#[derive(Debug, Default)]
pub struct Seen {
    /// Words that came back on connections that stay.
    pub words: AtomicU64,
    /// Connections opened, used and closed.
    pub opened: AtomicU64,
    /// What must not have arrived and did.
    pub intruders: AtomicU64,
    /// What nobody may see: broken connections, and such as could not be opened.
    pub failures: std::sync::Mutex<Vec<String>>,
}

/// Ends with [`Load::finish`].
pub struct Load {
    pub seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub fn new() -> Load {
        Load { seen: Arc::default(), stop: Arc::default(), threads: vec![] }
    }

    /// The load works until it is told to end.
    fn run(&mut self, mut step: impl FnMut(&Seen) -> Result<(), String> + Send + 'static) {
        let (seen, stop) = (self.seen.clone(), self.stop.clone());
        self.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Err(failure) = step(&seen) {
                    seen.failures.lock().unwrap().push(failure);
                    return;
                }
                thread::sleep(PAUSE);
            }
        }));
    }

    /// Connections that stay, each with a word under way.
    pub fn stay(&mut self, netns: &Netns, address: &str, count: usize) {
        let address: SocketAddr = address.parse().unwrap();
        for number in 0..count {
            let mut stream = connect(netns, address).unwrap();
            let (mut word, mut last) = (0, Instant::now());
            self.run(move |seen| {
                word += 1;
                talk(&mut stream, word).map_err(|error| {
                    format!(
                        "connection {number} to {address}: {error}, {:?} after the last word",
                        last.elapsed()
                    )
                })?;
                last = Instant::now();
                seen.words.fetch_add(1, Ordering::Relaxed);
                Ok(())
            });
        }
    }

    /// Connections that come and go.
    pub fn come_and_go(&mut self, netns: Arc<Netns>, address: &str) {
        let address: SocketAddr = address.parse().unwrap();
        self.run(move |seen| {
            let told = |what: &'static str| move |error| format!("{what} {address}: {error}");
            let mut stream = connect(&netns, address).map_err(told("connecting to"))?;
            talk(&mut stream, 7).map_err(told("a short connection to"))?;
            seen.opened.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
    }

    /// Datagrams that must not arrive.
    pub fn intrude(&mut self, from: &Netns, to: &Netns, address: &str) {
        let address: SocketAddr = address.parse().unwrap();
        let target = inside(to, || UdpSocket::bind(address).unwrap());
        let source = inside(from, || UdpSocket::bind("0.0.0.0:0").unwrap());
        target.set_nonblocking(true).unwrap();
        self.run(move |seen| {
            for _ in 0..8 {
                // what the gateway answers to it is of no interest
                let _ = source.send_to(b"let me in", address);
            }
            while target.recv(&mut [0; 16]).is_ok() {
                seen.intruders.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }

    pub fn finish(self) -> Arc<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.seen
    }
}
