//! The table of persistent-nat: cleared, and rid of what a commit has taken away.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_dataplane::{Binding, Dataplane, Permits};
use sluice_language::Config;
use sluice_language::nat::{Nat, Permit, SourceAction};
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

/// How many ended. Sessions go on as they are.
pub fn clear(dataplane: &Dataplane, filter: &NatBindingFilter) -> sluice_dataplane::Result<u64> {
    let wanted = |binding: &&Binding| {
        filter.internal_address.is_none_or(|address| address == binding.inside.0)
            && filter.internal_port.is_none_or(|port| port == binding.inside.1)
    };
    let bindings = dataplane.bindings()?;
    Ok(dataplane.end_bindings(bindings.iter().filter(wanted))?.into())
}

/// Ends bindings that no rule of the configuration in force would make: the rule is gone, or says something else.
/// Sessions that began outside by such a binding are re-evaluated, and end.
pub fn prune(dataplane: &Dataplane, plan: &Plan, config: &Config) -> sluice_dataplane::Result<()> {
    dataplane.finish_bindings()?;
    let bindings = dataplane.bindings()?;
    if bindings.is_empty() {
        return Ok(());
    }
    let rules = rules(plan, &config.nat);
    let stale = |binding: &&Binding| {
        rules.get(&binding.rule.into()).is_none_or(|then| !would_make(plan, config, then, binding))
    };
    if dataplane.end_bindings(bindings.iter().filter(stale))? > 0 {
        dataplane.judge_again();
    }
    Ok(())
}

/// What source rules do, by their ids.
fn rules<'a>(plan: &Plan, nat: &'a Nat) -> BTreeMap<u32, &'a SourceAction> {
    let ids: BTreeMap<String, u32> =
        plan.nat.rules.iter().map(|(id, info)| (rule_key(info.kind, &info.set, &info.name), *id)).collect();
    let rules = nat.source.rule_sets.iter().flat_map(|set| set.rules.iter().map(move |rule| (set, rule)));
    rules
        .filter_map(|(set, rule)| {
            Some((*ids.get(&rule_key(Kind::Source, &set.name, &rule.name))?, &rule.then))
        })
        .collect()
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
    let configured = units.flat_map(|unit| unit.inet.iter().chain(&unit.inet6));
    let learned = plan.environment.netdevs.values().flat_map(|device| &device.learned);
    configured.chain(learned).any(|prefix| prefix.addr == address)
}
