//! Questions to the kernel's routing (rtnetlink(7)): which way, which neighbour, which link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

/// Which way packets to an address leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub ifindex: u32,
    /// Whose MAC address they get.
    pub next: IpAddr,
    pub is_local: bool,
    /// If the route has one of its own.
    pub mtu: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    pub mac: [u8; 6],
    pub mtu: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    pub mac: [u8; 6],
    /// Whether the kernel has heard of it lately.
    pub is_fresh: bool,
}

pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
}

/// One message under construction: what follows the header of the netlink message.
struct Message(Vec<u8>);

impl Message {
    fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|a| Ipv4Addr::from(a).into()),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|a| Ipv6Addr::from(a).into()),
        _ => None,
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// Kind and value of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?);
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & 0x3fff, value))
    })
}

impl Netlink {
    /// Of the calling thread's network namespace.
    pub fn open() -> io::Result<Netlink> {
        let kind = (SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute);
        let fd = socket(AddressFamily::Netlink, kind.0, kind.1, kind.2)?;
        setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::seconds(1))?;
        Ok(Netlink { fd, sequence: 0 })
    }

    /// The answer's content; empty where it is an acknowledgement only.
    fn ask(&mut self, kind: u16, flags: i32, message: Message) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let mut bytes = (message.0.len() as u32 + 16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend(self.sequence.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(message.0);
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
        let mut buffer = vec![0; 16_384];
        loop {
            let length = recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            let answer = &buffer[..length];
            // one left over from a question that took too long
            if answer.get(8..12) != Some(&self.sequence.to_ne_bytes()) {
                continue;
            }
            let kind = answer.get(4..6).map(|kind| i32::from(u16::from_ne_bytes([kind[0], kind[1]])));
            if kind != Some(libc::NLMSG_ERROR) {
                return Ok(answer.get(16..).unwrap_or_default().to_vec());
            }
            let code = answer.get(16..).and_then(word).unwrap_or(0) as i32;
            return if code == 0 { Ok(vec![]) } else { Err(io::Error::from_raw_os_error(-code)) };
        }
    }

    pub fn way(&mut self, to: IpAddr) -> io::Result<Way> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        // struct rtmsg
        let message = Message(vec![family(to), bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let answer = self.ask(libc::RTM_GETROUTE, 0, message.attribute(libc::RTA_DST, &octets(to)))?;
        let rest = answer.get(12..).unwrap_or_default();
        let mut way =
            Way { ifindex: 0, next: to, is_local: answer.get(7) == Some(&libc::RTN_LOCAL), mtu: None };
        if !matches!(answer.get(7), Some(&(libc::RTN_UNICAST | libc::RTN_LOCAL))) {
            return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, "the route leads nowhere"));
        }
        for (kind, value) in attributes(rest) {
            match kind {
                libc::RTA_OIF => way.ifindex = word(value).unwrap_or(0),
                libc::RTA_GATEWAY => way.next = address(value).unwrap_or(to),
                // family, then the address
                RTA_VIA => way.next = value.get(2..).and_then(address).unwrap_or(to),
                RTA_METRICS => {
                    way.mtu =
                        attributes(value).find(|(kind, _)| *kind == RTAX_MTU).and_then(|(_, v)| word(v));
                }
                _ => {}
            }
        }
        Ok(way)
    }

    /// None when the kernel knows no MAC address of it.
    pub fn neighbour(&mut self, ifindex: u32, of: IpAddr) -> io::Result<Option<Neighbour>> {
        let message = neighbour_message(ifindex, of, 0).attribute(libc::NDA_DST, &octets(of));
        let answer = match self.ask(libc::RTM_GETNEIGH, 0, message) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            answer => answer?,
        };
        let state = answer.get(8..10).map_or(0, |state| u16::from_ne_bytes([state[0], state[1]]));
        let usable = libc::NUD_REACHABLE
            | libc::NUD_STALE
            | libc::NUD_DELAY
            | libc::NUD_PROBE
            | libc::NUD_PERMANENT
            | libc::NUD_NOARP;
        let mac = attributes(answer.get(12..).unwrap_or_default())
            .find(|(kind, _)| *kind == libc::NDA_LLADDR)
            .and_then(|(_, value)| value.try_into().ok());
        let is_fresh = state & (libc::NUD_REACHABLE | libc::NUD_PERMANENT | libc::NUD_NOARP) != 0;
        Ok(mac.filter(|_| state & usable != 0).map(|mac| Neighbour { mac, is_fresh }))
    }

    /// Has the kernel find out, or make sure, as if it had a packet to send.
    pub fn resolve(&mut self, ifindex: u32, of: IpAddr) -> io::Result<()> {
        let message = neighbour_message(ifindex, of, libc::NTF_USE).attribute(libc::NDA_DST, &octets(of));
        self.ask(libc::RTM_NEWNEIGH, libc::NLM_F_ACK | libc::NLM_F_CREATE, message).map(drop)
    }

    /// Gives a device an address, so that the kernel answers for it, or takes it away.
    pub fn address(&mut self, ifindex: u32, of: IpAddr, wanted: bool) -> io::Result<()> {
        let bits = if of.is_ipv4() { 32 } else { 128 };
        // struct ifaddrmsg; nobody else can have the address, so there is nothing to detect
        let mut message = vec![family(of), bits, libc::IFA_F_NODAD as u8, 0];
        message.extend(ifindex.to_ne_bytes());
        let message = Message(message)
            .attribute(libc::IFA_LOCAL, &octets(of))
            .attribute(libc::IFA_ADDRESS, &octets(of));
        let (kind, flags) =
            if wanted { (libc::RTM_NEWADDR, libc::NLM_F_CREATE) } else { (libc::RTM_DELADDR, 0) };
        self.ask(kind, libc::NLM_F_ACK | flags, message).map(drop)
    }

    pub fn link(&mut self, ifindex: u32) -> io::Result<Link> {
        // struct ifinfomsg
        let mut message = vec![0; 16];
        message[4..8].copy_from_slice(&ifindex.to_ne_bytes());
        let answer = self.ask(libc::RTM_GETLINK, 0, Message(message))?;
        let mut link = Link { name: String::new(), mac: [0; 6], mtu: 0 };
        for (kind, value) in attributes(answer.get(16..).unwrap_or_default()) {
            match kind {
                libc::IFLA_IFNAME => {
                    link.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned();
                }
                libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
                libc::IFLA_MTU => link.mtu = word(value).unwrap_or(0),
                _ => {}
            }
        }
        Ok(link)
    }
}

