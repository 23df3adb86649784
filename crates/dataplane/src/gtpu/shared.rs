//! Entries of tables that sessions have in common.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::GtpuRefused;

/// No program works with what it read so long ago.
pub(super) const REUSED_AFTER: Duration = Duration::from_secs(1);

/// Entries that are shared by those who want the same, numbered from 1.
#[derive(Debug)]
pub(super) struct Shared<T> {
    what: &'static str,
    pub numbers: HashMap<T, u32>,
    pub users: Vec<(u32, Option<T>)>,
    pub free: VecDeque<(Instant, u32)>,
}

impl<T: Clone + Eq + Hash> Shared<T> {
    pub fn new(what: &'static str, entries: u32) -> Shared<T> {
        Shared {
            what,
            numbers: HashMap::new(),
            users: vec![(0, None); entries as usize],
            free: VecDeque::new(),
        }
    }

    pub fn limit(&self) -> u32 {
        self.users.len() as u32 - 1
    }

    pub fn use_of(&mut self, number: u32, value: T) {
        let (users, stands) = &mut self.users[number as usize];
        *users += 1;
        *stands = Some(value.clone());
        self.numbers.insert(value, number);
    }

    /// Those that nobody uses, once all that are in use were found.
    pub fn rest_is_free(&mut self) {
        let before = Instant::now().checked_sub(REUSED_AFTER).unwrap_or_else(Instant::now);
        self.free = (1..=self.limit())
            .filter(|number| self.users[*number as usize].0 == 0)
            .map(|number| (before, number))
            .collect();
    }

    /// The number of an entry like this; true if it must be written first.
    pub fn take(&mut self, value: T) -> Result<(u32, bool), GtpuRefused> {
        if let Some(number) = self.numbers.get(&value).copied() {
            self.users[number as usize].0 += 1;
            return Ok((number, false));
        }
        let limit = self.limit();
        let (since, number) = self.free.pop_front().ok_or(GtpuRefused::Full { what: self.what, limit })?;
        // hardly ever waits: all others were in use within this second
        std::thread::sleep(REUSED_AFTER.saturating_sub(since.elapsed()));
        self.use_of(number, value);
        Ok((number, true))
    }

    /// True if nobody uses it any more.
    pub fn leave(&mut self, number: u32) -> bool {
        let Some((users, stands)) = self.users.get_mut(number as usize).filter(|(users, _)| *users > 0)
        else {
            return false;
        };
        *users -= 1;
        if *users == 0 {
            if let Some(value) = stands.take() {
                self.numbers.remove(&value);
            }
            self.free.push_back((Instant::now(), number));
            return true;
        }
        false
    }

    /// One user more of an entry that has some; false if it has none.
    pub fn share(&mut self, number: u32) -> bool {
        match self.users.get_mut(number as usize) {
            Some((users, _)) if *users > 0 => {
                *users += 1;
                true
            }
            _ => false,
        }
    }

    pub fn get(&self, number: u32) -> Option<T> {
        self.users.get(number as usize)?.1.clone()
    }
}
