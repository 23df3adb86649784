//! Sets of addresses as inclusive ranges.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

/// Inclusive ranges of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ranges {
    /// First and last address of each.
    pub v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// First and last address of each.
    pub v6: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Ranges {
    /// 0.0.0.0 to 255.255.255.255.
    pub fn all_v4() -> Self {
        Ranges { v4: vec![(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)], v6: Vec::new() }
    }

    /// The whole of IPv6.
    pub fn all_v6() -> Self {
        Ranges { v4: Vec::new(), v6: vec![(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX))] }
    }

    /// One range; nothing when the ends are of different families.
    pub fn between(low: IpAddr, high: IpAddr) -> Self {
        match (low, high) {
            (IpAddr::V4(low), IpAddr::V4(high)) => Ranges { v4: vec![(low, high)], v6: Vec::new() },
            (IpAddr::V6(low), IpAddr::V6(high)) => Ranges { v4: Vec::new(), v6: vec![(low, high)] },
            _ => Ranges::default(),
        }
    }

    /// Whether every address of a range is here. The ranges must be normalised.
    pub fn covers(&self, low: IpAddr, high: IpAddr) -> bool {
        match (low, high) {
            (IpAddr::V4(low), IpAddr::V4(high)) => self.v4.iter().any(|(a, b)| *a <= low && high <= *b),
            (IpAddr::V6(low), IpAddr::V6(high)) => self.v6.iter().any(|(a, b)| *a <= low && high <= *b),
            _ => false,
        }
    }

    /// May leave overlaps, which `normalise` joins.
    pub fn add(&mut self, other: &Ranges) {
        self.v4.extend(&other.v4);
        self.v6.extend(&other.v6);
    }

    /// No address of either family.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Sorts, and joins ranges that touch or overlap.
    pub fn normalise(&mut self) {
        self.v4 = joined(&mut self.v4, next4);
        self.v6 = joined(&mut self.v6, next6);
    }

    /// Every address of both families that is not here. The ranges must be normalised.
    pub fn complement(&self) -> Ranges {
        Ranges {
            v4: gaps(&self.v4, (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST), next4, |address| {
                address.to_bits().checked_sub(1).map(Ipv4Addr::from_bits)
            }),
            v6: gaps(&self.v6, (Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX)), next6, |address| {
                address.to_bits().checked_sub(1).map(Ipv6Addr::from_bits)
            }),
        }
    }
}

fn next4(address: Ipv4Addr) -> Option<Ipv4Addr> {
    address.to_bits().checked_add(1).map(Ipv4Addr::from_bits)
}

fn next6(address: Ipv6Addr) -> Option<Ipv6Addr> {
    address.to_bits().checked_add(1).map(Ipv6Addr::from_bits)
}

fn joined<T: Copy + Ord>(ranges: &mut [(T, T)], next: impl Fn(T) -> Option<T>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for &(low, high) in ranges.iter() {
        match joined.last_mut() {
            Some(last) if next(last.1).is_none_or(|next| low <= next) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

fn gaps<T: Copy + Ord>(
    ranges: &[(T, T)],
    (first, last): (T, T),
    next: impl Fn(T) -> Option<T>,
    before: impl Fn(T) -> Option<T>,
) -> Vec<(T, T)> {
    let mut gaps = Vec::with_capacity(ranges.len() + 1);
    let mut start = Some(first);
    for &(low, high) in ranges {
        if let (Some(from), Some(to)) = (start, before(low))
            && from <= to
        {
            gaps.push((from, to));
        }
        start = next(high);
    }
    gaps.extend(start.map(|from| (from, last)));
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(low: &str, high: &str) -> (Ipv4Addr, Ipv4Addr) {
        (low.parse().unwrap(), high.parse().unwrap())
    }

    #[test]
    fn ranges_join_when_they_touch() {
        let mut ranges = Ranges {
            v4: vec![
                v4("10.0.1.0", "10.0.1.255"),
                v4("10.0.0.0", "10.0.0.255"),
                v4("10.0.0.7", "10.0.0.9"),
                v4("10.0.3.0", "10.0.3.1"),
                v4("255.255.255.255", "255.255.255.255"),
                v4("255.0.0.0", "255.255.255.255"),
            ],
            v6: Vec::new(),
        };
        ranges.normalise();
        let expected =
            [v4("10.0.0.0", "10.0.1.255"), v4("10.0.3.0", "10.0.3.1"), v4("255.0.0.0", "255.255.255.255")];
        assert_eq!(ranges.v4, expected);
    }

    #[test]
    fn the_complement_is_what_is_left() {
        let left = |v4: &[_]| Ranges { v4: v4.to_vec(), v6: Vec::new() }.complement();
        let middle = left(&[v4("10.0.0.0", "10.255.255.255")]);
        assert_eq!(middle.v4, [v4("0.0.0.0", "9.255.255.255"), v4("11.0.0.0", "255.255.255.255")]);
        assert_eq!(middle.v6, Ranges::all_v6().v6);
        let ends = left(&[v4("0.0.0.0", "0.0.0.0"), v4("255.255.255.255", "255.255.255.255")]);
        assert_eq!(ends.v4, [v4("0.0.0.1", "255.255.255.254")]);
        assert!(left(&Ranges::all_v4().v4).v4.is_empty());
        assert_eq!(left(&[]).complement(), Ranges::default());
    }
}
