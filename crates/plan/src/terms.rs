//! Lists that rules and units point into. Identical lists are stored once.

use std::net::{Ipv4Addr, Ipv6Addr};

use sluice_abi::{self as abi, Address4Term, Address6Term, ServiceTerm};
use sluice_language::config::{NEVER_S, Service};

use crate::PlanError;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

#[derive(Default)]
pub(crate) struct Terms {
    pub addresses4: List<(u32, u32), Address4Term>,
    pub addresses6: List<(u128, u128), Address6Term>,
    pub services: List<Service, ServiceTerm>,
}

/// Entries of one table and where each stored list begins.
pub(crate) struct List<K, T> {
    pub entries: Vec<T>,
    known: Vec<(Vec<K>, (u16, u16))>,
}

impl<K, T> Default for List<K, T> {
    fn default() -> Self {
        Self { entries: vec![], known: vec![] }
    }
}

/// Bounds of one table and how to name it when one is exceeded.
struct Bound {
    what: &'static str,
    per_list: usize,
    total: usize,
}

impl<K: PartialEq, T> List<K, T> {
    fn add(
        &mut self,
        list: Vec<K>,
        owner: &str,
        bound: &Bound,
        entry: impl Fn(&K) -> T,
    ) -> Result<(u16, u16), PlanError> {
        if list.is_empty() {
            return Ok((0, 0));
        }
        if let Some((_, range)) = self.known.iter().find(|(known, _)| *known == list) {
            return Ok(*range);
        }
        let full = |count: usize, limit: usize| PlanError::TooManyTerms {
            owner: owner.to_owned(),
            what: bound.what,
            count,
            limit,
        };
        if list.len() > bound.per_list {
            return Err(full(list.len(), bound.per_list));
        }
        if self.entries.len() + list.len() > bound.total {
            return Err(full(self.entries.len() + list.len(), bound.total));
        }
        let range = (self.entries.len() as u16, list.len() as u16);
        self.entries.extend(list.iter().map(entry));
        self.known.push((list, range));
        Ok(range)
    }
}

impl Terms {
    pub fn v4(&mut self, ranges: &[(Ipv4Addr, Ipv4Addr)], owner: &str) -> Result<(u16, u16), PlanError> {
        let merged = merge(ranges.iter().map(|(l, h)| (u32::from(*l).into(), u32::from(*h).into())));
        let list = merged.into_iter().map(|(l, h)| (l as u32, h as u32)).collect();
        let bound = address_bound("IPv4 address ranges");
        self.addresses4.add(list, owner, &bound, |(low, high)| Address4Term { low: *low, high: *high })
    }

    pub fn v6(&mut self, ranges: &[(Ipv6Addr, Ipv6Addr)], owner: &str) -> Result<(u16, u16), PlanError> {
        let list = merge(ranges.iter().map(|(l, h)| ((*l).into(), (*h).into())));
        let halves = |n: u128| [(n >> 64) as u64, n as u64];
        let bound = address_bound("IPv6 address ranges");
        self.addresses6
            .add(list, owner, &bound, |(low, high)| Address6Term { low: halves(*low), high: halves(*high) })
    }

    pub fn services(&mut self, services: &[Service], owner: &str) -> Result<(u16, u16), PlanError> {
        let mut list: Vec<Service> = vec![];
        for service in services {
            if !list.contains(service) {
                list.push(service.clone());
            }
        }
        let bound = Bound {
            what: "application terms",
            per_list: abi::MAX_SERVICE_TERMS_PER_RULE,
            total: abi::MAX_SERVICE_TERMS,
        };
        self.services.add(list, owner, &bound, service)
    }
}

fn address_bound(what: &'static str) -> Bound {
    Bound { what, per_list: abi::MAX_ADDRESS_TERMS_PER_RULE, total: abi::MAX_ADDRESS_TERMS }
}

fn service(service: &Service) -> ServiceTerm {
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
        timeout_s: match service.inactivity_timeout_s {
            None => 0,
            Some(NEVER_S) => abi::TIMEOUT_NEVER_S,
            Some(seconds) => seconds,
        },
    }
}

/// Sorted, with overlapping and adjacent ranges joined.
fn merge(ranges: impl Iterator<Item = (u128, u128)>) -> Vec<(u128, u128)> {
    let mut sorted: Vec<(u128, u128)> = ranges.collect();
    sorted.sort_unstable();
    let mut merged: Vec<(u128, u128)> = vec![];
    for (low, high) in sorted {
        match merged.last_mut() {
            Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_lists_shared() {
        let mut terms = Terms::default();
        let a = |n| Ipv4Addr::new(10, 0, 0, n);
        let first = terms.v4(&[(a(5), a(9)), (a(1), a(4)), (a(20), a(20))], "p").unwrap();
        assert_eq!(first, (0, 2));
        assert_eq!(terms.addresses4.entries[0].high, u32::from(a(9)));
        assert_eq!(terms.v4(&[(a(20), a(20)), (a(1), a(9))], "q").unwrap(), first);
        assert_eq!(terms.v4(&[], "r").unwrap(), (0, 0));
        assert_eq!(terms.v4(&[(a(7), a(7))], "s").unwrap(), (2, 1));
    }

    #[test]
    fn the_largest_ipv6_range_does_not_overflow() {
        let all = (Ipv6Addr::UNSPECIFIED, Ipv6Addr::from(u128::MAX));
        let mut terms = Terms::default();
        assert_eq!(terms.v6(&[all, all], "p").unwrap(), (0, 1));
        assert_eq!(terms.addresses6.entries[0].high, [u64::MAX; 2]);
    }

    #[test]
    fn too_long_lists_name_their_owner() {
        let mut terms = Terms::default();
        let odd: Vec<_> = (0..1025u32).map(|n| (Ipv4Addr::from(n * 2), Ipv4Addr::from(n * 2))).collect();
        let error = terms.v4(&odd, "policy trust -> untrust web").unwrap_err().to_string();
        assert!(error.contains("trust -> untrust web") && error.contains("1025"), "{error}");
    }
}
