//! Flows of sessions: sets of filters, which rules name, and a block of state for each session whose rules name one.

use std::collections::VecDeque;
use std::time::Instant;

use libbpf_rs::MapCore;
use sluice_abi::{
    GTPU_BLOCK_KINDS, GtpuFilters, GtpuFlow, GtpuRules, gtpu_block, gtpu_block_flow, gtpu_block_room,
};
use zerocopy::IntoBytes;

use super::shared::{REUSED_AFTER, Shared};
use super::{Book, Gtpu, GtpuRefused, mapped};
use crate::error::Result;
use crate::gtpu_room::{FILTERS, FLOWS, LEAST_FLOWS};
use crate::mmap::Array;
use crate::state::State;

/// Bytes of inner IP packets of a flow that passed, by direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowUsage {
    /// Uplink first.
    pub bytes: [u64; 2],
}

/// The maps of it.
#[derive(Debug)]
pub(super) struct Flows {
    pub filters: Array<GtpuFilters>,
    pub states: Array<GtpuFlow>,
}

/// What of them is in use.
#[derive(Debug)]
pub(super) struct FlowBook {
    pub filters: Shared<Box<[u8]>>,
    /// Sets of the configuration in force: sessions may come that name them.
    kept: Vec<u32>,
    /// Two sets that were compared last, and whether they have the same flows: many sessions change alike.
    compared: Option<([u16; 2], bool)>,
    pub blocks: Blocks,
}

impl Default for FlowBook {
    fn default() -> Self {
        FlowBook::new(1, 0)
    }
}

impl FlowBook {
    fn new(filters: u32, flows: u32) -> FlowBook {
        FlowBook {
            filters: Shared::new("set of rules with flows", filters),
            kept: vec![],
            compared: None,
            blocks: Blocks::new(flows),
        }
    }
}

impl Flows {
    /// None as long as no configuration had flows.
    pub fn open(state: &State) -> Result<Option<Flows>> {
        if state.map(FLOWS).max_entries() < LEAST_FLOWS {
            return Ok(None);
        }
        let (filters, states) = (mapped(state.map(FILTERS), FILTERS)?, mapped(state.map(FLOWS), FLOWS)?);
        Ok(Some(Flows { filters, states }))
    }

    pub fn book(&self) -> FlowBook {
        FlowBook::new(self.filters.len(), self.states.len())
    }

    /// How many flows a set has.
    fn count(&self, rules: &GtpuRules) -> u32 {
        match u32::from(rules.filters) {
            0 => 0,
            number if number >= self.filters.len() => 0,
            number => self.filters.read_field::<u64>(number, 0).count_ones(),
        }
    }

    /// What passed of the flows of a line's session.
    pub fn usage(&self, rules: &GtpuRules, block: u32) -> Vec<FlowUsage> {
        let flows = if block == 0 { 0 } else { self.count(rules) };
        let entries = (0..flows).map(|flow| gtpu_block_flow(block, flow));
        let entries = entries.filter(|entry| *entry < self.states.len());
        let usage = |entry| {
            let flow = self.states.read(entry);
            FlowUsage { bytes: [flow.uplink_bytes, flow.downlink_bytes] }
        };
        entries.map(usage).collect()
    }
}

impl Gtpu {
    /// From now on sessions may have rules with these filters: their numbers in order. Those of the last call are gone when
    /// no session's rules name them.
    ///
    /// # Errors
    /// When there is no room for so many; then the old ones stay.
    pub fn keep_filters<'a>(
        &self,
        sets: impl IntoIterator<Item = &'a GtpuFilters>,
    ) -> std::result::Result<Vec<u16>, GtpuRefused> {
        let mut book = self.book();
        let mut kept = vec![];
        for set in sets {
            let taken = self.take_filters(&mut book, set).inspect_err(|_| {
                kept.iter().for_each(|number| self.leave_filters(&mut book, *number));
            })?;
            kept.push(taken);
        }
        let numbers = kept.iter().map(|number| *number as u16).collect();
        for number in std::mem::replace(&mut book.flows.kept, kept) {
            self.leave_filters(&mut book, number);
        }
        Ok(numbers)
    }

    fn take_filters(&self, book: &mut Book, set: &GtpuFilters) -> std::result::Result<u32, GtpuRefused> {
        let flows = self.flows.get().ok_or(GtpuRefused::NoFilters)?;
        let (number, is_new) = book.flows.filters.take(set.as_bytes().into())?;
        if is_new {
            book.share_copies(&set.rules).inspect_err(|_| {
                book.flows.filters.leave(number);
            })?;
            flows.filters.fill(number, 0, set.as_bytes());
            book.flows.compared = None;
        }
        Ok(number)
    }

    /// Whether two sets that are there differ in nothing but by which end here their copies leave.
    pub(super) fn have_same_flows(&self, book: &mut Book, sets: [u16; 2]) -> bool {
        if sets[0] == sets[1] {
            return true;
        }
        if let Some((_, same)) = book.flows.compared.filter(|(compared, _)| *compared == sets) {
            return same;
        }
        let is_there =
            |flows: &&Flows| sets.iter().all(|set| (1..flows.filters.len()).contains(&(*set).into()));
        let Some(flows) = self.flows.get().filter(is_there) else { return false };
        let [before, after] = sets.map(|set| {
            let mut filters: Box<GtpuFilters> = Box::new(flows.filters.read(set.into()));
            filters.rules.iter_mut().for_each(|rules| rules.copy_peer = [0; 2]);
            filters
        });
        let same = before.as_bytes() == after.as_bytes();
        book.flows.compared = Some((sets, same));
        same
    }

    /// A set that rules name, which an earlier process has written.
    pub(super) fn note_filters(&self, book: &mut Book, number: u32) {
        let Some(flows) = self.flows.get().filter(|flows| (1..flows.filters.len()).contains(&number)) else {
            return;
        };
        let set = flows.filters.read(number);
        if book.flows.filters.get(number).is_none() {
            self.note_copies(book, &set.rules);
        }
        book.flows.filters.use_of(number, set.as_bytes().into());
    }

    /// One user less of a set.
    pub(super) fn leave_filters(&self, book: &mut Book, number: u32) {
        if book.flows.filters.leave(number)
            && let Some(flows) = self.flows.get()
        {
            book.leave_copies(&flows.filters.read(number).rules);
        }
    }

    /// A block for a session with these rules, 0 = it needs none. No flow of it has seen a packet.
    pub(super) fn take_block(
        &self,
        book: &mut Book,
        rules: &GtpuRules,
    ) -> std::result::Result<u32, GtpuRefused> {
        let Some(flows) = self.flows.get().filter(|_| rules.filters != 0) else { return Ok(0) };
        let full = GtpuRefused::Full { what: "flow", limit: flows.states.len() };
        let block = book.flows.blocks.take(flows.count(rules)).ok_or(full)?;
        for flow in 0..gtpu_block_room(block) {
            flows.states.write(gtpu_block_flow(block, flow), GtpuFlow::default());
        }
        Ok(block)
    }

    pub(super) fn has_flows(&self) -> bool {
        self.flows.get().is_some()
    }

    /// The maps are there from here on.
    pub(super) fn open_flows(&self, state: &State) -> Result<()> {
        if let Some(flows) = Flows::open(state)? {
            self.book().flows = flows.book();
            self.book().flows.filters.rest_is_free();
            // generations are loaded one after the other
            let _ = self.flows.set(flows);
        }
        Ok(())
    }
}

