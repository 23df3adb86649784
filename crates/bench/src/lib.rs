//! The bench: what every speed figure of Sluice is measured with.
//!
//! docs/BENCH.md explains the method and what each number does and does not say.

mod args;
pub mod bed;
mod cache;
pub mod chart;
pub mod chi;
pub mod compare;
mod csv;
pub mod disturb;
pub mod echo;
pub mod environment;
pub mod frames;
pub mod gateway;
pub mod harness;
pub mod honesty;
pub mod iperf;
mod layouts;
mod link;
mod mapping;
pub mod memory;
pub mod mlr;
mod napi;
pub mod packets;
pub mod perf;
pub mod progress;
pub mod published;
mod relay;
pub mod report;
pub mod result;
pub mod ring;
mod ring_relay;
pub mod rounds;
pub mod ruleset;
pub mod run;
pub mod spread;
pub mod stats;
pub mod suites;
mod tables;
mod testpmd;
pub mod text;
pub mod trial;
pub mod verify;
pub mod watch;
pub mod way;
pub mod wire;

pub use args::{Args, main};
pub use link::Place;
