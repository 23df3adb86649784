//! The gate: services as rules of the classifier, zones as bits, and the grants that the configuration itself makes.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_abi::stages::Stage;
use sluice_abi::tables::{GateAlone, GateEndpoint};
use sluice_language::config::{Config, GateService, Prefix, Ranges, Service};

use crate::PlanError;
use crate::classifier::Wanted;
use crate::prefix::contains;
use crate::units::Managed;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a plan knows of the gate besides the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatePlan {
    /// Zones that demand grants.
    pub zones: Vec<String>,
    /// Service names by id.
    pub services: BTreeMap<u32, String>,
    /// Those that the configuration makes; the API makes others.
    pub grants: Vec<GrantWant>,
    /// Devices before which the gate stands alone.
    pub alone: Vec<(String, GateAlone)>,
}

impl GatePlan {
    /// Its id; None = no such service is configured.
    pub fn service(&self, name: &str) -> Option<u32> {
        self.services.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// What stands before a device, if the gate does.
    pub fn alone(&self, device: &str) -> Option<&GateAlone> {
        self.alone.iter().find(|(own, _)| own == device).map(|(_, alone)| alone)
    }
}

/// One source, one service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantWant {
    /// Host or prefix; a packet's source address is compared with it.
    pub source: Prefix,
    /// Id of the service.
    pub service: u32,
    /// Whom reports and logs name; no packet is compared with it.
    pub user: String,
    /// Seconds without a packet after which it ends; None = never.
    pub idle_s: Option<u32>,
    /// Seconds after which it ends in any case; None = never.
    pub absolute_s: Option<u32>,
}

impl Display for GrantWant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let limit = |seconds: Option<u32>| seconds.map_or("none".to_owned(), |s| format!("{s} s"));
        let Prefix { addr, len } = self.source;
        write!(f, "grant {addr}/{len} service {} user {}", self.service, self.user)?;
        write!(f, " idle {} absolute {}", limit(self.idle_s), limit(self.absolute_s))
    }
}

/// Every device runs the stage where a zone demands grants: answers arrive from the others.
pub(crate) fn stage_mask(config: &Config) -> u32 {
    if config.gate.zones.is_empty() { 0 } else { Stage::Gate.bit() }
}

pub(crate) fn zone_bits(config: &Config, zones: &BTreeMap<String, u32>) -> [u64; sluice_abi::MAX_ZONES / 64] {
    let mut bits = [0; sluice_abi::MAX_ZONES / 64];
    for id in config.gate.zones.iter().filter_map(|name| zones.get(name)) {
        bits[*id as usize / 64] |= 1 << (id % 64);
    }
    bits
}

/// Services in order, with their ids.
pub(crate) fn wanted(config: &Config, ids: &BTreeMap<String, u32>) -> Vec<(u32, Wanted)> {
    let services = config.gate.services.iter();
    services
        .map(|service| {
            let destination = Some(ranges(&service.destinations));
            (ids[&service.name], Wanted { source: None, destination, services: Some(service.terms.clone()) })
        })
        .collect()
}

fn ranges(prefixes: &[Prefix]) -> Ranges {
    let mut ranges = Ranges::default();
    for prefix in prefixes {
        match prefix.addr {
            IpAddr::V4(addr) => {
                let host = u32::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                ranges.v4.push((addr, (u32::from(addr) | host).into()));
            }
            IpAddr::V6(addr) => {
                let host = u128::MAX.checked_shr(prefix.len.into()).unwrap_or(0);
                ranges.v6.push((addr, (u128::from(addr) | host).into()));
            }
        }
    }
    ranges.normalise();
    ranges
}

pub(crate) fn plan(
    config: &Config,
    ids: &BTreeMap<String, u32>,
    alone: Vec<(String, GateAlone)>,
) -> GatePlan {
    let wants = config.gate.grants.iter().flat_map(|grant| {
        grant.services.iter().map(|service| GrantWant {
            source: grant.source,
            service: ids[service],
            user: grant.user.clone(),
            idle_s: grant.idle_s,
            absolute_s: grant.absolute_s,
        })
    });
    GatePlan {
        zones: config.gate.zones.clone(),
        services: ids.iter().map(|(name, id)| (*id, name.clone())).collect(),
        grants: wants.collect(),
        alone,
    }
}

