//! Dropped packets, one by one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which of them to tell. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecentDropsQuery {
    /// How many of the newest; all when not given.
    pub last: Option<usize>,
    /// Address or prefix of the source or the destination.
    pub prefix: Option<String>,
    /// Name or number.
    pub protocol: Option<String>,
    /// Of the source or the destination.
    pub port: Option<u16>,
    /// Unit, or device that has none.
    pub interface: Option<String>,
    /// Zone they came from.
    pub zone: Option<String>,
    /// Why they were dropped, by name.
    pub reason: Option<String>,
}

/// Dropped packets of the last minutes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RecentDrops {
    /// Newest first.
    pub drops: Vec<RecentDrop>,
    /// Packets of this time that were dropped beyond the rate at which they are told one by one: counted, and no more known.
    pub untold: u64,
    /// How long after its last packet a drop is told, in seconds.
    pub kept_s: u64,
}

/// Packets that were dropped for one reason and have one tuple.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct RecentDrop {
    /// When the first of them came, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// When the last of them came.
    pub last_unix_ms: u64,
    /// Packets that were told; GSO packets by segments.
    pub packets: u64,
    /// Unit; the device, where none is configured for the frame.
    pub interface: String,
    /// `ingress` or `egress`
    pub hook: String,
    /// Tags of the frame, `100` or `100.7`.
    pub vlan: Option<String>,
    /// None where the frame belongs to no unit of a zone.
    pub from_zone: Option<String>,
    /// Once the packet has been routed.
    pub to_zone: Option<String>,
    /// Stage that dropped them.
    pub stage: String,
    /// Why, as counters name it.
    pub reason: String,
    /// What the reason means.
    pub help: String,
    /// As the packet had it when it was dropped; none where it is not IP.
    pub source: Option<String>,
    /// Or identifier of an ICMP echo.
    pub source_port: Option<u16>,
    /// As the packet had it when it was dropped; none where it is not IP.
    pub destination: Option<String>,
    /// None where the protocol has no ports.
    pub destination_port: Option<u16>,
    /// Name or number.
    pub protocol: Option<String>,
    /// Type and code, of ICMP and ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// Of the last packet, such as `syn ack`.
    pub tcp_flags: Option<String>,
    /// What is known of packets that are not IP: EtherType and MAC addresses.
    pub frame: Option<String>,
    /// Policy that decided; `default-policy` where none matched.
    pub policy: Option<String>,
    /// `SET RULE` of destination or static NAT that matched.
    pub nat_destination_rule: Option<String>,
    /// `SET RULE` of source NAT that matched.
    pub nat_source_rule: Option<String>,
    /// Where the policy stands in the configuration, `FILE:LINE`.
    pub place: Option<String>,
}
