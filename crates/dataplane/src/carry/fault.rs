//! Points where a test lets the process end at once, as a crash would.

use std::sync::atomic::{AtomicU32, Ordering};

/// `SLUICE_CRASH=link:2` ends the process when it comes by the point `link` for the second time. Not in release builds.
pub(crate) fn point(point: &str) {
    if !cfg!(debug_assertions) {
        return;
    }
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let Ok(wanted) = std::env::var("SLUICE_CRASH") else { return };
    let (name, time) = wanted.split_once(':').unwrap_or((&wanted, "1"));
    if name == point && PASSED.fetch_add(1, Ordering::Relaxed) + 1 == time.parse().unwrap_or(1) {
        eprintln!("ended at {point}, as SLUICE_CRASH says");
        std::process::abort();
    }
}
