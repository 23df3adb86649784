//! What a router must find out about a frame, and what it must refuse (RFC 1812 section 5.2.2, RFC 8200 section 4).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_wire::fields::{be16, octets};
use sluice_wire::{Mac, ah, eth, ethertype, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, protocol, tcp, udp, vlan};

use super::{DCCP, ICMP, ICMPV6, SCTP, TCP, Tuple, UDP, UDP_LITE};

/// IPv6 extension headers that are followed; a longer chain is refused.
const EXTENSIONS: usize = 5;

/// A frame without its Ethernet header and tags.
pub struct Link<'a> {
    /// MAC address.
    pub destination: Mac,
    /// TPID and VLAN of each tag, outer first; a lone priority tag (VLAN 0) is none.
    pub tags: Vec<(u16, u16)>,
    /// Behind the tags.
    pub ethertype: u16,
    /// Behind the EtherType.
    pub payload: &'a [u8],
}

/// An IP packet as policy sees it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// As in the IP header.
    pub source: IpAddr,
    /// As in the IP header.
    pub destination: IpAddr,
    /// Behind all extension headers.
    pub protocol: u8,
    /// Of ICMP echo, `sport` is the identifier.
    pub sport: u16,
    /// 0 where there are no ports.
    pub dport: u16,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Of the IP packet, in bytes.
    pub length: usize,
    /// The IPv4 header has some.
    pub options: bool,
    /// Any fragment, the first one included.
    pub fragment: bool,
    /// First fragment without its whole transport header.
    pub tiny: bool,
    /// By a routing header.
    pub leads_elsewhere: bool,
    /// Multicast or broadcast.
    pub group: bool,
    /// Its source or destination is link-local.
    pub link_local: bool,
    /// Its type is one of neighbour discovery (RFC 4861 4).
    pub neighbour_discovery: bool,
    /// Its type is one of an error message.
    pub icmp_error: bool,
    /// Of ICMP and ICMPv6, else 0.
    pub icmp_type: u8,
    /// Of ICMP errors that quote enough.
    pub quote: Option<Quote>,
    /// The low eight bits, FIN first.
    pub tcp_flags: u8,
    /// Of TCP, else 0.
    pub tcp_seq: u32,
    /// Of TCP, else 0.
    pub tcp_ack: u32,
    /// Bytes behind the TCP header.
    pub tcp_payload: u32,
    /// As in the header, not scaled.
    pub tcp_window: u16,
    /// Shift that the window scale option asks for (RFC 7323 section 2.2).
    pub tcp_scale: Option<u8>,
    /// Options of an IPv4 header.
    pub ip_options: Vec<u8>,
    /// What stands behind the IP headers; of a later fragment, behind the fragment header.
    pub payload: Vec<u8>,
    /// Of ICMP and ICMPv6, else 0.
    pub icmp_code: u8,
    /// Its part of the datagram.
    pub piece: Piece,
}

/// Where a fragment belongs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Piece {
    pub id: u32,
    pub offset: usize,
    pub more: bool,
    /// Bytes of the datagram in this fragment.
    pub length: usize,
    /// IPv4: length of the header, which counts for the length of the whole.
    pub header: usize,
}

impl Piece {
    pub fn end(&self) -> usize {
        self.offset + self.length
    }

    /// The whole datagram would be longer than its length field can say (RFC 791 section 3.1, RFC 8200 section 4.5),
    /// or a fragment but the last ends anywhere (RFC 791 section 3.2).
    pub fn is_malformed(&self) -> bool {
        self.header + self.end() > 65535 || self.length == 0 || (self.more && !self.length.is_multiple_of(8))
    }
}

/// The packet an ICMP error is about.
#[derive(Debug, Clone, Copy)]
pub struct Quote {
    /// Of the packet that is quoted, as its sender sent it.
    pub tuple: Tuple,
}

/// None = shorter than its headers.
pub fn link(frame: &[u8]) -> Option<Link<'_>> {
    let header = eth::View::new(frame).ok()?;
    let (mut ethertype, mut payload) = (header.ethertype(), header.payload());
    let mut tags = Vec::new();
    while ethertype == ethertype::VLAN && tags.len() < 2
        || ethertype == ethertype::SERVICE_VLAN && tags.is_empty()
    {
        let tag = vlan::View::new(payload).ok()?;
        tags.push((ethertype, tag.id()));
        (ethertype, payload) = (tag.ethertype(), tag.payload());
    }
    if tags == [(ethertype::VLAN, 0)] {
        tags.clear();
    }
    Some(Link { destination: header.destination(), tags, ethertype, payload })
}

