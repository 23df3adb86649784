//! The bench: what every speed figure of Sluice is measured with.
//!
//! docs/BENCH.md explains the method and what each number does and does not say.

pub mod environment;
pub mod harness;
mod layouts;
mod mapping;
pub mod packets;
pub mod rounds;
pub mod stats;
