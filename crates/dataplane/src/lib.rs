//! The data plane from user space: pinned state, generations of tables and programs, attachments, sessions, counters.
//!
//! A commit is `load` (fills the idle slot's tables, loads programs that are not there yet), `switch` (one store),
//! `grace` (no CPU runs the old programs any more), `retire_idle`. Everything takes `&self`; changes of generations and attachments exclude each other, the rest runs
//! beside them. Attaching looks up devices in the network namespace of the calling thread.

#![warn(missing_docs)]

mod attach;
mod bindings;
mod carry;
#[cfg(test)]
mod clock;
mod control;
mod counters;
mod dropped;
mod error;
mod events;
mod examine;
mod fan_out;
mod gate;
mod generation;
mod grants;
mod gtpu;
mod gtpu_room;
mod links;
mod loaded;
mod local;
mod memory;
mod mmap;
mod nexthops;
mod objects;
mod oversize;
pub mod prog_run;
mod programs;
mod reaper;
mod records;
mod refusal;
mod rules;
mod sessions;
mod slots;
mod spread;
mod state;
#[cfg(test)]
mod stress;
mod sweep;
mod sys;
mod trace;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::mem::offset_of;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use libbpf_rs::MapCore;
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};
use sluice_abi::{
    CONFIG_KERNEL_INDEX, FLOW_BUCKET_SLOTS, FLOW_STASH_MIN, FLOW_STASH_SHIFT, FlowLine4, FlowLine6,
    ProgramConfig, Watermarks,
};

pub use attach::{Attached, Attachment, Hook};
pub use bindings::{Binding, Permits};
pub use counters::{Counters, Renumbered};
pub use dropped::{Dropped, Headers};
pub use error::{Error, Result};
pub use events::Event;
pub use examine::Examined;
pub use gate::GateOnly;
pub use generation::{Generation, Hooks, Variant};
pub use grants::{Ended, Given, GrantKey, GrantRecord, GrantSpec, Grants, Pick, Reconciled, Refused};
pub use gtpu::{FlowUsage, Gtpu, GtpuRecord, GtpuRefused, GtpuSession, GtpuUsage, Peer, PeerRecord, Tunnel};
pub use links::is_attached;
pub use local::LocalKind;
pub use memory::MapMemory;
pub use nexthops::NexthopEntry;
pub use objects::ObjectKind;
pub use oversize::{Oversize, Unfit};
pub use programs::Program;
pub use rules::RuleTables;
pub use sessions::{Direction, Family, Session, SessionId, Tuple};
pub use sluice_abi as abi;
pub use sluice_abi::tables::{FlowRules, GateAlone, GateEndpoint, Spread, Tables};
pub use sluice_libbpf::device::takes_redirected;
pub use sluice_libbpf::program::ProgramDetails;
pub use spread::SpreadCpu;
pub use state::cleanup;
pub use sweep::{EarlyAgeout, SweepReport, Swept, Timeouts};
pub use sys::{give_back_freed, map_large_pieces};
pub use trace::{Action, Trace, TracePath, TracePoint, TraceRequest, Traced, TracedFrame, Untold};

use attach::{Gates, Roots};
use control::{Clock, Grace};
use loaded::Loaded;
use mmap::Array;
use reaper::Reaper;
use records::FlowTable;
use slots::Slots;
use state::{EXTENSIONS, State};
use sweep::Sweeper;

