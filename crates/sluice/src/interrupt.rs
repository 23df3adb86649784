//! Ctrl-C ends the command that runs, never the shell; who asks others to end may do so in order.
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
    install_for(&[Signal::SIGINT])
}

/// The same of everything by which somebody asks a process to end.
pub fn install_all() -> nix::Result<()> {
    install_for(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])
}

fn install_for(signals: &[Signal]) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    // SAFETY: `note` is async-signal-safe and nothing else of this program handles the signals.
    signals.iter().try_for_each(|signal| unsafe { sigaction(*signal, &action) }.map(drop))
}

pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The next command begins anew.
pub fn forget() {
    REQUESTED.store(false, Ordering::Relaxed);
}
