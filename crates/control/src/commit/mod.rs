//! The commit engine: all of a configuration, or nothing of it.
//!
//! Order: everything that can be refused is checked first; then the kernel gets devices, addresses and routes; then the
//! idle generation is filled, switched to and attached; only then is anything of the old configuration taken away. What that
//! means for each part of it, its function knows ([`crate::functions`]).

mod record;
mod refusals;
pub mod rehearsal;
mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_dataplane::Dataplane;
use sluice_language::Config;
use sluice_language::config::HookMode;
use sluice_plan::{Environment, Plan};

use self::refusals::Refusals;
pub use self::shared::{Beside, Shared};
use crate::api::Committed;
use crate::functions::fan_out::positions::InForce;
use crate::functions::gate::grants;
use crate::functions::{self, Candidate, CommitError, Function, Tools};
use crate::kernel::clock::{self, Deadline};
use crate::kernel::devices::{Latest, Managed};
use crate::kernel::environment::{self, Known};
use crate::kernel::mtus::Mtus;
use crate::kernel::{Kernel, KernelError, Link};
use crate::state::active::{Active, Former};
use crate::state::archive::{Commit, Confirm, Earlier};
use crate::state::config;
use crate::state::store::{Store, Stored};

/// Commits one after the other.
pub struct Engine {
    kernel: Kernel,
    store: Arc<Store>,
    dataplane: Arc<Dataplane>,
    /// The generation in force, when this process loaded it.
    in_force: InForce,
    devices_latest: Latest,
    refusals: Refusals,
    stored: Option<Stored>,
    functions: Vec<Box<dyn Function>>,
}

/// A configuration and where it came from.
#[derive(Clone)]
pub struct Source {
    pub text: String,
    pub file: String,
    /// None: what is in force, once more.
    pub by: Option<Author>,
}

impl Source {
    /// An earlier commit, because the one after it was not confirmed.
    pub fn unconfirmed(earlier: Earlier) -> Self {
        let by = Some(Author::own("confirm", "the commit after it was not confirmed"));
        Self { text: earlier.text, file: earlier.commit.file, by }
    }
}

/// Who wants a configuration to be in force, and for how long.
#[derive(Debug, Clone)]
pub struct Author {
    pub user: String,
    pub client: String,
    pub comment: Option<String>,
    /// Without a word within this time the one before comes back.
    pub confirm_within: Option<Duration>,
}

impl Author {
    /// The daemon itself.
    pub fn own(client: &str, comment: &str) -> Self {
        let (user, client, comment) = ("sluice".to_owned(), client.to_owned(), Some(comment.to_owned()));
        Self { user, client, comment, confirm_within: None }
    }
}

impl Engine {
    pub fn new(tools: Tools, stored: Option<Stored>) -> Self {
        let functions = functions::all(&tools);
        let Tools { kernel, store, dataplane, in_force, devices_latest, .. } = tools;
        let refusals = Refusals::default();
        Self { kernel, store, dataplane, in_force, devices_latest, refusals, stored, functions }
    }

    /// What runs by now, also while another commit is under way.
    pub fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// Makes `source` the active configuration.
    pub fn commit(&mut self, source: Source, shared: &Shared) -> Result<Committed, CommitError> {
        self.commit_seen(source, shared, &mut |_| ())
    }

