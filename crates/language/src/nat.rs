//! `security nat`, once its names are resolved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::ranges::Ranges;
use crate::values::{Prefix, Service};

/// Most rules, source and destination pools, address ranges of all pools and of one, NAT64 prefixes and proxied addresses; the data plane's tables have
/// room for them.
pub const MAX_NAT_RULES: usize = 8000;
/// Most source pools.
pub const MAX_NAT_POOLS: usize = 1000;
/// Most address ranges of all source pools.
pub const MAX_NAT_RANGES: usize = 8192;
/// Most address ranges of one source pool.
pub const MAX_NAT_POOL_RANGES: usize = 64;
/// Most NAT64 prefixes.
pub const MAX_NAT_PREFIXES: usize = 64;
/// Most addresses that are answered for by proxy.
pub const MAX_NAT_PROXIED: u64 = 4096;

/// Ports of pools that say nothing of them.
pub const DEFAULT_PORTS: (u16, u16) = (1024, 65_535);

/// All of `security nat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Nat {
    /// `source`: sources of packets that leave.
    pub source: SourceNat,
    /// `destination`: destinations of packets that arrive.
    pub destination: DestinationNat,
    /// Includes NAT64 and NPTv6.
    pub statics: Vec<RuleSet<StaticAction>>,
    /// `static lowest-ipv6-mtu`: what NAT64 makes of IPv4 packets without DF is cut to this; None = 1,280.
    pub lowest_ipv6_mtu: Option<u16>,
    /// `proxy-arp` and `proxy-ndp`
    pub proxies: Vec<Proxy>,
}

impl Nat {
    /// Nothing of it is configured.
    pub fn is_empty(&self) -> bool {
        *self == Nat::default()
    }

    /// Static rules that translate between the families.
    pub fn has_nat64(&self) -> bool {
        let rules = self.statics.iter().flat_map(|set| &set.rules);
        rules.into_iter().any(|rule| matches!(rule.then, StaticAction::Inet { .. }))
    }
}

/// `security nat source`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct SourceNat {
    /// Rules name them.
    pub pools: Vec<SourcePool>,
    /// First match decides, in the set that fits the packet's ends best.
    pub rule_sets: Vec<RuleSet<SourceAction>>,
    /// A source has the same address in every pool.
    pub address_persistent: bool,
    /// `port-randomization disable`
    pub sequential_ports: bool,
    /// Ports that rules with `interface` choose from.
    pub interface_ports: Ports,
    /// Most bindings of persistent-nat; None = as many as there are by default.
    pub max_bindings: Option<u32>,
}

/// `security nat destination`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DestinationNat {
    /// Rules name them.
    pub pools: Vec<DestinationPool>,
    /// First match decides.
    pub rule_sets: Vec<RuleSet<DestinationAction>>,
}

/// Where packets come from or go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ends {
    /// `NAME.UNIT`
    Units(Vec<String>),
    /// Names of zones.
    Zones(Vec<String>),
    /// Names of routing instances, `default` for the main one, and all their units that are in zones.
    #[allow(missing_docs, reason = "said above")]
    RoutingInstances { names: Vec<String>, units: Vec<String> },
}

/// Rules for packets of certain ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleSet<Action> {
    /// Unique within source, destination or static NAT.
    pub name: String,
    /// Where the packets come from.
    pub from: Ends,
    /// Source rule-sets only.
    pub to: Option<Ends>,
    /// First match decides.
    pub rules: Vec<NatRule<Action>>,
}

/// What is matched, and how it is translated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NatRule<Action> {
    /// Unique within its rule-set.
    pub name: String,
    /// All of it has to match.
    pub matching: NatMatch,
    /// Source, destination or static NAT, by the kind of the set.
    pub then: Action,
}

/// None = any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct NatMatch {
    /// Addresses before translation of the source.
    pub source: Option<Ranges>,
    /// Addresses before translation of the destination; source rules see it after that.
    pub destination: Option<Ranges>,
    /// Protocols and ports.
    pub services: Option<Vec<Service>>,
}

