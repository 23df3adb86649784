//! What is said of translation.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatView {
    /// In configuration order: source, destination, static and NAT64 rules.
    pub rules: Vec<NatRuleView>,
    /// Source pools, and the one that stands for addresses of interfaces.
    pub pools: Vec<NatPoolView>,
    pub destination_pools: Vec<NatTargetView>,
    /// Addresses that this host answers for besides its own.
    pub proxied: Vec<NatProxyView>,
    /// Bindings of persistent-nat, and how many there may be.
    #[serde(default)]
    pub bindings: u32,
    #[serde(default)]
    pub bindings_limit: u32,
}

/// The table of persistent-nat.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatBindingsView {
    pub limit: u32,
    /// By inside address and port.
    pub bindings: Vec<NatBindingView>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NatBindingView {
    /// `tcp`, `udp`, `icmp`, `icmp6`
    pub protocol: String,
    /// The endpoint inside.
    pub internal_address: IpAddr,
    pub internal_port: u16,
    /// What it appears with outside.
    pub reflexive_address: IpAddr,
    pub reflexive_port: u16,
    /// `any-remote-host`, `target-host`, `target-host-port`
    pub kind: String,
    /// `SET RULE`
    pub rule: String,
    /// Live ones, to the second, and the most there may be.
    pub sessions: u32,
    pub max_sessions: u32,
    /// Seconds until it ends; none while it has sessions.
    pub left_s: Option<u32>,
    pub timeout_s: u32,
}

/// Which bindings to end; without any of these, all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatBindingFilter {
    /// Address of the endpoint inside.
    pub internal_address: Option<IpAddr>,
    /// Port of the endpoint inside.
    pub internal_port: Option<u16>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatRuleView {
    /// `source`, `destination`, `static`, `nat64`
    pub kind: String,
    pub rule_set: String,
    pub name: String,
    pub id: u32,
    /// `zone trust`; the second of source rules only.
    pub from: String,
    pub to: Option<String>,
    /// As ranges; empty = any.
    pub source: Vec<String>,
    pub destination: Vec<String>,
    pub applications: Vec<String>,
    pub action: String,
    /// First packets that it matched.
    pub hits: u64,
    /// Sessions made, and those of them that live.
    pub sessions: u64,
    pub live_sessions: u64,
    /// First packets dropped because nothing was free.
    pub failed: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatPoolView {
    /// `(interface)` for addresses of interfaces.
    pub name: String,
    pub id: u32,
    pub addresses: Vec<String>,
    pub total_addresses: u64,
    /// None = they stay as they are.
    pub ports: Option<(u16, u16)>,
    pub paired: bool,
    pub host_address_base: Option<String>,
    /// Name of a pool, or `interface`.
    pub overflow: Option<String>,
    /// Of live sessions: different addresses; different addresses, protocols and ports; sessions.
    pub addresses_in_use: u64,
    pub ports_in_use: u64,
    pub live_sessions: u64,
    /// Since the tables were made.
    pub allocated: u64,
    /// Packets that found nothing free, and those of them that the overflow pool served.
    pub exhausted: u64,
    pub overflowed: u64,
    /// Candidates that were taken.
    pub searched: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatTargetView {
    pub name: String,
    pub addresses: String,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatProxyView {
    pub interface: String,
    pub addresses: String,
}

/// A first packet and the units it passes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatQuery {
    /// `NAME.UNIT`
    pub from_interface: String,
    pub to_interface: String,
    pub source_ip: String,
    pub destination_ip: String,
    /// `tcp`, `udp`, `icmp`, `icmp6` or a number.
    pub protocol: String,
    pub source_port: u16,
    pub destination_port: u16,
}

/// What the rules make of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct NatMatchView {
    /// `SET RULE`
    pub destination_rule: Option<String>,
    pub destination: String,
    pub destination_port: u16,
    pub source_rule: Option<String>,
    /// Of static NAT; else the pool chooses, or it stays as it is.
    pub source: Option<String>,
    pub source_port: Option<u16>,
    /// `interface`, or the name of the pool.
    pub pool: Option<String>,
}
