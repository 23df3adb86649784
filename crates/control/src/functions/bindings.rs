//! Bindings of persistent-nat that no rule would make any more.

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use super::{Candidate, Function, remaining};
use crate::bindings;

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

    /// Behind the tables, so that nobody makes bindings by rules that are gone.
    fn settle(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        remaining(bindings::prune(&self.0, &candidate.plan, candidate.config))
    }
}
