//! MACsec: the SecTAG of IEEE 802.1AE-2018 clause 9, which follows its ethertype.

/// Field ranges (section 9.3), counted from behind the ethertype.
pub mod field {
    use std::ops::Range;
    /// TAG control information (section 9.5) and association number (section 9.6).
    pub const TCI_AN: usize = 0;
    /// SL: length of secure data that is shorter than [`SHORT`](super::SHORT), else 0 (section 9.7).
    pub const SHORT_LENGTH: usize = 1;
    /// PN, of an extended one the lower half (sections 9.8, 10.7).
    pub const PACKET_NUMBER: Range<usize> = 2..6;
    /// The tag without SCI.
    pub const TAG: usize = 6;
    /// Secure channel identifier, there if [`SCI_PRESENT`](super::SCI_PRESENT) is set (section 9.9).
    pub const SCI: Range<usize> = 6..14;
    /// The tag with SCI.
    pub const LONG_TAG: usize = 14;
}

/// V: any version but 0 (section 9.5).
pub const VERSION: u8 = 0x80;
/// ES: the source address stands for the SCI (section 9.5).
pub const END_STATION: u8 = 0x40;
/// SC: the SCI is in the tag (section 9.5).
pub const SCI_PRESENT: u8 = 0x20;
/// SCB: the single copy broadcast of an EPON (section 9.5).
pub const SINGLE_COPY: u8 = 0x10;
/// E: user data are encrypted (section 9.5).
pub const ENCRYPTED: u8 = 0x08;
/// C: user data are changed, which encryption does (section 9.5).
pub const CHANGED: u8 = 0x04;
/// AN (section 9.6).
pub const AN: u8 = 0x03;

/// The two upper bits of SL are clear (sections 9.7, 9.12 e).
pub const SHORT_LENGTH_UNUSED: u8 = 0xc0;
/// Secure data of fewer bytes are told by SL (section 9.7).
pub const SHORT: usize = 48;
/// Bytes of the ICV of every standard cipher suite (sections 14.5, 14.6).
pub const ICV: usize = 16;
/// Port identifier of an SCI that the source address stands for (section 9.9).
pub const END_STATION_PORT: u16 = 1;

/// Secure channel identifier: a station's address and one of its ports (section 9.9).
#[inline(always)]
pub const fn sci(address: [u8; 6], port: u16) -> u64 {
    let [a, b, c, d, e, f] = address;
    let [high, low] = port.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, high, low])
}

/// The tag of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// E, C, ES and SCB; SC follows from the SCI.
    pub tci: u8,
    /// Association number, 0 to 3.
    pub an: u8,
    /// PN, or its lower half.
    pub packet_number: u32,
    /// Without one, the receiver knows it by other means.
    pub sci: Option<u64>,
}

impl Builder {
    /// Bytes that are appended.
    pub const fn header_length(&self) -> usize {
        if self.sci.is_some() { field::LONG_TAG } else { field::TAG }
    }

    /// Appends the tag of `secure` bytes of secure data.
    #[inline]
    pub fn append(&self, secure: usize, out: &mut Vec<u8>) {
        let tci = self.tci | if self.sci.is_some() { SCI_PRESENT } else { 0 };
        let short_length = if secure < SHORT { secure as u8 } else { 0 };
        out.extend_from_slice(&[tci | self.an & AN, short_length]);
        out.extend_from_slice(&self.packet_number.to_be_bytes());
        if let Some(sci) = self.sci {
            out.extend_from_slice(&sci.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{be32, be64};

    const LONG_TAG: [u8; field::LONG_TAG] =
        [0x2e, 0x2a, 0x76, 0xd4, 0x57, 0xed, 0xf0, 0x76, 0x1e, 0x8d, 0xcd, 0x3d, 0, 1];

    #[test]
    fn fields_lie_where_the_standard_has_them() {
        assert_eq!(LONG_TAG[field::TCI_AN], SCI_PRESENT | ENCRYPTED | CHANGED | 2);
        assert_eq!(LONG_TAG[field::SHORT_LENGTH], 42);
        assert_eq!(be32(&LONG_TAG, field::PACKET_NUMBER), 0x76d4_57ed);
        assert_eq!(be64(&LONG_TAG, field::SCI), 0xf076_1e8d_cd3d_0001);
        assert_eq!(sci([0xf0, 0x76, 0x1e, 0x8d, 0xcd, 0x3d], 1), 0xf076_1e8d_cd3d_0001);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let tag = Builder {
            tci: ENCRYPTED | CHANGED,
            an: 2,
            packet_number: 0x76d4_57ed,
            sci: Some(0xf076_1e8d_cd3d_0001),
        };
        let mut out = vec![];
        tag.append(42, &mut out);
        assert_eq!(out, LONG_TAG);
        out.clear();
        Builder { tci: END_STATION, sci: None, ..tag }.append(48, &mut out);
        assert_eq!(out, [0x42, 0, 0x76, 0xd4, 0x57, 0xed]);
    }
}