/// Sizes of the flow tables, in sessions, and what finds a session in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// IPv4 sessions that the table holds.
    pub sessions4: u32,
    /// IPv6 sessions that the table holds.
    pub sessions6: u32,
    /// The kernel's hash leads to records instead of Sluice's own index: slower and larger, but with no concurrency of our own, only
    /// the kernel's. A fallback; tests compare the two.
    #[serde(default)]
    pub kernel_index: bool,
    /// Grants of the gate.
    #[serde(default = "default_grants")]
    pub grants: u32,
    /// Bindings of persistent-nat.
    #[serde(default = "default_bindings")]
    pub bindings: u32,
    /// Units and zones that are counted, see [`Sizes::with_room`]: each CPU has counters for every one.
    #[serde(default = "default_units")]
    pub units: u32,
    /// Zones that are counted, likewise.
    #[serde(default = "default_zones")]
    pub zones: u32,
    /// Sessions have room for extensions from the start, and not only from the first generation on that needs it.
    #[serde(default)]
    pub extended: bool,
    /// Places for lines of GTP-U sessions, a power of two of them; 0 until a generation needs some.
    #[serde(default)]
    pub gtpu_slots: u32,
    /// The same of those by address, of which a session may have two.
    #[serde(default)]
    pub gtpu_downlink_slots: u32,
    /// There is room for flows of GTP-U sessions: loading a configuration that has some makes it.
    pub gtpu_flows: bool,
}

fn default_units() -> u32 {
    256
}

fn default_zones() -> u32 {
    32
}

fn default_grants() -> u32 {
    sluice_abi::GRANTS_DEFAULT
}

fn default_bindings() -> u32 {
    sluice_abi::NAT_BINDINGS_DEFAULT
}

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            sessions4: 65_536,
            sessions6: 65_536,
            kernel_index: false,
            grants: default_grants(),
            bindings: default_bindings(),
            units: default_units(),
            zones: default_zones(),
            extended: false,
            gtpu_slots: 0,
            gtpu_downlink_slots: 0,
            gtpu_flows: false,
        }
    }
}

impl Sizes {
    /// Line numbers have 32 bits and the record arrays must stay below 4 GB.
    pub const MOST_SESSIONS: u32 = 16 << 20;

    /// One more than there can be.
    const MOST_GRANTS: u32 = sluice_abi::MAX_GRANTS as u32;

    const MOST_BINDINGS: u32 = sluice_abi::MAX_NAT_BINDINGS as u32;

    fn check(&self) -> Result<()> {
        for (family, sessions) in [("sessions of IPv4", self.sessions4), ("sessions of IPv6", self.sessions6)]
        {
            if !(1..=Self::MOST_SESSIONS).contains(&sessions) {
                return Err(Error::Sizes { family, sessions, limit: Self::MOST_SESSIONS });
            }
        }
        if !(1..=Self::MOST_BINDINGS).contains(&self.bindings) {
            let (family, limit) = ("bindings of persistent-nat", Self::MOST_BINDINGS);
            return Err(Error::Sizes { family, sessions: self.bindings, limit });
        }
        match self.grants {
            1..Self::MOST_GRANTS => Ok(()),
            grants => Err(Error::Sizes { family: "grants", sessions: grants, limit: Self::MOST_GRANTS - 1 }),
        }
    }

