//! Sessions as a reader sees them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use serde::Serialize;
use sluice_abi::{FlowKey4, FlowKey6, FlowLine4, FlowLine6, FlowShared, FlowState, ReapEntry};

use crate::Dataplane;
use crate::error::{Error, Result};
pub use crate::records::Family;
use crate::records::{FlowTable, Line, v4, v6, v6_words};

/// A 5-tuple in a routing instance. For ICMP the ports are the identifier and [`sluice_abi::ICMP_PORT_ECHO`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Tuple {
    /// As in the IP header.
    pub source: IpAddr,
    /// Host order.
    pub source_port: u16,
    /// As in the IP header.
    pub destination: IpAddr,
    /// Host order.
    pub destination_port: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// 0 = the default one.
    pub routing_instance: u16,
}

impl Tuple {
    /// Source and destination port as a reader knows them: of an ICMP echo the identifier alone, at the side that asks.
    pub fn ports(&self) -> (u16, u16) {
        const ICMP: [u8; 2] = [1, 58];
        const ECHO: u16 = sluice_abi::ICMP_PORT_ECHO;
        match (self.source_port, self.destination_port) {
            ports if !ICMP.contains(&self.protocol) => ports,
            (identifier, ECHO) => (identifier, 0),
            (ECHO, identifier) => (0, identifier),
            _ => (0, 0),
        }
    }
}

/// Names a session for as long as it lives; a later one in the same record has other tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct SessionId {
    /// Which of the two tables it is in.
    pub family: Family,
    /// Of its record in that table.
    pub number: u32,
    #[serde(skip)]
    tag: u16,
}

impl SessionId {
    /// Its position in the order that sessions are listed in: IPv4 first, then by number of the record.
    pub fn cursor(&self) -> u64 {
        cursor_of(self.family, self.number)
    }
}

fn cursor_of(family: Family, number: u32) -> u64 {
    let six = matches!(family, Family::V6);
    u64::from(six) << 32 | u64::from(number)
}

/// One direction of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direction {
    /// As this direction's packets arrive, before any translation.
    pub tuple: Tuple,
    /// Since the session began.
    pub packets: u64,
    /// IP bytes
    pub bytes: u64,
    /// Low 32 bits of jiffies.
    pub last_seen: u32,
    /// `TCP_DIR_*`
    pub tcp_state: u8,
    /// `FLOW_*`
    pub flags: u8,
    /// Index into the table of next hops; 0 = none yet.
    pub nexthop: u16,
    /// Zone this direction arrives from.
    pub zone: u16,
    /// Stamp under which it was last judged: another commit or other routes have another.
    pub stamp: u16,
}

/// A session as its records had it at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// To end it by, or to find it again.
    pub id: SessionId,
    /// From the host that opened it.
    pub initiator: Direction,
    /// The answers to it, as they arrive.
    pub responder: Direction,
    /// Policy that permitted it; 0 = host-inbound or this host's own.
    pub policy: u32,
    /// Zone id that its first packet came from.
    pub from_zone: u16,
    /// Zone id that it goes to.
    pub to_zone: u16,
    /// Index of the unit that its first packet arrived on.
    pub ingress_unit: u16,
    /// Ids of the NAT rules that matched; 0 = none.
    pub nat_destination: u16,
    /// Of the source rule; 0 = none.
    pub nat_source: u16,
    /// Of its application; 0 = default of protocol and state.
    pub timeout_s: u32,
    /// Low 32 bits of jiffies.
    pub created: u32,
    /// Configuration that last decided about it.
    pub generation: u32,
}

impl Session {
    /// IP protocol number, as the initiator sends it.
    pub fn protocol(&self) -> u8 {
        self.initiator.tuple.protocol
    }

    /// Jiffies since a packet of either direction.
    pub fn idle_jiffies(&self, now: u64) -> u32 {
        [&self.initiator, &self.responder].map(|side| age(now, side.last_seen)).into_iter().min().unwrap_or(0)
    }
}

/// Jiffies since a stamp. Another CPU's clock may be a tick ahead of `now`.
pub(crate) fn age(now: u64, stamp: u32) -> u32 {
    let age = (now as u32).wrapping_sub(stamp);
    if age > u32::MAX / 2 { 0 } else { age }
}

/// Packets of a direction: the record counts 32 bits, `packets_high` counts how often its top bit changed.
pub(crate) fn packets(state: &FlowState, high: u32) -> u64 {
    let high = high.wrapping_add((high ^ (state.packets >> 31)) & 1);
    u64::from(high >> 1) << 32 | u64::from(state.packets)
}

fn tuple4(key: &FlowKey4) -> Tuple {
    Tuple {
        source: v4(key.be_saddr).into(),
        source_port: u16::from_be(key.be_sport),
        destination: v4(key.be_daddr).into(),
        destination_port: u16::from_be(key.be_dport),
        protocol: key.proto,
        routing_instance: key.routing_instance,
    }
}

fn tuple6(key: &FlowKey6) -> Tuple {
    Tuple {
        source: v6(key.be_saddr).into(),
        source_port: u16::from_be(key.be_sport),
        destination: v6(key.be_daddr).into(),
        destination_port: u16::from_be(key.be_dport),
        protocol: key.proto,
        routing_instance: key.routing_instance,
    }
}