/// Flows of the smallest block: a bit each.
const LEAST: u32 = 4;
/// Blocks of a kind that a line's 24 bits can tell apart (bpf/abi/gtpu.h).
const NUMBERS: u32 = 1 << 21;
/// Flows of a word of bits.
const IN_WORD: u32 = LEAST * u64::BITS;

/// Which blocks are in use. One of any kind lies within a word.
#[derive(Debug)]
pub(super) struct Blocks {
    words: Vec<u64>,
    /// Where the last one of each kind was found.
    at: [usize; GTPU_BLOCK_KINDS as usize + 1],
    left: VecDeque<(Instant, u32)>,
}

/// The word of a block, and its bits there.
pub(super) fn place(block: u32) -> (usize, u64) {
    let (first, bits) = (gtpu_block_flow(block, 0) / LEAST, gtpu_block_room(block) / LEAST);
    ((first / u64::BITS) as usize, (u64::MAX >> (u64::BITS - bits)) << (first % u64::BITS))
}

impl Blocks {
    pub fn new(flows: u32) -> Blocks {
        Blocks { words: vec![0; (flows / IN_WORD) as usize], at: Default::default(), left: VecDeque::new() }
    }

    /// One that is in use.
    pub fn mark(&mut self, block: u32) {
        if (1..=GTPU_BLOCK_KINDS).contains(&(block & 7)) {
            let (word, bits) = place(block);
            self.words.iter_mut().skip(word).take(1).for_each(|word| *word |= bits);
        }
    }

    /// One that no program has seen.
    pub fn put_back(&mut self, block: u32) {
        if block != 0 {
            let (word, bits) = place(block);
            self.words.iter_mut().skip(word).take(1).for_each(|word| *word &= !bits);
        }
    }

    /// One that programs may still write to.
    pub fn leave(&mut self, block: u32) {
        if block != 0 {
            self.left.push_back((Instant::now(), block));
        }
    }

    /// One with room for so many flows.
    pub fn take(&mut self, flows: u32) -> Option<u32> {
        let kind = (1..GTPU_BLOCK_KINDS).find(|kind| 2 << kind >= flows).unwrap_or(GTPU_BLOCK_KINDS);
        loop {
            while let Some((_, block)) = self.left.pop_front_if(|(since, _)| since.elapsed() >= REUSED_AFTER)
            {
                self.put_back(block);
            }
            // larger ones reach where numbers of the smallest do not
            if let Some(block) = (kind..=GTPU_BLOCK_KINDS).find_map(|kind| self.find(kind)) {
                self.mark(block);
                return Some(block);
            }
            let (since, _) = self.left.front()?;
            // hardly ever waits: all others are in use
            std::thread::sleep(REUSED_AFTER.saturating_sub(since.elapsed()));
        }
    }

    fn find(&mut self, kind: u32) -> Option<u32> {
        let in_word = IN_WORD / gtpu_block_room(kind);
        let count = self.words.len().min((NUMBERS / in_word) as usize);
        for step in 0..count {
            let word = (self.at[kind as usize] + step) % count;
            if self.words[word] == u64::MAX {
                continue;
            }
            let numbers = word as u32 * in_word..(word as u32 + 1) * in_word;
            let is_free = |block: &u32| self.words[word] & place(*block).1 == 0;
            if let Some(block) = numbers.map(|number| gtpu_block(kind, number)).find(is_free) {
                self.at[kind as usize] = word;
                return Some(block);
            }
        }
        None
    }

    /// How many flows could be had in blocks of the smallest kind.
    #[cfg(test)]
    pub fn free(&self) -> u32 {
        self.words.iter().map(|word| word.count_zeros() * LEAST).sum()
    }
}
