//! Big-endian reads of a field range; the range's length is the type's.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::Mac;

fn array<const N: usize>(bytes: &[u8], field: Range<usize>) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[field]);
    out
}

pub(crate) fn be16(bytes: &[u8], field: Range<usize>) -> u16 {
    u16::from_be_bytes(array(bytes, field))
}

pub(crate) fn be32(bytes: &[u8], field: Range<usize>) -> u32 {
    u32::from_be_bytes(array(bytes, field))
}

pub(crate) fn mac(bytes: &[u8], field: Range<usize>) -> Mac {
    Mac(array(bytes, field))
}

pub(crate) fn v4(bytes: &[u8], field: Range<usize>) -> Ipv4Addr {
    Ipv4Addr::from(array::<4>(bytes, field))
}

pub(crate) fn v6(bytes: &[u8], field: Range<usize>) -> Ipv6Addr {
    Ipv6Addr::from(array::<16>(bytes, field))
}
