//! What is said of translation.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is configured of translation, and what it did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatView {
    /// In configuration order: source, destination, static and NAT64 rules.
    pub rules: Vec<NatRuleView>,
    /// Source pools, and the one that stands for addresses of interfaces.
    pub pools: Vec<NatPoolView>,
    /// In configuration order.
    pub destination_pools: Vec<NatTargetView>,
    /// Addresses that this host answers for besides its own.
    pub proxied: Vec<NatProxyView>,
    /// Bindings of persistent-nat, and how many there may be.
    #[serde(default)]
    pub bindings: u32,
    /// Most there may be.
    #[serde(default)]
    pub bindings_limit: u32,
    /// NAT64's packets that were to be fragmented.
    #[serde(default)]
    pub unfragmented: NatUnfragmentedView,
}

/// Packets that NAT64 was to fragment and that did not leave whole, since the daemon started.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatUnfragmentedView {
    /// They waited for more than a second.
    pub late: u64,
    /// They would end beyond the longest datagram.
    pub malformed: u64,
    /// The queue of the device they leave by was full.
    pub busy: u64,
    /// The kernel refused them: the device is gone or down.
    pub refused: u64,
}

/// The table of persistent-nat.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatBindingsView {
    /// Most there may be.
    pub limit: u32,
    /// By inside address and port.
    pub bindings: Vec<NatBindingView>,
}

/// An inside endpoint and the outside one that it keeps.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NatBindingView {
    /// `tcp`, `udp`, `icmp`, `icmp6`
    pub protocol: String,
    /// The endpoint inside.
    pub internal_address: IpAddr,
    /// Its port, or identifier of an ICMP echo.
    pub internal_port: u16,
    /// What it appears with outside.
    pub reflexive_address: IpAddr,
    /// Its port there.
    pub reflexive_port: u16,
    /// `any-remote-host`, `target-host`, `target-host-port`
    pub kind: String,
    /// `SET RULE`
    pub rule: String,
    /// Live ones, to the second, and the most there may be.
    pub sessions: u32,
    /// Most there may be at one time.
    pub max_sessions: u32,
    /// Seconds until it ends; none while it has sessions.
    pub left_s: Option<u32>,
    /// Seconds without a session after which it ends.
    pub timeout_s: u32,
}

/// Which bindings to end; without any of these, all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NatBindingFilter {
    /// Address of the endpoint inside.
    pub internal_address: Option<IpAddr>,
    /// Port of the endpoint inside.
    pub internal_port: Option<u16>,
}

/// A rule and what it did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatRuleView {
    /// `source`, `destination`, `static`, `nat64`
    pub kind: String,
    /// That it stands in.
    pub rule_set: String,
    /// As the configuration has it.
    pub name: String,
    /// By which the data plane knows it.
    pub id: u32,
    /// `zone trust`; the second of source rules only.
    pub from: String,
    /// `zone untrust`, of source rules.
    pub to: Option<String>,
    /// As ranges; empty = any.
    pub source: Vec<String>,
    /// As ranges; empty = any.
    pub destination: Vec<String>,
    /// Names; empty = any.
    pub applications: Vec<String>,
    /// What it does to a packet that matches.
    pub action: String,
    /// First packets that it matched.
    pub hits: u64,
    /// Sessions made, and those of them that live.
    pub sessions: u64,
    /// That it made and that go on.
    pub live_sessions: u64,
    /// First packets dropped because nothing was free.
    pub failed: u64,
}

/// A source pool and how much of it is in use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatPoolView {
    /// `(interface)` for addresses of interfaces.
    pub name: String,
    /// By which the data plane knows it.
    pub id: u32,
    /// As ranges.
    pub addresses: Vec<String>,
    /// How many it has.
    pub total_addresses: u64,
    /// None = they stay as they are.
    pub ports: Option<(u16, u16)>,
    /// A source keeps its address for all its sessions.
    pub paired: bool,
    /// Source address that has the pool's first address, the others in step.
    pub host_address_base: Option<String>,
    /// Name of a pool, or `interface`.
    pub overflow: Option<String>,
    /// Of live sessions: different addresses; different addresses, protocols and ports; sessions.
    pub addresses_in_use: u64,
    /// Different addresses, protocols and ports.
    pub ports_in_use: u64,
    /// That it serves.
    pub live_sessions: u64,
    /// Since the tables were made.
    pub allocated: u64,
    /// Packets that found nothing free, and those of them that the overflow pool served.
    pub exhausted: u64,
    /// Those that the overflow pool served.
    pub overflowed: u64,
    /// Candidates that were taken.
    pub searched: u64,
}

/// A destination pool.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatTargetView {
    /// As the configuration has it.
    pub name: String,
    /// As a range.
    pub addresses: String,
    /// None = it stays as it is.
    pub port: Option<u16>,
}

/// Addresses answered for on an interface.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatProxyView {
    /// `NAME.UNIT`
    pub interface: String,
    /// As a range.
    pub addresses: String,
}

/// A first packet and the units it passes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatQuery {
    /// Unit it arrives on, `NAME.UNIT`.
    pub from_interface: String,
    /// Unit it leaves by, as the route to the translated destination says.
    pub to_interface: String,
    /// Its source address.
    pub source_ip: String,
    /// Its destination address, of the same family.
    pub destination_ip: String,
    /// `tcp`, `udp`, `icmp`, `icmp6` or a number.
    pub protocol: String,
    /// Its source port.
    #[serde(default)]
    pub source_port: u16,
    /// Its destination port.
    #[serde(default)]
    pub destination_port: u16,
}

/// What the rules make of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatMatchView {
    /// `SET RULE`
    pub destination_rule: Option<String>,
    /// Address behind translation.
    pub destination: String,
    /// Port behind translation.
    pub destination_port: u16,
    /// `SET RULE`
    pub source_rule: Option<String>,
    /// Of static NAT; else the pool chooses, or it stays as it is.
    pub source: Option<String>,
    /// Of static NAT; else the pool chooses, or it stays as it is.
    pub source_port: Option<u16>,
    /// `interface`, or the name of the pool.
    pub pool: Option<String>,
}
