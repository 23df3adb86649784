//! Zone pairs and their rules: context rules first, then the global ones, first match wins.

use std::collections::BTreeMap;

use sluice_abi::{self as abi, Rule, ZonePair};
use sluice_language::config::{Action, AddressMatch, ApplicationMatch, Config, Policy};

use crate::PlanError;
use crate::terms::Terms;

/// Zone pairs that name this zone judge traffic of the gateway itself, which is not supported yet.
const HOST_ZONE: &str = "junos-host";

/// Key of a policy among the ids: `trust -> untrust web`, or `global web`.
pub fn policy_key(context: Option<(&str, &str)>, name: &str) -> String {
    match context {
        Some((from, to)) => format!("{from} -> {to} {name}"),
        None => format!("global {name}"),
    }
}

/// Keys of all policies, in configuration order.
pub(crate) fn keys(config: &Config) -> Vec<String> {
    let sets = config.policies.iter().flat_map(|set| {
        let context = Some((set.from_zone.as_str(), set.to_zone.as_str()));
        set.policies.iter().map(move |p| policy_key(context, &p.name))
    });
    sets.chain(config.global_policies.iter().map(|p| policy_key(None, &p.name))).collect()
}

pub(crate) struct Compiled {
    pub zone_pairs: Vec<ZonePair>,
    pub rules: Vec<Rule>,
}

pub(crate) fn compile(
    config: &Config,
    zones: &BTreeMap<String, u32>,
    policies: &BTreeMap<String, u32>,
    terms: &mut Terms,
) -> Result<Compiled, PlanError> {
    refuse_host_policies(config)?;
    let default_action = if config.default_permit { abi::ACTION_PERMIT } else { abi::ACTION_DENY };
    let mut compiled =
        Compiled { zone_pairs: vec![ZonePair::default(); abi::MAX_ZONES * abi::MAX_ZONES], rules: vec![] };
    let globals: Vec<&Policy> = config.global_policies.iter().filter(|policy| policy.active).collect();
    let global_rules = compile_rules(&config.global_policies, None, policies, terms)?;
    // Pairs without rules of their own share one copy of the same global ones.
    let mut shared: BTreeMap<Vec<usize>, (u16, u16)> = BTreeMap::new();
    for (from, from_id) in zones {
        for (to, to_id) in zones {
            let own = context_rules(config, from, to, policies, terms)?;
            let applies = (0..globals.len()).filter(|number| globals[*number].applies_between(from, to));
            let applies: Vec<usize> = applies.collect();
            let known = shared.get(&applies).filter(|_| own.is_empty()).copied();
            let (first, count) = match known {
                Some(range) => range,
                None => {
                    let global: Vec<Rule> = applies.iter().map(|number| global_rules[*number]).collect();
                    append(&mut compiled.rules, &own, &global, (from, to))?
                }
            };
            if own.is_empty() {
                shared.insert(applies, (first, count));
            }
            let pair = &mut compiled.zone_pairs[abi::zone_pair_index(*from_id as u16, *to_id as u16)];
            *pair = ZonePair { first, count, default_action, ..Default::default() };
        }
    }
    Ok(compiled)
}

fn refuse_host_policies(config: &Config) -> Result<(), PlanError> {
    match config.policies.iter().find(|set| set.from_zone == HOST_ZONE || set.to_zone == HOST_ZONE) {
        None => Ok(()),
        Some(set) => Err(PlanError::HostPolicy { from: set.from_zone.clone(), to: set.to_zone.clone() }),
    }
}

fn context_rules(
    config: &Config,
    from: &str,
    to: &str,
    policies: &BTreeMap<String, u32>,
    terms: &mut Terms,
) -> Result<Vec<Rule>, PlanError> {
    let mut rules = vec![];
    for set in config.policies.iter().filter(|set| set.from_zone == from && set.to_zone == to) {
        rules.extend(compile_rules(&set.policies, Some((from, to)), policies, terms)?);
    }
    Ok(rules)
}

fn append(
    rules: &mut Vec<Rule>,
    own: &[Rule],
    global: &[Rule],
    (from, to): (&str, &str),
) -> Result<(u16, u16), PlanError> {
    let count = own.len() + global.len();
    if count > abi::MAX_RULES_PER_PAIR {
        return Err(PlanError::TooManyRules {
            from: from.to_owned(),
            to: to.to_owned(),
            count,
            global: global.len(),
        });
    }
    let first = rules.len();
    if first + count > abi::MAX_RULES {
        return Err(PlanError::RuleTableFull { count: first + count });
    }
    rules.extend_from_slice(own);
    rules.extend_from_slice(global);
    Ok((first as u16, count as u16))
}

fn compile_rules(
    list: &[Policy],
    context: Option<(&str, &str)>,
    ids: &BTreeMap<String, u32>,
    terms: &mut Terms,
) -> Result<Vec<Rule>, PlanError> {
    list.iter()
        .filter(|policy| policy.active)
        .map(|policy| {
            let key = policy_key(context, &policy.name);
            compile_rule(policy, ids[&key], &format!("policy {key}"), terms)
        })
        .collect()
}

fn compile_rule(policy: &Policy, id: u32, owner: &str, terms: &mut Terms) -> Result<Rule, PlanError> {
    let mut flags = 0;
    let mut ranges = |side: &AddressMatch, any: u8| match side.matching() {
        None => {
            flags |= any;
            Ok(((0, 0), (0, 0)))
        }
        Some(ranges) => Ok((terms.v4(&ranges.v4, owner)?, terms.v6(&ranges.v6, owner)?)),
    };
    let (source4, source6) = ranges(&policy.source, abi::RULE_SOURCE_ANY)?;
    let (destination4, destination6) = ranges(&policy.destination, abi::RULE_DESTINATION_ANY)?;
    let service = match &policy.application {
        ApplicationMatch::Any => {
            flags |= abi::RULE_APPLICATION_ANY;
            (0, 0)
        }
        ApplicationMatch::Services(services) => terms.services(services, owner)?,
    };
    let wanted = [
        (policy.log_init, abi::RULE_LOG_INIT),
        (policy.log_close, abi::RULE_LOG_CLOSE),
        (policy.count, abi::RULE_COUNT),
    ];
    flags |= wanted.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
    let action = match policy.action {
        Action::Permit => abi::ACTION_PERMIT,
        Action::Deny => abi::ACTION_DENY,
        Action::Reject => abi::ACTION_REJECT,
    };
    Ok(Rule {
        policy: id as u16,
        action,
        flags,
        source4_first: source4.0,
        source4_count: source4.1,
        source6_first: source6.0,
        source6_count: source6.1,
        destination4_first: destination4.0,
        destination4_count: destination4.1,
        destination6_first: destination6.0,
        destination6_count: destination6.1,
        service_first: service.0,
        service_count: service.1,
        ..Default::default()
    })
}
