//! Ctrl-C and SIGTERM: they only raise a flag, so that everything is torn down by the ordinary way out.
// Installing a signal handler is unsafe by nature; this one only stores to an atomic.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What [`check`] fails with.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

extern "C" fn note(_signal: i32) {
    REQUESTED.store(true, Ordering::Relaxed);
}

/// From here on SIGINT and SIGTERM no longer end the process; [`check`] reports them.
pub fn install() -> nix::Result<()> {
    install_with(SaFlags::SA_RESTART)
}

/// The same, but a second one ends the process: for work that does not ask often.
pub fn install_once() -> nix::Result<()> {
    install_with(SaFlags::SA_RESTART | SaFlags::SA_RESETHAND)
}

fn install_with(flags: SaFlags) -> nix::Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), flags, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: `note` is async-signal-safe and no other code here installs handlers for these signals.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether one came.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails when one came.
pub fn check() -> Result<(), Interrupted> {
    if requested() { Err(Interrupted) } else { Ok(()) }
}
