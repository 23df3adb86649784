//! State that outlives configurations and the daemon: pinned maps.
//!
//! The pin `active` is made last. A directory without it is what a crash left in the middle of creation: nothing can
//! be attached yet, so it is removed and made anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapHandle};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::error::{Doing, Error, Result};
use crate::objects::{self, ACTIVE_SECTION, Frozen, ObjectKind, Recipe};
use crate::{Sizes, links};

/// Pinned from the tc object under their own names; `active` and the PROG_ARRAYs come on top. First those whose size is
/// counted in sessions: a mismatch is told of the first that differs.
const SHARED: [&str; 45] = [
    "free4",
    "free6",
    "spares",
    "counters",
    "drops",
    "policy_counters",
    "buckets4",
    "buckets6",
    "stash4",
    "stash6",
    "lines4",
    "lines6",
    "shared4",
    "shared6",
    "nexthops",
    "nexthop_index",
    "free_nexthops",
    "local_addresses",
    "local_filter",
    "watermarks",
    "reply_tokens",
    "events",
    "screen_counters",
    "fragment_memory",
    "screen_rates",
    "screen_scans",
    "cookie_times",
    "fragment_datagrams",
    "unanswered_sessions",
    "session_limits",
    "sweep_limits",
    "sweeps",
    "sweep_timer",
    "fanout_listener_counters",
    "fanout_receiver_counters",
    "nat_rule_counters",
    "nat_pool_counters",
    "nat_cursors",
    "nat_bindings",
    "nat_binding_index",
    "grants",
    "grant_users",
    "grant_lengths",
    "grant_index",
    "grant_sources",
];
const PROGRAMS: &str = "programs";
const PROGRAMS_XDP: &str = "programs_xdp";
const PROGRAMS_TC: &str = "programs_tc";
const ACTIVE: &str = "active";

#[derive(Debug)]
pub(crate) struct State {
    pub pin: PathBuf,
    maps: BTreeMap<&'static str, MapHandle>,
}

/// Every pin: its file name, and where its definition stands.
fn pins() -> impl Iterator<Item = (&'static str, ObjectKind, &'static str)> {
    let shared = SHARED.into_iter().map(|name| (name, ObjectKind::Tc, name));
    let own = [
        (PROGRAMS_XDP, ObjectKind::Xdp, PROGRAMS),
        (PROGRAMS_TC, ObjectKind::Tc, PROGRAMS),
        (ACTIVE, ObjectKind::Tc, ACTIVE_SECTION),
    ];
    shared.chain(own)
}

impl State {
    /// Re-uses the pinned state, or makes it. The flag says whether it was made.
    pub fn open(pin: &Path, sizes: Sizes) -> Result<(State, bool)> {
        sizes.check()?;
        check_file_system(pin)?;
        if pin.join(ACTIVE).exists() {
            return Ok((State::reuse(pin, sizes)?, false));
        }
        if pin.exists() {
            tracing::warn!(pin = %pin.display(), "removing pinned state that was never completed");
            remove(pin)?;
        }
        Ok((State::create(pin, sizes)?, true))
    }

    fn reuse(pin: &Path, sizes: Sizes) -> Result<State> {
        let mut maps = BTreeMap::new();
        for (name, _, _) in pins() {
            let path = pin.join(name);
            let map = MapHandle::from_pinned_path(&path).map_err(|source| Error::Damaged { path, source })?;
            maps.insert(name, map);
        }
        let state = State { pin: pin.to_owned(), maps };
        state.check_definitions(sizes)?;
        Ok(state)
    }

    /// The pinned maps must be what this program's objects would create.
    fn check_definitions(&self, sizes: Sizes) -> Result<()> {
        for kind in [ObjectKind::Tc, ObjectKind::Xdp] {
            let object = objects::open(kind)?;
            for (pin, _, name) in pins().filter(|(_, owner, _)| *owner == kind) {
                let wanted = object
                    .maps()
                    .find(|map| map.name() == name)
                    .ok_or_else(|| Error::Object { what: name.to_owned() })?;
                let found = &self.maps[pin];
                let entries = sizes.entries(name).unwrap_or(wanted.max_entries());
                let facts = [
                    ("map type", u32::from(found.map_type()), u32::from(wanted.map_type())),
                    ("a key size of", found.key_size(), wanted.key_size()),
                    ("a value size of", found.value_size(), wanted.value_size()),
                    ("room for", found.max_entries(), entries),
                ];
                for (what, found, wanted) in facts {
                    if found != wanted {
                        let path = self.pin.join(pin);
                        return Err(Error::Incompatible {
                            path,
                            what,
                            found: found.into(),
                            wanted: wanted.into(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn create(pin: &Path, sizes: Sizes) -> Result<State> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(links::directory(pin))
            .doing(|| format!("create {}", links::directory(pin).display()))?;
        let mut maps = BTreeMap::new();
        for kind in [ObjectKind::Tc, ObjectKind::Xdp] {
            let own = |name: &str| pins().any(|(_, owner, map)| owner == kind && map == name);
            let object = objects::load(&Recipe {
                kind,
                programs: &[],
                reuse: &|_| None,
                create: &own,
                frozen: Frozen::default(),
                entries: &|name| sizes.entries(name),
            })?;
            for (name, _, map) in pins().filter(|(_, owner, _)| *owner == kind) {
                maps.insert(name, objects::map(&object, map)?);
            }
        }
        for (name, map) in maps.iter_mut().filter(|(name, _)| **name != ACTIVE) {
            map.pin(pin.join(name)).doing(|| format!("pin {}", pin.join(name).display()))?;
        }
        if let Some(active) = maps.get_mut(ACTIVE) {
            active.pin(pin.join(ACTIVE)).doing(|| format!("pin {}", pin.join(ACTIVE).display()))?;
        }
        Ok(State { pin: pin.to_owned(), maps })
    }

    /// A state map by the name of its pin.
    pub fn map(&self, name: &str) -> &MapHandle {
        &self.maps[name]
    }

    /// The kernel's numbers of all maps.
    pub fn map_ids(&self) -> Result<Vec<u32>> {
        self.maps.values().map(crate::slots::map_id).collect()
    }

    pub fn active(&self) -> &MapHandle {
        self.map(ACTIVE)
    }

    pub fn programs(&self, kind: ObjectKind) -> &MapHandle {
        self.map(match kind {
            ObjectKind::Xdp => PROGRAMS_XDP,
            ObjectKind::Tc => PROGRAMS_TC,
        })
    }

    /// The map that stands for `name` of an object.
    pub fn descriptor(&self, kind: ObjectKind, name: &str) -> Option<BorrowedFd<'_>> {
        match name {
            PROGRAMS => Some(self.programs(kind).as_fd()),
            ACTIVE_SECTION => Some(self.active().as_fd()),
            _ if SHARED.contains(&name) => Some(self.map(name).as_fd()),
            _ => None,
        }
    }
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
