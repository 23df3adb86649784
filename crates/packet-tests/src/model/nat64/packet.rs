//! What IPv4 and IPv6 packets have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::{ICMP, ICMPV6};

const FRAGMENT: u8 = 44;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// In bytes.
    pub offset: u16,
    pub more: bool,
    pub id: u32,
}

#[derive(Debug, Clone)]
pub struct Packet {
    pub from: IpAddr,
    pub to: IpAddr,
    pub traffic_class: u8,
    pub hops: u8,
    /// As IPv4 numbers it.
    pub proto: u8,
    /// What a Fragment header says, of an IPv6 packet also where it is the only fragment (RFC 6946).
    pub fragment: Option<Fragment>,
    /// An extension header follows the Fragment header.
    pub extended_fragment: bool,
    /// Bytes behind the IP header and its extensions, as the header says; `data` may hold less, of a quoted packet.
    pub length: usize,
    pub data: Vec<u8>,
    /// Of the packet that was read.
    pub total: usize,
}

impl Packet {
    /// Without what follows the packet in its frame. None = not even a header.
    pub fn read(bytes: &[u8]) -> Option<Packet> {
        match bytes.first()? >> 4 {
            4 => read4(bytes),
            6 => read6(bytes),
            _ => None,
        }
    }

    /// One of several.
    pub fn is_piece(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0)
    }

    /// With the header's checksum; `length` is the one to state.
    pub fn write(&self, length: usize) -> Vec<u8> {
        match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.write4(from, to, length),
            (IpAddr::V6(from), IpAddr::V6(to)) => self.write6(from, to, length),
            _ => unreachable!("both addresses are of one family"),
        }
    }

    /// The pseudo-header of the transport checksum (RFC 768, RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn pseudo(&self, length: usize) -> Vec<u8> {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let mut pseudo = [octets(self.from), octets(self.to)].concat();
        pseudo.extend((length as u32).to_be_bytes());
        let proto = if self.from.is_ipv6() { number6(self.proto) } else { self.proto };
        pseudo.extend([0, proto]);
        pseudo
    }

    /// RFC 7915 section 4.1
    fn write6(&self, from: Ipv6Addr, to: Ipv6Addr, length: usize) -> Vec<u8> {
        let next = number6(self.proto);
        let payload = length + if self.fragment.is_some() { 8 } else { 0 };
        let mut out = (6 << 28 | u32::from(self.traffic_class) << 20).to_be_bytes().to_vec();
        out.extend((payload as u16).to_be_bytes());
        out.extend([if self.fragment.is_some() { FRAGMENT } else { next }, self.hops]);
        out.extend(from.octets());
        out.extend(to.octets());
        if let Some(fragment) = self.fragment {
            out.extend([next, 0]);
            out.extend((fragment.offset | u16::from(fragment.more)).to_be_bytes());
            out.extend(fragment.id.to_be_bytes());
        }
        out.extend(&self.data);
        out
    }

    /// RFC 7915 section 5.1. The identification of packets that are no fragments is 0 here.
    fn write4(&self, from: Ipv4Addr, to: Ipv4Addr, length: usize) -> Vec<u8> {
        let total = length + 20;
        let mut out = vec![0x45, self.traffic_class];
        out.extend((total as u16).to_be_bytes());
        match self.fragment {
            Some(fragment) => {
                out.extend((fragment.id as u16).to_be_bytes());
                out.extend(((fragment.offset / 8) | if fragment.more { 0x2000 } else { 0 }).to_be_bytes());
            }
            None => out.extend([0, 0, if total <= 1260 { 0 } else { 0x40 }, 0]),
        }
        out.extend([self.hops, self.proto, 0, 0]);
        out.extend(from.octets());
        out.extend(to.octets());
        let check = super::sum(&[&out]);
        out[10..12].copy_from_slice(&check.to_be_bytes());
        out.extend(&self.data);
        out
    }
}

fn number6(proto: u8) -> u8 {
    if proto == ICMP { ICMPV6 } else { proto }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

fn read4(bytes: &[u8]) -> Option<Packet> {
    let header = usize::from(bytes[0] & 0x0f) * 4;
    let total = usize::from(word(bytes, 2)?);
    let flags = word(bytes, 6)?;
    let fragment =
        Fragment { offset: (flags & 0x1fff) * 8, more: flags & 0x2000 != 0, id: word(bytes, 4)?.into() };
    let address = |at: usize| <[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok();
    Some(Packet {
        from: Ipv4Addr::from(address(12)?).into(),
        to: Ipv4Addr::from(address(16)?).into(),
        traffic_class: bytes[1],
        hops: bytes[8],
        proto: bytes[9],
        fragment: (fragment.more || fragment.offset != 0).then_some(fragment),
        extended_fragment: false,
        length: total.checked_sub(header)?,
        data: bytes.get(header..total.min(bytes.len()))?.to_vec(),
        total,
    })
}

/// Extension headers are left out (RFC 7915 section 5.1), but for what a fragment header says.
fn read6(bytes: &[u8]) -> Option<Packet> {
    let total = usize::from(word(bytes, 4)?) + 40;
    let address = |at: usize| <[u8; 16]>::try_from(bytes.get(at..at + 16)?).ok();
    let (mut next, mut at, mut fragment, mut extended_fragment) = (*bytes.get(6)?, 40, None, false);
    while matches!(next, 0 | 43 | 60 | FRAGMENT) {
        if next == FRAGMENT {
            let offset = word(bytes, at + 2)?;
            let id = u32::from(word(bytes, at + 4)?) << 16 | u32::from(word(bytes, at + 6)?);
            fragment = fragment.or(Some(Fragment { offset: offset & 0xfff8, more: offset & 1 != 0, id }));
            extended_fragment |= matches!(bytes[at], 0 | 43 | 44 | 51 | 60);
        }
        let length = if next == FRAGMENT { 8 } else { (usize::from(*bytes.get(at + 1)?) + 1) * 8 };
        next = bytes[at];
        at += length;
        if fragment.is_some_and(|fragment| fragment.offset != 0) {
            break;
        }
    }
    Some(Packet {
        from: Ipv6Addr::from(address(8)?).into(),
        to: Ipv6Addr::from(address(24)?).into(),
        traffic_class: (word(bytes, 0)? >> 4) as u8,
        hops: bytes[7],
        proto: if next == ICMPV6 { ICMP } else { next },
        fragment,
        extended_fragment,
        length: total.checked_sub(at)?,
        data: bytes.get(at..total.min(bytes.len()))?.to_vec(),
        total,
    })
}
