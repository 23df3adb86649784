//! The tag control information and the type that follows it (IEEE 802.1Q-2018 section 9.6). The tag's own TPID is
//! the `ethertype` of the header before.

use crate::Error;
use crate::error::need;
use crate::fields::be16;

/// Field ranges (IEEE 802.1Q-2018 sections 9.4 to 9.6), counted from behind the TPID.
pub mod field {
    use std::ops::Range;
    /// Priority (3 bits), drop eligible (1), VLAN identifier (12).
    pub const TCI: Range<usize> = 0..2;
    /// Type of what follows; one of [`crate::ethertype`].
    pub const TYPE: Range<usize> = 2..4;
    /// The packet, or another tag's control information, begins here.
    pub const HEADER: usize = 4;
}

/// DEI in the TCI.
pub const DROP_ELIGIBLE: u16 = 0x1000;
/// VLAN identifier in the TCI.
pub const ID_MASK: u16 = 0x0fff;

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the tag does not fit into.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("vlan", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// PCP.
    pub fn priority(&self) -> u8 {
        (be16(self.0, field::TCI) >> 13) as u8
    }

    /// DEI.
    pub fn drop_eligible(&self) -> bool {
        be16(self.0, field::TCI) & DROP_ELIGIBLE != 0
    }

    /// VLAN identifier.
    pub fn id(&self) -> u16 {
        be16(self.0, field::TCI) & ID_MASK
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

/// One tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Builder {
    /// PCP.
    pub priority: u8,
    /// DEI.
    pub drop_eligible: bool,
    /// VLAN identifier.
    pub id: u16,
    /// Type of what follows.
    pub ethertype: u16,
}

impl Builder {
    /// Appends the tag and the type behind it.
    #[inline]
    pub fn append(&self, out: &mut Vec<u8>) {
        let drop_eligible = if self.drop_eligible { DROP_ELIGIBLE } else { 0 };
        let tci = u16::from(self.priority) << 13 | drop_eligible | self.id & ID_MASK;
        out.extend_from_slice(&tci.to_be_bytes());
        out.extend_from_slice(&self.ethertype.to_be_bytes());
    }

    /// The header with its payload.
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
