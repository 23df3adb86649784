//! The commit engine: all of a configuration, or nothing of it.
//!
//! Order: everything that can be refused is checked first; then the kernel gets devices, addresses and routes; then the
//! idle generation is filled, switched to and attached; only then is anything of the old configuration taken away.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sluice_dataplane::{
    Attached, Attachment, Dataplane, Hook, Hooks, Renumbered, RuleTables, Sizes, Variant,
};
use sluice_fanout::metrics::Bound;
use sluice_language::Config;
use sluice_language::config::HookMode;
use sluice_plan::{Environment, Ids, IngressHook, Plan};

use crate::api::Committed;
use crate::bindings;
use crate::changes::{self, Changes};
use crate::config::{self, CheckError};
use crate::devices::{self, Baseline, DeviceCounts, Latest};
use crate::environment;
use crate::fan_out::{self, FanOutService, InForce};
use crate::gate::{self, Audit};
use crate::kernel::{self, Kernel, KernelError, Link, guard};
use crate::local;
use crate::mtus::{self, Mtus};
use crate::refusals::Refusals;
use crate::shared::{Active, Shared, count};
use crate::store::{Store, StoreError, Stored};
use crate::tags;

#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Dataplane(#[from] sluice_dataplane::Error),
    #[error(transparent)]
    FanOut(#[from] sluice_fanout::RunnerError),
    #[error("{0}")]
    Metrics(std::io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "security flow: session tables have {now4} IPv4 and {now6} IPv6 sessions; {new4} and {new6} need a new start \
         after `sluice cleanup`, which ends all sessions"
    )]
    Sizes { now4: u32, now6: u32, new4: u32, new6: u32 },
    #[error(
        "services gate: there is room for {now} grants; {new} need a new start after `sluice cleanup`, which ends all \
         grants and sessions"
    )]
    Grants { now: u32, new: u32 },
    #[error(
        "max-bindings: there is room for {now} bindings of persistent-nat, {new} are asked for; \
         `sluice cleanup`, then start anew: that ends all bindings, grants and sessions"
    )]
    Bindings { now: u32, new: u32 },
}

impl CommitError {
    /// The configuration is at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Check(CheckError::Language(_) | CheckError::Plan { .. })
                | Self::Sizes { .. }
                | Self::FanOut(_)
                | Self::Metrics(_)
                | Self::Grants { .. }
                | Self::Bindings { .. }
        )
    }
}

pub struct Engine {
    kernel: Kernel,
    store: Arc<Store>,
    dataplane: Arc<Dataplane>,
    /// The generation in force, when this process loaded it.
    in_force: InForce,
    devices_latest: Latest,
    refusals: Refusals,
    stored: Option<Stored>,
    fan_out: FanOutService,
    audit: Arc<Audit>,
}

/// A configuration and where it came from.
pub struct Source {
    pub text: String,
    pub file: String,
}

