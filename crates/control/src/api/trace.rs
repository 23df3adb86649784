//! Packets on their way through the gateway.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which packets to trace or capture. Empty fields match everything; a packet fits as it comes, or as it leaves.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TraceFilter {
    /// Address or prefix of the source, or of the destination of packets in the other direction.
    pub source_prefix: Option<String>,
    /// Address or prefix of the destination, or of the source of packets in the other direction.
    pub destination_prefix: Option<String>,
    /// Address or prefix of the source or the destination.
    pub prefix: Option<String>,
    /// Name or number.
    pub protocol: Option<String>,
    /// Of the source, or of the destination of packets in the other direction.
    pub source_port: Option<u16>,
    /// Of the destination, or of the source of packets in the other direction.
    pub destination_port: Option<u16>,
    /// Of the source or the destination.
    pub port: Option<u16>,
    /// Zone they come from; of this host's own packets, the one they go to.
    pub zone: Option<String>,
    /// Unit they arrive on; of this host's own packets, the one they leave by.
    pub interface: Option<String>,
}

/// A packet that the gateway has looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedPacket {
    /// When it came, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// `xdp`, `tc` or `egress`
    pub hook: String,
    /// Unit; the device, where none is configured for the frame.
    pub interface: String,
    /// Zone it came from; `junos-host` of what this host sends.
    pub from_zone: Option<String>,
    /// Zone it goes to, where that was found.
    pub to_zone: Option<String>,
    /// Of the frame, in bytes.
    pub length: u32,
    /// What it was when it came.
    pub packet: TracedHeaders,
    /// What it was when it left, where that differs.
    pub leaves_as: Option<TracedHeaders>,
    /// Phases in their order, with what they came to.
    pub phases: Vec<TracedPhase>,
    /// `forwarded`, `delivered` (to this host), `sent` (by this host), `handed-off` (to the kernel, which asks for the neighbour),
    /// `cut` (to the daemon, which fragments it), `answered` (and dropped) or `dropped`
    pub verdict: String,
    /// Why it was dropped.
    pub reason: Option<String>,
    /// The stage that dropped it.
    pub stage: Option<String>,
    /// What the reason means.
    pub help: Option<String>,
    /// Policy that decided; `default-policy` where none matched.
    pub policy: Option<String>,
    /// Where the policy stands in the configuration, `FILE:LINE`.
    pub place: Option<String>,
    /// `SET RULE` of destination or static NAT that matched.
    pub nat_destination_rule: Option<String>,
    /// `SET RULE` of source NAT that matched.
    pub nat_source_rule: Option<String>,
    /// Of the session that it belongs to.
    pub session: Option<u32>,
    /// Unit that it leaves by.
    pub out_interface: Option<String>,
    /// Neighbour that it is sent to.
    pub next_hop: Option<String>,
    /// Number of the commit that judged it.
    pub generation: u32,
    /// All of it in a line.
    pub summary: String,
}

/// What the headers of a packet say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedHeaders {
    /// Address.
    pub source: Option<String>,
    /// None of later fragments, and of protocols without ports.
    pub source_port: Option<u16>,
    /// Address.
    pub destination: Option<String>,
    /// As the source's.
    pub destination_port: Option<u16>,
    /// Name, or number where there is none.
    pub protocol: Option<String>,
    /// Type and code, of ICMP and ICMPv6.
    pub icmp: Option<(u8, u8)>,
    /// Such as `syn ack`.
    pub tcp_flags: Option<String>,
    /// What is known of packets that are not IP: EtherType and MAC addresses.
    pub frame: Option<String>,
}

/// A phase of the packet's way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracedPhase {
    /// `fast`, `admit`, `judge`, `record`, `leave` or `egress`
    pub phase: String,
    /// Stages that it met there.
    pub stages: Vec<String>,
    /// What they came to.
    pub notes: Vec<String>,
}
