//! Where a state's pins stand. The first one of an instance stands beside the directory of links; those that a later
//! program has made of it each in a directory of its own, numbered. A state counts when its pin `active` is there, which
//! is made last, and the highest number is in force.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapHandle};

use crate::error::{Doing, Result};

pub(crate) const ACTIVE: &str = "active";
/// The first state counts when this is there beside `active`, which stays when the state goes.
const FIRST: &str = "programs_tc";
const PREFIX: &str = "state_";
/// Programs whose places in their slots are those of traced ones meanwhile.
pub(crate) const TRACED: &str = "traced";
const GUARD: &str = "active_next";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    pin: PathBuf,
    pub number: u32,
}

impl Home {
    pub fn new(pin: &Path, number: u32) -> Home {
        Home { pin: pin.to_owned(), number }
    }

    pub fn directory(&self) -> PathBuf {
        match self.number {
            0 => self.pin.clone(),
            number => self.pin.join(format!("{PREFIX}{number}")),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    fn is_complete(&self) -> bool {
        self.path(ACTIVE).exists() && (self.number > 0 || self.path(FIRST).exists())
    }

    pub fn make(&self) -> Result<()> {
        let directory = self.directory();
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .doing(|| format!("create {}", directory.display()))
    }

    /// Names of the maps pinned here.
    pub fn names(&self) -> Result<Vec<String>> {
        let directory = self.directory();
        let doing = || format!("read {}", directory.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory).doing(doing)? {
            let entry = entry.doing(doing)?;
            if !entry.file_type().doing(doing)?.is_dir() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }

    /// What a crash leaves behind here is not complete any more. The pin `active` of the first state stays: programs
    /// from before there were numbers take a directory without it for one that may be removed.
    pub fn remove(&self) -> Result<()> {
        if self.number > 0 {
            remove(&self.path(ACTIVE))?;
            super::fault::point("removing");
            return remove_directory(&self.directory());
        }
        remove(&self.path(FIRST))?;
        super::fault::point("removing");
        remove_directory(&self.path(TRACED))?;
        let names = self.names()?;
        names.iter().filter(|name| *name != ACTIVE).try_for_each(|name| remove(&self.path(name)))
    }
}

/// Where there are, or have been, states.
fn all(pin: &Path) -> Result<Vec<Home>> {
    let doing = || format!("read {}", pin.display());
    let mut homes = vec![Home::new(pin, 0)];
    for entry in fs::read_dir(pin).doing(doing)? {
        let name = entry.doing(doing)?.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix(PREFIX).and_then(|number| number.parse().ok()) {
            homes.push(Home::new(pin, number));
        }
    }
    Ok(homes)
}

/// The state in force, when no process is making or removing another.
pub(crate) fn settled(pin: &Path) -> Result<Option<Home>> {
    let mut homes = all(pin)?;
    homes.retain(|home| home.number > 0 || home.is_complete());
    Ok(homes.pop().filter(|home| homes.is_empty() && home.is_complete()))
}

/// The state in force, and those below it that are not removed yet, the oldest first. What was never completed, or
/// put away only in part, is removed.
pub(crate) fn find(pin: &Path) -> Result<Option<(Home, Vec<Home>)>> {
    if !pin.exists() {
        return Ok(None);
    }
    let mut homes = all(pin)?;
    homes.sort_by_key(|home| home.number);
    let (mut complete, partial): (Vec<Home>, Vec<Home>) = homes.into_iter().partition(Home::is_complete);
    // The pin without the rest is damage: it is reported, and no sessions are removed because of it.
    let Some(current) = complete.pop() else {
        return Ok(pin.join(ACTIVE).exists().then(|| (Home::new(pin, 0), vec![])));
    };
    for home in partial {
        if home.number > 0 || current.number > 0 {
            home.remove()?;
        }
    }
    Ok(Some((current, complete)))
}

/// Has the pin `active` beside the links be the one in force.
pub(crate) fn keep_guard(pin: &Path, active: &MapHandle) -> Result<()> {
    let (guard, next) = (pin.join(ACTIVE), pin.join(GUARD));
    let id = |map: &MapHandle| map.info().map(|info| info.info.id).ok();
    if MapHandle::from_pinned_path(&guard).ok().and_then(|map| id(&map)) == id(active) {
        return Ok(());
    }
    remove(&next)?;
    sluice_libbpf::pin(active, &next).doing(|| format!("pin {}", next.display()))?;
    fs::rename(&next, &guard).doing(|| format!("replace {}", guard.display()))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .doing(|| format!("remove {}", path.display()))
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
    .doing(|| format!("remove {}", path.display()))
}
