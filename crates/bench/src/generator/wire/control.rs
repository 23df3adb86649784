//! Two machines: one sends, the other receives, and a TCP connection between them says what to expect and what came.
//! One JSON object a line. The receiving side does nothing but count on the one device its operator named.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Device;
use super::pair::{MOST_FLOWS, device_mac};
use super::receiver::{Received, Receiver, Role};
use crate::generator::link::Target;

/// TCP port that `sluice bench serve` listens on.
pub const PORT: u16 = 4774;
const VERSION: u32 = 1;
/// A client that says nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(5);
/// No message is longer.
const LONGEST: u64 = 64 * 1024;

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
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let (mut receiver, native) = receiver_on(device)?;
    let mut line = Line::new(stream)?;
    while let Some(request) = line.read::<Request>()? {
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
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
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
        Ok(Line { output: stream.try_clone()?, input: BufReader::new(stream) })
    }

    /// None when the other side has hung up.
    fn read<T: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<T>> {
        let mut text = String::new();
        self.input
            .by_ref()
            .take(LONGEST)
            .read_line(&mut text)
            .context("nothing comes from the other side")?;
        if text.is_empty() {
            return Ok(None);
        }
        let message = serde_json::from_str(&text);
        message.map(Some).with_context(|| format!("not a message of this protocol: {:.80}", text.trim_end()))
    }

    fn write<T: Serialize>(&mut self, message: &T) -> Result<()> {
        let text = serde_json::to_string(message)? + "\n";
        self.output.write_all(text.as_bytes()).context("the other side has hung up")
    }

    fn ask(&mut self, request: &Request) -> Result<Reply> {
        self.write(request)?;
        match self.read()?.context("the peer has hung up")? {
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
