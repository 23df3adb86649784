//! Sockets: those that listen, side by side; those that send, by receiver, or by sender and receiver.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
    sockopt,
};

use crate::mmsg::set_option;

/// How long a thread sleeps in the kernel before it looks whether it is wanted elsewhere.
const NAP: Duration = Duration::from_millis(50);

fn open(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    Ok(socket(family, SockType::Datagram, SockFlag::SOCK_CLOEXEC, SockProtocol::Udp)?)
}

/// One of the sockets that share `address`, of packets that come by a device alone if there is one. The first must find
/// the port free, the others join it.
pub fn listen(
    address: SocketAddr,
    device: Option<u32>,
    buffer: u32,
    cpu: Option<usize>,
) -> io::Result<UdpSocket> {
    let fd = open(address)?;
    stay_on(&fd, device)?;
    setsockopt(&fd, sockopt::ReusePort, &true)?;
    let raw = fd.as_raw_fd();
    // more than net.core.rmem_max needs a privilege; without it, as much as there is
    if set_option(raw, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, buffer as i32).is_err() {
        set_option(raw, libc::SOL_SOCKET, libc::SO_RCVBUF, buffer as i32)?;
    }
    set_option(raw, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
    set_option(raw, libc::SOL_UDP, libc::UDP_GRO, 1)?;
    if let Some(cpu) = cpu {
        set_option(raw, libc::SOL_SOCKET, libc::SO_INCOMING_CPU, cpu as i32)?;
    }
    bind(raw, &SockaddrStorage::from(address))?;
    let socket = UdpSocket::from(fd);
    socket.set_read_timeout(Some(NAP))?;
    Ok(socket)
}

/// By its number, which needs no privilege where the socket had none before.
fn stay_on(fd: &OwnedFd, device: Option<u32>) -> io::Result<()> {
    device.map_or(Ok(()), |index| {
        set_option(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, index as i32)
    })
}

/// From now on nothing comes to a socket that listens; others of its address take it, and what it has stays.
pub fn retire(socket: &UdpSocket) -> io::Result<()> {
    // a device that no packet comes by (one that has another needs CAP_NET_RAW for it), which also takes it out of the group that shares the address
    set_option(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, i32::MAX)
}

/// Whether another process has the port: its sockets would share our packets.
pub fn is_free(address: SocketAddr, device: Option<u32>) -> io::Result<()> {
    let fd = open(address)?;
    stay_on(&fd, device)?;
    Ok(bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?)
}

/// A socket towards a receiver; with `source`, as if the sender of a datagram had opened it.
pub fn towards(receiver: SocketAddr, source: Option<SocketAddr>) -> io::Result<UdpSocket> {
    let fd = open(receiver)?;
    let raw = fd.as_raw_fd();
    let _ = set_option(raw, libc::SOL_SOCKET, libc::SO_SNDBUF, 4 << 20);
    if let Some(source) = source {
        setsockopt(&fd, sockopt::ReuseAddr, &true)?;
        setsockopt(&fd, sockopt::ReusePort, &true)?;
        make_transparent(raw, source)?;
        bind(raw, &SockaddrStorage::from(source))?;
    }
    connect(raw, &SockaddrStorage::from(receiver))?;
    Ok(UdpSocket::from(fd))
}

fn make_transparent(raw: i32, address: SocketAddr) -> io::Result<()> {
    match address.ip() {
        IpAddr::V4(_) => set_option(raw, libc::SOL_IP, libc::IP_TRANSPARENT, 1),
        IpAddr::V6(_) => set_option(raw, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, 1),
    }
}
