//! The bench: what every speed figure of Sluice is measured with.
//!
//! docs/BENCH.md explains the method and what each number does and does not say.

pub mod bed;
pub mod bulk;
pub mod environment;
pub mod frames;
pub mod gateway;
pub mod harness;
mod layouts;
mod link;
mod mapping;
pub mod packets;
pub mod prog;
pub mod rounds;
pub mod stats;
pub mod tailcall;
