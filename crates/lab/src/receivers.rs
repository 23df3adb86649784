//! Those who receive what a fan-out spreads, and who sends to it: each message has a number, and each arrival is written
//! down.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use crate::netns::Netns;
use crate::patience::until;
use crate::services::{LISTEN, Service};

pub const PORT: u16 = 5514;
/// A receiver that reads late must not lose what has arrived.
const BUFFER: usize = 64 << 20;

/// A message by its number, and who sent it as the receiver saw it.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub number: u32,
    pub host: IpAddr,
    /// Where the receiver tells it.
    pub port: Option<u16>,
}

impl Arrival {
    pub fn is_from(&self, sender: SocketAddr) -> bool {
        self.host == sender.ip() && self.port.is_none_or(|port| port == sender.port())
    }
}

/// Who takes messages, and knows which.
pub trait Receiver {
    fn kind(&self) -> &'static str;
    fn arrivals(&self) -> Vec<Arrival>;
}

/// RFC 5424, as syslog has it on its wire.
fn message(number: u32) -> Vec<u8> {
    format!("<14>1 - lab app - - - message {number} of the lab's sender").into_bytes()
}

fn number_of(text: &str) -> Option<u32> {
    text.split("message ").nth(1)?.split(' ').next()?.parse().ok()
}

/// Reads datagrams, and accepts TCP connections on the same port, by which a health check sees that it lives.
pub struct Sink {
    seen: Arc<Mutex<Vec<Arrival>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sink {
    pub fn start(netns: &Netns, address: Ipv4Addr) -> Result<Sink> {
        let open =
            || Ok::<_, io::Error>((UdpSocket::bind((address, PORT))?, TcpListener::bind((address, PORT))?));
        let (datagrams, connections) = netns.enter(open)?.context("cannot open a sink")?;
        setsockopt(&datagrams, sockopt::RcvBufForce, &BUFFER)?;
        datagrams.set_read_timeout(Some(Duration::from_millis(20)))?;
        connections.set_nonblocking(true)?;
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let mut sink = Sink { seen, stop, threads: vec![] };
        let (seen, stop) = (sink.seen.clone(), sink.stop.clone());
        sink.threads.push(thread::spawn(move || read(&datagrams, &seen, &stop)));
        let stop = sink.stop.clone();
        sink.threads.push(thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                drop(connections.accept());
                thread::sleep(Duration::from_millis(2));
            }
        }));
        Ok(sink)
    }

    /// It dies: its sockets close. What it had is told.
    pub fn end(mut self) -> Vec<Arrival> {
        self.stop_threads();
        self.arrivals()
    }

    fn stop_threads(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn read(socket: &UdpSocket, seen: &Mutex<Vec<Arrival>>, stop: &AtomicBool) {
    let mut buffer = [0; 2048];
    while !stop.load(Ordering::Acquire) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let text = String::from_utf8_lossy(&buffer[..length]);
        let arrival = |number| Arrival { number, host: from.ip(), port: Some(from.port()) };
        seen.lock().unwrap_or_else(PoisonError::into_inner).extend(number_of(&text).map(arrival));
    }
}

impl Receiver for Sink {
    fn kind(&self) -> &'static str {
        "sink"
    }

    fn arrivals(&self) -> Vec<Arrival> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// rsyslogd that writes sender and message into a file, a line each.
pub struct Rsyslog {
    _service: Service,
    file: PathBuf,
}

impl Rsyslog {
    pub fn start(netns: &Netns, address: Ipv4Addr, directory: &Path) -> Result<Rsyslog> {
        let home = directory.join("rsyslog");
        fs::create_dir_all(&home)?;
        let (file, configuration) = (home.join("messages"), home.join("rsyslog.conf"));
        let text = format!(
            "global(net.enableDNS=\"off\")\nmodule(load=\"imudp\" TimeRequery=\"100\")\nmodule(load=\"imptcp\")\n\
             input(type=\"imudp\" address=\"{address}\" port=\"{PORT}\" rcvbufSize=\"{BUFFER}\")\n\
             input(type=\"imptcp\" address=\"{address}\" port=\"{PORT}\")\n\
             template(name=\"line\" type=\"string\" string=\"%fromhost-ip% %msg%\\n\")\n\
             action(type=\"omfile\" file=\"{}\" template=\"line\" flushOnTXEnd=\"on\")\n",
            file.display()
        );
        fs::write(&configuration, text)?;
        let mut command = netns.command("rsyslogd");
        command.args(["-n", "-f"]).arg(&configuration).arg("-i").arg(home.join("pid"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let service =
            Service(command.spawn().context("cannot start rsyslogd; scripts/setup.sh installs it")?);
        let free = || TcpListener::bind((address, PORT)).is_ok() || UdpSocket::bind((address, PORT)).is_ok();
        until(LISTEN, || Ok(!netns.enter(free)?), || "rsyslogd does not listen".to_owned())?;
        Ok(Rsyslog { _service: service, file })
    }
}

impl Receiver for Rsyslog {
    fn kind(&self) -> &'static str {
        "rsyslogd"
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        // the last line may be on its way
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let arrival = |line: &str| {
            let (host, message) = line.split_once(' ')?;
            Some(Arrival { number: number_of(message)?, host: host.parse().ok()?, port: None })
        };
        whole.lines().filter_map(arrival).collect()
    }
}

/// What was sent: from whom each message came, and when it left.
#[derive(Default)]
pub struct Sent {
    pub numbers: Range<u32>,
    sockets: Vec<SocketAddr>,
    at: Vec<Instant>,
}

impl Sent {
    pub fn sender(&self, number: u32) -> SocketAddr {
        self.sockets[(number - self.numbers.start) as usize % self.sockets.len()]
    }

    pub fn when(&self, number: u32) -> Instant {
        self.at[(number - self.numbers.start) as usize]
    }
}

/// Sends numbered messages from so many sockets in turn, at about a rate.
pub fn send(
    netns: &Netns,
    to: (Ipv4Addr, u16),
    numbers: Range<u32>,
    rate: u32,
    ports: usize,
) -> Result<Sent> {
    let work = || -> io::Result<Sent> {
        let sockets = (0..ports).map(|_| UdpSocket::bind("0.0.0.0:0")).collect::<io::Result<Vec<_>>>()?;
        sockets.iter().try_for_each(|socket| socket.connect(to))?;
        let addresses = sockets.iter().map(UdpSocket::local_addr).collect::<io::Result<Vec<_>>>()?;
        let mut sent = Sent { numbers: numbers.clone(), sockets: addresses, at: vec![] };
        let (begun, first) = (Instant::now(), numbers.start);
        for number in numbers {
            let due = Duration::from_secs_f64(f64::from(number - first) / f64::from(rate));
            while begun.elapsed() < due {
                thread::sleep(due.saturating_sub(begun.elapsed()).min(Duration::from_micros(500)));
            }
            let text = message(number);
            sent.at.push(Instant::now());
            // an ICMP error about an earlier message is reported here and means nothing to this one
            while sockets[(number - first) as usize % ports].send(&text).is_err() {}
        }
        Ok(sent)
    };
    Ok(netns.enter(work)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_its_number() {
        assert_eq!(number_of(&String::from_utf8(message(4711)).unwrap()), Some(4711));
        assert_eq!(number_of("something else"), None);
    }
}
