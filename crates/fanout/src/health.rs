//! Asks receivers whether they are there.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, connect, recv, send,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use sluice_language::fan_out::{HealthCheck, Method};
use sluice_wire::checksum::Pseudo;
use sluice_wire::{icmpv4, icmpv6, ipv4};

use crate::descriptors::is_short_of;
use crate::pool::{Pool, Target};

/// Runs until `stop`; without a health check in the configuration it only waits for one.
pub fn watch(pool: &Pool, name: &str, stop: &AtomicBool, changed: &(dyn Fn() + Sync)) {
    while !stop.load(Ordering::Acquire) {
        let begun = Instant::now();
        let Some(check) = pool.health() else {
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        round(pool, name, &check, stop, changed);
        let interval = Duration::from_millis(check.interval_ms.into());
        while begun.elapsed() < interval && !stop.load(Ordering::Acquire) {
            thread::sleep(interval.saturating_sub(begun.elapsed()).min(Duration::from_millis(50)));
        }
    }
}

/// All receivers at once, so that one that is silent does not delay the judgement of others.
fn round(pool: &Pool, name: &str, check: &HealthCheck, stop: &AtomicBool, changed: &(dyn Fn() + Sync)) {
    let targets: Vec<Arc<Target>> = pool.targets();
    thread::scope(|scope| {
        for target in targets {
            let asked = target.clone();
            let question = move || {
                let result = ask(check, asked.address);
                // meanwhile the listener may have ended
                if !stop.load(Ordering::Acquire) && judge(pool, name, &asked, result) {
                    changed();
                }
            };
            // that this process may have no more threads says nothing of the receiver
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, question) {
                cannot_ask(name, &target, &error);
            }
        }
    });
}

fn cannot_ask(name: &str, target: &Target, error: &io::Error) {
    tracing::warn!(listener = name, receiver = target.name, %error, "it cannot be asked");
}

/// True when the receiver went up or down.
fn judge(pool: &Pool, name: &str, target: &Target, result: io::Result<()>) -> bool {
    if let Err(error) = &result
        && is_short_of(error)
    {
        cannot_ask(name, target, error);
        return false;
    }
    if !pool.report(target, result.is_ok()) {
        return false;
    }
    let (receiver, address) = (&target.name, target.address);
    match result {
        Ok(()) => tracing::info!(listener = name, receiver, %address, "receiver is up"),
        Err(error) => tracing::warn!(listener = name, receiver, %address, %error, "receiver is down"),
    }
    true
}

/// One question; an error says why there is no answer.
pub fn ask(check: &HealthCheck, address: SocketAddr) -> io::Result<()> {
    let timeout = Duration::from_millis(check.timeout_ms.into());
    let asked = SocketAddr::new(address.ip(), check.port.unwrap_or(address.port()));
    match check.method {
        Method::Icmp => echo(address.ip(), timeout),
        Method::Udp => datagram(asked, timeout),
        Method::Tcp => TcpStream::connect_timeout(&asked, timeout).map(drop),
        Method::Http => http(asked, &check.path, timeout),
    }
}

/// RFC 9112: the status line is all that is looked at.
fn http(address: SocketAddr, path: &str, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_write_timeout(Some(timeout))?;
    // in one segment: servers that judge by their first read answer and close, which resets what comes behind
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: sluice\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut buffer) = (vec![], [0; 512]);
    while !answer.contains(&b'\n') && answer.len() < 4096 {
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut buffer)? {
            0 => break,
            length => answer.extend(&buffer[..length]),
        }
    }
    let line = String::from_utf8_lossy(&answer);
    let mut words = line.lines().next().unwrap_or_default().split(' ');
    let version = words.next().unwrap_or_default();
    match words.next().and_then(|status| status.parse::<u16>().ok()) {
        Some(200..400) if version.starts_with("HTTP/1.") => Ok(()),
        Some(status) => Err(io::Error::other(format!("HTTP status {status}"))),
        None => Err(io::Error::other("no HTTP answer")),
    }
}

/// What comes back is the receiver's affair; that something does is enough.
fn datagram(address: SocketAddr, timeout: Duration) -> io::Result<()> {
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local)?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.send(b"sluice health check\n")?;
    socket.recv(&mut [0; 2048]).map(drop)
}

