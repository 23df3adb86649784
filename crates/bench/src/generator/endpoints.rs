//! Where a packet comes from and where it goes, read from a frame.

use std::net::IpAddr;

pub const ETHERNET: usize = 14;

/// Where a packet comes from and where it goes, with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoints {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
}

/// Offsets of a frame without options, extension headers and tags.
pub struct Offsets {
    pub hops: usize,
    pub addresses: usize,
    pub address_len: usize,
    pub l4: usize,
    pub protocol: u8,
    pub end: usize,
}

pub fn offsets(frame: &[u8]) -> Offsets {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    match frame[12..14] {
        [0x08, 0x00] => Offsets {
            hops: 22,
            addresses: 26,
            address_len: 4,
            l4: 34,
            protocol: frame[23],
            end: ETHERNET + word(16),
        },
        _ => Offsets {
            hops: 21,
            addresses: 22,
            address_len: 16,
            l4: 54,
            protocol: frame[20],
            end: 54 + word(18),
        },
    }
}

impl Endpoints {
    pub fn of(frame: &[u8]) -> Endpoints {
        let Offsets { addresses, address_len, l4, .. } = offsets(frame);
        let address = |at: usize| -> IpAddr {
            match <[u8; 4]>::try_from(&frame[at..at + address_len]) {
                Ok(four) => four.into(),
                Err(_) => <[u8; 16]>::try_from(&frame[at..at + address_len]).expect("sixteen bytes").into(),
            }
        };
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        Endpoints {
            from: (address(addresses), port(l4)),
            to: (address(addresses + address_len), port(l4 + 2)),
        }
    }
}
