//! The floor once more, in a harness of its own: what another place in memory makes of the same table (A/A).

use anyhow::{Result, ensure};

use crate::bed::Bed;
use crate::harness::{Harness, Hook};
use crate::packets::Direction;

pub struct Again {
    harness: Harness,
    hook: Hook,
}

impl Again {
    /// A table with room for `room` sessions that has the keys of those that the bed's has, and a ring for `packets`.
    pub fn new(bed: &mut Bed, hook: Hook, room: usize, packets: usize) -> Result<Again> {
        let ring = packets.max(bed.filled).max(1) as u32;
        let harness = bed.harness(hook).twin(room.max(1) as u32, ring)?;
        let mut again = Again { harness, hook };
        let filled = bed.filled;
        if filled > 0 {
            let sample = again.instead(bed, |bed| {
                let insert = bed.harness(hook).floor("insert");
                bed.pass(hook, Some(&insert), 0, 0, filled, Direction::Initiator)
            })?;
            ensure!(sample == (filled as u64, 0), "the floor took {sample:?} of {filled} sessions again");
        }
        Ok(again)
    }

    /// Does something with this harness in the place of the bed's.
    pub fn instead<T>(&mut self, bed: &mut Bed, work: impl FnOnce(&mut Bed) -> Result<T>) -> Result<T> {
        std::mem::swap(bed.harness(self.hook), &mut self.harness);
        let done = work(bed);
        std::mem::swap(bed.harness(self.hook), &mut self.harness);
        done
    }

    /// The same where the turn is the second floor's, and with the bed's own harness otherwise.
    pub fn in_turn<T>(
        &mut self,
        bed: &mut Bed,
        is_again: bool,
        work: impl FnOnce(&mut Bed) -> Result<T>,
    ) -> Result<T> {
        if is_again { self.instead(bed, work) } else { work(bed) }
    }
}
