//! Ctrl-C ends the command that runs, never the shell.
// Installing a signal handler is unsafe by nature; this one only stores to an atomic.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// From here on SIGINT does not end the process. System calls that wait return, so that what waits can look.
pub fn install() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    // SAFETY: `note` is async-signal-safe and nothing else of this program handles the signal.
    unsafe { sigaction(Signal::SIGINT, &action) }.map(drop)
}

pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The next command begins anew.
pub fn forget() {
    REQUESTED.store(false, Ordering::Relaxed);
}
