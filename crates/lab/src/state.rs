//! Where the lab's gateways keep their state, and what killed runs have left of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{gateway, netns};

/// State directories of runs: this, the pid, and the gateway.
const STATE_PREFIX: &str = "sluice-lab-";

/// Removes what killed runs left: namespaces (their names are returned), state directories and pins.
pub fn remove_leftovers() -> Vec<String> {
    let removed = netns::remove_leftovers();
    // pins also of gateways whose state was deeper down
    for folder in [std::env::temp_dir(), PathBuf::from(gateway::PINS)] {
        for left in left_in(&folder, STATE_PREFIX) {
            gateway::remove_state(&left);
        }
    }
    removed
}

/// What in a folder begins with this and the pid of a process that does not live.
pub fn left_in(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_left = |name: &str| {
        let maker = name.strip_prefix(prefix).and_then(|rest| rest.split('-').next()?.parse().ok());
        maker.is_some_and(|pid| !netns::is_alive(pid))
    };
    entries.filter(|entry| is_left(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}

/// State directory of one gateway of this process, removed with its pins when the value goes.
#[derive(Debug)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// Makes it in the directory for temporary files; `label` tells several of one process apart.
    pub fn new(label: &str) -> Result<StateDirectory> {
        let path = std::env::temp_dir().join(format!("{STATE_PREFIX}{}-{label}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(StateDirectory(path))
    }

    /// For one of several gateways: a name that nobody else's state has, since pins are named by its last part.
    pub fn of_gateway(&self, label: &str) -> PathBuf {
        let own = self.0.file_name().unwrap_or_default().to_string_lossy();
        self.0.join(format!("{own}-{label}"))
    }

    /// Goes with this value.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        gateway::remove_state(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_processes_left_is_found_by_its_name() {
        let folder = StateDirectory::new("left").unwrap();
        // beyond the largest pid
        let dead = format!("some-{}-x", u32::MAX >> 1);
        for name in [dead.as_str(), &format!("some-{}-x", std::process::id()), "some-one", "other-1"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert_eq!(left_in(folder.path(), "some-"), [folder.path().join(dead)]);
        let gateway = folder.of_gateway("xdp");
        let name = gateway.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{STATE_PREFIX}{}-", std::process::id())), "{name}");
    }
}
