//! What becomes of a datagram's bytes: judged, and given another destination.

use std::net::{IpAddr, SocketAddr};

use crate::counters::Drop;

const ETHERNET: usize = 14;

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

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |half| u16::from_be_bytes([half[0], half[1]]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(half) = bytes.get_mut(at..at + 2) {
        half.copy_from_slice(&value.to_be_bytes());
    }
}

/// Sum of 16-bit words, not complemented (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    fold(bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum())
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
    let (length, ttl) = if header.first().is_some_and(|byte| byte >> 4 == 4) {
        if header.len() < 20 || sum(header) != 0xffff {
            return Err(Drop::Malformed);
        }
        (usize::from(half(header, 2)), header[8])
    } else {
        if header.len() < 40 {
            return Err(Drop::Malformed);
        }
        (40 + usize::from(half(header, 4)), header[7])
    };
    let end = mark.network + length;
    if length < header.len() || end > bytes.len() {
        return Err(Drop::Malformed);
    }
    let payload = match mark.fragment {
        Fragment::Later => length - header.len(),
        _ => udp(&bytes[mark.transport..end], mark.fragment)?,
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
fn udp(bytes: &[u8], fragment: Fragment) -> Result<usize, Drop> {
    let length = usize::from(half(bytes, 4));
    match fragment {
        _ if bytes.len() < 8 || length < 8 => Err(Drop::Length),
        Fragment::Whole if length > bytes.len() => Err(Drop::Length),
        Fragment::Whole => Ok(length - 8),
        _ => Ok(bytes.len() - 8),
    }
}

pub fn source(bytes: &[u8], mark: &Mark) -> SocketAddr {
    let port = if mark.fragment == Fragment::Later { 0 } else { half(bytes, mark.transport) };
    let header = bytes.get(mark.network..).unwrap_or_default();
    let address = if header.first().is_some_and(|byte| byte >> 4 == 4) {
        header.get(12..16).and_then(|a| a.first_chunk::<4>()).map(|a| IpAddr::from(*a))
    } else {
        header.get(8..24).and_then(|a| a.first_chunk::<16>()).map(|a| IpAddr::from(*a))
    };
    SocketAddr::new(address.unwrap_or(IpAddr::from([0; 4])), port)
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
    /// In the place of the listener's address and port.
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

    /// Rewrites a packet that was judged well, and gives the place where its Ethernet header begins now: a VLAN tag
    /// that was there is gone.
    pub fn put(&self, bytes: &mut [u8], mark: &Mark, macs: &[u8; 12]) -> usize {
        let network = mark.network;
        if self.is_v4 {
            let header = &mut bytes[network..network + 20];
            header[8] -= 1;
            let checksum = changed(half(header, 10), self.delta_ip);
            put(header, 10, checksum);
            header[16..20].copy_from_slice(&self.address[..4]);
        } else {
            let header = &mut bytes[network..network + 40];
            header[7] -= 1;
            header[24..40].copy_from_slice(&self.address);
        }
        if mark.fragment != Fragment::Later {
            let header = &mut bytes[mark.transport..mark.transport + 8];
            put(header, 2, self.port);
            let checksum = half(header, 6);
            // none is none (RFC 768, RFC 6935), and one that comes out as none is written otherwise
            if checksum != 0 {
                let next = changed(checksum, self.delta_udp);
                put(header, 6, if next == 0 { 0xffff } else { next });
            }
        }
        let start = network - ETHERNET;
        bytes[start..start + 12].copy_from_slice(macs);
        start
    }
}

#[cfg(test)]
mod tests;
