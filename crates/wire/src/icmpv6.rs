//! ICMPv6 (RFC 4443) with the types of neighbour discovery (RFC 4861). The checksum covers a pseudo-header
//! (RFC 4443 section 2.3).

use crate::Error;
use crate::checksum::Pseudo;
use crate::error::need;
use crate::read::{be16, be32};

pub const PROTOCOL: u8 = 58;

pub const UNREACHABLE: u8 = 1;
pub const PACKET_TOO_BIG: u8 = 2;
pub const TIME_EXCEEDED: u8 = 3;
pub const PARAMETER_PROBLEM: u8 = 4;
pub const ECHO_REQUEST: u8 = 128;
pub const ECHO_REPLY: u8 = 129;
pub const ROUTER_SOLICITATION: u8 = 133;
pub const ROUTER_ADVERTISEMENT: u8 = 134;
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

pub const CODE_ADMINISTRATIVELY_PROHIBITED: u8 = 1;

pub mod field {
    use std::ops::Range;
    pub const TYPE: usize = 0;
    pub const CODE: usize = 1;
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Depends on the type: identifier and sequence, MTU, pointer, flags.
    pub const REST: Range<usize> = 4..8;
    pub const ID: Range<usize> = 4..6;
    pub const SEQUENCE: Range<usize> = 6..8;
    pub const MTU: Range<usize> = 4..8;
    pub const HEADER: usize = 8;
}

/// Types below 128 are errors and quote a packet (RFC 4443 section 2.1).
pub fn is_error(kind: u8) -> bool {
    kind < 128
}

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("icmp6", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    pub fn kind(&self) -> u8 {
        self.0[field::TYPE]
    }

    pub fn code(&self) -> u8 {
        self.0[field::CODE]
    }

    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        pseudo.checksum(PROTOCOL, self.0) == 0
    }

    pub fn rest(&self) -> u32 {
        be32(self.0, field::REST)
    }

    pub fn id(&self) -> u16 {
        be16(self.0, field::ID)
    }

    pub fn sequence(&self) -> u16 {
        be16(self.0, field::SEQUENCE)
    }

    pub fn mtu(&self) -> u32 {
        be32(self.0, field::MTU)
    }

    /// Echo data, the quoted packet of an error, or the body of a neighbour discovery message.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    pub kind: u8,
    pub code: u8,
    pub rest: u32,
    pub checksum: Option<u16>,
}

impl Builder {
    pub fn echo_request(id: u16, sequence: u16) -> Builder {
        let rest = u32::from(id) << 16 | u32::from(sequence);
        Builder { kind: ECHO_REQUEST, rest, ..Builder::default() }
    }

    pub fn build(&self, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
        let mut out = vec![self.kind, self.code, 0, 0];
        out.extend(self.rest.to_be_bytes());
        out.extend(payload);
        let checksum = self.checksum.unwrap_or_else(|| pseudo.checksum(PROTOCOL, &out));
        out[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: [u8; 9] = [128, 0, 0x11, 0xba, 0x12, 0x34, 0x00, 0x01, 0x61];
    const TOO_BIG: [u8; 8] = [2, 0, 0xfd, 0xf0, 0, 0, 0x05, 0x00];

    fn pseudo() -> Pseudo {
        Pseudo::V6("fd00:1::64".parse().unwrap(), "fd00:2::64".parse().unwrap())
    }

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&ECHO).unwrap();
        assert_eq!((view.kind(), view.id(), view.sequence()), (ECHO_REQUEST, 0x1234, 1));
        assert!(view.checksum_ok(pseudo()) && !is_error(view.kind()));
        let error = View::new(&TOO_BIG).unwrap();
        assert_eq!(error.mtu(), 1280);
        assert!(error.checksum_ok(pseudo()) && is_error(error.kind()));
        assert!(View::new(&ECHO[..7]).is_err());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        assert_eq!(Builder::echo_request(0x1234, 1).build(b"a", pseudo()), ECHO);
        let error = Builder { kind: PACKET_TOO_BIG, rest: 1280, ..Builder::default() };
        assert_eq!(error.build(&[], pseudo()), TOO_BIG);
    }
}
