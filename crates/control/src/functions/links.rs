//! Devices of tagged units and of routing instances, MTUs, links, addresses, routes, proxied addresses.

use crate::functions::function::{Candidate, CommitError, Function};
use crate::kernel::changes::{self, Changes};
use crate::kernel::{Kernel, instances, mtus};

pub struct Links {
    kernel: Kernel,
    changes: Changes,
}

impl Links {
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), changes: Changes::new(kernel) }
    }
}

impl Function for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn check(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        Ok(instances::check(&self.kernel, &candidate.links, &candidate.plan.kernel.instances)?)
    }

    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let mut wants = candidate.plan.kernel.clone();
        candidate.next.mtus_before = mtus::restore(&mut wants, &candidate.links, &candidate.next.mtus_before);
        Ok(self.changes.apply(&wants)?)
    }

    fn abort(&mut self, _candidate: &Candidate<'_>) -> Result<(), CommitError> {
        self.changes.undo();
        Ok(())
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        self.changes.keep();
        let errors = changes::remove_leftovers(&self.kernel, &candidate.plan.kernel);
        errors.iter().map(ToString::to_string).collect()
    }
}
