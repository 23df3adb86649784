//! Ethernet II frames (IEEE 802.3-2018 section 3.1.1; RFC 894).

use crate::error::need;
use crate::fields::{be16, mac};
use crate::{Error, Mac};

/// Field ranges (IEEE 802.3-2018 section 3.1.1).
pub mod field {
    use std::ops::Range;
    /// Section 3.2.4.
    pub const DESTINATION: Range<usize> = 0..6;
    /// Section 3.2.5.
    pub const SOURCE: Range<usize> = 6..12;
    /// Both addresses: what a tag or a type follows.
    pub const ADDRESSES: Range<usize> = 0..12;
    /// Section 3.2.6; one of [`crate::ethertype`].
    pub const TYPE: Range<usize> = 12..14;
    /// The packet, or a tag's control information, begins here.
    pub const HEADER: usize = 14;
}

/// Frame check sequence behind a frame, which is hardly ever in memory (section 3.2.9).
pub const FCS: usize = 4;
/// Shortest frame with its FCS: what is shorter is padded (sections 3.2.8, 4.4.2).
pub const SHORTEST: usize = 64;

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("eth", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// Destination address.
    pub fn destination(&self) -> Mac {
        mac(self.0, field::DESTINATION)
    }

    /// Source address.
    pub fn source(&self) -> Mac {
        mac(self.0, field::SOURCE)
    }

    /// Type of what follows.
    pub fn ethertype(&self) -> u16 {
        be16(self.0, field::TYPE)
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

/// The header of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// Type of what follows.
    pub ethertype: u16,
}

impl Builder {
    /// Appends the header.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.destination.0);
        out.extend_from_slice(&self.source.0);
        out.extend_from_slice(&self.ethertype.to_be_bytes());
    }

    /// The frame.
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        self.append(&mut out);
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethertype;

    const FRAME: [u8; 16] = [0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x08, 0x00, 0xaa, 0xbb];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&FRAME).unwrap();
        assert_eq!(view.destination().to_string(), "02:00:00:00:00:01");
        assert_eq!(view.source().to_string(), "02:00:00:00:00:02");
        assert_eq!(view.ethertype(), ethertype::IPV4);
        assert_eq!(view.payload(), [0xaa, 0xbb]);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder {
            destination: Mac([2, 0, 0, 0, 0, 1]),
            source: Mac([2, 0, 0, 0, 0, 2]),
            ethertype: ethertype::IPV4,
        };
        assert_eq!(builder.build(&[0xaa, 0xbb]), FRAME);
    }

    #[test]
    fn short_frames_are_refused() {
        assert_eq!(
            View::new(&FRAME[..13]).unwrap_err(),
            Error::Truncated { layer: "eth", need: 14, have: 13 }
        );
    }
}
