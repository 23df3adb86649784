//! Grants of the gate: records that programs read and an index that leads to them. Both are pinned, so they outlive the
//! daemon; what this process keeps beside them can be read from them anew.
//!
//! A grant ends with one store to its record. The index is tidied afterwards, and a record is given away again with
//! another handle, so nothing that remembers the old one (a session, a key that is still in the index) fits the new.

mod admission;
mod index;
mod kinds;
mod sources;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_abi::{
    GRANT_BY_CONFIGURATION, GRANT_BY_OPERATOR, GRANT_FOREVER, GRANT_LABEL_BYTES, GRANT_LENGTHS, GRANT_LIVE,
    GRANT_RENEWED_BY_OPERATOR, Grant, GrantLengths, GrantUser, next_handle,
};

pub use crate::error::Refused;
use crate::error::Result;
use crate::mmap::Array;
use crate::records::{address_words, mapped};
use crate::state::State;

use admission::Leaving;
use index::Index;
pub use kinds::{Ended, Former, Given, GrantKey, GrantRecord, GrantSpec, GrantTotals, Pick, Reconciled};
use kinds::{digest, ended, family, is_configured, key_of, lifetime, mark_of};
use sources::Sources;

/// What can be known from the records, kept for speed.
#[derive(Debug, Default)]
struct Book {
    live: HashMap<GrantKey, u32>,
    /// The configuration's grants that have ended, and are not given again while they are configured.
    ended: HashMap<GrantKey, u32>,
    free: VecDeque<u32>,
    /// First record that was never given away.
    fresh: u32,
    /// How many live grants have a length, of either family; hosts are not counted.
    lengths: [BTreeMap<u8, u32>; 2],
    /// What ended on the way to something else; see [`Grants::untold`].
    untold: Vec<GrantRecord>,
}

/// The gate's grants: records, users and index in pinned maps.
#[derive(Debug)]
pub struct Grants {
    records: Array<Grant>,
    users: Array<GrantUser>,
    lengths: Array<GrantLengths>,
    index: Index,
    sources: Sources,
    book: Mutex<Book>,
    capacity: u32,
    hz: u64,
    /// Counters of the process, for metrics.
    pub totals: GrantTotals,
}

impl Grants {
    /// Reads what is there. Whoever `writes` puts right what a crash may have left half done; beside a daemon, which may
    /// be in the midst of a change, nobody else does.
    pub(crate) fn open(state: &State, capacity: u32, seed: u64, hz: u32, writes: bool) -> Result<Grants> {
        let grants = Grants {
            records: mapped(state, "grants")?,
            users: mapped(state, "grant_users")?,
            lengths: mapped(state, "grant_lengths")?,
            index: Index::open(state, seed)?,
            sources: Sources::open(state, seed)?,
            book: Mutex::default(),
            capacity,
            hz: hz.into(),
            totals: GrantTotals::default(),
        };
        grants.read_book(writes);
        Ok(grants)
    }

