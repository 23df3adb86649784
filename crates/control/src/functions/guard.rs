//! The guard against kernel forwarding: of both configurations while one replaces the other, then of the new one alone.

use crate::functions::function::{Candidate, CommitError, Function, remaining};
use crate::kernel::guard;

pub struct Guard;

impl Function for Guard {
    fn name(&self) -> &'static str {
        "guard"
    }

    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let mut devices = candidate.plan.kernel.guard.clone();
        devices.extend(candidate.old.iter().flat_map(|old| old.plan.kernel.guard.iter().cloned()));
        Ok(guard::install(&devices)?)
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        Ok(candidate.old.map_or(Ok(()), |old| guard::install(&old.plan.kernel.guard))?)
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        remaining(guard::install(&candidate.plan.kernel.guard))
    }
}
