//! What the HTTP interface says, as types that the daemon serialises and `sluice show` reads.

mod dhcp;
mod dhcp_server;
pub mod drops;
mod gate;
mod gtpu;
mod log_fields;
pub mod nat;
pub(crate) mod prefix;
pub(crate) mod protocol;
mod router_advertisement;
pub mod routes;
mod routing;
mod store;
pub mod trace;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Add;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_abi::counters::{Role, UnitCounter};
use sluice_abi::stages::Hook;
use sluice_abi::{DropCounters, UnitCounters};

pub use self::dhcp::*;
pub use self::dhcp_server::{DhcpBindingView, DhcpClearRequest, DhcpCleared, DhcpServerView};
pub use self::gate::{
    GateServiceView, GateView, GrantFilter, GrantList, GrantRequest, GrantView, Granted, RevokeRequest,
    Revoked,
};
pub use self::gtpu::*;
pub use self::log_fields::LogFields;
pub use self::router_advertisement::{AdvertisedPrefixView, RouterAdvertisementView};
pub use self::routing::*;
pub use self::store::*;

/// Everything that is counted of packets, at one time.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    /// Of the daemon.
    pub version: String,
    /// Number of the commit in force.
    pub generation: u32,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// How many there are.
    pub sessions: SessionCounts,
    /// Every unit, and every device in the null zone.
    pub interfaces: Vec<InterfaceView>,
    /// In the order of their ids.
    pub zones: Vec<ZoneView>,
    /// Non-zero reasons, summed over units.
    pub drops: Vec<DropView>,
    /// Whether every packet is accounted for.
    pub equations: Equations,
    /// Walks over the whole table of sessions, since the tables were made.
    pub sweeps: u64,
    /// Since the daemon started.
    pub commits: u64,
    /// Those that changed nothing, since the daemon started.
    pub commits_failed: u64,
    /// Grants, and what became of them.
    #[serde(default)]
    pub gate: GateView,
    /// How much there is of the user plane.
    #[serde(default)]
    pub gtpu: GtpuCounts,
    /// Streams and files that the session log goes to, hosts and files of `system syslog`.
    #[serde(default)]
    pub log_outputs: Vec<LogOutputView>,
}

/// A stream or a file that entries of the session log go to, or a host or a file of `system syslog`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogOutputView {
    /// Of the stream, or the file; the statement where it is one of `system syslog`.
    pub name: String,
    /// `udp`, `tcp`, `tls`, `file`
    pub transport: String,
    /// Entries handed over, or written.
    pub sent: u64,
    /// Bytes that wait for the collector.
    pub waiting_bytes: u64,
    /// Entries that found the buffer full.
    pub lost_full: u64,
    /// Entries that the network or the collector's host refused (UDP).
    pub lost_refused: u64,
    /// Entries beyond `rate-cap`.
    pub lost_rate: u64,
    /// Why nothing gets through at the moment.
    pub error: Option<String>,
}

/// Sessions by family.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    /// Live IPv4 sessions.
    pub v4: u64,
    /// Live IPv6 sessions.
    pub v6: u64,
    /// Most IPv4 sessions there may be.
    pub limit4: u64,
    /// Most IPv6 sessions there may be.
    pub limit6: u64,
    /// Sessions that ended by being idle, since the tables were made.
    pub expired: u64,
    /// Sessions that wait for their first answer.
    pub unanswered4: u64,
    /// Those of IPv6.
    pub unanswered6: u64,
}

/// A unit.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceView {
    /// `NAME.UNIT`, as the configuration has it.
    pub name: String,
    /// Counter slot.
    pub index: u32,
    /// `null` of a device that has no enabled unit in a zone.
    pub zone: String,
    /// As the configuration has it.
    pub description: Option<String>,
    /// The kernel's device that has its addresses.
    pub device: String,
    /// The device that its frames arrive on.
    pub physical: String,
    /// Of the only tag, or the outer one of two; 0 = untagged.
    pub vlan: u16,
    /// 0 = no second tag.
    pub inner_vlan: u16,
    /// In bytes, without the Ethernet header.
    pub mtu: u16,
    /// Attach mode: `tc`, `xdp-native`, `xdp-generic`; `detached` while no program is there.
    pub mode: String,
    /// Set up, by configuration or by hand.
    pub up: bool,
    /// It has a carrier.
    #[serde(default)]
    pub link: bool,
    /// MTU of the device.
    #[serde(default)]
    pub device_mtu: u32,
    /// Addresses that the device has.
    pub addresses: Vec<String>,
    /// Addresses that the configuration gives it.
    #[serde(default)]
    pub configured: Vec<String>,
    /// Since the unit was first configured.
    pub counters: Counters,
    /// Non-zero reasons.
    pub drops: BTreeMap<String, u64>,
    /// Packets that the device dropped on its way out since Sluice manages it.
    pub device_drops: u64,
    /// What its operator should know.
    #[serde(default)]
    pub notes: Vec<String>,
}

