//! Routing protocols: FRR beside the gateway gets what `protocols` and `policy-options` mean.
//!
//! FRR's life is not tied to that of the gateway: it is told differences, and goes on while the gateway is restarted or killed.

mod difference;
mod service;
mod vtysh;

use std::sync::Arc;

use sluice_plan::Warning;

use crate::functions::function::{Candidate, CommitError, Function};

pub use service::{Frr, FrrError};

pub struct Routing {
    frr: Arc<Frr>,
    /// What was wanted before this commit, once it has changed that.
    before: Option<String>,
}

impl Routing {
    pub fn new(frr: &Arc<Frr>) -> Self {
        Self { frr: frr.clone(), before: None }
    }

    fn warn(&self, candidate: &mut Candidate<'_>) {
        let Some(text) = self.frr.problem(&candidate.plan.frr) else { return };
        if !candidate.plan.warnings.iter().any(|warning| warning.text == text) {
            candidate.plan.warnings.push(Warning { device: String::new(), text });
        }
    }
}

impl Function for Routing {
    fn name(&self) -> &'static str {
        "frr"
    }

    fn check(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.warn(candidate);
        let text = &candidate.plan.frr;
        if self.frr.is_wanted(text) || text.is_empty() {
            return Ok(());
        }
        match self.frr.understands(text) {
            // a start goes on without, and what FRR has stays
            Err(error) if candidate.old.is_none() => tracing::error!(%error, "the routing protocols wait"),
            done => done.map_err(refused)?,
        }
        Ok(())
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.before = None;
        self.warn(candidate);
        let text = &candidate.plan.frr;
        if self.frr.is_wanted(text) {
            return Ok(());
        }
        self.before = Some(self.frr.wanted().unwrap_or_default());
        match self.frr.want(text) {
            Err(error @ FrrError::Refused(_)) if candidate.old.is_some() => Err(refused(error)),
            Err(error) => {
                tracing::error!(%error, "FRR has not got its configuration yet; it is tried again");
                let text = format!(
                    "`protocols` waits: FRR has not got its configuration yet ({error}); it is tried again"
                );
                candidate.plan.warnings.push(Warning { device: String::new(), text });
                Ok(())
            }
            Ok(_) => Ok(()),
        }
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        match self.before.take() {
            Some(before) if candidate.old.is_some() => self.frr.want(&before).map(drop).map_err(refused),
            _ => Ok(()),
        }
    }

    fn retire(&mut self, _candidate: &Candidate<'_>) -> Vec<String> {
        self.before = None;
        vec![]
    }
}

fn refused(error: FrrError) -> CommitError {
    match error {
        FrrError::Refused(_) => CommitError::input(error),
        error => CommitError::machine(error),
    }
}
