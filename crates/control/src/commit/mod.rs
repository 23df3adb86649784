//! The commit engine: all of a configuration, or nothing of it.
//!
//! Order: everything that can be refused is checked first; then the kernel gets devices, addresses and routes; then the
//! idle generation is filled, switched to and attached; only then is anything of the old configuration taken away. What that
//! means for each part of it, its function knows ([`crate::functions`]).

use std::sync::Arc;
use std::time::Instant;

use sluice_dataplane::Dataplane;
use sluice_language::Config;
use sluice_language::config::HookMode;
use sluice_plan::Environment;

use crate::api::Committed;
use crate::audit::Audit;
use crate::config;
use crate::devices::Latest;
use crate::environment;
use crate::fan_out::{FanOutService, InForce};
use crate::functions::{self, Candidate, CommitError, Function, Tools};
use crate::gate;
use crate::kernel::{Kernel, KernelError, Link};
use crate::mtus::Mtus;
use crate::refusals::Refusals;
use crate::shared::{Active, Shared, count};
use crate::store::{Store, Stored};

/// Commits one after the other.
pub struct Engine {
    kernel: Kernel,
    dataplane: Arc<Dataplane>,
    /// The generation in force, when this process loaded it.
    in_force: InForce,
    devices_latest: Latest,
    refusals: Refusals,
    stored: Option<Stored>,
    functions: Vec<Box<dyn Function>>,
}

/// A configuration and where it came from.
pub struct Source {
    pub text: String,
    pub file: String,
}

impl Engine {
    pub fn new(
        kernel: Kernel,
        store: Arc<Store>,
        dataplane: Arc<Dataplane>,
        stored: Option<Stored>,
        audit: Arc<Audit>,
        fan_out: FanOutService,
    ) -> Self {
        let (in_force, devices_latest) = (InForce::default(), Latest::default());
        let tools = Tools {
            kernel: kernel.clone(),
            store,
            dataplane: dataplane.clone(),
            in_force: in_force.clone(),
            devices_latest: devices_latest.clone(),
            audit,
            fan_out,
        };
        let functions = functions::all(&tools);
        let refusals = Refusals::default();
        Self { kernel, dataplane, in_force, devices_latest, refusals, stored, functions }
    }

    /// What runs by now, also while another commit is under way.
    pub fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// Makes `source` the active configuration.
    pub fn commit(&mut self, source: Source, shared: &Shared) -> Result<Committed, CommitError> {
        let _work = shared.work.begin("commit");
        let result = self.activate(source, Some(&shared.active()));
        let result = match result {
            Ok((active, done)) => {
                count(&shared.totals.commits, 1);
                shared.notes.clear();
                shared.set_active(active);
                Ok(done)
            }
            Err(error) => {
                count(&shared.totals.commits_failed, 1);
                tracing::error!(%error, "commit refused, nothing changed");
                Err(error)
            }
        };
        sluice_dataplane::give_back_freed();
        result
    }

    /// Puts a configuration in force; `old` is what it replaces, None when the daemon starts. Devices that may have either
    /// hook and refuse native XDP get the other one.
    pub fn activate(
        &mut self,
        source: Source,
        old: Option<&Active>,
    ) -> Result<(Active, Committed), CommitError> {
        self.refusals.forget_others(&self.kernel.links()?);
        loop {
            let error = match self.attempt(&source, old) {
                Err(error) => error,
                done => return done,
            };
            match error.dataplane() {
                Some(sluice_dataplane::Error::Xdp { interface, words, cure, source: reason, .. })
                    if self.may_have_tc(&source, interface) =>
                {
                    let words = words.clone().unwrap_or_else(|| reason.to_string());
                    self.refusals.note(&self.kernel.links()?, interface, format!("{words}; {cure}"));
                }
                _ => return Err(error),
            }
        }
    }

    /// It has not refused yet, or it could not have been asked again.
    fn may_have_tc(&self, source: &Source, interface: &str) -> bool {
        let Ok(config) = config::parse(&source.text, &source.file) else { return false };
        let mode = config.interfaces.iter().find(|i| i.name == interface).map(|i| i.mode);
        mode == Some(HookMode::Auto) && !self.refusals.is_known(interface)
    }

