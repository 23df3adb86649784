//! UDP (RFC 768; over IPv6 RFC 8200 section 8.1).

use crate::Error;
use crate::checksum::Pseudo;
use crate::error::need;
use crate::read::be16;

pub const PROTOCOL: u8 = 17;

pub mod field {
    use std::ops::Range;
    pub const SOURCE_PORT: Range<usize> = 0..2;
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    pub const LENGTH: Range<usize> = 4..6;
    pub const CHECKSUM: Range<usize> = 6..8;
    pub const HEADER: usize = 8;
}

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("udp", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    pub fn source_port(&self) -> u16 {
        be16(self.0, field::SOURCE_PORT)
    }

    pub fn destination_port(&self) -> u16 {
        be16(self.0, field::DESTINATION_PORT)
    }

    pub fn length(&self) -> u16 {
        be16(self.0, field::LENGTH)
    }

    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    /// A checksum of zero means "none" over IPv4 only.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        let absent = self.checksum() == 0 && matches!(pseudo, Pseudo::V4(..));
        absent || pseudo.checksum(PROTOCOL, self.0) == 0
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

/// `None` in `length` and `checksum` means: the right value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    pub source_port: u16,
    pub destination_port: u16,
    pub length: Option<u16>,
    pub checksum: Option<u16>,
}

impl Builder {
    pub fn build(&self, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
        let length = self.length.unwrap_or((field::HEADER + payload.len()) as u16);
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        out.extend(self.source_port.to_be_bytes());
        out.extend(self.destination_port.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend([0, 0]);
        out.extend(payload);
        // An all-zero result is sent as all ones: zero means that there is no checksum.
        let checksum = self.checksum.unwrap_or_else(|| match pseudo.checksum(PROTOCOL, &out) {
            0 => 0xffff,
            sum => sum,
        });
        out[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
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
