//! The IPv4 header (RFC 791 section 3.1).

use std::net::Ipv4Addr;

use crate::checksum::internet;
use crate::error::need;
use crate::fields::{be16, put_be16, v4};
use crate::{Error, protocol};

/// Field ranges (RFC 791 section 3.1, figure 4).
pub mod field {
    use std::ops::Range;
    /// Version, and length of the header in words of four bytes; four bits each.
    pub const VERSION_IHL: usize = 0;
    /// Type of service; DSCP and ECN today (RFC 2474 section 3, RFC 3168 section 5).
    pub const TOS: usize = 1;
    /// Of the packet, this header included.
    pub const LENGTH: Range<usize> = 2..4;
    /// Fragments of one packet have the same one.
    pub const ID: Range<usize> = 4..6;
    /// Three flags, and the fragment's offset in [`OFFSET_UNIT`](super::OFFSET_UNIT)s.
    pub const FLAGS_OFFSET: Range<usize> = 6..8;
    /// Time to live, in hops.
    pub const TTL: usize = 8;
    /// One of [`crate::protocol`].
    pub const PROTOCOL: usize = 9;
    /// Of the header alone.
    pub const CHECKSUM: Range<usize> = 10..12;
    /// Source address.
    pub const SOURCE: Range<usize> = 12..16;
    /// Destination address.
    pub const DESTINATION: Range<usize> = 16..20;
    /// Source and destination: what a transport's checksum covers first.
    pub const ADDRESSES: Range<usize> = 12..20;
    /// The header without options, which begin here (RFC 791 section 3.1, "Options").
    pub const HEADER: usize = 20;
}

/// Must be zero.
pub const FLAG_RESERVED: u16 = 0x8000;
/// DF.
pub const FLAG_DONT_FRAGMENT: u16 = 0x4000;
/// MF.
pub const FLAG_MORE_FRAGMENTS: u16 = 0x2000;
/// The offset beside the flags.
pub const OFFSET_MASK: u16 = 0x1fff;
/// Bytes that the offset counts by.
pub const OFFSET_UNIT: usize = 8;
/// First byte of a header without options: version 4, five words.
pub const VERSION_IHL_PLAIN: u8 = 0x45;

/// Version in the first byte of an IP header of any version.
#[inline(always)]
pub const fn version(version_ihl: u8) -> u8 {
    version_ihl >> 4
}

/// Bytes of the header, options included, by its first byte.
#[inline(always)]
pub const fn header_length(version_ihl: u8) -> usize {
    (version_ihl & 0x0f) as usize * 4
}

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Version, header length and total length hold; the checksum is asked for separately.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("ip", bytes, field::HEADER)?;
        let view = View(bytes);
        if view.version() != 4 {
            return Err(Error::Malformed { layer: "ip", what: "version is not 4" });
        }
        if view.header_length() < field::HEADER {
            return Err(Error::Malformed { layer: "ip", what: "header length is below 20" });
        }
        need("ip", bytes, view.header_length())?;
        if usize::from(view.total_length()) < view.header_length() {
            return Err(Error::Malformed { layer: "ip", what: "total length is below the header length" });
        }
        need("ip", bytes, usize::from(view.total_length()))?;
        Ok(view)
    }

    /// Only the 20 fixed bytes are there; any field may be wrong. For dissecting and for quoted packets.
    pub fn new_unchecked(bytes: &'a [u8]) -> Result<Self, Error> {
        need("ip", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// 4, if it is right.
    pub fn version(&self) -> u8 {
        version(self.0[field::VERSION_IHL])
    }

    /// In bytes, options included.
    pub fn header_length(&self) -> usize {
        header_length(self.0[field::VERSION_IHL])
    }

    /// Type of service (DSCP and ECN).
    pub fn tos(&self) -> u8 {
        self.0[field::TOS]
    }

    /// Bytes of header and payload, as stated.
    pub fn total_length(&self) -> u16 {
        be16(self.0, field::LENGTH)
    }

    /// Identification, the same for all fragments of a packet.
    pub fn id(&self) -> u16 {
        be16(self.0, field::ID)
    }

    /// Flags and offset, as in [`field::FLAGS_OFFSET`].
    pub fn flags_offset(&self) -> u16 {
        be16(self.0, field::FLAGS_OFFSET)
    }

    /// Whether no router may fragment it.
    pub fn dont_fragment(&self) -> bool {
        self.flags_offset() & FLAG_DONT_FRAGMENT != 0
    }

    /// Whether it is a piece of a packet, the first one included.
    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & (FLAG_MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Hops that are left.
    pub fn ttl(&self) -> u8 {
        self.0[field::TTL]
    }

    /// One of [`crate::protocol`].
    pub fn protocol(&self) -> u8 {
        self.0[field::PROTOCOL]
    }

    /// As it stands there.
    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    /// Whether the checksum is right.
    pub fn checksum_ok(&self) -> bool {
        internet(&self.0[..self.header_length()]) == 0
    }

    /// Source address.
    pub fn source(&self) -> Ipv4Addr {
        v4(self.0, field::SOURCE)
    }

    /// Destination address.
    pub fn destination(&self) -> Ipv4Addr {
        v4(self.0, field::DESTINATION)
    }

    /// What stands behind the fixed part.
    pub fn options(&self) -> &'a [u8] {
        &self.0[field::HEADER..self.header_length()]
    }

    /// What follows the header, up to the end that its length states.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_length()..usize::from(self.total_length())]
    }
}

