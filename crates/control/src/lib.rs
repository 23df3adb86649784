//! The daemon: it makes a configuration what the kernel and the data plane do, and keeps it so.
//!
//! [`Daemon::run`] is `sluice run`; [`Client`] is how every other command talks to it.

pub mod api;
mod audit;
mod bindings;
mod bpffs;
mod changes;
mod client;
mod commit;
mod config;
mod connections;
mod daemon;
mod devices;
mod environment;
mod error;
mod fan_out;
mod functions;
pub mod gate;
mod hosts;
mod http;
mod kernel;
mod local;
mod log;
mod matching;
mod metrics;
mod mtus;
mod nat;
mod notes;
mod offline;
pub mod operations;
mod oversize;
mod owner;
mod prefix;
mod preflight;
mod refusals;
mod rehearsal;
mod ruleset;
mod schedules;
mod session_log;
mod sessions;
mod shared;
mod start;
mod store;
mod tags;
mod tunnels;
mod upkeep;
mod views;
mod watch;

pub use client::{Client, ClientError};
pub use config::{CheckError, check};
pub use daemon::{Daemon, Options, Translate, cleanup};
pub use functions::CommitError;
pub use matching::planned as match_planned;
pub use nat::planned as nat_planned;
pub use offline::{OfflineError, answer as offline_answer};
pub use preflight::{PreflightError, machine as check_machine};
pub use rehearsal::{LoadsError, loads as check_loads};
pub use start::DaemonError;
pub use store::DEFAULT_STATE_DIR;

/// Two threads serve HTTP and rtnetlink; commits and sweeps have their own.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}
