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
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return removed };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(STATE_PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        if maker.is_some_and(|pid| !netns::is_alive(pid)) {
            gateway::remove_state(&entry.path());
        }
    }
    removed
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
