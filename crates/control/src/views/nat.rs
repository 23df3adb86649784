//! `show nat`: rules and pools with what they count, from counters and live sessions.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use sluice_language::Ranges;
use sluice_language::nat::{
    DestinationAction, Ends, Nat, NatMatch, Overflow, RuleSet, SourceAction, SourcePool, StaticAction, count,
};
use sluice_plan::Plan;
use sluice_plan::classifier::{Lookup, Subject};
use sluice_plan::nat::{Kind, Question, rule_key, translate};

use crate::api::nat::{
    NatMatchView, NatPoolView, NatProxyView, NatQuery, NatRuleView, NatTargetView, NatUnfragmentedView,
    NatView,
};
use crate::api::protocol;
use crate::commit::Shared;
use crate::state::active::Active;
use crate::state::error::AskError;
use crate::state::unfragmented::Unfragmented;

fn unfragmented(counts: &Unfragmented) -> NatUnfragmentedView {
    let [late, malformed, busy, refused] = [&counts.late, &counts.malformed, &counts.busy, &counts.refused]
        .map(|count| count.load(Ordering::Relaxed));
    NatUnfragmentedView { late, malformed, busy, refused }
}

pub fn view(shared: &Shared) -> Result<NatView, AskError> {
    let active = shared.active();
    let nat = &active.config.nat;
    let usage = Usage::count(shared, &active);
    let mut rules = written(nat);
    number(&mut rules, &active);
    let ids: Vec<u16> = rules.iter().map(|rule| rule.id as u16).collect();
    for (rule, counted) in rules.iter_mut().zip(shared.dataplane.nat_rule_counters(&ids)?) {
        (rule.hits, rule.sessions, rule.failed) = (counted.hits, counted.sessions, counted.failed);
        rule.live_sessions = usage.rules.get(&rule.id).copied().unwrap_or(0);
    }
    let mut pools = pools(nat, &active);
    let ids: Vec<u16> = pools.iter().map(|pool| pool.id as u16).collect();
    for (pool, counted) in pools.iter_mut().zip(shared.dataplane.nat_pool_counters(&ids)?) {
        pool.allocated = counted.ports;
        (pool.exhausted, pool.overflowed) = (counted.exhausted, counted.overflow);
        pool.searched = counted.searched;
        if let Some(used) = usage.pools.get(&pool.name) {
            pool.addresses_in_use = used.addresses.len() as u64;
            pool.ports_in_use = used.ports.len() as u64;
            pool.live_sessions = used.sessions;
        }
    }
    let target = |pool: &sluice_language::nat::DestinationPool| NatTargetView {
        name: pool.name.clone(),
        addresses: range(pool.low, pool.high),
        port: pool.port,
    };
    let proxied = nat
        .proxies
        .iter()
        .map(|proxy| NatProxyView { interface: proxy.unit.clone(), addresses: range(proxy.low, proxy.high) });
    Ok(NatView {
        rules,
        pools,
        destination_pools: nat.destination.pools.iter().map(target).collect(),
        proxied: proxied.collect(),
        bindings: shared.dataplane.binding_count(),
        bindings_limit: shared.dataplane.sizes().bindings,
        unfragmented: unfragmented(&shared.unfragmented),
    })
}

/// What live sessions use.
#[derive(Default)]
struct Usage {
    /// By rule id.
    rules: BTreeMap<u32, u64>,
    /// By name.
    pools: BTreeMap<String, Used>,
}

#[derive(Default)]
struct Used {
    addresses: HashSet<IpAddr>,
    ports: HashSet<(IpAddr, u8, u16)>,
    sessions: u64,
}

/// Of the pool that stands for addresses of interfaces.
const INTERFACE: &str = "(interface)";