/// Ok(None): no IP packet. Err: the reason to drop it.
pub fn parse(link: &Link) -> Result<Option<Facts>, &'static str> {
    match link.ethertype {
        ethertype::IPV4 => parse4(link.payload).map(Some),
        ethertype::IPV6 => parse6(link.payload).map(Some),
        _ => Ok(None),
    }
}

fn parse4(packet: &[u8]) -> Result<Facts, &'static str> {
    let view = ipv4::View::new_unchecked(packet).map_err(|_| "truncated")?;
    let (header, total) = (view.header_length(), usize::from(view.total_length()));
    if view.version() != 4 || header < ipv4::field::HEADER || total < header || view.protocol() == ICMPV6 {
        return Err("bad_ip_header");
    }
    if packet.len() < total {
        return Err("truncated");
    }
    if !view.checksum_ok() {
        return Err("bad_ip_header");
    }
    let (source, destination) = (view.source(), view.destination());
    if !source_allowed(source) || !destination_allowed(destination) {
        return Err("bad_address");
    }
    let mut facts = Facts::new(source.into(), destination.into(), view.protocol(), view.ttl(), total);
    facts.link_local = source.is_link_local() || destination.is_link_local();
    facts.options = header > ipv4::field::HEADER;
    facts.fragment = view.is_fragment();
    facts.group = destination.is_multicast() || destination.is_broadcast();
    facts.ip_options = packet[ipv4::field::HEADER..header].to_vec();
    facts.payload = packet[header..total].to_vec();
    facts.piece = Piece {
        id: u16::from_ne_bytes(octets(packet, ipv4::field::ID)).into(),
        offset: usize::from(view.flags_offset() & ipv4::OFFSET_MASK) * ipv4::OFFSET_UNIT,
        more: view.flags_offset() & ipv4::FLAG_MORE_FRAGMENTS != 0,
        length: total - header,
        header,
    };
    facts.transport_of_first(&packet[header..total])?;
    Ok(facts)
}

/// RFC 1812 section 5.3.7; an unspecified source is judged later: it may ask this host.
fn source_allowed(address: Ipv4Addr) -> bool {
    let class_d_or_e = address.octets()[0] >= 224;
    let this_network = address.octets()[0] == 0 && !address.is_unspecified();
    !(class_d_or_e || this_network || address.is_loopback())
}

fn destination_allowed(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !(first == 0 || first == 127 || (first >= 240 && !address.is_broadcast()))
}

fn parse6(packet: &[u8]) -> Result<Facts, &'static str> {
    let view = ipv6::View::new_unchecked(packet).map_err(|_| "truncated")?;
    if view.version() != 6 {
        return Err("bad_ip_header");
    }
    let total = ipv6::field::HEADER + usize::from(view.payload_length());
    if packet.len() < total {
        return Err("truncated");
    }
    let (source, destination) = (view.source(), view.destination());
    let never = source.is_multicast() || source.is_loopback();
    if never || destination.is_loopback() || destination.is_unspecified() {
        return Err("bad_address");
    }
    if source.to_ipv4_mapped().is_some() || destination.to_ipv4_mapped().is_some() {
        return Err("mapped_address");
    }
    let mut facts = Facts::new(source.into(), destination.into(), 0, view.hop_limit(), total);
    facts.group = destination.is_multicast();
    facts.link_local = is_link_local(source) || is_link_local(destination);
    facts.follow_extensions(view.next_header(), packet, total)?;
    Ok(facts)
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

impl Facts {
    fn new(source: IpAddr, destination: IpAddr, protocol: u8, ttl: u8, length: usize) -> Facts {
        Facts {
            source,
            destination,
            protocol,
            sport: 0,
            dport: 0,
            ttl,
            length,
            options: false,
            fragment: false,
            tiny: false,
            leads_elsewhere: false,
            group: false,
            link_local: false,
            neighbour_discovery: false,
            icmp_error: false,
            icmp_type: 0,
            quote: None,
            tcp_flags: 0,
            tcp_seq: 0,
            tcp_ack: 0,
            tcp_payload: 0,
            tcp_window: 0,
            tcp_scale: None,
            ip_options: Vec::new(),
            payload: Vec::new(),
            icmp_code: 0,
            piece: Piece::default(),
        }
    }

