//! Address sets, and the classes of addresses that lie in the same ones.

use std::collections::{BTreeSet, HashMap};

use sluice_language::config::Ranges;

/// Inclusive ranges of one family, IPv4 addresses as their number; sorted, disjoint, none adjacent.
pub(super) type Intervals = Vec<(u128, u128)>;

pub(super) fn v4(ranges: &Ranges) -> Intervals {
    ranges.v4.iter().map(|(low, high)| (u32::from(*low).into(), u32::from(*high).into())).collect()
}

pub(super) fn v6(ranges: &Ranges) -> Intervals {
    ranges.v6.iter().map(|(low, high)| ((*low).into(), (*high).into())).collect()
}

/// Distinct sets by number.
#[derive(Debug, Default)]
pub(super) struct Sets {
    numbers: HashMap<Intervals, u32>,
}

/// Where each class begins (the first at 0), and the sets whose addresses each class has.
#[derive(Debug)]
pub(super) struct Classes {
    pub starts: Vec<(u128, u32)>,
    pub members: Vec<Vec<u32>>,
}

impl Sets {
    pub fn number(&mut self, intervals: Intervals) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(intervals).or_insert(next)
    }

    /// One sweep over all edges. The sets in force at an address are told by a signature that each edge changes, so a class
    /// that comes again is found without comparing lists.
    pub fn classify(&self, max: u128) -> Classes {
        let mut edges: Vec<(u128, u32)> = vec![];
        for (intervals, number) in &self.numbers {
            for (low, high) in intervals {
                edges.push((*low, *number));
                edges.extend((*high < max).then(|| (high + 1, *number)));
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
    fn classes_are_the_sets_that_hold() {
        let mut sets = Sets::default();
        let (a, b) = (vec![(10, 19)], vec![(15, 29), (100, 255)]);
        assert_eq!((sets.number(a.clone()), sets.number(b), sets.number(a)), (0, 1, 0));
        let classes = sets.classify(255);
        let at: Vec<(u128, &[u32])> = classes
            .starts
            .iter()
            .map(|(start, class)| (*start, &classes.members[*class as usize][..]))
            .collect();
        let expected: [(u128, &[u32]); 6] =
            [(0, &[]), (10, &[0]), (15, &[0, 1]), (20, &[1]), (30, &[]), (100, &[1])];
        assert_eq!(at, expected);
        assert_eq!(classes.members.len(), 4, "sets that come again are the same class");
        assert_eq!(Sets::default().classify(255).starts, [(0, 0)]);
    }
}
