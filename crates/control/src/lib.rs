//! The daemon: it makes a configuration what the kernel and the data plane do, and keeps it so.
//!
//! [`Daemon::run`] is `sluice run`; [`Client`] is how every other command talks to it.

#![warn(missing_docs)]

pub mod api;
mod commit;
mod daemon;
mod events;
mod functions;
mod kernel;
mod serve;
mod state;
mod views;

pub use commit::rehearsal::{LoadsError, loads as check_loads};
pub use daemon::{Daemon, DaemonError, Options, Restored, Translate, cleanup, guard_at_boot, restore};
pub use functions::CommitError;
pub use functions::asked::{AskedError, asked as check_asked};
pub use kernel::environment::owned as owned_devices;
pub use kernel::preflight::{PreflightError, machine as check_machine};
pub use kernel::process::ssh_connection;
pub use serve::client::{Client, ClientError};
pub use serve::offline::{OfflineError, answer as offline_answer};
pub use serve::operations;
pub use serve::trace::{TraceError, TraceOptions, Tracer};
pub use sluice_dataplane::{Traced, TracedFrame, Untold};
pub use state::config::{CheckError, check};
pub use state::messages::{OWN_OUTPUTS, Said, say};
pub use state::store::{DEFAULT_STATE_DIR, socket_path};
pub use views::matching::planned as match_planned;
pub use views::nat::planned as nat_planned;

/// Two threads serve HTTP and rtnetlink; commits and sweeps have their own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
