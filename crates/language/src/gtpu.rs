//! `services gtp-u` as types, and what a session must fit into, wherever it comes from.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use crate::values::{Prefix, overlap};

/// Interface whose units lead to subscribers; the kernel knows them by their own names, `mif.0`.
pub const MOBILE: &str = "mif";

/// Sessions that there is room for unless `sessions-maximum` says otherwise.
pub const SESSIONS_MAXIMUM: u32 = 65_536;

/// Packets that may wait for a CPU unless `queue-size` says otherwise.
pub const QUEUE_SIZE: u32 = 2048;

/// All of `services gtp-u`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct GtpU {
    /// Units that tunnels end on.
    pub interfaces: Vec<TunnelInterface>,
    /// Room for sessions; None = [`SESSIONS_MAXIMUM`].
    pub sessions_maximum: Option<u32>,
    /// Addresses of subscribers.
    pub pools: Vec<MobilePool>,
    /// Tunnels that copies go into, which rules name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub duplicates: Vec<Duplicate>,
    /// Sets of rules, which sessions name.
    pub rules: Vec<SessionRules>,
    /// Sessions that last as long as they stand in the configuration.
    pub sessions: Vec<MobileSession>,
    /// CPUs that the flows in tunnels are spread to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
}

/// CPUs that share packets in tunnels by their flows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// By the kernel's numbers; empty = all that are online.
    pub processors: Vec<u16>,
    /// Packets that may wait for each.
    pub queue_size: u32,
}

/// What is at the other end of an interface's tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// 5G base stations.
    N3,
    /// Other user planes.
    N9,
    /// 4G base stations and gateways.
    #[serde(rename = "s1-u")]
    S1U,
}

impl Role {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Role::N3 => "n3",
            Role::N9 => "n9",
            Role::S1U => "s1-u",
        }
    }
}

/// A unit with a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TunnelInterface {
    /// `NAME.UNIT`
    pub unit: String,
    /// What is there.
    pub role: Role,
    /// Its first IPv4 address.
    pub v4: Option<Ipv4Addr>,
    /// Its first global IPv6 address.
    pub v6: Option<Ipv6Addr>,
}

impl TunnelInterface {
    fn local(&self, v4: bool) -> Option<IpAddr> {
        if v4 { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) }
    }

    /// Whether tunnels to this address end here.
    pub fn has(&self, local: IpAddr) -> bool {
        self.local(local.is_ipv4()) == Some(local)
    }
}

/// Addresses of subscribers, and the unit that they are behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MobilePool {
    /// For reports.
    pub name: String,
    /// Of both families.
    pub prefixes: Vec<Prefix>,
    /// `mif.N`
    pub interface: String,
    /// What this gateway has on it, which is no subscriber's.
    pub gateway: Vec<IpAddr>,
}

/// A tunnel that copies of packets go into (Duplicating Parameters, TS 29.244 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Duplicate {
    /// Rules name it.
    pub name: String,
    /// The other end.
    pub peer: IpAddr,
    /// That the other end is reached under.
    pub peer_teid: u32,
    /// Address of this gateway that the tunnel has; None = the first interface's that has one of the peer's family.
    pub local: Option<IpAddr>,
}

/// What a session's packets meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct SessionRules {
    /// Sessions name it.
    pub name: String,
    /// QoS flow identifier; with it packets to the peer have a PDU Session Container (TS 38.415 5.5.2.1).
    pub qfi: Option<u8>,
    /// That container asks for reflective QoS.
    pub reflective: bool,
    /// From the subscriber.
    pub uplink: DirectionRules,
    /// To the subscriber.
    pub downlink: DirectionRules,
    /// Packets that meet something else, the first by precedence first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<SessionFlow>,
}

impl SessionRules {
    /// Whether packets to the peer may have a PDU Session Container.
    pub fn has_qfi(&self) -> bool {
        self.qfi.is_some() || self.flows.iter().any(|flow| flow.qfi.is_some())
    }
}

/// Packets of a session that meet something else than the others (TS 29.244 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionFlow {
    /// For reports.
    pub name: String,
    /// The lowest is asked first; no other flow of its rules has it.
    pub precedence: u32,
    /// Which packets.
    pub filter: FlowFilter,
    /// As of [`SessionRules`]; None = that of the rules.
    pub qfi: Option<u8>,
    /// Its own container asks for reflective QoS.
    pub reflective: bool,
    /// From the subscriber.
    pub uplink: DirectionRules,
    /// To the subscriber.
    pub downlink: DirectionRules,
}

/// What packets of a flow have (an SDF filter, TS 23.501 5.7.6.2); what is None or empty is not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct FlowFilter {
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Of who is not the subscriber, of both families.
    pub remote_addresses: Vec<Prefix>,
    /// First and last.
    pub remote_ports: Vec<(u16, u16)>,
    /// Of the subscriber.
    pub local_ports: Vec<(u16, u16)>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
}