    /// `packet` may be longer than `total`: Ethernet padding is no header.
    fn follow_extensions(&mut self, first: u8, packet: &[u8], total: usize) -> Result<(), &'static str> {
        use ipv6_ext::field;
        let (mut next, mut at) = (first, ipv6::field::HEADER);
        for _ in 0..=EXTENSIONS {
            let length: fn(u8) -> usize = match next {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => ipv6_ext::length,
                protocol::AH => ah::length,
                protocol::FRAGMENT => |_| field::UNIT,
                _ => {
                    self.protocol = next;
                    if next == ICMP || (at > total && !self.fragment) {
                        return Err("bad_ip_header");
                    }
                    self.payload = packet.get(at..total).unwrap_or_default().to_vec();
                    if at > total {
                        // RFC 7112: what lies behind the packet's end is no header
                        self.tiny = true;
                        return Ok(());
                    }
                    return self.transport_of_first(packet.get(at..total).unwrap_or_default());
                }
            };
            let Some(header) = packet.get(at..at + field::UNIT) else {
                (self.protocol, self.tiny) = (next, self.fragment);
                self.payload = packet.get(at..total).unwrap_or_default().to_vec();
                return if self.tiny { Ok(()) } else { Err("truncated") };
            };
            self.options = true;
            if next == protocol::FRAGMENT {
                if self.fragment {
                    return Err("extension_headers");
                }
                self.note_fragment(header, packet.get(at + field::UNIT..total).unwrap_or_default());
                if self.piece.offset != 0 {
                    return Ok(());
                }
                (next, at) = (header[field::NEXT_HEADER], at + field::UNIT);
                continue;
            }
            // RFC 5095, RFC 6275 section 6.4
            self.leads_elsewhere |= next == protocol::ROUTING
                && header[field::SEGMENTS_LEFT] != 0
                && header[field::ROUTING_TYPE] != 2;
            (next, at) = (header[field::NEXT_HEADER], at + length(header[field::LENGTH]));
        }
        Err("extension_headers")
    }

    /// An atomic fragment is a whole packet (RFC 6946).
    fn note_fragment(&mut self, header: &[u8], rest: &[u8]) {
        use ipv6_ext::{MORE, OFFSET_MASK, field};
        let word = be16(header, field::OFFSET_MORE);
        (self.protocol, self.fragment) = (header[field::NEXT_HEADER], word & (OFFSET_MASK | MORE) != 0);
        self.payload = rest.to_vec();
        self.piece = Piece {
            id: u32::from_ne_bytes(octets(header, field::ID)),
            offset: usize::from(word & OFFSET_MASK),
            more: word & MORE != 0,
            length: rest.len(),
            header: 0,
        };
    }

    /// Only a first fragment has ports, and must have all of the header that they stand in (RFC 7112).
    fn transport_of_first(&mut self, segment: &[u8]) -> Result<(), &'static str> {
        if !self.fragment {
            return self.transport(segment);
        }
        if self.piece.offset == 0 {
            self.tiny = self.transport(segment).is_err();
        }
        Ok(())
    }

    fn transport(&mut self, segment: &[u8]) -> Result<(), &'static str> {
        match self.protocol {
            TCP => {
                let view = tcp::View::new(segment).map_err(|_| "truncated")?;
                (self.sport, self.dport) = (view.source_port(), view.destination_port());
                (self.tcp_flags, self.tcp_seq, self.tcp_ack) =
                    (view.flags(), view.sequence(), view.acknowledgment());
                self.tcp_payload = view.payload().len() as u32;
                self.tcp_window = view.window();
                self.tcp_scale = window_scale(view.options());
            }
            UDP => {
                let view = udp::View::new(segment).map_err(|_| "truncated")?;
                (self.sport, self.dport) = (view.source_port(), view.destination_port());
            }
            SCTP | DCCP | UDP_LITE => {
                let least = if self.protocol == UDP_LITE { 8 } else { 12 };
                let header = segment.get(..least).ok_or("truncated")?;
                self.sport = be16(header, udp::field::SOURCE_PORT);
                self.dport = be16(header, udp::field::DESTINATION_PORT);
            }
            ICMP => {
                let view = icmpv4::View::new(segment).map_err(|_| "truncated")?;
                (self.icmp_type, self.icmp_code, self.sport) = (view.kind(), view.code(), view.id());
                use icmpv4::{PARAMETER_PROBLEM, TIME_EXCEEDED, UNREACHABLE};
                self.icmp_error = matches!(view.kind(), UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM);
                self.quote = quote4(view.payload()).filter(|_| self.icmp_error);
            }
            ICMPV6 => {
                let view = icmpv6::View::new(segment).map_err(|_| "truncated")?;
                (self.icmp_type, self.icmp_code, self.sport) = (view.kind(), view.code(), view.id());
                self.icmp_error = icmpv6::is_error(view.kind());
                // RFC 4861 with the redirects of its section 4.5
                self.neighbour_discovery = (icmpv6::ROUTER_SOLICITATION..=137).contains(&view.kind());
                self.quote = quote6(view.payload()).filter(|_| self.icmp_error);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sequence number after this segment; SYN and FIN take one each.
    pub fn segment_end(&self) -> u32 {
        let marks = self.tcp_flags & tcp::SYN != 0;
        let fin = self.tcp_flags & tcp::FIN != 0;
        self.tcp_seq
            .wrapping_add(self.tcp_payload)
            .wrapping_add(u32::from(marks))
            .wrapping_add(u32::from(fin))
    }
}

/// RFC 792: the header and eight bytes are quoted; more is not needed.
fn quote4(bytes: &[u8]) -> Option<Quote> {
    let view = ipv4::View::new_unchecked(bytes).ok()?;
    let first = view.flags_offset() & ipv4::OFFSET_MASK == 0;
    if view.version() != 4 || view.header_length() < ipv4::field::HEADER || !first {
        return None;
    }
    quote(
        view.source().into(),
        view.destination().into(),
        view.protocol(),
        bytes.get(view.header_length()..)?,
    )
}

fn quote6(bytes: &[u8]) -> Option<Quote> {
    let view = ipv6::View::new_unchecked(bytes).ok().filter(|view| view.version() == 6)?;
    let (next, rest) = quoted_transport(view.next_header(), &bytes[ipv6::field::HEADER..])?;
    quote(view.source().into(), view.destination().into(), next, rest)
}

/// Behind the quoted extension headers; a later fragment has no transport header.
fn quoted_transport(first: u8, bytes: &[u8]) -> Option<(u8, &[u8])> {
    use ipv6_ext::field;
    let (mut next, mut rest) = (first, bytes);
    for _ in 0..=EXTENSIONS {
        let header = rest.get(..field::UNIT);
        let length = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                ipv6_ext::length(header?[field::LENGTH])
            }
            protocol::AH => ah::length(header?[field::LENGTH]),
            protocol::FRAGMENT if be16(header?, field::OFFSET_MORE) & ipv6_ext::OFFSET_MASK != 0 => {
                return None;
            }
            protocol::FRAGMENT => field::UNIT,
            _ => return Some((next, rest)),
        };
        next = header?[field::NEXT_HEADER];
        rest = rest.get(length..)?;
    }
    None
}