    /// Maps that have an entry for each of them.
    pub(crate) const COUNTED: [&'static str; 3] = ["counters", "drops", "screen_counters"];

    /// With room to count so many units and zones, and about as many more. Few have as much as the default.
    pub fn with_room(self, units: usize, zones: usize) -> Sizes {
        let room = |used: usize, least: u32, most: usize| {
            (2 * used as u32).next_power_of_two().clamp(least, most as u32)
        };
        Sizes {
            units: room(units, default_units(), sluice_abi::MAX_UNITS),
            zones: room(zones, default_zones(), sluice_abi::MAX_ZONES),
            ..self
        }
    }

    /// With no less room than pinned maps have.
    pub(crate) fn keeping(self, entries: impl Fn(&str) -> Option<u32>) -> Sizes {
        let most = |map: &str, wanted: u32| entries(map).unwrap_or(0).max(wanted);
        Sizes {
            units: most("counters", self.units),
            zones: most("screen_counters", self.zones),
            // they get it in place
            extended: entries(EXTENSIONS).map_or(self.extended, |entries| entries > 1),
            gtpu_slots: entries(gtpu_room::UPLINKS).map_or(self.gtpu_slots, gtpu_room::slots_of),
            gtpu_downlink_slots: entries(gtpu_room::DOWNLINKS)
                .map_or(self.gtpu_downlink_slots, gtpu_room::slots_of),
            gtpu_flows: entries(gtpu_room::FLOWS)
                .map_or(self.gtpu_flows, |entries| entries >= gtpu_room::LEAST_FLOWS),
            ..self
        }
    }

    /// Whether every unit and zone of a generation has its counters.
    fn check_room(&self, tables: &Tables) -> Result<()> {
        let units = tables.units.iter().map(|(_, unit)| u32::from(unit.index)).max().unwrap_or(0);
        let zones = tables.units.iter().map(|(_, unit)| u32::from(unit.zone)).max().unwrap_or(0);
        for (what, highest, room) in [("units", units, self.units), ("zones", zones, self.zones)] {
            if highest >= room {
                return Err(Error::NoCounters { what, highest, room });
            }
        }
        Ok(())
    }

    /// Records of bindings: more than there may be bindings, so that a free one is found soon.
    fn binding_slots(&self) -> u32 {
        self.bindings + self.bindings / 4 + sluice_abi::NAT_BINDING_TRIES
    }

    /// Entries of a map that is sized by configuration. Session 0 is never used.
    fn entries(&self, map: &str) -> Option<u32> {
        let sessions = if map.ends_with('6') { self.sessions6 } else { self.sessions4 };
        match map {
            "buckets4" | "buckets6" => Some(self.buckets(sessions)),
            "stash4" | "stash6" if self.kernel_index => Some(2 * sessions),
            "stash4" | "stash6" => Some((sessions >> FLOW_STASH_SHIFT).max(FLOW_STASH_MIN as u32)),
            "lines4" | "lines6" => Some(2 * (sessions + 1)),
            "shared4" | "shared6" => Some(sessions + 1),
            "free4" | "free6" => Some(sessions),
            EXTENSIONS => Some(self.extensions()),
            _ if gtpu_room::MAPS.contains(&map) => {
                Some(gtpu_room::entries(map, [self.gtpu_slots, self.gtpu_downlink_slots]))
            }
            _ if gtpu_room::FLOW_MAPS.contains(&map) => {
                Some(gtpu_room::flow_entries(map, self.gtpu_slots, self.gtpu_flows))
            }
            "grants" | "grant_users" => Some(self.grants + 1),
            "grant_index" => Some(self.grant_buckets()),
            "counters" | "drops" => Some(self.units),
            "screen_counters" => Some(self.zones),
            "grant_sources" => Some(self.source_words()),
            "nat_bindings" => Some(self.binding_slots() + 1),
            "nat_binding_index" => Some(2 * self.bindings),
            spread::QUEUES => Some(spread::possible_cpus()),
            _ => None,
        }
    }

    /// A record for each session; those of IPv6 stand behind those of IPv4.
    fn extensions(&self) -> u32 {
        if self.extended { self.sessions4 + self.sessions6 + 1 } else { 1 }
    }

    /// Buckets of the index of grants: a power of two of them, at most half full when every grant is in use.
    fn grant_buckets(&self) -> u32 {
        self.grants.div_ceil(FLOW_BUCKET_SLOTS as u32 / 2).next_power_of_two()
    }

    /// Words of bits that tell hosts with a grant from those without: a power of two of them.
    fn source_words(&self) -> u32 {
        (self.grants * sluice_abi::GRANT_SOURCE_BITS).div_ceil(u64::BITS).next_power_of_two()
    }

    /// Buckets of the flow index: a power of two of them, at most six tenths full when every session is in use. With
    /// the kernel's index they are locks and nothing else.
    fn buckets(&self, sessions: u32) -> u32 {
        let keys = 2 * u64::from(sessions);
        let least = (keys * 10).div_ceil(6 * FLOW_BUCKET_SLOTS as u64);
        let buckets = least.next_power_of_two() as u32;
        if self.kernel_index { buckets.min(LOCKS) } else { buckets }
    }
}

/// Locks that writers share with the kernel's index.
const LOCKS: u32 = 1024;

/// What programs must know of the flow table.
fn table_config(sizes: Sizes, seed: u64) -> ProgramConfig {
    ProgramConfig {
        sessions4: sizes.sessions4,
        sessions6: sizes.sessions6,
        bucket_mask4: sizes.buckets(sizes.sessions4) - 1,
        bucket_mask6: sizes.buckets(sizes.sessions6) - 1,
        flags: if sizes.kernel_index { CONFIG_KERNEL_INDEX } else { 0 },
        grant_mask: sizes.grant_buckets() - 1,
        source_mask: sizes.source_words() - 1,
        nat_binding_slots: sizes.binding_slots(),
        gtpu_uplink_shift: gtpu_room::shift_of(sizes.gtpu_slots),
        gtpu_downlink_shift: gtpu_room::shift_of(sizes.gtpu_downlink_slots),
        grant_pace: grant_pace(control::hz()),
        seed,
        ..Default::default()
    }
}

/// Of at most 40 ms, so that revocations take effect within 100 ms whatever else they need.
fn grant_pace(hz: u32) -> u32 {
    let most = (hz / 25).max(1);
    (most.next_power_of_two() >> u32::from(!most.is_power_of_two())) - 1
}

/// How long another process may change programs, which takes milliseconds, before it counts as stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Nobody else changes programs meanwhile: neither another thread, nor who traces.
struct Changing<'a> {
    _beside: Option<Flock<File>>,
    _within: MutexGuard<'a, ()>,
}

