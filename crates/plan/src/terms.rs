//! Lists of service terms that rules and units point into. Identical lists are stored once.

use std::collections::{HashMap, HashSet};

use sluice_abi::{self as abi, ServiceTerm};
use sluice_language::config::{NEVER_S, Service};

use crate::PlanError;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

#[derive(Default)]
pub(crate) struct Terms {
    pub entries: Vec<ServiceTerm>,
    known: HashMap<Vec<Service>, (u16, u16)>,
}

impl Terms {
    /// Where the list stands: first entry and number of entries.
    pub fn services(&mut self, services: &[Service], owner: &str) -> Result<(u16, u16), PlanError> {
        let mut seen = HashSet::new();
        let list: Vec<Service> = services.iter().filter(|service| seen.insert(*service)).cloned().collect();
        if list.is_empty() {
            return Ok((0, 0));
        }
        if let Some(range) = self.known.get(&list) {
            return Ok(*range);
        }
        let full =
            |count: usize, limit: usize| PlanError::TooManyTerms { owner: owner.to_owned(), count, limit };
        if list.len() > abi::MAX_SERVICE_TERMS_PER_RULE {
            return Err(full(list.len(), abi::MAX_SERVICE_TERMS_PER_RULE));
        }
        if self.entries.len() + list.len() > abi::MAX_SERVICE_TERMS {
            return Err(full(self.entries.len() + list.len(), abi::MAX_SERVICE_TERMS));
        }
        let range = (self.entries.len() as u16, list.len() as u16);
        self.entries.extend(list.iter().map(service));
        self.known.insert(list, range);
        Ok(range)
    }
}

pub(crate) fn service(service: &Service) -> ServiceTerm {
    let icmp = matches!(service.protocol, Some(ICMP | ICMPV6));
    let (icmp_type_low, icmp_type_high) = service.icmp_type.unwrap_or((0, u8::MAX));
    let (icmp_code_low, icmp_code_high) = service.icmp_code.unwrap_or((0, u8::MAX));
    let flags = match service.protocol {
        None => abi::SERVICE_ANY_PROTO,
        Some(_) if icmp => abi::SERVICE_ICMP,
        Some(_) => 0,
    };
    ServiceTerm {
        proto: service.protocol.unwrap_or(0),
        flags,
        icmp_type_low,
        icmp_type_high,
        icmp_code_low,
        icmp_code_high,
        sport_low: service.source_port.0,
        sport_high: service.source_port.1,
        dport_low: service.destination_port.0,
        dport_high: service.destination_port.1,
        timeout_s: timeout(service),
    }
}

/// As tables have it: 0 = default.
pub(crate) fn timeout(service: &Service) -> u16 {
    match service.inactivity_timeout_s {
        None => 0,
        Some(NEVER_S) => abi::TIMEOUT_NEVER_S,
        Some(seconds) => seconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(port: u16) -> Service {
        Service {
            protocol: Some(6),
            source_port: (0, u16::MAX),
            destination_port: (port, port),
            icmp_type: None,
            icmp_code: None,
            inactivity_timeout_s: None,
        }
    }

    #[test]
    fn lists_are_shared_and_hold_nothing_twice() {
        let mut terms = Terms::default();
        assert_eq!(terms.services(&[port(1), port(2), port(1)], "p").unwrap(), (0, 2));
        assert_eq!(terms.services(&[port(1), port(2)], "q").unwrap(), (0, 2));
        assert_eq!(terms.services(&[], "r").unwrap(), (0, 0));
        assert_eq!(terms.services(&[port(2)], "s").unwrap(), (2, 1));
    }

    #[test]
    fn too_long_lists_name_their_owner() {
        let list: Vec<Service> = (0..257).map(port).collect();
        let error = Terms::default().services(&list, "policy trust -> untrust web").unwrap_err().to_string();
        assert!(error.contains("trust -> untrust web") && error.contains("257"), "{error}");
    }
}