macro_rules! counters {
    ($($name:ident $help:literal,)*) => {
        /// The data plane's counters of one unit, or of several added up.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
            /// Packets dropped before they were sent on, of all reasons.
            pub dropped_ingress: u64,
            /// Packets dropped on their way out, of all reasons.
            pub dropped_egress: u64,
        }

        impl Counters {
            /// Counters of a unit as the data plane has them, with its drops added up by direction.
            pub fn new(raw: &UnitCounters, drops: &DropCounters) -> Self {
                let dropped = |side: Hook| {
                    drops.named().filter(|(reason, _)| reason.stage().hook() == side).map(|(_, count)| count).sum()
                };
                Self {
                    $($name: raw.$name,)*
                    dropped_ingress: dropped(Hook::Ingress),
                    dropped_egress: dropped(Hook::Egress),
                }
            }

            /// In the order of [`UnitCounter::ALL`].
            pub fn values(&self) -> [u64; UnitCounter::ALL.len()] {
                [$(self.$name,)*]
            }
        }

        impl Add for Counters {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self {
                    $($name: self.$name + other.$name,)*
                    dropped_ingress: self.dropped_ingress + other.dropped_ingress,
                    dropped_egress: self.dropped_egress + other.dropped_egress,
                }
            }
        }
    };
}
sluice_abi::unit_counters!(counters);

impl Counters {
    /// What the counters with one of these parts in the equations come to.
    pub fn sum(&self, roles: &[Role]) -> u64 {
        let counters = UnitCounter::ALL.iter().zip(self.values());
        counters.filter(|(counter, _)| roles.contains(&counter.role)).map(|(_, value)| value).sum()
    }
}

/// A zone, its units added up.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ZoneView {
    /// As the configuration has it.
    pub name: String,
    /// By which the data plane knows it.
    pub id: u32,
    /// Names of its units.
    pub interfaces: Vec<String>,
    /// Name of its ids-option.
    pub screen: Option<String>,
    /// Of its units together.
    pub counters: Counters,
}

/// How many packets were dropped for a reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DropView {
    /// Which stage dropped them.
    pub stage: String,
    /// Its name.
    pub reason: String,
    /// GSO packets count as their segments.
    pub packets: u64,
    /// What the reason means.
    pub help: String,
}

/// What came in and what became of it; both sides are the same when nothing is on its way.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct Equations {
    /// received = redirected + handed off + delivered locally + oversize + ingress drops
    pub ingress: Equation,
    /// redirected + handed off + resolved + unjudged + pieces + replies + originated = sent + queued + egress drops + XDP frames that devices refused
    pub egress: Equation,
}

/// Difference is left minus right; 0 at rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Equation {
    /// Packets on the left side.
    pub left: u64,
    /// Packets on the right side.
    pub right: u64,
    /// Left minus right.
    pub difference: i64,
}

impl Equation {
    /// With the difference of both sides.
    pub fn new(left: u64, right: u64) -> Self {
        Self { left, right, difference: left.wrapping_sub(right) as i64 }
    }
}

/// A policy and how often it decided.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    /// By which the data plane knows it.
    pub id: u32,
    /// As the configuration has it.
    pub name: String,
    /// `any` for global policies.
    pub from_zone: String,
    /// `any` for global policies.
    pub to_zone: String,
    /// `permit`, `deny` or `reject`.
    pub action: String,
    /// False while its scheduler is not active.
    pub active: bool,
    /// How often it permitted one: when it began, and whenever a commit or a change of routes had it judged again.
    pub sessions: u64,
    /// Packets that it denied or rejected: first ones, and those of sessions that were judged again.
    pub denied: u64,
    /// Of its sessions, both directions; only with `then count`.
    pub packets: Option<u64>,
    /// Of the same packets.
    pub bytes: Option<u64>,
}

