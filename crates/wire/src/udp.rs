//! UDP (RFC 768; over IPv6 RFC 8200 section 8.1).

use crate::checksum::Pseudo;
use crate::error::need;
use crate::fields::{be16, put_be16};
use crate::{Error, protocol};

/// The discard service (RFC 863): a payload for this port means nothing to anybody.
pub const DISCARD_PORT: u16 = 9;

/// Field ranges (RFC 768, "Format").
pub mod field {
    use std::ops::Range;
    /// Where TCP has it, too.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Where TCP has it, too.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Of the datagram, this header included.
    pub const LENGTH: Range<usize> = 4..6;
    /// Of pseudo-header and datagram; 0 is none.
    pub const CHECKSUM: Range<usize> = 6..8;
    /// The payload begins here.
    pub const HEADER: usize = 8;
}

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into; its length field may say anything.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("udp", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// Port of the sender.
    pub fn source_port(&self) -> u16 {
        be16(self.0, field::SOURCE_PORT)
    }

    /// Port of the receiver.
    pub fn destination_port(&self) -> u16 {
        be16(self.0, field::DESTINATION_PORT)
    }

    /// Of header and payload, as stated.
    pub fn length(&self) -> u16 {
        be16(self.0, field::LENGTH)
    }

    /// As it stands there.
    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    /// A checksum of zero means "none" over IPv4 only.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        let absent = self.checksum() == 0 && matches!(pseudo, Pseudo::V4(..));
        absent || pseudo.checksum(protocol::UDP, self.0) == 0
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

/// A computed checksum as it is sent: one of zero as all ones, since zero means that there is none (RFC 768).
#[inline(always)]
pub const fn sent(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// `None` in `length` and `checksum` means: the right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Given, it is written as it is.
    pub length: Option<u16>,
    /// Given, it is written as it is.
    pub checksum: Option<u16>,
}

impl Builder {
    /// Appends the header of a datagram with `payload` bytes behind it; without a given checksum there is none.
    #[inline]
    pub fn append(&self, payload: usize, out: &mut Vec<u8>) {
        let length = self.length.unwrap_or((field::HEADER + payload) as u16);
        out.extend_from_slice(&self.source_port.to_be_bytes());
        out.extend_from_slice(&self.destination_port.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.checksum.unwrap_or(0).to_be_bytes());
    }

    /// The datagram.
    pub fn build(&self, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        self.append(payload.len(), &mut out);
        out.extend(payload);
        if self.checksum.is_none() {
            let checksum = sent(pseudo.checksum(protocol::UDP, &out));
            put_be16(&mut out, field::CHECKSUM, checksum);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PSEUDO: Pseudo = Pseudo::V4(Ipv4Addr::new(10, 0, 1, 100), Ipv4Addr::new(10, 0, 2, 100));
    const DATAGRAM: [u8; 11] = [0x03, 0xe8, 0x00, 0x35, 0x00, 0x0b, 0x1f, 0x91, 0x61, 0x62, 0x63];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&DATAGRAM).unwrap();
        assert_eq!((view.source_port(), view.destination_port(), view.length()), (1000, 53, 11));
        assert!(view.checksum_ok(PSEUDO));
        assert_eq!(view.payload(), b"abc");
        assert!(View::new(&DATAGRAM[..7]).is_err());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder { source_port: 1000, destination_port: 53, ..Builder::default() };
        assert_eq!(builder.build(b"abc", PSEUDO), DATAGRAM);
    }

    #[test]
    fn zero_checksum_is_none_over_ipv4_only() {
        let builder = Builder { checksum: Some(0), ..Builder::default() };
        let bytes = builder.build(b"abc", PSEUDO);
        let v6 = Pseudo::V6("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        assert!(View::new(&bytes).unwrap().checksum_ok(PSEUDO));
        assert!(!View::new(&bytes).unwrap().checksum_ok(v6));
    }
}
