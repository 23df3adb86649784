//! The hash of flow keys, as `bpf/lib/flow_hash.h` computes it, and what it says about where a key stands.

use zerocopy::IntoBytes;

use crate::{FLOW_BUCKET_SLOTS, FlowKey4, FlowKey6};

/// Lane of a slot's tag; see flow_index.h.
pub const FLOW_LANES: [usize; FLOW_BUCKET_SLOTS] = [4, 0, 5, 6, 1, 3, 7, 2];

/// Where a key may stand in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    pub first: u32,
    pub second: u32,
    pub tag: u16,
}

impl Places {
    fn of(hash: u64, bucket_mask: u32) -> Self {
        let tag = (hash as u16).max(1);
        Places { first: (hash >> 32) as u32 & bucket_mask, second: (hash >> 8) as u32 & bucket_mask, tag }
    }
}

pub fn places4(seed: u64, key: &FlowKey4, bucket_mask: u32) -> Places {
    let [a, b] = words(key.as_bytes());
    Places::of(last(mix(mix(seed, a), b)), bucket_mask)
}

pub fn places6(seed: u64, key: &FlowKey6, bucket_mask: u32) -> Places {
    let [a, b, c, d, e] = words(key.as_bytes());
    let left = mix(mix(seed, a), b);
    let right = mix(mix(seed.wrapping_add(0x632b_e59b_d9b4_e019), c), d);
    Places::of(last(mix(left ^ right.rotate_left(1), e)), bucket_mask)
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|word| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * word + byte])))
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 32
}

fn last(hash: u64) -> u64 {
    let hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^ hash >> 29
}
