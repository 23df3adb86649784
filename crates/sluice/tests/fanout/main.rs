//! `sluice fanout` between a sender and real receivers, in every mode.

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod kernel;
mod user;
mod wrong;