/// A first packet as policies see it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatchQuery {
    /// Zone it arrives from.
    pub from_zone: String,
    /// Zone it leaves to.
    pub to_zone: String,
    /// Its source address.
    pub source_ip: String,
    /// Its destination address, of the same family.
    pub destination_ip: String,
    /// `tcp`, `udp`, `icmp`, `icmp6` or a number.
    pub protocol: String,
    /// Its source port; protocols with ports need it.
    pub source_port: Option<u16>,
    /// Its destination port; protocols with ports need it.
    pub destination_port: Option<u16>,
    /// Of ICMP and ICMPv6; echo request when not given.
    pub icmp_type: Option<u8>,
    /// Of ICMP and ICMPv6; 0 when not given.
    pub icmp_code: Option<u8>,
}

/// What becomes of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct MatchView {
    /// As asked.
    pub from_zone: String,
    /// As asked.
    pub to_zone: String,
    /// None = no policy matches, and `default-policy` decides.
    pub policy: Option<String>,
    /// Of the policy.
    pub id: Option<u32>,
    /// It is a global policy.
    pub global: bool,
    /// Its place among the active policies of the zone pair, or among the global ones that apply to it, from 1.
    pub number: Option<u32>,
    /// `permit`, `deny` or `reject`.
    pub action: String,
    /// Why it is dropped before any policy is asked.
    #[serde(default)]
    pub dropped_as: Option<String>,
    /// `then log session-init`
    pub log_init: bool,
    /// `then log session-close`
    pub log_close: bool,
    /// `then count`
    pub count: bool,
}

/// One entry of the session log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// `RT_FLOW_SESSION_CREATE`, `..._CLOSE`, `..._DENY`
    pub event: Cow<'static, str>,
    /// In the order in which Junos writes them.
    pub fields: LogFields,
}

impl LogEntry {
    /// Event and fields as Junos writes them.
    pub fn line(&self) -> String {
        let mut line = self.event.clone().into_owned();
        self.fields.write(&mut line);
        line
    }
}

/// How much of the session log to tell.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// How many of the newest entries.
    #[serde(default = "LogQuery::usual")]
    pub last: usize,
}

impl LogQuery {
    fn usual() -> usize {
        50
    }
}

/// Sessions that match a filter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// How many sessions match the filter altogether; where `from` was given, how many of those that were looked at.
    pub total: u64,
    /// Where the next part begins, for `from`; none behind the last one.
    #[serde(default)]
    pub next: Option<u64>,
    /// The part that was asked for.
    pub sessions: Vec<SessionView>,
}

/// A session; its source is who began it.
// A list has a million of them, and most have the same few names.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    /// Number of its record, which its family may have given away before.
    pub id: u32,
    /// 4 or 6, of the initiator's side.
    pub family: u8,
    /// Name or number.
    pub protocol: Cow<'static, str>,
    /// Address that began it.
    #[schemars(with = "String")]
    pub source: IpAddr,
    /// Or identifier of an ICMP echo; 0 where the protocol has none.
    pub source_port: u16,
    /// Address that it asked for.
    #[schemars(with = "String")]
    pub destination: IpAddr,
    /// Port that it asked for.
    pub destination_port: u16,
    /// As answers carry it: where they come from, and the translated source that they are sent to.
    #[schemars(with = "String")]
    pub out_source: IpAddr,
    /// Port that answers come from.
    pub out_source_port: u16,
    /// Address that answers are sent to.
    #[schemars(with = "String")]
    pub out_destination: IpAddr,
    /// Port that answers are sent to.
    pub out_destination_port: u16,
    /// Addresses or ports change on the way.
    pub translated: bool,
    /// `SET RULE`
    pub nat_destination_rule: Option<Arc<str>>,
    /// `SET RULE`
    pub nat_source_rule: Option<Arc<str>>,
    /// That the first packet arrived from.
    pub from_zone: Arc<str>,
    /// That the first packet left to.
    pub to_zone: Arc<str>,
    /// Unit that the initiator's packets arrive on.
    #[serde(default)]
    pub in_interface: Arc<str>,
    /// Unit that they leave by; `-` where none is known.
    #[serde(default)]
    pub out_interface: Arc<str>,
    /// That its first packet arrived in; none = the main one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_instance: Option<Arc<str>>,
    /// That permitted it.
    pub policy: Arc<str>,
    /// Of TCP, of both sides where they differ; else `answered` or `unanswered`.
    pub state: Cow<'static, str>,
    /// Seconds since its first packet.
    pub age_s: u64,
    /// Seconds since its last packet.
    pub idle_s: u64,
    /// Seconds without a packet after which it ends; 4294967295 = never.
    pub timeout_s: u64,
    /// From the initiator, and to it.
    pub packets: [u64; 2],
    /// From the initiator, and to it.
    pub bytes: [u64; 2],
}

