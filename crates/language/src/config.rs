//! The typed configuration: what a Junos tree means once every name in it is resolved.
//!
//! Only names that exist get this far; `check` has refused dangling references, duplicate units and unsupported
//! statements with line and column before a `Config` is built.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

pub use crate::gate::{Gate, GateGrant, GateService};
pub use crate::log::{LogFile, LogStream, LogTransport, SecurityLog};
pub use crate::nat;
pub use crate::ranges::Ranges;
pub use crate::schedule::{Day, Scheduler};
pub use crate::values::{NEVER_S, Prefix, Service};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Config {
    pub system: System,
    pub interfaces: Vec<Interface>,
    pub zones: Vec<Zone>,
    /// Interfaces of `functional-zone management`: their packets are nobody's but the host's.
    pub management: Vec<String>,
    pub screens: Vec<Screen>,
    /// Zone-pair policies, in configuration order.
    pub policies: Vec<PolicySet>,
    /// Global policies, evaluated after the zone pair's.
    pub global_policies: Vec<Policy>,
    pub default_permit: bool,
    pub static_routes: Vec<StaticRoute>,
    pub flow: FlowOptions,
    pub log: SecurityLog,
    pub nat: nat::Nat,
    pub schedulers: Vec<Scheduler>,
    pub fan_out: crate::fan_out::FanOut,
    pub gate: Gate,
}

impl Config {
    /// Every policy, those of zone pairs first.
    pub fn all_policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().flat_map(|set| &set.policies).chain(&self.global_policies)
    }

    fn scheduled(&self, policy: &Policy, local_s: i64) -> bool {
        let scheduler =
            policy.scheduler.as_ref().and_then(|name| self.schedulers.iter().find(|s| s.name == *name));
        scheduler.is_none_or(|scheduler| scheduler.is_active(local_s))
    }

    /// Makes policies active or not, as their schedulers have it at a local time (seconds since 1970 on the wall clock).
    pub fn set_time(&mut self, local_s: i64) {
        let active: Vec<bool> = self.all_policies().map(|policy| self.scheduled(policy, local_s)).collect();
        let policies = self.policies.iter_mut().flat_map(|set| &mut set.policies);
        for (policy, active) in policies.chain(&mut self.global_policies).zip(active) {
            policy.active = active;
        }
    }

    /// Whether `set_time` would change nothing.
    pub fn is_of_time(&self, local_s: i64) -> bool {
        self.schedulers.is_empty()
            || self.all_policies().all(|policy| policy.active == self.scheduled(policy, local_s))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct System {
    pub host_name: Option<String>,
}

/// Hook an interface's ingress runs on. `system services sluice mode` sets the default, each interface may override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum HookMode {
    #[default]
    Auto,
    Tc,
    Xdp,
    /// Generic (skb-mode) XDP, only when asked for.
    Generic,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Linux netdev name.
    pub name: String,
    pub description: Option<String>,
    pub disabled: bool,
    pub mtu: Option<u16>,
    /// Units have tags: `vlan-tagging` or `flexible-vlan-tagging`.
    pub vlan_tagging: bool,
    pub mode: HookMode,
    pub units: Vec<Unit>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unit {
    pub number: u32,
    pub description: Option<String>,
    pub disabled: bool,
    /// Present exactly on units of an interface with `vlan_tagging`.
    pub vlan: Option<Vlan>,
    pub inet: Vec<Prefix>,
    pub inet6: Vec<Prefix>,
    /// IP MTU (`family inet mtu`), else the interface's.
    pub mtu: Option<u16>,
}

/// Tags of a unit's frames; VLANs are 1..=4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Vlan {
    /// The only one, or the outer one of two.
    pub id: u16,
    /// The outer tag is of IEEE 802.1ad (0x88a8).
    pub service: bool,
    pub inner: Option<u16>,
}

impl From<u16> for Vlan {
    fn from(id: u16) -> Self {
        Vlan { id, service: false, inner: None }
    }
}

