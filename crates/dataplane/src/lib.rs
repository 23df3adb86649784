//! The data plane from user space: pinned state, generations of tables and programs, attachments, sessions, counters.
//!
//! A commit is `load` (fills the idle slot), `switch` (one store), `grace` (nobody runs the old programs any more),
//! `retire_idle`. Everything takes `&self`; changes of generations and attachments exclude each other, the rest runs
//! beside them. Attaching looks up devices in the network namespace of the calling thread.

mod attach;
mod control;
mod counters;
mod error;
mod generation;
mod links;
mod local;
mod mmap;
mod nexthops;
mod objects;
pub mod prog_run;
mod records;
mod sessions;
mod state;
mod sweep;
mod sys;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sluice_abi::{FlowLine4, FlowLine6};

pub use attach::{Attached, Attachment, Hook};
pub use counters::Counters;
pub use error::{Error, Result};
pub use generation::{Generation, ProgramKind, Variant};
pub use local::LocalKind;
pub use nexthops::NexthopEntry;
pub use objects::ObjectKind;
pub use sessions::{Direction, Family, Session, SessionId, Tuple};
pub use sluice_abi as abi;
pub use sluice_abi::tables::Tables;
pub use state::cleanup;
pub use sweep::{SweepReport, Timeouts};
pub use sys::ProgramDetails;

use attach::Roots;
use control::{Clock, Grace};
use mmap::Mapped;
use records::FlowTable;
use state::State;

/// Sizes of the flow tables, in sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    pub sessions4: u32,
    pub sessions6: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes { sessions4: 65_536, sessions6: 65_536 }
    }
}

impl Sizes {
    /// Line numbers have 32 bits and the record arrays must stay below 4 GB.
    pub const MOST_SESSIONS: u32 = 16 << 20;

    fn check(&self) -> Result<()> {
        for (family, sessions) in [("IPv4", self.sessions4), ("IPv6", self.sessions6)] {
            if !(1..=Self::MOST_SESSIONS).contains(&sessions) {
                return Err(Error::Sizes { family, sessions, limit: Self::MOST_SESSIONS });
            }
        }
        Ok(())
    }

    /// Entries of a map that is sized by configuration. Session 0 is never used.
    fn entries(&self, map: &str) -> Option<u32> {
        let sessions = if map.ends_with('6') { self.sessions6 } else { self.sessions4 };
        match map {
            "flows4" | "flows6" => Some(2 * sessions),
            "lines4" | "lines6" => Some(2 * (sessions + 1)),
            "shared4" | "shared6" => Some(sessions + 1),
            "free4" | "free6" => Some(sessions),
            _ => None,
        }
    }
}

/// The data plane of one instance.
#[derive(Debug)]
pub struct Dataplane {
    state: State,
    sizes: Sizes,
    created: bool,
    active: Mapped<u32>,
    flows4: FlowTable<FlowLine4>,
    flows6: FlowTable<FlowLine6>,
    nexthops: Mapped<sluice_abi::Nexthop>,
    grace: Grace,
    clock: Clock,
    roots: Mutex<BTreeMap<u32, Arc<Roots>>>,
    /// Held while generations or attachments change.
    changes: Mutex<()>,
    /// Whether a sweep has looked for sessions that an earlier daemon left half deleted.
    repaired: AtomicBool,
}

impl Dataplane {
    /// Re-uses the state pinned under `pin`, with all its sessions, or creates it.
    pub fn open(pin: &Path, sizes: Sizes) -> Result<Dataplane> {
        let (state, created) = State::open(pin, sizes)?;
        links::remove_dead(pin)?;
        let watermarks = Arc::new(records::mapped(&state, "watermarks")?);
        Ok(Dataplane {
            active: control::map_active(&state)?,
            flows4: FlowTable::open(&state, &watermarks, sizes.sessions4)?,
            flows6: FlowTable::open(&state, &watermarks, sizes.sessions6)?,
            nexthops: records::mapped(&state, "nexthops")?,
            grace: Grace::new()?,
            clock: Clock::new(sizes)?,
            roots: Mutex::default(),
            changes: Mutex::default(),
            repaired: AtomicBool::new(created),
            state,
            sizes,
            created,
        })
    }

    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// The directory of pins.
    pub fn pin(&self) -> &Path {
        &self.state.pin
    }

    /// True when [`Dataplane::open`] made the state, false when it found it.
    pub fn is_new(&self) -> bool {
        self.created
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
