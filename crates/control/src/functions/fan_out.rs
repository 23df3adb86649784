//! Fan-out in a commit: sockets of its listeners and of its metrics, shares in the tables.

use sluice_fanout::metrics::Bound;
use sluice_language::Config;

use super::{Candidate, CommitError, Function, remaining};
use crate::fan_out::{self, FanOutService};

pub struct FanOut {
    service: FanOutService,
    metrics: Option<Bound>,
}

impl FanOut {
    pub fn new(service: &FanOutService) -> Self {
        Self { service: service.clone(), metrics: None }
    }
}

impl Function for FanOut {
    fn name(&self) -> &'static str {
        "fan-out"
    }

    fn resolve(&self, config: &mut Config) {
        self.service.resolve(config);
    }

    fn prepare(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        let wanted = &candidate.config.fan_out;
        self.metrics = self.service.prepare_metrics(wanted).map_err(CommitError::input)?;
        self.service.apply_user(wanted).map_err(CommitError::input)
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.service.overlay(&mut candidate.plan, &candidate.config.fan_out);
        Ok(())
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        self.metrics = None;
        self.service.abandon(candidate.old.map(|old| &old.plan));
        let old = candidate.old.map(|old| old.config.fan_out.clone()).unwrap_or_default();
        self.service.apply_user(&old).map_err(CommitError::machine)
    }

    fn settle(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        let wanted = &candidate.config.fan_out;
        self.service.settle(&candidate.plan, wanted);
        fan_out::log(&candidate.plan);
        let put = self.service.put_metrics(wanted, self.metrics.take());
        remaining(put.map_err(|error| format!("the commit stands, but not its metrics: {error}")))
    }
}
