//! What is said of the user plane and its sessions.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DropView;

/// A session that is asked for. Only whoever may change the gateway can.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GtpuSessionRequest {
    /// Of no other session: up to 63 letters, digits, `-`, `_`, `.`, `:` and `/`.
    pub name: String,
    /// That the gateway is reached under, 1 to 4294967295; one that is free when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teid: Option<u32>,
    /// IPv4 address of the subscriber, out of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// IPv6 prefix of the subscriber, like `2001:db8:45:1::/64`, out of a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What comes under the TEID goes on into the peer's tunnel as it is (N9 in the middle): there is no subscriber here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub relay: bool,
    /// Address of the other end of the tunnel.
    pub peer: String,
    /// TEID that the other end is reached under.
    pub peer_teid: u32,
    /// Address of the gateway that the tunnel has; the first that fits the peer when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_address: Option<String>,
    /// Rules of the configuration that its packets meet; none when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<String>,
    /// Bytes from the subscriber that may pass in all; no limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_quota: Option<u64>,
    /// Bytes to the subscriber that may pass in all; no limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downlink_quota: Option<u64>,
    /// Seconds from now on after which nothing passes; no limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_quota_s: Option<u64>,
    /// The session log tells each time that another so many bytes from the subscriber have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_threshold: Option<u64>,
    /// The session log tells each time that another so many bytes to the subscriber have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downlink_threshold: Option<u64>,
    /// The session log tells each time that another so many bytes of both directions have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_threshold: Option<u64>,
    /// The session log tells each time that another so many seconds have passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_threshold_s: Option<u64>,
}

/// What was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuAdded {
    /// Sessions.
    pub added: u64,
    /// TEIDs that the gateway is reached under, in the order of the request; of the first 1000.
    pub teids: Vec<u32>,
}

/// What shall be different of a session. What is left out stays.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GtpuChangeRequest {
    /// Which session.
    pub name: String,
    /// Address of the other end of the tunnel.
    pub peer: Option<String>,
    /// TEID that the other end is reached under.
    pub peer_teid: Option<u32>,
    /// Address of the gateway that the tunnel has.
    pub local_address: Option<String>,
    /// Rules that its packets meet; the empty name takes them away.
    pub rules: Option<String>,
    /// Bytes from the subscriber that may pass in all, those that have passed included; 0 takes the limit away.
    pub uplink_quota: Option<u64>,
    /// Bytes to the subscriber that may pass in all, those that have passed included; 0 takes the limit away.
    pub downlink_quota: Option<u64>,
    /// Seconds since the session was made after which nothing passes; 0 takes the limit away.
    pub time_quota_s: Option<u64>,
    /// Bytes from the subscriber of which each other so many are told; 0: none are.
    pub uplink_threshold: Option<u64>,
    /// Bytes to the subscriber of which each other so many are told; 0: none are.
    pub downlink_threshold: Option<u64>,
    /// Bytes of both directions of which each other so many are told; 0: none are.
    pub total_threshold: Option<u64>,
    /// Seconds of which each other so many are told; 0: none are.
    pub time_threshold_s: Option<u64>,
}

/// What was changed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuChanged {
    /// Sessions.
    pub changed: u64,
}

/// Which sessions shall end: exactly one of these. Those of the configuration end with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GtpuRemoveRequest {
    /// The session of this name.
    pub name: Option<String>,
    /// All sessions of this peer.
    pub peer: Option<String>,
    /// Every session that was made over this interface.
    #[serde(default)]
    pub all: bool,
}

/// What has ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuRemoved {
    /// Sessions.
    pub removed: u64,
    /// All that passed of each of the first 1000.
    pub usage: Vec<GtpuUsageView>,
}

/// Which sessions to list. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GtpuFilter {
    /// The session of this name.
    pub name: Option<String>,
    /// That the gateway is reached under.
    pub teid: Option<u32>,
    /// Of the subscriber: its IPv4 address, or one out of its prefix.
    pub address: Option<IpAddr>,
    /// Address of the other end of the tunnel.
    pub peer: Option<IpAddr>,
    /// Rules that its packets meet.
    pub rules: Option<String>,
    /// How many matches to leave out.
    pub offset: Option<usize>,
    /// How many matches to list at most: 1,000 when not given.
    pub limit: Option<usize>,
}

/// Sessions that match a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuSessionList {
    /// How many match altogether.
    pub total: u64,
    /// The part that was asked for.
    pub sessions: Vec<GtpuSessionView>,
}