impl Usage {
    fn count(shared: &Shared, active: &Active) -> Usage {
        let (nat, mut usage) = (&active.config.nat, Usage::default());
        if nat.is_empty() {
            return usage;
        }
        let mut ranges: Vec<(IpAddr, IpAddr, &str)> = vec![];
        for pool in &nat.source.pools {
            ranges.extend(pool.addresses.iter().map(|(low, high)| (*low, *high, pool.name.as_str())));
        }
        ranges.sort_unstable();
        // the others translate sources without a pool
        let of_pools: HashSet<u32> = active
            .plan
            .nat
            .rules
            .iter()
            .filter(|(_, rule)| rule.kind == Kind::Source)
            .map(|(id, _)| *id)
            .collect();
        for session in shared.dataplane.sessions() {
            let matched = [session.nat_destination, session.nat_source];
            for id in matched.into_iter().filter(|id| *id != 0) {
                *usage.rules.entry(id.into()).or_default() += 1;
            }
            let answer = &session.responder.tuple;
            let (outside, port) = (answer.destination, answer.destination_port);
            let is_of_pool = of_pools.contains(&session.nat_source.into());
            if !is_of_pool || outside == session.initiator.tuple.source {
                continue;
            }
            let index = ranges.partition_point(|(low, ..)| *low <= outside);
            let pool =
                index.checked_sub(1).map(|index| ranges[index]).filter(|(_, high, _)| outside <= *high);
            let used = usage.pools.entry(pool.map_or(INTERFACE, |(.., name)| name).to_owned()).or_default();
            used.addresses.insert(outside);
            used.ports.insert((outside, answer.protocol, port));
            used.sessions += 1;
        }
        usage
    }
}

fn number(rules: &mut [NatRuleView], active: &Active) {
    let ids: BTreeMap<String, u32> = active
        .plan
        .nat
        .rules
        .iter()
        .map(|(id, info)| (rule_key(info.kind, &info.set, &info.name), *id))
        .collect();
    for rule in rules {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == rule.kind);
        let key = kind.map(|kind| rule_key(kind, &rule.rule_set, &rule.name));
        rule.id = key.and_then(|key| ids.get(&key).copied()).unwrap_or(0);
    }
}

/// Every rule as it is written.
fn written(nat: &Nat) -> Vec<NatRuleView> {
    let mut views = vec![];
    for set in &nat.source.rule_sets {
        views.extend(of_set(set, |_| Kind::Source, source_action));
    }
    for set in &nat.destination.rule_sets {
        views.extend(of_set(
            set,
            |_| Kind::Destination,
            |then| match then {
                DestinationAction::Off => "off".to_owned(),
                DestinationAction::Pool { name } => format!("pool {name}"),
            },
        ));
    }
    let kind = |then: &StaticAction| match then {
        StaticAction::Inet { .. } => Kind::Nat64,
        _ => Kind::Static,
    };
    for set in &nat.statics {
        views.extend(of_set(set, kind, static_action));
    }
    views
}

fn of_set<A>(
    set: &RuleSet<A>,
    kind: impl Fn(&A) -> Kind,
    action: impl Fn(&A) -> String,
) -> impl Iterator<Item = NatRuleView> {
    set.rules.iter().map(move |rule| {
        let NatMatch { source, destination, services } = &rule.matching;
        NatRuleView {
            kind: kind(&rule.then).name().to_owned(),
            rule_set: set.name.clone(),
            name: rule.name.clone(),
            from: ends(&set.from),
            to: set.to.as_ref().map(ends),
            source: addresses(source),
            destination: addresses(destination),
            applications: services.iter().flatten().map(application).collect(),
            action: action(&rule.then),
            ..Default::default()
        }
    })
}

fn ends(ends: &Ends) -> String {
    match ends {
        Ends::Units(units) => format!("interface {}", units.join(" ")),
        Ends::Zones(zones) => format!("zone {}", zones.join(" ")),
        Ends::RoutingInstances { names, .. } => format!("routing-instance {}", names.join(" ")),
    }
}

fn source_action(then: &SourceAction) -> String {
    let permit = then.persistent().map(|persistent| persistent.permit.name());
    let persistent = permit.map_or(String::new(), |permit| format!(" persistent-nat {permit}"));
    match then {
        SourceAction::Off => "off".to_owned(),
        SourceAction::Interface { .. } => format!("interface{persistent}"),
        SourceAction::Pool { name, .. } => format!("pool {name}{persistent}"),
    }
}

fn static_action(then: &StaticAction) -> String {
    match then {
        StaticAction::Prefix { to, ports, .. } => {
            let mapped = ports.filter(|ports| ports.from != ports.to);
            let port = mapped.map_or(String::new(), |ports| format!(" mapped-port {}", port_range(ports.to)));
            format!("prefix {}/{}{port}", to.addr, to.len)
        }
        StaticAction::Nptv6 { to, .. } => format!("nptv6-prefix {}/{}", to.addr, to.len),
        StaticAction::Inet { prefix } => format!("inet behind {}/{}", prefix.addr, prefix.len),
    }
}

