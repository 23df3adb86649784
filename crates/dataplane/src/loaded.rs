//! Which programs stand in the slots, so that nothing is loaded that is there already, be it from an earlier commit or
//! by an earlier daemon. What is written down of a program holds only together with the kernel's number of the program
//! that does stand there.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Program};
use sluice_abi::{LoadedProgram, PROGRAM_SLOTS, ProgramConfig};
use zerocopy::IntoBytes;

use crate::error::{Doing, Error, Result};
use crate::mmap::{Array, array};
use crate::objects::{self, ObjectKind};
use crate::slots;
use crate::state::State;

const HOOKS: usize = 3;

#[derive(Debug)]
pub(crate) struct Loaded {
    records: Array<LoadedProgram>,
    /// By hook: hash of the object and of the state maps that its programs use.
    states: Mutex<[u64; HOOKS]>,
}

/// What makes programs the same: nothing else goes into loading them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    state: u64,
    recipe: u64,
}

impl Loaded {
    pub fn open(pin: &Path, state: &State) -> Result<Loaded> {
        let (path, size) = (pin.join("loaded"), size_of::<LoadedProgram>() as u32);
        let entries = (HOOKS * PROGRAM_SLOTS) as u32;
        let map = match MapHandle::from_pinned_path(&path) {
            Ok(map) if (map.value_size(), map.max_entries()) == (size, entries) => map,
            _ => slots::create("loaded", size, entries, &path)?,
        };
        let records = array(&map).doing(|| format!("map {}", path.display()))?;
        let loaded = Loaded { records, states: Mutex::default() };
        loaded.read_state(state)?;
        Ok(loaded)
    }

    /// Which maps the state has. Programs of others are loaded anew.
    pub fn read_state(&self, state: &State) -> Result<()> {
        let ids = state.map_ids()?;
        let states = [ObjectKind::Xdp, ObjectKind::Tc, ObjectKind::Cpu]
            .map(|hook| hash(&(objects::bytes(hook), &ids)));
        *self.states.lock().unwrap_or_else(PoisonError::into_inner) = states;
        Ok(())
    }

    fn state(&self, hook: ObjectKind) -> u64 {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)[hook as usize]
    }

    /// Of programs with this configuration and these maps beside the state's.
    pub fn identity(&self, hook: ObjectKind, config: &ProgramConfig, maps: &[u32]) -> Identity {
        let state = self.state(hook);
        Identity { state, recipe: hash(&(state, config.as_bytes(), maps)) }
    }

    /// The program in a slot of a PROG_ARRAY, if it was made from this recipe.
    pub fn find(
        &self,
        hook: ObjectKind,
        programs: &MapHandle,
        slot: u32,
        wanted: Identity,
    ) -> Option<OwnedFd> {
        let record = self.records.read(index(hook, slot));
        let known = Identity { state: record.state, recipe: record.recipe };
        let id = id_at(programs, slot)?;
        (known == wanted && record.id == id).then(|| Program::fd_from_id(id).ok()).flatten()
    }

    /// Writes down what was just put into a slot.
    pub fn remember(
        &self,
        hook: ObjectKind,
        programs: &MapHandle,
        slot: u32,
        identity: Identity,
    ) -> Result<()> {
        let id = id_at(programs, slot)
            .ok_or_else(|| Error::Object { what: format!("the program of slot {slot}") })?;
        let Identity { state, recipe } = identity;
        self.records.write(index(hook, slot), LoadedProgram { state, recipe, id, zero: 0 });
        Ok(())
    }

    /// The kernel's number of the program that was put into a slot.
    pub fn id(&self, hook: ObjectKind, slot: u32) -> u32 {
        self.records.read(index(hook, slot)).id
    }

    /// Whether what stands in a slot was made from other state or another binary.
    pub fn is_foreign(&self, hook: ObjectKind, programs: &MapHandle, slot: u32) -> bool {
        let record = self.records.read(index(hook, slot));
        id_at(programs, slot).is_some_and(|id| id != record.id || record.state != self.state(hook))
    }
}

fn index(hook: ObjectKind, slot: u32) -> u32 {
    hook as u32 * PROGRAM_SLOTS as u32 + slot
}

/// Looking up a PROG_ARRAY gives the program's number.
pub(crate) fn id_at(programs: &MapHandle, slot: u32) -> Option<u32> {
    let value = programs.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok().flatten()?;
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// The same in every process of this binary.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
