//! Addresses of this host, as the kernel has them before the candidate is in force and when what it replaces has gone.

pub mod addresses;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use crate::functions::function::{Candidate, CommitError, Function, remaining};
use crate::kernel::Kernel;

pub struct Local {
    kernel: Kernel,
    dataplane: Arc<Dataplane>,
}

impl Local {
    pub fn new(kernel: &Kernel, dataplane: &Arc<Dataplane>) -> Self {
        Self { kernel: kernel.clone(), dataplane: dataplane.clone() }
    }
}

impl Function for Local {
    fn name(&self) -> &'static str {
        "local addresses"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        Ok(addresses::update(&self.kernel, &self.dataplane, &candidate.plan.kernel.instances)?)
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        remaining(addresses::update(&self.kernel, &self.dataplane, &candidate.plan.kernel.instances))
    }
}
