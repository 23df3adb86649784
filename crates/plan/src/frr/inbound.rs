//! Sessions of routing protocols that the zones of this gateway would not let in.

use std::net::IpAddr;

use sluice_language::Config;
use sluice_language::config::HostInbound;
use sluice_language::protocols::Peer;

use crate::units::{managed, unit_name};
use crate::{Warning, contains, device_of};

const BGP: (u8, u16, &str) = (6, 179, "bgp");
const BFD: (u8, u16, &str) = (17, 3784, "bfd");
const OSPF: (u8, u16, &str) = (89, 0, "ospf");
const OSPF3: (u8, u16, &str) = (89, 0, "ospf3");

/// What an operator would look for when no session comes up.
pub(crate) fn warnings(config: &Config) -> Vec<Warning> {
    let mut wanted: Vec<(String, (u8, u16, &str))> = vec![];
    for neighbor in config.protocols.bgp.iter().flat_map(|bgp| &bgp.neighbors) {
        let Peer::Address(address) = neighbor.peer else { continue };
        let Some(unit) = towards(config, address) else { continue };
        wanted.push((unit.clone(), BGP));
        wanted.extend(neighbor.bfd.map(|_| (unit, BFD)));
    }
    for (ospf, of) in [(&config.protocols.ospf, OSPF), (&config.protocols.ospf3, OSPF3)] {
        let interfaces = ospf.iter().flat_map(|ospf| &ospf.areas).flat_map(|area| &area.interfaces);
        for interface in interfaces.filter(|interface| !interface.passive) {
            wanted.push((interface.unit.clone(), of));
            wanted.extend(interface.bfd.map(|_| (interface.unit.clone(), BFD)));
        }
    }
    wanted.sort();
    wanted.dedup();
    let units = managed(config);
    let warning = |(unit, (protocol, port, word)): &(String, (u8, u16, &str))| {
        let of = units.iter().find(|known| unit_name(known.interface, known.unit) == *unit)?;
        if admits(of.inbound, *protocol, *port) {
            return None;
        }
        let text = format!(
            "zone {} lets no {word} in on {unit}: no session comes up there; add `host-inbound-traffic protocols {word}`",
            of.zone.name
        );
        Some(Warning { device: device_of(of.interface, of.unit), text })
    };
    wanted.iter().filter_map(warning).collect()
}

/// The unit whose subnet has the address.
fn towards(config: &Config, address: IpAddr) -> Option<String> {
    let all = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |unit| (i, unit)));
    let mut near = all.filter(|(_, unit)| unit.addresses().any(|prefix| contains(*prefix, address)));
    near.next().map(|(interface, unit)| unit_name(interface, unit))
}

fn admits(inbound: &HostInbound, protocol: u8, port: u16) -> bool {
    let of = |service: &sluice_language::config::Service| {
        let (low, high) = service.destination_port;
        service.protocol.is_none_or(|known| known == protocol) && (low..=high).contains(&port)
    };
    inbound.any || inbound.services.iter().any(of)
}
