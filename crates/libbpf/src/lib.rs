//! Links, programs and maps by descriptor: what of libbpf libbpf-rs has no safe form of, and the one place that calls its C
//! interface.
//!
//! [`Link`] attaches a program to a device, and lives on where it is pinned. [`device`] tells what is attached, [`program`]
//! what a program is, [`map`] makes maps that no object file declares. [`run`] runs programs without a device, [`btf`] reads
//! type information.
#![warn(missing_docs)]

pub mod btf;
mod call;
pub mod device;
mod link;
pub mod map;
mod pin;
pub mod program;
pub mod run;

pub use device::XdpMode;
pub use link::{Link, LinkDetails, Target};
pub use pin::pin;
