//! IPv6 addresses as the tables have them.

use std::net::Ipv6Addr;

/// Sixteen bytes as four words in network order.
pub fn words(octets: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|i| {
        let o = &octets[i * 4..i * 4 + 4];
        u32::from_ne_bytes([o[0], o[1], o[2], o[3]])
    })
}

/// And back.
pub(crate) fn v6_of(words: [u32; 4]) -> Ipv6Addr {
    let mut octets = [0; 16];
    for (chunk, word) in octets.chunks_exact_mut(4).zip(words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    Ipv6Addr::from(octets)
}
