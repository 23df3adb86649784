//! The index of grants through its mapping (layout: bpf/abi/gate.h). This process alone writes it, under the lock of the
//! book; programs read it at any time, so nothing is published before it is complete and no key ever moves.

use std::collections::HashSet;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use sluice_abi::{FLOW_BUCKET_SLOTS, FLOW_LANES, FlowBucket, GRANT_PROBES, grant_bucket, grant_what};

use super::GrantKey;
use crate::error::Result;
use crate::mmap::Array;
use crate::records::{address_words, mapped};
use crate::state::State;

#[derive(Debug)]
pub(super) struct Index {
    buckets: Array<FlowBucket>,
    seed: u64,
}

impl Index {
    pub fn open(state: &State, seed: u64) -> Result<Index> {
        Ok(Index { buckets: mapped(state, "grant_index")?, seed })
    }

    fn mask(&self) -> u32 {
        self.buckets.len() - 1
    }

    fn bucket(&self, key: &GrantKey) -> (u32, u16) {
        let (family, be_addr) = address_words(key.source);
        let what = grant_what(key.service, family as u8, key.length);
        grant_bucket(self.seed, be_addr, what, self.mask())
    }

    /// Buckets that a key may stand in, in order.
    fn probes(&self, first: u32) -> impl Iterator<Item = u32> + use<> {
        let mask = self.mask();
        (0..GRANT_PROBES.min(mask + 1)).map(move |step| (first + step) & mask)
    }

    fn add_overflow(&self, buckets: impl Iterator<Item = u32>, change: i32) {
        for bucket in buckets {
            let word = self.buckets.word(bucket, offset_of!(FlowBucket, overflow));
            word.store(word.load(Ordering::Relaxed).wrapping_add_signed(change), Ordering::Release);
        }
    }

    fn handle(&self, bucket: u32, slot: usize) -> &std::sync::atomic::AtomicU32 {
        self.buckets.word(bucket, offset_of!(FlowBucket, lines) + 4 * slot)
    }

    fn tag(&self, bucket: u32, slot: usize) -> &std::sync::atomic::AtomicU16 {
        self.buckets.half(bucket, offset_of!(FlowBucket, tags) + 2 * FLOW_LANES[slot])
    }

    fn slot_of(&self, bucket: u32, handle: u32) -> Option<usize> {
        (0..FLOW_BUCKET_SLOTS).find(|slot| self.handle(bucket, *slot).load(Ordering::Relaxed) == handle)
    }

    /// False if no bucket that the key may stand in has room. The key must not be there yet.
    pub fn insert(&self, key: &GrantKey, handle: u32) -> bool {
        let (first, tag) = self.bucket(key);
        let free = self
            .probes(first)
            .zip(0..)
            .find_map(|(bucket, step)| self.slot_of(bucket, 0).map(|slot| (bucket, slot, step)));
        let Some((bucket, slot, step)) = free else { return false };
        self.add_overflow(self.probes(first).take(step), 1);
        self.handle(bucket, slot).store(handle, Ordering::Release);
        self.tag(bucket, slot).store(tag, Ordering::Release);
        true
    }

    /// Takes a key out that leads to this handle; one that is not there is no matter.
    pub fn remove(&self, key: &GrantKey, handle: u32) {
        let (first, _) = self.bucket(key);
        let found = self
            .probes(first)
            .zip(0..)
            .find_map(|(bucket, step)| self.slot_of(bucket, handle).map(|slot| (bucket, slot, step)));
        if let Some((bucket, slot, step)) = found {
            self.clear(bucket, slot);
            self.add_overflow(self.probes(first).take(step), -1);
        }
    }

    fn clear(&self, bucket: u32, slot: usize) {
        self.tag(bucket, slot).store(0, Ordering::Release);
        self.handle(bucket, slot).store(0, Ordering::Release);
    }

    /// Puts right what a crash has left half done, under traffic: keys that lead to nothing go, and `overflow` becomes
    /// what it must be. Returns the keys that stay.
    pub fn repair(&self, key_of_handle: impl Fn(u32) -> Option<GrantKey>) -> HashSet<GrantKey> {
        let mut found = HashSet::new();
        let mut overflow = vec![0u32; self.buckets.len() as usize];
        for bucket in 0..self.buckets.len() {
            for slot in 0..FLOW_BUCKET_SLOTS {
                let handle = self.handle(bucket, slot).load(Ordering::Relaxed);
                let tag = self.tag(bucket, slot).load(Ordering::Relaxed);
                if (handle, tag) == (0, 0) {
                    continue;
                }
                let key = key_of_handle(handle).filter(|key| {
                    let (first, wanted) = self.bucket(key);
                    tag == wanted && self.probes(first).any(|probe| probe == bucket) && !found.contains(key)
                });
                let Some(key) = key else {
                    self.clear(bucket, slot);
                    continue;
                };
                let (first, _) = self.bucket(&key);
                let passed = self.probes(first).take_while(|probe| *probe != bucket);
                passed.for_each(|probe| overflow[probe as usize] += 1);
                found.insert(key);
            }
        }
        for (bucket, count) in (0..).zip(overflow) {
            self.buckets.word(bucket, offset_of!(FlowBucket, overflow)).store(count, Ordering::Release);
        }
        found
    }
}
