//! The word `active`, the grace period and the clock of sessions.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use sluice_abi::{active_after_commit, active_after_routes, active_epoch, active_routes, active_slot};
use sluice_libbpf::map::NewMap;

use crate::error::{Doing, Result};
use crate::mmap::{Array, array};
use crate::objects::{self, CLOCK_SECTION, Frozen, ObjectKind, Recipe};
use crate::state::State;
use crate::{Dataplane, Generation, Sizes, prog_run, sys};

pub(crate) fn map_active(state: &State) -> Result<Array<u32>> {
    array(state.active()).doing(|| "map the word `active`".to_owned())
}

impl Dataplane {
    fn active(&self) -> &AtomicU32 {
        self.active.word(0, 0)
    }

    /// The slot whose programs run.
    pub fn active_slot(&self) -> u32 {
        active_slot(self.active().load(Ordering::Relaxed))
    }

    /// Decisions of another epoch are void; commits raise it.
    pub fn epoch(&self) -> u16 {
        active_epoch(self.active().load(Ordering::Relaxed))
    }

    /// What routes, addresses and links raise: sessions of another generation ask for their way again.
    pub fn route_generation(&self) -> u16 {
        active_routes(self.active().load(Ordering::Relaxed))
    }

    /// Activates a loaded generation: one 4-byte store changes slot and epoch together.
    pub fn switch(&self, generation: &Generation) {
        let _changing = self.changing();
        self.store_active(|word| active_after_commit(word, generation.slot()));
    }

    /// Has every session judged again by the active generation.
    pub fn judge_again(&self) {
        self.store_active(|word| active_after_commit(word, active_slot(word)));
    }

    /// Has every session ask for its way again. Policies are asked only where it leads into another zone.
    pub fn ask_routes_again(&self) {
        self.store_active(active_after_routes);
    }

    fn store_active(&self, next: impl Fn(u32) -> u32) {
        // Two threads may change it; a compare-exchange that succeeds is the one store that programs see.
        self.active()
            .fetch_update(Ordering::Release, Ordering::Relaxed, |word| Some(next(word)))
            .expect("the closure always has a next word");
    }

    /// Returns when every program run that began before has ended.
    pub fn grace(&self) -> Result<()> {
        self.grace.wait()
    }

    /// Low bits of this count are the `last_seen` of sessions.
    pub fn now_jiffies(&self) -> Result<u64> {
        self.clock.read()
    }

    /// Jiffies a second.
    pub fn hz(&self) -> u32 {
        self.clock.hz
    }

    /// For tests: what is loaded from now on takes so many jiffies for a second. With more of them than there are,
    /// seconds last longer, and a busy machine does not miss the end of one.
    #[doc(hidden)]
    pub fn pretend_hz(&mut self, hz: u32) {
        self.clock.hz = hz;
    }
}

/// An update of an ARRAY_OF_MAPS element returns after an RCU grace period.
#[derive(Debug)]
pub(crate) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    pub fn new() -> Result<Grace> {
        let wanted = |kind| NewMap { kind, name: "sluice_grace", key_size: 4, value_size: 4, max_entries: 1 };
        let doing = || "create the map of grace periods".to_owned();
        let inner = wanted(MapType::Array).create().doing(doing)?;
        let outer = wanted(MapType::ArrayOfMaps).create_of(inner.as_fd()).doing(doing)?;
        Ok(Grace { outer, inner })
    }

    fn wait(&self) -> Result<()> {
        let inner = std::os::fd::AsRawFd::as_raw_fd(&self.inner.as_fd());
        self.outer
            .update(&0u32.to_ne_bytes(), &inner.to_ne_bytes(), MapFlags::ANY)
            .doing(|| "wait for a grace period".to_owned())
    }
}

/// Jiffies a second.
pub(crate) fn hz() -> u32 {
    (1_000_000_000 / sys::tick_ns()) as u32
}

/// `bpf_jiffies64`, read through a small program.
#[derive(Debug)]
pub(crate) struct Clock {
    program: OwnedFd,
    jiffies: Array<u64>,
    hz: u32,
}

impl Clock {
    pub fn new(sizes: Sizes) -> Result<Clock> {
        let object = objects::load(&Recipe {
            kind: ObjectKind::Tc,
            programs: &["read_clock"],
            reuse: &|_| None,
            create: &|name| name == CLOCK_SECTION,
            frozen: Frozen::default(),
            entries: &|name| sizes.entries(name),
        })?;
        let map = objects::map(&object, CLOCK_SECTION)?;
        let jiffies = array(&map).doing(|| "map the clock".to_owned())?;
        Ok(Clock { program: objects::program(&object, "read_clock")?, jiffies, hz: hz() })
    }

    fn read(&self) -> Result<u64> {
        prog_run::run_syscall_program(self.program.as_fd())?;
        Ok(self.jiffies.long(0, 0).load(Ordering::Relaxed))
    }
}
