//! Grants: those of services that are gone end, those of the configuration are given.

pub mod audit;
pub mod grants;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use self::audit::Audit;
use self::grants::Grants;
use crate::functions::function::{Candidate, Function, remaining};

pub struct Gate {
    dataplane: Arc<Dataplane>,
    audit: Arc<Audit>,
}

impl Gate {
    pub fn new(dataplane: &Arc<Dataplane>, audit: &Arc<Audit>) -> Self {
        Self { dataplane: dataplane.clone(), audit: audit.clone() }
    }
}

impl Function for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let plan = &candidate.plan.gate;
        remaining(Grants { dataplane: &self.dataplane, audit: &self.audit, plan }.reconcile())
    }
}
