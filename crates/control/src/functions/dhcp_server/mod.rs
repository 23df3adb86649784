//! The DHCP server in a commit: Kea says of its part whether it can be run before anything else is in force.

pub mod delegated;
pub mod kea;
pub mod leases;
pub mod names;
pub mod process;

use std::path::Path;
use std::sync::Arc;

use sluice_language::Config;
use sluice_language::dhcp_server::Family;

use self::names::names;
use self::process::Place;
use crate::functions::function::{Candidate, CommitError, Function};
use crate::kernel::Kernel;
use crate::state::store::Store;

pub struct DhcpServer {
    places: [Place; 2],
}

impl DhcpServer {
    pub fn new(store: &Arc<Store>) -> Self {
        Self { places: Family::ALL.map(|family| Place::of(store.dir(), family)) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{statement}: Kea does not take what this means: {words}; correct the pools")]
pub struct Refused {
    pub statement: &'static str,
    pub words: String,
}

#[derive(Debug, thiserror::Error)]
#[error("{statement}: Kea cannot be asked in {dir}: {source}; check the state directory")]
struct NotAsked {
    statement: &'static str,
    dir: String,
    source: std::io::Error,
}

impl Function for DhcpServer {
    fn name(&self) -> &'static str {
        "dhcp-server"
    }

    /// By now the devices are there that Kea looks for.
    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.places.iter().try_for_each(|place| is_taken(place, candidate))
    }
}

fn is_taken(place: &Place, candidate: &Candidate<'_>) -> Result<(), CommitError> {
    let statement = place.family().statement();
    let dir = place.dir().display().to_string();
    let not_asked = |source| CommitError::machine(NotAsked { statement, dir, source });
    let said = || {
        let environment = &candidate.plan.environment;
        let Some(text) = kea::text(candidate.config, |device| !environment.is_absent(device), place)? else {
            return Ok(Ok(()));
        };
        match process::program(place.family()) {
            Some(program) if place.configuration().as_ref() != Some(&text) => place.try_out(&program, &text),
            _ => Ok(Ok(())),
        }
    };
    said().map_err(not_asked)?.map_err(|words| CommitError::input(Refused { statement, words }))
}

/// What a commit does not fail for, and its author should know.
pub fn remarks(config: &Config) -> Vec<String> {
    let served = |family: &Family| config.dhcp_server.of(*family).next().is_some();
    let mut remarks: Vec<String> = vec![];
    for family in Family::ALL.into_iter().filter(served) {
        if process::program(family).is_none() {
            let (statement, package) = (family.statement(), names(family).package);
            remarks.push(format!(
                "{statement}: Kea is not installed, so nobody is served; `apt install {package}` (its own unit may stay off: \
                 `systemctl disable --now {package}`), and the server starts"
            ));
        }
    }
    let delegates = config.dhcp_server.subnets.iter().any(|subnet| subnet.delegated.is_some());
    if delegates && process::program(Family::Inet6).is_some() && !kea::tells_next_hops() {
        remarks.push(format!(
            "{}: Kea's hook `run_script` is not installed, so delegated prefixes have no routes; `apt install kea-common`",
            Family::Inet6.statement()
        ));
    }
    remarks
}

/// With the gateway; leases stay where commits do.
pub fn end(state_dir: &Path, keep_leases: bool, kernel: &Kernel) {
    for place in Family::ALL.map(|family| Place::of(state_dir, family)) {
        if let Some(pid) = place.running() {
            place.stop(pid);
        }
        let removed = if keep_leases { place.tidy() } else { place.remove() };
        if let Err(error) = removed {
            tracing::warn!(%error, dir = %place.dir().display(), "files of {} remain", place.names().title);
        }
    }
    if let Err(error) = kernel.keep_delegated(&[]) {
        tracing::warn!("routes to delegated prefixes remain: {error}");
    }
}