/// From the keys that the standard library draws for its hash maps.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The data plane of one instance.
#[derive(Debug)]
pub struct Dataplane {
    state: State,
    sizes: Sizes,
    /// Of the flow hash.
    seed: u64,
    created: bool,
    active: Array<u32>,
    flows4: FlowTable<FlowLine4>,
    flows6: FlowTable<FlowLine6>,
    nexthops: Array<sluice_abi::Nexthop>,
    watermarks: Arc<Array<Watermarks>>,
    local_filter: Array<sluice_abi::LocalFilter>,
    bindings: Array<sluice_abi::NatBinding>,
    /// Held while this process ends some of them.
    ending_bindings: Mutex<()>,
    grace: Grace,
    clock: Clock,
    slots: Slots,
    loaded: Loaded,
    reaper: RwLock<Reaper>,
    /// This process has the timer sweep.
    sweeping: AtomicBool,
    sweeper: Sweeper,
    grants: Grants,
    gtpu: OnceLock<Gtpu>,
    roots: Mutex<Roots>,
    gates: Mutex<Gates>,
    /// Held while generations or attachments change, see [`Dataplane::changing`].
    changes: Mutex<()>,
    /// Of tables of positions.
    positions_lock: Mutex<()>,
}

impl Dataplane {
    /// Re-uses the state pinned under `pin`, with all its sessions, or creates it.
    pub fn open(pin: &Path, sizes: Sizes) -> Result<Dataplane> {
        Self::open_for(pin, sizes, true)
    }

