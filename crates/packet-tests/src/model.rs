//! The reference: what a zone firewall must do with a packet, in plain Rust and without tables, caches or a fast path.
//! It shares no code with the plan or the programs; where they disagree, one of them is wrong.
//!
//! Order and names of the decisions are those of `bpf/stages.def`.

mod fragments;
pub mod nat64;
mod parse;
pub mod rates;
pub mod rfc6146;
mod screens;
mod tcp;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use sluice_wire::{Mac, ethertype, icmpv4, icmpv6};

pub use parse::{Facts, Link, Quote, link, parse};
pub use sluice_wire::protocol::{DCCP, ICMP, ICMPV6, IGMP, SCTP, TCP, UDP, UDP_LITE};
use tcp::Tracker;

/// Stands in the port of an answering side of ICMP echo.
const ECHO: u16 = 0x0800;

/// Where a packet ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Through which unit.
    Redirect(String),
    /// The next hop's MAC address is not known yet.
    Handoff(String),
    /// This host's stack gets it.
    Local,
    /// A message of GTP-U that ends here.
    Tunnel,
    /// For this reason; its sender is not told.
    Drop(&'static str),
    /// Dropped, and the sender is told.
    Reply(&'static str),
}

/// A unit, and what belongs to its zone.
#[derive(Debug, Clone)]
pub struct Unit {
    /// `NAME.UNIT`
    pub name: String,
    /// Device that its frames arrive on.
    pub device: String,
    /// TPID and VLAN, outer first.
    pub tags: Vec<(u16, u16)>,
    /// Of that device.
    pub mac: Mac,
    /// Name of the zone it is in.
    pub zone: String,
    /// In bytes, without the Ethernet header.
    pub mtu: usize,
    /// Names of the screens of its zone.
    pub screens: Vec<&'static str>,
    /// Its screens count, and drop nothing.
    pub alarm_without_drop: bool,
    /// This host's, with the length of the subnet.
    pub addresses: Vec<(IpAddr, u8)>,
    /// What may reach this host from here.
    pub inbound: Vec<Service>,
}

/// A policy.
#[derive(Debug, Clone)]
pub struct Rule {
    /// None = any pair of zones.
    pub pair: Option<(String, String)>,
    /// None = any.
    pub source: Option<Vec<(IpAddr, IpAddr)>>,
    /// None = any.
    pub destination: Option<Vec<(IpAddr, IpAddr)>>,
    /// None = any.
    pub application: Option<Vec<Service>>,
    /// What becomes of a session's first packet.
    pub action: Action,
}

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The session is made.
    Permit,
    /// Dropped, and its sender is not told.
    Deny,
    /// Dropped, and its sender gets a reset or an ICMP error.
    Reject,
}

/// Protocol with port ranges, or with an ICMP type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// IP protocol number.
    pub protocol: u8,
    /// Source ports, first and last.
    pub sport: (u16, u16),
    /// Destination ports, first and last.
    pub dport: (u16, u16),
    /// None = any.
    pub icmp_type: Option<u8>,
}

/// An entry of the routing table; the longest prefix wins.
#[derive(Debug, Clone)]
pub struct Route {
    /// Address and length.
    pub prefix: (IpAddr, u8),
    /// Where it leads.
    pub target: Target,
}

/// Where a route leads.
#[derive(Debug, Clone)]
pub enum Target {
    /// On the link of a unit.
    Link(String),
    /// Through a neighbour on a unit's link.
    Via(String, IpAddr),
    /// Dropped, and no sender is told.
    Blackhole,
    /// Dropped, with an ICMP error.
    Unreachable,
}

/// A direction of a flow; the answer's is the reverse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// As in the IP header.
    pub source: IpAddr,
    /// As in the IP header.
    pub destination: IpAddr,
    /// Source port; of an ICMP echo request the identifier.
    pub sport: u16,
    /// Destination port; of an ICMP echo reply the identifier.
    pub dport: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl Tuple {
    /// What the other side sends.
    pub fn reversed(self) -> Tuple {
        Tuple {
            source: self.destination,
            destination: self.source,
            sport: self.dport,
            dport: self.sport,
            protocol: self.protocol,
        }
    }
}

