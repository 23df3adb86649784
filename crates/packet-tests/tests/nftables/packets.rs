//! Packets byte by byte, and what is done to them before two gateways' are compared.

use std::net::IpAddr;

use sluice_wire::checksum::{Pseudo, internet};

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
const FRAGMENT: u8 = 44;

/// Both ends as one packet has them; of echoes, the identifier stands in both ports. `protocol` is ICMP in both families.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ends {
    pub source: (IpAddr, u16),
    pub destination: (IpAddr, u16),
    pub protocol: u8,
}

#[derive(Debug, Clone, Copy)]
pub enum Above {
    Udp { sum: bool },
    Tcp { flags: u8, seq: u32, ack: u32 },
    Echo { asks: bool },
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8) -> Pseudo {
    match (source, destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) if protocol == ICMP => Pseudo::None,
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pseudo::V4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Pseudo::V6(source, destination),
        _ => panic!("{source} and {destination} are of two families"),
    }
}

fn summed(source: IpAddr, destination: IpAddr, protocol: u8, mut segment: Vec<u8>) -> Vec<u8> {
    let at = sum_place(protocol);
    segment[at..at + 2].fill(0);
    let sum = pseudo(source, destination, protocol).checksum(protocol, &segment);
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn sum_place(protocol: u8) -> usize {
    match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    }
}

/// A packet without its link header, every checksum right.
pub fn packet(ends: &Ends, above: Above, id: u16, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = (ends.source.0, ends.destination.0);
    let ports = [ends.source.1, ends.destination.1].map(u16::to_be_bytes).concat();
    let six = source.is_ipv6();
    let (protocol, head) = match above {
        Above::Udp { .. } => {
            (UDP, [ports, (8 + payload.len() as u16).to_be_bytes().to_vec(), vec![0; 2]].concat())
        }
        Above::Tcp { flags, seq, ack } => {
            let numbers = [seq, ack].map(u32::to_be_bytes).concat();
            (TCP, [ports, numbers, vec![0x50, flags, 0x20, 0, 0, 0, 0, 0]].concat())
        }
        Above::Echo { asks } => {
            let kind = [[0, 8], [129, 128]][usize::from(six)][usize::from(asks)];
            (if six { ICMP6 } else { ICMP }, [&[kind, 0, 0, 0], &ports[..2], &[0, 1]].concat())
        }
    };
    let mut segment = summed(source, destination, protocol, [head, payload.to_vec()].concat());
    if matches!(above, Above::Udp { sum: false }) {
        segment[6..8].fill(0);
    }
    network(source, destination, protocol, id, &segment)
}

/// The network header, and what stands behind it.
fn network(source: IpAddr, destination: IpAddr, protocol: u8, id: u16, segment: &[u8]) -> Vec<u8> {
    let length = segment.len() as u16;
    let mut out = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let words = [length + 20, id].map(u16::to_be_bytes).concat();
            [&[0x45, 0], &words[..], &[0, 0, 64, protocol, 0, 0], &source.octets(), &destination.octets()]
                .concat()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let length = length.to_be_bytes();
            [&[0x60, 0, 0, 0], &length[..], &[protocol, 64], &source.octets(), &destination.octets()].concat()
        }
        _ => panic!("{source} and {destination} are of two families"),
    };
    set_header_sum(&mut out);
    [&out[..], segment].concat()
}

fn set_header_sum(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        packet[10..12].fill(0);
        let sum = internet(&packet[..20]).to_be_bytes();
        packet[10..12].copy_from_slice(&sum);
    }
}

/// Errors that both families know: unreachable hosts and ports, too big, time exceeded.
pub const ERRORS: [[(u8, u8, u32); 2]; 4] =
    [[(3, 1, 0), (1, 3, 0)], [(3, 3, 0), (1, 4, 0)], [(3, 4, 1400), (2, 0, 1400)], [(11, 0, 0), (3, 0, 0)]];

pub fn error(source: IpAddr, destination: IpAddr, which: usize, id: u16, quote: &[u8]) -> Vec<u8> {
    let six = source.is_ipv6();
    let (kind, code, rest) = ERRORS[which][usize::from(six)];
    let message = [&[kind, code, 0, 0], &rest.to_be_bytes()[..], quote].concat();
    let protocol = if six { ICMP6 } else { ICMP };
    network(source, destination, protocol, id, &summed(source, destination, protocol, message))
}

/// The packet in two pieces, the first with `first` bytes of what stands behind the network header.
pub fn split(packet: &[u8], first: usize, id: u32) -> Vec<Vec<u8>> {
    let header = header_of(packet);
    let pieces = [(0, &packet[header..header + first], 1u16), (first, &packet[header + first..], 0)];
    let piece = |(offset, body, more): (usize, &[u8], u16)| {
        let mut out = packet[..header].to_vec();
        if header == 20 {
            out[2..4].copy_from_slice(&(body.len() as u16 + 20).to_be_bytes());
            out[6..8].copy_from_slice(&((offset as u16 / 8) | (more << 13)).to_be_bytes());
            set_header_sum(&mut out);
        } else {
            out[4..6].copy_from_slice(&(body.len() as u16 + 8).to_be_bytes());
            out[6] = FRAGMENT;
            out.extend([packet[6], 0]);
            out.extend((offset as u16 | more).to_be_bytes());
            out.extend(id.to_be_bytes());
        }
        [&out[..], body].concat()
    };
    pieces.map(piece).to_vec()
}

