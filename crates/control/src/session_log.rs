//! What the session log still remembers.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::api::LogEntry;

/// Entries that `sluice show log` can still show.
const KEPT: usize = 1000;

#[derive(Debug, Default)]
pub struct SessionLog(Mutex<VecDeque<LogEntry>>);

impl SessionLog {
    /// The newest entries, oldest first.
    pub fn last(&self, count: usize) -> Vec<LogEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().skip(entries.len().saturating_sub(count)).cloned().collect()
    }

    pub fn keep(&self, entry: LogEntry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }
}
