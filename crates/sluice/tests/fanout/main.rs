//! `sluice fanout` between a sender and real receivers, in every mode.

mod bed;
mod dns;
mod kernel;
mod modes;
mod names;
mod pairs;
mod reload;
mod rings;
mod user;
mod wrong;
