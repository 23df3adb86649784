//! Security policies.

use super::failure::{Failure, Fault};
use super::operation::{About, Act, NoArguments, Operation};
use crate::api::{MatchQuery, MatchView, PolicyView};
use crate::commit::Shared;
use crate::views::{self, matching};

/// Every policy, in the order of evaluation.
pub static POLICIES: Operation<NoArguments, Vec<PolicyView>> = Operation {
    about: About::open("policies", "/api/policies", "Policies and how often they decided"),
    act: Act::Read(|shared, _| Ok(views::policies(shared)?)),
};

/// What would become of a packet.
pub static MATCH_POLICIES: Operation<MatchQuery, MatchView> = Operation {
    about: About {
        faults: &[(
            Fault::Arguments,
            "an argument is missing or cannot be understood, a zone is not configured, the addresses are of different \
             families, or a commit came between",
        )],
        ..About::open(
            "match-policies",
            "/api/match-policies",
            "Which policy a first packet would match, by the tables in force",
        )
    },
    act: Act::Read(matching_policy),
};

/// Without the daemon its tables are out of reach, and the plan of the last commit stands for them.
fn matching_policy(shared: &Shared, packet: &MatchQuery) -> Result<MatchView, Failure> {
    let active = shared.active();
    let matched = match &active.rules {
        Some(rules) => matching::in_force(packet, &active.plan, rules),
        None => matching::planned(packet, &active.plan),
    };
    matched.map_err(Failure::arguments)
}