/// `None` in `version`, `ihl`, `length` and `checksum` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// One of [`crate::protocol`].
    pub protocol: u8,
    /// Hops that are left.
    pub ttl: u8,
    /// Type of service (DSCP and ECN).
    pub tos: u8,
    /// Identification, the same for all fragments of a packet.
    pub id: u16,
    /// Flags and offset, as in [`field::FLAGS_OFFSET`].
    pub flags_offset: u16,
    /// Padded to whole words with zeros.
    pub options: Vec<u8>,
    /// Given, it is written as it is.
    pub version: Option<u8>,
    /// In words of four bytes; given, it is written as it is.
    pub ihl: Option<u8>,
    /// Given, it is written as it is.
    pub length: Option<u16>,
    /// Given, it is written as it is.
    pub checksum: Option<u16>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            protocol: protocol::RESERVED,
            ttl: 64,
            tos: 0,
            id: 0,
            flags_offset: 0,
            options: Vec::new(),
            version: None,
            ihl: None,
            length: None,
            checksum: None,
        }
    }
}

impl Builder {
    /// Appends the header of a packet with `payload` bytes behind it.
    #[inline]
    pub fn append(&self, payload: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let header = field::HEADER + self.options.len().next_multiple_of(4);
        let ihl = self.ihl.unwrap_or((header / 4) as u8);
        let length = self.length.unwrap_or((header + payload) as u16);
        out.extend_from_slice(&[self.version.unwrap_or(4) << 4 | ihl & 0x0f, self.tos]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.id.to_be_bytes());
        out.extend_from_slice(&self.flags_offset.to_be_bytes());
        out.extend_from_slice(&[self.ttl, self.protocol, 0, 0]);
        out.extend_from_slice(&self.source.octets());
        out.extend_from_slice(&self.destination.octets());
        out.extend_from_slice(&self.options);
        out.resize(start + header, 0);
        let checksum = self.checksum.unwrap_or_else(|| internet(&out[start..]));
        put_be16(&mut out[start..], field::CHECKSUM, checksum);
    }

    /// The packet.
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::HEADER + self.options.len() + payload.len());
        self.append(payload.len(), &mut out);
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 192.168.0.1 -> 192.168.0.199, UDP, DF, one word of options (router alert, RFC 2113).
    const PACKET: [u8; 26] = [
        0x46, 0x00, 0x00, 0x1a, 0x12, 0x34, 0x40, 0x00, 0x40, 0x11, 0x11, 0x82, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7, 0x94, 0x04, 0x00, 0x00, 0xab, 0xcd,
    ];

    fn builder() -> Builder {
        Builder {
            source: Ipv4Addr::new(192, 168, 0, 1),
            destination: Ipv4Addr::new(192, 168, 0, 199),
            protocol: protocol::UDP,
            id: 0x1234,
            flags_offset: FLAG_DONT_FRAGMENT,
            options: vec![0x94, 0x04, 0, 0],
            ..Builder::default()
        }
    }

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&PACKET).unwrap();
        assert_eq!((view.version(), view.header_length(), view.total_length()), (4, 24, 26));
        assert_eq!((view.id(), view.ttl(), view.protocol()), (0x1234, 64, protocol::UDP));
        assert!(view.dont_fragment() && !view.is_fragment() && view.checksum_ok());
        assert_eq!(view.options(), [0x94, 4, 0, 0]);
        assert_eq!(view.payload(), [0xab, 0xcd]);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        assert_eq!(builder().build(&[0xab, 0xcd]), PACKET);
    }

    /// RFC 1812 section 5.2.2 lists what must be checked before anything else.
    #[test]
    fn malformed_headers_are_refused() {
        let refused = |change: &dyn Fn(&mut Builder)| {
            let mut wrong = builder();
            change(&mut wrong);
            View::new(&wrong.build(&[0xab, 0xcd])).unwrap_err()
        };
        assert!(matches!(refused(&|b| b.version = Some(6)), Error::Malformed { .. }));
        assert!(matches!(refused(&|b| b.ihl = Some(4)), Error::Malformed { .. }));
        assert!(matches!(refused(&|b| b.length = Some(23)), Error::Malformed { .. }));
        assert!(matches!(refused(&|b| b.length = Some(27)), Error::Truncated { .. }));
        assert!(matches!(refused(&|b| b.ihl = Some(15)), Error::Truncated { .. }));
        let mut bad_sum = builder();
        bad_sum.checksum = Some(0xbad);
        assert!(!View::new(&bad_sum.build(&[0, 0])).unwrap().checksum_ok());
    }
}
