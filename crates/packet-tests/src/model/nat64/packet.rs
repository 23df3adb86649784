//! What IPv4 and IPv6 packets have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_wire::fields::{be16, be32, v4, v6};
use sluice_wire::protocol::{AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use sluice_wire::{ipv4, ipv6, ipv6_ext};

use super::super::{ICMP, ICMPV6};

/// Longest IPv4 packet that may be fragmented on its way (RFC 7915 section 5.1).
const FRAGMENTABLE: usize = 1260;

/// A fragment's part of its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// In bytes.
    pub offset: u16,
    /// It is not the last one.
    pub more: bool,
    /// Identification; of IPv4 16 bits.
    pub id: u32,
}

/// An IP packet without the differences between the families.
#[derive(Debug, Clone)]
pub struct Packet {
    /// Source.
    pub from: IpAddr,
    /// Destination.
    pub to: IpAddr,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Hop limit, or TTL.
    pub hops: u8,
    /// As IPv4 numbers it.
    pub proto: u8,
    /// What a Fragment header says, of an IPv6 packet also where it is the only fragment (RFC 6946).
    pub fragment: Option<Fragment>,
    /// An extension header follows the Fragment header.
    pub extended_fragment: bool,
    /// Bytes behind the IP header and its extensions, as the header says; `data` may hold less, of a quoted packet.
    pub length: usize,
    /// Behind the IP header and its extensions.
    pub data: Vec<u8>,
    /// Of the packet that was read.
    pub total: usize,
}

impl Packet {
    /// Without what follows the packet in its frame. None = not even a header.
    pub fn read(bytes: &[u8]) -> Option<Packet> {
        match ipv4::version(*bytes.first()?) {
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
    fn write6(&self, source: Ipv6Addr, destination: Ipv6Addr, length: usize) -> Vec<u8> {
        let next_header = number6(self.proto);
        let fragment = self.fragment.map(|fragment| ipv6_ext::FragmentBuilder {
            next_header,
            reserved: 0,
            offset_more: fragment.offset | if fragment.more { ipv6_ext::MORE } else { 0 },
            id: fragment.id,
        });
        let header = ipv6::Builder {
            source,
            destination,
            next_header: if fragment.is_some() { FRAGMENT } else { next_header },
            hop_limit: self.hops,
            traffic_class: self.traffic_class,
            ..ipv6::Builder::default()
        };
        let behind = fragment.map_or_else(Vec::new, |fragment| fragment.build(&[]));
        let mut out = Vec::new();
        header.append(behind.len() + length, &mut out);
        [out, behind, self.data.clone()].concat()
    }

    /// RFC 7915 section 5.1. The identification of packets that are no fragments is 0 here.
    fn write4(&self, source: Ipv4Addr, destination: Ipv4Addr, length: usize) -> Vec<u8> {
        let (id, flags_offset) = match self.fragment {
            Some(fragment) => {
                let more = if fragment.more { ipv4::FLAG_MORE_FRAGMENTS } else { 0 };
                (fragment.id as u16, (fragment.offset / ipv4::OFFSET_UNIT as u16) | more)
            }
            None if length + ipv4::field::HEADER <= FRAGMENTABLE => (0, 0),
            None => (0, ipv4::FLAG_DONT_FRAGMENT),
        };
        let header = ipv4::Builder {
            source,
            destination,
            protocol: self.proto,
            ttl: self.hops,
            tos: self.traffic_class,
            id,
            flags_offset,
            ..ipv4::Builder::default()
        };
        let mut out = Vec::new();
        header.append(length, &mut out);
        out.extend(&self.data);
        out
    }
}

fn number6(proto: u8) -> u8 {
    if proto == ICMP { ICMPV6 } else { proto }
}

fn read4(bytes: &[u8]) -> Option<Packet> {
    use ipv4::field;
    let fixed: &[u8; field::HEADER] = bytes.first_chunk()?;
    let header = ipv4::header_length(fixed[field::VERSION_IHL]);
    let total = usize::from(be16(fixed, field::LENGTH));
    let flags = be16(fixed, field::FLAGS_OFFSET);
    let fragment = Fragment {
        offset: (flags & ipv4::OFFSET_MASK) * ipv4::OFFSET_UNIT as u16,
        more: flags & ipv4::FLAG_MORE_FRAGMENTS != 0,
        id: be16(fixed, field::ID).into(),
    };
    Some(Packet {
        from: v4(fixed, field::SOURCE).into(),
        to: v4(fixed, field::DESTINATION).into(),
        traffic_class: fixed[field::TOS],
        hops: fixed[field::TTL],
        proto: fixed[field::PROTOCOL],
        fragment: (fragment.more || fragment.offset != 0).then_some(fragment),
        extended_fragment: false,
        length: total.checked_sub(header)?,
        data: bytes.get(header..total.min(bytes.len()))?.to_vec(),
        total,
    })
}

/// Extension headers are left out (RFC 7915 section 5.1), but for what a fragment header says.
fn read6(bytes: &[u8]) -> Option<Packet> {
    use ipv6::field;
    let fixed: &[u8; field::HEADER] = bytes.first_chunk()?;
    let total = usize::from(be16(fixed, field::PAYLOAD_LENGTH)) + field::HEADER;
    let (mut next, mut at) = (fixed[field::NEXT_HEADER], field::HEADER);
    let (mut fragment, mut extended_fragment) = (None, false);
    while matches!(next, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | FRAGMENT) {
        use ipv6_ext::{MORE, OFFSET_MASK, field};
        let header = bytes.get(at..)?;
        let mut length = ipv6_ext::length(*header.get(field::LENGTH)?);
        let kind = std::mem::replace(&mut next, header[field::NEXT_HEADER]);
        if kind == FRAGMENT {
            let header: &[u8; field::UNIT] = header.first_chunk()?;
            let word = be16(header, field::OFFSET_MORE);
            let (offset, more) = (word & OFFSET_MASK, word & MORE != 0);
            fragment = fragment.or(Some(Fragment { offset, more, id: be32(header, field::ID) }));
            extended_fragment |= matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS);
            length = field::UNIT;
        }
        at += length;
        if fragment.is_some_and(|fragment| fragment.offset != 0) {
            break;
        }
    }
    Some(Packet {
        from: v6(fixed, field::SOURCE).into(),
        to: v6(fixed, field::DESTINATION).into(),
        traffic_class: (be32(fixed, field::VERSION_CLASS_FLOW) >> 20) as u8,
        hops: fixed[field::HOP_LIMIT],
        proto: if next == ICMPV6 { ICMP } else { next },
        fragment,
        extended_fragment,
        length: total.checked_sub(at)?,
        data: bytes.get(at..total.min(bytes.len()))?.to_vec(),
        total,
    })
}
