//! State that outlives configurations and the daemon: pinned maps.
//!
//! The pin `active` is made last. A directory without it is what a crash left in the middle of creation: nothing can
//! be attached yet, so it is removed and made anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::carry::home::{self, Home};
use crate::carry::{self, Carry, Found, fault};
use crate::error::{Doing, Error, Result};
use crate::objects::{self, ACTIVE_SECTION, Frozen, ObjectKind, Recipe};
use crate::{Sizes, gtpu_room, links, slots, spread};

const PROGRAMS: &str = "programs";
const PROGRAMS_XDP: &str = "programs_xdp";
const PROGRAMS_TC: &str = "programs_tc";
const ACTIVE: &str = "active";
const IDENTITY: &str = "identity";
/// What few sessions need; of a single record until they do.
pub(crate) const EXTENSIONS: &str = "flow_extensions";
/// Of [`State::later`].
const LATER_EXTENSIONS: usize = 0;
const LATER_GTPU: usize = 1;
const LATER_FLOWS: usize = 2;
/// What only programs of one state use.
pub(crate) const OWN: [&str; 5] = [PROGRAMS_XDP, PROGRAMS_TC, spread::PROGRAMS, spread::CPUS, ACTIVE];

#[derive(Debug)]
pub(crate) struct State {
    pub pin: PathBuf,
    home: Home,
    maps: BTreeMap<&'static str, MapHandle>,
    /// In the place of maps that the state began with, of which most configurations need none.
    later: [OnceLock<BTreeMap<&'static str, MapHandle>>; 3],
    old: Mutex<Old>,
}

/// What is still to do after another program's state was found.
#[derive(Debug, Default)]
pub(crate) struct Old {
    /// Earlier states that are not removed yet, the oldest first.
    pub states: Vec<Found>,
    /// This state does not count yet: whoever starts next finds the last of the old ones.
    pub staged: bool,
}

/// Every pin: its file name, and where its definition stands.
fn pins() -> impl Iterator<Item = (&'static str, ObjectKind, &'static str)> {
    let shared = carry::known().map(|(name, _)| (name, ObjectKind::Tc, name));
    let own = [
        (PROGRAMS_XDP, ObjectKind::Xdp, PROGRAMS),
        (PROGRAMS_TC, ObjectKind::Tc, PROGRAMS),
        (spread::PROGRAMS, ObjectKind::Cpu, PROGRAMS),
        (spread::CPUS, ObjectKind::Cpu, spread::CPUS),
        (ACTIVE, ObjectKind::Tc, ACTIVE_SECTION),
    ];
    shared.chain(own)
}

impl State {
    fn of(pin: &Path, home: Home, maps: BTreeMap<&'static str, MapHandle>) -> State {
        State { pin: pin.to_owned(), home, maps, later: Default::default(), old: Mutex::default() }
    }

    /// Re-uses the pinned state, or makes it. The flag says whether it was made.
    pub fn open(pin: &Path, sizes: Sizes) -> Result<(State, bool)> {
        sizes.check()?;
        check_file_system(pin)?;
        if let Some((home, older)) = home::find(pin)? {
            return Ok((State::found(pin, home, older, sizes)?, false));
        }
        if pin.exists() {
            tracing::warn!(pin = %pin.display(), "removing pinned state that was never completed");
            remove(pin)?;
        }
        Ok((State::create(pin, sizes)?, true))
    }

    /// As it is, when this program made it; else what becomes of it.
    fn found(pin: &Path, home: Home, older: Vec<Home>, sizes: Sizes) -> Result<State> {
        let current = Found::open(home)?;
        let sizes = sizes.keeping(|name| current.maps.get(name).map(MapCore::max_entries));
        let mut states = older.into_iter().map(Found::open).collect::<Result<Vec<_>>>()?;
        let shared = carry::shared(&current, &carry::wanted(sizes)?, sizes)?;
        let has_room = Sizes::COUNTED.iter().all(|name| shared.contains(name));
        if identity_of(&current) != Some(identity()) || !has_room {
            states.push(current);
            return State::stage(pin, states, &shared, sizes);
        }
        let Found { home, maps: mut found } = current;
        let mut maps = BTreeMap::new();
        for (name, _, _) in pins() {
            let path = home.path(name);
            let Some(map) = found.remove(name) else { return Err(Error::Missing { path }) };
            maps.insert(name, map);
        }
        let state = State::of(pin, home, maps);
        state.old().states = states;
        state.keep_guard(&state.old())?;
        Ok(state)
    }

    fn create(pin: &Path, sizes: Sizes) -> Result<State> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(links::directory(pin))
            .doing(|| format!("create {}", links::directory(pin).display()))?;
        let maps = make(sizes, &BTreeSet::new())?;
        let state = State::of(pin, Home::new(pin, 0), maps);
        state.write_identity()?;
        state.pin_all()?;
        state.pin_active()?;
        Ok(state)
    }

