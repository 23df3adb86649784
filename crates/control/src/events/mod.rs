//! What comes up while a configuration is in force: the kernel tells of changes, the data plane hands over, time passes. Each
//! has a thread of its own, and none waits for a commit to be asked for.

pub mod confirm;
mod delegated;
mod departures;
pub mod dhcp;
pub mod dhcp_server;
pub mod drops;
pub mod fan_out;
pub mod frr;
pub mod log;
mod ours;
pub mod oversize;
pub mod router_advertisement;
pub mod ruleset;
pub mod schedules;
pub mod syslog;
pub mod tunnels;
pub mod upkeep;
pub mod watch;
