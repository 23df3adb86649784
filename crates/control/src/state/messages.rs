//! What the daemon says of itself, from where it is said to where it is sent (`system syslog`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::api::LogFields;
use crate::kernel::clock::unix_ms;

/// Messages that wait at most: those of a start, before anybody knows where they shall go.
const WAITING: usize = 1024;

/// Target of messages that are for the standard error alone: how the hosts of `system syslog` are reached is not sent to them.
pub const OWN_OUTPUTS: &str = "sluice_outputs";

/// A message, as whoever logs it has it.
#[derive(Debug)]
pub struct Said {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// A name of [`sluice_language::FACILITIES`].
    pub facility: &'static str,
    /// From 0, the gravest, as RFC 5424 6.2.1 has it.
    pub severity: u8,
    /// What has happened.
    pub text: String,
    /// What belongs to it, by name.
    pub fields: LogFields,
}

impl Said {
    /// Now, by the module that says it.
    pub fn new(module: &str, severity: u8, text: String, fields: LogFields) -> Self {
        let facility = if module.starts_with("sluice_control::commit") { "change-log" } else { "daemon" };
        Self { unix_ms: unix_ms(), facility, severity, text, fields }
    }
}

type Channel = (SyncSender<Said>, Mutex<Option<Receiver<Said>>>);

static CHANNEL: LazyLock<Channel> = LazyLock::new(|| {
    let (sender, receiver) = sync_channel(WAITING);
    (sender, Mutex::new(Some(receiver)))
});

static UNHEARD: AtomicU64 = AtomicU64::new(0);

/// Whoever says something does not wait for it to be sent.
pub fn say(said: Said) {
    // the standard error has what finds no room
    if CHANNEL.0.try_send(said).is_err() {
        UNHEARD.fetch_add(1, Ordering::Relaxed);
    }
}

/// Messages that found no room since this was asked last.
pub fn unheard() -> u64 {
    UNHEARD.swap(0, Ordering::Relaxed)
}

/// None: somebody listens already.
pub fn listen() -> Option<Receiver<Said>> {
    CHANNEL.1.lock().unwrap_or_else(PoisonError::into_inner).take()
}
