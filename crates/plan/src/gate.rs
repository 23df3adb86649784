//! The gate: services as rules of the classifier, zones as bits, and the grants that the configuration itself makes.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;

use sluice_abi::stages::Stage;
use sluice_language::config::{Config, Prefix, Ranges};

use crate::classifier::Wanted;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GatePlan {
    /// Zones that demand grants.
    pub zones: Vec<String>,
    /// Service names by id.
    pub services: BTreeMap<u32, String>,
    pub grants: Vec<GrantWant>,
}

impl GatePlan {
    pub fn service(&self, name: &str) -> Option<u32> {
        self.services.iter().find(|(_, known)| *known == name).map(|(id, _)| *id)
    }
}

/// One source, one service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GrantWant {
    pub source: Prefix,
    pub service: u32,
    pub user: String,
    pub idle_s: Option<u32>,
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

pub(crate) fn zone_bits(config: &Config, zones: &BTreeMap<String, u32>) -> u32 {
    config.gate.zones.iter().filter_map(|name| zones.get(name)).fold(0, |bits, id| bits | 1 << id)
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

pub(crate) fn plan(config: &Config, ids: &BTreeMap<String, u32>) -> GatePlan {
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