    /// A state beside the last of those that are there.
    fn stage(pin: &Path, old: Vec<Found>, shared: &BTreeSet<&'static str>, sizes: Sizes) -> Result<State> {
        let last = old.last().ok_or_else(|| Error::Object { what: "a state to carry over".to_owned() })?;
        let home = Home::new(pin, last.home.number + 1);
        tracing::info!(
            from = %last.home.directory().display(),
            to = %home.directory().display(),
            shared = shared.len(),
            "the pinned state was made by another version: carrying it over"
        );
        home.make()?;
        let mut maps = make(sizes, shared)?;
        for name in shared {
            let found = MapHandle::try_from(&last.maps[*name]).doing(|| format!("duplicate map {name}"))?;
            maps.insert(name, found);
        }
        let active = last.maps.get(ACTIVE).map(|map| map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY));
        let state = State::of(pin, home, maps);
        state.old().staged = true;
        if let Some(word) = active.transpose().doing(|| "read the word `active`".to_owned())?.flatten() {
            // the old programs go on with theirs: epochs count on from it
            let written = state.active().update(&0u32.to_ne_bytes(), &word, MapFlags::ANY);
            written.doing(|| "write the word `active`".to_owned())?;
        }
        state.write_identity()?;
        state.old().states = old;
        fault::point("made");
        let old = state.old();
        if let Some((last, before)) = old.states.split_last() {
            Carry::new(last, &state.maps)?.fill()?;
            before.iter().try_for_each(|older| Carry::new(older, &state.maps)?.follow())?;
        }
        drop(old);
        state.pin_all()?;
        fault::point("staged");
        Ok(state)
    }

    /// Whether there is room for what few sessions need.
    pub fn is_extended(&self) -> bool {
        self.map(EXTENSIONS).max_entries() > 1
    }

    /// Makes it, where it is not there yet. No session has an extension then, so nothing is taken over.
    pub fn extend(&self, sizes: Sizes) -> Result<()> {
        if self.is_extended() { Ok(()) } else { self.make_later(LATER_EXTENSIONS, &[EXTENSIONS], sizes) }
    }

    /// Makes room for GTP-U sessions. There is none before, so nothing is taken over.
    pub fn make_gtpu_room(&self, sizes: Sizes) -> Result<()> {
        self.make_later(LATER_GTPU, &gtpu_room::MAPS, sizes)
    }

    /// Makes room for flows of GTP-U sessions. No session has some before.
    pub fn make_flow_room(&self, sizes: Sizes) -> Result<()> {
        self.make_later(LATER_FLOWS, &gtpu_room::FLOW_MAPS, sizes)
    }

    /// Maps in the place of those that the state began with.
    fn make_later(&self, which: usize, names: &[&'static str], sizes: Sizes) -> Result<()> {
        let pins: Vec<_> = names.iter().map(|name| (*name, *name)).collect();
        let made = make_of(ObjectKind::Tc, sizes, &pins)?;
        for (name, map) in &made {
            slots::pin_over(map, &self.home.path(name))?;
            tracing::info!(map = name, entries = map.max_entries(), "has room now");
        }
        // nobody else does so: generations are loaded one after the other
        let _ = self.later[which].set(made.into_iter().collect());
        Ok(())
    }

    /// Where the maps are pinned.
    pub fn directory(&self) -> PathBuf {
        self.home.directory()
    }

    /// From here on this state counts, and its programs stand in their slots: links may lead to them.
    pub fn commit(&self) -> Result<()> {
        let mut old = self.old();
        if !old.staged {
            return Ok(());
        }
        old.states.iter().try_for_each(|state| Carry::new(state, &self.maps)?.follow())?;
        fault::point("committing");
        self.pin_active()?;
        old.staged = false;
        fault::point("committed");
        Ok(())
    }

    /// Earlier states, when this one counts.
    pub fn old_states(&self) -> Option<MutexGuard<'_, Old>> {
        Some(self.old()).filter(|old| !old.staged && !old.states.is_empty())
    }

    /// No program works with the earlier states any more: what they have more than this one is brought over, and they
    /// go. What a crash interrupts is done anew by the next start.
    pub fn put_away(&self, old: &mut Old) -> Result<()> {
        while let Some(state) = old.states.first() {
            let carry = Carry::new(state, &self.maps)?;
            carry.follow()?;
            fault::point("followed");
            carry.add_totals()?;
            fault::point("counted");
            state.home.remove()?;
            old.states.remove(0);
        }
        self.keep_guard(old)
    }

    fn old(&self) -> MutexGuard<'_, Old> {
        self.old.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_guard(&self, old: &Old) -> Result<()> {
        let others = old.states.iter().any(|state| state.home.number == 0);
        if self.home.number == 0 || others { Ok(()) } else { home::keep_guard(&self.pin, self.active()) }
    }

    fn write_identity(&self) -> Result<()> {
        let map = self.map(IDENTITY);
        let mut value = vec![0; map.value_size() as usize];
        value[..8].copy_from_slice(&identity().to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).doing(|| format!("write {IDENTITY}"))
    }

    /// All but `active`.
    fn pin_all(&self) -> Result<()> {
        let all = self.maps.iter().filter(|(name, _)| **name != ACTIVE);
        all.into_iter().try_for_each(|(name, map)| carry::pin(map, self.home.path(name)))
    }

    fn pin_active(&self) -> Result<()> {
        carry::pin(self.active(), self.home.path(ACTIVE))
    }

    /// A state map by the name of its pin.
    pub fn map(&self, name: &str) -> &MapHandle {
        let later = self.later.iter().find_map(|maps| maps.get()?.get(name));
        later.unwrap_or_else(|| &self.maps[name])
    }

    /// Every map by the name of its pin.
    pub fn maps(&self) -> impl Iterator<Item = (&'static str, &MapHandle)> {
        self.maps.keys().map(|name| (*name, self.map(name)))
    }

    /// The kernel's numbers of all maps.
    pub fn map_ids(&self) -> Result<Vec<u32>> {
        self.maps().map(|(_, map)| slots::map_id(map)).collect()
    }

    pub fn active(&self) -> &MapHandle {
        self.map(ACTIVE)
    }

    pub fn programs(&self, kind: ObjectKind) -> &MapHandle {
        self.map(match kind {
            ObjectKind::Xdp => PROGRAMS_XDP,
            ObjectKind::Tc => PROGRAMS_TC,
            ObjectKind::Cpu => spread::PROGRAMS,
        })
    }

    /// The map that stands for `name` of an object.
    pub fn descriptor(&self, kind: ObjectKind, name: &str) -> Option<BorrowedFd<'_>> {
        match name {
            PROGRAMS => Some(self.programs(kind).as_fd()),
            ACTIVE_SECTION => Some(self.active().as_fd()),
            spread::CPUS => Some(self.map(spread::CPUS).as_fd()),
            _ if carry::class_of(name).is_some() => Some(self.map(name).as_fd()),
            _ => None,
        }
    }
}