fn direction(tuple: Tuple, state: &FlowState, packets_high: u32) -> Direction {
    Direction {
        tuple,
        packets: packets(state, packets_high),
        bytes: state.bytes,
        last_seen: state.last_seen,
        tcp_state: state.tcp_state,
        flags: state.flags,
        nexthop: state.nexthop,
        zone: state.zone.into(),
        stamp: state.stamp,
    }
}

fn session<L: Line>(
    number: u32,
    lines: &[L; 2],
    shared: &FlowShared,
    tuple: fn(&L::Key) -> Tuple,
) -> Session {
    let side =
        |line: usize| direction(tuple(lines[line].key()), lines[line].state(), shared.packets_high[line]);
    Session {
        id: SessionId { family: L::FAMILY, number, tag: lines[1].state().tag },
        initiator: side(0),
        responder: side(1),
        policy: shared.policy,
        from_zone: shared.from_zone,
        to_zone: shared.to_zone,
        ingress_unit: shared.ingress_unit,
        nat_destination: shared.nat_destination,
        nat_source: shared.nat_source,
        timeout_s: shared.timeout_s,
        created: shared.created,
        generation: shared.generation,
    }
}

fn read<L: Line>(table: &FlowTable<L>, number: u32, tuple: fn(&L::Key) -> Tuple) -> Option<Session> {
    let (lines, shared) = table.read(number)?;
    Some(session(number, &lines, &shared, tuple))
}

impl Dataplane {
    /// Every live session, IPv4 first. Packets flow meanwhile; each session is read whole or left out.
    pub fn sessions(&self) -> impl Iterator<Item = Session> + '_ {
        self.sessions_from(0)
    }

    /// Those of them from this position on.
    pub fn sessions_from(&self, position: u64) -> impl Iterator<Item = Session> + '_ {
        // numbers from there on, without a look at those before: a page of a long list costs what it shows
        let from = move |family, numbers: RangeInclusive<u32>| {
            let first = position.saturating_sub(cursor_of(family, 0)).max(u64::from(*numbers.start()));
            u32::try_from(first).unwrap_or(u32::MAX)..=*numbers.end()
        };
        let four = from(Family::V4, self.flows4.numbers());
        let six = from(Family::V6, self.flows6.numbers());
        let four = four.filter_map(|number| read(&self.flows4, number, tuple4));
        four.chain(six.filter_map(|number| read(&self.flows6, number, tuple6)))
    }

    /// The session that packets with this tuple belong to, in either direction.
    pub fn find_session(&self, tuple: &Tuple) -> Result<Option<Session>> {
        let (be_sport, be_dport) = (tuple.source_port.to_be(), tuple.destination_port.to_be());
        let (proto, routing_instance) = (tuple.protocol, tuple.routing_instance);
        match (tuple.source, tuple.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let be_saddr = u32::from_ne_bytes(source.octets());
                let be_daddr = u32::from_ne_bytes(destination.octets());
                let key =
                    FlowKey4 { be_saddr, be_daddr, be_sport, be_dport, routing_instance, proto, zero: 0 };
                let found = self.flows4.find(&key)?;
                Ok(found.and_then(|line| read::<FlowLine4>(&self.flows4, line / 2, tuple4)))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let (be_saddr, be_daddr) = (v6_words(source), v6_words(destination));
                let key =
                    FlowKey6 { be_saddr, be_daddr, be_sport, be_dport, routing_instance, proto, zero: 0 };
                let found = self.flows6.find(&key)?;
                Ok(found.and_then(|line| read::<FlowLine6>(&self.flows6, line / 2, tuple6)))
            }
            _ => Ok(None),
        }
    }

    /// The session that a number belongs to now.
    pub fn session(&self, family: Family, number: u32) -> Option<Session> {
        match family {
            Family::V4 if self.flows4.numbers().contains(&number) => read(&self.flows4, number, tuple4),
            Family::V6 if self.flows6.numbers().contains(&number) => read(&self.flows6, number, tuple6),
            _ => None,
        }
    }

    /// Ends a session. False when it had ended before.
    pub fn delete_session(&self, id: &SessionId) -> Result<bool> {
        Ok(self.delete_sessions(&[*id])? == 1)
    }

    /// Ends sessions, thousands at the cost of one, and says how many had not ended before.
    pub fn delete_sessions(&self, ids: &[SessionId]) -> Result<u32> {
        for id in ids {
            let limit = match id.family {
                Family::V4 => self.sizes.sessions4,
                Family::V6 => self.sizes.sessions6,
            };
            if !(1..=limit).contains(&id.number) {
                return Err(Error::NoSession { number: id.number });
            }
        }
        let mut ended = 0;
        for family in [Family::V4, Family::V6] {
            let chosen = ids.iter().filter(|id| id.family == family);
            let entries: Vec<ReapEntry> =
                chosen.map(|id| ReapEntry { line: 2 * id.number, tag: id.tag.into() }).collect();
            ended += self.reaper().reap(family, &entries)?;
        }
        Ok(ended)
    }
}
