//! `sluice trace`: what became of a packet, in the names of the configuration in force.

pub mod filter;
mod phases;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use nix::time::{ClockId, clock_gettime};
use sluice_abi::stages::Reason;
use sluice_abi::{
    NEXTHOP_FIRST, NEXTHOP_LOCAL, TRACE_FOR_HOST, TRACE_IS_LOCAL, TRACE_UNRESOLVED, ZONE_HOST, ZONE_NONE,
};
use sluice_dataplane::{Action, Headers, Session, TracePath, TracePoint, Traced, TracedFrame};

use crate::api::drops::RecentDrop;
use crate::api::trace::{TracedHeaders, TracedPacket};
use crate::commit::Shared;
use crate::state::active::Active;
use crate::views::drops::{self, Rules};
use crate::views::sessions::unit_of_device;

/// Policies and their places are looked up once each; few of many decide about what is traced.
const MOST_PLACES: usize = 10_000;

/// A next hop in words.
#[derive(Debug, Clone, Default)]
struct Hop {
    interface: Option<String>,
    address: Option<String>,
}

/// Policy by name, and its place.
type Place = (Option<String>, Option<String>);

/// Explains packets of one commit.
pub struct Explainer<'a> {
    shared: &'a Shared,
    active: Arc<Active>,
    hops: BTreeMap<u32, Hop>,
    places: HashMap<(bool, u32), Place>,
}

/// What is known of a packet besides its headers.
struct Facts<'a> {
    traced: &'a Traced,
    session: Option<Session>,
    place: Place,
    hop: Hop,
    /// Names of the rules of destination and of source NAT.
    nat: [Option<String>; 2],
}

impl<'a> Explainer<'a> {
    pub fn new(shared: &'a Shared) -> Self {
        Self { shared, active: shared.active(), hops: BTreeMap::new(), places: HashMap::new() }
    }

    /// Of the commit that it has the names of.
    pub fn generation(&self) -> u32 {
        self.active.generation
    }

    pub fn explain(&mut self, traced: &Traced) -> TracedPacket {
        let facts = self.facts(traced);
        let raw = &traced.raw;
        let came = traced.before.as_ref().unwrap_or(&traced.after);
        let (packet, left) = (headers(came), headers(&traced.after));
        let verdict = verdict(traced, facts.session.as_ref());
        let zones = self.zones(traced, facts.session.as_ref());
        let interface = self.interface(traced, facts.session.as_ref());
        let (next_hop, out_interface) = match verdict {
            "forwarded" | "handed-off" | "cut" => (facts.hop.address.clone(), facts.hop.interface.clone()),
            "sent" => (None, Some(interface.clone())),
            _ => (None, None),
        };
        let differs =
            left != packet && ["forwarded", "delivered", "handed-off", "sent", "answered"].contains(&verdict);
        let mut told = TracedPacket {
            unix_ns: unix_ns(came.when_ns),
            hook: hook(traced.point).to_owned(),
            interface,
            from_zone: zones[0].clone(),
            to_zone: zones[1].clone(),
            length: came.length,
            packet,
            leaves_as: differs.then_some(left),
            verdict: verdict.to_owned(),
            reason: traced.reason.map(|reason| reason.name().to_owned()),
            stage: traced.reason.map(|reason| reason.stage().name().to_owned()),
            help: traced.reason.map(|reason| reason.help().to_owned()),
            policy: facts.place.0.clone(),
            place: facts.place.1.clone(),
            nat_destination_rule: facts.nat[0].clone(),
            nat_source_rule: facts.nat[1].clone(),
            session: facts.session.as_ref().map(|session| session.id.number),
            out_interface,
            next_hop,
            generation: raw.generation,
            ..TracedPacket::default()
        };
        told.phases = phases::of(&facts, &told, &self.active);
        told.summary = phases::summary(&told);
        told
    }

