//! Dropped packets themselves. How many there are for which reason is part of the statistics.

use super::failure::{Failure, Fault};
use super::operation::{About, Act, Operation, Role};
use crate::api::drops::{RecentDrops, RecentDropsQuery};
use crate::commit::Shared;
use crate::views;

const WRONG_FILTER: &[(Fault, &str)] =
    &[(Fault::Arguments, "the filter cannot be read, or names a reason that does not exist")];

/// Why a packet was dropped.
pub static RECENT_DROPS: Operation<RecentDropsQuery, RecentDrops> = Operation {
    about: About {
        role: Role::Group,
        faults: WRONG_FILTER,
        ..About::question(
            "recent-drops",
            "/api/drops/recent",
            "Packets dropped in the last minutes: tuple, interface, zones, stage, reason and rule",
        )
    },
    act: Act::Ask(recent),
};

fn recent(shared: &Shared, query: &RecentDropsQuery) -> Result<RecentDrops, Failure> {
    views::drops::recent(shared, query).map_err(Failure::arguments)
}
