//! How is measured: rounds and trials, what the machine did meanwhile, what makes a figure, and what forbids to believe it.

pub(crate) mod affinity;
pub(crate) mod budget;
pub(crate) mod cache;
pub mod chart;
pub mod checks;
pub(crate) mod chi;
pub mod document;
pub mod environment;
pub(crate) mod findings;
pub mod judge;
pub(crate) mod memory;
pub mod mlr;
pub(crate) mod number;
pub(crate) mod perf;
pub mod progress;
pub mod result;
pub(crate) mod rounds;
pub mod run;
pub mod stats;
pub mod suite;
pub(crate) mod watch;
