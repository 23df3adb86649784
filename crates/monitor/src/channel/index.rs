//! From a key to the number of its channel: open addressing with linear probing, 8 bytes a slot.

use super::memory::prefetch;

/// Grows beyond this share of used slots, in eighths.
const FULL_EIGHTHS: usize = 5;

/// A slot is `hash << 32 | number + 1`; 0 is empty. The low bits of the hash choose the slot, the whole tells apart.
#[derive(Debug)]
pub struct Index {
    slots: Vec<u64>,
    used: usize,
}

impl Index {
    pub fn new() -> Self {
        Index { slots: vec![0; 1 << 12], used: 0 }
    }

    #[inline(always)]
    pub fn prefetch(&self, hash: u32) {
        prefetch(&self.slots[self.home(hash)]);
    }

    /// The first channel with this hash for which `is_it` holds.
    #[inline]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at & mask];
            if slot == 0 {
                return None;
            }
            let number = (slot as u32).wrapping_sub(1);
            if (slot >> 32) as u32 == hash && is_it(number) {
                return Some(number);
            }
            at += 1;
        }
    }

    /// Adds a channel that is not in the index.
    pub fn insert(&mut self, hash: u32, number: u32) {
        if (self.used + 1) * 8 > self.slots.len() * FULL_EIGHTHS {
            self.grow();
        }
        self.put((u64::from(hash) << 32) | u64::from(number + 1));
        self.used += 1;
    }

    /// Replaces the number stored for `old` under this hash.
    pub fn replace(&mut self, hash: u32, old: u32, new: u32) {
        if let Some(at) = self.position(hash, old) {
            self.slots[at] = (u64::from(hash) << 32) | u64::from(new + 1);
        }
    }

    /// Removes a channel. Slots behind it move up, so that no search stops too early.
    pub fn remove(&mut self, hash: u32, number: u32) {
        let Some(mut hole) = self.position(hash, number) else { return };
        let mask = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            // A slot may move into the hole when its home is not between the hole and itself.
            let home = self.home((slot >> 32) as u32);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        self.used -= 1;
    }

    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn position(&self, hash: u32, number: u32) -> Option<usize> {
        let (mask, wanted) = (self.slots.len() - 1, (u64::from(hash) << 32) | u64::from(number + 1));
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            if self.slots[at] == wanted {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn put(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = self.home((slot >> 32) as u32);
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let larger = self.slots.len() * 2;
        let mut slots = super::memory::huge_vec(larger);
        slots.resize(larger, 0);
        for slot in std::mem::replace(&mut self.slots, slots) {
            if slot != 0 {
                self.put(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_agrees_with_a_map_through_growth_and_removal() {
        let (mut index, mut model) = (Index::new(), HashMap::new());
        let mut random = 1u64;
        for step in 0..60_000u32 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Few distinct hashes, so that long probe sequences wrap and share slots.
            let hash = (random >> 33) as u32 % 9000 * 4096 / 3;
            if random >> 60 < 5 {
                if let Some(number) = model.remove(&hash) {
                    index.remove(hash, number);
                }
            } else if let std::collections::hash_map::Entry::Vacant(entry) = model.entry(hash) {
                entry.insert(step);
                index.insert(hash, step);
            }
            if step % 5000 == 0 {
                for (hash, number) in &model {
                    assert_eq!(index.find(*hash, |found| found == *number), Some(*number));
                }
            }
        }
        assert!(model.len() > 4096, "the test must reach growth");
        assert_eq!(index.used, model.len());
        assert_eq!(index.find(7, |_| true), None);
    }
}