    fn facts<'t>(&mut self, traced: &'t Traced) -> Facts<'t> {
        let raw = &traced.raw;
        let session = traced.session(&self.shared.dataplane);
        let of_session = |own: u16, known: fn(&Session) -> u16| match own {
            0 => session.as_ref().map_or(0, known),
            own => own,
        };
        let nat = [
            of_session(raw.nat_destination, |session| session.nat_destination),
            of_session(raw.nat_source, |session| session.nat_source),
        ];
        let policy =
            if raw.policy == 0 { session.as_ref().map_or(0, |session| session.policy) } else { raw.policy };
        let hop = self.hop(traced, session.as_ref());
        let nat = nat.map(|rule| self.active.nat_rule_name(rule));
        Facts { traced, place: self.place(traced.reason, policy), hop, nat, session }
    }

    fn place(&mut self, reason: Option<Reason>, policy: u32) -> Place {
        let key = (reason == Some(Reason::PolicyDefault), policy);
        if let Some(known) = self.places.get(&key) {
            return known.clone();
        }
        let place = Rules::of(&self.active).policy(reason, policy);
        if self.places.len() < MOST_PLACES {
            self.places.insert(key, place.clone());
        }
        place
    }

    /// Where it goes: by its session, or by what it was routed to.
    fn hop(&mut self, traced: &Traced, session: Option<&Session>) -> Hop {
        let index = match traced.path {
            TracePath::Slow => traced.raw.nexthop,
            _ => session.map_or(0, |session| {
                let line = if traced.raw.line & 1 == 0 { &session.initiator } else { &session.responder };
                line.nexthop.into()
            }),
        };
        let routed = traced.route.map(|(ifindex, address)| Hop {
            interface: unit_of_device(ifindex, &self.active),
            address: Some(address.to_string()),
        });
        if index < u32::from(NEXTHOP_FIRST) {
            return routed.unwrap_or_default();
        }
        if !self.hops.contains_key(&index) {
            self.read_hops();
        }
        self.hops.get(&index).cloned().or(routed).unwrap_or_default()
    }

    fn read_hops(&mut self) {
        let Ok(entries) = self.shared.dataplane.nexthops() else { return };
        self.hops = entries
            .into_iter()
            .map(|entry| {
                let interface = unit_of_device(entry.host_ifindex, &self.active);
                (entry.index, Hop { interface, address: Some(entry.address.to_string()) })
            })
            .collect();
    }

    /// By its session where the short path knows no more, and by its unit.
    fn zones(&self, traced: &Traced, session: Option<&Session>) -> [Option<String>; 2] {
        let raw = &traced.raw;
        let (from, to) = match (traced.path, session) {
            (TracePath::Host, _) => (ZONE_HOST, unit_zone(traced, &self.active)),
            (TracePath::Short, Some(session)) if raw.line & 1 == 0 => (session.from_zone, session.to_zone),
            (TracePath::Short, Some(session)) => (session.to_zone, session.from_zone),
            (TracePath::Short, None) => (unit_zone(traced, &self.active), ZONE_NONE),
            (_, Some(session)) if raw.to_zone == ZONE_NONE => match raw.line & 1 {
                0 => (raw.from_zone, session.to_zone),
                _ => (raw.from_zone, session.from_zone),
            },
            _ => (raw.from_zone, raw.to_zone),
        };
        [from, to].map(|zone| drops::zone(zone, &self.active))
    }

    fn interface(&self, traced: &Traced, session: Option<&Session>) -> String {
        let raw = &traced.raw;
        if raw.unit != 0 {
            return drops::device(raw.unit, raw.ifindex, &self.active);
        }
        let unit = unit_of_frame(traced, &self.active).map(|unit| unit.index);
        let unit = unit.or_else(|| session.filter(|_| raw.line & 1 == 0).map(|session| session.ingress_unit));
        drops::device(unit.unwrap_or(0), raw.ifindex, &self.active)
    }
}

/// The unit that a frame belongs to, by its device and its tags.
fn unit_of_frame<'a>(traced: &Traced, active: &'a Active) -> Option<&'a sluice_abi::Unit> {
    let came = traced.before.as_ref().unwrap_or(&traced.after);
    let vlan = tags(&came.bytes);
    let mut units = active.plan.tables.units.iter().map(|(_, unit)| unit);
    units.find(|unit| {
        let own = if unit.flags & sluice_abi::UNIT_HOST_SIDE == 0 { unit.vlan } else { 0 };
        unit.ifindex == traced.raw.ifindex && own == vlan
    })
}