#[derive(Debug, Clone)]
struct Session {
    /// Zones that the opener's and the answerer's packets must come from; the latter is empty for this host's.
    zones: [String; 2],
    to_host: bool,
    tcp: Tracker,
}

/// Configuration, routes and sessions of the gateway that packets are compared with.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Every unit of a zone.
    pub units: Vec<Unit>,
    /// First match decides, those of zone pairs before global ones.
    pub rules: Vec<Rule>,
    /// What becomes of packets without a match.
    pub default_permit: bool,
    /// Of both families, in any order.
    pub routes: Vec<Route>,
    /// Neighbours whose MAC addresses are known.
    pub neighbours: Vec<IpAddr>,
    /// Sessions that fit, of each family.
    pub capacity: usize,
    /// Units, and their addresses that messages of GTP-U end at.
    pub tunnels: Vec<(String, IpAddr)>,
    datagrams: screens::Datagrams,
    pieces: fragments::Pieces,
    sessions: HashMap<Tuple, usize>,
    records: HashMap<usize, (Tuple, Session)>,
    next: usize,
}

impl Model {
    /// Nothing configured yet; so many sessions fit, of each family.
    pub fn new(capacity: usize) -> Model {
        Model { capacity, ..Model::default() }
    }

    /// Live ones of both families.
    pub fn session_count(&self) -> usize {
        self.records.len()
    }

    /// Opener's tuples of all sessions, in the order they were opened.
    pub fn flows(&self) -> Vec<Tuple> {
        let mut numbers: Vec<&usize> = self.records.keys().collect();
        numbers.sort();
        numbers.iter().map(|number| self.records[number].0).collect()
    }

    /// Next sequence numbers of the opener and the answerer of a session.
    pub fn sequence_numbers(&self, opener: &Tuple) -> [u32; 2] {
        self.sessions.get(opener).map_or([0, 0], |number| self.records[number].1.tcp.ends())
    }

    /// What must happen to a frame that arrives on a device.
    pub fn judge(&mut self, device: &str, frame: &[u8]) -> Verdict {
        match self.decide(device, frame) {
            Ok(verdict) | Err(verdict) => verdict,
        }
    }

    fn decide(&mut self, device: &str, frame: &[u8]) -> Result<Verdict, Verdict> {
        let (unit, facts) = self.entry(device, frame)?;
        let Some(facts) = facts else { return Ok(Verdict::Local) };
        let found = self.datagrams.screens(&unit, &facts);
        if let Some(first) = found.first().filter(|_| !unit.alarm_without_drop) {
            return Err(Verdict::Drop(first));
        }
        if !facts.fragment || facts.group {
            return self.judge_whole(&unit, &facts);
        }
        if let Some(reason) = fragments::refusal(&facts) {
            return Err(Verdict::Drop(reason));
        }
        if facts.piece.offset != 0 {
            return self.follow_first(&unit, &facts);
        }
        let verdict = self.judge_whole(&unit, &facts);
        self.remember_first(&unit, &facts, &verdict);
        verdict
    }

    /// A packet with ports.
    fn judge_whole(&mut self, unit: &Unit, facts: &Facts) -> Result<Verdict, Verdict> {
        if facts.group {
            return self.to_group(unit, facts);
        }
        if self.ends_here(unit, facts) {
            return if facts.fragment { Err(Verdict::Drop("gtpu_fragment")) } else { Ok(Verdict::Tunnel) };
        }
        if facts.neighbour_discovery {
            return Ok(Verdict::Local);
        }
        if facts.icmp_error {
            return self.related(unit, facts);
        }
        if let Some(verdict) = self.in_session(unit, facts)? {
            return Ok(verdict);
        }
        self.first_packet(unit, facts)
    }

