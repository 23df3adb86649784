//! ICMP (RFC 792; next-hop MTU RFC 1191 section 4). Messages that report an error quote the packet they are about.

use crate::Error;
use crate::checksum::internet;
use crate::error::need;
use crate::fields::{be16, be32};

crate::numbers::numbers! { u8:
    /// Answers an echo request.
    ECHO_REPLY = 0 "echo-reply",
    /// Error: the packet did not get there.
    UNREACHABLE = 3 "unreachable",
    /// Error: too many packets; deprecated (RFC 6633).
    SOURCE_QUENCH = 4 "source-quench",
    /// Error: another router is nearer.
    REDIRECT = 5 "redirect",
    /// Asks for its own data back.
    ECHO_REQUEST = 8 "echo-request",
    /// Error: no hops left, or a fragment was missing.
    TIME_EXCEEDED = 11 "time-exceeded",
    /// Error: a wrong field of the header.
    PARAMETER_PROBLEM = 12 "parameter-problem",
    /// Asks for the time.
    TIMESTAMP = 13 "timestamp",
}

/// Unreachable: longer than the next link's MTU, and not to be fragmented.
pub const CODE_FRAGMENTATION_NEEDED: u8 = 4;
/// RFC 1812 section 5.2.7.1.
pub const CODE_ADMINISTRATIVELY_PROHIBITED: u8 = 13;

/// Field ranges (RFC 792).
pub mod field {
    use std::ops::Range;
    /// What the message says.
    pub const TYPE: usize = 0;
    /// Which kind of it.
    pub const CODE: usize = 1;
    /// Of the message.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Depends on the type: identifier and sequence, pointer, gateway, next-hop MTU.
    pub const REST: Range<usize> = 4..8;
    /// Echo: tells the asking programs apart.
    pub const ID: Range<usize> = 4..6;
    /// Echo: tells a program's requests apart.
    pub const SEQUENCE: Range<usize> = 6..8;
    /// Fragmentation needed: the next link's MTU (RFC 1191 section 4).
    pub const MTU: Range<usize> = 6..8;
    /// Data of an echo, or the quoted packet, begin here.
    pub const HEADER: usize = 8;
}

/// Whether the message quotes a packet (RFC 792; RFC 1122 section 3.2.2).
pub fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("icmp", bytes, field::HEADER)?;
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
    pub fn checksum_ok(&self) -> bool {
        internet(self.0) == 0
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
    pub fn mtu(&self) -> u16 {
        be16(self.0, field::MTU)
    }

    /// Echo data, or the quoted packet of an error.
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
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![self.kind, self.code, 0, 0];
        out.extend(self.rest.to_be_bytes());
        out.extend(payload);
        let checksum = self.checksum.unwrap_or_else(|| internet(&out));
        out[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: [u8; 10] = [8, 0, 0x84, 0x94, 0x12, 0x34, 0x00, 0x01, 0x61, 0x36];
    const FRAGMENTATION_NEEDED: [u8; 9] = [3, 4, 0xb6, 0xe7, 0, 0, 0x05, 0x14, 0x41];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&ECHO).unwrap();
        assert_eq!((view.kind(), view.code(), view.id(), view.sequence()), (ECHO_REQUEST, 0, 0x1234, 1));
        assert!(view.checksum_ok() && !is_error(view.kind()));
        let error = View::new(&FRAGMENTATION_NEEDED).unwrap();
        assert_eq!((error.mtu(), error.code()), (1300, CODE_FRAGMENTATION_NEEDED));
        assert!(error.checksum_ok() && is_error(error.kind()));
        assert!(View::new(&ECHO[..7]).is_err());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        assert_eq!(Builder::echo_request(0x1234, 1).build(&[0x61, 0x36]), ECHO);
        let error =
            Builder { kind: UNREACHABLE, code: CODE_FRAGMENTATION_NEEDED, rest: 1300, checksum: None };
        assert_eq!(error.build(&[0x41]), FRAGMENTATION_NEEDED);
    }
}
