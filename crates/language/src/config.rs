//! The typed configuration: what a Junos tree means once every name in it is resolved.
//!
//! Only names that exist get this far; `check` has refused dangling references, duplicate units and unsupported
//! statements with line and column before a `Config` is built.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::dhcp::{DhcpClient, Dhcpv6Client};

pub use crate::gate::{Gate, GateGrant, GateService, MAX_IDLE_S};
pub use crate::log::{
    Chosen, FACILITIES, LogFile, LogStream, LogTransport, MessageFile, MessageHost, SecurityLog, SystemLog,
};
pub use crate::nat;
pub use crate::ranges::Ranges;
pub use crate::schedule::{Day, Scheduler};
pub use crate::values::{NEVER_S, Prefix, Service};

/// A whole configuration, with groups applied and inactive statements left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Config {
    /// `system`
    pub system: System,
    /// Of `interfaces`, in configuration order.
    pub interfaces: Vec<Interface>,
    /// `security zones security-zone`; an interface unit is in one of them at most.
    pub zones: Vec<Zone>,
    /// Interfaces of `functional-zone management`: their packets go to this host's own stack and are never forwarded.
    pub management: Vec<String>,
    /// `security screen ids-option`
    pub screens: Vec<Screen>,
    /// Zone-pair policies, in configuration order.
    pub policies: Vec<PolicySet>,
    /// Global policies, evaluated after the zone pair's.
    pub global_policies: Vec<Policy>,
    /// What becomes of packets that no policy matches: true = `default-policy permit-all`.
    pub default_permit: bool,
    /// `routing-options static` of both families.
    pub static_routes: Vec<StaticRoute>,
    /// `routing-instances`, in configuration order.
    pub routing_instances: Vec<RoutingInstance>,
    /// `security flow`
    pub flow: FlowOptions,
    /// `security log`
    pub log: SecurityLog,
    /// `security nat`
    pub nat: nat::Nat,
    /// `schedulers`; policies name them.
    pub schedulers: Vec<Scheduler>,
    /// `services fan-out`
    pub fan_out: crate::fan_out::FanOut,
    /// `services gate`
    pub gate: Gate,
    /// `services gtp-u`
    pub gtp_u: crate::gtpu::GtpU,
    /// `protocols` and `policy-options`
    pub protocols: crate::protocols::Protocols,
    /// `system services dhcp-local-server`
    pub dhcp_server: crate::dhcp_server::DhcpServer,
    /// `protocols router-advertisement`
    pub router_advertisement: crate::router_advertisement::RouterAdvertisement,
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

/// What is set of the host itself; the rest of `system` is the daemon's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct System {
    /// None = the host keeps the name it has.
    pub host_name: Option<String>,
    /// Where its own messages go.
    pub syslog: SystemLog,
}

/// Hook an interface's ingress runs on. `system services sluice mode` sets the default, each interface may override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum HookMode {
    /// Native XDP where the driver is known for it, else tc.
    #[default]
    Auto,
    /// tc, whatever the driver can do.
    Tc,
    /// Native XDP; refused where the driver has none.
    Xdp,
    /// Generic (skb-mode) XDP, only when asked for.
    Generic,
}

/// An interface and its units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Interface {
    /// Linux netdev name.
    pub name: String,
    /// Free text, for reports.
    pub description: Option<String>,
    /// `disable`: the link is set down and its units are not used.
    pub disabled: bool,
    /// In bytes, without the Ethernet header; None = the device keeps the one it has.
    pub mtu: Option<u16>,
    /// Units have tags: `vlan-tagging` or `flexible-vlan-tagging`.
    pub vlan_tagging: bool,
    /// Its own, else that of `system services sluice mode`.
    pub mode: HookMode,
    /// `mif`: no device has that name, each unit is one of its own that leads to subscribers.
    pub mobile: bool,
    /// In configuration order; without `vlan_tagging` and `mobile` unit 0 alone.
    pub units: Vec<Unit>,
}

/// A logical interface, which is what belongs to a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unit {
    /// `unit N` of the interface.
    pub number: u32,
    /// Free text, for reports.
    pub description: Option<String>,
    /// `disable`: its addresses are not set and its packets not taken.
    pub disabled: bool,
    /// Present exactly on units of an interface with `vlan_tagging`.
    pub vlan: Option<Vlan>,
    /// IPv4 addresses with the length of their subnets.
    pub inet: Vec<Prefix>,
    /// IPv6 addresses with the length of their subnets.
    pub inet6: Vec<Prefix>,
    /// IP MTU (`family inet mtu`), else the interface's.
    pub mtu: Option<u16>,
    /// A server gives the IPv4 address.
    pub dhcp: Option<DhcpClient>,
    /// A server gives IPv6 addresses or prefixes.
    pub dhcpv6: Option<Dhcpv6Client>,
}

