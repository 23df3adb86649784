//! Rules of one context: what each wants of a packet, and what it does to it.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sluice_abi::{self as abi, NatPrefix, NatRule};
use sluice_language::config::{Prefix, Ranges, Service};
use sluice_language::nat::{
    DestinationAction, Nat, NatMatch, NatRule as Written, PortMap, SourceAction, StaticAction, count,
};

use super::info::{Kind, rule_key};
use super::prefixes::{pairs, words_of};
use super::{Builder, IdMaps};
use crate::PlanError;
use crate::classifier::Wanted;

pub(super) type Compiled = (NatRule, Wanted);

fn id(ids: &IdMaps, kind: Kind, set: &str, rule: &str) -> u16 {
    ids.rules[&rule_key(kind, set, rule)] as u16
}

fn wanted(matching: &NatMatch) -> Wanted {
    Wanted {
        source: matching.source.clone(),
        destination: matching.destination.clone(),
        services: matching.services.clone(),
    }
}

/// Only the addresses of one family.
fn of_family(side: &Option<Ranges>, four: bool) -> Option<Ranges> {
    let all = || if four { Ranges::all_v4() } else { Ranges::all_v6() };
    let mut ranges = side.clone().unwrap_or_else(all);
    if four {
        ranges.v6.clear()
    } else {
        ranges.v4.clear()
    }
    Some(ranges)
}

pub(super) fn source(builder: &mut Builder<'_>, sets: &[usize]) -> Result<Vec<Compiled>, PlanError> {
    let nat = builder.nat;
    let mut list = vec![];
    for set in sets.iter().map(|number| &nat.source.rule_sets[*number]) {
        for written in &set.rules {
            let mut rule =
                NatRule { id: id(builder.ids, Kind::Source, &set.name, &written.name), ..Default::default() };
            let mut wanted = wanted(&written.matching);
            match &written.then {
                SourceAction::Off => rule.kind = abi::NAT_OFF,
                SourceAction::Interface { persistent } => {
                    rule.kind = abi::NAT_INTERFACE;
                    rule.pool = builder.pools.entry(None, *persistent)?;
                }
                SourceAction::Pool { name, persistent } => {
                    rule.kind = abi::NAT_POOL;
                    rule.pool = builder.pools.entry(Some(name), *persistent)?;
                    // The packet leaves in the pool's family: with NAT64 another than that of its source.
                    let four = builder.pools.pools[usize::from(rule.pool)].family == 4;
                    wanted.destination = of_family(&wanted.destination, four);
                }
            }
            list.push((rule, wanted));
        }
    }
    Ok(list)
}

pub(super) fn destination(builder: &mut Builder<'_>, sets: &[usize]) -> Result<Vec<Compiled>, PlanError> {
    let nat = builder.nat;
    let mut list = vec![];
    for set in sets.iter().map(|number| &nat.destination.rule_sets[*number]) {
        for written in &set.rules {
            let mut rule = NatRule {
                id: id(builder.ids, Kind::Destination, &set.name, &written.name),
                ..Default::default()
            };
            let DestinationAction::Pool { name } = &written.then else {
                rule.kind = abi::NAT_OFF;
                list.push((rule, wanted(&written.matching)));
                continue;
            };
            let Some(pool) = nat.destination.pools.iter().find(|pool| pool.name == *name) else { continue };
            if let Some(port) = pool.port {
                rule.flags |= abi::NAT_RULE_PORT;
                rule.new_port = port;
            }
            route_in(&mut rule, pool.routing_instance.as_deref(), builder.ids);
            rule.kind = abi::NAT_PREFIX;
            let addresses = count(pool.low, pool.high);
            if addresses == 1 {
                rule.target_len = if pool.low.is_ipv4() { 32 } else { 128 };
                rule.be_target = words_of(pool.low);
                let mut wanted = wanted(&written.matching);
                wanted.destination = of_family(&wanted.destination, pool.low.is_ipv4());
                list.push((rule, wanted));
                continue;
            }
            list.extend(one_to_one(rule, written, pool.low, addresses));
            if list.len() > abi::MAX_NAT_RULES {
                return Err(PlanError::NatRules { count: list.len() });
            }
        }
    }
    Ok(list)
}

/// What the rule translates is routed in this instance; None = where it comes from.
fn route_in(rule: &mut NatRule, instance: Option<&str>, ids: &IdMaps) {
    let Some(instance) = instance else { return };
    rule.flags |= abi::NAT_RULE_INSTANCE;
    // `default` is none of them
    rule.routing_instance = ids.instances.get(instance).map_or(0, |number| *number as u16);
}

/// A rule for each pair of prefixes by which the matched range becomes that of the pool.
fn one_to_one<Action>(
    rule: NatRule,
    written: &Written<Action>,
    low: IpAddr,
    addresses: u64,
) -> impl Iterator<Item = Compiled> {
    let first = written.matching.destination.as_ref().and_then(|ranges| match low {
        IpAddr::V4(_) => ranges.v4.first().map(|(low, _)| IpAddr::V4(*low)),
        IpAddr::V6(_) => ranges.v6.first().map(|(low, _)| IpAddr::V6(*low)),
    });
    let pairs = first.map_or(vec![], |first| pairs(first, low, addresses));
    let matching = written.matching.clone();
    pairs.into_iter().map(move |(from, to)| {
        let rule = NatRule {
            target_len: to.len,
            be_target: words_of(to.addr),
            be_match: words_of(from.addr),
            ..rule
        };
        let destination = Some(ranges(from));
        (rule, Wanted { destination, ..wanted(&matching) })
    })
}

