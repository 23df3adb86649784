//! Network namespaces: made, entered by threads and commands, and removed with what runs in them.
//!
//! A [`Namespace`] is a descriptor. One without a name vanishes with it and with the threads inside, also when its process
//! is killed. A [`Netns`] has a name, by which other programs find it; it is removed when it is dropped, together with
//! the processes that run in it. [`here`] is what a thread does to the namespace that it is in.
#![warn(missing_docs)]

mod command;
mod descriptor;
pub mod here;
mod leftovers;
mod named;
mod veth;

use std::io;
use std::process::ExitStatus;

pub use descriptor::{Namespace, all, in_thread};
pub use leftovers::{is_alive, names, remove_by_prefix, remove_leftovers};
pub use named::Netns;
pub use veth::{VethEnd, veth, veth_of_queues};

/// Where named namespaces are bound, by the convention of iproute2.
pub const DIRECTORY: &str = "/run/netns";

/// What went wrong, where, and what helps.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the fields of its variants are what their messages name")]
pub enum Error {
    #[error(
        "cannot {action} network namespace {name}: {source}; run as root with CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    /// A namespace cannot be made, entered or removed.
    Namespace { action: &'static str, name: String, source: io::Error },
    /// A command cannot be started.
    #[error("cannot start `{command}`: {source}; `scripts/setup.sh` installs what the lab needs")]
    Start { command: String, source: io::Error },
    /// A command ended with an error.
    #[error("`{command}` failed in {place} ({status}): {stderr}")]
    Command { command: String, place: String, status: ExitStatus, stderr: String },
    /// `ip -batch` refused one of its lines.
    #[error("ip: {said}\nof: {failed}")]
    Lines { said: String, failed: String },
    /// A sysctl cannot be written.
    #[error("cannot set {key}={value} in {name}: {source}")]
    Sysctl { key: String, value: String, name: String, source: io::Error },
    /// A device is not there.
    #[error("cannot find device {device} in {name}: {source}")]
    Device { device: String, name: String, source: io::Error },
}

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests;