/// Which sessions to show or end. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionFilter {
    /// Address or prefix that the initiator's lies in.
    pub source_prefix: Option<String>,
    /// Address or prefix of what the initiator asked for.
    pub destination_prefix: Option<String>,
    /// Address, original or translated, of either side.
    pub nat_prefix: Option<String>,
    /// Only sessions that are translated.
    #[serde(default)]
    pub nat: bool,
    /// Name or number.
    pub protocol: Option<String>,
    /// Of the initiator.
    pub source_port: Option<u16>,
    /// That the initiator asked for.
    pub destination_port: Option<u16>,
    /// Ingress or egress zone.
    pub zone: Option<String>,
    /// Unit the first packet arrived on.
    pub interface: Option<String>,
    /// Name of the policy that permitted it.
    pub policy: Option<String>,
    /// Application, or set of them.
    pub application: Option<String>,
    /// Of lists alone: begin here and end with the list: 0, then `next` of each answer. A table of any size is read in time
    /// that grows with it alone.
    pub from: Option<u64>,
    /// How many matches a list leaves out.
    pub offset: Option<usize>,
    /// How many matches a list has at most: 100 when not given, never more than 10,000.
    pub limit: Option<usize>,
}

impl SessionFilter {
    /// Says which part of a list is meant, which is nothing to what ends sessions.
    pub fn is_part_of_a_list(&self) -> bool {
        self.from.is_some() || self.offset.is_some() || self.limit.is_some()
    }
}

/// What a clearing did.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cleared {
    /// How many ended.
    pub cleared: u64,
}

/// A stage of the data plane.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct StageView {
    /// Its name.
    pub stage: String,
    /// `ingress` or `egress`
    pub hook: String,
    /// What it does.
    pub help: String,
    /// For which it drops packets.
    pub reasons: Vec<ReasonView>,
}

/// One screen of a zone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScreenView {
    /// Name of the zone.
    pub zone: String,
    /// Name of the ids-option.
    pub screen: String,
    /// Also the drop reason.
    pub check: String,
    /// What it recognises.
    pub help: String,
    /// `drop`, or `alarm-without-drop`.
    pub action: String,
    /// Packets it recognised, dropped or not.
    pub packets: u64,
}

/// Why packets are dropped.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReasonView {
    /// Its name, in counters and events.
    pub reason: String,
    /// What it means.
    pub help: String,
}

/// The daemon itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `system host-name`
    pub host_name: Option<String>,
    /// `ok`
    pub status: String,
    /// Of the daemon.
    pub version: String,
    /// Number of the commit in force.
    pub generation: u32,
    /// Of its process.
    pub pid: u32,
    /// Seconds since it started.
    #[serde(default)]
    pub uptime_s: u64,
    /// What takes long and others wait for.
    #[serde(default)]
    pub under_way: Option<String>,
    /// What an operator should know, until the next commit.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Why a request was refused.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// A sentence: what is wrong, where, and what helps.
    pub error: String,
}

/// The stages in the order packets walk them.
pub fn pipeline() -> Vec<StageView> {
    use sluice_abi::stages::{Hook, Stage};
    let stage = |stage: Stage| StageView {
        stage: stage.name().to_owned(),
        hook: if stage.hook() == Hook::Ingress { "ingress" } else { "egress" }.to_owned(),
        help: stage.help().to_owned(),
        reasons: stage
            .reasons()
            .map(|r| ReasonView { reason: r.name().to_owned(), help: r.help().to_owned() })
            .collect(),
    };
    Stage::ALL.into_iter().map(stage).collect()
}