fn header_of(packet: &[u8]) -> usize {
    if packet[0] >> 4 == 4 { 20 } else { 40 }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Offset, whether more follow, what stands behind the fragment's headers, and the protocol.
fn fragment_of(packet: &[u8]) -> Option<(usize, bool, &[u8], u8)> {
    if packet[0] >> 4 == 4 {
        let place = word(packet, 6);
        return (place & 0x3fff != 0)
            .then(|| (usize::from(place & 0x1fff) * 8, place & 0x2000 != 0, &packet[20..], packet[9]));
    }
    let place = (packet[6] == FRAGMENT).then(|| word(packet, 42))?;
    Some((usize::from(place & 0xfff8), place & 1 != 0, &packet[48..], packet[40]))
}

/// Pieces become the datagram that they make: conntrack puts datagrams together and cuts them again, as it likes, and
/// gives pieces of IPv6 an identification of its own; we pass the pieces on.
pub fn whole(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let pieces: Vec<Vec<u8>> = packets.extract_if(.., |packet| fragment_of(packet).is_some()).collect();
    let Some(first) = pieces.iter().find(|piece| fragment_of(piece).is_some_and(|(offset, ..)| offset == 0))
    else {
        packets.extend(pieces);
        return packets;
    };
    let mut out = first[..header_of(first)].to_vec();
    let mut bodies: Vec<_> = pieces.iter().filter_map(|piece| fragment_of(piece)).collect();
    bodies.sort_by_key(|(offset, ..)| *offset);
    for (offset, _, body, protocol) in bodies {
        assert_eq!(out.len() - header_of(first), offset, "pieces fit");
        out.extend(body);
        if first[0] >> 4 == 6 {
            out[6] = protocol;
        }
    }
    let length = out.len() as u16;
    if first[0] >> 4 == 4 {
        out[2..4].copy_from_slice(&length.to_be_bytes());
        out[6..8].fill(0);
        set_header_sum(&mut out);
    } else {
        out[4..6].copy_from_slice(&(length - 40).to_be_bytes());
    }
    packets.push(out);
    packets
}

fn addresses(packet: &[u8]) -> (IpAddr, IpAddr) {
    let v6 = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).map(IpAddr::from).expect("16 bytes");
    let v4 = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).map(IpAddr::from).expect("4 bytes");
    if packet[0] >> 4 == 4 { (v4(12), v4(16)) } else { (v6(8), v6(24)) }
}

fn protocol_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[9] } else { packet[6] }
}

fn is_error(protocol: u8, segment: &[u8]) -> bool {
    match protocol {
        ICMP => matches!(segment[0], 3 | 11),
        ICMP6 => segment[0] < 128,
        _ => false,
    }
}

/// Every checksum of a whole packet is right.
pub fn check_sums(packet: &[u8]) -> Result<(), String> {
    let (header, protocol) = (header_of(packet), protocol_of(packet));
    if header == 20 && internet(&packet[..20]) != 0 {
        return Err(format!("wrong header checksum in {packet:02x?}"));
    }
    let segment = &packet[header..];
    if protocol == UDP && word(segment, 6) == 0 && header == 20 {
        return Ok(());
    }
    let (source, destination) = addresses(packet);
    match pseudo(source, destination, protocol).checksum(protocol, segment) {
        0 => Ok(()),
        _ => Err(format!("wrong checksum of protocol {protocol} in {packet:02x?}")),
    }
}

/// The source's port of a packet, or its echo's identifier.
pub fn source_port(packet: &[u8]) -> u16 {
    let segment = &packet[header_of(packet)..];
    word(segment, if matches!(protocol_of(packet), TCP | UDP) { 0 } else { 4 })
}

/// A packet that left to the outside, as if the port `chosen` had been `port`: in its source, or in the destination of
/// what an error quotes.
pub fn unchosen(packet: &[u8], chosen: u16, port: u16) -> Result<Vec<u8>, String> {
    check_sums(packet)?;
    let (header, protocol) = (header_of(packet), protocol_of(packet));
    let (source, destination) = addresses(packet);
    let mut segment = packet[header..].to_vec();
    let no_sum = protocol == UDP && word(&segment, 6) == 0;
    if is_error(protocol, &segment) {
        let quote = &mut segment[8..];
        let inner = header_of(quote);
        let inner_protocol = protocol_of(quote);
        replace_quoted(inner_protocol, &mut quote[inner..], chosen, port)?;
    } else {
        let at = if matches!(protocol, TCP | UDP) { 0 } else { 4 };
        replace(&mut segment, at, chosen, port)?;
    }
    if !no_sum {
        segment = summed(source, destination, protocol, segment);
    }
    Ok([&packet[..header], &segment].concat())
}

fn replace(segment: &mut [u8], at: usize, from: u16, to: u16) -> Result<(), String> {
    if word(segment, at) != from {
        return Err(format!("port {} where {from} should stand", word(segment, at)));
    }
    segment[at..at + 2].copy_from_slice(&to.to_be_bytes());
    Ok(())
}

/// In a quote: its checksum, where the quote reaches so far, changes by the difference (RFC 1624).
fn replace_quoted(protocol: u8, segment: &mut [u8], from: u16, to: u16) -> Result<(), String> {
    replace(segment, if matches!(protocol, TCP | UDP) { 2 } else { 4 }, from, to)?;
    let at = sum_place(protocol);
    if segment.len() < at + 2 || (protocol == UDP && word(segment, at) == 0) {
        return Ok(());
    }
    let mut sum = u32::from(!word(segment, at)) + u32::from(!from) + u32::from(to);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = match !(sum as u16) {
        0 => 0xffff, // the same in one's complement
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(())
}