    fn attempt(&mut self, source: &Source, old: Option<&Active>) -> Result<(Active, Committed), CommitError> {
        let begun = Instant::now();
        let mut config = config::parse(&source.text, &source.file)?;
        let named = config.fan_out.clone();
        self.functions.iter().for_each(|function| function.resolve(&mut config));
        let before = self.stored.clone();
        let machine = Machine { kernel: self.kernel.clone(), refusals: &self.refusals };
        let (mut candidate, environment) = self.candidate(&machine, &config, source, old, before.as_ref())?;
        let replan = |candidate: &mut Candidate<'_>| machine.replan(candidate, &environment);
        functions::put_in_force(&mut self.functions, &mut candidate, replan)?;
        let mut warnings = functions::settle(&mut self.functions, &candidate);
        warnings.extend(remarks(&candidate));
        let Candidate { plan, next, rules, .. } = candidate;
        let took_ms = begun.elapsed().as_millis() as u64;
        let generation = next.generation;
        tracing::info!(generation, took_ms, "commit complete");
        let active = Active {
            generation,
            text: next.text.clone(),
            file: next.file.clone(),
            config,
            named,
            plan,
            rules,
            devices_before: next.devices_before.clone(),
            devices_latest: self.devices_latest.clone(),
            devices_gone: next.devices_gone,
        };
        self.stored = Some(next);
        Ok((active, Committed { generation, took_ms, warnings }))
    }

    /// What a commit would do to the machine as it is found, with stand-ins for devices that it makes itself: what this
    /// refuses has touched nothing.
    fn candidate<'a>(
        &self,
        machine: &Machine<'_>,
        config: &'a Config,
        source: &Source,
        old: Option<&'a Active>,
        stored: Option<&'a Stored>,
    ) -> Result<(Candidate<'a>, Environment), CommitError> {
        let before = stored.cloned().unwrap_or_default();
        let generation = before.generation + 1;
        let links = machine.kernel.links()?;
        let environment = machine.environment(config, &links, &before.mtus_before)?;
        let mut ids = before.ids.clone();
        let plan = config::plan(config, &source.file, &environment, &mut ids, generation)?;
        let next = Stored { generation, text: source.text.clone(), file: source.file.clone(), ids, ..before };
        let counters_are_new = old.is_none() && self.dataplane.is_new();
        let candidate = Candidate {
            config,
            old,
            stored,
            counters_are_new,
            links,
            attached: vec![],
            plan,
            next,
            loaded: None,
            rules: None,
        };
        Ok((candidate, environment))
    }

    /// Commits the active configuration once more: a managed device went away and came back under another ifindex.
    pub fn recommit(&mut self, shared: &Shared) -> Result<Committed, CommitError> {
        let active = shared.active();
        self.commit(Source { text: active.text.clone(), file: active.file.clone() }, shared)
    }
}

/// The machine that plans are made for.
struct Machine<'a> {
    kernel: Kernel,
    refusals: &'a Refusals,
}

impl Machine<'_> {
    fn environment(&self, config: &Config, links: &[Link], mtus: &Mtus) -> Result<Environment, KernelError> {
        let mut environment = environment::read(&self.kernel, links, config, mtus)?;
        self.refusals.put_into(&mut environment);
        Ok(environment)
    }

    /// The same plan holds if nothing that plans depend on has changed.
    fn replan(&self, candidate: &mut Candidate<'_>, rehearsed: &Environment) -> Result<(), CommitError> {
        candidate.links = self.kernel.links()?;
        let next = &mut candidate.next;
        let environment = self.environment(candidate.config, &candidate.links, &next.mtus_before)?;
        if environment != *rehearsed {
            next.ids = candidate.stored.map(|stored| stored.ids.clone()).unwrap_or_default();
            let (file, generation) = (&next.file, next.generation);
            candidate.plan = config::plan(candidate.config, file, &environment, &mut next.ids, generation)?;
        }
        Ok(())
    }
}

/// What the operator should know of a configuration that is in force.
fn remarks(candidate: &Candidate<'_>) -> Vec<String> {
    let plan = &candidate.plan;
    let mut remarks = gate::open_to_all(&plan.gate);
    remarks.extend(plan.remarks().map(str::to_owned));
    remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    remarks
}
