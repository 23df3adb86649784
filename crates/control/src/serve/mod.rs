//! Who asks and tells: the list of operations, HTTP for them, and the two ends that `sluice` has of it.

pub mod client;
pub mod connections;
mod hosts;
pub mod http;
pub mod offline;
pub mod operations;
pub mod trace;
