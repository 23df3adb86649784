//! `security nat`, once its names are resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::ranges::Ranges;
use crate::values::{Prefix, Service};

/// Most rules, source and destination pools, address ranges of all pools and of one, NAT64 prefixes and proxied addresses; the data plane's tables have
/// room for them.
pub const MAX_NAT_RULES: usize = 8000;
pub const MAX_NAT_POOLS: usize = 1000;
pub const MAX_NAT_RANGES: usize = 8192;
pub const MAX_NAT_POOL_RANGES: usize = 64;
pub const MAX_NAT_PREFIXES: usize = 64;
pub const MAX_NAT_PROXIED: u64 = 4096;

/// Ports of pools that say nothing of them.
pub const DEFAULT_PORTS: (u16, u16) = (1024, 65_535);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Nat {
    pub source: SourceNat,
    pub destination: DestinationNat,
    /// Includes NAT64 and NPTv6.
    pub statics: Vec<RuleSet<StaticAction>>,
    /// `static lowest-ipv6-mtu`: what NAT64 makes of IPv4 packets without DF is cut to this; None = 1,280.
    pub lowest_ipv6_mtu: Option<u16>,
    pub proxies: Vec<Proxy>,
}

impl Nat {
    pub fn is_empty(&self) -> bool {
        *self == Nat::default()
    }

    /// Static rules that translate between the families.
    pub fn has_nat64(&self) -> bool {
        let rules = self.statics.iter().flat_map(|set| &set.rules);
        rules.into_iter().any(|rule| matches!(rule.then, StaticAction::Inet { .. }))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct SourceNat {
    pub pools: Vec<SourcePool>,
    pub rule_sets: Vec<RuleSet<SourceAction>>,
    /// A source has the same address in every pool.
    pub address_persistent: bool,
    /// `port-randomization disable`
    pub ports_in_turn: bool,
    pub interface_ports: Ports,
    /// Most bindings of persistent-nat; None = as many as there are by default.
    pub max_bindings: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DestinationNat {
    pub pools: Vec<DestinationPool>,
    pub rule_sets: Vec<RuleSet<DestinationAction>>,
}

/// Where packets come from or go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// `NAME.UNIT`
    Units(Vec<String>),
    Zones(Vec<String>),
    /// Every zone and unit.
    RoutingInstance,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleSet<Action> {
    pub name: String,
    pub from: Ends,
    /// Source rule-sets only.
    pub to: Option<Ends>,
    pub rules: Vec<NatRule<Action>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NatRule<Action> {
    pub name: String,
    pub matching: NatMatch,
    pub then: Action,
}

/// None = any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct NatMatch {
    pub source: Option<Ranges>,
    pub destination: Option<Ranges>,
    pub services: Option<Vec<Service>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceAction {
    Off,
    Interface {
        #[serde(skip_serializing_if = "Option::is_none")]
        persistent: Option<Persistent>,
    },
    Pool {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        persistent: Option<Persistent>,
    },
}

impl SourceAction {
    pub fn persistent(&self) -> Option<Persistent> {
        match self {
            SourceAction::Off => None,
            SourceAction::Interface { persistent } | SourceAction::Pool { persistent, .. } => *persistent,
        }
    }
}

/// `persistent-nat` of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Persistent {
    pub permit: Permit,
    pub timeout_s: u32,
    /// At one time, of one binding.
    pub sessions: u32,
}

/// Who reaches an inside endpoint under its outside one (RFC 4787 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permit {
    AnyRemoteHost,
    TargetHost,
    TargetHostPort,
}

impl Permit {
    pub fn name(self) -> &'static str {
        match self {
            Permit::AnyRemoteHost => "any-remote-host",
            Permit::TargetHost => "target-host",
            Permit::TargetHostPort => "target-host-port",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationAction {
    Off,
    Pool { name: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StaticAction {
    /// Both of one length.
    Prefix { from: Prefix, to: Prefix, ports: Option<PortMap> },
    /// RFC 6296
    Nptv6 { from: Prefix, to: Prefix },
    /// NAT64 behind this prefix (RFC 6052).
    Inet { prefix: Prefix },
}

/// `destination-port` and `mapped-port` of a static rule: ranges of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PortMap {
    pub from: (u16, u16),
    pub to: (u16, u16),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePool {
    pub name: String,
    /// Of one family, sorted and without overlap.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    pub ports: Ports,
    /// `address-pooling paired`, or `address-persistent`
    pub paired: bool,
    pub overflow: Option<Overflow>,
    /// `host-address-base`
    pub base: Option<IpAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ports {
    /// None = they stay as they are.
    pub range: Option<(u16, u16)>,
    pub preserve_source: bool,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { range: Some(DEFAULT_PORTS), preserve_source: false }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    Interface,
    Pool(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DestinationPool {
    pub name: String,
    pub low: IpAddr,
    pub high: IpAddr,
    /// None = it stays as it is.
    pub port: Option<u16>,
}

/// Addresses that a unit answers ARP or neighbour solicitations for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proxy {
    /// `NAME.UNIT`
    pub unit: String,
    pub low: IpAddr,
    pub high: IpAddr,
}

/// An address as a number, and how many bits it has.
pub fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// The address of this number, in the family of `like`.
pub fn address(bits: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
    }
}

/// How many addresses a range has, at most `u64::MAX`.
pub fn count(low: IpAddr, high: IpAddr) -> u64 {
    let more = bits(high).0.saturating_sub(bits(low).0);
    u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1)
}
