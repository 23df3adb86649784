//! What a commit does to those who use the gateway: sessions that nothing permits any more, and the operator's own connection.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use sluice_abi::ZONE_HOST;
use sluice_dataplane::Session;
use sluice_language::Tree;
use sluice_language::config::{Config, HostInbound};
use sluice_plan::classifier::Subject;
use sluice_plan::{Plan, UnitInfo};

use crate::commit::Shared;
use crate::state::active::Active;
use crate::views::matching;

/// So many sessions are looked at within a commit; more would hold it up.
const MOST_COUNTED: usize = 200_000;

/// How what is in force becomes `new`.
pub fn changes(old: &Active, new: &Tree) -> String {
    // what is in force has been read before
    sluice_language::parse(&old.text, &old.file).map_or_else(|_| String::new(), |old| old.compare(new))
}

/// Sessions that a plan in the place of an old one does not permit; None where there are too many to look at.
pub fn sessions_ending(shared: &Shared, old: &Plan, plan: &Plan) -> Option<u64> {
    let (mut seen, mut ending, mut moved) = (0, 0, Moved::new(shared, old, plan));
    // policies are asked neither for this host's own nor for those that it serves
    let is_transit = |session: &Session| ![session.from_zone, session.to_zone].contains(&ZONE_HOST);
    for session in shared.dataplane.sessions().filter(is_transit) {
        seen += 1;
        if seen > MOST_COUNTED {
            return None;
        }
        let tuple = &session.initiator.tuple;
        let subject = Subject {
            source: tuple.source,
            // where it goes: behind destination translation
            destination: session.responder.tuple.source,
            protocol: tuple.protocol,
            source_port: tuple.source_port,
            destination_port: session.responder.tuple.source_port,
            icmp_type: if tuple.protocol == 58 { 128 } else { 8 },
            icmp_code: 0,
        };
        // between two families policies see what the inside sees
        let same = subject.source.is_ipv4() == subject.destination.is_ipv4();
        let subject = if same { subject } else { Subject { destination: tuple.destination, ..subject } };
        let (from_zone, to_zone) = moved.zones(&session);
        ending += u64::from(!matching::permits(plan, from_zone, to_zone, &subject));
    }
    Some(ending)
}

/// Units that have gone over to another zone: what they had, and have.
struct Moved<'a> {
    shared: &'a Shared,
    by_unit: HashMap<u32, (u16, u16)>,
    by_device: HashMap<&'a str, (u16, u16)>,
    /// By the number of the next hop.
    exits: HashMap<u16, Option<(u16, u16)>>,
}

impl<'a> Moved<'a> {
    fn new(shared: &'a Shared, old: &'a Plan, plan: &'a Plan) -> Self {
        let zone = |of: &Plan, unit: &UnitInfo| {
            let found = of.zones.iter().find(|(_, name)| **name == unit.zone);
            found.map(|(id, _)| *id as u16)
        };
        let moved: Vec<_> = (plan.units.iter())
            .filter_map(|unit| {
                let before = old.units.iter().find(|before| before.name == unit.name)?;
                Some((unit, (zone(old, before)?, zone(plan, unit)?)))
            })
            .filter(|(_, (had, has))| had != has)
            .collect();
        Self {
            shared,
            by_unit: moved.iter().map(|(unit, zones)| (unit.index, *zones)).collect(),
            by_device: moved.iter().map(|(unit, zones)| (unit.device.as_str(), *zones)).collect(),
            exits: HashMap::new(),
        }
    }