fn quote(source: IpAddr, destination: IpAddr, protocol: u8, rest: &[u8]) -> Option<Quote> {
    let head = rest.get(..8)?;
    let ports = (be16(head, udp::field::SOURCE_PORT), be16(head, udp::field::DESTINATION_PORT));
    let id = be16(head, icmpv4::field::ID);
    let v4 = source.is_ipv4();
    let (sport, dport) = match (protocol, head[icmpv4::field::TYPE], v4) {
        (TCP | UDP | SCTP | DCCP | UDP_LITE, ..) => ports,
        (ICMP, icmpv4::ECHO_REQUEST, true) | (ICMPV6, icmpv6::ECHO_REQUEST, false) => (id, super::ECHO),
        (ICMP, icmpv4::ECHO_REPLY, true) | (ICMPV6, icmpv6::ECHO_REPLY, false) => (super::ECHO, id),
        (ICMP, _, true) | (ICMPV6, _, false) => return None,
        _ => (0, 0),
    };
    Some(Quote { tuple: Tuple { source, destination, sport, dport, protocol } })
}

/// Kind 0 ends the list, kind 1 stands alone, every other has its length behind it; a shift above 14 counts as 14.
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        match *options {
            [] | [0, ..] => return None,
            [1, ref rest @ ..] => options = rest,
            [3, 3, shift, ..] => return Some(shift.min(14)),
            [_, length, ..] if length >= 2 => options = options.get(usize::from(length)..)?,
            _ => return None,
        }
    }
}
