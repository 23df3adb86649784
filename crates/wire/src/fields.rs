//! Reading and writing the field ranges that each protocol's module lists in its `field`: network order, and a range
//! as long as the type.
//!
//! The ranges are constants and everything here is inlined, so over a header of known length (`&[u8; N]`) no check is
//! left; over a slice there is the one that indexing makes. A range that does not fit the bytes or the type is a
//! mistake of the program and panics, as indexing does.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::Mac;

/// The range of a field whose header begins at `offset`: offsets in a frame from those in a header.
#[inline(always)]
pub const fn at(offset: usize, field: Range<usize>) -> Range<usize> {
    offset + field.start..offset + field.end
}

/// The bytes of a field as they stand there.
#[inline(always)]
pub fn octets<const N: usize>(bytes: &[u8], field: Range<usize>) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[field]);
    out
}

/// A field of two bytes.
#[inline(always)]
pub fn be16(bytes: &[u8], field: Range<usize>) -> u16 {
    u16::from_be_bytes(octets(bytes, field))
}

/// A field of four bytes.
#[inline(always)]
pub fn be32(bytes: &[u8], field: Range<usize>) -> u32 {
    u32::from_be_bytes(octets(bytes, field))
}

/// A field of eight bytes.
#[inline(always)]
pub fn be64(bytes: &[u8], field: Range<usize>) -> u64 {
    u64::from_be_bytes(octets(bytes, field))
}

/// A hardware address.
#[inline(always)]
pub fn mac(bytes: &[u8], field: Range<usize>) -> Mac {
    Mac(octets(bytes, field))
}

/// An IPv4 address.
#[inline(always)]
pub fn v4(bytes: &[u8], field: Range<usize>) -> Ipv4Addr {
    Ipv4Addr::from(octets::<4>(bytes, field))
}

/// An IPv6 address.
#[inline(always)]
pub fn v6(bytes: &[u8], field: Range<usize>) -> Ipv6Addr {
    Ipv6Addr::from(octets::<16>(bytes, field))
}

/// Writes a field as it is given.
#[inline(always)]
pub fn put(bytes: &mut [u8], field: Range<usize>, value: &[u8]) {
    bytes[field].copy_from_slice(value);
}

/// Writes a field of two bytes.
#[inline(always)]
pub fn put_be16(bytes: &mut [u8], field: Range<usize>, value: u16) {
    put(bytes, field, &value.to_be_bytes());
}

/// Writes a field of four bytes.
#[inline(always)]
pub fn put_be32(bytes: &mut [u8], field: Range<usize>, value: u32) {
    put(bytes, field, &value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; 10] = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99];

    #[test]
    fn fields_are_read_in_network_order() {
        assert_eq!(be16(&BYTES, 1..3), 0x1122);
        assert_eq!(be32(&BYTES, 2..6), 0x2233_4455);
        assert_eq!(be64(&BYTES, 1..9), 0x1122_3344_5566_7788);
        assert_eq!(mac(&BYTES, 0..6), Mac([0, 0x11, 0x22, 0x33, 0x44, 0x55]));
        assert_eq!(v4(&BYTES, 0..4), Ipv4Addr::new(0, 0x11, 0x22, 0x33));
        assert_eq!(octets(&BYTES, at(7, 1..3)), [0x88, 0x99]);
    }

    #[test]
    fn fields_are_written_in_network_order_and_nothing_beside_them() {
        let mut bytes = [0xff; 10];
        put_be16(&mut bytes, at(1, 0..2), 0x1122);
        put_be32(&mut bytes, 4..8, 0x3344_5566);
        put(&mut bytes, 9..10, &[7]);
        assert_eq!(bytes, [0xff, 0x11, 0x22, 0xff, 0x33, 0x44, 0x55, 0x66, 0xff, 7]);
    }

    #[test]
    #[should_panic(expected = "source slice length")]
    fn a_range_that_is_not_the_types_is_refused() {
        be16(&BYTES, 0..3);
    }
}
