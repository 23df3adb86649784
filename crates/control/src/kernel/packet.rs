//! Sockets of clients that have no address yet: packets of one kind on one device (packet(7)), and DHCPv6's own.
#![allow(unsafe_code, reason = "sockaddr_ll has no safe interface")]

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, SockFilter, Socket, Type};

const BROADCAST: [u8; 6] = [0xff; 6];

/// What packets are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// IPv4 to UDP port 68 that is no fragment.
    DhcpAnswers,
    Arp,
}

impl Taken {
    fn ethertype(self) -> u16 {
        match self {
            Self::DhcpAnswers => libc::ETH_P_IP as u16,
            Self::Arp => libc::ETH_P_ARP as u16,
        }
    }

    /// For the kernel to judge (classic BPF over the packet from its network header on): what else the device carries must
    /// not fill the socket's queue.
    fn filter(self) -> Vec<SockFilter> {
        let op = |code: u32, jt, jf, k| SockFilter::new(code as u16, jt, jf, k);
        let (load, all, none) =
            (libc::BPF_LD | libc::BPF_ABS, op(libc::BPF_RET, 0, 0, 2048), op(libc::BPF_RET, 0, 0, 0));
        let equal = |jf, k| op(libc::BPF_JMP | libc::BPF_JEQ, 0, jf, k);
        match self {
            Self::DhcpAnswers => vec![
                op(load | libc::BPF_B, 0, 0, 9),
                equal(6, 17),
                op(load | libc::BPF_H, 0, 0, 6),
                op(libc::BPF_JMP | libc::BPF_JSET, 4, 0, 0x3fff),
                op(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 0),
                op(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 2),
                equal(1, 68),
                all,
                none,
            ],
            Self::Arp => vec![all],
        }
    }
}

/// Packets of one kind on one device.
#[derive(Debug)]
pub struct PacketSocket {
    socket: Socket,
    ifindex: u32,
    taken: Taken,
}

impl PacketSocket {
    pub fn open(ifindex: u32, taken: Taken) -> io::Result<Self> {
        // with no protocol nothing arrives before the filter stands
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
        socket.attach_filter(&taken.filter())?;
        socket.set_nonblocking(true)?;
        socket.bind(&link_address(ifindex, taken.ethertype(), BROADCAST))?;
        Ok(Self { socket, ifindex, taken })
    }

    /// To everybody on the link.
    pub fn broadcast(&self, packet: &[u8]) -> io::Result<()> {
        let to = link_address(self.ifindex, self.taken.ethertype(), BROADCAST);
        self.socket.send_to(packet, &to).map(drop)
    }

    /// None = there is no more.
    pub fn receive(&self) -> Option<Vec<u8>> {
        receive(&self.socket).map(|(packet, _)| packet)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn receive(socket: &Socket) -> Option<(Vec<u8>, SockAddr)> {
    let mut buffer = [MaybeUninit::uninit(); 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                // SAFETY: the kernel has written so many octets.
                let packet = buffer[..length].iter().map(|octet| unsafe { octet.assume_init() }).collect();
                return Some((packet, from));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // a device that is down says so once; what it misses is sent again
            Err(_) => return None,
        }
    }
}

fn link_address(ifindex: u32, ethertype: u16, mac: [u8; 6]) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: all zeros are a valid sockaddr_ll, and the storage is at least as long and aligned.
    let link = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    link.sll_family = libc::AF_PACKET as u16;
    link.sll_protocol = ethertype.to_be();
    link.sll_ifindex = ifindex as i32;
    link.sll_halen = 6;
    link.sll_addr[..6].copy_from_slice(&mac);
    // SAFETY: the length is that of what was written.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as u32) }
}

/// Port 68 of a leased address. It sends, and keeps the kernel from telling servers that nobody listens; what arrives is
/// read from the packet socket, as before there was an address.
pub fn port_68(address: Ipv4Addr, device: &str) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddrV4::new(address, 68).into())?;
    Ok(socket)
}

/// To UDP port 67 of a server.
pub fn send_to_server(socket: &Socket, server: Ipv4Addr, message: &[u8]) -> io::Result<()> {
    socket.send_to(message, &SocketAddrV4::new(server, 67).into()).map(drop)
}

/// RFC 8415, section 7.1.
const SERVERS_AND_RELAYS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// UDP port 546 of a device.
#[derive(Debug)]
pub struct Port546 {
    socket: Socket,
    ifindex: u32,
}

impl Port546 {
    /// Works once a link-local address is no longer tentative; until then sending is refused.
    pub fn open(ifindex: u32, device: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
        socket.set_only_v6(true)?;
        socket.set_reuse_address(true)?;
        socket.bind_device(Some(device.as_bytes()))?;
        socket.set_multicast_if_v6(ifindex)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 546, 0, 0).into())?;
        Ok(Self { socket, ifindex })
    }

    /// To all servers and relays on the link.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let to = SocketAddrV6::new(SERVERS_AND_RELAYS, 547, 0, self.ifindex);
        self.socket.send_to(message, &to.into()).map(drop)
    }

    /// A message and who sent it; None = there is no more.
    pub fn receive(&self) -> Option<(Vec<u8>, Ipv6Addr)> {
        let (message, from) = receive(&self.socket)?;
        Some((message, from.as_socket_ipv6().map_or(Ipv6Addr::UNSPECIFIED, |from| *from.ip())))
    }
}

impl AsFd for Port546 {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Asks routers for an advertisement (RFC 4861, section 6.3.7): a device that was up before it may accept them never asks.
pub fn solicit_routers(ifindex: u32, device: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.set_multicast_hops_v6(255)?;
    let to = SocketAddrV6::new(ALL_ROUTERS, 0, 0, ifindex);
    socket.send_to(&[133, 0, 0, 0, 0, 0, 0, 0], &to.into()).map(drop)
}
