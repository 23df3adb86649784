//! What every part of the daemon reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use sluice_dataplane::{Dataplane, RuleTables};
use sluice_language::Config;
use sluice_plan::Plan;

use crate::audit::Audit;
use crate::devices::{Baseline, DeviceCounts, Latest};
use crate::kernel::Kernel;
use crate::notes::{Notes, Work};
use crate::session_log::SessionLog;

/// The commit in force.
#[derive(Debug)]
pub struct Active {
    pub generation: u32,
    pub text: String,
    pub file: String,
    pub config: Config,
    /// As it is written: receivers may be names.
    pub named: sluice_language::fan_out::FanOut,
    pub plan: Plan,
    /// What the packet path decides by; None for who only reads what a daemon has left.
    pub rules: Option<RuleTables>,
    /// What each managed device had counted before Sluice came.
    pub devices_before: Baseline,
    pub devices_latest: Latest,
    /// What devices had counted that are managed no more.
    pub devices_gone: DeviceCounts,
}

impl Active {
    /// `-` for what the active configuration does not know any more.
    pub fn zone_name(&self, id: u16) -> String {
        match id {
            sluice_abi::ZONE_HOST => "junos-host".to_owned(),
            id => self.plan.zones.get(&id.into()).cloned().unwrap_or_else(unknown),
        }
    }

    pub fn policy_name(&self, id: u32) -> String {
        self.plan.policies.get(&id).map_or_else(unknown, |policy| policy.name.clone())
    }

    /// `SET RULE`; None = no rule.
    pub fn nat_rule_name(&self, id: u16) -> Option<String> {
        let rule = self.plan.nat.rules.get(&id.into());
        (id != 0).then(|| rule.map_or_else(unknown, |rule| format!("{} {}", rule.set, rule.name)))
    }

    pub fn nat_pool_name(&self, id: u32) -> String {
        let pool = self.plan.nat.pools.get(&id);
        pool.map_or_else(unknown, |pool| pool.name.clone().unwrap_or_else(|| "interface".to_owned()))
    }

    pub fn unit_name(&self, index: u16) -> String {
        let unit = self.plan.units.iter().find(|unit| unit.index == u32::from(index));
        let null = self.plan.null_zone.iter().find(|null| null.index == u32::from(index));
        unit.map(|unit| &unit.name).or(null.map(|null| &null.device)).cloned().unwrap_or_else(unknown)
    }
}

fn unknown() -> String {
    "-".to_owned()
}

pub struct Shared {
    pub dataplane: Arc<Dataplane>,
    pub kernel: Kernel,
    pub started: Instant,
    pub totals: Totals,
    pub notes: Notes,
    pub work: Work,
    pub log: SessionLog,
    pub audit: Arc<Audit>,
    active: RwLock<Arc<Active>>,
}

/// Counts since the daemon started.
#[derive(Debug, Default)]
pub struct Totals {
    pub commits: AtomicU64,
    pub commits_failed: AtomicU64,
    pub resyncs: AtomicU64,
}

impl Shared {
    pub fn new(dataplane: Arc<Dataplane>, kernel: Kernel, active: Active, audit: Arc<Audit>) -> Self {
        Self {
            dataplane,
            kernel,
            started: Instant::now(),
            totals: Totals::default(),
            notes: Notes::default(),
            work: Work::default(),
            log: SessionLog::default(),
            audit,
            active: RwLock::new(Arc::new(active)),
        }
    }

    pub fn active(&self) -> Arc<Active> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_active(&self, active: Active) {
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(active);
    }
}

pub fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

pub fn counted(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
