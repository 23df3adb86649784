//! The tables' sizes: fixed when the state is made.

use std::sync::Arc;

use sluice_dataplane::{Dataplane, Sizes};

use crate::functions::function::{Candidate, CommitError, Function};
use crate::state::config;

#[derive(Debug, thiserror::Error)]
enum RoomError {
    #[error(
        "security flow: session tables have {now4} IPv4 and {now6} IPv6 sessions; {new4} and {new6} need a new start \
         after `sluice cleanup --keep-commits`, which ends all sessions"
    )]
    Sessions { now4: u32, now6: u32, new4: u32, new6: u32 },
    #[error(
        "services gate: there is room for {now} grants; {new} need a new start after `sluice cleanup --keep-commits`, \
         which ends all grants and sessions"
    )]
    Grants { now: u32, new: u32 },
    #[error(
        "max-bindings: there is room for {now} bindings of persistent-nat, {new} are asked for; \
         `sluice cleanup --keep-commits`, then start anew: that ends all bindings, grants and sessions"
    )]
    Bindings { now: u32, new: u32 },
}

pub struct Room(Arc<Dataplane>);

impl Room {
    pub fn new(dataplane: &Arc<Dataplane>) -> Self {
        Self(dataplane.clone())
    }
}

impl Function for Room {
    fn name(&self) -> &'static str {
        "room"
    }

    fn check(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let now = self.0.sizes();
        // whether there are counters for its units is known when they have numbers
        let new = Sizes {
            units: now.units,
            zones: now.zones,
            extended: now.extended, // that comes with the generation, and this too
            gtpu_slots: now.gtpu_slots,
            gtpu_downlink_slots: now.gtpu_downlink_slots,
            gtpu_flows: now.gtpu_flows,
            ..config::sizes(candidate.config)
        };
        refused(now, new).map_or(Ok(()), |error| Err(CommitError::input(error)))
    }
}

fn refused(now: Sizes, new: Sizes) -> Option<RoomError> {
    if now == new {
        return None;
    }
    if (Sizes { bindings: new.bindings, ..now }) == new {
        return Some(RoomError::Bindings { now: now.bindings, new: new.bindings });
    }
    if (Sizes { grants: new.grants, ..now }) == new {
        return Some(RoomError::Grants { now: now.grants, new: new.grants });
    }
    Some(RoomError::Sessions {
        now4: now.sessions4,
        now6: now.sessions6,
        new4: new.sessions4,
        new6: new.sessions6,
    })
}
