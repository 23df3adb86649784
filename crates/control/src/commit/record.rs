//! What the daemon has to say of its commits, besides their results.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::state::archive::Confirm;

/// Read while a commit is under way, so it stands outside of the engine.
#[derive(Debug, Default)]
pub struct Record {
    done: AtomicU64,
    failed: AtomicU64,
    notes: Mutex<Vec<String>>,
    under_way: Mutex<Option<Instant>>,
    confirm: Mutex<Option<Confirm>>,
}

impl Record {
    pub fn begin(&self) -> UnderWay<'_> {
        *locked(&self.under_way) = Some(Instant::now());
        UnderWay(self)
    }

    /// The commit stands: what was to be known before it is over, unless it only puts in force once more what was.
    pub fn done(&self, is_asked_for: bool) {
        self.done.fetch_add(1, Ordering::Relaxed);
        if is_asked_for {
            locked(&self.notes).clear();
        }
    }

    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// What an operator should know until somebody commits.
    pub fn set_notes(&self, notes: Vec<String>) {
        *locked(&self.notes) = notes;
    }

    pub fn notes(&self) -> Vec<String> {
        locked(&self.notes).clone()
    }

    /// Until when somebody has to confirm what is in force.
    pub fn confirm(&self) -> Option<Confirm> {
        locked(&self.confirm).clone()
    }

    pub fn set_confirm(&self, confirm: Option<Confirm>) {
        *locked(&self.confirm) = confirm;
    }

    pub fn under_way(&self) -> Option<String> {
        locked(&self.under_way)
            .map(|since| format!("a commit is under way for {} s", since.elapsed().as_secs()))
    }

    /// Commits that stand, and those that were refused, since the daemon started.
    pub fn counts(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// A commit is under way as long as this lives.
pub struct UnderWay<'a>(&'a Record);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *locked(&self.0.under_way) = None;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
