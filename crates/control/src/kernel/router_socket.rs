//! The socket of a router that advertises itself: ICMPv6 of the links it has joined (RFC 3542).

#![allow(unsafe_code, reason = "nothing safe sets ICMP6_FILTER")]

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::cmsg_space;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrIn6, recvmsg, sendmsg, setsockopt, socket, sockopt,
};
use socket2::SockRef;

pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// linux/icmpv6.h
const ICMPV6_FILTER: libc::c_int = 1;

/// Neighbours judge by it that a message comes from their link (RFC 4861 6.1).
const HOP_LIMIT: libc::c_int = 255;

#[derive(Debug)]
pub struct RouterSocket(OwnedFd);

/// A message that has come.
#[derive(Debug, Clone, Copy)]
pub struct Heard {
    pub length: usize,
    pub source: Ipv6Addr,
    pub ifindex: u32,
    pub hop_limit: u8,
}

impl RouterSocket {
    /// Hears messages of one type alone.
    pub fn open(kind: u8) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let fd = socket(AddressFamily::Inet6, SockType::Raw, flags, SockProtocol::IcmpV6)?;
        pass_only(&fd, kind)?;
        setsockopt(&fd, sockopt::Ipv6RecvPacketInfo, &true)?;
        setsockopt(&fd, sockopt::Ipv6RecvHopLimit, &true)?;
        Ok(Self(fd))
    }

    /// Solicitations go to the group of all routers (RFC 4861 4.1).
    pub fn join(&self, ifindex: u32) -> io::Result<()> {
        match SockRef::from(&self.0).join_multicast_v6(&ALL_ROUTERS, ifindex) {
            Err(error) if error.raw_os_error() != Some(libc::EADDRINUSE) => Err(error),
            _ => Ok(()),
        }
    }

    pub fn send(&self, bytes: &[u8], ifindex: u32, source: Ipv6Addr, to: Ipv6Addr) -> io::Result<()> {
        let to = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, ifindex));
        let info = libc::in6_pktinfo {
            ipi6_addr: libc::in6_addr { s6_addr: source.octets() },
            ipi6_ifindex: ifindex,
        };
        let control = [ControlMessage::Ipv6PacketInfo(&info), ControlMessage::Ipv6HopLimit(&HOP_LIMIT)];
        sendmsg(self.0.as_raw_fd(), &[IoSlice::new(bytes)], &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
        Ok(())
    }

    /// None = nothing has come. What is longer than the buffer is told with the length of the buffer.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Heard>> {
        let mut control = cmsg_space!(libc::in6_pktinfo, libc::c_int);
        let mut parts = [IoSliceMut::new(buffer)];
        let fd = self.0.as_raw_fd();
        let received = recvmsg::<SockaddrIn6>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT);
        let received = match received {
            Ok(received) => received,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let source = received.address.map_or(Ipv6Addr::UNSPECIFIED, |address| address.ip());
        let mut heard = Heard { length: received.bytes, source, ifindex: 0, hop_limit: 0 };
        for message in received.cmsgs()? {
            match message {
                ControlMessageOwned::Ipv6PacketInfo(info) => heard.ifindex = info.ipi6_ifindex,
                ControlMessageOwned::Ipv6HopLimit(limit) => {
                    heard.hop_limit = u8::try_from(limit).unwrap_or(0);
                }
                _ => {}
            }
        }
        Ok(Some(heard))
    }

    /// Returns when something has come, or after a time.
    pub fn wait(&self, milliseconds: u16) {
        let mut ready = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // a signal ends the wait early, which is no harm
        let _ = poll(&mut ready, PollTimeout::from(milliseconds));
    }
}

/// A set bit blocks its type (RFC 3542 3.2).
fn pass_only(fd: &OwnedFd, kind: u8) -> io::Result<()> {
    let mut filter = [u32::MAX; 8];
    filter[usize::from(kind >> 5)] &= !(1 << (kind & 31));
    let length = size_of_val(&filter) as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of the array, which lives until it returns.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::IPPROTO_ICMPV6, ICMPV6_FILTER, filter.as_ptr().cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