    /// The unit, and the packet unless it is no IP packet.
    fn entry(&self, device: &str, frame: &[u8]) -> Result<(Unit, Option<Facts>), Verdict> {
        let header = parse::link(frame).ok_or(Verdict::Drop("truncated"))?;
        let unit = self.units.iter().find(|unit| unit.device == device && unit.tags == header.tags);
        let stacked =
            header.tags.len() > 1 || header.tags.iter().any(|(tpid, _)| *tpid == ethertype::SERVICE_VLAN);
        let unknown = if stacked { "vlan_stack" } else { "unknown_unit" };
        let unit = unit.ok_or(Verdict::Drop(unknown))?.clone();
        if [ethertype::VLAN, ethertype::SERVICE_VLAN].contains(&header.ethertype) {
            return Err(Verdict::Drop("vlan_stack"));
        }
        if header.destination != unit.mac && !header.destination.is_multicast() {
            return Err(Verdict::Drop("other_host"));
        }
        let mut facts = parse(&header).map_err(Verdict::Drop)?;
        if let Some(facts) = &mut facts {
            facts.group |= header.destination.is_multicast();
            if facts.leads_elsewhere && facts.group {
                return Err(Verdict::Drop("routing_header"));
            }
            if facts.leads_elsewhere {
                return Err(facts.answer("routing_header", true));
            }
        }
        Ok((unit, facts))
    }

    /// TS 29.281 4.4.2: to the port, at an address of tunnels.
    fn ends_here(&self, unit: &Unit, facts: &Facts) -> bool {
        let is_own = |(name, address): &(String, IpAddr)| *name == unit.name && *address == facts.destination;
        facts.protocol == UDP && facts.dport == sluice_wire::gtpu::PORT && self.tunnels.iter().any(is_own)
    }

    /// An ICMP error travels with the session whose packet it quotes (RFC 5508 section 4.2 for NAT; here without).
    fn related(&mut self, unit: &Unit, facts: &Facts) -> Result<Verdict, Verdict> {
        if facts.source.is_unspecified() {
            return Err(Verdict::Drop("bad_address"));
        }
        let unrelated = Verdict::Drop("icmp_not_related");
        let quote = facts.quote.ok_or(unrelated.clone())?;
        if quote.tuple.source != facts.destination {
            return Err(unrelated);
        }
        let number = *self.sessions.get(&quote.tuple.reversed()).ok_or(unrelated.clone())?;
        let (opener, session) = &self.records[&number];
        let side = usize::from(*opener != quote.tuple.reversed());
        if session.zones[side] != unit.zone {
            return Err(unrelated);
        }
        if session.to_host && side == 0 {
            return Ok(Verdict::Local);
        }
        if facts.link_local {
            return Err(Verdict::Drop("bad_address"));
        }
        let back_to = session.zones[1 - side].clone();
        self.hop(facts)?;
        // the error goes where the flow's packets in this direction go
        self.route_into(&back_to, quote.tuple.source, facts)
    }

    /// Answers and errors leave where the other side's packets come from.
    fn route_into(&self, zone: &str, destination: IpAddr, facts: &Facts) -> Result<Verdict, Verdict> {
        let unit = self.next(destination, facts)?.0;
        if self.units.iter().any(|known| known.name == *unit && known.zone != zone) {
            return Err(Verdict::Drop("answer_zone"));
        }
        self.route(destination, facts)
    }

    fn in_session(&mut self, unit: &Unit, facts: &Facts) -> Result<Option<Verdict>, Verdict> {
        let Some(number) = self.sessions.get(&facts.tuple()).copied() else { return Ok(None) };
        let (opener, session) = self.records.get_mut(&number).expect("both indexes agree");
        let side = usize::from(*opener != facts.tuple());
        if session.zones[side] != unit.zone {
            return Err(Verdict::Drop("session_zone"));
        }
        let asks = match facts.protocol {
            ICMP => Some(facts.icmp_type == icmpv4::ECHO_REQUEST),
            ICMPV6 => Some(facts.icmp_type == icmpv6::ECHO_REQUEST),
            _ => None,
        };
        if asks.is_some_and(|asks| asks != (side == 0)) {
            return Err(Verdict::Drop("icmp_no_session"));
        }
        if facts.protocol == TCP {
            if session.tcp.reopened_by(side, facts) {
                self.end(number);
                return Ok(None);
            }
            if !session.tcp.fits(side, facts) {
                return Err(Verdict::Drop("tcp_out_of_window"));
            }
            if session.tcp.is_left_by(side, facts) {
                return Err(Verdict::Drop("tcp_reopening"));
            }
            session.tcp.follow(side, facts);
        }
        let local = session.to_host && side == 0;
        if local {
            return Ok(Some(Verdict::Local));
        }
        let back_to = (side == 1).then(|| session.zones[0].clone());
        self.hop(facts)?;
        match back_to {
            Some(zone) => self.route_into(&zone, facts.destination, facts),
            None => self.route(facts.destination, facts),
        }
        .map(Some)
    }

