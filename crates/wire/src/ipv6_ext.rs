//! IPv6 extension headers (RFC 8200 section 4): hop-by-hop and destination options, routing, fragment.

use crate::Error;
use crate::error::need;
use crate::fields::{be16, be32};
use crate::protocol::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};

/// Field ranges (RFC 8200 sections 4.2 to 4.6).
pub mod field {
    use std::ops::Range;
    /// One of [`crate::protocol`].
    pub const NEXT_HEADER: usize = 0;
    /// In 8-byte units, the first not counted; reserved in a fragment header.
    pub const LENGTH: usize = 1;
    /// Routing header: its type (RFC 8200 section 4.4).
    pub const ROUTING_TYPE: usize = 2;
    /// Routing header: nodes that are still to be visited (RFC 8200 section 4.4).
    pub const SEGMENTS_LEFT: usize = 3;
    /// Fragment header: offset, two reserved bits, more-fragments bit (RFC 8200 section 4.5).
    pub const OFFSET_MORE: Range<usize> = 2..4;
    /// Fragment header: fragments of one packet have the same one (RFC 8200 section 4.5).
    pub const ID: Range<usize> = 4..8;
    /// The smallest header, and the unit of all lengths.
    pub const UNIT: usize = 8;
}

/// Offset of a fragment, in bytes.
pub const OFFSET_MASK: u16 = 0xfff8;
/// M: more fragments follow.
pub const MORE: u16 = 0x0001;

/// Bytes of an extension header but the fragment header, by its length field.
#[inline(always)]
pub const fn length(units: u8) -> usize {
    (units as usize + 1) * field::UNIT
}

/// Whether a next-header value is one of the headers of this module.
pub fn is_extension(next_header: u8) -> bool {
    matches!(next_header, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}

/// Any extension header but the fragment header.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into or whose lengths are wrong.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("extension header", bytes, field::UNIT)?;
        let view = View(bytes);
        need("extension header", bytes, view.header_length())?;
        Ok(view)
    }

    /// One of [`crate::protocol`].
    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    /// In bytes.
    pub fn header_length(&self) -> usize {
        length(self.0[field::LENGTH])
    }

    /// Everything between the two fixed bytes and the next header.
    pub fn data(&self) -> &'a [u8] {
        &self.0[2..self.header_length()]
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_length()..]
    }
}

/// Any extension header but the fragment header; `None` in `length` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Builder {
    /// One of [`crate::protocol`].
    pub next_header: u8,
    /// Padded to whole units with PadN (RFC 8200 section 4.2).
    pub data: Vec<u8>,
    /// Given, it is written as it is.
    pub length: Option<u8>,
}

impl Builder {
    /// The header with its payload.
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

/// A checked fragment header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct FragmentView<'a>(&'a [u8]);

impl<'a> FragmentView<'a> {
    /// Refuses bytes that the header does not fit into.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        need("fragment header", bytes, field::UNIT)?;
        Ok(FragmentView(bytes))
    }

    /// One of [`crate::protocol`].
    pub fn next_header(&self) -> u8 {
        self.0[field::NEXT_HEADER]
    }

    /// The reserved byte.
    pub fn reserved(&self) -> u8 {
        self.0[field::LENGTH]
    }

    /// Offset and flag, as in [`field::OFFSET_MORE`].
    pub fn offset_more(&self) -> u16 {
        be16(self.0, field::OFFSET_MORE)
    }

    /// Identification, the same for all fragments of a packet.
    pub fn id(&self) -> u32 {
        be32(self.0, field::ID)
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[field::UNIT..]
    }
}

/// A fragment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FragmentBuilder {
    /// One of [`crate::protocol`].
    pub next_header: u8,
    /// The reserved byte.
    pub reserved: u8,
    /// Offset in bytes (a multiple of 8), two reserved bits, more-fragments bit.
    pub offset_more: u16,
    /// Identification, the same for all fragments of a packet.
    pub id: u32,
}

impl FragmentBuilder {
    /// The header with its payload.
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
