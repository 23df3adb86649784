//! ESP (RFC 4303): SPI and sequence number are in clear text, everything behind them is not. Over UDP port 4500 it is
//! the same (RFC 3948 section 2.1).

/// Field ranges (RFC 4303 section 2, figure 1).
pub mod field {
    use std::ops::Range;
    /// Security parameters index (section 2.1); 0 is never sent.
    pub const SPI: Range<usize> = 0..4;
    /// The lower 32 bits where the number is an extended one (section 2.2.1).
    pub const SEQUENCE: Range<usize> = 4..8;
    /// What is in clear text; the payload (section 2.3) begins here.
    pub const HEADER: usize = 8;
}

/// Ciphertext, pad length and next header end at a multiple of this many bytes (section 2.4).
pub const ALIGNMENT: usize = 4;

/// The header of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number.
    pub sequence: u32,
}

impl Builder {
    /// Appends the header.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.spi.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::be32;

    const HEADER: [u8; field::HEADER] = [0xc0, 0xff, 0xee, 0x01, 0, 0, 0x01, 0x02];

    #[test]
    fn fields_lie_where_the_figure_has_them() {
        assert_eq!(be32(&HEADER, field::SPI), 0xc0ff_ee01);
        assert_eq!(be32(&HEADER, field::SEQUENCE), 258);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let mut out = vec![];
        Builder { spi: 0xc0ff_ee01, sequence: 258 }.append(&mut out);
        assert_eq!(out, HEADER);
    }
}
