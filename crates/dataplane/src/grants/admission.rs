//! Whether grants can be given: whose the others are, how many lengths there are, and room.

use std::collections::{BTreeMap, HashSet};

use sluice_abi::{GRANT_LABEL_BYTES, GRANT_LENGTHS};

use super::kinds::{family, is_configured, is_prefix};
use super::{Book, GrantKey, GrantSpec, Grants};
use crate::error::Refused;

/// Keys of grants, live or ended, that are gone by the time others are given.
#[derive(Debug, Default)]
pub(super) struct Leaving(pub HashSet<GrantKey>);

type Admitted = std::result::Result<(), Refused>;

/// What a list of grants has taken so far.
struct Admission<'a> {
    grants: &'a Grants,
    book: &'a Book,
    leaving: &'a Leaving,
    wanted: HashSet<GrantKey>,
    /// Of those, how many have a record that waits for them.
    reused: usize,
    lengths: [BTreeMap<u8, u32>; 2],
    room: usize,
}

impl<'a> Admission<'a> {
    fn new(grants: &'a Grants, book: &'a Book, leaving: &'a Leaving) -> Self {
        let mut lengths = book.lengths.clone();
        for key in leaving.0.iter().filter(|key| !key.is_host() && book.live.contains_key(*key)) {
            let lengths = &mut lengths[family(key.source)];
            if let Some(count) = lengths.get_mut(&key.length) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    lengths.remove(&key.length);
                }
            }
        }
        let room = book.free.len() + (grants.capacity + 1 - book.fresh) as usize + leaving.0.len();
        Self { grants, book, leaving, wanted: HashSet::new(), reused: 0, lengths, room }
    }

    fn live(&self, key: &GrantKey) -> Option<u32> {
        self.book.live.get(key).copied().filter(|_| !self.leaving.0.contains(key))
    }

    fn ended(&self, key: &GrantKey) -> Option<u32> {
        self.book.ended.get(key).copied().filter(|_| !self.leaving.0.contains(key))
    }

    fn admit(&mut self, spec: &GrantSpec) -> Admitted {
        let GrantSpec { key, user, .. } = spec;
        let GrantKey { source: address, length, .. } = *key;
        if user.is_empty() || user.len() >= GRANT_LABEL_BYTES as usize || user.chars().any(char::is_control) {
            return Err(Refused::User { user: user.clone() });
        }
        if !is_prefix(address, length) {
            return Err(Refused::Prefix { address, length });
        }
        let live = self.live(key);
        // one of the configuration that has ended is still whose it was
        let holder = live.or_else(|| self.ended(key));
        if let Some(index) = holder.filter(|index| self.grants.user(*index) != *user) {
            let user = self.grants.user(index);
            return Err(match is_configured(&self.grants.records.read(index)) {
                true => Refused::Configured { address, length, user },
                false => Refused::Taken { address, length, user },
            });
        }
        if live.is_some() {
            return Ok(());
        }
        // two of one list for the same: the second one would be somebody else's, or a renewal of nothing
        if self.wanted.contains(key) {
            return Err(Refused::Taken { address, length, user: user.clone() });
        }
        let lengths = &mut self.lengths[family(address)];
        if !key.is_host() && !lengths.contains_key(&length) && lengths.len() >= GRANT_LENGTHS as usize {
            return Err(Refused::Lengths { length });
        }
        let reused = self.reused + usize::from(self.ended(key).is_some());
        let wanted = self.wanted.len() + 1;
        if wanted - reused > self.room {
            return Err(Refused::Full { wanted, room: self.room, capacity: self.grants.capacity });
        }
        if !key.is_host() {
            self.lengths[family(address)].entry(length).or_insert(0);
        }
        self.wanted.insert(*key);
        self.reused = reused;
        Ok(())
    }
}

impl Grants {
    /// All of these or none.
    pub(super) fn check(&self, book: &Book, specs: &[GrantSpec], leaving: &Leaving) -> Admitted {
        let refused = self.admit(book, specs, leaving, |_| ());
        refused.into_iter().next().map_or(Ok(()), Err)
    }

    /// Those that can be given, and why the others cannot.
    pub(super) fn fitting(
        &self,
        book: &Book,
        specs: &[GrantSpec],
        leaving: &Leaving,
    ) -> (Vec<GrantSpec>, Vec<Refused>) {
        let mut fit = vec![];
        let refused = self.admit(book, specs, leaving, |spec| fit.push(spec.clone()));
        (fit, refused)
    }

    /// What is refused; of what finds no room it is told once.
    fn admit(
        &self,
        book: &Book,
        specs: &[GrantSpec],
        leaving: &Leaving,
        mut fits: impl FnMut(&GrantSpec),
    ) -> Vec<Refused> {
        let mut admission = Admission::new(self, book, leaving);
        let (mut refused, mut beyond) = (vec![], 0);
        for spec in specs {
            match admission.admit(spec) {
                Ok(()) => fits(spec),
                Err(Refused::Full { .. }) => beyond += 1,
                Err(other) => refused.push(other),
            }
        }
        if beyond > 0 {
            let wanted = admission.wanted.len() - admission.reused + beyond;
            refused.push(Refused::Full { wanted, room: admission.room, capacity: self.capacity });
        }
        refused
    }
}
