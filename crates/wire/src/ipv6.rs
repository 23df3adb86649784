//! The IPv6 header (RFC 8200 section 3).

use std::net::Ipv6Addr;

use crate::Error;
use crate::error::need;
use crate::read::{be16, be32, v6};

pub const HOP_BY_HOP: u8 = 0;
pub const ROUTING: u8 = 43;
pub const FRAGMENT: u8 = 44;
pub const ICMPV6: u8 = 58;
pub const NO_NEXT: u8 = 59;
pub const DESTINATION_OPTIONS: u8 = 60;

pub mod field {
    use std::ops::Range;
    pub const VERSION_CLASS_FLOW: Range<usize> = 0..4;
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    pub const NEXT_HEADER: usize = 6;
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: Range<usize> = 8..24;
    pub const DESTINATION: Range<usize> = 24..40;
    pub const HEADER: usize = 40;
}

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let view = Self::new_unchecked(bytes)?;
        if view.version() != 6 {
            return Err(Error::Malformed { layer: "ip6", what: "version is not 6" });
        }
        need("ip6", bytes, field::HEADER + usize::from(view.payload_length()))?;
        Ok(view)
    }

    /// Only the 40 bytes are there; any field may be wrong. For dissecting and for quoted packets.
    pub fn new_unchecked(bytes: &'a [u8]) -> Result<Self, Error> {
        need("ip6", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    pub fn version(&self) -> u8 {
        self.0[0] >> 4
    }

    pub fn traffic_class(&self) -> u8 {
        (be32(self.0, field::VERSION_CLASS_FLOW) >> 20) as u8
    }

    pub fn flow_label(&self) -> u32 {
        be32(self.0, field::VERSION_CLASS_FLOW) & 0xf_ffff
    }

    pub fn payload_length(&self) -> u16 {
        be16(self.0, field::PAYLOAD_LENGTH)
    }

    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    pub fn hop_limit(&self) -> u8 {
        self.0[field::HOP_LIMIT]
    }

    pub fn source(&self) -> Ipv6Addr {
        v6(self.0, field::SOURCE)
    }

    pub fn destination(&self) -> Ipv6Addr {
        v6(self.0, field::DESTINATION)
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..field::HEADER + usize::from(self.payload_length())]
    }
}

/// `None` in `version` and `length` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub next_header: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub flow_label: u32,
    pub version: Option<u8>,
    pub length: Option<u16>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::UNSPECIFIED,
            next_header: NO_NEXT,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            version: None,
            length: None,
        }
    }
}

impl Builder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let word = u32::from(self.version.unwrap_or(6)) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0xf_ffff;
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        out.extend(word.to_be_bytes());
        out.extend(self.length.unwrap_or(payload.len() as u16).to_be_bytes());
        out.extend([self.next_header, self.hop_limit]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: [u8; 42] = [
        0x60, 0xc0, 0x00, 0x07, 0x00, 0x02, 0x3b, 0x40, 0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x64,
        0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x64, 0xab, 0xcd,
    ];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&PACKET).unwrap();
        assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 12, 7));
        assert_eq!((view.payload_length(), view.next_header(), view.hop_limit()), (2, NO_NEXT, 64));
        assert_eq!(view.source().to_string(), "fd00:1::64");
        assert_eq!(view.destination().to_string(), "fd00:2::64");
        assert_eq!(view.payload(), [0xab, 0xcd]);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder {
            source: "fd00:1::64".parse().unwrap(),
            destination: "fd00:2::64".parse().unwrap(),
            traffic_class: 12,
            flow_label: 7,
            ..Builder::default()
        };
        assert_eq!(builder.build(&[0xab, 0xcd]), PACKET);
    }

    #[test]
    fn malformed_headers_are_refused() {
        assert!(matches!(View::new(&PACKET[..39]), Err(Error::Truncated { .. })));
        assert!(matches!(View::new(&PACKET[..41]), Err(Error::Truncated { .. })));
        let mut bytes = PACKET;
        bytes[0] = 0x40;
        assert!(matches!(View::new(&bytes), Err(Error::Malformed { .. })));
    }
}
