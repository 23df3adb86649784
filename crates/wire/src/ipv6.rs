//! The IPv6 header (RFC 8200 section 3).

use std::net::Ipv6Addr;

use crate::error::need;
use crate::fields::{be16, be32, v6};
use crate::ipv4::version;
use crate::{Error, protocol};

/// Field ranges (RFC 8200 section 3).
pub mod field {
    use std::ops::Range;
    /// Version (4 bits), traffic class (8) and flow label (20).
    pub const VERSION_CLASS_FLOW: Range<usize> = 0..4;
    /// Of what follows this header.
    pub const PAYLOAD_LENGTH: Range<usize> = 4..6;
    /// One of [`crate::protocol`].
    pub const NEXT_HEADER: usize = 6;
    /// Hops that are left.
    pub const HOP_LIMIT: usize = 7;
    /// Source address.
    pub const SOURCE: Range<usize> = 8..24;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 24..40;
    /// Source and destination: what a transport's checksum covers first.
    pub const ADDRESSES: Range<usize> = 8..40;
    /// The next header begins here.
    pub const HEADER: usize = 40;
}

/// First byte of a header whose traffic class begins with zeros.
pub const VERSION_PLAIN: u8 = 0x60;

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into or whose lengths are wrong.
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

    /// 6, if it is right.
    pub fn version(&self) -> u8 {
        version(self.0[field::VERSION_CLASS_FLOW.start])
    }

    /// DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (be32(self.0, field::VERSION_CLASS_FLOW) >> 20) as u8
    }

    /// The lower 20 bits.
    pub fn flow_label(&self) -> u32 {
        be32(self.0, field::VERSION_CLASS_FLOW) & 0xf_ffff
    }

    /// Bytes behind the header, as stated.
    pub fn payload_length(&self) -> u16 {
        be16(self.0, field::PAYLOAD_LENGTH)
    }

    /// One of [`crate::protocol`].
    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    /// Hops that are left.
    pub fn hop_limit(&self) -> u8 {
        self.0[field::HOP_LIMIT]
    }

    /// Source address.
    pub fn source(&self) -> Ipv6Addr {
        v6(self.0, field::SOURCE)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv6Addr {
        v6(self.0, field::DESTINATION)
    }

    /// What follows the header, up to the end that its length states.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..field::HEADER + usize::from(self.payload_length())]
    }
}

/// `None` in `version` and `length` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// One of [`crate::protocol`].
    pub next_header: u8,
    /// Hops that are left.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The lower 20 bits.
    pub flow_label: u32,
    /// Given, it is written as it is.
    pub version: Option<u8>,
    /// Given, it is written as it is.
    pub length: Option<u16>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::UNSPECIFIED,
            next_header: protocol::NO_NEXT,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            version: None,
            length: None,
        }
    }
}

impl Builder {
    /// Appends the header of a packet with `payload` bytes behind it.
    #[inline]
    pub fn append(&self, payload: usize, out: &mut Vec<u8>) {
        let word = u32::from(self.version.unwrap_or(6)) << 28
            | u32::from(self.traffic_class) << 20
            | self.flow_label & 0xf_ffff;
        out.extend_from_slice(&word.to_be_bytes());
        out.extend_from_slice(&self.length.unwrap_or(payload as u16).to_be_bytes());
        out.extend_from_slice(&[self.next_header, self.hop_limit]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&self.destination.octets());
    }

    /// The packet.
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        self.append(payload.len(), &mut out);
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
        assert_eq!((view.payload_length(), view.next_header(), view.hop_limit()), (2, protocol::NO_NEXT, 64));
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
