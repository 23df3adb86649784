//! The bench: what every speed figure of Sluice is measured with.
//!
//! docs/BENCH.md explains the method and what each number does and does not say.

mod args;
pub mod bed;
pub mod budgets;
pub mod bulk;
pub mod environment;
pub mod frames;
pub mod gateway;
pub mod harness;
mod layouts;
mod link;
pub mod load;
mod mapping;
pub mod packets;
pub mod prog;
mod report;
pub mod rounds;
pub mod stats;
pub mod tailcall;

pub use args::{Args, main};