/// The gate alone knows nothing of translation and of listeners, so these must not be there.
pub(crate) fn alone(
    config: &Config,
    managed: &[(&Managed, u32)],
    ids: &BTreeMap<String, u32>,
    zones: &BTreeMap<String, u32>,
) -> Result<Vec<(String, GateAlone)>, PlanError> {
    let here = managed.iter().filter(|(unit, _)| config.gate.host_only.contains(&unit.interface.name));
    here.map(|(unit, index)| {
        let interface = unit.interface.name.clone();
        let unit_name = crate::unit_name(unit.interface, unit.unit);
        let listens = config.fan_out.listeners.iter().any(|l| l.interface.as_ref() == Some(&unit_name));
        let translates = !config.nat.destination.rule_sets.is_empty() || !config.nat.statics.is_empty();
        for (what, is_so) in [("a fan-out listener", listens), ("destination or static NAT", translates)] {
            if is_so {
                return Err(PlanError::HostOnly { interface, what });
            }
        }
        let (unit_index, zone) = (*index as u16, zones[&unit.zone.name] as u16);
        Ok((interface, GateAlone { unit: unit_index, zone, endpoints: endpoints(config, unit, ids) }))
    })
    .collect()
}

/// For each port the first service that has it, as for every packet; only what host-inbound-traffic admits.
fn endpoints(config: &Config, unit: &Managed, ids: &BTreeMap<String, u32>) -> Vec<GateEndpoint> {
    let first = |family: &[Prefix]| family.first().map(|prefix| prefix.addr);
    let (v4, v6) = (first(&unit.unit.inet), first(&unit.unit.inet6));
    let mut endpoints: Vec<GateEndpoint> = vec![];
    let candidates = |address: Option<IpAddr>| -> Vec<&GateService> {
        let Some(address) = address else { return vec![] };
        let has =
            |service: &&GateService| service.destinations.iter().any(|prefix| contains(*prefix, address));
        config.gate.services.iter().filter(has).collect()
    };
    let (services4, services6) = (candidates(v4), candidates(v6));
    for (number, udp) in [(TCP, false), (UDP, true)] {
        let service_at = |services: &[&GateService], port: u16| {
            let admits = unit.inbound.any || covers(&unit.inbound.services, number, port);
            let found =
                services.iter().filter(|_| admits).find(|service| covers(&service.terms, number, port));
            found.map(|service| ids[&service.name] as u16)
        };
        for port in 1..=u16::MAX {
            let (four, six) = (service_at(&services4, port), service_at(&services6, port));
            let Some(service) = four.or(six) else { continue };
            let endpoint = GateEndpoint {
                service,
                udp,
                ports: (port, port),
                v4: v4.and_then(v4_of).filter(|_| four == Some(service)),
                v6: v6.and_then(v6_of).filter(|_| six == Some(service)),
            };
            match endpoints.last_mut() {
                Some(last)
                    if (GateEndpoint { ports: (port, port), ..*last }) == endpoint
                        && last.ports.1 + 1 == port =>
                {
                    last.ports.1 = port;
                }
                _ => endpoints.push(endpoint),
            }
        }
    }
    endpoints
}

fn covers(terms: &[Service], protocol: u8, port: u16) -> bool {
    let has = |range: (u16, u16)| (range.0..=range.1).contains(&port);
    terms.iter().any(|term| {
        term.protocol.is_none_or(|own| own == protocol)
            && has(term.destination_port)
            && term.source_port == (0, u16::MAX)
    })
}

fn v4_of(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn v6_of(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V6(address) => Some(address),
        IpAddr::V4(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_become_ranges() {
        let of = |text: &str, len| Prefix { addr: text.parse().unwrap(), len };
        let ranges = ranges(&[of("10.0.0.0", 8), of("192.0.2.1", 32), of("::", 0), of("2001:db8::1", 128)]);
        let v4: Vec<String> = ranges.v4.iter().map(|(low, high)| format!("{low}-{high}")).collect();
        assert_eq!(v4, ["10.0.0.0-10.255.255.255", "192.0.2.1-192.0.2.1"]);
        assert_eq!(ranges.v6, [("::".parse().unwrap(), u128::MAX.into())], "one range covers the other");
    }
}
