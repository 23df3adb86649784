//! One table of lines: where a key stands, see bpf/abi/gtpu.h. Programs read it meanwhile, so a line is complete before its key is there.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use sluice_abi::{GTPU_REACH, GtpuLine, gtpu_slot};

use crate::gtpu_room::{shift_of, slots_of};
use crate::mmap::Array;

/// The block of a line's flows; 0 = none.
pub(super) fn block_of(line: &GtpuLine) -> u32 {
    let [low, middle, high] = line.flows;
    u32::from_le_bytes([low, middle, high, 0])
}

pub(super) fn with_block(line: GtpuLine, block: u32) -> GtpuLine {
    let [low, middle, high, _] = block.to_le_bytes();
    GtpuLine { flows: [low, middle, high], ..line }
}

/// What a line is found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Teid(u32),
    /// As it stands in packets.
    Address(u32),
    Prefix(u64),
}

impl Key {
    fn number(self) -> u64 {
        match self {
            Key::Teid(teid) => teid.into(),
            Key::Address(be_addr) => be_addr.into(),
            Key::Prefix(be_prefix) => be_prefix,
        }
    }

    fn is_of(self, line: &GtpuLine) -> bool {
        match self {
            Key::Teid(teid) => line.teid == teid,
            Key::Address(be_addr) => line.be_addr4 == be_addr && line.be_prefix6 == 0,
            Key::Prefix(be_prefix) => line.be_prefix6 == be_prefix,
        }
    }
}

/// Lines of one direction.
#[derive(Debug)]
pub(super) struct Lines {
    array: Array<GtpuLine>,
    shift: u32,
    /// By TEID; else by address.
    uplink: bool,
}

impl Lines {
    /// By address.
    pub fn of(array: Array<GtpuLine>) -> Lines {
        Lines { shift: shift_of(slots_of(array.len())), array, uplink: false }
    }

    pub fn by_teid(self) -> Lines {
        Lines { uplink: true, ..self }
    }

    /// Places, the last ones of which are nobody's slot.
    pub fn places(&self) -> u32 {
        self.array.len()
    }

    /// A copy, if a line stands there.
    pub fn get(&self, place: u32) -> Option<GtpuLine> {
        let line = (place < self.array.len()).then(|| self.array.read(place))?;
        self.key(&line).map(|_| line)
    }

    fn key(&self, line: &GtpuLine) -> Option<Key> {
        let key = match () {
            () if self.uplink => Key::Teid(line.teid),
            () if line.be_prefix6 != 0 => Key::Prefix(line.be_prefix6),
            () => Key::Address(line.be_addr4),
        };
        (key.number() != 0).then_some(key)
    }

    fn reach(&self, slot: u32) -> u32 {
        self.array.byte(slot, offset_of!(GtpuLine, reach)).load(Ordering::Relaxed).into()
    }

    fn set_reach(&self, slot: u32, reach: u32) {
        self.array.byte(slot, offset_of!(GtpuLine, reach)).store(reach as u8, Ordering::Release);
    }

    pub fn find(&self, key: Key) -> Option<u32> {
        let slot = gtpu_slot(key.number(), self.shift);
        (slot..=slot + self.reach(slot)).find(|place| key.is_of(&self.array.read(*place)))
    }

    /// Where a line with this key may be put.
    pub fn vacant(&self, key: Key) -> Option<u32> {
        self.vacant_but(key, &[])
    }

    /// The same, but for places that others of its session will have.
    pub fn vacant_but(&self, key: Key, taken: &[u32]) -> Option<u32> {
        let slot = gtpu_slot(key.number(), self.shift);
        (slot..slot + GTPU_REACH).find(|place| !taken.contains(place) && self.get(*place).is_none())
    }

    /// Puts a line where there is none: its key last, once its slot reaches for it.
    pub fn insert(&self, place: u32, line: GtpuLine) {
        let Some(key) = self.key(&line) else { return };
        let slot = gtpu_slot(key.number(), self.shift);
        self.set_reach(slot, self.reach(slot).max(place - slot));
        let bare = match key {
            Key::Teid(_) => GtpuLine { teid: 0, ..line },
            Key::Address(_) => GtpuLine { be_addr4: 0, ..line },
            Key::Prefix(_) => GtpuLine { be_prefix6: 0, ..line },
        };
        self.array.write(place, GtpuLine { reach: self.reach(place) as u8, ..bare });
        match key {
            Key::Teid(teid) => {
                self.array.word(place, offset_of!(GtpuLine, teid)).store(teid, Ordering::Release)
            }
            Key::Address(address) => {
                self.array.word(place, offset_of!(GtpuLine, be_addr4)).store(address, Ordering::Release);
            }
            Key::Prefix(prefix) => {
                self.array.long(place, offset_of!(GtpuLine, be_prefix6)).store(prefix, Ordering::Release);
            }
        }
    }

    /// What becomes of its packets from here on. A packet that meets rules with flows finds a block, the old or the new one.
    pub fn decide(&self, place: u32, decision: u64, block: u32, quota: u64) {
        let put = |block: u32| {
            let word = block << 8 | self.reach(place);
            self.array.word(place, offset_of!(GtpuLine, reach)).store(word, Ordering::Release);
        };
        self.array.long(place, offset_of!(GtpuLine, quota)).store(quota, Ordering::Release);
        if block != 0 {
            put(block);
        }
        self.array.long(place, offset_of!(GtpuLine, decision)).store(decision, Ordering::Release);
        if block == 0 {
            put(block);
        }
    }

    /// What is expected at one rate says nothing of another.
    pub fn forget_arrival(&self, place: u32) {
        self.array.long(place, offset_of!(GtpuLine, arrival)).store(0, Ordering::Release);
    }

    /// No packet passes from here on; what programs that run now still count is there after a grace period.
    pub fn close(&self, place: u32) {
        self.array.long(place, offset_of!(GtpuLine, decision)).store(0, Ordering::Release);
    }

    /// Packets pass again, as the line said.
    pub fn reopen(&self, place: u32, line: &GtpuLine) {
        self.array.long(place, offset_of!(GtpuLine, decision)).store(line.decision, Ordering::Release);
    }

    /// Takes a line away, and what its slot reaches for no more.
    pub fn remove(&self, place: u32) {
        let Some(key) = self.get(place).and_then(|line| self.key(&line)) else { return };
        let slot = gtpu_slot(key.number(), self.shift);
        let (keys, prefix) = (offset_of!(GtpuLine, teid), offset_of!(GtpuLine, be_prefix6));
        // TEID and address are one word
        self.array.long(place, keys).store(0, Ordering::Release);
        self.array.long(place, prefix).store(0, Ordering::Release);
        let reach = (slot..=slot + self.reach(slot)).rev().find(|place| {
            let own = self.get(*place).and_then(|line| self.key(&line));
            own.is_some_and(|key| gtpu_slot(key.number(), self.shift) == slot)
        });
        self.set_reach(slot, reach.map_or(0, |last| last - slot));
    }

    #[cfg(test)]
    pub fn write_arrival(&self, place: u32, arrival: u64) {
        self.array.long(place, offset_of!(GtpuLine, arrival)).store(arrival, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub fn write_usage(&self, place: u32, bytes: u64, packets: u64) {
        self.array.long(place, offset_of!(GtpuLine, bytes)).store(bytes, Ordering::Relaxed);
        self.array.long(place, offset_of!(GtpuLine, packets)).store(packets, Ordering::Relaxed);
    }
}
