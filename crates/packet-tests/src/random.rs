//! A small seeded generator, and packets made with it: mostly sensible, often at an edge, sometimes broken.

use std::net::IpAddr;

use sluice_wire::checksum::Pseudo;
use sluice_wire::{Mac, eth, ethertype, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, protocol, tcp, udp, vlan};

use crate::model::{ICMP, ICMPV6, Model, TCP, Tuple, UDP, Unit};

/// SplitMix64: the same numbers for the same seed, everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Any of 2^64 (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// Each equally likely; `from` must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What a random packet is about to be.
struct Draft {
    unit: Unit,
    source_mac: Mac,
    tuple: Tuple,
    payload: usize,
}

/// Addresses that packets come from and go to, by unit name.
pub struct Stations {
    /// Unit, MAC, IPv4, IPv6.
    pub hosts: Vec<(String, Mac, IpAddr, IpAddr)>,
    /// Beyond routers, on no link, in routes that go nowhere, or not to be used at all.
    pub elsewhere: Vec<IpAddr>,
    /// Identifications of datagrams in pieces.
    pub datagrams: [u32; 3],
}

const PORTS: [u16; 13] = [0, 22, 53, 67, 68, 80, 139, 443, 1000, 1500, 2000, 3000, 40000];

/// A frame and the device it arrives on.
pub fn frame(random: &mut Random, model: &Model, stations: &Stations) -> (String, Vec<u8>) {
    let flows = model.flows();
    let recent = &flows[flows.len().saturating_sub(8)..];
    let continued = !recent.is_empty() && random.percent(55);
    let tuple = match continued {
        true if random.percent(50) => *random.pick(recent),
        true => random.pick(recent).reversed(),
        false => fresh_tuple(random, stations),
    };
    let draft = draft_packet(random, model, stations, tuple);
    let l4 = if continued && random.percent(15) {
        error_about(random, &draft)
    } else {
        transport(random, model, &draft)
    };
    let packet = network(random, &draft, stations, l4);
    (draft.unit.device.clone(), link(random, &draft, packet))
}

/// The unit that the source belongs to, mostly.
fn draft_packet(random: &mut Random, model: &Model, stations: &Stations, tuple: Tuple) -> Draft {
    let home = stations.hosts.iter().find(|host| host.2 == tuple.source || host.3 == tuple.source);
    let (name, source_mac) = match home {
        Some(host) if random.percent(96) => (host.0.clone(), host.1),
        _ => {
            let host = random.pick(&stations.hosts);
            (host.0.clone(), host.1)
        }
    };
    let unit = model.units.iter().find(|unit| unit.name == name).expect("hosts are on units").clone();
    let payload = *random.pick(&[0, 0, 1, 4, 5, 32, 600, 1200, 1232, 1252, 1352, 1372, 1400, 1452, 1472]);
    Draft { unit, source_mac, tuple, payload }
}

fn fresh_tuple(random: &mut Random, stations: &Stations) -> Tuple {
    let v4 = random.percent(50);
    let station = |random: &mut Random| {
        let host = random.pick(&stations.hosts);
        if v4 { host.2 } else { host.3 }
    };
    let source = station(random);
    let outside: Vec<IpAddr> =
        stations.elsewhere.iter().copied().filter(|addr| addr.is_ipv4() == v4).collect();
    let destination = if random.percent(30) { *random.pick(&outside) } else { station(random) };
    let source = if random.percent(4) { *random.pick(&outside) } else { source };
    let protocol = *random.pick(&[TCP, TCP, TCP, UDP, UDP, UDP, if v4 { ICMP } else { ICMPV6 }, 47, 50, 200]);
    let ports = match protocol {
        TCP | UDP => (*random.pick(&PORTS), *random.pick(&PORTS)),
        ICMP | ICMPV6 => (*random.pick(&PORTS), 0x0800),
        _ => (0, 0),
    };
    Tuple { source, destination, sport: ports.0, dport: ports.1, protocol }
}

fn pseudo(tuple: &Tuple) -> Pseudo {
    match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pseudo::V4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Pseudo::V6(source, destination),
        _ => Pseudo::None,
    }
}

fn transport(random: &mut Random, model: &Model, draft: &Draft) -> (u8, Vec<u8>) {
    let tuple = &draft.tuple;
    let payload = vec![0x61; draft.payload];
    let bytes = match tuple.protocol {
        TCP => tcp_segment(random, model, tuple).build(&payload, pseudo(tuple)),
        UDP => {
            let builder = udp::Builder {
                source_port: tuple.sport,
                destination_port: tuple.dport,
                ..Default::default()
            };
            builder.build(&payload, pseudo(tuple))
        }
        ICMP | ICMPV6 => echo(random, tuple, &payload),
        _ => payload,
    };
    (tuple.protocol, bytes)
}

