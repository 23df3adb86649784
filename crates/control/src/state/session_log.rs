//! What the session log still remembers, and what became of its entries elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::api::{LogEntry, LogOutputView};

/// Entries that `sluice show log` can still show.
const KEPT: usize = 1000;

#[derive(Debug, Default)]
pub struct SessionLog {
    entries: Mutex<VecDeque<LogEntry>>,
    outputs: Mutex<Vec<Arc<OutputCounts>>>,
    /// Those of `system syslog`.
    own: Mutex<Vec<Arc<OutputCounts>>>,
    read: Mutex<Option<Instant>>,
    /// Entries that are not the data plane's, until they are told.
    posted: Mutex<Vec<LogEntry>>,
}

impl SessionLog {
    /// The newest entries, oldest first.
    pub fn last(&self, count: usize) -> Vec<LogEntry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().skip(entries.len().saturating_sub(count)).cloned().collect()
    }

    pub fn keep(&self, entry: LogEntry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// For who reads events to tell.
    pub fn post(&self, entry: LogEntry) {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    pub fn take_posted(&self) -> Vec<LogEntry> {
        std::mem::take(&mut self.posted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn outputs(&self) -> Vec<LogOutputView> {
        let outputs = self.outputs.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        outputs.iter().chain(own.iter()).map(|output| output.view()).collect()
    }

    /// Events are being read.
    pub fn note_read(&self) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub fn is_read_since(&self, time: Duration) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.is_some_and(|read| read.elapsed() < time)
    }

    /// The outputs of `system syslog` that there are.
    pub fn set_own_outputs(&self, outputs: Vec<Arc<OutputCounts>>) {
        *self.own.lock().unwrap_or_else(PoisonError::into_inner) = outputs;
    }

    /// The outputs that there are.
    pub fn set_outputs(&self, outputs: Vec<Arc<OutputCounts>>) {
        *self.outputs.lock().unwrap_or_else(PoisonError::into_inner) = outputs;
    }
}

/// Counted of one output.
#[derive(Debug)]
pub struct OutputCounts {
    name: String,
    transport: &'static str,
    /// Of `system syslog`.
    pub is_own: bool,
    pub sent: AtomicU64,
    pub waiting_bytes: AtomicU64,
    pub lost_full: AtomicU64,
    pub lost_refused: AtomicU64,
    pub lost_rate: AtomicU64,
    error: Mutex<Option<String>>,
}

impl OutputCounts {
    pub fn new(name: &str, transport: &'static str) -> Self {
        let (name, zero) = (name.to_owned(), || AtomicU64::new(0));
        Self {
            name,
            transport,
            is_own: false,
            sent: zero(),
            waiting_bytes: zero(),
            lost_full: zero(),
            lost_refused: zero(),
            lost_rate: zero(),
            error: Mutex::default(),
        }
    }

    /// One of `system syslog`.
    pub fn own(name: &str, transport: &'static str) -> Self {
        Self { is_own: true, ..Self::new(name, transport) }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says whether that is new.
    pub fn set_error(&self, error: Option<String>) -> bool {
        let mut known = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != error;
        *known = error;
        is_new
    }

    fn view(&self) -> LogOutputView {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LogOutputView {
            name: self.name.clone(),
            transport: self.transport.to_owned(),
            sent: of(&self.sent),
            waiting_bytes: of(&self.waiting_bytes),
            lost_full: of(&self.lost_full),
            lost_refused: of(&self.lost_refused),
            lost_rate: of(&self.lost_rate),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
