//! AH (RFC 4302): authenticated, in clear text.

/// Field ranges (RFC 4302 section 2, figure 1).
pub mod field {
    use std::ops::Range;
    /// Protocol of what follows the ICV (section 2.1).
    pub const NEXT_HEADER: usize = 0;
    /// Of header and ICV, in words of four bytes, less two (section 2.2): see [`length`](super::length).
    pub const PAYLOAD_LENGTH: usize = 1;
    /// Section 2.3.
    pub const RESERVED: Range<usize> = 2..4;
    /// Security parameters index (section 2.4); 0 is never sent.
    pub const SPI: Range<usize> = 4..8;
    /// The lower 32 bits where the number is an extended one (section 2.5.1).
    pub const SEQUENCE: Range<usize> = 8..12;
    /// The fixed part; the ICV (section 2.6) begins here.
    pub const HEADER: usize = 12;
}

/// Unit of the length field.
const WORD: usize = 4;
/// Words that the length field leaves out.
const NOT_COUNTED: usize = 2;

/// Bytes of header and ICV, by the length field (section 2.2).
#[inline(always)]
pub const fn length(payload_length: u8) -> usize {
    (payload_length as usize + NOT_COUNTED) * WORD
}

/// The header of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Protocol of what follows the ICV.
    pub next_header: u8,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
}

impl Builder {
    /// Appends header and ICV, which must be whole words.
    #[inline]
    pub fn append(&self, icv: &[u8], out: &mut Vec<u8>) {
        let words = (field::HEADER + icv.len()) / WORD - NOT_COUNTED;
        out.extend_from_slice(&[self.next_header, words as u8, 0, 0]);
        out.extend_from_slice(&self.spi.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(icv);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{be16, be32};
    use crate::protocol;

    /// With the ICV of 96 bits that RFC 4302 section 2.2 has as its example.
    const WITH_ICV: [u8; 24] =
        [17, 4, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

    #[test]
    fn fields_lie_where_the_figure_has_them() {
        assert_eq!(WITH_ICV[field::NEXT_HEADER], protocol::UDP);
        assert_eq!(length(WITH_ICV[field::PAYLOAD_LENGTH]), WITH_ICV.len());
        assert_eq!(be16(&WITH_ICV, field::RESERVED), 0);
        assert_eq!((be32(&WITH_ICV, field::SPI), be32(&WITH_ICV, field::SEQUENCE)), (0x1000, 9));
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let mut out = vec![];
        let icv = &WITH_ICV[field::HEADER..];
        Builder { next_header: protocol::UDP, spi: 0x1000, sequence: 9 }.append(icv, &mut out);
        assert_eq!(out, WITH_ICV);
    }
}
