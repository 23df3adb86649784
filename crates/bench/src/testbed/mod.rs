//! What is measured and what it is measured beside: gateways between hosts, ready for traffic, and the proof that they
//! did their work.

pub mod bed;
pub mod disruption;
pub mod forwarder;
pub mod forwarding;
pub mod gateway;
pub mod iperf;
pub mod ledger;
pub mod ruleset;
pub mod shares;
pub(crate) mod testpmd;
pub mod trial;
pub(crate) mod user_plane;
pub mod verify;