/// As the statements `vlan-id` and `vlan-tags` take it.
impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = if self.service { "0x88a8." } else { "" };
        match self.inner {
            Some(inner) => write!(f, "outer {service}{} inner {inner}", self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    pub name: String,
    pub screen: Option<String>,
    /// TCP that belongs to no session and opens none is reset.
    pub tcp_rst: bool,
    /// Unit names as written: `trust0.0`, `wan0.100`.
    pub interfaces: Vec<ZoneInterface>,
    pub host_inbound: HostInbound,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ZoneInterface {
    /// `NAME.UNIT`; a bare `NAME` in the text means unit 0.
    pub unit: String,
    /// Replaces the zone's when present (Junos semantics).
    pub host_inbound: Option<HostInbound>,
}

/// Services already expanded to what a packet looks like; `any` admits everything (`system-services all` together
/// with `protocols all`, or `any-service`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct HostInbound {
    pub any: bool,
    pub services: Vec<Service>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Screen {
    pub name: String,
    /// Count and log what the checks find, but let it pass.
    pub alarm_without_drop: bool,
    /// Names of drop reasons, of [`SCREEN_CHECKS`] and [`COUNTING_CHECKS`].
    pub checks: Vec<&'static str>,
    pub limits: ScreenLimits,
    /// `limit-session`
    pub source_sessions: Option<u32>,
    pub destination_sessions: Option<u32>,
}

/// Screens that count. None = off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ScreenLimits {
    /// Packets a second.
    pub icmp_flood: Option<u32>,
    pub udp_flood: Option<u32>,
    pub syn_flood: Option<SynFlood>,
    /// Microseconds in which ten hosts or ports are too many.
    pub ip_sweep_us: Option<u32>,
    pub tcp_sweep_us: Option<u32>,
    pub udp_sweep_us: Option<u32>,
    pub port_scan_us: Option<u32>,
    pub udp_port_scan_us: Option<u32>,
    pub spoofing: Option<Spoofing>,
}

/// SYNs a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SynFlood {
    pub alarm: u32,
    pub attack: u32,
    pub source: u32,
    pub destination: u32,
    pub timeout_s: u32,
    pub white_lists: Vec<WhiteList>,
}

/// An empty list means any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhiteList {
    pub name: String,
    pub sources: Vec<Prefix>,
    pub destinations: Vec<Prefix>,
}

/// What the route back to a source must leave through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spoofing {
    Interface,
    Zone,
}

/// Screens that count: block and statement of the configuration, drop reason of the data plane.
pub const COUNTING_CHECKS: [(&str, &str, &str); 13] = [
    ("icmp", "flood", "icmp_flood"),
    ("udp", "flood", "udp_flood"),
    ("tcp", "syn-flood", "syn_flood_source"),
    ("tcp", "syn-flood", "syn_flood_alarm"),
    ("tcp", "syn-flood", "syn_flood"),
    ("tcp", "syn-flood", "syn_cookie"),
    ("tcp", "syn-flood", "syn_flood_destination"),
    ("ip", "spoofing", "spoofing"),
    ("icmp", "ip-sweep", "ip_sweep"),
    ("tcp", "tcp-sweep", "tcp_sweep"),
    ("udp", "udp-sweep", "udp_sweep"),
    ("tcp", "port-scan", "port_scan"),
    ("udp", "port-scan", "udp_port_scan"),
];