fn addresses(ranges: &Option<Ranges>) -> Vec<String> {
    let Some(ranges) = ranges else { return vec![] };
    let v4 = ranges.v4.iter().map(|(low, high)| range((*low).into(), (*high).into()));
    v4.chain(ranges.v6.iter().map(|(low, high)| range((*low).into(), (*high).into()))).collect()
}

fn range(low: IpAddr, high: IpAddr) -> String {
    if low == high { low.to_string() } else { format!("{low}-{high}") }
}

fn port_range((low, high): (u16, u16)) -> String {
    if low == high { low.to_string() } else { format!("{low}-{high}") }
}

fn application(service: &sluice_language::Service) -> String {
    let mut text = service.protocol.map_or("any".into(), protocol::name).into_owned();
    for (word, ports) in [("source-port", service.source_port), ("port", service.destination_port)] {
        if ports != (0, u16::MAX) {
            text += &format!(" {word} {}", port_range(ports));
        }
    }
    if let Some((kind, _)) = service.icmp_type {
        text += &format!(" type {kind}");
    }
    text
}

fn pools(nat: &Nat, active: &Active) -> Vec<NatPoolView> {
    let ids: BTreeMap<Option<&str>, u32> =
        active.plan.nat.pools.iter().map(|(id, info)| (info.name.as_deref(), *id)).collect();
    let interface = ids.get(&None).map(|id| NatPoolView {
        name: INTERFACE.to_owned(),
        id: *id,
        ports: nat.source.interface_ports.range,
        ..Default::default()
    });
    let named = nat.source.pools.iter().map(|pool: &SourcePool| NatPoolView {
        name: pool.name.clone(),
        id: ids.get(&Some(pool.name.as_str())).copied().unwrap_or(0),
        addresses: pool.addresses.iter().map(|(low, high)| range(*low, *high)).collect(),
        total_addresses: pool
            .addresses
            .iter()
            .map(|(low, high)| count(*low, *high))
            .fold(0, u64::saturating_add),
        ports: pool.ports.range,
        paired: pool.paired,
        host_address_base: pool.base.map(|base| base.to_string()),
        overflow: pool.overflow.as_ref().map(|overflow| match overflow {
            Overflow::Interface => "interface".to_owned(),
            Overflow::Pool(name) => name.clone(),
        }),
        ..Default::default()
    });
    interface.into_iter().chain(named).collect()
}

/// What the rules of a plan make of a first packet. Err says what is wrong with the question.
pub fn planned(query: &NatQuery, plan: &Plan) -> Result<NatMatchView, String> {
    let unit = |name: &str| {
        let found = plan.units.iter().find(|unit| unit.name == name).map(|unit| unit.index);
        found.ok_or_else(|| format!("interface {name} is in no zone of this configuration"))
    };
    let address = |text: &str| -> Result<IpAddr, String> {
        text.parse().map_err(|_| format!("`{text}` is not an IPv4 or IPv6 address"))
    };
    let subject = Subject {
        source: address(&query.source_ip)?,
        destination: address(&query.destination_ip)?,
        protocol: protocol::parse(&query.protocol)?,
        source_port: query.source_port,
        destination_port: query.destination_port,
        icmp_type: if query.protocol == "icmp6" { 128 } else { 8 },
        icmp_code: 0,
    };
    if subject.source.is_ipv4() != subject.destination.is_ipv4() {
        return Err("source-ip and destination-ip are of different families".to_owned());
    }
    let tables = &plan.tables;
    let lookup = Lookup {
        classes: &|line| tables.classes[line as usize],
        rows: &|line| tables.rows[line as usize],
        context: &|number| tables.contexts[number as usize],
    };
    let (ingress, egress) = (unit(&query.from_interface)?, Some(unit(&query.to_interface)?));
    let found = translate(&lookup, &tables.nat, &Question { subject, ingress, egress });
    let name = |index: usize| {
        let info = plan.nat.rules.get(&tables.nat.rules[index].id.into());
        info.map_or_else(String::new, |info| format!("{} {}", info.set, info.name))
    };
    let pool = |index: usize| {
        let info = plan.nat.pools.get(&tables.nat.pools[index].id.into());
        info.and_then(|info| info.name.clone()).unwrap_or_else(|| "interface".to_owned())
    };
    Ok(NatMatchView {
        destination_rule: found.destination_rule.map(name),
        destination: found.destination.to_string(),
        destination_port: found.destination_port,
        source_rule: found.source_rule.map(name),
        source: found.source.map(|(address, _)| address.to_string()),
        source_port: found.source.map(|(_, port)| port),
        pool: found.pool.map(pool),
    })
}
