//! The commit in force, and the names that its numbers have.

use sluice_dataplane::RuleTables;
use sluice_language::Config;
use sluice_plan::Plan;

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
}

impl Active {
    /// `-` for what the active configuration does not know any more.
    pub fn zone_name(&self, id: u16) -> &str {
        match id {
            sluice_abi::ZONE_HOST => "junos-host",
            id => self.plan.zones.get(&id.into()).map_or(UNKNOWN, String::as_str),
        }
    }

    pub fn policy_name(&self, id: u32) -> &str {
        self.plan.policies.get(&id).map_or(UNKNOWN, |policy| &policy.name)
    }

    /// `SET RULE`; None = no rule.
    pub fn nat_rule_name(&self, id: u16) -> Option<String> {
        let rule = self.plan.nat.rules.get(&id.into());
        (id != 0)
            .then(|| rule.map_or_else(|| UNKNOWN.to_owned(), |rule| format!("{} {}", rule.set, rule.name)))
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