/// A session.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuSessionView {
    /// `-` of one that nobody has written down.
    pub name: String,
    /// The configuration has it; else it was made over this interface.
    pub by_configuration: bool,
    /// That the gateway is reached under.
    pub teid: u32,
    /// IPv4 address of the subscriber.
    pub address: Option<String>,
    /// IPv6 prefix of the subscriber.
    pub prefix: Option<String>,
    /// Address of the gateway that the tunnel has.
    pub local_address: String,
    /// The other end of the tunnel.
    pub peer: String,
    /// TEID that the other end is reached under.
    pub peer_teid: u32,
    /// Unit that the subscriber is behind.
    pub interface: Option<String>,
    /// Rules that its packets meet.
    pub rules: Option<String>,
    /// Of packets to the peer; none = they have no PDU Session Container.
    pub qfi: Option<u8>,
    /// What passed.
    pub usage: GtpuUsageView,
}

/// What passed of a session, in inner IP packets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuUsageView {
    /// Of the session.
    pub name: String,
    /// From the subscriber.
    pub uplink_bytes: u64,
    /// From the subscriber.
    pub uplink_packets: u64,
    /// Bytes from the subscriber that may pass in all; none = no limit.
    pub uplink_quota: Option<u64>,
    /// To the subscriber.
    pub downlink_bytes: u64,
    /// To the subscriber.
    pub downlink_packets: u64,
    /// Bytes to the subscriber that may pass in all; none = no limit.
    pub downlink_quota: Option<u64>,
    /// How often a threshold was told of.
    pub reports: u64,
    /// What was told last.
    pub last_report: Option<GtpuReportView>,
    /// Of flows of its rules, by precedence, since the session has them; what belongs to no flow is in none of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<GtpuFlowView>,
}

/// What was told of a session's usage.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuReportView {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// `volume-threshold`, `time-threshold`, `time-quota`; several with a comma between.
    pub trigger: String,
    /// From the subscriber, until then.
    pub uplink_bytes: u64,
    /// To the subscriber, until then.
    pub downlink_bytes: u64,
}

/// What passed of a flow of a session, in inner IP packets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuFlowView {
    /// As the rules have it.
    pub name: String,
    /// From the subscriber.
    pub uplink_bytes: u64,
    /// To the subscriber.
    pub downlink_bytes: u64,
}

/// What passed of sessions that match a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuUsageList {
    /// How many match altogether.
    pub total: u64,
    /// From all their subscribers.
    pub uplink_bytes: u64,
    /// From all their subscribers.
    pub uplink_packets: u64,
    /// To all their subscribers.
    pub downlink_bytes: u64,
    /// To all their subscribers.
    pub downlink_packets: u64,
    /// The part that was asked for.
    pub sessions: Vec<GtpuUsageView>,
}

/// Another end of tunnels.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuPeerView {
    /// Its address.
    pub peer: String,
    /// Address of the gateway that its tunnels have.
    pub local_address: String,
    /// Directions of sessions that lead there.
    pub directions: u32,
    /// Messages that came from there.
    pub received: u64,
    /// Seconds since the last of them; none = there was none.
    pub idle_s: Option<u64>,
}

/// A unit that tunnels end on.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuInterfaceView {
    /// As the configuration has it.
    pub unit: String,
    /// `n3`, `n9`, `s1-u`
    pub role: String,
    /// Where tunnels end.
    pub addresses: Vec<String>,
}

/// Addresses of subscribers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuPoolView {
    /// As the configuration has it.
    pub name: String,
    /// What sessions have addresses of.
    pub prefixes: Vec<String>,
    /// Unit that they are behind.
    pub interface: String,
}

/// The user plane as a whole.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuView {
    /// How much of it there is.
    pub counts: GtpuCounts,
    /// Where tunnels end.
    pub interfaces: Vec<GtpuInterfaceView>,
    /// Who subscribers are.
    pub pools: Vec<GtpuPoolView>,
    /// Packets of tunnels that were dropped, by reason; those that are zero are left out.
    pub drops: Vec<DropView>,
}

/// How much there is of the user plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuCounts {
    /// Sessions that there are.
    pub sessions: u64,
    /// Those of them that the configuration has.
    pub by_configuration: u64,
    /// Most there may be; 0 = there is no user plane.
    pub limit: u64,
    /// Other ends of their tunnels.
    pub peers: u64,
    /// Reports of usage since the daemon started.
    #[serde(default)]
    pub reports: u64,
    /// CPUs that packets in tunnels are spread to; empty where they are not.
    #[serde(default)]
    pub spread: Vec<GtpuSpreadView>,
}

/// A CPU that goes on with packets that others took from their devices.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GtpuSpreadView {
    /// The kernel's number of it.
    pub cpu: u32,
    /// Packets that it had from other CPUs; those that were its own from the start are not among them.
    pub packets: u64,
    /// Packets that wait for it.
    pub waiting: u64,
}
