//! What becomes of a datagram's bytes: judged, and given another destination.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use sluice_wire::checksum::Sum;
use sluice_wire::fields::{at, be16, put, put_be16, v4, v6};
use sluice_wire::{eth, ipv4, ipv6, udp};

use crate::counters::Drop;

const ETHERNET: usize = eth::field::HEADER;

/// `struct rings_mark`, which the XDP program writes over the MAC addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub slot: usize,
    pub network: usize,
    pub transport: usize,
    pub fragment: Fragment,
    /// What tells the fragments of a datagram from those of others (RFC 791 3.2, RFC 8200 4.5).
    pub id: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    Whole,
    First,
    Later,
}

/// What balancing and counters want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of the UDP payload, or of the fragment's.
    pub payload: u32,
    /// Where the IP packet ends; the rest is padding.
    pub end: usize,
}

impl Mark {
    /// None when this is not what our program leaves.
    pub fn read(bytes: &[u8]) -> Option<Mark> {
        let bytes: &[u8; 12] = bytes.first_chunk()?;
        let fragment = match bytes[3] {
            0 => Fragment::Whole,
            1 => Fragment::First,
            2 => Fragment::Later,
            _ => return None,
        };
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let id = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        Some(Mark { slot: half(0).into(), network: bytes[2].into(), transport: half(4).into(), fragment, id })
    }
}

/// Sum of 16-bit words, not complemented (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).folded()
}

fn is_v4(header: &[u8]) -> bool {
    header.first().is_some_and(|byte| ipv4::version(*byte) == 4)
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

/// RFC 1624 3: the checksum after words changed by `delta`.
fn changed(checksum: u16, delta: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(delta))
}

/// Lengths, checksum of the IP header (RFC 1812 5.2.2), TTL.
pub fn judge(bytes: &[u8], mark: &Mark, largest: u32) -> Result<Seen, Drop> {
    let header = bytes.get(mark.network..mark.transport).ok_or(Drop::Malformed)?;
    let (length, ttl) = if is_v4(header) {
        use ipv4::field;
        if header.len() < field::HEADER || sum(header) != 0xffff {
            return Err(Drop::Malformed);
        }
        (usize::from(be16(header, field::LENGTH)), header[field::TTL])
    } else {
        use ipv6::field;
        if header.len() < field::HEADER {
            return Err(Drop::Malformed);
        }
        (field::HEADER + usize::from(be16(header, field::PAYLOAD_LENGTH)), header[field::HOP_LIMIT])
    };
    let end = mark.network + length;
    if length < header.len() || end > bytes.len() {
        return Err(Drop::Malformed);
    }
    let payload = match mark.fragment {
        Fragment::Later => length - header.len(),
        _ => payload_of(&bytes[mark.transport..end], mark.fragment)?,
    };
    if payload > largest as usize {
        return Err(Drop::TooLarge);
    }
    // RFC 1812 4.2.2.9, RFC 8200 3
    if ttl <= 1 {
        return Err(Drop::TtlExceeded);
    }
    Ok(Seen { payload: payload as u32, end })
}

/// RFC 768: the length counts the header, and no more than there is.
fn payload_of(datagram: &[u8], fragment: Fragment) -> Result<usize, Drop> {
    use udp::field;
    if datagram.len() < field::HEADER {
        return Err(Drop::Length);
    }
    let length = usize::from(be16(datagram, field::LENGTH));
    match fragment {
        _ if length < field::HEADER => Err(Drop::Length),
        Fragment::Whole if length > datagram.len() => Err(Drop::Length),
        Fragment::Whole => Ok(length - field::HEADER),
        _ => Ok(datagram.len() - field::HEADER),
    }
}

pub fn source(bytes: &[u8], mark: &Mark) -> SocketAddr {
    let there = |field: &Range<usize>| field.end <= bytes.len();
    let port = at(mark.transport, udp::field::SOURCE_PORT);
    let port = if mark.fragment != Fragment::Later && there(&port) { be16(bytes, port) } else { 0 };
    let is_v4 = is_v4(bytes.get(mark.network..).unwrap_or_default());
    let of_v4 = at(mark.network, ipv4::field::SOURCE);
    let of_v6 = at(mark.network, ipv6::field::SOURCE);
    let address = match is_v4 {
        true if there(&of_v4) => v4(bytes, of_v4).into(),
        false if there(&of_v6) => v6(bytes, of_v6).into(),
        _ => IpAddr::from([0; 4]),
    };
    SocketAddr::new(address, port)
}

/// A receiver as bytes, with what checksums change by.
#[derive(Debug, Clone)]
pub struct Destination {
    address: [u8; 16],
    is_v4: bool,
    port: u16,
    delta_ip: u16,
    delta_udp: u16,
}

impl Destination {
    /// Replaces the listener's address and port.
    pub fn new(listener: SocketAddr, receiver: SocketAddr) -> Destination {
        let bytes = |address: IpAddr| {
            let mut bytes = [0; 16];
            match address {
                IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => bytes.copy_from_slice(&address.octets()),
            }
            bytes
        };
        let (before, after) = (bytes(listener.ip()), bytes(receiver.ip()));
        let addresses = fold(u32::from(!sum(&before)) + u32::from(sum(&after)));
        let ports = u32::from(!listener.port()) + u32::from(receiver.port());
        Destination {
            address: after,
            is_v4: receiver.is_ipv4(),
            port: receiver.port(),
            // the TTL is the upper half of its word
            delta_ip: fold(u32::from(addresses) + u32::from(!0x0100u16)),
            delta_udp: fold(u32::from(addresses) + ports),
        }
    }

    /// Rewrites a packet that was judged well, and returns the offset at which its Ethernet header begins now: a VLAN tag
    /// that was there is gone.
    pub fn put(&self, bytes: &mut [u8], mark: &Mark, macs: &[u8; 12]) -> usize {
        let network = mark.network;
        if self.is_v4 {
            use ipv4::field;
            let header = &mut bytes[network..network + field::HEADER];
            header[field::TTL] -= 1;
            let checksum = changed(be16(header, field::CHECKSUM), self.delta_ip);
            put_be16(header, field::CHECKSUM, checksum);
            put(header, field::DESTINATION, &self.address[..4]);
        } else {
            use ipv6::field;
            let header = &mut bytes[network..network + field::HEADER];
            header[field::HOP_LIMIT] -= 1;
            put(header, field::DESTINATION, &self.address);
        }
        if mark.fragment != Fragment::Later {
            use udp::field;
            let header = &mut bytes[mark.transport..mark.transport + field::HEADER];
            put_be16(header, field::DESTINATION_PORT, self.port);
            let checksum = be16(header, field::CHECKSUM);
            // none is none (RFC 768, RFC 6935)
            if checksum != 0 {
                put_be16(header, field::CHECKSUM, udp::sent(changed(checksum, self.delta_udp)));
            }
        }
        let start = network - ETHERNET;
        put(bytes, at(start, eth::field::ADDRESSES), macs);
        start
    }
}

#[cfg(test)]
mod tests;
