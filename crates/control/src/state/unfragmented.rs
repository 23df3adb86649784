//! What NAT64 has lost that was to leave in fragments.

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets that NAT64 was to fragment and that did not leave whole, since the daemon started.
#[derive(Debug, Default)]
pub struct Unfragmented {
    pub late: AtomicU64,
    pub malformed: AtomicU64,
    pub busy: AtomicU64,
    pub refused: AtomicU64,
}

impl Unfragmented {
    pub fn all(&self) -> u64 {
        let counters = [&self.late, &self.malformed, &self.busy, &self.refused];
        counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}
