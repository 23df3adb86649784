//! GTP-U (3GPP TS 29.281 section 5).

/// Registered UDP port (section 4.4.2).
pub const PORT: u16 = 2152;

/// Field ranges (section 5.1, figure 5.1-1).
pub mod field {
    use std::ops::Range;
    /// Version, protocol type, and whether there are optional fields.
    pub const FLAGS: usize = 0;
    /// Section 6.1.
    pub const MESSAGE_TYPE: usize = 1;
    /// Of all behind the mandatory part, optional fields and extension headers included.
    pub const LENGTH: Range<usize> = 2..4;
    /// Tunnel endpoint identifier.
    pub const TEID: Range<usize> = 4..8;
    /// The mandatory part.
    pub const HEADER: usize = 8;
    /// To be read if [`SEQUENCE_PRESENT`](super::SEQUENCE_PRESENT) is set.
    pub const SEQUENCE: Range<usize> = 8..10;
    /// To be read if [`NPDU_PRESENT`](super::NPDU_PRESENT) is set.
    pub const NPDU: usize = 10;
    /// To be read if [`EXTENSION_PRESENT`](super::EXTENSION_PRESENT) is set (section 5.2.1).
    pub const NEXT_EXTENSION: usize = 11;
    /// With the optional fields, which are there as a whole when one of them is.
    pub const LONG_HEADER: usize = 12;
}

/// Version (three bits) and protocol type.
pub const VERSION_MASK: u8 = 0xf0;
/// Version 1, protocol type GTP (not GTP').
pub const VERSION_1: u8 = 0x30;
/// E: the next extension header type means something.
pub const EXTENSION_PRESENT: u8 = 0x04;
/// S: the sequence number means something.
pub const SEQUENCE_PRESENT: u8 = 0x02;
/// PN: the N-PDU number means something.
pub const NPDU_PRESENT: u8 = 0x01;
/// Any of them: the optional fields are there.
pub const LONG: u8 = EXTENSION_PRESENT | SEQUENCE_PRESENT | NPDU_PRESENT;

/// Message type of user data (section 6.1).
pub const G_PDU: u8 = 255;

/// The header of a G-PDU, a user's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// With one, the optional fields are there.
    pub sequence: Option<u16>,
}

impl Builder {
    /// Bytes that are appended.
    pub const fn header_length(&self) -> usize {
        if self.sequence.is_some() { field::LONG_HEADER } else { field::HEADER }
    }

    /// Appends the header of a packet that is `payload` bytes long.
    #[inline]
    pub fn append(&self, payload: usize, out: &mut Vec<u8>) {
        let length = (self.header_length() - field::HEADER + payload) as u16;
        let optional = if self.sequence.is_some() { SEQUENCE_PRESENT } else { 0 };
        out.extend_from_slice(&[VERSION_1 | optional, G_PDU]);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&self.teid.to_be_bytes());
        if let Some(sequence) = self.sequence {
            let [high, low] = sequence.to_be_bytes();
            out.extend_from_slice(&[high, low, 0, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{be16, be32};

    const LONG_HEADER: [u8; field::LONG_HEADER] =
        [0x32, 0xff, 0x00, 0x68, 0xde, 0xad, 0xbe, 0xef, 0x12, 0x34, 0, 0];

    #[test]
    fn fields_lie_where_the_figure_has_them() {
        assert_eq!(LONG_HEADER[field::FLAGS] & VERSION_MASK, VERSION_1);
        assert_eq!(LONG_HEADER[field::FLAGS] & LONG, SEQUENCE_PRESENT);
        assert_eq!(LONG_HEADER[field::MESSAGE_TYPE], G_PDU);
        assert_eq!((be16(&LONG_HEADER, field::LENGTH), be32(&LONG_HEADER, field::TEID)), (104, 0xdead_beef));
        assert_eq!(be16(&LONG_HEADER, field::SEQUENCE), 0x1234);
        assert_eq!((LONG_HEADER[field::NPDU], LONG_HEADER[field::NEXT_EXTENSION]), (0, 0));
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let mut out = vec![];
        Builder { teid: 0xdead_beef, sequence: Some(0x1234) }.append(100, &mut out);
        assert_eq!(out, LONG_HEADER);
        out.clear();
        Builder { teid: 0xdead_beef, sequence: None }.append(100, &mut out);
        assert_eq!(out, [0x30, 0xff, 0x00, 0x64, 0xde, 0xad, 0xbe, 0xef]);
    }
}
