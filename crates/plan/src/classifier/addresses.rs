//! Address sets, and the classes of addresses that lie in the same ones.

use std::collections::{BTreeSet, HashMap};

/// Inclusive ranges of one family, IPv4 addresses as their number; sorted, disjoint, none adjacent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    pub fn new(ranges: impl IntoIterator<Item = (u128, u128)>) -> Ranges {
        let mut sorted: Vec<(u128, u128)> = ranges.into_iter().collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u128, u128)> = vec![];
        for (low, high) in sorted {
            match merged.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Ranges(merged)
    }

    /// Everything else up to `max`.
    pub fn complement(&self, max: u128) -> Ranges {
        let mut rest = vec![];
        let mut next = Some(0);
        for (low, high) in &self.0 {
            if let Some(start) = next.filter(|start| start < low) {
                rest.push((start, low - 1));
            }
            next = high.checked_add(1).filter(|after| *after <= max);
        }
        rest.extend(next.map(|start| (start, max)));
        Ranges(rest)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> + '_ {
        self.0.iter().copied()
    }

    pub fn contains(&self, address: u128) -> bool {
        let after = self.0.partition_point(|(low, _)| *low <= address);
        after.checked_sub(1).is_some_and(|place| self.0[place].1 >= address)
    }
}

/// Distinct sets by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    numbers: HashMap<Ranges, u32>,
}

/// Where each class begins (the first at 0), and the sets whose addresses each class has.
#[derive(Debug)]
pub(super) struct Classes {
    pub starts: Vec<(u128, u32)>,
    pub members: Vec<Vec<u32>>,
}

impl Sets {
    pub fn number(&mut self, ranges: &Ranges) -> u32 {
        let next = self.numbers.len() as u32;
        match self.numbers.get(ranges) {
            Some(number) => *number,
            None => *self.numbers.entry(ranges.clone()).or_insert(next),
        }
    }

    /// One sweep over all edges. The sets in force at an address are told by a signature that each edge changes, so a class
    /// that comes again is found without comparing lists.
    pub fn classify(&self, max: u128) -> Classes {
        let mut edges: Vec<(u128, u32)> = vec![];
        for (ranges, number) in &self.numbers {
            for (low, high) in ranges.iter() {
                edges.push((low, *number));
                edges.extend((high < max).then(|| (high + 1, *number)));
            }
        }
        edges.sort_unstable();
        let mut known: HashMap<u128, u32> = HashMap::new();
        let mut classes = Classes { starts: vec![], members: vec![] };
        let (mut signature, mut inside) = (0, BTreeSet::new());
        let mut class_here = |signature: u128, inside: &BTreeSet<u32>, members: &mut Vec<Vec<u32>>| {
            *known.entry(signature).or_insert_with(|| {
                members.push(inside.iter().copied().collect());
                members.len() as u32 - 1
            })
        };
        if edges.first().is_none_or(|edge| edge.0 > 0) {
            let class = class_here(signature, &inside, &mut classes.members);
            classes.starts.push((0, class));
        }
        for here in edges.chunk_by(|a, b| a.0 == b.0) {
            for (_, number) in here {
                signature ^= mark(*number);
                if !inside.remove(number) {
                    inside.insert(*number);
                }
            }
            let class = class_here(signature, &inside, &mut classes.members);
            if classes.starts.last().is_none_or(|last| last.1 != class) {
                classes.starts.push((here[0].0, class));
            }
        }
        classes
    }
}

/// A number's mark in signatures: 128 well mixed bits, so that two sets of sets never look alike in practice (splitmix64).
fn mark(number: u32) -> u128 {
    let mix = |seed: u64| {
        let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let seed = 2 * u64::from(number) + 1;
    (u128::from(mix(seed)) << 64) | u128::from(mix(seed + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_complemented() {
        let ranges = Ranges::new([(20, 20), (5, 9), (1, 4)]);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(1, 9), (20, 20)]);
        assert_eq!(ranges.complement(30).iter().collect::<Vec<_>>(), [(0, 0), (10, 19), (21, 30)]);
        assert_eq!(ranges.complement(30).complement(30), ranges);
        let all = Ranges::new([(0, u128::MAX), (7, u128::MAX)]);
        assert_eq!(all.complement(u128::MAX), Ranges::default());
        assert_eq!(Ranges::default().complement(u128::MAX), all);
        assert!(ranges.contains(9) && ranges.contains(20) && !ranges.contains(10) && !ranges.contains(0));
    }

    #[test]
    fn classes_are_the_sets_that_hold() {
        let mut sets = Sets::default();
        let (a, b) = (Ranges::new([(10, 19)]), Ranges::new([(15, 29), (100, 255)]));
        assert_eq!((sets.number(&a), sets.number(&b), sets.number(&a)), (0, 1, 0));
        let classes = sets.classify(255);
        let at: Vec<(u128, &[u32])> =
            classes.starts.iter().map(|(start, class)| (*start, &classes.members[*class as usize][..])).collect();
        let expected: [(u128, &[u32]); 6] = [(0, &[]), (10, &[0]), (15, &[0, 1]), (20, &[1]), (30, &[]), (100, &[1])];
        assert_eq!(at, expected);
        assert_eq!(classes.members.len(), 4, "sets that come again are the same class");
        assert_eq!(Sets::default().classify(255).starts, [(0, 0)]);
    }
}
