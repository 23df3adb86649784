//! The IPv4 header (RFC 791 section 3.1).

use std::net::Ipv4Addr;

use crate::Error;
use crate::checksum::internet;
use crate::error::need;
use crate::read::{be16, v4};

pub const ICMP: u8 = 1;
pub const IPV4: u8 = 4;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const IPV6: u8 = 41;
pub const GRE: u8 = 47;
pub const ESP: u8 = 50;
pub const SCTP: u8 = 132;
/// RFC 3692: reserved, stands for "not stated".
pub const RESERVED: u8 = 255;

pub mod field {
    use std::ops::Range;
    pub const VERSION_IHL: usize = 0;
    pub const TOS: usize = 1;
    pub const LENGTH: Range<usize> = 2..4;
    pub const ID: Range<usize> = 4..6;
    pub const FLAGS_OFFSET: Range<usize> = 6..8;
    pub const TTL: usize = 8;
    pub const PROTOCOL: usize = 9;
    pub const CHECKSUM: Range<usize> = 10..12;
    pub const SOURCE: Range<usize> = 12..16;
    pub const DESTINATION: Range<usize> = 16..20;
    pub const HEADER: usize = 20;
}

pub const FLAG_RESERVED: u16 = 0x8000;
pub const FLAG_DONT_FRAGMENT: u16 = 0x4000;
pub const FLAG_MORE_FRAGMENTS: u16 = 0x2000;
pub const OFFSET_MASK: u16 = 0x1fff;

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

    pub fn version(&self) -> u8 {
        self.0[field::VERSION_IHL] >> 4
    }

    /// In bytes, options included.
    pub fn header_length(&self) -> usize {
        usize::from(self.0[field::VERSION_IHL] & 0x0f) * 4
    }

    pub fn tos(&self) -> u8 {
        self.0[field::TOS]
    }

    pub fn total_length(&self) -> u16 {
        be16(self.0, field::LENGTH)
    }

    pub fn id(&self) -> u16 {
        be16(self.0, field::ID)
    }

    pub fn flags_offset(&self) -> u16 {
        be16(self.0, field::FLAGS_OFFSET)
    }

    pub fn dont_fragment(&self) -> bool {
        self.flags_offset() & FLAG_DONT_FRAGMENT != 0
    }

    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & (FLAG_MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    pub fn ttl(&self) -> u8 {
        self.0[field::TTL]
    }

    pub fn protocol(&self) -> u8 {
        self.0[field::PROTOCOL]
    }

    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    pub fn checksum_ok(&self) -> bool {
        internet(&self.0[..self.header_length()]) == 0
    }

    pub fn source(&self) -> Ipv4Addr {
        v4(self.0, field::SOURCE)
    }

    pub fn destination(&self) -> Ipv4Addr {
        v4(self.0, field::DESTINATION)
    }

    pub fn options(&self) -> &'a [u8] {
        &self.0[field::HEADER..self.header_length()]
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_length()..usize::from(self.total_length())]
    }
}

/// `None` in `version`, `ihl`, `length` and `checksum` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builder {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    pub protocol: u8,
    pub ttl: u8,
    pub tos: u8,
    pub id: u16,
    pub flags_offset: u16,
    pub options: Vec<u8>,
    pub version: Option<u8>,
    pub ihl: Option<u8>,
    pub length: Option<u16>,
    pub checksum: Option<u16>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder {
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            protocol: RESERVED,
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
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let header = field::HEADER + options.len();
        let ihl = self.ihl.unwrap_or((header / 4) as u8);
        let length = self.length.unwrap_or((header + payload.len()) as u16);
        let mut out = Vec::with_capacity(header + payload.len());
        out.push(self.version.unwrap_or(4) << 4 | ihl & 0x0f);
        out.push(self.tos);
        out.extend(length.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.flags_offset.to_be_bytes());
        out.extend([self.ttl, self.protocol, 0, 0]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(options);
        let checksum = self.checksum.unwrap_or_else(|| internet(&out));
        out[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
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
            protocol: UDP,
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
        assert_eq!((view.id(), view.ttl(), view.protocol()), (0x1234, 64, UDP));
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
