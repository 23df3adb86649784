//! Open gaps: ranges of numbers that have not come, and when they were skipped.
//!
//! All channels share one pool of fixed size. Each channel's gaps form a list by falling number, all gaps together one by
//! age. When the pool or a channel's share is full the oldest is forgotten: its loss is final then.

use crate::summary::Gap;

use super::state::{Cold, NONE};

/// Gaps remembered for one channel.
const PER_CHANNEL: u16 = 256;

#[derive(Clone, Debug)]
struct Entry {
    first: u64,
    last: u64,
    before_ns: u64,
    after_ns: u64,
    frame: u64,
    owner: u32,
    /// Within the channel: the next lower and next higher gap.
    lower: u32,
    higher: u32,
    /// Among all: the next older and next younger.
    older: u32,
    younger: u32,
    reported: bool,
}

/// The circumstances under which numbers were skipped.
#[derive(Clone, Copy, Debug)]
pub struct Skipped {
    pub first: u64,
    pub last: u64,
    pub before_ns: u64,
    pub after_ns: u64,
    pub frame: u64,
}

/// A gap to be reported, with the channel's index; numbers are extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub owner: u32,
    /// The first report of these losses, not a correction.
    pub fresh: bool,
    pub gap: Gap,
}

#[derive(Debug)]
pub struct Gaps {
    entries: Vec<Entry>,
    free: Vec<u32>,
    limit: usize,
    oldest: u32,
    youngest: u32,
    /// The oldest gap that has not been reported, and everything younger.
    unreported: u32,
    /// Gaps that became final or changed after that.
    pub reports: Vec<Report>,
    /// How many more there are in all channels since somebody asked.
    pub change: i64,
}

impl Gaps {
    pub fn new(limit: usize) -> Self {
        Gaps {
            entries: Vec::new(),
            free: Vec::new(),
            limit: limit.max(16),
            oldest: NONE,
            youngest: NONE,
            unreported: NONE,
            reports: Vec::new(),
            change: 0,
        }
    }

    /// Opens a gap above all others of the channel. `colds` are all channels, `owner` is the index of this one.
    pub fn open(&mut self, colds: &mut [Cold], owner: u32, skipped: Skipped) {
        self.make_room(colds, owner);
        let index = self.insert(owner, skipped);
        self.link_age_youngest(index);
        let cold = &mut colds[owner as usize];
        self.link_between(cold, index, cold.gap_head, NONE);
        cold.gaps += 1;
        self.change += 1;
    }

    /// Opens a gap below all others of the channel: its sequence turned out to begin lower.
    pub fn open_lowest(&mut self, colds: &mut [Cold], owner: u32, skipped: Skipped) {
        self.make_room(colds, owner);
        let index = self.insert(owner, skipped);
        self.link_age_youngest(index);
        let cold = &mut colds[owner as usize];
        self.link_between(cold, index, NONE, cold.gap_tail);
        cold.gaps += 1;
        self.change += 1;
    }

    /// Takes `number` out of the gap that holds it; false when none does.
    pub fn fill(&mut self, colds: &mut [Cold], owner: u32, number: u64) -> bool {
        let mut index = colds[owner as usize].gap_head;
        while index != NONE && self.entries[index as usize].first > number {
            index = self.entries[index as usize].lower;
        }
        if index == NONE || self.entries[index as usize].last < number {
            return false;
        }
        let (first, last) = (self.entries[index as usize].first, self.entries[index as usize].last);
        match (number == first, number == last) {
            (true, true) => {
                self.report_if_known(index, first, 0);
                self.remove(&mut colds[owner as usize], index);
                colds[owner as usize].gaps -= 1;
                self.change -= 1;
            }
            (true, false) => {
                self.report_if_known(index, first, 0);
                self.entries[index as usize].first = number + 1;
                self.report_again(index);
            }
            (false, true) => {
                self.entries[index as usize].last = number - 1;
                self.report_again(index);
            }
            (false, false) => self.split(colds, index, number),
        }
        true
    }

    /// Reports every gap opened before `until_ns`.
    pub fn settle(&mut self, until_ns: u64) {
        while self.unreported != NONE && self.entries[self.unreported as usize].after_ns <= until_ns {
            let index = self.unreported;
            self.unreported = self.entries[index as usize].younger;
            self.report_first(index);
        }
    }

    /// Forgets all gaps of a channel; they stay lost.
    pub fn release(&mut self, cold: &mut Cold) {
        while cold.gap_tail != NONE {
            self.forget(cold, cold.gap_tail);
        }
    }