/// What a commit would do to the machine as it was found. The same plan holds if the commit has changed nothing that plans
/// depend on.
struct Rehearsal {
    environment: Environment,
    plan: Plan,
    ids: Ids,
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
        Self {
            kernel,
            store,
            dataplane,
            in_force: InForce::default(),
            stored,
            audit,
            fan_out,
            devices_latest: Latest::default(),
            refusals: Refusals::default(),
        }
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
            match self.attempt(&source, old) {
                Err(CommitError::Dataplane(sluice_dataplane::Error::Xdp {
                    interface,
                    words,
                    cure,
                    source: error,
                    ..
                })) if self.may_have_tc(&source, &interface) => {
                    let why = format!("{}; {cure}", words.unwrap_or_else(|| error.to_string()));
                    self.refusals.note(&self.kernel.links()?, &interface, why);
                }
                other => return other,
            }
        }
    }

    /// It has not refused yet, or it could not have been asked again.
    fn may_have_tc(&self, source: &Source, interface: &str) -> bool {
        let Ok(config) = config::parse(&source.text, &source.file) else { return false };
        let mode = config.interfaces.iter().find(|i| i.name == interface).map(|i| i.mode);
        mode == Some(HookMode::Auto) && !self.refusals.is_known(interface)
    }

    fn environment(&self, config: &Config, links: &[Link], mtus: &Mtus) -> Result<Environment, KernelError> {
        let mut environment = environment::read(&self.kernel, links, config, mtus)?;
        self.refusals.put_into(&mut environment);
        Ok(environment)
    }

    fn attempt(&mut self, source: &Source, old: Option<&Active>) -> Result<(Active, Committed), CommitError> {
        let begun = Instant::now();
        let mut config = config::parse(&source.text, &source.file)?;
        let named = config.fan_out.clone();
        self.fan_out.resolve(&mut config);
        self.check_sizes(&config)?;
        let before = self.stored.clone().unwrap_or_default();
        let generation = before.generation + 1;

        // A rehearsal with stand-ins for devices that the commit itself makes: what it refuses has touched nothing.
        let links = self.kernel.links()?;
        let environment = self.environment(&config, &links, &before.mtus_before)?;
        let mut ids = before.ids.clone();
        let plan = config::plan(&config, &source.file, &environment, &mut ids, generation)?;
        let mut kernel_wants = plan.kernel.clone();
        let next = Stored {
            generation,
            text: source.text.clone(),
            file: source.file.clone(),
            mtus_before: mtus::restore(&mut kernel_wants, &links, &before.mtus_before),
            ..before
        };

        let metrics = self.fan_out.prepare_metrics(&config.fan_out).map_err(CommitError::Metrics)?;
        self.fan_out.apply_user(&config.fan_out)?;
        let forwarded_before = self.forwarding_devices();
        let kernel = self.kernel.clone();
        let mut changes = Changes::new(&kernel);
        let rehearsal = Rehearsal { environment, plan, ids };
        let result = changes
            .apply(&kernel_wants)
            .and_then(|()| changes::guard_union(old.map(|o| &o.plan.kernel), &kernel_wants))
            .map_err(CommitError::from)
            .and_then(|()| self.load_and_attach(&mut changes, &config, rehearsal, next, old));
        let (plan, stored, rules) = match result {
            Ok(done) => done,
            Err(error) => {
                drop(changes);
                self.put_back(old)?;
                return Err(error);
            }
        };
        changes.keep();
        self.fan_out.settle(&plan, &config.fan_out);
        fan_out::log(&plan);
        self.dataplane.set_timeouts(&config::timeouts(&config), config::early_ageout(&config));
        let mut warnings = self.tidy(&plan, &config, &forwarded_before);
        warnings.extend(self.say_and_serve(&plan, &config, metrics));
        let took_ms = begun.elapsed().as_millis() as u64;
        log_commit(&plan, took_ms);
        let (devices_before, devices_gone) = (stored.devices_before.clone(), stored.devices_gone);
        let transmits_traced = stored.transmits_traced;
        let devices_latest = self.devices_latest.clone();
        let active = Active {
            generation,
            text: source.text.clone(),
            file: source.file.clone(),
            config,
            named,
            plan,
            rules: Some(rules),
            devices_before,
            devices_latest,
            devices_gone,
            transmits_traced,
        };
        self.stored = Some(stored);
        Ok((active, Committed { generation, took_ms, warnings }))
    }

    /// What stands behind a commit and is the operator's to know; its metrics are where it wants them.
    fn say_and_serve(&self, plan: &Plan, config: &Config, metrics: Option<Bound>) -> Vec<String> {
        let mut warnings = gate::open_to_all(&plan.gate);
        warnings.extend(plan.remarks().map(str::to_owned));
        if let Err(error) = self.fan_out.put_metrics(&config.fan_out, metrics) {
            warnings.push(format!("the commit stands, but not its metrics: {error}"));
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        warnings
    }

    /// What a failed commit changed beside the devices becomes as it was.
    fn put_back(&mut self, old: Option<&Active>) -> Result<(), CommitError> {
        if let Some(old) = old {
            guard::install(&old.plan.kernel.guard)?;
        }
        // what an earlier daemon left forwards on, and is counted on
        if old.is_some() || self.dataplane.is_new() {
            self.dataplane.count_transmits_only(&old.map(|old| senders(&old.plan)).unwrap_or_default())?;
        }
        self.fan_out.abandon(old.map(|old| &old.plan));
        self.fan_out.apply_user(&old.map(|old| old.config.fan_out.clone()).unwrap_or_default())?;
        Ok(())
    }

    fn check_sizes(&self, config: &Config) -> Result<(), CommitError> {
        let now = self.dataplane.sizes();
        // whether there are counters for its units is known when they have numbers
        let new = Sizes {
            units: now.units,
            zones: now.zones,
            extended: now.extended, // that comes with the generation
            ..config::sizes(config)
        };
        if now == new {
            return Ok(());
        }
        if (Sizes { bindings: new.bindings, ..now }) == new {
            return Err(CommitError::Bindings { now: now.bindings, new: new.bindings });
        }
        if (Sizes { grants: new.grants, ..now }) == new {
            return Err(CommitError::Grants { now: now.grants, new: new.grants });
        }
        Err(CommitError::Sizes {
            now4: now.sessions4,
            now6: now.sessions6,
            new4: new.sessions4,
            new6: new.sessions6,
        })
    }

    /// The half of a commit that the data plane sees. On an error the old generation runs as before.
    fn load_and_attach(
        &mut self,
        changes: &mut Changes,
        config: &Config,
        rehearsal: Rehearsal,
        mut next: Stored,
        old: Option<&Active>,
    ) -> Result<(Plan, Stored, RuleTables), CommitError> {
        let links = self.kernel.links()?;
        let environment = self.environment(config, &links, &next.mtus_before)?;
        let mut plan = if environment == rehearsal.environment {
            next.ids = rehearsal.ids;
            rehearsal.plan
        } else {
            config::plan(config, &next.file, &environment, &mut next.ids, next.generation)?
        };
        self.fan_out.overlay(&mut plan, &config.fan_out);
        changes.sysctls(&plan.kernel)?;
        let switched_off = changes.tags_in_frames(&plan.kernel)?;
        next.tags_before = tags::remembered(&next.tags_before, switched_off, &plan.kernel.tags_in_frames);
        local::update(&self.kernel, &self.dataplane)?;
        let attached = self.dataplane.attached()?;
        let variants = variants(&plan, old.map(|o| &o.plan), &attached);
        let loaded = self.dataplane.load(&plan.tables, &variants, next.generation)?;
        next.transmits_traced = self.trace_transmits(&plan, old);
        (next.devices_before, next.devices_gone) = self.baselines(&plan, &links, old, next.transmits_traced);
        let attached_before: BTreeSet<u32> = attached.iter().map(|a| a.ifindex).collect();
        // Before the switch: sessions must never carry ids that a crash could make us forget.
        self.save(&next, old.is_none())?;
        if !self.counters_are_new(old) {
            self.dataplane.begin_counters(&renumbered(&next.ids, self.stored.as_ref()))?;
        }
        self.dataplane.switch(&loaded);
        if let Err(error) = self.attach(&plan) {
            self.fall_back(&plan, &attached_before, old)?;
            return Err(error);
        }
        let rules = loaded.rule_tables();
        *self.in_force.lock() = Some((loaded, plan.tables.fan_out.listeners.clone()));
        Ok((plan, next, rules))
    }

    /// A start with what is stored already gives no id that is not written down: it needs no room to write.
    fn save(&self, next: &Stored, is_start: bool) -> Result<(), StoreError> {
        let stored = self.stored.as_ref();
        match self.store.save(next, stored) {
            Err(error) if is_start && stored.is_some_and(|stored| stored.text == next.text) => {
                tracing::error!(%error, "the start is not written down; it is what the last commit was");
                Ok(())
            }
            result => result,
        }
    }

    /// The data plane was made by this start: all its counters are zero.
    fn counters_are_new(&self, old: Option<&Active>) -> bool {
        old.is_none() && self.dataplane.is_new()
    }

    /// What an earlier commit stored holds as long as the data plane's counters are the same ones.
    fn baselines(
        &self,
        plan: &Plan,
        links: &[Link],
        old: Option<&Active>,
        traced: bool,
    ) -> (Baseline, DeviceCounts) {
        let stored = self.stored.as_ref().filter(|_| !self.counters_are_new(old));
        let now = devices::read_all(links);
        let mut next = devices::baseline(plan, stored.map(|s| &s.devices_before), &now);
        let Some(stored) = stored else { return (next, DeviceCounts::default()) };
        let latest = &self.devices_latest;
        devices::look(&stored.devices_before, links, latest);
        let (known, was) = (&stored.devices_before, stored.transmits_traced);
        let gone = devices::with_gone(stored.devices_gone, known, &next, latest, was);
        if was == traced {
            return (next, gone);
        }
        let told = devices::hand_over(&mut next, &now, latest, was);
        (next, gone.and(told))
    }

    /// Whether the kernel tells what XDP sends; as long as nobody uses XDP it stays as it was.
    fn trace_transmits(&self, plan: &Plan, old: Option<&Active>) -> bool {
        if !uses_native_xdp(plan) {
            let stored = self.stored.as_ref().filter(|_| !self.counters_are_new(old));
            return stored.is_some_and(|stored| stored.transmits_traced);
        }
        let traced = self.dataplane.count_transmits(&senders(plan));
        if let Err(error) = &traced {
            tracing::warn!(%error, "the kernel does not tell which XDP frames devices refuse: their drivers' statistics count");
        }
        traced.is_ok()
    }

    /// Devices that the last commit, perhaps of an earlier daemon, made forward.
    fn forwarding_devices(&self) -> BTreeSet<String> {
        let Some(stored) = &self.stored else { return BTreeSet::new() };
        match config::parse(&stored.text, &stored.file) {
            Ok(config) => config
                .interfaces
                .iter()
                .flat_map(|i| i.units.iter().map(move |u| sluice_plan::device_of(i, u)))
                .collect(),
            Err(_) => BTreeSet::new(),
        }
    }

    fn attach(&self, plan: &Plan) -> Result<(), CommitError> {
        for attachment in &plan.attachments {
            let alone = plan.gate.alone(&attachment.device);
            self.dataplane.attach_behind(&wanted(attachment), alone)?;
        }
        Ok(())
    }

    /// Undoes a switch: the old generation's programs are still in their slot.
    fn fall_back(
        &self,
        plan: &Plan,
        attached_before: &BTreeSet<u32>,
        old: Option<&Active>,
    ) -> Result<(), CommitError> {
        for attachment in plan.attachments.iter().filter(|a| !attached_before.contains(&a.ifindex)) {
            self.dataplane.detach(attachment.ifindex)?;
        }
        match &self.stored {
            Some(stored) => self.store.save(stored, None)?,
            None => self.store.clear()?,
        }
        let switched =
            self.in_force.lock().as_ref().map(|(loaded, _)| self.dataplane.switch(loaded)).is_some();
        if let Some(old) = old.filter(|_| switched) {
            self.attach(&old.plan)?;
            self.dataplane.grace()?;
            self.dataplane.retire_idle()?;
        }
        Ok(())
    }

    /// After the point of no return: what fails here is a warning.
    fn tidy(&self, plan: &Plan, config: &Config, forwarded_before: &BTreeSet<String>) -> Vec<String> {
        let mut warnings = vec![];
        let mut note = |result: Result<(), String>| {
            if let Err(error) = result {
                tracing::warn!(%error, "the commit stands, but something old remains");
                warnings.push(error);
            }
        };
        let wanted: BTreeSet<u32> = plan.attachments.iter().map(|a| a.ifindex).collect();
        match self.dataplane.attached() {
            Ok(attached) => {
                for gone in attached.iter().filter(|a| !wanted.contains(&a.ifindex)) {
                    note(self.dataplane.detach(gone.ifindex).map_err(|e| e.to_string()));
                }
            }
            Err(error) => note(Err(error.to_string())),
        }
        let tags = self.stored.as_ref().map(|stored| &stored.tags_before);
        for error in tags.into_iter().flat_map(|tags| tags::put_back(tags, &plan.kernel.tags_in_frames)) {
            note(Err(error));
        }
        note(gate::settle(&self.dataplane, &self.audit, &plan.gate).map_err(|e| e.to_string()));
        note(self.dataplane.grace().and_then(|()| self.dataplane.retire_idle()).map_err(|e| e.to_string()));
        // nor sends by devices that were left
        note(self.dataplane.count_transmits_only(&senders(plan)).map_err(|e| e.to_string()));
        // Behind it, nobody makes bindings by rules that are gone.
        note(bindings::prune(&self.dataplane, plan, config).map_err(|e| e.to_string()));
        // Before the guard lets go of them: the kernel must not forward in our place.
        for device in forwarded_before.difference(&forwarding(&plan.kernel)) {
            note(kernel::stop_forwarding(device).map_err(|e| e.to_string()));
        }
        for error in changes::remove_leftovers(&self.kernel, &plan.kernel) {
            note(Err(error.to_string()));
        }
        note(guard::install(&plan.kernel.guard).map_err(|e| e.to_string()));
        note(local::update(&self.kernel, &self.dataplane).map_err(|e| e.to_string()));
        warnings
    }

    /// Commits the active configuration once more: a managed device went away and came back under another ifindex.
    pub fn recommit(&mut self, shared: &Shared) -> Result<Committed, CommitError> {
        let active = shared.active();
        self.commit(Source { text: active.text.clone(), file: active.file.clone() }, shared)
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

/// Numbers that names have in `ids` and had not before.
fn renumbered(ids: &Ids, before: Option<&Stored>) -> Renumbered {
    let none = Ids::default();
    let before = before.map_or(&none, |stored| &stored.ids);
    Renumbered {
        zones: ids.zones.given_since(&before.zones).collect(),
        policies: ids.policies.given_since(&before.policies).collect(),
        nat_rules: ids.nat_rules.given_since(&before.nat_rules).collect(),
        nat_pools: ids.nat_pools.given_since(&before.nat_pools).collect(),
    }
}

/// Devices that a plan wants to forward.
fn forwarding(wants: &sluice_plan::KernelWants) -> BTreeSet<String> {
    let devices = wants.sysctls.iter().filter_map(|(path, _)| path.strip_suffix("/forwarding"));
    devices.filter_map(|path| path.rsplit('/').next()).map(str::to_owned).collect()
}

/// Variants of the new generation, and those of the old one behind them: until its link is updated, a device's root
/// still calls the number it was made with, on the hook where it stands.
pub(crate) fn variants(plan: &Plan, old: Option<&Plan>, attached: &[Attached]) -> Vec<Variant> {
    let mut masks: Vec<u32> = plan.variants.iter().map(|v| v.stage_mask).collect();
    if let Some(old) = old {
        masks.extend(old.variants.iter().skip(masks.len()).map(|v| v.stage_mask));
    }
    let here = attached.iter().map(|device| (device.hook, device.variant));
    let devices = plan.attachments.iter().map(|a| (wanted(a).hook, Some(a.variant))).chain(here);
    let hooks = hooks_of(masks.len(), devices);
    masks.into_iter().zip(hooks).map(|(stage_mask, hooks)| Variant { stage_mask, hooks }).collect()
}

/// On which hooks devices run each of so many variants.
fn hooks_of(variants: usize, devices: impl Iterator<Item = (Hook, Option<u32>)>) -> Vec<Hooks> {
    let mut all = vec![Hooks::default(); variants];
    for (hook, variant) in devices {
        // a root that is not ours to read may call any
        let called = variant.map_or(0..variants, |number| number as usize..number as usize + 1);
        for hooks in all.get_mut(called).unwrap_or_default() {
            hooks.tc |= hook == Hook::Tc;
            hooks.xdp |= matches!(hook, Hook::XdpNative | Hook::XdpGeneric);
        }
    }
    all
}

fn wanted(attachment: &sluice_plan::Attachment) -> Attachment {
    let hook = match attachment.ingress {
        Some(IngressHook::Tc) => Hook::Tc,
        Some(IngressHook::XdpNative) => Hook::XdpNative,
        Some(IngressHook::XdpGeneric) => Hook::XdpGeneric,
        None => Hook::EgressOnly,
    };
    Attachment { ifindex: attachment.ifindex, hook, variant: attachment.variant }
}

fn log_commit(plan: &Plan, took_ms: u64) {
    for attachment in &plan.attachments {
        let mode = attachment.ingress.map_or("egress-only", IngressHook::name);
        let gate_alone = plan.gate.alone(&attachment.device).is_some();
        tracing::info!(
            interface = attachment.device,
            mode,
            variant = attachment.variant,
            gate_alone,
            "attached"
        );
    }
    tracing::info!(generation = plan.generation, took_ms, "commit complete");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_for_the_hooks_that_devices_use() {
        let of = |devices: &[(Hook, Option<u32>)]| {
            let hooks = hooks_of(2, devices.iter().copied());
            hooks.into_iter().map(|hooks| (hooks.tc, hooks.xdp)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [(false, false); 2]);
        assert_eq!(of(&[(Hook::Tc, Some(0)), (Hook::EgressOnly, Some(1))]), [(true, false), (false, false)]);
        assert_eq!(of(&[(Hook::Tc, Some(0)), (Hook::XdpGeneric, Some(0))]), [(true, true), (false, false)]);
        assert_eq!(of(&[(Hook::XdpNative, Some(1))]), [(false, false), (false, true)]);
        // an unknown root, and one of a variant that is gone
        assert_eq!(of(&[(Hook::Tc, None), (Hook::XdpNative, Some(2))]), [(true, false); 2]);
    }
}
