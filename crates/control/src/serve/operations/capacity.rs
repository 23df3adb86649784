//! How full the tables are: what refuses when it is full should be seen before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_abi::{MAX_NAT_POOLS, MAX_NAT_RULES, MAX_NEXTHOPS, MAX_POLICIES};

use super::operation::{About, Act, NoArguments, Operation};
use crate::commit::Shared;
use crate::state::error::AskError;
use crate::views;

/// One table, and how much of it is in use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct TableFill {
    /// What it holds.
    pub table: String,
    /// Entries in use.
    pub used: u64,
    /// Entries that there is room for; one more is refused.
    pub room: u64,
}

/// How full the tables are.
pub static CAPACITY: Operation<NoArguments, Vec<TableFill>> = Operation {
    about: About::question("capacity", "/api/capacity", "How full the tables of the data plane are"),
    act: Act::Read(|shared, _| Ok(fills(shared)?)),
};

fn fills(shared: &Shared) -> Result<Vec<TableFill>, AskError> {
    let (sizes, active) = (shared.dataplane.sizes(), shared.active());
    let sessions = views::session_counts(shared);
    let (nexthops, bindings) = (shared.dataplane.nexthops()?.len(), shared.dataplane.binding_count());
    let grants = shared.dataplane.grants().live();
    // numbers of entries fit in 64 bits
    let fill = |table: &str, used: usize, room: usize| TableFill {
        table: table.to_owned(),
        used: used as u64,
        room: room as u64,
    };
    Ok(vec![
        fill("IPv4 sessions", sessions.v4 as usize, sizes.sessions4 as usize),
        fill("IPv6 sessions", sessions.v6 as usize, sizes.sessions6 as usize),
        fill("next hops", nexthops, MAX_NEXTHOPS),
        fill("bindings of persistent-nat", bindings as usize, sizes.bindings as usize),
        fill("grants", grants, sizes.grants as usize),
        fill("units", active.plan.units.len(), sizes.units as usize),
        fill("zones", active.plan.zones.len(), sizes.zones as usize),
        fill("policies", active.plan.policies.len(), MAX_POLICIES),
        fill("NAT rules", active.plan.nat.rules.len(), MAX_NAT_RULES),
        fill("NAT pools", active.plan.nat.pools.len(), MAX_NAT_POOLS),
    ])
}
