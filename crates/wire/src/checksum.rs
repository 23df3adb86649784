//! The Internet checksum (RFC 1071) and the pseudo-headers of IPv4 (RFC 768) and IPv6 (RFC 8200 section 8.1).

use std::net::{Ipv4Addr, Ipv6Addr};

/// A running one's complement sum of 16-bit words.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    /// Adds bytes; an odd piece may be followed by another, as if they were one (RFC 1071 section 2(A)).
    #[inline]
    pub fn with(mut self, mut bytes: &[u8]) -> Sum {
        if let ([low, rest @ ..], true) = (bytes, self.odd) {
            self.total += u64::from(*low);
            (self.odd, bytes) = (false, rest);
        }
        let (words, last) = bytes.as_chunks::<2>();
        self.total += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        if let [high] = last {
            self.total += u64::from(*high) << 8;
            self.odd = true;
        }
        self
    }

    /// The sum itself, which over bytes with a right checksum among them is 0xffff.
    #[inline]
    pub fn folded(self) -> u16 {
        let mut sum = self.total;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The value that belongs into a checksum field.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.folded()
    }
}

/// Checksum of one piece of bytes.
#[inline]
pub fn internet(bytes: &[u8]) -> u16 {
    Sum::default().with(bytes).finish()
}

/// What a transport checksum covers besides the segment itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pseudo {
    /// The segment alone.
    #[default]
    None,
    /// Source and destination of IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source and destination of IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Pseudo {
    /// Checksum of `segment` whose checksum field holds zero.
    pub fn checksum(self, protocol: u8, segment: &[u8]) -> u16 {
        let length = segment.len() as u32;
        let sum = match self {
            Pseudo::None => Sum::default(),
            Pseudo::V4(src, dst) => Sum::default()
                .with(&src.octets())
                .with(&dst.octets())
                .with(&[0, protocol])
                .with(&(length as u16).to_be_bytes()),
            Pseudo::V6(src, dst) => Sum::default()
                .with(&src.octets())
                .with(&dst.octets())
                .with(&length.to_be_bytes())
                .with(&[0, 0, 0, protocol]),
        };
        sum.with(segment).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 1071 section 3.
    #[test]
    fn rfc1071_example() {
        assert_eq!(!internet(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn odd_pieces_continue_each_other() {
        let whole = internet(&[1, 2, 3, 4, 5]);
        assert_eq!(Sum::default().with(&[1]).with(&[2, 3, 4]).with(&[5]).finish(), whole);
        assert_eq!(Sum::default().with(&[1, 2, 3]).with(&[]).with(&[4, 5]).finish(), whole);
    }

    #[test]
    fn checksum_of_a_checked_header_is_zero() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(internet(&header), 0);
    }
}
