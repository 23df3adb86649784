//! In which order the rules of a context are stored. A packet costs as many lines of bits as there are chunks with rules for
//! its source, for its destination and for its service; so rules for near addresses and services share a chunk. What
//! comes first in the configuration still matches first: the stored order is written down beside the rows.

use sluice_abi::CLASS_CHUNK_RULES;
use sluice_language::config::{Ranges, Service};

use super::Wanted;

/// What one rule wants of one side: inclusive intervals of ranks.
type Spans = Vec<(u32, u32)>;

/// Stored order of the rules: `order[n]` is the rule stored as the n-th. Empty = as they are, which a single chunk always is.
pub(super) fn order(rules: &[Wanted]) -> Vec<u32> {
    if rules.len() <= CLASS_CHUNK_RULES {
        return vec![];
    }
    let sides = [
        ranked(rules.iter().map(|rule| rule.source.as_ref().map(addresses))),
        ranked(rules.iter().map(|rule| rule.destination.as_ref().map(addresses))),
        ranked(rules.iter().map(|rule| rule.services.as_deref().map(services))),
    ];
    let mut order: Vec<u32> = (0..rules.len() as u32).collect();
    split(&mut order, &sides);
    if order.is_sorted() { vec![] } else { order }
}

/// Halves the rules along the side that tells the halves apart best, until a part fits into a chunk.
fn split(part: &mut [u32], sides: &[Vec<Spans>; 3]) {
    if part.len() <= CLASS_CHUNK_RULES {
        part.sort_unstable();
        return;
    }
    let middle = part.len().div_ceil(CLASS_CHUNK_RULES) / 2 * CLASS_CHUNK_RULES;
    let sorted = sides.iter().map(|spans| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable_by_key(|rule| (centre(&spans[*rule as usize]), *rule));
        let (low, high) = sorted.split_at(middle);
        let all = covered(&sorted, spans).max(1) as f64;
        let both = (covered(low, spans) + covered(high, spans)) as f64;
        (both / all, sorted)
    });
    if let Some((_, best)) = sorted.min_by(|a, b| a.0.total_cmp(&b.0)) {
        part.copy_from_slice(&best);
    }
    let (low, high) = part.split_at_mut(middle);
    split(low, sides);
    split(high, sides);
}

/// Twice the middle of what a rule wants.
fn centre(spans: &Spans) -> u32 {
    spans.first().map_or(0, |first| first.0) + spans.last().map_or(0, |last| last.1)
}

/// How many ranks some of the rules want.
fn covered(rules: &[u32], spans: &[Spans]) -> u64 {
    let mut all: Vec<(u32, u32)> = rules.iter().flat_map(|rule| &spans[*rule as usize]).copied().collect();
    all.sort_unstable();
    let (mut sum, mut next) = (0, 0);
    for (low, high) in all {
        let low = low.max(next);
        if high >= low {
            sum += u64::from(high - low) + 1;
            next = high + 1;
        }
    }
    sum
}

/// Replaces values by their rank among all ends of intervals, so that what counts is how many lists tell values apart, not
/// how far they lie from each other. Any = everything.
fn ranked(sides: impl Iterator<Item = Option<Vec<(u128, u128)>>>) -> Vec<Spans> {
    let sides: Vec<_> = sides.collect();
    let mut ends: Vec<u128> =
        sides.iter().flatten().flatten().flat_map(|(low, high)| [*low, *high]).collect();
    ends.sort_unstable();
    ends.dedup();
    let rank = |value: u128| ends.partition_point(|end| *end < value) as u32;
    let everything = vec![(0, ends.len() as u32)];
    sides
        .into_iter()
        .map(|side| match side {
            None => everything.clone(),
            Some(list) => list.into_iter().map(|(low, high)| (rank(low), rank(high))).collect(),
        })
        .collect()
}

/// From the lowest to the highest address of each family; IPv6 above IPv4.
fn addresses(ranges: &Ranges) -> Vec<(u128, u128)> {
    let v4 = ranges
        .v4
        .first()
        .zip(ranges.v4.last())
        .map(|(first, last)| (u128::from(u32::from(first.0)), u128::from(u32::from(last.1))));
    let v6 = ranges.v6.first().zip(ranges.v6.last()).map(|(first, last)| {
        let upper = |address: std::net::Ipv6Addr| (u128::from(address) >> 32) + (1 << 32);
        (upper(first.0), upper(last.1))
    });
    v4.into_iter().chain(v6).collect()
}

/// By protocol and destination port; those of any protocol lie above.
fn services(list: &[Service]) -> Vec<(u128, u128)> {
    let mut all: Vec<(u128, u128)> = list
        .iter()
        .map(|service| {
            let at = |port: u16| u128::from(service.protocol.map_or(256, u32::from)) << 16 | u128::from(port);
            (at(service.destination_port.0), at(service.destination_port.1))
        })
        .collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn near_rules_share_a_chunk_and_keep_their_order() {
        let host = |n: u32| {
            let address = Ipv4Addr::from(n);
            Some(Ranges { v4: vec![(address, address)], v6: vec![] })
        };
        // Rules jump between four sites of 512 hosts.
        let wanted =
            |n: u32| Wanted { source: host(n % 4 * 0x10000 + n / 4), destination: None, services: None };
        let rules: Vec<Wanted> = (0..2048).map(wanted).collect();
        let order = order(&rules);
        for (n, chunk) in order.chunks(CLASS_CHUNK_RULES).enumerate() {
            let expected: Vec<u32> = (0..512).map(|host| host * 4 + n as u32).collect();
            assert_eq!(chunk, expected);
        }
    }

    #[test]
    fn one_chunk_stays_as_it_is() {
        let any = Wanted { source: None, destination: None, services: None };
        assert!(order(&vec![any.clone(); CLASS_CHUNK_RULES]).is_empty());
        assert!(order(&vec![any; CLASS_CHUNK_RULES + 1]).is_empty(), "and so do rules that are all alike");
    }
}
