//! Ranges of addresses as prefixes.

use std::net::IpAddr;

use sluice_language::config::Prefix;
use sluice_language::nat::{address, bits};

/// Sixteen bytes in network order as the tables have them; IPv4 stands in the first word.
pub(super) fn words_of(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [u32::from_ne_bytes(address.octets()), 0, 0, 0],
        IpAddr::V6(address) => crate::words::words(address.octets()),
    }
}

/// The fewest prefixes that make up a range.
pub(crate) fn of_range(low: IpAddr, high: IpAddr) -> Vec<Prefix> {
    pairs(low, low, sluice_language::nat::count(low, high)).into_iter().map(|(prefix, _)| prefix).collect()
}

/// Pairs of prefixes, as long as possible, by which address n from `from` becomes address n from `to`.
pub(super) fn pairs(from: IpAddr, to: IpAddr, count: u64) -> Vec<(Prefix, Prefix)> {
    let ((mut a, width), (mut b, _)) = (bits(from), bits(to));
    let mut left = u128::from(count);
    let mut pairs = vec![];
    while left > 0 {
        let aligned = (a | b).trailing_zeros().min(width);
        let size = aligned.min(left.ilog2());
        let len = (width - size) as u8;
        pairs.push((Prefix { addr: address(a, from), len }, Prefix { addr: address(b, to), len }));
        (a, b) = (a.wrapping_add(1 << size), b.wrapping_add(1 << size));
        left -= 1 << size;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(list: &[(Prefix, Prefix)]) -> Vec<String> {
        list.iter().map(|(a, b)| format!("{}/{} {}", a.addr, a.len, b.addr)).collect()
    }

    #[test]
    fn ranges_become_pairs_of_prefixes() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let of = |a, b, n| text(&pairs(ip(a), ip(b), n));
        assert_eq!(of("192.0.2.0", "10.0.0.0", 256), ["192.0.2.0/24 10.0.0.0"]);
        assert_eq!(of("192.0.2.2", "10.0.0.4", 4), ["192.0.2.2/31 10.0.0.4", "192.0.2.4/31 10.0.0.6"]);
        assert_eq!(of("192.0.2.1", "10.0.0.2", 2), ["192.0.2.1/32 10.0.0.2", "192.0.2.2/32 10.0.0.3"]);
        assert_eq!(of("fd00::", "fd01::", 1), ["fd00::/128 fd01::"]);
        assert_eq!(of_range(ip("10.0.0.1"), ip("10.0.0.6")).len(), 4);
        assert_eq!(of_range(ip("0.0.0.0"), ip("255.255.255.255"))[0].len, 0);
    }
}
