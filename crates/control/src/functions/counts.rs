//! What devices count by themselves: their baselines, when a commit manages others.

use crate::functions::function::{Candidate, CommitError, Function};
use crate::kernel::devices::{self, DeviceCounts, Latest};

pub struct Counts(Latest);

impl Counts {
    pub fn new(latest: &Latest) -> Self {
        Self(latest.clone())
    }
}

impl Function for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        // what an earlier commit stored holds as long as the data plane's counters are the same ones
        let known = candidate.stored.filter(|_| !candidate.counters_are_new);
        let (plan, links) = (&candidate.plan, &candidate.links);
        let next = devices::baseline(plan, known.map(|s| &s.devices_before), &devices::read_all(links));
        let gone = known.map_or_else(DeviceCounts::default, |stored| {
            devices::look(&stored.devices_before, links, &self.0);
            devices::with_gone(stored.devices_gone, &stored.devices_before, &next, &self.0)
        });
        (candidate.next.devices_before, candidate.next.devices_gone) = (next, gone);
        Ok(())
    }
}