    /// The same; `see` is shown the plan before anything is done by it.
    pub fn commit_seen(
        &mut self,
        source: Source,
        shared: &Shared,
        see: &mut dyn FnMut(&Plan),
    ) -> Result<Committed, CommitError> {
        let _work = shared.commits.begin();
        let author = source.by.clone();
        let result = self.activate(source, Some(&shared.active()), see);
        let result = match result {
            Ok((active, done)) => {
                shared.commits.done(author.is_some());
                shared.commits.set_confirm(self.confirm());
                shared.set_active(active);
                // by now those know who are to be told by it
                tell(&shared.active(), author.as_ref(), &done);
                Ok(done)
            }
            Err(error) => {
                shared.commits.failed();
                let user = author.map_or_else(|| "sluice".to_owned(), |author| author.user);
                tracing::error!(user, %error, "commit refused, nothing changed");
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
        see: &mut dyn FnMut(&Plan),
    ) -> Result<(Active, Committed), CommitError> {
        self.refusals.forget_others(&self.kernel.links()?);
        loop {
            let error = match self.attempt(&source, old, see) {
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

    fn attempt(
        &mut self,
        source: &Source,
        old: Option<&Active>,
        see: &mut dyn FnMut(&Plan),
    ) -> Result<(Active, Committed), CommitError> {
        let begun = Instant::now();
        let mut config = config::parse(&source.text, &source.file)?;
        let named = config.fan_out.clone();
        self.functions.iter().for_each(|function| function.resolve(&mut config));
        let before = self.stored.clone();
        let known = known(old, before.as_ref());
        let machine = Machine { kernel: self.kernel.clone(), refusals: &self.refusals, known };
        let (mut candidate, environment) = self.candidate(&machine, &config, source, old, before.as_ref())?;
        see(&candidate.plan);
        let replan = |candidate: &mut Candidate<'_>| machine.replan(candidate, &environment);
        functions::put_in_force(&mut self.functions, &mut candidate, replan)?;
        let mut warnings = functions::retire(&mut self.functions, &candidate);
        warnings.extend(remarks(&candidate));
        let Candidate { plan, next, rules, .. } = candidate;
        let took_ms = begun.elapsed().as_millis() as u64;
        let generation = next.generation;
        let active = Active {
            generation,
            text: next.text.clone(),
            file: next.file.clone(),
            commit: next.commit.clone(),
            config,
            named,
            plan,
            rules,
            devices: Managed {
                before: next.devices_before.clone(),
                latest: self.devices_latest.clone(),
                gone: next.devices_gone,
            },
            former: old.map(|old| Former::behind(old, &next.ids)).unwrap_or_default(),
        };
        self.stored = Some(next);
        Ok((active, Committed { generation, took_ms, warnings, ..Committed::default() }))
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
        let (commit, confirm) = entry(&before, source);
        let (text, file) = (source.text.clone(), source.file.clone());
        let next = Stored { generation, text, file, ids, commit, confirm, ..before };
        let counters_are_new = old.is_none() && self.dataplane.is_new();
        let candidate = Candidate {
            config,
            old,
            stored,
            is_again: source.by.is_none(),
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
        self.commit(Source { text: active.text.clone(), file: active.file.clone(), by: None }, shared)
    }

    /// Finds what would be refused, without doing anything. Says what the operator should know.
    pub fn check(&mut self, source: &Source, shared: &Shared) -> Result<Checked, CommitError> {
        let active = shared.active();
        let mut config = config::parse(&source.text, &source.file)?;
        self.functions.iter().for_each(|function| function.resolve(&mut config));
        let before = self.stored.clone();
        let known = known(Some(&active), before.as_ref());
        let machine = Machine { kernel: self.kernel.clone(), refusals: &self.refusals, known };
        let (mut candidate, _) = self.candidate(&machine, &config, source, Some(&active), before.as_ref())?;
        self.functions.iter_mut().try_for_each(|function| function.check(&mut candidate))?;
        let remarks = remarks(&candidate);
        let plan = candidate.plan;
        Ok(Checked { config, plan, remarks })
    }

    /// What is in force, as it is written down.
    pub fn stored(&self) -> Option<&Stored> {
        self.stored.as_ref()
    }

    /// Puts the configuration in force again that an unconfirmed commit has replaced.
    pub fn go_back(&mut self, to: Earlier, shared: &Shared) -> Result<Committed, CommitError> {
        tracing::warn!("nobody has confirmed the commit; the configuration before it comes back");
        self.commit(Source::unconfirmed(to), shared)
    }

    fn confirm(&self) -> Option<Confirm> {
        self.stored.as_ref().and_then(|stored| stored.confirm.clone())
    }

    /// What is in force stays. False when it did so already.
    pub fn keep(&mut self, shared: &Shared) -> Result<bool, CommitError> {
        let Some(stored) = self.stored.as_mut().filter(|stored| stored.confirm.is_some()) else {
            return Ok(false);
        };
        let kept = Stored { confirm: None, ..stored.clone() };
        self.store.save(&kept, None)?;
        *stored = kept;
        shared.commits.set_confirm(None);
        tracing::info!("the commit is confirmed");
        Ok(true)
    }
}

/// How the history has a commit, and until when it waits for a word. The same text again is the same commit, and confirms it.
fn entry(before: &Stored, source: &Source) -> (Commit, Option<Confirm>) {
    let Some(author) = &source.by else { return (before.commit.clone(), before.confirm.clone()) };
    let is_known = before.commit.serial > 0 && before.text == source.text;
    let commit = match is_known {
        true => before.commit.clone(),
        false => Commit {
            serial: before.commit.serial + 1,
            unix_ms: clock::unix_ms(),
            user: author.user.clone(),
            client: author.client.clone(),
            comment: author.comment.clone(),
            file: source.file.clone(),
        },
    };
    // of two that wait, the second one goes back to where the first one would
    let back_to = before.confirm.as_ref().map_or(before.commit.serial, |confirm| confirm.back_to);
    let confirm = author.confirm_within.filter(|_| back_to != commit.serial);
    (commit, confirm.map(|within| Confirm { back_to, deadline: Deadline::after(within) }))
}

/// What would be in force.
pub struct Checked {
    pub config: Config,
    pub plan: Plan,
    /// What an operator should know of it.
    pub remarks: Vec<String>,
}

/// Interfaces that may be away.
fn known(old: Option<&Active>, stored: Option<&Stored>) -> Known {
    old.map_or_else(|| config::known(stored), |old| environment::known(&old.config))
}

/// The machine that plans are made for.
struct Machine<'a> {
    kernel: Kernel,
    refusals: &'a Refusals,
    known: Known,
}

impl Machine<'_> {
    fn environment(&self, config: &Config, links: &[Link], mtus: &Mtus) -> Result<Environment, KernelError> {
        let mut environment = environment::read(&self.kernel, links, (config, &self.known), mtus)?;
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
    let mut remarks = grants::open_to_all(&plan.gate);
    remarks.extend(plan.remarks().map(str::to_owned));
    remarks.extend(functions::dhcp_server::remarks(candidate.config));
    remarks.iter().for_each(|remark| tracing::warn!("{remark}"));
    remarks
}

/// What is in force from here on, and who wanted it. Who commits what is in force already makes no entry of the history.
pub fn tell(active: &Active, author: Option<&Author>, done: &Committed) {
    let (generation, took_ms, commit) = (done.generation, done.took_ms, &active.commit);
    let (user, client, comment) = match author {
        Some(author) => (&author.user, &author.client, &author.comment),
        None => (&commit.user, &commit.client, &commit.comment),
    };
    match comment {
        Some(comment) => tracing::info!(generation, took_ms, user, client, comment, "commit complete"),
        None => tracing::info!(generation, took_ms, user, client, "commit complete"),
    }
}