impl FlowFilter {
    /// The same, however its lists were written.
    pub(crate) fn sorted(&self) -> FlowFilter {
        let mut sorted = self.clone();
        sorted.remote_addresses.sort_unstable();
        sorted.remote_addresses.dedup();
        for ports in [&mut sorted.remote_ports, &mut sorted.local_ports] {
            ports.sort_unstable();
            ports.dedup();
        }
        sorted
    }
}

/// What packets in one direction meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct DirectionRules {
    /// `maximum-bit-rate`, in bits per second of inner IP packets.
    pub rate_bps: Option<u64>,
    /// `burst-size`, in bytes; None = what 10 ms of the rate bring, and 15,000 at least.
    pub burst_bytes: Option<u64>,
    /// `gate closed`
    pub closed: bool,
    /// `discard`
    pub discard: bool,
    /// `dscp`; None = as it is.
    pub dscp: Option<u8>,
    /// Name of the tunnel that copies of what passes go into; None of a flow = that of its rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<String>,
}

/// What of a session's usage is told of, each time that another so much has passed (TS 29.244 5.2.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Thresholds {
    /// Bytes from the subscriber.
    pub uplink: Option<u64>,
    /// Bytes to the subscriber.
    pub downlink: Option<u64>,
    /// Bytes of both.
    pub total: Option<u64>,
    /// Seconds since the session was made.
    pub time_s: Option<u64>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MobileSession {
    /// Unique.
    pub name: String,
    /// That this gateway is reached under.
    pub teid: u32,
    /// IPv4 address of the subscriber.
    pub address: Option<Ipv4Addr>,
    /// Its 64-bit IPv6 prefix.
    pub prefix: Option<Ipv6Addr>,
    /// `relay`: what comes under the TEID goes on to the peer, and there is no subscriber here.
    pub relay: bool,
    /// The other end of the tunnel.
    pub peer: IpAddr,
    /// That the other end is reached under.
    pub peer_teid: u32,
    /// Address of this gateway that tunnel has; None = the first interface's that has one of the peer's family.
    pub local: Option<IpAddr>,
    /// Name of its set of rules; None = everything passes, without a container.
    pub rules: Option<String>,
    /// Bytes that may pass in all.
    pub uplink_quota: Option<u64>,
    /// Bytes that may pass in all.
    pub downlink_quota: Option<u64>,
    /// Seconds since the session was made, after which nothing passes.
    pub time_quota_s: Option<u64>,
    /// `threshold`
    pub thresholds: Thresholds,
}

/// What of a session does not fit the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// The statement that says it, below the session's.
    pub statement: &'static [&'static str],
    /// What is wrong.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.help)
    }
}

fn misfit(statement: &'static [&'static str], what: String, help: impl Into<String>) -> Misfit {
    Misfit { statement, what, help: help.into() }
}

