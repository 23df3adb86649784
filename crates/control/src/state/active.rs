//! The commit in force, and the names that its numbers have.

use std::collections::{BTreeMap, BTreeSet};

use sluice_dataplane::RuleTables;
use sluice_language::Config;
use sluice_plan::nat::NatRuleInfo;
use sluice_plan::{Ids, Plan, Pool};

use crate::kernel::devices::Managed;
use crate::state::archive::Commit;

/// The commit in force.
#[derive(Debug)]
pub struct Active {
    pub generation: u32,
    pub text: String,
    pub file: String,
    /// Who committed it, when and why.
    pub commit: Commit,
    pub config: Config,
    /// As it is written: receivers may be names.
    pub named: sluice_language::fan_out::FanOut,
    pub plan: Plan,
    /// What the packet path decides by; None for who only reads what a daemon has left.
    pub rules: Option<RuleTables>,
    /// What devices count by themselves.
    pub devices: Managed,
    /// What ids were called that name nothing any more.
    pub former: Former,
}

/// Names of ids that commits before have given up: what ends by a commit is told behind it.
#[derive(Debug, Default)]
pub struct Former {
    zones: BTreeMap<u32, String>,
    policies: BTreeMap<u32, String>,
    nat_rules: BTreeMap<u32, NatRuleInfo>,
}

impl Former {
    /// Behind a commit that gives `ids`, as long as those that are given up go to no other name.
    pub fn behind(old: &Active, ids: &Ids) -> Self {
        let (plan, before) = (&old.plan, &old.former);
        let policies = plan.policies.iter().map(|(id, policy)| (id, &policy.name));
        Self {
            zones: given_up(&ids.zones, &before.zones, plan.zones.iter()),
            policies: given_up(&ids.policies, &before.policies, policies),
            nat_rules: given_up(&ids.nat_rules, &before.nat_rules, plan.nat.rules.iter()),
        }
    }
}

fn given_up<'a, T: Clone + 'a>(
    pool: &Pool,
    before: &'a BTreeMap<u32, T>,
    last: impl Iterator<Item = (&'a u32, &'a T)>,
) -> BTreeMap<u32, T> {
    let rest: BTreeSet<u32> = pool.retired().map(|(_, id)| id).collect();
    let known = before.iter().chain(last).filter(|(id, _)| rest.contains(id));
    known.map(|(id, name)| (*id, name.clone())).collect()
}

impl Active {
    /// `-` for what neither the active configuration nor those just before it know.
    pub fn zone_name(&self, id: u16) -> &str {
        match id {
            sluice_abi::ZONE_HOST => "junos-host",
            id => {
                let id = u32::from(id);
                self.plan.zones.get(&id).or(self.former.zones.get(&id)).map_or(UNKNOWN, String::as_str)
            }
        }
    }

    pub fn policy_name(&self, id: u32) -> &str {
        let policy = self.plan.policies.get(&id).map(|policy| &policy.name);
        policy.or(self.former.policies.get(&id)).map_or(UNKNOWN, String::as_str)
    }

    pub fn nat_rule(&self, id: u16) -> Option<&NatRuleInfo> {
        let id = u32::from(id);
        self.plan.nat.rules.get(&id).or(self.former.nat_rules.get(&id))
    }

    /// `SET RULE`; None = no rule.
    pub fn nat_rule_name(&self, id: u16) -> Option<String> {
        (id != 0).then(|| {
            self.nat_rule(id).map_or_else(|| UNKNOWN.to_owned(), |rule| format!("{} {}", rule.set, rule.name))
        })
    }

    pub fn nat_pool_name(&self, id: u32) -> &str {
        let pool = self.plan.nat.pools.get(&id);
        pool.map_or(UNKNOWN, |pool| pool.name.as_deref().unwrap_or("interface"))
    }

    pub fn unit_name(&self, index: u16) -> &str {
        let unit = self.plan.units.iter().find(|unit| unit.index == u32::from(index));
        let null = self.plan.null_zone.iter().find(|null| null.index == u32::from(index));
        unit.map(|unit| &unit.name).or(null.map(|null| &null.device)).map_or(UNKNOWN, String::as_str)
    }
}

/// What an id that names nothing any more is called.
const UNKNOWN: &str = "-";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_name_until_another_one_has_it() {
        let (mut ids, mut former) = (Ids::default(), BTreeMap::new());
        let mut names = BTreeMap::new();
        let mut told = vec![];
        for (generation, name) in [(1, "old"), (2, "new"), (3, "new"), (4, "new")] {
            let given = ids.policies.assign([name], generation).unwrap();
            former = given_up(&ids.policies, &former, names.iter());
            names = given.into_iter().map(|(name, id)| (id, name)).collect();
            told.push(former.values().cloned().collect::<Vec<String>>());
        }
        assert_eq!(told, [vec![], vec!["old".to_owned()], vec!["old".to_owned()], vec![]]);
    }
}
