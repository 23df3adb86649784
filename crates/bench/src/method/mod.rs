//! How is measured: rounds and trials, what the machine did meanwhile, what makes a figure, and what forbids to believe it.

pub(crate) mod affinity;
pub mod budget;
mod cache;
pub mod chart;
pub mod checks;
pub mod chi;
pub mod document;
pub mod environment;
pub mod findings;
pub mod judge;
pub mod memory;
pub mod mlr;
pub mod number;
pub mod perf;
pub mod progress;
pub mod result;
pub mod rounds;
pub mod run;
pub mod stats;
pub mod suite;
pub mod watch;