/// RFC 792, RFC 4443 4.1: through the kernel's ping socket, which needs no privilege but a group, else a raw one.
fn echo(address: IpAddr, timeout: Duration) -> io::Result<()> {
    static SEQUENCE: AtomicU16 = AtomicU16::new(1);
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let (family, protocol) = match address {
        IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
        IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    let open = |kind| socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol);
    let (fd, raw) = match open(SockType::Datagram) {
        Ok(fd) => (fd, false),
        Err(_) => (open(SockType::Raw)?, true),
    };
    connect(fd.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, 0)))?;
    let request = request(address.is_ipv4(), std::process::id() as u16, sequence);
    send(fd.as_raw_fd(), &request, MsgFlags::empty())?;
    await_reply(&fd, address.is_ipv4(), raw, sequence, timeout)
}

fn await_reply(fd: &OwnedFd, v4: bool, raw: bool, sequence: u16, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    let mut buffer = [0; 2048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no echo reply"));
        }
        setsockopt(fd, ReceiveTimeout, &TimeVal::microseconds(left.as_micros().max(1) as i64))?;
        let length = match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => length,
            Err(nix::Error::EAGAIN) => continue,
            Err(error) => return Err(error.into()),
        };
        // a raw IPv4 socket also delivers the IP header
        let skip = if raw && v4 { ipv4::header_length(buffer[ipv4::field::VERSION_IHL]) } else { 0 };
        if is_reply(buffer.get(skip..length).unwrap_or_default(), v4, sequence) {
            return Ok(());
        }
    }
}

fn request(v4: bool, identifier: u16, sequence: u16) -> Vec<u8> {
    if v4 {
        return icmpv4::Builder::echo_request(identifier, sequence).build(&[]);
    }
    // of an ICMPv6 message the kernel computes the checksum, since the pseudo-header is needed
    let message =
        icmpv6::Builder { checksum: Some(0), ..icmpv6::Builder::echo_request(identifier, sequence) };
    message.build(&[], Pseudo::None)
}

fn is_reply(message: &[u8], v4: bool, sequence: u16) -> bool {
    if v4 {
        icmpv4::View::new(message).is_ok_and(|m| m.kind() == icmpv4::ECHO_REPLY && m.sequence() == sequence)
    } else {
        icmpv6::View::new(message).is_ok_and(|m| m.kind() == icmpv6::ECHO_REPLY && m.sequence() == sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn check(method: Method) -> HealthCheck {
        HealthCheck { method, timeout_ms: 200, ..HealthCheck::default() }
    }

    #[test]
    fn tcp_and_udp_ask_the_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(ask(&check(Method::Tcp), address).is_ok());
        drop(listener);
        assert!(ask(&check(Method::Tcp), address).is_err());
        let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = echo.local_addr().unwrap();
        assert!(ask(&check(Method::Udp), address).is_err(), "nobody answers yet");
        thread::spawn(move || {
            let mut buffer = [0; 100];
            while let Ok((length, from)) = echo.recv_from(&mut buffer) {
                let _ = echo.send_to(&buffer[..length], from);
            }
        });
        assert!(ask(&check(Method::Udp), address).is_ok());
    }

    #[test]
    fn http_asks_for_a_path_and_judges_the_status() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut request) = (stream.unwrap(), [0; 512]);
                let length = stream.read(&mut request).unwrap();
                let text = String::from_utf8_lossy(&request[..length]);
                let answer = match text.split(' ').nth(1) {
                    Some("/ready") => "HTTP/1.1 204 No Content\r\n\r\n",
                    Some("/silent") => "",
                    Some("/odd") => "220 mail.example ESMTP\r\n",
                    _ => "HTTP/1.1 503 Service Unavailable\r\n\r\n",
                };
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        let with = |path: &str| HealthCheck { path: path.to_owned(), ..check(Method::Http) };
        assert!(ask(&with("/ready"), address).is_ok());
        for path in ["/", "/silent", "/odd"] {
            assert!(ask(&with(path), address).is_err(), "{path}");
        }
    }

    #[test]
    fn echo_requests_have_a_right_checksum() {
        let bytes = request(true, 0x1234, 0xfffe);
        let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert!(
            is_reply(&[0, 0, 0, 0, 9, 9, 0, 7], true, 7) && !is_reply(&[8, 0, 0, 0, 9, 9, 0, 7], true, 7)
        );
    }
}
