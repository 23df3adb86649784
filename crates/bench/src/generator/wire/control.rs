//! Two machines: one sends, the other receives, and a TCP connection between them says what to expect and what came.
//! One JSON object a line. The receiving side does nothing but count on the one device its operator named.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Device;
use super::pair::{MOST_FLOWS, device_mac};
use super::receiver::{Received, Receiver, Role};
use crate::generator::link::Target;

/// TCP port that `sluice bench serve` listens on.
pub const PORT: u16 = 4774;
const VERSION: u32 = 1;
/// A client that has not said a whole line for so long has gone.
const PATIENCE: Duration = Duration::from_secs(300);
/// For its first one: whoever connects and says nothing keeps others waiting.
const GREETING: Duration = Duration::from_secs(3);
/// A few hundred bytes that nobody takes off.
const WRITE: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(5);
/// No message is longer.
const LONGEST: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
enum Request {
    Hello { version: u32 },
    Expect { flows: u32 },
    Report { sent: u64 },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
enum Reply {
    Hello(Hello),
    Ready,
    Report { received: Received },
    Error { message: String },
}

/// Who receives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Of the protocol between both ends.
    pub version: u32,
    /// Version of its Sluice.
    pub sluice: String,
    /// Device that it receives on.
    pub device: String,
    /// Of that device: frames are sent to it.
    pub mac: [u8; 6],
    /// The program runs in the driver.
    pub native: bool,
}

/// Receives for whoever connects, one after the other. Returns only on an error of its own; `ready` learns the address.
pub fn serve(listen: SocketAddr, device: &str, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let mac = device_mac(device)?;
    let listener = TcpListener::bind(listen)
        .with_context(|| format!("cannot listen on {listen}; choose another with --listen"))?;
    ready(listener.local_addr()?);
    loop {
        let (stream, client) = listener.accept()?;
        if let Err(error) = attend(stream, device, mac) {
            eprintln!("sluice bench serve: {client}: {error:#}");
        }
    }
}

/// Attaches in the driver, or behind it where the driver cannot; which one, the client is told.
pub fn receiver_on(device: &str) -> Result<(Receiver, bool)> {
    let ifindex =
        nix::net::if_::if_nametoindex(device).with_context(|| format!("there is no device {device}"))?;
    let mut receiver = Receiver::load(MOST_FLOWS)?;
    let here = Device { netns: None, ifindex };
    let native = receiver.attach(here, Role::Judge, Target::XdpNative).is_ok();
    if !native {
        receiver.attach(here, Role::Judge, Target::XdpGeneric)?;
    }
    Ok((receiver, native))
}

fn attend(stream: TcpStream, device: &str, mac: [u8; 6]) -> Result<()> {
    let mut line = Line::new(stream)?;
    let mut next = line.read::<Request>(GREETING)?;
    let (mut receiver, native) = receiver_on(device)?;
    while let Some(request) = next {
        let reply = match request {
            Request::Hello { version } if version != VERSION => {
                Reply::Error { message: format!("version {version} is not spoken here, {VERSION} is") }
            }
            Request::Hello { .. } => Reply::Hello(Hello {
                version: VERSION,
                sluice: env!("CARGO_PKG_VERSION").to_owned(),
                device: device.to_owned(),
                mac,
                native,
            }),
            Request::Expect { flows } => match receiver.expect(flows, true) {
                Ok(()) => Reply::Ready,
                Err(error) => Reply::Error { message: format!("{error:#}") },
            },
            Request::Report { sent } => {
                receiver.settle(sent);
                Reply::Report { received: receiver.report(sent) }
            }
        };
        line.write(&reply)?;
        next = line.read(PATIENCE)?;
    }
    Ok(())
}

/// A receiver on another machine.
pub struct Remote {
    line: Line,
    /// What it said of itself.
    pub hello: Hello,
}

impl Remote {
    /// `address` with or without a port.
    pub fn connect(address: &str) -> Result<Remote> {
        let found = address.to_socket_addrs().or_else(|_| (address, PORT).to_socket_addrs());
        let found = found.ok().and_then(|mut all| all.next());
        let found = found.with_context(|| format!("--peer {address}: no such host"))?;
        let stream = TcpStream::connect_timeout(&found, CONNECT)
            .with_context(|| format!("--peer {address}: does `sluice bench serve` run there?"))?;
        let mut line = Line::new(stream)?;
        match line.ask(&Request::Hello { version: VERSION })? {
            Reply::Hello(hello) => Ok(Remote { line, hello }),
            reply => bail!("--peer {address}: unexpected answer {reply:?}"),
        }
    }

