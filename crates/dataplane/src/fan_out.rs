//! Fan-out while it runs: the table of positions is replaced while packets use it, and counters are read.

use std::mem::offset_of;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use sluice_abi::tables::{FanOutListener, Table};
use sluice_abi::{
    FANOUT_LINE_POSITIONS, FanoutLine, FanoutListener, FanoutListenerCounters, FanoutReceiverCounters,
};

use crate::Dataplane;
use crate::counters::sum;
use crate::error::{Error, Result};
use crate::generation::Generation;

impl Dataplane {
    /// Gives a listener of a loaded generation another table of positions (indexes of its receivers). No packet sees a mix
    /// of both: the one that is not in use is filled, and one store changes over.
    ///
    /// It does not wait for the generation that is being loaded beside it. So the one it is for must be the last that
    /// was switched to; then no load fills its slot.
    pub fn write_fan_out_positions(
        &self,
        generation: &Generation,
        listener: &FanOutListener,
        positions: &[u16],
    ) -> Result<()> {
        let _guard = self.positions_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = generation.tables();
        if !tables.is_there() {
            return Err(Error::Replaced { generation: generation.number() });
        }
        let slot = listener.slot as u32;
        let word = tables.long(Table::FanoutListeners, slot, offset_of!(FanoutListener, table));
        let used = (word.load(Ordering::Relaxed) >> 32) as u32;
        let first =
            if used == listener.first_line { used + listener.bank_lines } else { listener.first_line };
        // whoever still walks the table that was given up before
        self.grace()?;
        for (number, part) in (first..).zip(positions.chunks(FANOUT_LINE_POSITIONS)) {
            let mut line = FanoutLine::default();
            for (receiver, position) in line.receiver.iter_mut().zip(part) {
                *receiver = listener.first_receiver as u16 + position;
            }
            tables.write(Table::FanoutLines, number, &line);
        }
        word.store(u64::from(first) << 32 | positions.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Counters of a listener, by the index of its entry.
    pub fn fan_out_listener(&self, index: u32) -> Result<FanoutListenerCounters> {
        sum(self.state.map("fanout_listener_counters"), index)
    }

    /// Counters of a receiver, by the index of its entry.
    pub fn fan_out_receiver(&self, index: u32) -> Result<FanoutReceiverCounters> {
        sum(self.state.map("fanout_receiver_counters"), index)
    }
}
