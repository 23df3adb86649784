//! The channels of a run, put together from its parts, and kept while more parts come.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};

use super::parts::{Entries, PartKind};
use crate::channel::Words;
use crate::observation::ChannelKey;
use crate::summary::{ChannelDelta, Figures, NewChannel};

/// What is known of one channel.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: ChannelKey,
    /// Its latest number within the run, and how many it has had.
    number: u32,
    numbers: u32,
    /// How often its state was dropped.
    pub lives: u64,
    pub figures: Figures,
}

/// All channels of one run, in the order in which they appeared.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    run: i64,
    merges: i64,
    last_part: i64,
    pub entries: Vec<Entry>,
    by_id: HashMap<u64, u32, Words>,
    by_number: HashMap<u32, u32, Words>,
}

/// The ledger of the run that was asked for last, shared by several readers of one file.
#[derive(Clone, Debug, Default)]
pub struct Ledgers(Arc<Mutex<Ledger>>);

impl Ledgers {
    /// The ledger of a run as it is now.
    pub(super) fn of(&self, database: &Connection, run: i64) -> rusqlite::Result<MutexGuard<'_, Ledger>> {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = ledger.read_on(database, run);
        if read.is_err() {
            *ledger = Ledger::default();
        }
        read.map(|()| ledger)
    }
}

impl Ledger {
    pub fn find(&self, id: u64) -> Option<&Entry> {
        self.by_id.get(&id).map(|at| &self.entries[*at as usize])
    }

    pub fn by_number(&self, number: u32) -> Option<&Entry> {
        self.by_number.get(&number).map(|at| &self.entries[*at as usize])
    }

    /// The numbers that a channel has had.
    pub fn numbers(&self, entry: &Entry) -> Vec<u32> {
        if entry.numbers == 1 {
            return vec![entry.number];
        }
        let at = self.by_id.get(&entry.key.channel_id());
        self.by_number.iter().filter(|(_, of)| Some(*of) == at).map(|(number, _)| *number).collect()
    }

    /// Adds the parts that came since the last call.
    fn read_on(&mut self, database: &Connection, run: i64) -> rusqlite::Result<()> {
        // One transaction, so that no part disappears between the two questions.
        let transaction = database.unchecked_transaction()?;
        let merges = transaction
            .prepare_cached("SELECT merges FROM run WHERE number = ?")?
            .query_row([run], |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        if (run, merges) != (self.run, self.merges) {
            *self = Ledger { run, merges, ..Ledger::default() };
        }
        let mut statement = transaction.prepare_cached(
            "SELECT number, kind, interval, data FROM part WHERE run = ? AND number > ? ORDER BY number",
        )?;
        let mut rows = statement.query([run, self.last_part])?;
        while let Some(row) = rows.next()? {
            let (number, kind, interval): (i64, u8, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if self.add(kind, interval as u64, row.get_ref(3)?.as_blob()?).is_none() {
                let damaged = format!("part {number} is damaged");
                return Err(rusqlite::Error::FromSqlConversionFailure(3, Type::Blob, damaged.into()));
            }
            self.last_part = number;
        }
        Ok(())
    }

    fn add(&mut self, kind: u8, interval: u64, data: &[u8]) -> Option<()> {
        const CHANNELS: u8 = PartKind::Channels as u8;
        const DELTAS: u8 = PartKind::Deltas as u8;
        const STATES: u8 = PartKind::States as u8;
        const REST: u8 = PartKind::Rest as u8;
        let mut entries = Entries::of(data);
        while !entries.is_over() {
            match kind {
                CHANNELS => self.announce(&entries.channel()?),
                DELTAS | REST => self.count(&entries.delta(interval)?)?,
                STATES => {
                    let (number, figures) = entries.state()?;
                    let at = *self.by_number.get(&number)?;
                    self.entries[at as usize].end_life(&figures);
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn announce(&mut self, channel: &NewChannel) {
        let NewChannel { number, key } = *channel;
        let next = self.entries.len() as u32;
        let at = *self.by_id.entry(key.channel_id()).or_insert(next);
        self.by_number.insert(number, at);
        if at == next {
            self.entries.push(Entry { key, number, numbers: 1, lives: 0, figures: Figures::default() });
        } else {
            let entry = &mut self.entries[at as usize];
            (entry.number, entry.numbers) = (number, entry.numbers + 1);
        }
    }

    fn count(&mut self, delta: &ChannelDelta) -> Option<()> {
        let at = *self.by_number.get(&delta.number)?;
        let figures = &mut self.entries[at as usize].figures;
        figures.counts.add(&delta.counts);
        // Parts that were put together stand behind younger ones.
        if delta.highest_sequence != 0 && delta.last_ns >= figures.last_ns {
            figures.highest_sequence = delta.highest_sequence;
        }
        figures.last_ns = figures.last_ns.max(delta.last_ns);
        Some(())
    }
}

impl Entry {
    /// The first life's figures replace what the deltas told, later lives' are put together with them. Counts are the
    /// deltas' alone.
    fn end_life(&mut self, ended: &Figures) {
        let known = self.figures;
        self.lives += 1;
        self.figures = Figures { counts: known.counts, last_ns: known.last_ns.max(ended.last_ns), ..*ended };
        if self.lives == 1 {
            return;
        }
        let figures = &mut self.figures;
        figures.first_ns = known.first_ns;
        figures.first_frame = known.first_frame;
        figures.first_sequence = known.first_sequence;
        figures.min_payload = known.min_payload.min(ended.min_payload);
        figures.max_payload = known.max_payload.max(ended.max_payload);
        figures.extended |= known.extended;
        figures.no_counter |= known.no_counter;
        figures.length_mismatches |= known.length_mismatches;
        if known.protection as u8 > ended.protection as u8 {
            figures.protection = known.protection;
        }
        figures.restarts += known.restarts;
        figures.jumps += known.jumps;
        figures.gaps += known.gaps;
        figures.reorder.add(&known.reorder);
    }
}
