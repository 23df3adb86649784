//! What devices count: their baselines, and frames that XDP gives them, counted at the kernel's tracepoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_dataplane::Dataplane;
use sluice_plan::{IngressHook, Plan};

use super::{Candidate, CommitError, Function, remaining};
use crate::devices::{self, Baseline, DeviceCounts, Latest};
use crate::store::Stored;

pub struct Counts {
    dataplane: Arc<Dataplane>,
    latest: Latest,
}

impl Counts {
    pub fn new(dataplane: &Arc<Dataplane>, latest: &Latest) -> Self {
        Self { dataplane: dataplane.clone(), latest: latest.clone() }
    }

    /// Whether the kernel tells what XDP sends; as long as nobody uses XDP it stays as it was.
    fn trace(&self, plan: &Plan, known: Option<&Stored>) -> bool {
        if !uses_native_xdp(plan) {
            return known.is_some_and(|stored| stored.transmits_traced);
        }
        let traced = self.dataplane.count_transmits(&senders(plan));
        if let Err(error) = &traced {
            tracing::warn!(%error, "the kernel does not tell which XDP frames devices refuse: their drivers' statistics count");
        }
        traced.is_ok()
    }

    fn baselines(
        &self,
        candidate: &Candidate<'_>,
        known: Option<&Stored>,
        traced: bool,
    ) -> (Baseline, DeviceCounts) {
        let now = devices::read_all(&candidate.links);
        let mut next = devices::baseline(&candidate.plan, known.map(|s| &s.devices_before), &now);
        let Some(stored) = known else { return (next, DeviceCounts::default()) };
        devices::look(&stored.devices_before, &candidate.links, &self.latest);
        let (before, was) = (&stored.devices_before, stored.transmits_traced);
        let gone = devices::with_gone(stored.devices_gone, before, &next, &self.latest, was);
        if was == traced {
            return (next, gone);
        }
        let told = devices::hand_over(&mut next, &now, &self.latest, was);
        (next, gone.and(told))
    }
}

impl Function for Counts {
    fn name(&self) -> &'static str {
        "counts"
    }

    fn apply(&mut self, candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        // what an earlier commit stored holds as long as the data plane's counters are the same ones
        let known = candidate.stored.filter(|_| !candidate.counters_are_new);
        let traced = self.trace(&candidate.plan, known);
        let (before, gone) = self.baselines(candidate, known, traced);
        let next = &mut candidate.next;
        (next.transmits_traced, next.devices_before, next.devices_gone) = (traced, before, gone);
        Ok(())
    }

    fn abort(&mut self, candidate: &Candidate<'_>) -> Result<(), CommitError> {
        // what an earlier daemon left forwards on, and is counted on
        if candidate.old.is_none() && !candidate.counters_are_new {
            return Ok(());
        }
        let devices = candidate.old.map(|old| senders(&old.plan)).unwrap_or_default();
        Ok(self.dataplane.count_transmits_only(&devices)?)
    }

    /// Behind the programs: by then nothing sends by devices that were left.
    fn settle(&mut self, candidate: &Candidate<'_>) -> Vec<String> {
        remaining(self.dataplane.count_transmits_only(&senders(&candidate.plan))).into_iter().collect()
    }
}

/// Nobody counts what generic XDP sends.
fn uses_native_xdp(plan: &Plan) -> bool {
    plan.attachments.iter().any(|attachment| attachment.ingress == Some(IngressHook::XdpNative))
}

/// Devices that XDP may send by.
fn senders(plan: &Plan) -> BTreeSet<u32> {
    let attachments = plan.attachments.iter().filter(|_| uses_native_xdp(plan));
    attachments.map(|attachment| attachment.ifindex).collect()
}
