//! EAPOL (IEEE 802.1X-2020 section 11.3), and what MACsec key agreement puts into it: the basic parameter set of an
//! MKPDU (section 11.11.1).

/// Field ranges of the EAPOL header (section 11.3), counted from behind the ethertype.
pub mod field {
    use std::ops::Range;
    /// Section 11.3.1.
    pub const VERSION: usize = 0;
    /// Section 11.3.2.
    pub const PACKET_TYPE: usize = 1;
    /// Section 11.3.3.
    pub const BODY_LENGTH: Range<usize> = 2..4;
    /// The body begins here.
    pub const HEADER: usize = 4;
}

/// Packet type of an MKPDU (section 11.3.2).
pub const TYPE_MKA: u8 = 5;

/// Field ranges of the basic parameter set (section 11.11.1), counted from the body's beginning.
pub mod mka {
    use std::ops::Range;
    /// Three flags and, in [`LENGTH_MASK`], the length of what follows [`UNCOUNTED`] bytes.
    pub const FLAGS_LENGTH: Range<usize> = 2..4;
    /// Secure channel identifier of the sender.
    pub const SCI: Range<usize> = 4..12;
    /// Chosen by a participant at random for as long as it takes part (section 9.4.2).
    pub const MEMBER_IDENTIFIER: Range<usize> = 12..24;
    /// Counts up by one a packet (section 9.4.2).
    pub const MESSAGE_NUMBER: Range<usize> = 24..28;
    /// The key's name (CKN) begins here, behind the algorithm agility; it ends with the set.
    pub const KEY_NAME: usize = 32;

    /// The twelve bits of the length.
    pub const LENGTH_MASK: u16 = 0x0fff;
    /// Bytes in front of the set's body, which its length leaves out.
    pub const UNCOUNTED: usize = 4;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{be16, be32, be64, octets};

    #[test]
    fn fields_lie_where_the_standard_has_them() {
        let header = [3, 5, 0, 0x24];
        assert_eq!((header[field::VERSION], header[field::PACKET_TYPE]), (3, TYPE_MKA));
        assert_eq!(be16(&header, field::BODY_LENGTH), 36);
        // version 1, priority 16, key server with MACsec desired and a capability of 2, body of 32
        let mut set = vec![1, 16, 0xe0, 0x20, 2, 0, 0, 0, 0, 1, 0, 1];
        set.extend([0xaa; 12]);
        set.extend([0, 0, 0, 7, 0x00, 0x80, 0xc2, 0x01, b'n', b'a', b'm', b'e']);
        assert_eq!(usize::from(be16(&set, mka::FLAGS_LENGTH) & mka::LENGTH_MASK), set.len() - mka::UNCOUNTED);
        assert_eq!(be64(&set, mka::SCI), 0x0200_0000_0001_0001);
        assert_eq!(octets(&set, mka::MEMBER_IDENTIFIER), [0xaa; 12]);
        assert_eq!(be32(&set, mka::MESSAGE_NUMBER), 7);
        assert_eq!(set[mka::KEY_NAME..], *b"name");
    }
}