    /// Between which zones a session goes from here on.
    fn zones(&mut self, session: &Session) -> (u16, u16) {
        let had = (session.from_zone, session.to_zone);
        if self.by_unit.is_empty() {
            return had;
        }
        let Self { shared, by_unit, by_device, exits } = self;
        let from = by_unit.get(&session.ingress_unit.into()).copied();
        let to = *exits.entry(session.initiator.nexthop).or_insert_with_key(|index| {
            let hop = shared.dataplane.nexthop((*index).into()).ok().filter(|hop| hop.flags != 0)?;
            let device = nix::net::if_::if_indextoname(hop.host_ifindex).ok()?;
            by_device.get(device.to_str().ok()?).copied()
        });
        let zone = |own: u16, moved: Option<(u16, u16)>| match moved {
            Some((had, has)) if had == own => has,
            _ => own,
        };
        (zone(had.0, from), zone(had.1, to))
    }
}

/// The connection over which an operator commits.
#[derive(Debug, Clone)]
pub struct Operator {
    client: IpAddr,
    server: SocketAddr,
    /// What its packets arrive on.
    device: String,
}

impl Operator {
    /// `CLIENT PORT SERVER PORT`, as sshd puts it into SSH_CONNECTION. None where it does not come over a device.
    pub fn find(shared: &Shared, connection: &str) -> Option<Self> {
        let (client, server) = ends(connection)?;
        let ifindex = shared.kernel.device_towards(client).ok().flatten()?;
        let links = shared.kernel.links().ok()?;
        let device = links.into_iter().find(|link| link.index == ifindex)?.name;
        Some(Self { client, server, device })
    }

    /// Why a configuration ends it.
    pub fn cut_off(&self, old: &Plan, config: &Config, plan: &Plan) -> Option<String> {
        let why = self.why(old, config, plan)?;
        let Self { client, server, device } = self;
        Some(format!(
            "this ends the connection that you use, from {client} to {server} on {device}: {why}; `commit --confirmed` brings \
             the configuration before it back by itself"
        ))
    }

    fn why(&self, old: &Plan, config: &Config, plan: &Plan) -> Option<String> {
        let (device, address) = (&self.device, self.server.ip());
        let has = |plan: &Plan| plan.kernel.addresses.iter().any(|(_, prefix)| prefix.addr == address);
        if has(old) && !has(plan) {
            return Some(format!("{address} is not configured any more"));
        }
        if let Some(null) = plan.null_zone.iter().find(|null| null.device == *device) {
            return Some(format!("{device} is in the null zone: {}", null.cause));
        }
        let unit = plan.units.iter().find(|unit| unit.device == *device)?;
        let zone = config.zones.iter().find(|zone| zone.name == unit.zone)?;
        let member = zone.interfaces.iter().find(|member| member.unit == unit.name);
        let inbound = member.and_then(|member| member.host_inbound.as_ref()).unwrap_or(&zone.host_inbound);
        (!admits_tcp(inbound, self.server.port())).then(|| {
            let port = self.server.port();
            format!("host-inbound-traffic of security-zone {} does not admit TCP port {port}", zone.name)
        })
    }
}

fn ends(connection: &str) -> Option<(IpAddr, SocketAddr)> {
    let words: Vec<&str> = connection.split_whitespace().collect();
    let [client, _, server, port] = words.as_slice() else { return None };
    let address = |text: &str| text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    Some((address(client)?, SocketAddr::new(address(server)?, port.parse().ok()?)))
}

fn admits_tcp(inbound: &HostInbound, port: u16) -> bool {
    const TCP: u8 = 6;
    let admits = |service: &sluice_language::Service| {
        let (low, high) = service.destination_port;
        service.protocol.is_none_or(|protocol| protocol == TCP) && (low..=high).contains(&port)
    };
    inbound.any || inbound.services.iter().any(admits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_sshd_says() {
        let (client, server) = ends("203.0.113.9 50022 ::ffff:192.0.2.1 22").unwrap();
        assert_eq!((client.to_string(), server.to_string()), ("203.0.113.9".into(), "192.0.2.1:22".into()));
        assert!(ends("fd00::1 50022 fd00::2 22").unwrap().1.is_ipv6());
        assert!(ends("").is_none() && ends("a b c d").is_none() && ends("192.0.2.1 1 192.0.2.2").is_none());
    }
}
