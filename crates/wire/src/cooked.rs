//! What stands in for Ethernet where frames of any device were captured (tcpdump.org, LINKTYPE_LINUX_SLL and
//! LINKTYPE_LINUX_SLL2). Hardware addresses are at most eight bytes long; those of Ethernet are the first six.

/// Field ranges of LINKTYPE_LINUX_SLL (113).
pub mod v1 {
    use std::ops::Range;
    /// Hardware address of the sender, if it is one of Ethernet's length.
    pub const SOURCE: Range<usize> = 6..12;
    /// Ethertype of what follows.
    pub const TYPE: Range<usize> = 14..16;
    /// The packet begins here.
    pub const HEADER: usize = 16;
}

/// Field ranges of LINKTYPE_LINUX_SLL2 (276).
pub mod v2 {
    use std::ops::Range;
    /// Ethertype of what follows.
    pub const TYPE: Range<usize> = 0..2;
    /// Hardware address of the sender, if it is one of Ethernet's length.
    pub const SOURCE: Range<usize> = 12..18;
    /// The packet begins here.
    pub const HEADER: usize = 20;
}

#[cfg(test)]
mod tests {
    use super::{v1, v2};
    use crate::fields::{be16, mac};
    use crate::{Mac, ethertype};

    const SOURCE: Mac = Mac([2, 0, 0, 0, 0, 1]);

    /// Type of packet, ARPHRD, address length, address, ethertype.
    #[test]
    fn fields_of_the_first_version() {
        let header: [u8; v1::HEADER] = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x08, 0x00];
        assert_eq!((mac(&header, v1::SOURCE), be16(&header, v1::TYPE)), (SOURCE, ethertype::IPV4));
    }

    /// Ethertype, reserved, interface, ARPHRD, type of packet, address length, address.
    #[test]
    fn fields_of_the_second_version() {
        let header: [u8; v2::HEADER] = [0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!((mac(&header, v2::SOURCE), be16(&header, v2::TYPE)), (SOURCE, ethertype::IPV6));
    }
}
