//! Grants: those of services that are gone end, those of the configuration are given.

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use super::{Candidate, Function, remaining};
use crate::audit::Audit;
use crate::gate;

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

    fn settle(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        remaining(gate::settle(&self.dataplane, &self.audit, &candidate.plan.gate))
    }
}