    /// Empties its counters; it tells so many flows apart from here on.
    pub fn expect(&mut self, flows: u32) -> Result<()> {
        let reply = self.line.ask(&Request::Expect { flows })?;
        ensure!(reply == Reply::Ready, "the peer gave an unexpected answer {reply:?}");
        Ok(())
    }

    /// What came of `sent` frames, after a silence.
    pub fn report(&mut self, sent: u64) -> Result<Received> {
        match self.line.ask(&Request::Report { sent })? {
            Reply::Report { received } => Ok(received),
            reply => bail!("the peer gave an unexpected answer {reply:?}"),
        }
    }
}

/// Lines of JSON over a connection.
struct Line {
    input: BufReader<TcpStream>,
    output: TcpStream,
}

impl Line {
    fn new(stream: TcpStream) -> Result<Line> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE))?;
        Ok(Line { output: stream.try_clone()?, input: BufReader::new(stream) })
    }

    /// None when the other side has hung up. All of the line must come within the time.
    fn read<T: for<'de> Deserialize<'de>>(&mut self, patience: Duration) -> Result<Option<T>> {
        let text = self.text(Instant::now() + patience)?;
        if text.is_empty() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&text);
        let message = serde_json::from_str(&text);
        message.map(Some).with_context(|| format!("not a message of this protocol: {:.80}", text.trim_end()))
    }

    /// A line, or what came before the other side hung up.
    fn text(&mut self, deadline: Instant) -> Result<Vec<u8>> {
        let mut text = vec![];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no whole line comes from the other side");
            self.output.set_read_timeout(Some(left))?;
            let found = match self.input.fill_buf() {
                // the deadline is looked at again
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    continue;
                }
                found => found.context("nothing comes from the other side")?,
            };
            let end = found.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let taken = end.unwrap_or(found.len());
            text.extend_from_slice(&found[..taken]);
            self.input.consume(taken);
            if end.is_some() || taken == 0 {
                return Ok(text);
            }
            ensure!(text.len() <= LONGEST, "a line of more than {LONGEST} bytes");
        }
    }

    fn write<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let text = serde_json::to_string(message)? + "\n";
        self.output.write_all(text.as_bytes()).context("the other side has hung up")
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.write(request)?;
        match self.read(PATIENCE)?.context("the peer has hung up")? {
            Reply::Error { message } => bail!("the peer says: {message}"),
            reply => Ok(reply),
        }
    }
}

/// Receive what another machine sends with `sluice bench wire --peer`
#[derive(Debug, Clone, clap::Args)]
pub struct ServeArgs {
    /// The device that frames arrive on
    pub device: String,
    /// Where to wait for the other machine. Anyone who can connect can make this machine count packets, nothing else
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:4774")]
    pub listen: SocketAddr,
}

/// `sluice bench serve`
pub fn command(args: &ServeArgs) -> Result<std::process::ExitCode> {
    serve(args.listen, &args.device, |address| {
        println!("receiving on {}; waiting for `sluice bench wire --peer` at {address}", args.device);
    })?;
    Ok(std::process::ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (Line, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Line::new(listener.accept().unwrap().0).unwrap(), client)
    }

    #[test]
    fn who_says_a_line_byte_by_byte_or_nothing_is_not_waited_for() {
        let (mut line, mut client) = connection();
        let began = Instant::now();
        assert!(line.read::<Request>(Duration::from_millis(50)).is_err(), "nothing");
        let drops = std::thread::spawn(move || {
            while client.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(line.read::<Request>(Duration::from_millis(50)).is_err(), "no whole line");
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(line);
        drops.join().unwrap();
    }

    #[test]
    fn lines_that_come_together_are_read_one_by_one() {
        let (mut line, mut client) = connection();
        client
            .write_all(b"{\"request\":\"hello\",\"version\":1}\n{\"request\":\"expect\",\"flows\":2}\n")
            .unwrap();
        drop(client);
        let mut read = || line.read::<Request>(PATIENCE).unwrap();
        assert_eq!(read(), Some(Request::Hello { version: 1 }));
        assert_eq!((read(), read()), (Some(Request::Expect { flows: 2 }), None));
    }
}
