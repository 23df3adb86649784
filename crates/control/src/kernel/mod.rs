//! What the daemon reads from and asks of the kernel: devices, addresses, routes, neighbours, sysctls, the guard.
//!
//! Synchronous on purpose: a commit is one straight line of steps. Never called from an async task.

mod address;
pub mod bpffs;
pub mod changes;
pub mod clock;
mod connection;
mod delegated;
pub mod devices;
pub mod environment;
pub mod ethtool;
pub mod guard;
pub mod instances;
pub mod ipsec;
mod lasting;
pub mod lease;
mod link;
pub mod mtus;
mod neighbour;
pub mod notices;
pub mod packet;
pub mod preflight;
pub mod process;
mod proxy;
mod route;
pub mod router_socket;
mod sender;
mod sysctl;
pub mod tags;

pub use address::Address;
pub use connection::{Kernel, KernelError};
pub use lasting::{DeviceAddress, LastingPrefix};
pub use link::Link;
pub use route::{destination, is_lasting, text as route_text};
pub use sluice_netlink::{Neighbour, parse_neighbour};
pub use sysctl::{set_sysctl, stop_forwarding, sysctl};