/// Screens that are on or off: block and statement of the configuration, drop reason of the data plane.
pub const SCREEN_CHECKS: [(&str, &str, &str); 21] = [
    ("tcp", "land", "land"),
    ("tcp", "syn-fin", "syn_fin"),
    ("tcp", "tcp-no-flag", "tcp_no_flag"),
    ("tcp", "fin-no-ack", "fin_no_ack"),
    ("tcp", "winnuke", "winnuke"),
    ("tcp", "syn-frag", "syn_frag"),
    ("icmp", "ping-death", "ping_death"),
    ("icmp", "fragment", "icmp_fragment"),
    ("icmp", "large", "icmp_large"),
    ("icmp", "icmpv6-malformed", "icmpv6_malformed"),
    ("ip", "bad-option", "bad_option"),
    ("ip", "block-frag", "block_frag"),
    ("ip", "record-route-option", "record_route_option"),
    ("ip", "timestamp-option", "timestamp_option"),
    ("ip", "security-option", "security_option"),
    ("ip", "stream-option", "stream_option"),
    ("ip", "loose-source-route-option", "loose_source_route_option"),
    ("ip", "strict-source-route-option", "strict_source_route_option"),
    ("ip", "source-route-option", "source_route_option"),
    ("ip", "tear-drop", "tear_drop"),
    ("ip", "unknown-protocol", "unknown_protocol"),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicySet {
    pub from_zone: String,
    pub to_zone: String,
    pub policies: Vec<Policy>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    pub name: String,
    pub description: Option<String>,
    /// Zones of a global policy; none = all. Policies of zone pairs leave both empty.
    pub from_zones: Vec<String>,
    pub to_zones: Vec<String>,
    /// `scheduler-name`
    pub scheduler: Option<String>,
    /// False while its scheduler is not active: the policy is skipped. See [`Config::set_time`].
    pub active: bool,
    pub source: AddressMatch,
    pub destination: AddressMatch,
    pub application: ApplicationMatch,
    pub action: Action,
    pub log_init: bool,
    pub log_close: bool,
    pub count: bool,
}

impl Policy {
    /// Whether a global policy speaks of sessions between two zones.
    pub fn applies_between(&self, from: &str, to: &str) -> bool {
        let has = |zones: &[String], zone: &str| zones.is_empty() || zones.iter().any(|name| name == zone);
        has(&self.from_zones, from) && has(&self.to_zones, to)
    }
}

/// Ranges are inclusive and of one family each; sets and nested sets are already flattened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum AddressMatch {
    Any,
    Ranges {
        v4: Vec<(Ipv4Addr, Ipv4Addr)>,
        v6: Vec<(Ipv6Addr, Ipv6Addr)>,
        /// Every address of both families matches but these.
        excluded: bool,
    },
}

impl AddressMatch {
    /// The ranges that match, sorted; an excluded set is turned into what it leaves. None = any address.
    pub fn matching(&self) -> Option<Ranges> {
        match self {
            AddressMatch::Any => None,
            AddressMatch::Ranges { v4, v6, excluded } => {
                let mut ranges = Ranges { v4: v4.clone(), v6: v6.clone() };
                ranges.normalise();
                Some(if *excluded { ranges.complement() } else { ranges })
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ApplicationMatch {
    Any,
    Services(Vec<Service>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Permit,
    Deny,
    Reject,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticRoute {
    pub destination: Prefix,
    pub next_hop: RouteTarget,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RouteTarget {
    Gateways(Vec<IpAddr>),
    /// `NAME.UNIT`
    Interface(String),
    Discard,
    Reject,
}

/// `security flow`: sizes and timeouts. None = built-in default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct FlowOptions {
    /// `security flow max-sessions` (IPv4) and `max-sessions-v6`.
    pub max_sessions: Option<u32>,
    pub max_sessions_v6: Option<u32>,
    /// `tcp-mss all-tcp mss`
    pub tcp_mss: Option<u16>,
    /// Percent of a table.
    pub max_unanswered: Option<u32>,
    pub early_ageout_s: Option<u32>,
    /// Percent; without early-ageout they mean nothing.
    pub high_watermark: Option<u32>,
    pub low_watermark: Option<u32>,
    pub no_sequence_check: bool,
    pub reverse_across_zones: bool,
    pub tcp_initial_timeout_s: Option<u32>,
    pub time_wait_timeout_s: Option<u32>,
    pub time_wait_half_closed: bool,
    pub udp_timeout_s: Option<u32>,
    pub icmp_timeout_s: Option<u32>,
    pub ip_timeout_s: Option<u32>,
}