impl GtpU {
    /// Nothing of it is configured.
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.pools.is_empty()
    }

    /// Sessions that there is room for.
    pub fn room(&self) -> u32 {
        match self.is_empty() {
            true => 0,
            false => self.sessions_maximum.unwrap_or(SESSIONS_MAXIMUM),
        }
    }

    /// The pool that has an address.
    pub fn pool(&self, address: IpAddr) -> Option<&MobilePool> {
        let host = Prefix { addr: address, len: if address.is_ipv4() { 32 } else { 128 } };
        self.pools.iter().find(|pool| pool.prefixes.iter().any(|prefix| overlap(prefix, &host)))
    }

    /// A set of rules.
    pub fn rules(&self, name: &str) -> Option<&SessionRules> {
        self.rules.iter().find(|rules| rules.name == name)
    }

    /// A tunnel of copies.
    pub fn duplicate(&self, name: &str) -> Option<&Duplicate> {
        self.duplicates.iter().find(|duplicate| duplicate.name == name)
    }

    /// Where a session's tunnel has this end: the unit and its address.
    pub fn local(&self, session: &MobileSession) -> Option<(&TunnelInterface, IpAddr)> {
        self.local_end(session.peer, session.local)
    }

    /// Where a tunnel to this peer has this end, of which the address may be said.
    pub fn local_end(&self, peer: IpAddr, local: Option<IpAddr>) -> Option<(&TunnelInterface, IpAddr)> {
        let v4 = peer.is_ipv4();
        let of = |interface: &&TunnelInterface| match local {
            Some(local) => interface.has(local),
            None => interface.local(v4).is_some(),
        };
        let interface = self.interfaces.iter().find(of)?;
        Some((interface, local.or_else(|| interface.local(v4))?))
    }

    /// The unit that a session's subscriber is behind.
    pub fn mobile(&self, session: &MobileSession) -> Option<&str> {
        let v4 = session.address.map(IpAddr::V4);
        let address = v4.or(session.prefix.map(IpAddr::V6))?;
        self.pool(address).map(|pool| pool.interface.as_str())
    }

    /// Whether a session has its place in this configuration; that no other has its TEID or address is not looked at.
    pub fn place(&self, session: &MobileSession) -> Result<(), Misfit> {
        self.addresses(session)?;
        self.tunnel(session.peer, session.local)?;
        let Some(name) = &session.rules else { return Ok(()) };
        let Some(rules) = self.rules(name) else {
            let known: Vec<&str> = self.rules.iter().map(|rules| rules.name.as_str()).collect();
            let help = match crate::error::closest(name, known.iter().copied()) {
                Some(close) => format!("did you mean `{close}`?"),
                None => "define it under `services gtp-u rules`, or correct the name".to_owned(),
            };
            return Err(misfit(&["rules"], format!("rules `{name}` are not defined"), help));
        };
        let role = self.local(session).map(|(interface, _)| interface.role);
        if session.relay && !rules.flows.is_empty() {
            let what = format!("rules `{name}` have flows, and it is a relay");
            return Err(misfit(&["rules"], what, "name rules without: relayed packets are not looked at"));
        }
        let is_copied = rules.uplink.duplicate.is_some() || rules.downlink.duplicate.is_some();
        if session.relay && is_copied {
            let what = format!("rules `{name}` have `duplicate`, and it is a relay");
            return Err(misfit(&["rules"], what, "name rules without: relayed messages are not copied"));
        }
        if rules.has_qfi() && role == Some(Role::S1U) {
            let what = format!("rules `{name}` have a `qfi`, and the tunnel is on an interface of role s1-u");
            return Err(misfit(&["rules"], what, "QoS flows are of 5G; name rules without `qfi`"));
        }
        Ok(())
    }

    fn addresses(&self, session: &MobileSession) -> Result<(), Misfit> {
        let v4 = session.address.map(|address| (IpAddr::V4(address), &["address"]));
        let v6 = session.prefix.map(|prefix| (IpAddr::V6(prefix), &["prefix"]));
        let own: Vec<_> = v4.into_iter().chain(v6).collect();
        match own.first() {
            Some((address, statement)) if session.relay => {
                let what = format!("it is a relay and has the subscriber {address}");
                return Err(misfit(
                    *statement,
                    what,
                    "remove one of both: relayed packets are not looked at",
                ));
            }
            None if !session.relay => {
                let what = "it has neither `address` nor `prefix`".to_owned();
                return Err(misfit(&[], what, "give it what its subscriber has, from a pool; or `relay`"));
            }
            _ => {}
        }
        let mut first: Option<&str> = None;
        for (address, statement) in own {
            let Some(pool) = self.pool(address) else {
                let what = format!("{address} is in no pool");
                return Err(misfit(statement, what, "add it to a `services gtp-u pool`, or correct it"));
            };
            let is_own = |own: &IpAddr| match (own, address) {
                (IpAddr::V6(own), IpAddr::V6(prefix)) => own.to_bits() >> 64 == prefix.to_bits() >> 64,
                (own, address) => *own == address,
            };
            if let Some(own) = pool.gateway.iter().find(|own| is_own(own)) {
                let what = format!("{address} is where this gateway has {own} on {}", pool.interface);
                return Err(misfit(statement, what, "give the subscriber another one"));
            }
            if first.is_some_and(|first| first != pool.interface) {
                let what = "`address` and `prefix` are of pools of different mobile interfaces".to_owned();
                return Err(misfit(statement, what, "a subscriber is behind one"));
            }
            first = Some(&pool.interface);
        }
        Ok(())
    }

    /// Whether a tunnel can have these ends.
    pub(crate) fn tunnel(&self, peer: IpAddr, local: Option<IpAddr>) -> Result<(), Misfit> {
        if let Some(local) = local {
            if local.is_ipv4() != peer.is_ipv4() {
                let what = format!("peer {peer} and `local-address` {local} are of different families");
                return Err(misfit(&["peer", "address"], what, "a tunnel has one"));
            }
            if !self.interfaces.iter().any(|interface| interface.has(local)) {
                let what = format!("{local} is no address that tunnels end on");
                let known: Vec<String> = self.interfaces.iter().flat_map(locals).collect();
                return Err(misfit(&["local-address"], what, format!("those are: {}", known.join(", "))));
            }
        } else if self.local_end(peer, None).is_none() {
            let family = if peer.is_ipv4() { "IPv4" } else { "IPv6" };
            let what = format!("peer {peer}, and no interface of `services gtp-u` has an {family} address");
            return Err(misfit(&["peer", "address"], what, "give one such an address, or correct the peer"));
        }
        let usable = !peer.is_unspecified() && !peer.is_multicast() && !peer.is_loopback();
        if !usable || peer == IpAddr::V4(Ipv4Addr::BROADCAST) {
            let what = format!("no peer can have the address {peer}");
            return Err(misfit(&["peer", "address"], what, "expected the address of a host"));
        }
        if self.interfaces.iter().any(|interface| interface.has(peer)) {
            let what = format!("peer {peer} is this gateway itself");
            return Err(misfit(&["peer", "address"], what, "expected the other end of the tunnel"));
        }
        Ok(())
    }
}

fn locals(interface: &TunnelInterface) -> impl Iterator<Item = String> + use<> {
    [true, false].map(|v4| interface.local(v4)).into_iter().flatten().map(|address| address.to_string())
}
