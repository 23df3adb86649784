//! The monitor: passive analysis of MACsec, IPsec and GTP-U links, without keys.
//!
//! The path of a packet: `capture` yields frames in batches, `protocol` turns a frame into an [`observation`] (channel,
//! sequence number) or a named reason why it is none, `channel` keeps what is known of every secure channel, and
//! `analysis` drives the three and hands results, interval by interval, to a [`summary::Sink`].
//! docs/MONITOR.md tells an operator how to read them.

#![warn(missing_docs)]

pub mod analysis;
pub mod anomaly;
pub mod args;
mod beside;
pub mod capture;
pub mod channel;
pub mod compare;
pub mod frame;
pub mod generate;
pub mod observation;
pub mod protocol;
mod replay;
pub mod report;
pub mod results;
pub mod serve;
pub mod slice;
pub mod summary;
