//! The tag control information and the type that follows it (IEEE 802.1Q-2018 section 9.6). The tag's own TPID is
//! the `ethertype` of the header before.

use crate::Error;
use crate::error::need;
use crate::read::be16;

pub mod field {
    use std::ops::Range;
    pub const TCI: Range<usize> = 0..2;
    pub const TYPE: Range<usize> = 2..4;
    pub const HEADER: usize = 4;
}

#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("vlan", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    pub fn priority(&self) -> u8 {
        (be16(self.0, field::TCI) >> 13) as u8
    }

    pub fn drop_eligible(&self) -> bool {
        be16(self.0, field::TCI) & 0x1000 != 0
    }

    pub fn id(&self) -> u16 {
        be16(self.0, field::TCI) & 0x0fff
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
    pub priority: u8,
    pub drop_eligible: bool,
    pub id: u16,
    pub ethertype: u16,
}

impl Builder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let tci = u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | (self.id & 0x0fff);
        let mut out = Vec::with_capacity(field::HEADER + payload.len());
        out.extend(tci.to_be_bytes());
        out.extend(self.ethertype.to_be_bytes());
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: [u8; 5] = [0xb0, 0x64, 0x08, 0x00, 0x45];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&TAG).unwrap();
        assert_eq!((view.priority(), view.drop_eligible(), view.id()), (5, true, 100));
        assert_eq!(view.ethertype(), 0x0800);
        assert_eq!(view.payload(), [0x45]);
        assert!(View::new(&TAG[..3]).is_err());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder { priority: 5, drop_eligible: true, id: 100, ethertype: 0x0800 };
        assert_eq!(builder.build(&[0x45]), TAG);
    }
}
