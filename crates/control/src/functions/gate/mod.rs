//! Grants: those of services that are gone end, those of the configuration are given.

pub mod audit;
pub mod grants;

use std::sync::Arc;

use sluice_dataplane::Dataplane;

use self::audit::Audit;
use self::grants::Grants;
use crate::functions::function::{Candidate, CommitError, Function};

pub struct Gate {
    dataplane: Arc<Dataplane>,
    audit: Arc<Audit>,
}

impl Gate {
    pub fn new(dataplane: &Arc<Dataplane>, audit: &Arc<Audit>) -> Self {
        Self { dataplane: dataplane.clone(), audit: audit.clone() }
    }

    fn grants<'a>(&'a self, candidate: &'a Candidate<'_>) -> Grants<'a> {
        Grants { dataplane: &self.dataplane, audit: &self.audit, plan: &candidate.plan.gate }
    }
}

impl Function for Gate {
    fn name(&self) -> &'static str {
        "gate"
    }

    /// What the daemon does by itself is not refused: what cannot be given then is left out.
    fn check(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        match candidate.old.is_some() && !candidate.is_again {
            true => self.grants(candidate).rehearse().map_err(CommitError::input),
            false => Ok(()),
        }
    }

    /// Grants that wait are known by the ids of their services: no other one gets those.
    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        if falls_back(candidate) {
            candidate.next.ids.services.rest_on(candidate.next.generation);
        }
        Ok(())
    }

    fn retire(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        match self.grants(candidate).reconcile(falls_back(candidate)) {
            Ok(remains) => remains,
            Err(error) => vec![error.to_string()],
        }
    }
}

/// Nobody has asked for it: the daemon starts with an earlier configuration, or keeps to that one.
fn falls_back(candidate: &Candidate<'_>) -> bool {
    candidate.next.commit.is_fallback() && (candidate.old.is_none() || candidate.is_again)
}