    fn first_packet(&mut self, unit: &Unit, facts: &Facts) -> Result<Verdict, Verdict> {
        may_open(facts)?;
        if self.own_address(facts.source).is_some() {
            return Err(Verdict::Drop("bad_address"));
        }
        let local = self.own_address(facts.destination);
        if local == Some(false) {
            return self.to_group(unit, facts);
        }
        if local == Some(true) {
            if !unit.inbound.iter().any(|service| service.admits(facts)) {
                return Err(Verdict::Drop("host_inbound"));
            }
            self.open(facts, [unit.zone.clone(), String::new()], true)?;
            return Ok(Verdict::Local);
        }
        if facts.link_local || facts.source.is_unspecified() {
            return Err(Verdict::Drop("bad_address"));
        }
        let ahead = self.hop(facts).and_then(|()| self.next(facts.destination, facts));
        let admitted = unit.inbound.iter().any(|service| service.admits(facts));
        // that leads to another link is for another host, though it may be too long for that link
        if facts.is_dhcp_answer() && (admitted || ahead.as_ref().map_or(true, |(to, _)| **to == unit.name)) {
            return Ok(Verdict::Local);
        }
        ahead?;
        let verdict = self.route(facts.destination, facts)?;
        let (Verdict::Redirect(name) | Verdict::Handoff(name)) = &verdict else { return Ok(verdict) };
        let to =
            self.units.iter().find(|unit| unit.name == *name).expect("routes lead to units").zone.clone();
        self.policy(&unit.zone, &to, facts)?;
        self.open(facts, [unit.zone.clone(), to], false)?;
        Ok(verdict)
    }

    /// Multicast and broadcast (RFC 1122 section 3.3.6, RFC 2644): what every host must hear, and what the unit admits.
    fn to_group(&self, unit: &Unit, facts: &Facts) -> Result<Verdict, Verdict> {
        let destination = facts.destination;
        let limited = IpAddr::V4(Ipv4Addr::BROADCAST);
        let broadcast = self.own_address(destination) == Some(false);
        if !(destination.is_multicast() || destination == limited || broadcast) {
            return Err(Verdict::Drop("link_broadcast"));
        }
        let on = |unit: &Unit| {
            unit.addresses.iter().any(|(own, length)| special(*own, *length).1 == Some(destination))
        };
        if broadcast && self.units.iter().filter(|unit| on(unit)).count() == 1 && !on(unit) {
            return Err(Verdict::Drop("directed_broadcast"));
        }
        if facts.is_heard_always() || unit.inbound.iter().any(|service| service.admits(facts)) {
            Ok(Verdict::Local)
        } else {
            Err(Verdict::Drop("host_inbound"))
        }
    }

    /// Some(true): this host's; Some(false): everybody's on one of its links.
    fn own_address(&self, address: IpAddr) -> Option<bool> {
        self.units.iter().flat_map(|unit| &unit.addresses).find_map(|(own, length)| {
            let (anycast, broadcast) = special(*own, *length);
            let host = address == *own || Some(address) == anycast;
            host.then_some(true).or((Some(address) == broadcast).then_some(false))
        })
    }

    /// RFC 1812 section 5.3.1.
    fn hop(&self, facts: &Facts) -> Result<(), Verdict> {
        if facts.ttl <= 1 { Err(facts.answer("ttl_exceeded", true)) } else { Ok(()) }
    }