fn tcp_segment(random: &mut Random, model: &Model, tuple: &Tuple) -> tcp::Builder {
    use tcp::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
    let kinds = [
        SYN,
        SYN,
        SYN,
        SYN | ACK,
        ACK,
        ACK,
        ACK | PSH,
        ACK | FIN,
        RST,
        RST | ACK,
        SYN | FIN,
        0,
        FIN,
        ACK | URG,
        SYN | ECE | CWR,
    ];
    let opener = model.flows().iter().any(|flow| flow == tuple);
    let ends = model.sequence_numbers(tuple);
    let (own, peer) = if opener { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    let near = |random: &mut Random, number: u32| match random.below(10) {
        0 => number.wrapping_add(1),
        3 => number.wrapping_add(random.below(4000) as u32),
        4 => number.wrapping_sub(random.below(70_000) as u32),
        1 => number.wrapping_sub(1),
        2 => random.number() as u32,
        _ => number,
    };
    tcp::Builder {
        source_port: tuple.sport,
        destination_port: tuple.dport,
        sequence: near(random, own),
        acknowledgment: near(random, peer),
        flags: *random.pick(&kinds),
        window: *random.pick(&[0, 1, 1000, 3000, 30_000, 65_535]),
        options: match random.below(10) {
            0..3 => vec![2, 4, 5, 0xb4],
            3..6 => vec![2, 4, 5, 0xb4, 1, 3, 3, random.below(5) as u8],
            6 => vec![3, 3, 15, 0],
            _ => Vec::new(),
        },
        ..Default::default()
    }
}

/// A request in the asker's direction, a reply in the other; sometimes neither.
fn echo(random: &mut Random, tuple: &Tuple, payload: &[u8]) -> Vec<u8> {
    let v4 = tuple.protocol == ICMP;
    let asks = tuple.dport == 0x0800 && !random.percent(10);
    let id = if tuple.dport == 0x0800 { tuple.sport } else { tuple.dport };
    let kind = match (random.below(20), asks, v4) {
        (0, _, true) => 13,
        (0, _, false) => 200,
        (_, true, true) => icmpv4::ECHO_REQUEST,
        (_, false, true) => icmpv4::ECHO_REPLY,
        (_, true, false) => icmpv6::ECHO_REQUEST,
        (_, false, false) => icmpv6::ECHO_REPLY,
    };
    let rest = u32::from(id) << 16 | 1;
    if v4 {
        icmpv4::Builder { kind, rest, ..Default::default() }.build(payload)
    } else {
        icmpv6::Builder { kind, rest, ..Default::default() }.build(payload, pseudo(tuple))
    }
}

/// An ICMP error that this direction would send about a packet it got, so it quotes the other direction.
fn error_about(random: &mut Random, draft: &Draft) -> (u8, Vec<u8>) {
    let mut quoted = draft.tuple.reversed();
    if random.percent(10) {
        quoted.sport ^= 1;
    }
    let l4 = [&quoted.sport.to_be_bytes()[..], &quoted.dport.to_be_bytes()[..], &[0, 8, 0, 0]].concat();
    let l4 = match quoted.protocol {
        ICMP | ICMPV6 => quoted_echo(&quoted),
        _ => l4,
    };
    let inner = plain_network(&quoted, 60, &l4);
    let keep = if random.percent(15) { random.below(inner.len() + 1) } else { inner.len() };
    if draft.tuple.source.is_ipv4() {
        let kind = *random.pick(&[3, 3, 11, 12, 4, 5]);
        (ICMP, icmpv4::Builder { kind, code: 3, ..Default::default() }.build(&inner[..keep]))
    } else {
        let kind = *random.pick(&[1, 2, 3, 4, 100]);
        (ICMPV6, icmpv6::Builder { kind, ..Default::default() }.build(&inner[..keep], pseudo(&draft.tuple)))
    }
}

fn quoted_echo(tuple: &Tuple) -> Vec<u8> {
    let v4 = tuple.protocol == ICMP;
    let asks = tuple.dport == 0x0800;
    let kind = match (asks, v4) {
        (true, true) => icmpv4::ECHO_REQUEST,
        (false, true) => icmpv4::ECHO_REPLY,
        (true, false) => icmpv6::ECHO_REQUEST,
        (false, false) => icmpv6::ECHO_REPLY,
    };
    let id = if asks { tuple.sport } else { tuple.dport };
    [&[kind, 0, 0, 0][..], &id.to_be_bytes()[..], &[0, 1]].concat()
}

fn plain_network(tuple: &Tuple, ttl: u8, l4: &[u8]) -> Vec<u8> {
    match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            ipv4::Builder { source, destination, protocol: tuple.protocol, ttl, ..Default::default() }
                .build(l4)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let next_header = tuple.protocol;
            ipv6::Builder { source, destination, next_header, hop_limit: ttl, ..Default::default() }.build(l4)
        }
        _ => Vec::new(),
    }
}