impl Unit {
    /// Configured addresses of both families, each with the length of its subnet.
    pub fn addresses(&self) -> impl Iterator<Item = &Prefix> + Clone {
        self.inet.iter().chain(&self.inet6)
    }
}

/// Tags of a unit's frames; VLANs are 1..=4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Vlan {
    /// The only one, or the outer one of two.
    pub id: u16,
    /// The outer tag is of IEEE 802.1ad (0x88a8).
    pub service: bool,
    /// The inner tag, always of 802.1Q; None = one tag.
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

/// A security zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Zone {
    /// What policies and other statements call it.
    pub name: String,
    /// Name of the screen that its packets are checked by.
    pub screen: Option<String>,
    /// TCP that belongs to no session and opens none is reset.
    pub tcp_rst: bool,
    /// Unit names as written: `trust0.0`, `wan0.100`.
    pub interfaces: Vec<ZoneInterface>,
    /// What this host takes of packets from it.
    pub host_inbound: HostInbound,
}

/// An interface unit as member of a zone.
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
    /// Everything, whatever `services` says.
    pub any: bool,
    /// Protocols and ports that are let in.
    pub services: Vec<Service>,
}

/// A screen (`ids-option`); zones name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Screen {
    /// What zones name it by.
    pub name: String,
    /// Count and log what the checks find, but let it pass.
    pub alarm_without_drop: bool,
    /// Names of drop reasons, of [`SCREEN_CHECKS`] and [`COUNTING_CHECKS`].
    pub checks: Vec<&'static str>,
    /// Thresholds of the checks that count.
    pub limits: ScreenLimits,
    /// `limit-session`
    pub source_sessions: Option<u32>,
    /// Most sessions to one address; None = no limit. `source_sessions` counts those from one.
    pub destination_sessions: Option<u32>,
}

/// Screens that count. None = off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct ScreenLimits {
    /// Packets a second.
    pub icmp_flood: Option<u32>,
    /// Packets a second to one address and port.
    pub udp_flood: Option<u32>,
    /// Thresholds for TCP connections that open.
    pub syn_flood: Option<SynFlood>,
    /// Microseconds in which ten hosts or ports are too many.
    pub ip_sweep_us: Option<u32>,
    /// As `ip_sweep_us`, for SYNs to ten addresses.
    pub tcp_sweep_us: Option<u32>,
    /// As `ip_sweep_us`, for UDP to ten addresses.
    pub udp_sweep_us: Option<u32>,
    /// As `ip_sweep_us`, for SYNs to ten ports of one address.
    pub port_scan_us: Option<u32>,
    /// As `ip_sweep_us`, for UDP to ten ports of one address.
    pub udp_port_scan_us: Option<u32>,
    /// Reverse-path check of the source (RFC 3704).
    pub spoofing: Option<Spoofing>,
}

/// SYNs a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SynFlood {
    /// To one address and port, from which on it is told and nothing dropped.
    pub alarm: u32,
    /// To one address and port, beyond which they are answered with cookies.
    pub attack: u32,
    /// From one address, beyond which they are dropped.
    pub source: u32,
    /// To one address, beyond which they are dropped.
    pub destination: u32,
    /// How long a cookie may take to come back.
    pub timeout_s: u32,
    /// Which SYNs no threshold applies to.
    pub white_lists: Vec<WhiteList>,
}

/// An empty list means any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WhiteList {
    /// Only for the text; nothing refers to it.
    pub name: String,
    /// Where the SYNs come from.
    pub sources: Vec<Prefix>,
    /// Where they go to.
    pub destinations: Vec<Prefix>,
}

/// What the route back to a source must leave through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spoofing {
    /// The unit that the packet came in by.
    Interface,
    /// Any unit of the zone that the packet came from.
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

/// Policies of one pair of zones; several sets of one pair count as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicySet {
    /// Zone that the session's first packet comes from.
    pub from_zone: String,
    /// Zone that it goes to.
    pub to_zone: String,
    /// First match decides.
    pub policies: Vec<Policy>,
}

