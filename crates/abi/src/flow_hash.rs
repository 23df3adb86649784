//! The hash of flow keys, as `bpf/lib/flow_hash.h` computes it, and what it says about where a key stands.

use zerocopy::IntoBytes;

use crate::{FLOW_BUCKET_SLOTS, FlowKey4, FlowKey6};

/// Lane of a slot's tag; see flow_index.h.
pub const FLOW_LANES: [usize; FLOW_BUCKET_SLOTS] = [4, 0, 5, 6, 1, 3, 7, 2];

/// Where a key may stand in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketPair {
    /// Number of the bucket that is tried first.
    pub first: u32,
    /// Number of the other one.
    pub second: u32,
    /// 16 bits of the hash that stand in the bucket; never 0.
    pub tag: u16,
}

impl BucketPair {
    fn of(hash: u64, bucket_mask: u32) -> Self {
        let tag = (hash as u16).max(1);
        BucketPair {
            first: (hash >> 40) as u32 & bucket_mask,
            second: (hash >> 16) as u32 & bucket_mask,
            tag,
        }
    }
}

const LEFT: u64 = 0x9e37_79b9_7f4a_7c15;
const RIGHT: u64 = 0xd6e8_feb8_6659_fd93;
const LAST: u64 = 0xbf58_476d_1ce4_e5b9;

/// Of an IPv4 key; `bucket_mask` is the number of buckets less one.
pub fn bucket_pair4(seed: u64, key: &FlowKey4, bucket_mask: u32) -> BucketPair {
    BucketPair::of(hash4(seed, key), bucket_mask)
}

/// Of an IPv6 key; `bucket_mask` is the number of buckets less one.
pub fn bucket_pair6(seed: u64, key: &FlowKey6, bucket_mask: u32) -> BucketPair {
    BucketPair::of(hash6(seed, key), bucket_mask)
}

/// First bucket and tag of a grant's key: address as it stands in records, and [`crate::grant_what`].
pub fn grant_bucket(seed: u64, be_addr: [u32; 4], what: u32, bucket_mask: u32) -> (u32, u16) {
    let place = BucketPair::of(grant_hash(seed, be_addr, what), bucket_mask);
    (place.first, place.tag)
}

/// Word of a host in `grant_sources`, and its two bits there.
pub fn grant_source(seed: u64, be_addr: [u32; 4], family: u8, source_mask: u32) -> (u32, [u32; 2]) {
    let hash = grant_hash(seed, be_addr, crate::grant_what(0, family, 0));
    ((hash >> 40) as u32 & source_mask, [hash as u32 & 63, (hash >> 6) as u32 & 63])
}

fn grant_hash(seed: u64, be_addr: [u32; 4], what: u32) -> u64 {
    let [left, right] = words(be_addr.as_bytes());
    let mut hash = mix(seed, left, LEFT);
    if what >> 16 & 0xff == 6 {
        hash = mix(hash, right, LEFT);
    }
    last(hash ^ u64::from(what).wrapping_mul(RIGHT))
}

fn hash4(seed: u64, key: &FlowKey4) -> u64 {
    let [a, b] = words(key.as_bytes());
    last(mix(mix(seed, a, LEFT), b, LEFT))
}

fn hash6(seed: u64, key: &FlowKey6) -> u64 {
    let [a, b, c, d, e] = words(key.as_bytes());
    let left = mix(mix(seed, a, LEFT), b, LEFT);
    let right = mix(mix(seed, c, RIGHT), d, RIGHT);
    last(mix(left ^ right.rotate_left(1), e, LEFT))
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|word| u64::from_be_bytes(std::array::from_fn(|byte| bytes[8 * word + byte])))
}

fn mix(hash: u64, word: u64, factor: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(factor);
    hash ^ hash >> 32
}

fn last(hash: u64) -> u64 {
    let hash = hash.wrapping_mul(LAST);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SEED: u64 = 0x1234_5678_9abc_def1;
    const BUCKETS: usize = 1 << 15;

    /// Neighbouring hosts on both sides and neighbouring ports: what real networks have, and what weak mixes fold.
    fn grid() -> impl Iterator<Item = (u32, u32, u16)> {
        (0..131_072u32).map(|i| (i % 64, i / 64 % 64, (1024 + i / 4096) as u16))
    }

    fn check(places: impl Iterator<Item = (u64, BucketPair)>) {
        let (mut hashes, mut fill, mut tagged) = (HashSet::new(), vec![0u32; BUCKETS], HashSet::new());
        let mut count = 0;
        for (hash, place) in places {
            hashes.insert(hash);
            fill[place.first as usize] += 1;
            tagged.insert((place.first, place.tag));
            count += 1;
        }
        assert_eq!(hashes.len(), count, "no two keys have one hash");
        // Poisson with mean 4: 1,100 keys do not fit into eight slots, and 4 pairs share bucket and tag
        let over: u32 = fill.iter().map(|n| n.saturating_sub(FLOW_BUCKET_SLOTS as u32)).sum();
        assert!((900..1300).contains(&over), "{over} keys overflow");
        assert!(count - tagged.len() < 20, "{} keys share bucket and tag", count - tagged.len());
    }

    #[test]
    fn neighbours_spread_over_ipv4_buckets() {
        check(grid().map(|(client, server, port)| {
            let be_saddr = (0x0a00_0000 + client).to_be();
            let be_daddr = (0x0a80_0000 + server).to_be();
            let key =
                FlowKey4 { be_saddr, be_daddr, be_sport: port.to_be(), proto: 17, ..Default::default() };
            (hash4(SEED, &key), bucket_pair4(SEED, &key, BUCKETS as u32 - 1))
        }));
    }

    #[test]
    fn neighbours_spread_over_buckets_of_grants() {
        for family in [4, 6] {
            check((0..131_072u32).map(|i| {
                let host = (0x0a00_0000 + i % 32_768).to_be();
                let be_addr = if family == 4 { [host, 0, 0, 0] } else { [0xfd_u32.to_be(), 0, 0, host] };
                let what =
                    crate::grant_what(1 + (i / 32_768) as u16, family, if family == 4 { 32 } else { 128 });
                let (first, tag) = grant_bucket(SEED, be_addr, what, BUCKETS as u32 - 1);
                (grant_hash(SEED, be_addr, what), BucketPair { first, second: 0, tag })
            }));
        }
    }

    #[test]
    fn neighbours_spread_over_ipv6_buckets() {
        check(grid().map(|(client, server, port)| {
            let address = |net: u32, host: u32| [(0xfd00_0000 + net).to_be(), 0, 0, host.to_be()];
            let (be_saddr, be_daddr) = (address(1, client), address(2, server));
            let key =
                FlowKey6 { be_saddr, be_daddr, be_sport: port.to_be(), proto: 17, ..Default::default() };
            (hash6(SEED, &key), bucket_pair6(SEED, &key, BUCKETS as u32 - 1))
        }));
    }
}
