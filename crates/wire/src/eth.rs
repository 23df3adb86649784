//! Ethernet II frames (IEEE 802.3-2018 section 3.1.1; RFC 894).

use crate::error::need;
use crate::read::{be16, mac};
use crate::{Error, Mac};

pub const TYPE_IPV4: u16 = 0x0800;
pub const TYPE_ARP: u16 = 0x0806;
pub const TYPE_VLAN: u16 = 0x8100;
pub const TYPE_QINQ: u16 = 0x88a8;
pub const TYPE_IPV6: u16 = 0x86dd;

pub mod field {
    use std::ops::Range;
    pub const DESTINATION: Range<usize> = 0..6;
    pub const SOURCE: Range<usize> = 6..12;
    pub const TYPE: Range<usize> = 12..14;
    pub const HEADER: usize = 14;
}

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("eth", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    pub fn destination(&self) -> Mac {
        mac(self.0, field::DESTINATION)
    }

    pub fn source(&self) -> Mac {
        mac(self.0, field::SOURCE)
    }

    pub fn ethertype(&self) -> u16 {
        be16(self.0, field::TYPE)
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::HEADER..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    pub destination: Mac,
    pub source: Mac,
    pub ethertype: u16,
}

impl Builder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        out.extend(self.destination.0);
        out.extend(self.source.0);
        out.extend(self.ethertype.to_be_bytes());
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 16] = [0x02, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 0, 0x02, 0x08, 0x00, 0xaa, 0xbb];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&FRAME).unwrap();
        assert_eq!(view.destination().to_string(), "02:00:00:00:00:01");
        assert_eq!(view.source().to_string(), "02:00:00:00:00:02");
        assert_eq!(view.ethertype(), TYPE_IPV4);
        assert_eq!(view.payload(), [0xaa, 0xbb]);
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder {
            destination: Mac([2, 0, 0, 0, 0, 1]),
            source: Mac([2, 0, 0, 0, 0, 2]),
            ethertype: TYPE_IPV4,
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