    /// Most grants there can be at one time.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many there are, expired ones included that are not removed yet.
    pub fn live(&self) -> usize {
        self.book().live.len()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_book(&self, writes: bool) {
        let mut book = self.book();
        book.fresh = 1;
        while book.fresh <= self.capacity {
            let index = book.fresh;
            let record = self.records.read(index);
            if record.issued == 0 {
                break;
            }
            book.fresh += 1;
            if record.ended != GRANT_LIVE as u8 {
                // a process may have died between the mark and this store
                if writes {
                    self.records.word(index, offset_of!(Grant, handle)).store(0, Ordering::Release);
                }
                book.ended.insert(key_of(&record), index);
            } else if record.handle != 0 {
                let key = key_of(&record);
                book.count_length(key, 1);
                book.live.insert(key, index);
            } else {
                book.free.push_back(index);
            }
        }
        if !writes {
            return;
        }
        self.store_lengths(&book);
        if book.fresh > 1 {
            self.sources.begin(book.live.keys());
            self.repair_index(&book);
        }
    }

    /// Every live grant has its key, and no other key is there.
    fn repair_index(&self, book: &Book) {
        let of_handle = |handle: u32| {
            let index = handle & sluice_abi::GRANT_INDEX_MASK;
            let record = (1..book.fresh).contains(&index).then(|| self.records.read(index))?;
            (record.handle == handle).then(|| key_of(&record))
        };
        let found = self.index.repair(of_handle);
        for (key, index) in book.live.iter().filter(|(key, _)| !found.contains(*key)) {
            let handle = self.records.read(*index).handle;
            if !self.index.insert(key, handle) {
                tracing::error!(handle, "the index has no room for a grant; it opens nothing");
            }
        }
    }

    /// Gives all of these, or none. What is there already for the same user is renewed.
    pub fn give(&self, specs: &[GrantSpec], now: u64) -> Result<std::result::Result<Vec<Given>, Refused>> {
        let mut book = self.book();
        self.give_with(&mut book, specs, GRANT_BY_OPERATOR, now)
    }

    fn give_with(
        &self,
        book: &mut Book,
        specs: &[GrantSpec],
        origin: u32,
        now: u64,
    ) -> Result<std::result::Result<Vec<Given>, Refused>> {
        // What has ended by itself must not stand in the way; a list may name it twice.
        let over: BTreeMap<u32, Ended> =
            specs.iter().filter_map(|spec| self.over(book, &spec.key, now)).collect();
        let over: Vec<(u32, Ended)> = over.into_iter().collect();
        book.untold.extend(self.ended_records(&over, now));
        self.end(book, &over);
        if let Err(refused) = self.check(book, specs, &Leaving::default()) {
            if matches!(refused, Refused::Full { .. }) {
                self.totals.refused_full.fetch_add(specs.len() as u64, Ordering::Relaxed);
            }
            return Ok(Err(refused));
        }
        for spec in specs {
            if !book.live.contains_key(&spec.key) {
                book.count_length(spec.key, 1);
            }
        }
        // Before the keys: a key of a length that programs do not look for opens nothing yet.
        self.store_lengths(book);
        let mut fresh = Vec::with_capacity(specs.len());
        let given: Vec<Given> = specs
            .iter()
            .map(|spec| {
                let known = book.live.get(&spec.key).copied();
                let kept = known.or_else(|| book.ended.get(&spec.key).copied());
                let whose = kept.map_or((origin, 0), |index| self.whose(index, origin));
                let index = known.unwrap_or_else(|| book.take(&spec.key));
                let renewed = known.map(|index| Former::of(&self.records.read(index), now));
                let handle = self.write(index, spec, whose, known.is_some(), now);
                if known.is_none() {
                    book.live.insert(spec.key, index);
                    self.sources.add(&spec.key);
                    fresh.push((spec.key, handle));
                }
                Given { handle, renewed }
            })
            .collect();
        if let Some(missing) = fresh.iter().position(|(key, handle)| !self.index.insert(key, *handle)) {
            return self.take_back(book, &given, missing);
        }
        self.totals.given.fetch_add(fresh.len() as u64, Ordering::Relaxed);
        self.totals.renewed.fetch_add((given.len() - fresh.len()) as u64, Ordering::Relaxed);
        Ok(Ok(given))
    }

    /// The index has no slot for one of these, which its random seed makes all but impossible: none is given.
    fn take_back(
        &self,
        book: &mut Book,
        given: &[Given],
        placed: usize,
    ) -> Result<std::result::Result<Vec<Given>, Refused>> {
        self.undo(book, given);
        let wanted = given.iter().filter(|given| given.renewed.is_none()).count();
        self.totals.refused_full.fetch_add(wanted as u64, Ordering::Relaxed);
        Ok(Err(Refused::Full { wanted, room: placed, capacity: self.capacity }))
    }

    /// Origin and `asked` of a record that is given once more. What an operator gives stays the configuration's own
    /// where it is so already, for it is the configuration that decides whether it may come again.
    fn whose(&self, index: u32, origin: u32) -> (u32, u16) {
        let record = self.records.read(index);
        match u32::from(record.origin) {
            GRANT_RENEWED_BY_OPERATOR if origin == GRANT_BY_OPERATOR => {
                (GRANT_RENEWED_BY_OPERATOR, record.asked)
            }
            GRANT_BY_CONFIGURATION if origin == GRANT_BY_OPERATOR => {
                (GRANT_RENEWED_BY_OPERATOR, digest(lifetime(&record), record.idle))
            }
            _ => (origin, 0),
        }
    }

    /// The record is complete before its handle says that it is live.
    fn write(&self, index: u32, spec: &GrantSpec, (origin, asked): (u32, u16), renew: bool, now: u64) -> u32 {
        let before = self.records.read(index);
        let jiffies = |seconds: u32| u64::from(seconds) * self.hz;
        let deadline = spec.absolute_s.map_or(GRANT_FOREVER, |seconds| now + jiffies(seconds));
        let idle = self.idle_of(spec);
        if renew {
            self.records.half(index, offset_of!(Grant, asked)).store(asked, Ordering::Relaxed);
            self.records.byte(index, offset_of!(Grant, origin)).store(origin as u8, Ordering::Release);
            self.records.long(index, offset_of!(Grant, last_use)).store(now, Ordering::Relaxed);
            self.records.word(index, offset_of!(Grant, idle)).store(idle, Ordering::Relaxed);
            self.records.long(index, offset_of!(Grant, created)).store(now, Ordering::Relaxed);
            self.records.long(index, offset_of!(Grant, deadline)).store(deadline, Ordering::Release);
            return before.handle;
        }
        let handle = next_handle(index, before.issued);
        let (family, be_addr) = address_words(spec.key.source);
        let record = Grant {
            handle: 0,
            issued: handle,
            deadline,
            last_use: now,
            created: now,
            idle,
            sessions: 0,
            be_addr,
            service: spec.key.service,
            family: family as u8,
            length: spec.key.length,
            origin: origin as u8,
            ended: GRANT_LIVE as u8,
            asked,
        };
        let mut label = [0; GRANT_LABEL_BYTES as usize];
        label[..spec.user.len()].copy_from_slice(spec.user.as_bytes());
        self.users.write(index, GrantUser { label });
        self.records.write(index, record);
        self.records.word(index, offset_of!(Grant, handle)).store(handle, Ordering::Release);
        handle
    }

    fn user(&self, index: u32) -> String {
        let label = self.users.read(index).label;
        let end = label.iter().position(|byte| *byte == 0).unwrap_or(label.len());
        String::from_utf8_lossy(&label[..end]).into_owned()
    }

    fn record(&self, index: u32, now: u64) -> GrantRecord {
        let record = self.records.read(index);
        GrantRecord {
            handle: record.issued,
            key: key_of(&record),
            user: self.user(index),
            by_configuration: is_configured(&record),
            created: record.created,
            deadline: (record.deadline != GRANT_FOREVER).then_some(record.deadline),
            idle: (record.idle != 0).then_some(record.idle),
            last_use: record.last_use,
            sessions: record.sessions,
            ended: ended(&record, now),
        }
    }

    /// Grants in force, in no order; expired ones that are not removed yet are among them.
    pub fn list(&self, now: u64) -> Vec<GrantRecord> {
        let book = self.book();
        book.live.values().map(|index| self.record(*index, now)).collect()
    }

    /// Live grants by service id.
    pub fn count_by_service(&self) -> BTreeMap<u16, u64> {
        let mut counts = BTreeMap::new();
        for key in self.book().live.keys() {
            *counts.entry(key.service).or_default() += 1;
        }
        counts
    }

    /// The grant for exactly this source and service.
    pub fn find(&self, key: &GrantKey, now: u64) -> Option<GrantRecord> {
        let book = self.book();
        book.live.get(key).map(|index| self.record(*index, now))
    }

    fn over(&self, book: &Book, key: &GrantKey, now: u64) -> Option<(u32, Ended)> {
        let index = *book.live.get(key)?;
        ended(&self.records.read(index), now).map(|why| (index, why))
    }

    /// Ends grants: first one store for each, which is what programs see, then the rest.
    pub fn revoke(&self, pick: &Pick, now: u64) -> Result<Vec<GrantRecord>> {
        let mut book = self.book();
        let mut list = vec![];
        let all = match pick {
            Pick::Handle(handle) => {
                let index = handle & sluice_abi::GRANT_INDEX_MASK;
                index..(index + 1).min(book.fresh)
            }
            _ => 1..book.fresh,
        };
        for index in all {
            let live = || self.records.read_field::<u32>(index, offset_of!(Grant, handle)) != 0;
            if index != 0 && self.picked(pick, index) && live() {
                self.close(index, Ended::Revoked);
                list.push((index, Ended::Revoked));
            }
        }
        let records = self.ended_records(&list, now);
        self.end(&mut book, &list);
        Ok(records)
    }

    /// Takes back what was given and could not be written down: what is new ends, what was renewed is what it was. What the
    /// configuration gave may come again.
    pub fn withdraw(&self, given: &[Given]) {
        let mut book = self.book();
        self.undo(&mut book, given);
    }

    /// What ended on the way to something else since this was asked last: by itself, where it was to be given again, and
    /// by the configuration, where what it has in its place was refused.
    pub fn untold(&self) -> Vec<GrantRecord> {
        std::mem::take(&mut self.book().untold)
    }

    fn ended_records(&self, list: &[(u32, Ended)], now: u64) -> Vec<GrantRecord> {
        let record =
            |(index, why): &(u32, Ended)| GrantRecord { ended: Some(*why), ..self.record(*index, now) };
        list.iter().map(record).collect()
    }

    fn picked(&self, pick: &Pick, index: u32) -> bool {
        let service = || self.records.read_field::<u16>(index, offset_of!(Grant, service));
        match pick {
            Pick::All => true,
            Pick::Handle(handle) => {
                *handle != 0 && self.records.read_field::<u32>(index, offset_of!(Grant, issued)) == *handle
            }
            Pick::Service(wanted) => service() == *wanted,
            Pick::ServicesBut(known) => !known.contains(&service()),
            Pick::User(user) => {
                let label = self.users.read(index).label;
                label.starts_with(user.as_bytes()) && label.get(user.len()) == Some(&0)
            }
            Pick::Source(source, length) => {
                let key = key_of(&self.records.read(index));
                key.source == *source && key.length == *length
            }
        }
    }

    /// Removes what has ended by itself, and says what that was. Programs have not needed this to refuse it.
    pub fn collect_ended(&self, now: u64) -> Result<Vec<GrantRecord>> {
        let mut book = self.book();
        let over: Vec<(u32, Ended)> = (1..book.fresh)
            .filter_map(|index| {
                let record = self.records.read(index);
                ended(&record, now).filter(|_| record.handle != 0).map(|why| (index, why))
            })
            .collect();
        let records = self.ended_records(&over, now);
        self.end(&mut book, &over);
        Ok(records)
    }

    /// What programs see of an end. The mark comes first: a process that dies between the two has ended it for good.
    fn close(&self, index: u32, why: Ended) {
        if is_configured(&self.records.read(index)) {
            self.records.byte(index, offset_of!(Grant, ended)).store(mark_of(why), Ordering::Relaxed);
        }
        self.records.word(index, offset_of!(Grant, handle)).store(0, Ordering::Release);
    }

    fn end(&self, book: &mut Book, list: &[(u32, Ended)]) {
        for (index, why) in list {
            self.close(*index, *why);
            let record = self.records.read(*index);
            let key = key_of(&record);
            self.totals.ended(*why).fetch_add(1, Ordering::Relaxed);
            if book.live.remove(&key).is_some() {
                book.count_length(key, -1);
                self.index.remove(&key, record.issued);
                self.sources.remove(&key);
            }
            if is_configured(&record) {
                book.ended.insert(key, *index);
            } else {
                book.free.push_back(*index);
            }
        }
        self.store_lengths(book);
    }

    /// As if they had not been given: those of the configuration may be given again.
    fn undo(&self, book: &mut Book, given: &[Given]) {
        let mut new = vec![];
        // a list may renew one twice: the first one's is what it was
        for Given { handle, renewed } in given.iter().rev() {
            let index = handle & sluice_abi::GRANT_INDEX_MASK;
            let live = (1..book.fresh).contains(&index) && self.records.read(index).handle == *handle;
            match renewed {
                _ if !live => {}
                None => new.push((index, Ended::Revoked)),
                Some(former) => self.restore(index, former),
            }
        }
        self.end(book, &new);
        for (index, _) in &new {
            let record = self.records.read(*index);
            if u32::from(record.origin) == GRANT_BY_CONFIGURATION {
                self.forget_end(book, &key_of(&record));
            }
        }
    }

    /// What a renewal has changed becomes what it was. Where packets came since, the last of them stays the last use.
    fn restore(&self, index: u32, former: &Former) {
        let last_use = self.records.long(index, offset_of!(Grant, last_use));
        // programs write it, too: whoever was faster is right
        let _ = last_use.compare_exchange(former.at, former.last_use, Ordering::Relaxed, Ordering::Relaxed);
        self.records.half(index, offset_of!(Grant, asked)).store(former.asked, Ordering::Relaxed);
        self.records.byte(index, offset_of!(Grant, origin)).store(former.origin, Ordering::Release);
        self.records.word(index, offset_of!(Grant, idle)).store(former.idle, Ordering::Relaxed);
        self.records.long(index, offset_of!(Grant, created)).store(former.created, Ordering::Relaxed);
        self.records.long(index, offset_of!(Grant, deadline)).store(former.deadline, Ordering::Release);
    }

    fn forget_end(&self, book: &mut Book, key: &GrantKey) {
        if let Some(index) = book.ended.remove(key) {
            self.records.byte(index, offset_of!(Grant, ended)).store(GRANT_LIVE as u8, Ordering::Relaxed);
            book.free.push_back(index);
        }
    }

    /// What a commit with these grants and services would be refused for; nothing is changed.
    pub fn rehearse(
        &self,
        wanted: &[GrantSpec],
        services: &HashSet<u16>,
        now: u64,
    ) -> std::result::Result<(), Refused> {
        let book = self.book();
        let change = self.change(&book, wanted, now);
        let gone = book.live.iter().filter(|(key, _)| !services.contains(&key.service));
        let ended = change.new.iter().filter_map(|spec| self.over(&book, &spec.key, now));
        let live = change.over.iter().map(|(index, _)| *index);
        let live = live.chain(gone.map(|(_, index)| *index)).chain(ended.map(|(index, _)| index));
        let keys = live.map(|index| key_of(&self.records.read(index))).chain(change.gone.iter().copied());
        self.check(&book, &change.new, &Leaving(keys.collect()))
    }

    /// Which of the configuration's grants end, which ends are forgotten, and what is new.
    fn change(&self, book: &Book, wanted: &[GrantSpec], now: u64) -> Change {
        let by_key: HashMap<GrantKey, &GrantSpec> = wanted.iter().map(|spec| (spec.key, spec)).collect();
        let own = |index: u32| is_configured(&self.records.read(index));
        let stands = |key: &GrantKey, index: u32| by_key.get(key).is_some_and(|spec| self.is_as(index, spec));
        let over: Vec<(u32, Ended)> = book
            .live
            .iter()
            .filter(|(key, index)| own(**index) && !stands(key, **index))
            .map(|(_, index)| (*index, ended(&self.records.read(*index), now).unwrap_or(Ended::Revoked)))
            .collect();
        let gone: HashSet<GrantKey> =
            book.ended.iter().filter(|(key, index)| !stands(key, **index)).map(|(key, _)| *key).collect();
        let ends: HashSet<u32> = over.iter().map(|(index, _)| *index).collect();
        let is_ended = |key: &GrantKey| book.ended.contains_key(key) && !gone.contains(key);
        let has =
            |key: &GrantKey| book.live.get(key).is_some_and(|index| own(*index) && !ends.contains(index));
        let new = wanted.iter().filter(|spec| !is_ended(&spec.key) && !has(&spec.key)).cloned().collect();
        Change { over, gone, new }
    }

    /// Makes the configuration's grants what it says. One that has ended stays so until it is changed or taken out. Those
    /// that cannot be given are left out, and named.
    pub fn reconcile(
        &self,
        wanted: &[GrantSpec],
        now: u64,
    ) -> Result<std::result::Result<Reconciled, Refused>> {
        let mut book = self.book();
        let Change { over, gone, new } = self.change(&book, wanted, now);
        let mut done = Reconciled { ended: self.ended_records(&over, now), ..Reconciled::default() };
        self.end(&mut book, &over);
        let freed = over.iter().map(|(index, _)| key_of(&self.records.read(*index)));
        for key in gone.into_iter().chain(freed) {
            self.forget_end(&mut book, &key);
        }
        let late: BTreeMap<u32, Ended> =
            new.iter().filter_map(|spec| self.over(&book, &spec.key, now)).collect();
        let late: HashSet<GrantKey> = late.keys().map(|index| key_of(&self.records.read(*index))).collect();
        let (new, refused) = self.fitting(&book, &new, &Leaving(late));
        done.refused = refused;
        match self.give_with(&mut book, &new, GRANT_BY_CONFIGURATION, now)? {
            Err(refused) => {
                book.untold.append(&mut done.ended);
                return Ok(Err(refused));
            }
            Ok(given) => {
                let records = new.iter().filter_map(|spec| book.live.get(&spec.key));
                done.given = records.map(|index| self.record(*index, now)).collect();
                done.handed = given;
            }
        }
        Ok(Ok(done))
    }

    /// Whether a record is that of this statement, unchanged. One that an operator renewed has other limits by now.
    fn is_as(&self, index: u32, spec: &GrantSpec) -> bool {
        let record = self.records.read(index);
        let wanted = (spec.absolute_s.map(|seconds| u64::from(seconds) * self.hz), self.idle_of(spec));
        self.user(index) == spec.user
            && match u32::from(record.origin) {
                GRANT_RENEWED_BY_OPERATOR => record.asked == digest(wanted.0, wanted.1),
                _ => (lifetime(&record), record.idle) == wanted,
            }
    }

    /// In jiffies, 0 = none.
    fn idle_of(&self, spec: &GrantSpec) -> u32 {
        spec.idle_s.map_or(0, |seconds| (u64::from(seconds) * self.hz).min(u32::MAX.into()) as u32)
    }

    fn store_lengths(&self, book: &Book) {
        for (family, offset) in
            [(0, offset_of!(GrantLengths, lengths4)), (1, offset_of!(GrantLengths, lengths6))]
        {
            let longest_first = book.lengths[family].keys().rev().take(GRANT_LENGTHS as usize);
            let word = longest_first
                .zip(0..)
                .fold(0, |word, (length, index)| word | (u64::from(*length) + 1) << (8 * index));
            self.lengths.long(0, offset).store(word, Ordering::Release);
        }
    }
}

/// What a configuration changes of its own grants.
struct Change {
    over: Vec<(u32, Ended)>,
    gone: HashSet<GrantKey>,
    new: Vec<GrantSpec>,
}

impl Book {
    /// A record for a new grant; the caller has seen that there is one.
    fn take(&mut self, key: &GrantKey) -> u32 {
        if let Some(index) = self.ended.remove(key) {
            return index;
        }
        self.free.pop_front().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }

    fn count_length(&mut self, key: GrantKey, change: i32) {
        if key.is_host() {
            return;
        }
        let lengths = &mut self.lengths[family(key.source)];
        let count = lengths.entry(key.length).or_insert(0);
        *count = count.saturating_add_signed(change);
        if *count == 0 {
            lengths.remove(&key.length);
        }
    }
}