    /// The unit and the neighbour that a destination is reached by.
    fn next(&self, destination: IpAddr, facts: &Facts) -> Result<(&String, IpAddr), Verdict> {
        let candidates = self.routes.iter().filter(|route| within(destination, route.prefix));
        let best = candidates.max_by_key(|route| route.prefix.1);
        match best.map(|route| &route.target) {
            None => Err(facts.answer("no_route", true)),
            Some(Target::Blackhole) => Err(Verdict::Drop("route_prohibited")),
            Some(Target::Unreachable) => Err(facts.answer("route_prohibited", true)),
            Some(Target::Link(unit)) => Ok((unit, destination)),
            Some(Target::Via(unit, gateway)) => Ok((unit, *gateway)),
        }
    }

    fn route(&self, destination: IpAddr, facts: &Facts) -> Result<Verdict, Verdict> {
        let (unit, neighbour) = self.next(destination, facts)?;
        let mtu = self.units.iter().find(|known| known.name == *unit).map_or(0, |unit| unit.mtu);
        if facts.length > mtu {
            return Err(facts.answer("too_big", true));
        }
        let known = self.neighbours.contains(&neighbour);
        Ok(if known { Verdict::Redirect(unit.clone()) } else { Verdict::Handoff(unit.clone()) })
    }

    /// The first rule that matches decides: those of the pair, then those of all pairs, then the default.
    fn policy(&self, from: &str, to: &str, facts: &Facts) -> Result<(), Verdict> {
        let of_pair = |rule: &&Rule| rule.pair.as_ref().is_some_and(|(f, t)| f == from && t == to);
        let own = self.rules.iter().filter(of_pair);
        let global = self.rules.iter().filter(|rule| rule.pair.is_none());
        let matched = own.chain(global).find(|rule| rule.matches(facts));
        match matched.map(|rule| rule.action) {
            Some(Action::Permit) => Ok(()),
            Some(Action::Deny) => Err(Verdict::Drop("policy_deny")),
            Some(Action::Reject) => Err(facts.rejected()),
            None if self.default_permit => Ok(()),
            None => Err(Verdict::Drop("policy_default")),
        }
    }

    fn open(&mut self, facts: &Facts, zones: [String; 2], to_host: bool) -> Result<(), Verdict> {
        let tuple = facts.tuple();
        let family = |tuple: &Tuple| tuple.source.is_ipv4();
        let same = self.records.values().filter(|(opener, _)| family(opener) == family(&tuple)).count();
        if same >= self.capacity {
            return Err(Verdict::Drop("session_table_full"));
        }
        if tuple == tuple.reversed() || self.sessions.contains_key(&tuple.reversed()) {
            return Err(Verdict::Drop("session_conflict"));
        }
        self.next += 1;
        self.sessions.insert(tuple, self.next);
        self.sessions.insert(tuple.reversed(), self.next);
        self.records.insert(self.next, (tuple, Session { zones, to_host, tcp: Tracker::opened_by(facts) }));
        Ok(())
    }

    fn end(&mut self, number: usize) {
        if let Some((tuple, _)) = self.records.remove(&number) {
            self.sessions.remove(&tuple);
            self.sessions.remove(&tuple.reversed());
        }
    }
}

/// What may begin a session: a SYN, an echo request, anything of the protocols without such a thing.
fn may_open(facts: &Facts) -> Result<(), Verdict> {
    let echo_request = match facts.protocol {
        ICMP => facts.icmp_type == icmpv4::ECHO_REQUEST,
        ICMPV6 => facts.icmp_type == icmpv6::ECHO_REQUEST,
        _ => true,
    };
    if facts.protocol == TCP && !facts.opens_tcp() {
        Err(Verdict::Drop("tcp_not_syn"))
    } else if !echo_request {
        Err(Verdict::Drop("icmp_no_session"))
    } else {
        Ok(())
    }
}

impl Rule {
    fn matches(&self, facts: &Facts) -> bool {
        let inside = |ranges: &Option<Vec<(IpAddr, IpAddr)>>, address: IpAddr| {
            let hit = |(low, high): &(IpAddr, IpAddr)| {
                low.is_ipv4() == address.is_ipv4() && *low <= address && address <= *high
            };
            ranges.as_ref().is_none_or(|ranges| ranges.iter().any(hit))
        };
        inside(&self.source, facts.source)
            && inside(&self.destination, facts.destination)
            && self.application.as_ref().is_none_or(|services| services.iter().any(|s| s.admits(facts)))
    }
}

