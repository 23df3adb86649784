//! What a commit does to those who use the gateway: sessions that nothing permits any more, and the operator's own connection.

use std::net::{IpAddr, SocketAddr};

use sluice_language::Tree;
use sluice_language::config::{Config, HostInbound};
use sluice_plan::Plan;
use sluice_plan::classifier::Subject;

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

/// Sessions that no policy of a plan permits; None where there are too many to look at.
pub fn sessions_ending(shared: &Shared, plan: &Plan) -> Option<u64> {
    let (mut seen, mut ending) = (0, 0);
    // those of no policy are this host's own
    for session in shared.dataplane.sessions().filter(|session| session.policy != 0) {
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
        ending += u64::from(!matching::permits(plan, session.from_zone, session.to_zone, &subject));
    }
    Some(ending)
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
