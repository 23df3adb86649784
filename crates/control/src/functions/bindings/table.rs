//! The table of persistent-nat: cleared, and rid of what a commit has taken away.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_dataplane::{Binding, Dataplane, Permits};
use sluice_language::Config;
use sluice_language::nat::{Ends, Nat, NatMatch, NatRule, Permit, RuleSet, SourceAction};
use sluice_plan::Plan;
use sluice_plan::nat::{Kind, rule_key};

use crate::api::nat::NatBindingFilter;

pub fn permit(permits: Permits) -> Permit {
    match permits {
        Permits::AnyHost => Permit::AnyRemoteHost,
        Permits::TargetHost => Permit::TargetHost,
        Permits::TargetPort => Permit::TargetHostPort,
    }
}

/// How many ended. Sessions go on; those that began outside have nothing to be judged by any more, and end when they are.
pub fn clear(dataplane: &Dataplane, filter: &NatBindingFilter) -> sluice_dataplane::Result<u64> {
    let wanted = |binding: &&Binding| {
        filter.internal_address.is_none_or(|address| address == binding.inside.0)
            && filter.internal_port.is_none_or(|port| port == binding.inside.1)
    };
    let bindings = dataplane.bindings()?;
    Ok(dataplane.end_bindings(bindings.iter().filter(wanted))?.into())
}

/// Ends bindings that no rule of the configuration in force would make: the rule is gone, is for other hosts, or says
/// something else. Sessions that began outside by such a binding are re-evaluated, and end.
pub fn prune(
    dataplane: &Dataplane,
    plan: &Plan,
    config: &Config,
    before: Option<&Nat>,
) -> sluice_dataplane::Result<()> {
    dataplane.finish_bindings()?;
    let bindings = dataplane.bindings()?;
    if bindings.is_empty() {
        return Ok(());
    }
    let rules = rules(plan, &config.nat, before);
    let stale = |binding: &&Binding| {
        rules.get(&binding.rule.into()).is_none_or(|rule| {
            !speaks_of(&rule.matching, binding.inside.0) || !would_make(plan, config, &rule.then, binding)
        })
    };
    if dataplane.end_bindings(bindings.iter().filter(stale))? > 0 {
        dataplane.judge_again();
    }
    Ok(())
}

/// Source rules by their ids, but for those whose rule-set is no more for packets that it was for before: whose of their
/// bindings come from there is not written down.
fn rules<'a>(plan: &Plan, nat: &'a Nat, before: Option<&Nat>) -> BTreeMap<u32, &'a NatRule<SourceAction>> {
    let ids: BTreeMap<String, u32> =
        plan.nat.rules.iter().map(|(id, info)| (rule_key(info.kind, &info.set, &info.name), *id)).collect();
    let former: Vec<&RuleSet<SourceAction>> = before.iter().flat_map(|nat| &nat.source.rule_sets).collect();
    let is_narrower = |set: &RuleSet<SourceAction>| {
        former.iter().any(|former| {
            former.name == set.name && (left_out(&former.from, Some(&set.from)) || narrower_to(former, set))
        })
    };
    let sets = nat.source.rule_sets.iter().filter(|set| !is_narrower(set));
    let rules = sets.flat_map(|set| set.rules.iter().map(move |rule| (set, rule)));
    rules
        .filter_map(|(set, rule)| Some((*ids.get(&rule_key(Kind::Source, &set.name, &rule.name))?, rule)))
        .collect()
}

fn narrower_to(former: &RuleSet<SourceAction>, set: &RuleSet<SourceAction>) -> bool {
    former.to.as_ref().is_some_and(|to| left_out(to, set.to.as_ref()))
}

/// Whether some of these ends are none any more.
fn left_out(before: &Ends, now: Option<&Ends>) -> bool {
    let all_in = |before: &[String], now: &[String]| before.iter().all(|name| now.contains(name));
    match (before, now) {
        (Ends::Units(before), Some(Ends::Units(now))) | (Ends::Zones(before), Some(Ends::Zones(now))) => {
            !all_in(before, now)
        }
        (Ends::RoutingInstances { names: before, .. }, Some(Ends::RoutingInstances { names: now, .. })) => {
            !all_in(before, now)
        }
        _ => true,
    }
}

fn speaks_of(matching: &NatMatch, inside: IpAddr) -> bool {
    matching.source.as_ref().is_none_or(|sources| sources.covers(inside, inside))
}

fn would_make(plan: &Plan, config: &Config, then: &SourceAction, binding: &Binding) -> bool {
    let Some(persistent) = then.persistent() else { return false };
    let same = persistent.permit == permit(binding.permits)
        && (persistent.timeout_s, persistent.sessions) == (binding.timeout_s, binding.most_sessions);
    let (address, port) = binding.outside;
    let source = &config.nat.source;
    let (has, ports) = match then {
        SourceAction::Pool { name, .. } => {
            let Some(pool) = source.pools.iter().find(|pool| pool.name == *name) else { return false };
            (pool.addresses.iter().any(|(low, high)| (low..=high).contains(&&address)), pool.ports)
        }
        _ => (is_of_unit(plan, config, address), source.interface_ports),
    };
    same && has && ports.range.is_some_and(|(low, high)| (low..=high).contains(&port))
}

/// Whether a unit has an address, by the configuration or, where it gives none, by a lease or by others.
fn is_of_unit(plan: &Plan, config: &Config, address: IpAddr) -> bool {
    let units = config.interfaces.iter().flat_map(|interface| &interface.units);
    let configured = units.flat_map(|unit| unit.addresses());
    let learned = plan.environment.netdevs.values().flat_map(|device| &device.learned);
    configured.chain(learned).any(|prefix| prefix.addr == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(text: &str) -> Nat {
        let text = format!(
            "interfaces {{ a0 {{ unit 0 {{ family inet {{ address 10.0.1.1/24; }} }} }} b0 {{ unit 0 {{ family inet {{ address 10.0.2.1/24; }} }} }} }}
            security {{
                zones {{ security-zone a {{ interfaces {{ a0.0; }} }} security-zone b {{ interfaces {{ b0.0; }} }} }}
                nat {{ source {{ rule-set out {{ {text} }} }} }}
            }}"
        );
        crate::state::config::parse(&text, "").unwrap().nat
    }

    const RULE: &str = "rule one { match { source-address 10.0.1.0/25; } then { source-nat { interface { persistent-nat { permit any-remote-host; } } } } }";

    #[test]
    fn a_rule_speaks_of_the_hosts_and_ends_that_it_has() {
        let set = |from: &str| sources(&format!("from zone [ {from} ]; to zone b; {RULE}"));
        let one = set("a");
        let matching = &one.source.rule_sets[0].rules[0].matching;
        assert!(speaks_of(matching, "10.0.1.127".parse().unwrap()));
        assert!(!speaks_of(matching, "10.0.1.128".parse().unwrap()));
        let from = |nat: &Nat| nat.source.rule_sets[0].from.clone();
        let both = set("a b");
        assert!(!left_out(&from(&one), Some(&from(&both))), "more than before");
        assert!(left_out(&from(&both), Some(&from(&one))));
        let unit = sources(&format!("from interface a0.0; to zone b; {RULE}"));
        assert!(left_out(&from(&one), Some(&from(&unit))), "who can tell");
    }
}
