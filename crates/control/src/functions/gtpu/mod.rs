//! Sessions of the user plane: those of the configuration are made, those that have no place in it any more end.

pub mod journal;
mod markers;
pub mod meters;
pub mod sessions;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use self::sessions::Sessions;
use crate::functions::function::{Candidate, CommitError, Function};

pub struct GtpU {
    dataplane: Arc<Dataplane>,
    sessions: Arc<Sessions>,
}

impl GtpU {
    pub fn new(dataplane: &Arc<Dataplane>, sessions: &Arc<Sessions>) -> Self {
        Self { dataplane: dataplane.clone(), sessions: sessions.clone() }
    }
}

/// Before a configuration without room for what there is comes into force.
#[derive(Debug, thiserror::Error)]
#[error(
    "services gtp-u: there are {wanted} sessions with those that were made over the API, and sessions-maximum is {room}; raise \
     it, or end some (`clear services gtp-u session`)"
)]
struct Room {
    wanted: usize,
    room: u32,
}

impl Function for GtpU {
    fn name(&self) -> &'static str {
        "gtp-u"
    }

    fn check(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let (wanted, room) = (self.sessions.wanted(candidate.config), candidate.config.gtp_u.room());
        let capacity = self.dataplane.gtpu().map_or(room, |gtpu| gtpu.capacity());
        if room > capacity {
            let (wanted, room) = (room, capacity);
            return Err(CommitError::input(sluice_dataplane::Error::TunnelRoom { wanted, room }));
        }
        match wanted > room as usize && room > 0 {
            true => Err(CommitError::input(Room { wanted, room })),
            false => Ok(()),
        }
    }

    /// By now programs know the units that sessions are placed by.
    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let falls_back = candidate.old.is_none() && candidate.next.commit.is_fallback();
        let now = (candidate.config, &candidate.plan);
        let mut remains = self.sessions.reconcile(&self.dataplane, now, falls_back);
        let offline = self.dataplane.spread_offline(&candidate.plan.tables.spread);
        remains.extend(offline.iter().map(|cpu| {
            format!(
                "services gtp-u spread: CPU {cpu} is offline; until it is not, its flows go on at the CPUs that take them from devices"
            )
        }));
        remains
    }
}