impl Service {
    /// Protocol, and ports or ICMP type.
    pub fn admits(&self, facts: &Facts) -> bool {
        let between = |(low, high): (u16, u16), port| low <= port && port <= high;
        let ports = between(self.sport, facts.sport) && between(self.dport, facts.dport);
        self.protocol == facts.protocol
            && match facts.protocol {
                ICMP | ICMPV6 => self.icmp_type.is_none_or(|kind| kind == facts.icmp_type),
                _ => ports,
            }
    }
}

impl Facts {
    /// Of the flow it would belong to.
    pub fn tuple(&self) -> Tuple {
        let (sport, dport) = self.flow_ports();
        Tuple { source: self.source, destination: self.destination, sport, dport, protocol: self.protocol }
    }

    /// Identifier and a mark: a request never matches the direction that answers travel in.
    fn flow_ports(&self) -> (u16, u16) {
        match (self.protocol, self.icmp_type) {
            (ICMP, icmpv4::ECHO_REQUEST) | (ICMPV6, icmpv6::ECHO_REQUEST) => (self.sport, ECHO),
            (ICMP, icmpv4::ECHO_REPLY) | (ICMPV6, icmpv6::ECHO_REPLY) => (ECHO, self.sport),
            (ICMP | ICMPV6, _) => (0, 0),
            _ => (self.sport, self.dport),
        }
    }

    fn opens_tcp(&self) -> bool {
        use sluice_wire::tcp::{ACK, FIN, RST, SYN};
        self.tcp_flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// A client's DHCP (RFC 2131 section 4.1, RFC 8415 section 7.2), IGMP, MLD and neighbour discovery.
    fn is_heard_always(&self) -> bool {
        let ports = (self.sport, self.dport);
        !self.fragment
            && match (self.protocol, self.source.is_ipv4()) {
                (UDP, true) => ports == (67, 68),
                (UDP, false) => ports == (547, 546),
                (protocol, true) => protocol == IGMP,
                (protocol, false) => protocol == ICMPV6 && matches!(self.icmp_type, 130..=137 | 143),
            }
    }

    /// RFC 2131 section 4.1: an answer may go to an address that the host does not have yet.
    fn is_dhcp_answer(&self) -> bool {
        self.source.is_ipv4() && self.protocol == UDP && (self.sport, self.dport) == (67, 68)
    }

    /// A drop that is answered, unless it must not be: about errors, to nobody (RFC 1812 section 4.3.2.7).
    fn answer(&self, reason: &'static str, wanted: bool) -> Verdict {
        // RFC 1122 section 3.2.2; but an IPv6 sender must learn the path's MTU (RFC 8201 section 4)
        let later = self.piece.offset != 0 && (self.source.is_ipv4() || reason != "too_big");
        let told = wanted && !self.icmp_error && !later && !self.source.is_unspecified();
        if told { Verdict::Reply(reason) } else { Verdict::Drop(reason) }
    }

    /// A reset carries no options, so a packet with any gets none.
    fn rejected(&self) -> Verdict {
        self.answer("policy_reject", self.protocol != TCP || !self.options)
    }
}

fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(v4) => (u32::from(v4).into(), 32),
        IpAddr::V6(v6) => (v6.into(), 128),
    }
}

fn within(address: IpAddr, (prefix, length): (IpAddr, u8)) -> bool {
    let ((address, width), (prefix, of)) = (bits(address), bits(prefix));
    width == of && (length == 0 || (address ^ prefix) >> (width - length) == 0)
}

/// The subnet-router anycast address (RFC 4291 section 2.6.1), and the broadcast address.
fn special(address: IpAddr, length: u8) -> (Option<IpAddr>, Option<IpAddr>) {
    match address {
        IpAddr::V4(v4) if (1..=30).contains(&length) => {
            (None, Some(IpAddr::V4((u32::from(v4) | u32::MAX >> length).into())))
        }
        IpAddr::V6(v6) if (1..=126).contains(&length) => {
            (Some(IpAddr::V6((u128::from(v6) & !(u128::MAX >> length)).into())), None)
        }
        _ => (None, None),
    }
}