impl Drop for State {
    /// What was prepared and never came to count is of no use to anybody.
    fn drop(&mut self) {
        if self.old().staged
            && let Err(error) = self.home.remove()
        {
            tracing::warn!(%error, "a state that never came to count remains until the next start");
        }
    }
}

/// Whether the state under `pin` is one that this program has made: opening it changes nothing.
pub(crate) fn is_own(pin: &Path) -> Result<bool> {
    let Some(home) = home::settled(pin)? else { return Ok(false) };
    Ok(identity_of(&Found::open(home)?) == Some(identity()))
}

fn identity() -> u64 {
    carry::identity(&[ObjectKind::Xdp, ObjectKind::Tc].map(objects::bytes))
}

/// What the state says of who made it.
fn identity_of(found: &Found) -> Option<u64> {
    let value = found.maps.get(IDENTITY)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(u64::from_ne_bytes(value.get(..8)?.try_into().ok()?))
}

/// Maps of a state, except for those that are there.
fn make(sizes: Sizes, there: &BTreeSet<&'static str>) -> Result<BTreeMap<&'static str, MapHandle>> {
    let mut maps = BTreeMap::new();
    for kind in [ObjectKind::Tc, ObjectKind::Xdp] {
        let own = pins().filter(|(pin, owner, _)| *owner == kind && !there.contains(pin));
        maps.extend(make_of(kind, sizes, &own.map(|(pin, _, map)| (pin, map)).collect::<Vec<_>>())?);
    }
    maps.extend(spread::new_maps()?);
    Ok(maps)
}

/// Pins of an object's maps, by their names there.
fn make_of(
    kind: ObjectKind,
    sizes: Sizes,
    pins: &[(&'static str, &'static str)],
) -> Result<Vec<(&'static str, MapHandle)>> {
    let object = objects::load(&Recipe {
        kind,
        programs: &[],
        reuse: &|_| None,
        create: &|name| pins.iter().any(|(_, map)| *map == name),
        frozen: Frozen::default(),
        entries: &|name| sizes.entries(name),
    })?;
    pins.iter().map(|(pin, map)| Ok((*pin, objects::map(&object, map)?))).collect()
}

fn check_file_system(pin: &Path) -> Result<()> {
    let existing = pin.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let system = statfs(existing)
        .map_err(io::Error::from)
        .doing(|| format!("examine the file system of {}", existing.display()))?;
    if system.filesystem_type() != BPF_FS_MAGIC {
        return Err(Error::NotBpffs { path: pin.to_owned() });
    }
    Ok(())
}

/// Detaches every program and removes every pin below `pin`. Sessions end; packets are the kernel's again.
pub fn cleanup(pin: &Path) -> Result<()> {
    if !pin.exists() {
        return Ok(());
    }
    check_file_system(pin)?;
    links::detach_all(pin)?;
    remove(pin)
}

fn remove(pin: &Path) -> Result<()> {
    // `active` first: what remains after a crash here counts as never completed
    match fs::remove_file(pin.join(ACTIVE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).doing(|| format!("remove {}", pin.join(ACTIVE).display()));
        }
        _ => {}
    }
    fs::remove_dir_all(pin).doing(|| format!("remove {}", pin.display()))
}