/// What becomes of the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceAction {
    /// It stays as it is, and no later rule is tried.
    Off,
    /// It becomes the address of the unit that the packet leaves by.
    Interface {
        /// None = each session has a port of its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        persistent: Option<Persistent>,
    },
    /// It becomes an address of a pool.
    Pool {
        /// The pool's.
        name: String,
        /// None = each session has a port of its own.
        #[serde(skip_serializing_if = "Option::is_none")]
        persistent: Option<Persistent>,
    },
}

impl SourceAction {
    /// None also where nothing is translated.
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
    /// Whose packets reach the inside endpoint.
    pub permit: Permit,
    /// Seconds without a session after which a binding ends.
    pub timeout_s: u32,
    /// At one time, of one binding.
    pub sessions: u32,
}

/// Who reaches an inside endpoint under its outside one (RFC 4787 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Permit {
    /// Every host.
    AnyRemoteHost,
    /// Hosts that the inside endpoint has sent to.
    TargetHost,
    /// Hosts and ports that the inside endpoint has sent to.
    TargetHostPort,
}

impl Permit {
    /// As the configuration spells it.
    pub fn name(self) -> &'static str {
        match self {
            Permit::AnyRemoteHost => "any-remote-host",
            Permit::TargetHost => "target-host",
            Permit::TargetHostPort => "target-host-port",
        }
    }
}

/// What becomes of the destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationAction {
    /// It stays as it is, and no later rule is tried.
    Off,
    /// It becomes an address of this pool.
    #[allow(missing_docs, reason = "the pool's name")]
    Pool { name: String },
}

/// What a static rule exchanges, in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "`from` is what is matched and `to` what it becomes")]
#[serde(rename_all = "snake_case")]
pub enum StaticAction {
    /// Both of one length; where `to` is in an instance, `default` = the main one, only what comes from there is translated back.
    Prefix {
        from: Prefix,
        to: Prefix,
        ports: Option<PortMap>,
        #[serde(skip_serializing_if = "Option::is_none")]
        routing_instance: Option<String>,
    },
    /// RFC 6296
    Nptv6 { from: Prefix, to: Prefix },
    /// NAT64 behind this prefix (RFC 6052).
    Inet { prefix: Prefix },
}

/// `destination-port` and `mapped-port` of a static rule: ranges of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PortMap {
    /// Destination ports that are matched, first and last.
    pub from: (u16, u16),
    /// What they become, in their order.
    pub to: (u16, u16),
}

/// A source pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourcePool {
    /// What rules name it by.
    pub name: String,
    /// Of one family, sorted and without overlap.
    pub addresses: Vec<(IpAddr, IpAddr)>,
    /// Ports that sessions are given.
    pub ports: Ports,
    /// `address-pooling paired`, or `address-persistent`
    pub paired: bool,
    /// What is used when its ports are exhausted; None = the packet is dropped.
    pub overflow: Option<Overflow>,
    /// `host-address-base`
    pub base: Option<IpAddr>,
    /// Where its addresses are, `default` = the main one; None = where each session leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing_instance: Option<String>,
}

/// Ports that a pool or an interface gives to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ports {
    /// None = they stay as they are.
    pub range: Option<(u16, u16)>,
    /// The source's own port, if it is free.
    pub preserve_source: bool,
}

impl Default for Ports {
    fn default() -> Self {
        Ports { range: Some(DEFAULT_PORTS), preserve_source: false }
    }
}

/// What a pool falls back to when its ports are exhausted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The address of the unit that the packet leaves by.
    Interface,
    /// Another pool, by name.
    Pool(String),
}

/// A destination pool: a range of addresses, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DestinationPool {
    /// What rules name it by.
    pub name: String,
    /// First address.
    pub low: IpAddr,
    /// Last address, of the same family.
    pub high: IpAddr,
    /// None = it stays as it is.
    pub port: Option<u16>,
    /// Whose routes decide about what was translated, `default` = the main one's; None = those of where packets come from.
    pub routing_instance: Option<String>,
}

/// Addresses that a unit answers ARP or neighbour solicitations for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proxy {
    /// `NAME.UNIT`
    pub unit: String,
    /// First address.
    pub low: IpAddr,
    /// Last address, of the same family.
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