fn network(
    random: &mut Random,
    draft: &Draft,
    stations: &Stations,
    (protocol, l4): (u8, Vec<u8>),
) -> Vec<u8> {
    let datagram = *random.pick(&stations.datagrams);
    let ttl = *random.pick(&[64, 64, 64, 64, 64, 64, 64, 255, 2, 1, 0]);
    match (draft.tuple.source, draft.tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let fragment = if random.percent(15) { fragment_field(random) } else { 0 };
            let dont = if random.percent(50) { ipv4::FLAG_DONT_FRAGMENT } else { 0 };
            let builder = ipv4::Builder {
                source,
                destination,
                protocol,
                ttl,
                id: datagram as u16,
                tos: if random.percent(10) { 0xb8 } else { 0 },
                flags_offset: fragment | dont,
                options: if random.percent(8) { ip_options(random) } else { Vec::new() },
                checksum: random.percent(2).then_some(0xbad),
                ..Default::default()
            };
            builder.build(&l4)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let (next_header, l4) = extensions(random, datagram, protocol, l4);
            ipv6::Builder { source, destination, next_header, hop_limit: ttl, ..Default::default() }
                .build(&l4)
        }
        _ => l4,
    }
}

/// Offset and more-fragments bit: the first, one near it, or one near the end of the longest packet.
fn fragment_field(random: &mut Random) -> u16 {
    let offset = *random.pick(&[0, 0, 0, 1, 2, 3, 4, 5, 185, 8180, 8189, 8191]);
    let more = if random.percent(60) || offset == 0 { ipv4::FLAG_MORE_FRAGMENTS } else { 0 };
    offset | more
}

/// Whole words of options: fillers, known ones, and sometimes one that lies about its length.
fn ip_options(random: &mut Random) -> Vec<u8> {
    let words = 1 + random.below(10);
    let mut options = Vec::new();
    while options.len() < words * 4 {
        let kind = *random.pick(&[1, 1, 1, 0, 7, 68, 130, 131, 136, 137, 148]);
        options.push(kind);
        if kind > 1 {
            let length = *random.pick(&[4, 4, 4, 3, 8, 11, 2, 1, 40]);
            options.push(length);
            options.extend(vec![4; usize::from(length).saturating_sub(2).min(9)]);
        }
    }
    options.truncate(words * 4);
    options
}

fn extensions(random: &mut Random, id: u32, protocol: u8, l4: Vec<u8>) -> (u8, Vec<u8>) {
    if !random.percent(14) {
        return (protocol, l4);
    }
    let (mut next_header, mut bytes) = (protocol, l4);
    for _ in 0..1 + random.below(7) {
        let kind = *random.pick(&[0, 43, 60, 60, 60, 60, protocol::FRAGMENT, protocol::FRAGMENT]);
        bytes = if kind == protocol::FRAGMENT {
            let offset_more = *random.pick(&[0, 1, 1, 1, 8, 9, 16, 32, 41, 65520, 65529]);
            ipv6_ext::FragmentBuilder { next_header, offset_more, id, ..Default::default() }.build(&bytes)
        } else {
            ipv6_ext::Builder { next_header, ..Default::default() }.build(&bytes)
        };
        next_header = kind;
    }
    (next_header, bytes)
}

fn link(random: &mut Random, draft: &Draft, packet: Vec<u8>) -> Vec<u8> {
    let version = packet.first().map_or(4, |byte| byte >> 4);
    let natural = if version == 6 { ethertype::IPV6 } else { ethertype::IPV4 };
    let ethertype = if random.percent(1) { ethertype::ARP } else { natural };
    let destination = match random.below(50) {
        0 => Mac::BROADCAST,
        1 => Mac([2, 9, 9, 9, 9, 9]),
        _ => draft.unit.mac,
    };
    let mut tags = draft.unit.tags.clone();
    if random.percent(4) {
        let tag =
            (*random.pick(&[ethertype::VLAN, ethertype::SERVICE_VLAN]), *random.pick(&[0, 100, 200, 333]));
        match random.below(3) {
            0 => tags = vec![tag],
            1 => tags.push(tag),
            _ => tags.insert(0, tag),
        }
    }
    let (mut ethertype, mut payload) = (ethertype, packet);
    for (tpid, id) in tags.into_iter().rev() {
        payload = vlan::Builder { id, ethertype, ..Default::default() }.build(&payload);
        ethertype = tpid;
    }
    eth::Builder { destination, source: draft.source_mac, ethertype }.build(&payload)
}

/// Changes some bytes, and sometimes the length.
pub fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(frame.len().min(80));
        frame[at] = match random.below(4) {
            0 => 0,
            1 => 0xff,
            2 => frame[at] ^ 1 << random.below(8),
            _ => random.number() as u8,
        };
    }
    if random.percent(20) {
        frame.truncate(14 + random.below(frame.len() - 13));
    }
    if random.percent(5) {
        frame.resize(frame.len() + random.below(40), 0x55);
    }
}
