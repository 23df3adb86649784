//! What is in force and what is written down: the active commit, the state directory with the commits before it and the
//! candidate, the log of sessions; and the way from a configuration's text to its plan.

pub mod active;
pub mod advertised;
pub mod archive;
pub mod config;
pub mod dhcp_server;
pub mod draft;
pub mod error;
pub mod files;
pub mod messages;
pub mod pins;
pub mod recent_drops;
pub mod session_log;
pub mod store;
pub mod unfragmented;
