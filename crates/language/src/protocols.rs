//! `protocols` and `policy-options`, with what neighbours inherit from their groups put in its place.

use std::net::{IpAddr, Ipv4Addr};

use serde::Serialize;

use crate::values::Prefix;

/// What FRR is to speak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Protocols {
    /// `routing-options router-id`; None = FRR chooses an address.
    pub router_id: Option<Ipv4Addr>,
    /// `policy-options policy-statement`, with the lists that they name.
    pub policies: Vec<PolicyStatement>,
    /// `protocols bgp`
    pub bgp: Option<Bgp>,
    /// `protocols ospf`
    pub ospf: Option<Ospf>,
    /// `protocols ospf3`
    pub ospf3: Option<Ospf>,
}

impl Protocols {
    /// Whether FRR has anything to do.
    pub fn any(&self) -> bool {
        self.bgp.is_some() || self.ospf.is_some() || self.ospf3.is_some()
    }
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyStatement {
    /// Protocols name it.
    pub name: String,
    /// In order; what the policy has outside of its terms is the last one.
    pub terms: Vec<Term>,
}

/// Conditions and what follows from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Term {
    /// Each that is not empty must hold, by any of its values.
    pub from: From,
    /// What becomes of the route.
    pub then: Then,
}

/// Which routes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct From {
    /// By where they come from.
    pub protocols: Vec<Origin>,
    /// By prefix and length, of prefix lists or route filters; None = any.
    pub prefixes: Option<Vec<RouteFilter>>,
    /// By the BGP neighbour that told them.
    pub neighbors: Vec<IpAddr>,
    /// By communities; of each, all members.
    pub communities: Vec<Vec<String>>,
    /// By AS path, as regular expressions of FRR.
    pub as_paths: Vec<String>,
    /// True = IPv6.
    pub inet6: Option<bool>,
}

/// A prefix and the lengths that match within.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RouteFilter {
    /// What is matched within.
    pub prefix: Prefix,
    /// The shortest length.
    pub least: u8,
    /// The longest length.
    pub most: u8,
}

/// Where a route comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Origin {
    /// `bgp`
    Bgp,
    /// `direct`
    Direct,
    /// `ospf`
    Ospf,
    /// `ospf3`
    Ospf3,
    /// `static`
    Static,
}

/// What becomes of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Then {
    /// What decides.
    pub verdict: Verdict,
    /// MED, or OSPF's metric.
    pub metric: Option<u32>,
    /// `local-preference`
    pub local_preference: Option<u32>,
    /// Communities that it gets.
    pub add: Vec<String>,
    /// Communities that are all it has.
    pub set: Vec<String>,
    /// Communities that it loses.
    pub delete: Vec<String>,
    /// AS numbers in front of its path.
    pub prepend: Option<String>,
    /// `next-hop`
    pub next_hop: Option<RouteNextHop>,
}

/// Whether a term decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub enum Verdict {
    /// `accept`
    Accept,
    /// `reject`
    Reject,
    /// The next term does.
    #[default]
    NextTerm,
    /// The next policy does.
    NextPolicy,
}

/// Where a route's packets are to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum RouteNextHop {
    /// Our end of the session.
    Own,
    /// The other one.
    Peer,
    /// Elsewhere.
    Address(IpAddr),
}

/// `protocols bgp`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bgp {
    /// `routing-options autonomous-system`
    pub autonomous_system: u32,
    /// Routes of the same worth share traffic, from other ASes and our own.
    pub multipath: (bool, bool),
    /// `graceful-restart`, unless it is disabled.
    pub graceful_restart: Option<GracefulRestart>,
    /// Every neighbour, in the order of the configuration.
    pub neighbors: Vec<Neighbor>,
}

/// What outlives a restart of BGP, where that is not what it is by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct GracefulRestart {
    /// Seconds that neighbours keep our routes.
    pub restart_s: Option<u16>,
    /// Seconds that theirs are kept.
    pub stale_s: Option<u16>,
}

/// One BGP neighbour, or any of some prefixes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbor {
    /// Who.
    pub peer: Peer,
    /// Its AS.
    pub peer_as: u32,
    /// Our AS for it, if another one.
    pub local_as: Option<u32>,
    /// Our end.
    pub local_address: Option<IpAddr>,
    /// Hops at most, for neighbours of other ASes; None = none between.
    pub multihop: Option<u8>,
    /// Free text.
    pub description: Option<String>,
    /// The session stays down.
    pub shutdown: bool,
    /// TCP MD5 password.
    pub key: Option<String>,
    /// Seconds.
    pub hold_time_s: u16,
    /// `graceful-restart`
    pub graceful_restart: bool,
    /// `bfd-liveness-detection`
    pub bfd: Option<Bfd>,
    /// IPv4 routes, and how many at most.
    pub inet: Option<Family>,
    /// IPv6 routes, and how many at most.
    pub inet6: Option<Family>,
    /// Names of policies.
    pub import: Vec<String>,
    /// Names of policies.
    pub export: Vec<String>,
}

/// Who a BGP neighbour is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Peer {
    /// This one.
    Address(IpAddr),
    /// Any of these, by the name of their group.
    Any(String, Vec<Prefix>),
}

/// Routes of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Family {
    /// So many at most, and whether more end the session.
    pub limit: Option<(u32, bool)>,
}

/// How soon BFD says that the other end is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Bfd {
    /// Between packets.
    pub interval_ms: u32,
    /// Packets that are missed.
    pub multiplier: u8,
}

/// `protocols ospf` or `ospf3`
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ospf {
    /// In the order of the configuration.
    pub areas: Vec<Area>,
    /// Names of policies.
    pub export: Vec<String>,
    /// Megabits a second that cost 1.
    pub reference_mbps: Option<u32>,
}

/// An area.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Its number, as an address.
    pub id: Ipv4Addr,
    /// Whether routes from outside come in.
    pub kind: AreaKind,
    /// In the order of the configuration.
    pub interfaces: Vec<OspfInterface>,
}

/// What comes into an area; with true, routes of other areas do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AreaKind {
    /// All does.
    Usual,
    /// No external routes.
    Stub(bool),
    /// External routes of its own alone.
    Nssa(bool),
}

/// A unit that OSPF runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OspfInterface {
    /// `NAME.UNIT`
    pub unit: String,
    /// Cost.
    pub metric: Option<u16>,
    /// Seconds between hellos.
    pub hello_s: Option<u16>,
    /// Seconds without one.
    pub dead_s: Option<u16>,
    /// One router at the other end.
    pub p2p: bool,
    /// No neighbour is looked for.
    pub passive: bool,
    /// Numbers and keys of MD5 signatures.
    pub md5: Vec<(u8, String)>,
    /// `bfd-liveness-detection`
    pub bfd: Option<Bfd>,
}
