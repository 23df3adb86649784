//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::error::need;
use crate::fields::{be16, mac, v4};
use crate::{Error, Mac};

/// Who has the target's address.
pub const REQUEST: u16 = 1;
/// The sender has it.
pub const REPLY: u16 = 2;

/// Field ranges (RFC 826, "Packet format").
pub mod field {
    use std::ops::Range;
    /// Hardware address space, 1 for Ethernet.
    pub const HARDWARE: Range<usize> = 0..2;
    /// Protocol address space: an ethertype.
    pub const PROTOCOL: Range<usize> = 2..4;
    /// Bytes of a hardware address.
    pub const HARDWARE_LENGTH: usize = 4;
    /// Bytes of a protocol address.
    pub const PROTOCOL_LENGTH: usize = 5;
    /// Request or reply.
    pub const OPERATION: Range<usize> = 6..8;
    /// Hardware address of the sender.
    pub const SENDER_MAC: Range<usize> = 8..14;
    /// Protocol address of the sender.
    pub const SENDER_IP: Range<usize> = 14..18;
    /// Hardware address of the target, which a request asks for.
    pub const TARGET_MAC: Range<usize> = 18..24;
    /// Protocol address of the target.
    pub const TARGET_IP: Range<usize> = 24..28;
    /// The whole message.
    pub const LENGTH: usize = 28;
}

/// The fixed start: Ethernet (1), IPv4 (0x0800), address lengths 6 and 4.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// A checked message.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses what is too short, or of other addresses than those of Ethernet and IPv4.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("arp", bytes, field::LENGTH)?;
        if bytes[..field::OPERATION.start] != ETHERNET_IPV4 {
            return Err(Error::Malformed { layer: "arp", what: "not IPv4 over Ethernet" });
        }
        Ok(View(bytes))
    }

    /// [`REQUEST`] or [`REPLY`].
    pub fn operation(&self) -> u16 {
        be16(self.0, field::OPERATION)
    }

    /// Sender's hardware address.
    pub fn sender_mac(&self) -> Mac {
        mac(self.0, field::SENDER_MAC)
    }

    /// Sender's protocol address.
    pub fn sender_ip(&self) -> Ipv4Addr {
        v4(self.0, field::SENDER_IP)
    }

    /// Target's hardware address.
    pub fn target_mac(&self) -> Mac {
        mac(self.0, field::TARGET_MAC)
    }

    /// Target's protocol address.
    pub fn target_ip(&self) -> Ipv4Addr {
        v4(self.0, field::TARGET_IP)
    }

    /// Padding of a minimal frame.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::LENGTH..]
    }
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builder {
    /// [`REQUEST`] or [`REPLY`].
    pub operation: u16,
    /// Sender's hardware address.
    pub sender_mac: Mac,
    /// Sender's protocol address.
    pub sender_ip: Ipv4Addr,
    /// Target's hardware address.
    pub target_mac: Mac,
    /// Target's protocol address.
    pub target_ip: Ipv4Addr,
}

impl Builder {
    /// Appends the message.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&ETHERNET_IPV4);
        out.extend_from_slice(&self.operation.to_be_bytes());
        out.extend_from_slice(&self.sender_mac.0);
        out.extend_from_slice(&self.sender_ip.octets());
        out.extend_from_slice(&self.target_mac.0);
        out.extend_from_slice(&self.target_ip.octets());
    }

    /// The message with what pads the frame.
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::LENGTH + payload.len());
        self.append(&mut out);
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
