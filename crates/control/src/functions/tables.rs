//! The generation: tables and programs of the plan, loaded beside those in force.

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use super::programs::variants;
use crate::functions::function::{Candidate, CommitError, Function, remaining};
use crate::state::config;

pub struct Tables(Arc<Dataplane>);

impl Tables {
    pub fn new(dataplane: &Arc<Dataplane>) -> Self {
        Self(dataplane.clone())
    }
}

impl Function for Tables {
    fn name(&self) -> &'static str {
        "tables"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        candidate.attached = self.0.attached()?;
        let plan = &candidate.plan;
        let variants = variants(plan, candidate.old.map(|old| &old.plan), &candidate.attached);
        candidate.loaded = Some(self.0.load(&plan.tables, &variants, plan.generation)?);
        Ok(())
    }

    /// A grace period after the programs, no CPU uses the old generation any more.
    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let config = candidate.config;
        self.0.set_timeouts(&config::timeouts(config), config::early_ageout(config));
        remaining(self.0.grace().and_then(|()| self.0.retire_idle()))
    }
}
