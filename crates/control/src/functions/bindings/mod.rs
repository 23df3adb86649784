//! Bindings of persistent-nat that no rule would make any more.

pub mod table;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use crate::functions::function::{Candidate, Function, remaining};

pub struct Bindings(Arc<Dataplane>);

impl Bindings {
    pub fn new(dataplane: &Arc<Dataplane>) -> Self {
        Self(dataplane.clone())
    }
}

impl Function for Bindings {
    fn name(&self) -> &'static str {
        "bindings"
    }

    /// Behind the tables, so that no packet makes a binding by a rule that is gone.
    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let before = candidate.old.map(|old| &old.config.nat);
        remaining(table::prune(&self.0, &candidate.plan, candidate.config, before))
    }
}