fn ranges(prefix: Prefix) -> Ranges {
    let (low, width) = sluice_language::nat::bits(prefix.addr);
    let host = u128::MAX.checked_shr(128 - (width - u32::from(prefix.len))).unwrap_or(0);
    let network = low & !host;
    let like = |bits| sluice_language::nat::address(bits, prefix.addr);
    Ranges::between(like(network), like(network | host))
}

pub(super) fn statics(builder: &mut Builder<'_>, sets: &[usize]) -> Result<Vec<Compiled>, PlanError> {
    let nat = builder.nat;
    let mut list = vec![];
    for set in sets.iter().map(|number| &nat.statics[*number]) {
        for written in &set.rules {
            let kind = static_kind(&written.then);
            let id = id(builder.ids, kind, &set.name, &written.name);
            let rule = match &written.then {
                StaticAction::Prefix { from, to, ports, routing_instance } => {
                    let mut rule = prefix_rule(abi::NAT_PREFIX, id, *from, *to, *ports);
                    route_in(&mut rule, routing_instance.as_deref(), builder.ids);
                    rule
                }
                StaticAction::Nptv6 { from, to } => prefix_rule(abi::NAT_NPTV6, id, *from, *to, None),
                StaticAction::Inet { prefix } => {
                    let pool = nat64_prefix(&mut builder.tables.prefixes, *prefix)?;
                    let found = builder.tables.prefixes[usize::from(pool)];
                    let (be_match, target_len) = (found.be_prefix, found.length);
                    NatRule { kind: abi::NAT_NAT64, id, pool, be_match, target_len, ..Default::default() }
                }
            };
            list.push((rule, wanted(&written.matching)));
        }
    }
    Ok(list)
}

pub(super) fn static_kind(action: &StaticAction) -> Kind {
    if matches!(action, StaticAction::Inet { .. }) { Kind::Nat64 } else { Kind::Static }
}

fn prefix_rule(kind: u8, id: u16, from: Prefix, to: Prefix, ports: Option<PortMap>) -> NatRule {
    let mut rule = NatRule {
        kind,
        id,
        target_len: to.len,
        be_match: words_of(from.addr),
        be_target: words_of(to.addr),
        ..Default::default()
    };
    if let Some(ports) = ports.filter(|ports| ports.from != ports.to) {
        rule.flags |= abi::NAT_RULE_PORT;
        (rule.port_low, rule.new_port) = (ports.from.0, ports.to.0);
        if ports.from.0 != ports.from.1 {
            rule.flags |= abi::NAT_RULE_PORT_RANGE;
        }
    }
    rule
}

fn nat64_prefix(prefixes: &mut Vec<NatPrefix>, prefix: Prefix) -> Result<u16, PlanError> {
    let entry = NatPrefix { be_prefix: words_of(prefix.addr), length: prefix.len, ..Default::default() };
    if let Some(index) = prefixes.iter().position(|known| *known == entry) {
        return Ok(index as u16);
    }
    prefixes.push(entry);
    if prefixes.len() > abi::MAX_NAT_PREFIXES {
        return Err(PlanError::NatPrefixes { count: prefixes.len() });
    }
    Ok(prefixes.len() as u16 - 1)
}

/// Instances that prefixes of static rules are said to be in.
pub(super) fn origins(nat: &Nat) -> Vec<&str> {
    let rules = nat.statics.iter().flat_map(|set| &set.rules);
    let named = rules.filter_map(|rule| match &rule.then {
        StaticAction::Prefix { routing_instance, .. } => routing_instance.as_deref(),
        _ => None,
    });
    named.collect::<BTreeSet<&str>>().into_iter().collect()
}

/// What static rules do to packets of the other direction, from this instance: to their source. NAT64 has no such part.
pub(super) fn reverse(builder: &Builder<'_>, sets: &[usize], origin: Option<&str>) -> Vec<Compiled> {
    let nat = builder.nat;
    let mut list = vec![];
    for set in sets.iter().map(|number| &nat.statics[*number]) {
        for written in &set.rules {
            let id = id(builder.ids, static_kind(&written.then), &set.name, &written.name);
            let (rule, to, ports) = match &written.then {
                StaticAction::Prefix { routing_instance: Some(of), .. } if origin != Some(of) => continue,
                StaticAction::Prefix { from, to, ports, .. } => {
                    let reversed = ports.map(|ports| PortMap { from: ports.to, to: ports.from });
                    (prefix_rule(abi::NAT_PREFIX, id, *to, *from, reversed), *to, *ports)
                }
                StaticAction::Nptv6 { from, to } => {
                    (prefix_rule(abi::NAT_NPTV6, id, *to, *from, None), *to, None)
                }
                StaticAction::Inet { .. } => continue,
            };
            let reverse = |service: &Service| Service {
                source_port: ports.map_or((0, u16::MAX), |ports| ports.to),
                destination_port: service.source_port,
                ..service.clone()
            };
            let wanted = Wanted {
                source: Some(ranges(to)),
                destination: written.matching.source.clone(),
                services: written.matching.services.as_ref().map(|list| list.iter().map(reverse).collect()),
            };
            list.push((rule, wanted));
        }
    }
    list
}