    fn open_for(pin: &Path, sizes: Sizes, writes: bool) -> Result<Dataplane> {
        let (state, created) = State::open(pin, sizes)?;
        let room = |map: &str| state.map(map).max_entries();
        let sizes = Sizes {
            units: room("counters"),
            zones: room("screen_counters"),
            gtpu_slots: gtpu_room::slots_of(room(gtpu_room::UPLINKS)),
            gtpu_downlink_slots: gtpu_room::slots_of(room(gtpu_room::DOWNLINKS)),
            gtpu_flows: room(gtpu_room::FLOWS) >= gtpu_room::LEAST_FLOWS,
            ..sizes
        };
        if sizes.extended {
            state.extend(sizes)?;
        }
        links::remove_dead(pin)?;
        let watermarks: Arc<Array<Watermarks>> = Arc::new(records::mapped(&state, "watermarks")?);
        if created {
            watermarks.long(0, offset_of!(Watermarks, seed)).store(random(), Ordering::Relaxed);
        }
        let seed = watermarks.read(0).seed;
        Ok(Dataplane {
            active: control::map_active(&state)?,
            flows4: FlowTable::open(&state, &watermarks, sizes.sessions4)?,
            flows6: FlowTable::open(&state, &watermarks, sizes.sessions6)?,
            nexthops: records::mapped(&state, "nexthops")?,
            local_filter: records::mapped(&state, "local_filter")?,
            bindings: records::mapped(&state, "nat_bindings")?,
            ending_bindings: Mutex::default(),
            watermarks,
            grace: Grace::new()?,
            clock: Clock::new(sizes)?,
            slots: Slots::open(&state.directory())?,
            loaded: Loaded::open(&state.directory(), &state)?,
            reaper: RwLock::new(Reaper::new(
                &state,
                sizes,
                ProgramConfig { hz: control::hz(), ..table_config(sizes, seed) },
            )?),
            sweeping: AtomicBool::new(false),
            sweeper: Sweeper::new(&state, created, sizes)?,
            grants: Grants::open(&state, sizes.grants, seed, control::hz(), writes)?,
            gtpu: Gtpu::open(&state)?.map_or_else(OnceLock::new, OnceLock::from),
            seed,
            roots: Mutex::default(),
            gates: Mutex::default(),
            changes: Mutex::default(),
            positions_lock: Mutex::default(),
            state,
            sizes,
            created,
        })
    }

    /// The same as [`Dataplane::open`] for who only reads, beside a daemon: None where that would change something.
    pub fn read(pin: &Path, sizes: Sizes) -> Result<Option<Dataplane>> {
        if pin.exists() && state::is_own(pin)? {
            Self::open_for(pin, sizes, false).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The gate's grants.
    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Those that the pinned state was made with.
    pub fn sizes(&self) -> Sizes {
        let [gtpu_slots, gtpu_downlink_slots] = self.gtpu.get().map_or([0; 2], Gtpu::slots);
        Sizes { gtpu_slots, gtpu_downlink_slots, ..self.sizes }
    }

    /// The directory of pins.
    pub fn pin(&self) -> &Path {
        &self.state.pin
    }

    /// True when [`Dataplane::open`] made the state, false when it found it.
    pub fn is_new(&self) -> bool {
        self.created
    }

    /// Gives sessions room for extensions, which they keep. Programs that are loaded from here on know it; those that are
    /// there, but for the sweep's and the reaper's, read of a session's grant what stands in its lines.
    fn extend(&self) -> Result<()> {
        if self.reaper().extended {
            return Ok(());
        }
        let sizes = Sizes { extended: true, ..self.sizes };
        self.state.extend(sizes)?;
        self.loaded.read_state(&self.state)?;
        let reaper = Reaper::new(&self.state, sizes, self.fixed_config())?;
        *self.reaper.write().unwrap_or_else(PoisonError::into_inner) = reaper;
        self.renew_sweep()
    }

    /// What programs that are no generation's are loaded with.
    fn fixed_config(&self) -> ProgramConfig {
        ProgramConfig { hz: control::hz(), ..table_config(self.sizes, self.seed) }
    }

    fn reaper(&self) -> RwLockReadGuard<'_, Reaper> {
        self.reaper.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn changing(&self) -> Changing<'_> {
        let within = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = links::directory(&self.state.pin);
        let beside = sys::exclude(&directory, PATIENCE);
        if beside.is_none() && directory.exists() {
            tracing::warn!(directory = %directory.display(), "another process keeps it, and is not waited for");
        }
        Changing { _beside: beside, _within: within }
    }
}
