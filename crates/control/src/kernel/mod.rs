//! What the daemon reads from and asks of the kernel: devices, addresses, routes, neighbours, sysctls, the guard.
//!
//! Synchronous on purpose: a commit is one straight line of steps. Never called from an async task.

mod address;
pub mod bpffs;
pub mod changes;
pub mod clock;
mod connection;
pub mod devices;
pub mod environment;
pub mod ethtool;
pub mod guard;
pub mod ipsec;
mod link;
pub mod mtus;
mod neighbour;
pub mod notices;
pub mod preflight;
pub mod process;
mod proxy;
mod route;
mod sender;
mod sysctl;
pub mod tags;

pub use address::Address;
pub use connection::{Kernel, KernelError};
pub use link::Link;
pub use route::text as route_text;
pub use sluice_netlink::{Neighbour, parse_neighbour};
pub use sysctl::{set_sysctl, stop_forwarding, sysctl};
