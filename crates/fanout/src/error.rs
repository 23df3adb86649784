//! Why listeners cannot run.

use std::io;
use std::net::SocketAddr;

/// Why user-space listeners are not put in force; those before stay as they were.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum RunnerError {
    #[error("listener {listener}: {address} is in use; end who has it, or choose another port")]
    InUse { listener: String, address: SocketAddr },
    #[error("listener {listener}: cannot listen on {address}: {source}; {advice}")]
    Listen { listener: String, address: SocketAddr, source: io::Error, advice: &'static str },
    #[error("listener {listener}: interface {interface} does not exist here; correct the name, or create it")]
    NoInterface { listener: String, interface: String },
    #[error("listener {listener}: mode {mode} cannot run here: {reason}")]
    Mode { listener: String, mode: &'static str, reason: String },
    #[error("cannot start a thread: {0}; check the limits of the process")]
    Thread(io::Error),
}

impl RunnerError {
    /// Which listener is at fault.
    pub fn listener(&self) -> Option<&str> {
        match self {
            Self::InUse { listener, .. }
            | Self::Listen { listener, .. }
            | Self::NoInterface { listener, .. }
            | Self::Mode { listener, .. } => Some(listener),
            Self::Thread(_) => None,
        }
    }
}