const RTA_METRICS: u16 = 8;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;

/// struct ndmsg
fn neighbour_message(ifindex: u32, of: IpAddr, flags: u8) -> Message {
    let mut message = vec![0; 12];
    message[0] = family(of);
    message[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    message[10] = flags;
    Message(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_the_way_to_this_host() {
        let mut netlink = Netlink::open().unwrap();
        for address in ["127.0.0.1", "127.1.2.3"] {
            let way = netlink.way(address.parse().unwrap()).unwrap();
            assert!(way.is_local && way.next == address.parse::<IpAddr>().unwrap());
            let link = netlink.link(way.ifindex).unwrap();
            assert_eq!((link.name.as_str(), link.mac), ("lo", [0; 6]));
            assert_eq!(netlink.neighbour(way.ifindex, "127.9.9.9".parse().unwrap()).unwrap(), None);
        }
        assert!(netlink.link(u32::MAX >> 1).is_err());
    }

    #[test]
    fn attributes_are_read_and_broken_ones_end_the_list() {
        let message = Message(vec![]).attribute(3, b"abc").attribute(4, &7u32.to_ne_bytes());
        assert_eq!(attributes(&message.0).collect::<Vec<_>>(), [(3, &b"abc"[..]), (4, &7u32.to_ne_bytes())]);
        for length in 0..message.0.len() - 1 {
            assert!(attributes(&message.0[..length]).count() <= 1);
        }
        assert_eq!(attributes(&[0, 0, 0, 0, 0]).count(), 0);
    }
}
