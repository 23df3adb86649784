//! Collectors: a datagram a message (RFC 5426), or messages behind their lengths on a connection (RFC 6587 3.4.1, RFC 5425
//! 4.3), which is made anew when it breaks.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, MultiHeaders, sendmmsg};
use sluice_language::{LogStream, LogTransport};
use socket2::{Domain, Protocol, Socket, Type};

use super::queue::{Message, Queue};
use super::tls::Tls;
use super::writer::{Destination, write};

const CONNECT: Duration = Duration::from_secs(5);
/// Sent by one call.
const DATAGRAMS: usize = 64;
/// How long a collector may read nothing before that is said; it is waited for nevertheless.
const STUCK: Duration = Duration::from_secs(10);

pub fn run(queue: &Queue, to: LogStream) {
    match to.transport.clone() {
        LogTransport::Udp => write(queue, Datagrams { to, socket: None }),
        LogTransport::Tcp => write(queue, Connection::new(to, Ok)),
        LogTransport::Tls { ca_file, server_name } => {
            let name = server_name.unwrap_or_else(|| to.collector.ip().to_string());
            write(queue, Connection::new(to, move |tcp| Tls::connect(tcp, ca_file.as_deref(), &name)));
        }
    }
}

struct Datagrams {
    to: LogStream,
    socket: Option<UdpSocket>,
}

impl Datagrams {
    fn socket(&mut self) -> io::Result<&UdpSocket> {
        if self.socket.is_none() {
            let any: IpAddr = match self.to.collector {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let socket = UdpSocket::bind((self.to.source.unwrap_or(any), 0))?;
            socket.connect(self.to.collector)?;
            self.socket = Some(socket);
        }
        self.socket.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Destination for Datagrams {
    fn send(&mut self, messages: &VecDeque<Message>) -> (usize, io::Result<()>) {
        let mut whole = 0;
        while whole < messages.len() {
            match self.socket().and_then(|socket| send_some(socket, messages.iter().skip(whole))) {
                Ok(count) => whole += count,
                Err(error) => {
                    // an address that has gone, say
                    self.socket = None;
                    return (whole, Err(error));
                }
            }
        }
        (whole, Ok(()))
    }

    fn gives_up(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        self.to.collector.to_string()
    }
}

/// A datagram each, with one call for many: how many have gone. Err is about the first.
fn send_some<'a>(socket: &UdpSocket, messages: impl Iterator<Item = &'a Message>) -> io::Result<usize> {
    let slices: Vec<[IoSlice<'_>; 1]> =
        messages.take(DATAGRAMS).map(|message| [IoSlice::new(message)]).collect();
    let mut headers = MultiHeaders::<()>::preallocate(slices.len(), None);
    let sent =
        sendmmsg(socket.as_raw_fd(), &mut headers, &slices, vec![None; slices.len()], [], MsgFlags::empty())?;
    Ok(sent.count())
}

/// What messages are written to.
pub trait Link: Write {
    /// Reads and discards what the collector sends; Err = it has closed the connection.
    fn look(&mut self) -> io::Result<()>;
}

impl Link for TcpStream {
    fn look(&mut self) -> io::Result<()> {
        self.set_nonblocking(true)?;
        let said = loop {
            match self.read(&mut [0; 512]) {
                Ok(0) => break Err(closed()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.set_nonblocking(false)?;
        said
    }
}

pub fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the collector has closed the connection")
}

struct Connection<L, F> {
    to: LogStream,
    make: F,
    link: Option<L>,
    /// Bytes of the first message that this link has taken, its length included.
    taken: usize,
}

impl<L: Link, F: Fn(TcpStream) -> io::Result<L>> Connection<L, F> {
    fn new(to: LogStream, make: F) -> Self {
        Self { to, make, link: None, taken: 0 }
    }

    /// There is a link afterwards, the one that was there if it still stands.
    fn open(&mut self) -> io::Result<()> {
        if let Some(link) = &mut self.link
            && link.look().is_err()
        {
            self.link = None;
        }
        if self.link.is_none() {
            self.taken = 0;
            self.link = Some((self.make)(connect(&self.to)?)?);
        }
        Ok(())
    }

    /// Where writing stopped, and why.
    fn write(&mut self, bytes: &[u8]) -> (usize, io::Result<()>) {
        if let Err(error) = self.open() {
            return (0, Err(error));
        }
        let Some(link) = &mut self.link else { return (0, Err(closed())) };
        let mut at = self.taken;
        while at < bytes.len() {
            match link.write(&bytes[at..]) {
                Ok(0) => return (at, Err(closed())),
                Ok(count) => at += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (at, Err(error)),
            }
        }
        (at, link.flush())
    }
}

impl<L: Link, F: Fn(TcpStream) -> io::Result<L>> Destination for Connection<L, F> {
    fn send(&mut self, messages: &VecDeque<Message>) -> (usize, io::Result<()>) {
        let (mut bytes, mut ends) = (vec![], vec![]);
        for message in messages {
            bytes.extend_from_slice(format!("{} ", message.len()).as_bytes());
            bytes.extend_from_slice(message);
            ends.push(bytes.len());
        }
        let (at, result) = self.write(&bytes);
        let whole = ends.partition_point(|end| *end <= at);
        self.taken = at - whole.checked_sub(1).map_or(0, |last| ends[last]);
        let result = result.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut if self.link.is_some() => {
                io::Error::new(error.kind(), "the collector does not read")
            }
            _ => {
                // the message that was under way begins anew on the next one
                self.link = None;
                self.taken = 0;
                error
            }
        });
        (whole, result)
    }

    fn place(&self) -> String {
        self.to.collector.to_string()
    }
}

fn connect(to: &LogStream) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to.collector), Type::STREAM, Some(Protocol::TCP))?;
    if let Some(source) = to.source {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.connect_timeout(&to.collector.into(), CONNECT)?;
    let stream: TcpStream = socket.into();
    stream.set_write_timeout(Some(STUCK))?;
    stream.set_read_timeout(Some(CONNECT))?;
    Ok(stream)
}
