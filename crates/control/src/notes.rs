//! What the daemon has to say of itself.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What an operator should know until the next commit.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Notes {
    pub fn set(&self, notes: Vec<String>) {
        *locked(&self.0) = notes;
    }

    pub fn all(&self) -> Vec<String> {
        locked(&self.0).clone()
    }

    pub fn clear(&self) {
        locked(&self.0).clear();
    }
}

/// What takes long and is under way.
#[derive(Debug, Default)]
pub struct Work(Mutex<Option<(&'static str, Instant)>>);

impl Work {
    pub fn begin(&self, what: &'static str) -> UnderWay<'_> {
        *locked(&self.0) = Some((what, Instant::now()));
        UnderWay(self)
    }

    pub fn under_way(&self) -> Option<String> {
        locked(&self.0)
            .map(|(what, since)| format!("a {what} is under way for {} s", since.elapsed().as_secs()))
    }
}

pub struct UnderWay<'a>(&'a Work);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *locked(&self.0.0) = None;
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
