//! Requests at a fixed rate and their echoes, over UDP sockets of two hosts.
//!
//! Requests leave when the schedule says so, whatever became of the ones before. A latency is counted from the moment
//! the schedule named: a sender that was held up does not hide what it missed (coordinated omission).

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use sluice_lab::netns::Netns;

use crate::generator::site::WAN_HOST_ADDRESS;
use crate::method::affinity::{bench_cpu, keep_on};

const PORT: u16 = 7;
/// Echoes may come this much after the last request.
const PATIENCE: Duration = Duration::from_millis(200);
/// Latencies are kept to three digits up to ten seconds.
const LONGEST_NS: u64 = 10_000_000_000;

/// What one run saw.
#[derive(Debug, Clone)]
pub struct Echoes {
    pub sent: u64,
    pub received: u64,
    pub seconds: f64,
    /// Nanoseconds since the scheduled moment, and since the request really left.
    pub scheduled: Histogram<u64>,
    pub really: Histogram<u64>,
}

pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, LONGEST_NS, 3)?)
}

/// Echoes everything until told to stop.
pub struct Server(UdpSocket);

impl Server {
    pub fn bind(host: &Netns) -> Result<Server> {
        let socket =
            host.enter(|| UdpSocket::bind((WAN_HOST_ADDRESS, PORT)))?.context("cannot bind the echo port")?;
        socket.set_nonblocking(true)?;
        Ok(Server(socket))
    }

    /// It never sleeps: how fast a process wakes is not what is asked. It gives way, though, to the kernel's thread that
    /// works on packets when there are many.
    fn run(&self, stop: &AtomicBool) -> Result<()> {
        let mut room = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            match self.0.recv_from(&mut room) {
                Ok((length, from)) => drop(self.0.send_to(&room[..length], from)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error).context("the echo server cannot receive"),
            }
        }
        Ok(())
    }
}

/// Sends `rate` requests a second for `length` from a host, the server echoing on the other CPU.
pub fn run(host: &Netns, server: &Server, rate: f64, length: Duration) -> Result<Echoes> {
    let socket = host.enter(|| UdpSocket::bind("0.0.0.0:0"))?.context("cannot open a socket")?;
    socket.connect((WAN_HOST_ADDRESS, PORT))?;
    socket.set_nonblocking(true)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            keep_on(1 - bench_cpu().min(1))?;
            server.run(&stop)
        });
        let client = scope.spawn(|| {
            keep_on(bench_cpu())?;
            Client::new(&socket, rate)?.run(length)
        });
        let echoes = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        stop.store(true, Ordering::Relaxed);
        echo.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        echoes
    })
}

struct Client<'a> {
    socket: &'a UdpSocket,
    rate: f64,
    start: Instant,
    echoes: Echoes,
}

/// A request: its number, and when it left (ns since the start).
const REQUEST: usize = 16;

impl Client<'_> {
    fn new(socket: &UdpSocket, rate: f64) -> Result<Client<'_>> {
        let echoes =
            Echoes { sent: 0, received: 0, seconds: 0.0, scheduled: histogram()?, really: histogram()? };
        Ok(Client { socket, rate, start: Instant::now(), echoes })
    }

    fn due(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate)
    }

    fn run(mut self, length: Duration) -> Result<Echoes> {
        let total = (length.as_secs_f64() * self.rate) as u64;
        self.start = Instant::now();
        while self.echoes.sent < total {
            if self.start.elapsed() >= self.due(self.echoes.sent) {
                self.send()?;
            }
            self.receive()?;
        }
        self.echoes.seconds = self.start.elapsed().as_secs_f64();
        let deadline = Instant::now() + PATIENCE;
        while self.echoes.received < total && Instant::now() < deadline {
            self.receive()?;
        }
        Ok(self.echoes)
    }

    fn send(&mut self) -> Result<()> {
        let mut request = [0; REQUEST];
        request[..8].copy_from_slice(&self.echoes.sent.to_le_bytes());
        request[8..].copy_from_slice(&(self.start.elapsed().as_nanos() as u64).to_le_bytes());
        self.socket.send(&request).context("cannot send a request")?;
        self.echoes.sent += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let mut echo = [0; REQUEST];
        let length = match self.socket.recv(&mut echo) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::yield_now();
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot receive an echo"),
        };
        let now = self.start.elapsed().as_nanos() as u64;
        ensure!(length == REQUEST, "an echo of {length} bytes");
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| echo[at + i]));
        let due = self.due(word(0)).as_nanos() as u64;
        self.echoes.scheduled.saturating_record(now.saturating_sub(due).max(1));
        self.echoes.really.saturating_record(now.saturating_sub(word(8)).max(1));
        self.echoes.received += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An echo server that sleeps once must be seen by every request that was due meanwhile.
    #[test]
    fn a_pause_counts_for_everything_that_was_due_in_it() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        let slow = std::thread::spawn(move || {
            let mut room = [0; 64];
            for n in 0..1000 {
                let (length, from) = server.recv_from(&mut room).unwrap();
                if n == 500 {
                    std::thread::sleep(Duration::from_millis(100));
                }
                server.send_to(&room[..length], from).unwrap();
            }
        });
        let echoes = Client::new(&socket, 2000.0).unwrap().run(Duration::from_millis(500)).unwrap();
        slow.join().unwrap();
        assert_eq!((echoes.sent, echoes.received), (1000, 1000));
        // 100 ms at 2,000 a second: 200 of 1,000 requests waited, the first for all of it.
        let waited = echoes.scheduled.len() - echoes.scheduled.count_between(0, 20_000_000);
        assert!((140..=260).contains(&waited), "{waited} requests saw the pause");
        assert!(echoes.scheduled.max() >= 95_000_000);
    }
}
