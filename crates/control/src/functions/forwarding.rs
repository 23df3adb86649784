//! The kernel's forwarding of devices, and what they receive of frames with tags. The guard stands before, and lets go of a device
//! only when the kernel has stopped to forward by it.

use std::collections::BTreeSet;

use sluice_language::Config;
use sluice_plan::KernelWants;

use crate::functions::function::{Candidate, CommitError, Function, remaining};
use crate::kernel::changes::Changes;
use crate::kernel::{self, Kernel, tags};
use crate::state::config;

pub struct Forwarding(Changes);

impl Forwarding {
    pub fn new(kernel: &Kernel) -> Self {
        Self(Changes::new(kernel))
    }
}

impl Function for Forwarding {
    fn name(&self) -> &'static str {
        "forwarding"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let wants = &candidate.plan.kernel;
        self.0.sysctls(wants)?;
        let changed = self.0.tags(wants)?;
        candidate.next.tags_before = tags::remembered(&candidate.next.tags_before, changed, wants);
        Ok(())
    }

    fn abort(&mut self, _candidate: &Candidate<'_>) -> Result<(), CommitError> {
        self.0.undo();
        Ok(())
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        self.0.keep();
        let Some(stored) = candidate.stored else { return vec![] };
        let wants = &candidate.plan.kernel;
        let mut remains = self.0.put_back(&tags::unneeded(&stored.tags_before, wants));
        let left =
            config::parse(&stored.text, &stored.file).as_ref().map_or_else(|_| BTreeSet::new(), forwarded);
        let stays = forwarding(wants);
        let stopped = left.difference(&stays).map(|device| kernel::stop_forwarding(device));
        remains.extend(stopped.flat_map(remaining));
        remains
    }
}

/// Devices that a commit of this configuration has made forward.
pub fn forwarded(config: &Config) -> BTreeSet<String> {
    let units = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u)));
    let units = units.map(|(interface, unit)| sluice_plan::device_of(interface, unit));
    let loopback = config.routing_instances.first().map(|_| "lo".to_owned());
    units.chain(loopback).collect()
}

/// Devices that a plan wants to forward.
fn forwarding(wants: &KernelWants) -> BTreeSet<String> {
    let devices = wants.sysctls.iter().filter_map(|(path, _)| path.strip_suffix("/forwarding"));
    devices.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
}
