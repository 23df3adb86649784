//! Fan-out in user space: what a listener's packets are shared by, whether receivers are there, and the modes that need
//! no data plane. The kernel modes take their shares from here, too.

#![warn(missing_docs)]

pub mod counters;
mod descriptors;
mod error;
pub mod health;
mod lookup;
pub mod metrics;
mod mmsg;
pub mod names;
pub mod pool;
mod rings;
pub mod runner;
mod socket;
mod tcp;
mod threads;
pub mod tree;
mod udp;
mod watch;
pub mod yaml;

pub use error::RunnerError;
pub use names::Names;
pub use runner::Runner;
pub use watch::{Event, events, watch_file};
