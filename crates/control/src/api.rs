//! What the HTTP interface says, as types that the daemon serialises and `sluice show` reads.

pub mod nat;

use std::collections::BTreeMap;
use std::ops::Add;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_abi::counters::{Role, UnitCounter};
use sluice_abi::stages::Hook;
use sluice_abi::{DropCounters, UnitCounters};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Stats {
    pub version: String,
    pub generation: u32,
    pub uptime_s: u64,
    pub sessions: SessionCounts,
    pub interfaces: Vec<InterfaceView>,
    pub zones: Vec<ZoneView>,
    /// Non-zero reasons, summed over units.
    pub drops: Vec<DropView>,
    pub equations: Equations,
    pub sweeps: u64,
    pub commits: u64,
    pub commits_failed: u64,
    #[serde(default)]
    pub gate: GateView,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionCounts {
    pub v4: u64,
    pub v6: u64,
    pub limit4: u64,
    pub limit6: u64,
    /// Sessions that ended by being idle, since the tables were made.
    pub expired: u64,
    /// Sessions that wait for their first answer.
    pub unanswered4: u64,
    pub unanswered6: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceView {
    pub name: String,
    /// Counter slot.
    pub index: u32,
    /// `null` of a device that has no enabled unit in a zone.
    pub zone: String,
    pub description: Option<String>,
    pub device: String,
    pub physical: String,
    /// Of the only tag, or the outer one of two; 0 = untagged.
    pub vlan: u16,
    /// 0 = no second tag.
    pub inner_vlan: u16,
    pub mtu: u16,
    /// Attach mode: `tc`, `xdp-native`, `xdp-generic`; `detached` while no program is there.
    pub mode: String,
    pub up: bool,
    pub addresses: Vec<String>,
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
            pub dropped_ingress: u64,
            pub dropped_egress: u64,
        }

        impl Counters {
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

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ZoneView {
    pub name: String,
    pub id: u32,
    pub interfaces: Vec<String>,
    pub screen: Option<String>,
    pub counters: Counters,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DropView {
    pub stage: String,
    pub reason: String,
    pub packets: u64,
    pub help: String,
}

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
    pub left: u64,
    pub right: u64,
    pub difference: i64,
}

impl Equation {
    pub fn new(left: u64, right: u64) -> Self {
        Self { left, right, difference: left.wrapping_sub(right) as i64 }
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PolicyView {
    pub id: u32,
    pub name: String,
    /// `any` for global policies.
    pub from_zone: String,
    pub to_zone: String,
    pub action: String,
    /// False while its scheduler is not active.
    pub active: bool,
    pub sessions: u64,
    pub denied: u64,
    /// Of its sessions, both directions; only with `then count`.
    pub packets: Option<u64>,
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
    pub from_zone: String,
    pub to_zone: String,
    /// None = no policy matches, and `default-policy` decides.
    pub policy: Option<String>,
    pub id: Option<u32>,
    pub global: bool,
    /// Its place among the active policies of the zone pair, or among the global ones that apply to it, from 1.
    pub number: Option<u32>,
    pub action: String,
    /// Why it is dropped before any policy is asked.
    #[serde(default)]
    pub dropped_as: Option<String>,
    pub log_init: bool,
    pub log_close: bool,
    pub count: bool,
}

/// One entry of the session log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogEntry {
    pub unix_ms: u64,
    /// `RT_FLOW_SESSION_CREATE`, `..._CLOSE`, `..._DENY`
    pub event: String,
    /// In the order in which Junos writes them.
    pub fields: Vec<(String, String)>,
}

impl LogEntry {
    /// Event and fields as Junos writes them.
    pub fn line(&self) -> String {
        let fields = self.fields.iter().map(|(name, value)| format!(" {name}=\"{value}\""));
        self.event.clone() + &fields.collect::<String>()
    }
}

/// How much of the session log to tell.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub struct LogQuery {
    /// How many of the newest entries.
    pub last: usize,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionList {
    /// How many sessions match the filter altogether.
    pub total: u64,
    pub sessions: Vec<SessionView>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    pub id: u32,
    pub family: u8,
    pub protocol: String,
    pub source: String,
    pub source_port: u16,
    pub destination: String,
    pub destination_port: u16,
    /// As answers carry it: where they come from, and the translated source that they are sent to.
    pub out_source: String,
    pub out_source_port: u16,
    pub out_destination: String,
    pub out_destination_port: u16,
    /// Addresses or ports change on the way.
    pub translated: bool,
    /// `SET RULE`
    pub nat_destination_rule: Option<String>,
    pub nat_source_rule: Option<String>,
    pub from_zone: String,
    pub to_zone: String,
    pub policy: String,
    pub state: String,
    pub age_s: u64,
    pub idle_s: u64,
    pub timeout_s: u64,
    pub packets: [u64; 2],
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
    /// How many matches a list leaves out.
    pub offset: Option<usize>,
    /// How many matches it has at most: 100 when not given, never more than 10,000.
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Cleared {
    pub cleared: u64,
}

/// What a configuration to commit is called.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct CommitQuery {
    /// Name of the text in error messages.
    pub file: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// Number of the commit.
    pub generation: u32,
    pub took_ms: u64,
    /// What could not be removed; the commit stands.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct StageView {
    pub stage: String,
    pub hook: String,
    pub help: String,
    pub reasons: Vec<ReasonView>,
}

/// One screen of a zone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ScreenView {
    pub zone: String,
    /// Name of the ids-option.
    pub screen: String,
    /// Also the drop reason.
    pub check: String,
    pub help: String,
    /// `drop`, or `alarm-without-drop`.
    pub action: String,
    /// Packets it recognised, dropped or not.
    pub packets: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReasonView {
    pub reason: String,
    pub help: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    pub generation: u32,
    pub file: String,
    pub text: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// `system host-name`
    pub host_name: Option<String>,
    pub status: String,
    pub version: String,
    pub generation: u32,
    pub pid: u32,
    #[serde(default)]
    pub uptime_s: u64,
    /// What takes long and others wait for.
    #[serde(default)]
    pub under_way: Option<String>,
    /// What an operator should know, until the next commit.
    #[serde(default)]
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    pub error: String,
}

/// A grant that is asked for. Only `sluice gate` and whoever may change the gateway can.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    /// Label of whom it is for, at most 63 bytes.
    pub user: String,
    /// Address or prefix.
    pub source: String,
    /// A service of the configuration.
    pub service: String,
    /// Seconds without a packet of the source; no limit when left out.
    pub idle_timeout_s: Option<u32>,
    /// Seconds from now; no limit when left out.
    pub absolute_timeout_s: Option<u32>,
    /// Every host of the family is meant: 0.0.0.0/0 and ::/0 are refused without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_source: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Granted {
    pub granted: u64,
    /// That were there already, and have these limits now.
    pub renewed: u64,
    /// Numbers, in the order of the request; of the first 1000.
    pub grants: Vec<u32>,
}

/// Which grants shall end: exactly one of these.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeRequest {
    /// Every grant.
    #[serde(default)]
    pub all: bool,
    /// All grants of a user.
    pub user: Option<String>,
    /// All grants for a service.
    pub service: Option<String>,
    /// The grant with this number.
    pub grant: Option<u32>,
    /// All grants for exactly this address or prefix.
    pub source: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    pub revoked: u64,
    /// Until the data plane refused all of them and the index was tidy.
    pub took_us: u64,
}

/// Which grants to list. Empty fields match everything.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantFilter {
    /// Whom they are for.
    pub user: Option<String>,
    /// What they are for.
    pub service: Option<String>,
    /// Exactly this address or prefix.
    pub source: Option<String>,
    /// How many matches to leave out.
    pub offset: Option<usize>,
    /// How many matches to list at most: 1,000 when not given.
    pub limit: Option<usize>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GrantList {
    pub total: u64,
    pub grants: Vec<GrantView>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GrantView {
    pub grant: u32,
    pub user: String,
    pub source: String,
    pub service: String,
    pub by_configuration: bool,
    pub age_s: u64,
    /// Since the last packet of its source.
    pub idle_s: u64,
    pub idle_timeout_s: Option<u64>,
    pub expires_in_s: Option<u64>,
    /// Opened with it.
    pub sessions: u32,
    /// `live`, or why it holds no more.
    pub state: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GateServiceView {
    pub name: String,
    pub id: u32,
    pub destinations: Vec<String>,
    pub protocol: u8,
    pub ports: Vec<String>,
    pub grants: u64,
}

/// The gate as a whole; counts since the daemon started.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct GateView {
    pub zones: Vec<String>,
    pub services: Vec<GateServiceView>,
    pub grants: u64,
    pub limit: u64,
    pub given: u64,
    pub renewed: u64,
    pub revoked: u64,
    pub expired: u64,
    pub idle: u64,
    /// Asked for when there was no room.
    pub refused_full: u64,
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
