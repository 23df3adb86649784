//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::error::need;
use crate::read::{be16, mac, v4};
use crate::{Error, Mac};

pub const REQUEST: u16 = 1;
pub const REPLY: u16 = 2;

pub mod field {
    use std::ops::Range;
    pub const HARDWARE: Range<usize> = 0..2;
    pub const PROTOCOL: Range<usize> = 2..4;
    pub const HARDWARE_LENGTH: usize = 4;
    pub const PROTOCOL_LENGTH: usize = 5;
    pub const OPERATION: Range<usize> = 6..8;
    pub const SENDER_MAC: Range<usize> = 8..14;
    pub const SENDER_IP: Range<usize> = 14..18;
    pub const TARGET_MAC: Range<usize> = 18..24;
    pub const TARGET_IP: Range<usize> = 24..28;
    pub const LENGTH: usize = 28;
}

/// The fixed start: Ethernet (1), IPv4 (0x0800), address lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("arp", bytes, field::LENGTH)?;
        if bytes[..field::OPERATION.start] != ETHERNET_IPV4 {
            return Err(Error::Malformed { layer: "arp", what: "not IPv4 over Ethernet" });
        }
        Ok(View(bytes))
    }

    pub fn operation(&self) -> u16 {
        be16(self.0, field::OPERATION)
    }

    pub fn sender_mac(&self) -> Mac {
        mac(self.0, field::SENDER_MAC)
    }

    pub fn sender_ip(&self) -> Ipv4Addr {
        v4(self.0, field::SENDER_IP)
    }

    pub fn target_mac(&self) -> Mac {
        mac(self.0, field::TARGET_MAC)
    }

    pub fn target_ip(&self) -> Ipv4Addr {
        v4(self.0, field::TARGET_IP)
    }

    /// Padding of a minimal frame.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::LENGTH..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builder {
    pub operation: u16,
    pub sender_mac: Mac,
    pub sender_ip: Ipv4Addr,
    pub target_mac: Mac,
    pub target_ip: Ipv4Addr,
}

impl Builder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = ETHERNET_IPV4.to_vec();
        out.extend(self.operation.to_be_bytes());
        out.extend(self.sender_mac.0);
        out.extend(self.sender_ip.octets());
        out.extend(self.target_mac.0);
        out.extend(self.target_ip.octets());
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST_BYTES: [u8; 28] =
        [0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 5, 10, 0, 1, 100, 0, 0, 0, 0, 0, 0, 10, 0, 1, 10];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&REQUEST_BYTES).unwrap();
        assert_eq!(view.operation(), REQUEST);
        assert_eq!(view.sender_mac().to_string(), "02:00:00:00:00:05");
        assert_eq!(view.sender_ip(), Ipv4Addr::new(10, 0, 1, 100));
        assert_eq!(view.target_mac(), Mac::default());
        assert_eq!(view.target_ip(), Ipv4Addr::new(10, 0, 1, 10));
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder {
            operation: REQUEST,
            sender_mac: Mac([2, 0, 0, 0, 0, 5]),
            sender_ip: Ipv4Addr::new(10, 0, 1, 100),
            target_mac: Mac::default(),
            target_ip: Ipv4Addr::new(10, 0, 1, 10),
        };
        assert_eq!(builder.build(&[]), REQUEST_BYTES);
    }

    #[test]
    fn other_hardware_is_refused() {
        let mut bytes = REQUEST_BYTES;
        bytes[1] = 6;
        assert!(matches!(View::new(&bytes), Err(Error::Malformed { .. })));
        assert!(matches!(View::new(&REQUEST_BYTES[..27]), Err(Error::Truncated { .. })));
    }
}