fn unit_zone(traced: &Traced, active: &Active) -> u16 {
    unit_of_frame(traced, active).map_or(ZONE_NONE, |unit| unit.zone)
}

/// As `bpf/abi/unit.h` has them.
fn tags(frame: &[u8]) -> u32 {
    const CUSTOMER: u16 = 0x8100;
    const SERVICE: u16 = 0x88a8;
    let at = |at: usize| {
        frame.get(at..at + 2).and_then(|word| word.first_chunk()).map_or(0, |word| u16::from_be_bytes(*word))
    };
    let id = |tci: u16| u32::from(tci) & sluice_abi::VLAN_ID;
    let outer = match at(12) {
        CUSTOMER => id(at(14)),
        SERVICE => id(at(14)) | sluice_abi::VLAN_SERVICE,
        _ => return 0,
    };
    match at(16) {
        CUSTOMER => outer | sluice_abi::VLAN_TWO | id(at(18)) << sluice_abi::VLAN_INNER_SHIFT,
        _ => outer,
    }
}

fn hook(point: TracePoint) -> &'static str {
    match point {
        TracePoint::Xdp => "xdp",
        TracePoint::TcIngress => "tc",
        TracePoint::TcEgress => "egress",
    }
}

fn verdict(traced: &Traced, session: Option<&Session>) -> &'static str {
    let raw = &traced.raw;
    let is_local = match traced.path {
        TracePath::Short => session.is_some_and(|session| {
            let line = if raw.line & 1 == 0 { &session.initiator } else { &session.responder };
            line.nexthop == NEXTHOP_LOCAL
        }),
        _ => {
            raw.verdict == TRACE_IS_LOCAL
                || raw.flags & TRACE_FOR_HOST != 0
                || raw.nexthop == u32::from(NEXTHOP_LOCAL)
        }
    };
    let is_routed = match traced.path {
        TracePath::Short => session.is_some(),
        _ => raw.nexthop >= u32::from(NEXTHOP_FIRST),
    };
    match (traced.action, traced.reason) {
        (Action::Dropped, None) if raw.cut != 0 => "cut",
        (Action::Dropped, _) => "dropped",
        (_, Some(_)) => "answered",
        _ if traced.path == TracePath::Host => "sent",
        _ if is_local => "delivered",
        _ if raw.flags & TRACE_UNRESOLVED != 0 => "handed-off",
        // by the kernel, where XDP cannot send
        (Action::Passed, None) if is_routed => "forwarded",
        (Action::Passed, None) => "delivered",
        (Action::Redirected, None) => "forwarded",
    }
}

/// What the frame says.
fn headers(frame: &TracedFrame) -> TracedHeaders {
    let read = Headers::read(&frame.bytes, 0, 0, 0);
    let RecentDrop { source, source_port, destination, destination_port, protocol, icmp, frame, .. } =
        drops::packet(&read);
    let tcp_flags = read.tcp_flags.map(drops::tcp_flags);
    TracedHeaders { source, source_port, destination, destination_port, protocol, icmp, tcp_flags, frame }
}

/// The clocks differ by what the time of day was set to meanwhile.
fn unix_ns(monotonic_ns: u64) -> u64 {
    let read = |clock| clock_gettime(clock).map_or(0, |now| std::time::Duration::from(now).as_nanos() as u64);
    let (now, here) = (read(ClockId::CLOCK_REALTIME), read(ClockId::CLOCK_MONOTONIC));
    now.saturating_sub(here.saturating_sub(monotonic_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_one_word() {
        let frame = |rest: &[u8]| [vec![0; 12], rest.to_vec()].concat();
        assert_eq!(tags(&frame(&[8, 0, 0x45])), 0);
        assert_eq!(tags(&frame(&[0x81, 0, 0x20, 100, 8, 0])), 100);
        assert_eq!(
            tags(&frame(&[0x88, 0xa8, 0, 100, 0x81, 0, 0, 7, 8, 0])),
            sluice_abi::VLAN_SERVICE | 100 | sluice_abi::VLAN_TWO | 7 << sluice_abi::VLAN_INNER_SHIFT
        );
    }
}
