//! ICMPv6 (RFC 4443) with the types of neighbour discovery (RFC 4861). The checksum covers a pseudo-header
//! (RFC 4443 section 2.3).

use crate::checksum::Pseudo;
use crate::error::need;
use crate::fields::{be16, be32};
use crate::{Error, protocol};

crate::numbers::numbers! { u8:
    /// Section 3.1.
    UNREACHABLE = 1 "unreachable",
    /// Section 3.2.
    PACKET_TOO_BIG = 2 "packet-too-big",
    /// Section 3.3.
    TIME_EXCEEDED = 3 "time-exceeded",
    /// Section 3.4.
    PARAMETER_PROBLEM = 4 "parameter-problem",
    /// Section 4.1.
    ECHO_REQUEST = 128 "echo-request",
    /// Section 4.2.
    ECHO_REPLY = 129 "echo-reply",
    /// RFC 4861 section 4.1.
    ROUTER_SOLICITATION = 133 "router-solicitation",
    /// RFC 4861 section 4.2.
    ROUTER_ADVERTISEMENT = 134 "router-advertisement",
    /// RFC 4861 section 4.3.
    NEIGHBOUR_SOLICITATION = 135 "neighbour-solicitation",
    /// RFC 4861 section 4.4.
    NEIGHBOUR_ADVERTISEMENT = 136 "neighbour-advertisement",
}

/// Unreachable: by policy (section 3.1).
pub const CODE_ADMINISTRATIVELY_PROHIBITED: u8 = 1;

/// Field ranges (RFC 4443 section 2.1).
pub mod field {
    use std::ops::Range;
    /// What the message says.
    pub const TYPE: usize = 0;
    /// Which kind of it.
    pub const CODE: usize = 1;
    /// Of the message and a pseudo-header (section 2.3).
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Depends on the type: identifier and sequence, MTU, pointer, flags.
    pub const REST: Range<usize> = 4..8;
    /// Echo: tells the asking programs apart.
    pub const ID: Range<usize> = 4..6;
    /// Echo: tells a program's requests apart.
    pub const SEQUENCE: Range<usize> = 6..8;
    /// Packet too big: the next link's MTU (section 3.2).
    pub const MTU: Range<usize> = 4..8;
    /// Data of an echo, or the quoted packet, begin here.
    pub const HEADER: usize = 8;
}

/// Types below 128 are errors and quote a packet (RFC 4443 section 2.1).
pub fn is_error(kind: u8) -> bool {
    kind < 128
}

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("icmp6", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// The type field.
    pub fn kind(&self) -> u8 {
        self.0[field::TYPE]
    }

    /// The code field.
    pub fn code(&self) -> u8 {
        self.0[field::CODE]
    }

    /// As it stands there.
    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    /// Whether the checksum is right.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        pseudo.checksum(protocol::ICMPV6, self.0) == 0
    }

    /// The word behind the checksum, whose meaning depends on the type.
    pub fn rest(&self) -> u32 {
        be32(self.0, field::REST)
    }

    /// Identifier of an echo.
    pub fn id(&self) -> u16 {
        be16(self.0, field::ID)
    }

    /// Sequence number of an echo.
    pub fn sequence(&self) -> u16 {
        be16(self.0, field::SEQUENCE)
    }

    /// The next link's MTU.
    pub fn mtu(&self) -> u32 {
        be32(self.0, field::MTU)
    }

    /// Echo data, the quoted packet of an error, or the body of a neighbour discovery message.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

/// The header of one message; `None` in `checksum` means: the right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// The type field.
    pub kind: u8,
    /// The code field.
    pub code: u8,
    /// The word behind the checksum, whose meaning depends on the type.
    pub rest: u32,
    /// Given, it is written as it is.
    pub checksum: Option<u16>,
}

impl Builder {
    /// Asks for its payload back.
    pub fn echo_request(id: u16, sequence: u16) -> Builder {
        let rest = u32::from(id) << 16 | u32::from(sequence);
        Builder { kind: ECHO_REQUEST, rest, ..Builder::default() }
    }

    /// The message.
    pub fn build(&self, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
        let mut out = vec![self.kind, self.code, 0, 0];
        out.extend(self.rest.to_be_bytes());
        out.extend(payload);
        let checksum = self.checksum.unwrap_or_else(|| pseudo.checksum(protocol::ICMPV6, &out));
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