/// A security policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// Unique within its pair of zones, or among the global ones.
    pub name: String,
    /// Free text, for reports.
    pub description: Option<String>,
    /// Zones of a global policy; none = all. Policies of zone pairs leave both empty.
    pub from_zones: Vec<String>,
    /// Likewise, of the zones that sessions go to.
    pub to_zones: Vec<String>,
    /// `scheduler-name`
    pub scheduler: Option<String>,
    /// False while its scheduler is not active: the policy is skipped. See [`Config::set_time`].
    pub active: bool,
    /// Before source NAT.
    pub source: AddressMatch,
    /// After destination NAT.
    pub destination: AddressMatch,
    /// Protocols and ports.
    pub application: ApplicationMatch,
    /// `then`
    pub action: Action,
    /// `then log session-init`: a session log entry when a session begins.
    pub log_init: bool,
    /// `then log session-close`: a session log entry when a session ends.
    pub log_close: bool,
    /// `then count`: its packets and bytes are counted.
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
    /// Every address of both families.
    Any,
    /// Some addresses.
    Ranges {
        /// IPv4, first and last address of each range.
        v4: Vec<(Ipv4Addr, Ipv4Addr)>,
        /// IPv6, first and last address of each range.
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

/// What protocols and ports a policy is for; application sets are already flattened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum ApplicationMatch {
    /// Every protocol and port.
    Any,
    /// Any of these.
    Services(Vec<Service>),
}

/// What a policy does to a session's first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The session is made.
    Permit,
    /// Dropped, and its sender is not told.
    Deny,
    /// Dropped; TCP gets a reset, everything else an ICMP error.
    Reject,
}

/// A static route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StaticRoute {
    /// Network address; the bits behind the length are zero.
    pub destination: Prefix,
    /// Of several to one destination the lowest is used.
    pub preference: u32,
    /// Where its packets go.
    pub next_hop: RouteTarget,
}

/// Junos prefers static routes to everything but connected ones, which have 0.
pub const STATIC_PREFERENCE: u32 = 5;

/// A gateway of a static route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NextHop {
    /// Of the route's family.
    pub address: IpAddr,
    /// `NAME.UNIT` that it is behind; None = where its subnet is.
    pub interface: Option<String>,
}

/// A routing table of its own, and the units whose packets it is asked for. A zone has units of one instance only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RoutingInstance {
    /// The kernel's VRF device has it too.
    pub name: String,
    /// `virtual-router` or `vrf`, which are the same.
    pub instance_type: String,
    /// Free text.
    pub description: Option<String>,
    /// `NAME.UNIT`; a unit is in one instance at most, else in the main one.
    pub interfaces: Vec<String>,
    /// Of both families.
    pub static_routes: Vec<StaticRoute>,
}

/// Where a static route leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum RouteTarget {
    /// Next hops of the route's family; several share the traffic (ECMP).
    Gateways(Vec<NextHop>),
    /// `NAME.UNIT`
    Interface(String),
    /// Dropped, and the sender is not told.
    Discard,
    /// Dropped with an ICMP error to the sender.
    Reject,
    /// `next-table`: the table of an instance decides; None = the main one's.
    Table(Option<String>),
}

/// `security flow`: sizes and timeouts. None = built-in default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct FlowOptions {
    /// `security flow max-sessions` (IPv4) and `max-sessions-v6`.
    pub max_sessions: Option<u32>,
    /// Of the IPv6 table; fixed while sessions are kept, as with the IPv4 table.
    pub max_sessions_v6: Option<u32>,
    /// `tcp-mss all-tcp mss`
    pub tcp_mss: Option<u16>,
    /// Percent of a table.
    pub max_unanswered: Option<u32>,
    /// Idle time after which any session ends while a table is too full.
    pub early_ageout_s: Option<u32>,
    /// Percent; without early-ageout they mean nothing.
    pub high_watermark: Option<u32>,
    /// Percent of a table below which it is not too full any more.
    pub low_watermark: Option<u32>,
    /// TCP segments outside of the window pass (RFC 9293 3.10.7.4).
    pub no_sequence_check: bool,
    /// Answers may leave into another zone than their session came from.
    pub reverse_across_zones: bool,
    /// How long opening a connection may take.
    pub tcp_initial_timeout_s: Option<u32>,
    /// Idle time of sessions that both sides have closed, or that were reset.
    pub time_wait_timeout_s: Option<u32>,
    /// The same for sessions that one side has closed.
    pub time_wait_half_closed: bool,
    /// Idle time of UDP sessions.
    pub udp_timeout_s: Option<u32>,
    /// Idle time of ICMP sessions.
    pub icmp_timeout_s: Option<u32>,
    /// Idle time of sessions of other protocols.
    pub ip_timeout_s: Option<u32>,
}
