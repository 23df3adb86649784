//! Zone pairs and their contexts of rules: the pair's own first, then the global ones, first match wins.

use std::collections::BTreeMap;

use sluice_abi::{self as abi, Rule, ZonePair};
use sluice_language::config::{Action, ApplicationMatch, Config, Policy};

use crate::PlanError;
use crate::classifier::{Rules, Wanted};
use crate::terms::{Terms, timeout};

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
    pub contexts: Vec<Rules>,
    /// Of the gate's services.
    pub gate: u16,
}

pub(crate) fn compile(
    config: &Config,
    zones: &BTreeMap<String, u32>,
    ids: &BTreeMap<String, u32>,
    terms: &mut Terms,
    services: Vec<(u32, Wanted)>,
) -> Result<Compiled, PlanError> {
    refuse_host_policies(config)?;
    let mut contexts = Contexts { ids, terms, rules: vec![], lists: vec![] };
    // nothing comes from a zone behind the last one
    let highest = zones.values().max().map_or(0, |id| *id as u16 + 1);
    let mut zone_pairs = vec![ZonePair::default(); abi::zone_pair_index(highest, 0)];
    let default_action = if config.default_permit { abi::ACTION_PERMIT } else { abi::ACTION_DENY };
    // Zone pairs to which the same global policies apply share them.
    let mut globals: BTreeMap<Vec<usize>, u16> = BTreeMap::new();
    for (from, from_id) in zones {
        for (to, to_id) in zones {
            let own = contexts.of_pair(config, from, to)?;
            let applies = |policy: &Policy| policy.active && policy.applies_between(from, to);
            let numbers: Vec<usize> =
                (0..config.global_policies.len()).filter(|n| applies(&config.global_policies[*n])).collect();
            let global = match globals.get(&numbers) {
                Some(context) => *context,
                None => {
                    let policies = numbers.iter().map(|number| &config.global_policies[*number]);
                    let context = contexts.add("global", None, policies)?;
                    *globals.entry(numbers).or_insert(context)
                }
            };
            let pair = &mut zone_pairs[abi::zone_pair_index(*from_id as u16, *to_id as u16)];
            *pair = ZonePair { context: own, global, default_action, ..Default::default() };
        }
    }
    let gate = contexts.add_services(services)?;
    let Contexts { rules, lists, .. } = contexts;
    Ok(Compiled { zone_pairs, rules, contexts: lists, gate })
}

fn refuse_host_policies(config: &Config) -> Result<(), PlanError> {
    match config.policies.iter().find(|set| set.from_zone == HOST_ZONE || set.to_zone == HOST_ZONE) {
        None => Ok(()),
        Some(set) => Err(PlanError::HostPolicy { from: set.from_zone.clone(), to: set.to_zone.clone() }),
    }
}

/// The rule table and the lists it consists of while they grow.
struct Contexts<'a> {
    ids: &'a BTreeMap<String, u32>,
    terms: &'a mut Terms,
    rules: Vec<Rule>,
    lists: Vec<Rules>,
}

impl Contexts<'_> {
    fn of_pair(&mut self, config: &Config, from: &str, to: &str) -> Result<u16, PlanError> {
        let sets = config.policies.iter().filter(|set| set.from_zone == from && set.to_zone == to);
        let policies = sets.flat_map(|set| &set.policies).filter(|policy| policy.active);
        self.add(&format!("from-zone {from} to-zone {to}"), Some((from, to)), policies)
    }

    /// Number of the context that has these policies, 0 for none.
    fn add<'p>(
        &mut self,
        name: &str,
        pair: Option<(&str, &str)>,
        policies: impl Iterator<Item = &'p Policy>,
    ) -> Result<u16, PlanError> {
        let mut list = Rules { name: name.to_owned(), first: self.rules.len() as u32, rules: vec![] };
        for policy in policies {
            let key = policy_key(pair, &policy.name);
            let rule = compile_rule(policy, self.ids[&key], &format!("policy {key}"), self.terms)?;
            self.rules.push(rule);
            list.rules.push(wanted(policy));
        }
        self.close(list)
    }

    /// The services of the gate are found as policies are: the rule that matches first has the service's id.
    fn add_services(&mut self, services: Vec<(u32, Wanted)>) -> Result<u16, PlanError> {
        let mut list =
            Rules { name: "services gate".to_owned(), first: self.rules.len() as u32, rules: vec![] };
        for (id, wanted) in services {
            self.rules.push(Rule { policy: id as u16, action: abi::ACTION_PERMIT, ..Default::default() });
            list.rules.push(wanted);
        }
        self.close(list)
    }

    fn close(&mut self, list: Rules) -> Result<u16, PlanError> {
        if self.rules.len() > abi::MAX_RULES {
            return Err(PlanError::RuleTableFull { count: self.rules.len() });
        }
        if list.rules.is_empty() {
            return Ok(0);
        }
        self.lists.push(list);
        if self.lists.len() >= abi::MAX_CONTEXTS {
            return Err(PlanError::TooManyContexts);
        }
        Ok(self.lists.len() as u16)
    }
}

fn wanted(policy: &Policy) -> Wanted {
    Wanted {
        source: policy.source.matching(),
        destination: policy.destination.matching(),
        services: match &policy.application {
            ApplicationMatch::Any => None,
            ApplicationMatch::Services(services) => Some(services.clone()),
        },
    }
}

fn compile_rule(policy: &Policy, id: u32, owner: &str, terms: &mut Terms) -> Result<Rule, PlanError> {
    let wanted = [
        (policy.log_init, abi::RULE_LOG_INIT),
        (policy.log_close, abi::RULE_LOG_CLOSE),
        (policy.count, abi::RULE_COUNT),
    ];
    let flags = wanted.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag);
    let action = match policy.action {
        Action::Permit => abi::ACTION_PERMIT,
        Action::Deny => abi::ACTION_DENY,
        Action::Reject => abi::ACTION_REJECT,
    };
    let mut rule = Rule { policy: id as u16, action, flags, ..Default::default() };
    if let ApplicationMatch::Services(services) = &policy.application {
        let mut timeouts = services.iter().map(timeout);
        let first = timeouts.next().unwrap_or_default();
        if timeouts.all(|timeout| timeout == first) {
            rule.timeout_s = first;
        } else {
            let (first, count) = terms.services(services, owner)?;
            rule.service_first = first.into();
            rule.service_count = count;
        }
    }
    Ok(rule)
}