    /// Forgets all gaps of a channel and takes back what was reported of them: they were none.
    pub fn withdraw(&mut self, cold: &mut Cold) {
        while cold.gap_tail != NONE {
            let index = cold.gap_tail;
            self.report_if_known(index, self.entries[index as usize].first, 0);
            self.remove(cold, index);
        }
    }

    /// `number` came from the middle: what is above it becomes a gap of its own, of the same age.
    fn split(&mut self, colds: &mut [Cold], index: u32, number: u64) {
        let Entry { owner, last, before_ns, after_ns, frame, reported, .. } =
            self.entries[index as usize].clone();
        self.entries[index as usize].last = number - 1;
        self.report_again(index);
        let upper = self.insert(owner, Skipped { first: number + 1, last, before_ns, after_ns, frame });
        self.entries[upper as usize].reported = reported;
        self.link_age_after(upper, index);
        let cold = &mut colds[owner as usize];
        let higher = self.entries[index as usize].higher;
        self.link_between(cold, upper, index, higher);
        cold.gaps += 1;
        self.change += 1;
        self.report_again(upper);
        // A split may exceed the limits by one; the next opening makes room.
    }

    fn make_room(&mut self, colds: &mut [Cold], owner: u32) {
        if colds[owner as usize].gap_entries >= PER_CHANNEL {
            let tail = colds[owner as usize].gap_tail;
            self.forget(&mut colds[owner as usize], tail);
        }
        while self.entries.len() - self.free.len() >= self.limit {
            let oldest = self.oldest;
            let cold = &mut colds[self.entries[oldest as usize].owner as usize];
            self.forget(cold, oldest);
        }
    }

    fn forget(&mut self, cold: &mut Cold, index: u32) {
        self.report_first(index);
        cold.forgotten = cold.forgotten.max(self.entries[index as usize].last + 1);
        self.remove(cold, index);
    }

    fn report_again(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        self.report_if_known(index, entry.first, entry.last - entry.first + 1);
    }

    fn report_if_known(&mut self, index: u32, first: u64, lost: u64) {
        let Entry { owner, last, before_ns, after_ns, frame, reported, .. } = self.entries[index as usize];
        if reported {
            let gap = Gap { channel: 0, first, last, lost, before_ns, after_ns, frame };
            self.reports.push(Report { owner, fresh: false, gap });
        }
    }

    /// The one report of a gap that says it is new.
    fn report_first(&mut self, index: u32) {
        if !std::mem::replace(&mut self.entries[index as usize].reported, true) {
            self.report_again(index);
            self.reports.last_mut().expect("just pushed").fresh = true;
        }
    }

    fn insert(&mut self, owner: u32, skipped: Skipped) -> u32 {
        let Skipped { first, last, before_ns, after_ns, frame } = skipped;
        let (lower, higher, older, younger) = (NONE, NONE, NONE, NONE);
        let entry = Entry {
            first,
            last,
            before_ns,
            after_ns,
            frame,
            owner,
            lower,
            higher,
            older,
            younger,
            reported: false,
        };
        match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    fn link_between(&mut self, cold: &mut Cold, index: u32, lower: u32, higher: u32) {
        self.entries[index as usize].lower = lower;
        self.entries[index as usize].higher = higher;
        match lower {
            NONE => cold.gap_tail = index,
            _ => self.entries[lower as usize].higher = index,
        }
        match higher {
            NONE => cold.gap_head = index,
            _ => self.entries[higher as usize].lower = index,
        }
        cold.gap_entries += 1;
    }

    fn link_age_youngest(&mut self, index: u32) {
        self.link_age_after(index, self.youngest);
    }

    fn link_age_after(&mut self, index: u32, older: u32) {
        let younger = match older {
            NONE => self.oldest,
            _ => self.entries[older as usize].younger,
        };
        self.entries[index as usize].older = older;
        self.entries[index as usize].younger = younger;
        match older {
            NONE => self.oldest = index,
            _ => self.entries[older as usize].younger = index,
        }
        match younger {
            NONE => self.youngest = index,
            _ => self.entries[younger as usize].older = index,
        }
        if self.unreported == younger && !self.entries[index as usize].reported {
            self.unreported = index;
        }
    }

    fn remove(&mut self, cold: &mut Cold, index: u32) {
        let Entry { lower, higher, older, younger, .. } = self.entries[index as usize];
        match higher {
            NONE => cold.gap_head = lower,
            _ => self.entries[higher as usize].lower = lower,
        }
        match lower {
            NONE => cold.gap_tail = higher,
            _ => self.entries[lower as usize].higher = higher,
        }
        cold.gap_entries -= 1;
        match older {
            NONE => self.oldest = younger,
            _ => self.entries[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            _ => self.entries[younger as usize].older = older,
        }
        if self.unreported == index {
            self.unreported = younger;
        }
        self.free.push(index);
    }
}
