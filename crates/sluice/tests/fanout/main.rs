//! `sluice fanout` between a sender and real receivers, in every mode.

#[path = "../common/mod.rs"]
mod common;

mod bed;
mod kernel;
mod modes;
mod rings;
mod user;
mod wrong;
