//! How deep late packets came, for the channels that had any: most have none, and their memory costs nothing.

use super::state::NONE;
use crate::summary::{DEPTH_EDGES, DEPTHS, Reorder};

#[derive(Clone, Copy, Debug, Default)]
struct Depths {
    counts: [u32; DEPTHS],
    most: u32,
}

#[derive(Debug, Default)]
pub struct Lateness {
    slots: Vec<Depths>,
    free: Vec<u32>,
}

impl Lateness {
    /// Enters a late packet's depth into the histogram at `slot`, which [`NONE`] makes; returns where it is.
    pub fn add(&mut self, slot: u32, depth: u64) -> u32 {
        let slot = if slot == NONE { self.take() } else { slot };
        let depths = &mut self.slots[slot as usize];
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        let count = &mut depths.counts[DEPTH_EDGES.partition_point(|edge| *edge < depth)];
        *count = count.saturating_add(1);
        depths.most = depths.most.max(depth);
        slot
    }

    pub fn reorder(&self, slot: u32) -> Reorder {
        let depths = self.slots.get(slot as usize).copied().unwrap_or_default();
        Reorder::of(depths.counts.map(u64::from), depths.most)
    }

    /// Gives the histogram of a channel that goes away to another one.
    pub fn release(&mut self, slot: u32) {
        if slot != NONE {
            self.slots[slot as usize] = Depths::default();
            self.free.push(slot);
        }
    }

    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Depths::default());
            self.slots.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replay_windows_are_bucket_edges() {
        let mut late = Lateness::default();
        let slot =
            [1, 31, 32, 63, 64, 511, 512, 9999].into_iter().fold(NONE, |slot, depth| late.add(slot, depth));
        assert_eq!((late.reorder(slot).would_drop, late.reorder(slot).max_depth), ([8, 6, 4, 2], 9999));
        assert_eq!(late.reorder(NONE), Reorder::default());
    }

    #[test]
    fn a_place_is_used_again_and_empty() {
        let mut late = Lateness::default();
        let (one, other) = (late.add(NONE, 5), late.add(NONE, 6));
        late.release(one);
        assert_eq!(late.add(NONE, 9), one);
        assert_eq!((late.reorder(one).max_depth, late.reorder(one).would_drop[0]), (9, 1));
        assert_ne!(one, other);
    }
}
