//! The bench: what every speed figure of Sluice is measured with.
//!
//! docs/BENCH.md explains the method and what each number does and does not say.

#![warn(missing_docs)]

mod args;
pub mod generator;
pub mod method;
pub mod report;
pub mod suites;
mod testbed;

pub use args::{Args, main};
pub use generator::link::Target;
