//! The DHCP server in a commit: Kea says of its part whether it can be run before anything else is in force.

pub mod kea;
pub mod leases;
pub mod process;

use std::path::Path;
use std::sync::Arc;

use sluice_language::Config;

use self::process::Place;
use crate::functions::function::{Candidate, CommitError, Function};
use crate::state::store::Store;

pub struct DhcpServer {
    place: Place,
}

impl DhcpServer {
    pub fn new(store: &Arc<Store>) -> Self {
        Self { place: Place::of(store.dir()) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("system services dhcp-local-server: Kea does not take what this means: {words}; correct the pools")]
pub struct Refused {
    pub words: String,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "system services dhcp-local-server: Kea cannot be asked in {dir}: {source}; check the state directory"
)]
struct NotAsked {
    dir: String,
    source: std::io::Error,
}

impl Function for DhcpServer {
    fn name(&self) -> &'static str {
        "dhcp-server"
    }

    /// By now the devices are there that Kea looks for.
    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let Some(text) = kea::text(candidate.config, self.place.dir()) else { return Ok(()) };
        let Some(program) = process::program() else { return Ok(()) };
        if self.place.configuration().as_ref() == Some(&text) {
            return Ok(());
        }
        let dir = self.place.dir().display().to_string();
        let said = self.place.try_out(&program, &text);
        said.map_err(|source| CommitError::machine(NotAsked { dir, source }))?
            .map_err(|words| CommitError::input(Refused { words }))
    }
}

/// What a commit does not fail for, and its author should know.
pub fn remarks(config: &Config) -> Vec<String> {
    if config.dhcp_server.subnets.is_empty() || process::program().is_some() {
        return vec![];
    }
    vec![
        "system services dhcp-local-server: Kea is not installed, so nobody is served; `apt install kea-dhcp4-server` (its own \
         unit may stay off: `systemctl disable --now kea-dhcp4-server`), and the server starts"
            .to_owned(),
    ]
}

/// With the gateway; leases stay where commits do.
pub fn end(state_dir: &Path, keep_leases: bool) {
    let place = Place::of(state_dir);
    if let Some(pid) = place.running() {
        place.stop(pid);
    }
    let removed = if keep_leases { place.tidy() } else { place.remove() };
    if let Err(error) = removed {
        tracing::warn!(%error, dir = %place.dir().display(), "files of the DHCP server remain");
    }
}
