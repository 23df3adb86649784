//! TCP (RFC 9293 section 3.1).

use crate::checksum::Pseudo;
use crate::error::need;
use crate::fields::{be16, be32};
use crate::{Error, protocol};

/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// Begins a connection.
pub const SYN: u8 = 0x02;
/// Ends a connection at once.
pub const RST: u8 = 0x04;
/// Data are to be handed on at once.
pub const PSH: u8 = 0x08;
/// The acknowledgment number means something.
pub const ACK: u8 = 0x10;
/// The urgent pointer means something.
pub const URG: u8 = 0x20;
/// Congestion was met (RFC 3168 section 6.1).
pub const ECE: u8 = 0x40;
/// The congestion window was reduced (RFC 3168 section 6.1).
pub const CWR: u8 = 0x80;

/// Field ranges (RFC 9293 section 3.1, figure 1).
pub mod field {
    use std::ops::Range;
    /// Where UDP has it, too.
    pub const SOURCE_PORT: Range<usize> = 0..2;
    /// Where UDP has it, too.
    pub const DESTINATION_PORT: Range<usize> = 2..4;
    /// Of the segment's first byte, or of its SYN.
    pub const SEQUENCE: Range<usize> = 4..8;
    /// The sequence number that is expected next.
    pub const ACKNOWLEDGMENT: Range<usize> = 8..12;
    /// Data offset in words of four bytes, and reserved bits; four bits each.
    pub const OFFSET_RESERVED: usize = 12;
    /// Control bits.
    pub const FLAGS: usize = 13;
    /// Bytes that the sender takes; to be shifted by the window scale (RFC 7323 section 2.2).
    pub const WINDOW: Range<usize> = 14..16;
    /// Of pseudo-header and segment.
    pub const CHECKSUM: Range<usize> = 16..18;
    /// Urgent pointer.
    pub const URGENT: Range<usize> = 18..20;
    /// The header without options, which begin here.
    pub const HEADER: usize = 20;
}

/// A checked header with what follows it.
#[derive(Debug, Clone, Copy)]
pub struct View<'a>(&'a [u8]);

impl<'a> View<'a> {
    /// Refuses bytes that the header does not fit into or whose lengths are wrong.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        let view = Self::new_unchecked(bytes)?;
        if view.header_length() < field::HEADER {
            return Err(Error::Malformed { layer: "tcp", what: "data offset is below 5" });
        }
        need("tcp", bytes, view.header_length())?;
        Ok(view)
    }

    /// Only the 20 fixed bytes are there; the data offset may be wrong.
    pub fn new_unchecked(bytes: &'a [u8]) -> Result<Self, Error> {
        need("tcp", bytes, field::HEADER)?;
        Ok(View(bytes))
    }

    /// Port of the sender.
    pub fn source_port(&self) -> u16 {
        be16(self.0, field::SOURCE_PORT)
    }

    /// Port of the receiver.
    pub fn destination_port(&self) -> u16 {
        be16(self.0, field::DESTINATION_PORT)
    }

    /// Sequence number.
    pub fn sequence(&self) -> u32 {
        be32(self.0, field::SEQUENCE)
    }

    /// The sequence number that is expected next.
    pub fn acknowledgment(&self) -> u32 {
        be32(self.0, field::ACKNOWLEDGMENT)
    }

    /// In bytes, options included.
    pub fn header_length(&self) -> usize {
        usize::from(self.0[field::OFFSET_RESERVED] >> 4) * 4
    }

    /// The reserved bits.
    pub fn reserved(&self) -> u8 {
        self.0[field::OFFSET_RESERVED] & 0x0f
    }

    /// Control bits, [`FIN`] to [`CWR`].
    pub fn flags(&self) -> u8 {
        self.0[field::FLAGS]
    }

    /// Not yet scaled.
    pub fn window(&self) -> u16 {
        be16(self.0, field::WINDOW)
    }

    /// As it stands there.
    pub fn checksum(&self) -> u16 {
        be16(self.0, field::CHECKSUM)
    }

    /// Whether the checksum is right.
    pub fn checksum_ok(&self, pseudo: Pseudo) -> bool {
        pseudo.checksum(protocol::TCP, self.0) == 0
    }

    /// Urgent pointer.
    pub fn urgent(&self) -> u16 {
        be16(self.0, field::URGENT)
    }

    /// What stands behind the fixed part.
    pub fn options(&self) -> &'a [u8] {
        &self.0[field::HEADER..self.header_length()]
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.0[self.header_length()..]
    }
}

/// `None` in `offset` and `checksum` means: the right value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Builder {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// The sequence number that is expected next.
    pub acknowledgment: u32,
    /// The reserved bits.
    pub reserved: u8,
    /// Control bits, [`FIN`] to [`CWR`].
    pub flags: u8,
    /// Not yet scaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Padded to whole words with zeros.
    pub options: Vec<u8>,
    /// In 32-bit words.
    pub offset: Option<u8>,
    /// Given, it is written as it is.
    pub checksum: Option<u16>,
}

impl Builder {
    /// The segment.
    pub fn build(&self, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let offset = self.offset.unwrap_or(((field::HEADER + options.len()) / 4) as u8);
        let mut out = Vec::with_capacity(field::HEADER + options.len() + payload.len());
        out.extend(self.source_port.to_be_bytes());
        out.extend(self.destination_port.to_be_bytes());
        out.extend(self.sequence.to_be_bytes());
        out.extend(self.acknowledgment.to_be_bytes());
        out.extend([offset << 4 | self.reserved & 0x0f, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(options);
        out.extend(payload);
        let checksum = self.checksum.unwrap_or_else(|| pseudo.checksum(protocol::TCP, &out));
        out[field::CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PSEUDO: Pseudo = Pseudo::V4(Ipv4Addr::new(10, 0, 1, 100), Ipv4Addr::new(10, 0, 2, 100));
    /// SYN with an MSS of 1460.
    const SYN_BYTES: [u8; 24] = [
        0x9c, 0x40, 0x00, 0x50, 0x00, 0x00, 0x03, 0xe8, 0, 0, 0, 0, 0x60, 0x02, 0xff, 0xff, 0xdf, 0xe6, 0, 0,
        0x02, 0x04, 0x05, 0xb4,
    ];

    #[test]
    fn view_reads_literal_bytes() {
        let view = View::new(&SYN_BYTES).unwrap();
        assert_eq!((view.source_port(), view.destination_port()), (40000, 80));
        assert_eq!((view.sequence(), view.acknowledgment(), view.window()), (1000, 0, 65535));
        assert_eq!((view.flags(), view.header_length()), (SYN, 24));
        assert_eq!(view.options(), [2, 4, 5, 0xb4]);
        assert!(view.checksum_ok(PSEUDO));
        assert!(view.payload().is_empty());
    }

    #[test]
    fn builder_writes_literal_bytes() {
        let builder = Builder {
            source_port: 40000,
            destination_port: 80,
            sequence: 1000,
            flags: SYN,
            window: 65535,
            options: vec![2, 4, 5, 0xb4],
            ..Builder::default()
        };
        assert_eq!(builder.build(&[], PSEUDO), SYN_BYTES);
    }

    #[test]
    fn bad_offsets_are_refused() {
        let with = |offset| Builder { offset: Some(offset), ..Builder::default() }.build(&[], PSEUDO);
        assert!(matches!(View::new(&with(4)), Err(Error::Malformed { .. })));
        assert!(matches!(View::new(&with(6)), Err(Error::Truncated { .. })));
        assert!(matches!(View::new(&SYN_BYTES[..19]), Err(Error::Truncated { .. })));
    }
}
