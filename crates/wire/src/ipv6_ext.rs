//! IPv6 extension headers (RFC 8200 section 4): hop-by-hop and destination options, routing, fragment.

use crate::Error;
use crate::error::need;
use crate::ipv6::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};
use crate::read::{be16, be32};

pub mod field {
    use std::ops::Range;
    pub const NEXT_HEADER: usize = 0;
    /// In 8-byte units, the first not counted; reserved in a fragment header.
    pub const LENGTH: usize = 1;
    /// Fragment header (RFC 8200 section 4.5).
    pub const OFFSET_MORE: Range<usize> = 2..4;
    pub const ID: Range<usize> = 4..8;
    /// The smallest header, and the unit of all lengths.
    pub const UNIT: usize = 8;
}

pub const OFFSET_MASK: u16 = 0xfff8;
pub const MORE: u16 = 0x0001;

/// Whether a next-header value is one of the headers of this module.
pub fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}

/// Any extension header but the fragment header.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("extension header", bytes, field::UNIT)?;
        let view = View(bytes);
        need("extension header", bytes, view.header_length())?;
        Ok(view)
    }

    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    pub fn header_length(&self) -> usize {
        (usize::from(self.0[field::LENGTH]) + 1) * field::UNIT
    }

    /// Everything between the two fixed bytes and the next header.
    pub fn data(&self) -> &'a [u8] {
        &self.0[2..self.header_length()]
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_length()..]
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Builder {
    pub next_header: u8,
    /// Padded to whole units with PadN (RFC 8200 section 4.2).
    pub data: Vec<u8>,
    pub length: Option<u8>,
}

impl Builder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![self.next_header, 0];
        out.extend(&self.data);
        let missing = out.len().next_multiple_of(field::UNIT) - out.len();
        match missing {
            0 => {}
            1 => out.push(0),
            _ => {
                out.extend([1, (missing - 2) as u8]);
                out.resize(out.len() + missing - 2, 0);
            }
        }
        out[field::LENGTH] = self.length.unwrap_or((out.len() / field::UNIT - 1) as u8);
        out.extend(payload);
        out
    }
}

#[derive(Debug, Clone, Copy)]
pub struct FragmentView<'a>(&'a [u8]);

impl<'a> FragmentView<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("fragment header", bytes, field::UNIT)?;
        Ok(FragmentView(bytes))
    }

    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    pub fn reserved(&self) -> u8 {
        self.0[field::LENGTH]
    }

    pub fn offset_more(&self) -> u16 {
        be16(self.0, field::OFFSET_MORE)
    }

    pub fn id(&self) -> u32 {
        be32(self.0, field::ID)
    }

    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::UNIT..]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FragmentBuilder {
    pub next_header: u8,
    pub reserved: u8,
    /// Offset in bytes (a multiple of 8), two reserved bits, more-fragments bit.
    pub offset_more: u16,
    pub id: u32,
}

impl FragmentBuilder {
    pub fn build(&self, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![self.next_header, self.reserved];
        out.extend(self.offset_more.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(payload);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hop-by-hop with a router alert (RFC 2711) and PadN.
    const ROUTER_ALERT: [u8; 9] = [58, 0, 5, 2, 0, 0, 1, 0, 0xaa];
    const FRAGMENT_BYTES: [u8; 9] = [17, 0, 0x05, 0xa9, 1, 2, 3, 4, 0xbb];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&ROUTER_ALERT).unwrap();
        assert_eq!((view.next_header(), view.header_length()), (58, 8));
        assert_eq!(view.data(), [5, 2, 0, 0, 1, 0]);
        assert_eq!(view.payload(), [0xaa]);
        assert!(View::new(&ROUTER_ALERT[..7]).is_err());
        let mut long = ROUTER_ALERT;
        long[1] = 1;
        assert!(View::new(&long).is_err());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder { next_header: 58, data: vec![5, 2, 0, 0], length: None };
        assert_eq!(builder.build(&[0xaa]), ROUTER_ALERT);
    }

    #[test]
    fn fragment_header_literal_bytes() {
        let view = FragmentView::new(&FRAGMENT_BYTES).unwrap();
        assert_eq!(view.offset_more() & OFFSET_MASK, 1448);
        assert_eq!(view.offset_more() & MORE, 1);
        assert_eq!((view.id(), view.next_header()), (0x0102_0304, 17));
        let builder =
            FragmentBuilder { next_header: 17, reserved: 0, offset_more: 1448 | MORE, id: 0x0102_0304 };
        assert_eq!(builder.build(&[0xbb]), FRAGMENT_BYTES);
    }
}
