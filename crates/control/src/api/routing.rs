//! Routing protocols, as FRR tells of them.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which BGP neighbours. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BgpFilter {
    /// Only this one.
    pub neighbor: Option<IpAddr>,
}

/// A BGP neighbour.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct BgpNeighborView {
    /// Its address.
    pub neighbor: String,
    /// Its AS.
    pub peer_as: u64,
    /// Our AS for it.
    pub local_as: u64,
    /// Free text of the configuration.
    pub description: Option<String>,
    /// RFC 4271 8.2.2: `Idle`, `Connect`, `Active`, `OpenSent`, `OpenConfirm`, `Established`.
    pub state: String,
    /// Seconds that the session is up; none = it is not.
    pub up_s: Option<u64>,
    /// How often a session was lost.
    pub flaps: u64,
    /// Why the last one was.
    pub last_reset: Option<String>,
    /// Our end.
    pub local_address: Option<String>,
    /// Seconds without a word that end the session.
    pub hold_time_s: u64,
    /// Messages that came.
    pub messages_received: u64,
    /// Messages that went.
    pub messages_sent: u64,
    /// By family.
    pub families: Vec<BgpFamilyView>,
}

/// Routes of one family.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct BgpFamilyView {
    /// `inet`, `inet6` or FRR's name of another one.
    pub family: String,
    /// Routes that policies took.
    pub accepted: u64,
    /// Routes that policies told.
    pub sent: u64,
}

/// A neighbour of OSPF.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct OspfNeighborView {
    /// Its router id.
    pub router_id: String,
    /// Its address; none for OSPFv3 where FRR does not tell it.
    pub address: Option<String>,
    /// Our device.
    pub interface: String,
    /// RFC 2328 10.1: `Down`, `Init`, `2-Way`, `ExStart`, `Exchange`, `Loading`, `Full`, and its part in the network behind it.
    pub state: String,
    /// For the election.
    pub priority: u64,
    /// Seconds until it is taken for gone.
    pub dead_s: Option<u64>,
}

/// A device that OSPF runs on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct OspfInterfaceView {
    /// The device.
    pub interface: String,
    /// Its area.
    pub area: String,
    /// RFC 2328 9.1: `DR`, `Backup`, `DROther`, `Point-To-Point`, `Waiting`, `Down`.
    pub state: String,
    /// What a packet by it costs.
    pub cost: u64,
    /// Neighbours heard of.
    pub neighbors: u64,
    /// Neighbours with the same database.
    pub adjacent: u64,
}

/// A BFD session (RFC 5880).
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct BfdSessionView {
    /// The other end.
    pub peer: String,
    /// Our end, where it is fixed.
    pub local: Option<String>,
    /// The device, of sessions with a neighbour.
    pub interface: Option<String>,
    /// `up`, `down`, `init` or `shutdown`
    pub state: String,
    /// Seconds that it is up; none = it is not.
    pub up_s: Option<u64>,
    /// Milliseconds between our packets.
    pub transmit_ms: u64,
    /// Milliseconds between packets that we want.
    pub receive_ms: u64,
    /// Packets missed in a row that end it.
    pub multiplier: u64,
}

/// Which sessions to begin anew.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClearBgpRequest {
    /// Only this neighbour's.
    pub neighbor: Option<IpAddr>,
    /// Every neighbour's.
    #[serde(default)]
    pub all: bool,
    /// Policies are asked once more, and no session ends.
    #[serde(default)]
    pub soft: bool,
}

/// What was begun anew.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct BgpCleared {
    /// How many neighbours.
    pub neighbors: u64,
}
