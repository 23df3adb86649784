//! What a commit is made of. Each function of the gateway answers for its own part of a configuration; a commit walks their
//! list forwards to put a candidate in force, and backwards to take away what it replaces, or to undo what has failed.
//! A new function is a file here and a line in [`all`].

mod bindings;
mod counts;
mod fan_out;
mod forwarding;
mod gate;
mod guard;
mod links;
mod local;
mod programs;
mod room;
mod store;
mod tables;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use sluice_dataplane::{Attached, Dataplane, Generation, RuleTables};
use sluice_language::Config;
use sluice_plan::Plan;

use crate::audit::Audit;
use crate::config::CheckError;
use crate::devices::Latest;
use crate::error::AskError;
use crate::fan_out::{FanOutService, InForce};
use crate::kernel::{Kernel, KernelError, Link};
use crate::shared::Active;
use crate::store::{Store, StoreError, Stored};

pub(crate) use programs::variants;

/// One function of the gateway in a commit. Every step does nothing unless a function says otherwise, and what it has done
/// so far it remembers itself.
pub trait Function: Send {
    /// For the log.
    fn name(&self) -> &'static str;

    /// Puts in the place of what the configuration leaves open (names) what that means now.
    fn resolve(&self, _config: &mut Config) {}

    /// Refuses what can be refused without touching anything; may add to what is to be done and written down.
    fn check(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        Ok(())
    }

    /// Does what the plan depends on, and takes what somebody else may have taken. The plan is made anew behind it if the
    /// machine is another one then.
    fn prepare(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        Ok(())
    }

    /// Puts the plan in force.
    fn apply(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        Ok(())
    }

    /// Undoes what this commit did so far; called in reverse, of every function, wherever the commit failed.
    fn abort(&mut self, _candidate: &Candidate<'_>) -> Result<(), CommitError> {
        Ok(())
    }

    /// Takes away what the candidate has replaced, when it is in force; called in reverse. Says what remains of it.
    fn settle(&mut self, _candidate: &Candidate<'_>) -> Vec<String> {
        vec![]
    }
}

/// A configuration on its way to be in force.
pub struct Candidate<'a> {
    pub config: &'a Config,
    /// What it replaces; None when the daemon starts.
    pub old: Option<&'a Active>,
    /// What the last commit, perhaps of an earlier daemon, wrote down.
    pub stored: Option<&'a Stored>,
    /// The counters in the data plane are new with this start: all are zero.
    pub counters_are_new: bool,
    pub links: Vec<Link>,
    /// Devices that have programs, as they were when the plan's were loaded.
    pub attached: Vec<Attached>,
    pub plan: Plan,
    /// What this commit will write down.
    pub next: Stored,
    /// The plan's tables and programs, from when the kernel has them until they are in force.
    pub loaded: Option<Generation>,
    /// What the packet path decides by, once it does.
    pub rules: Option<RuleTables>,
}

/// Why a commit is refused.
#[derive(Debug)]
pub struct CommitError {
    is_bad_input: bool,
    source: Box<dyn Error + Send + Sync>,
}

impl CommitError {
    /// The configuration is at fault.
    pub fn input(source: impl Error + Send + Sync + 'static) -> Self {
        Self { is_bad_input: true, source: Box::new(source) }
    }

    /// The machine is at fault.
    pub fn machine(source: impl Error + Send + Sync + 'static) -> Self {
        Self { is_bad_input: false, source: Box::new(source) }
    }

    /// The configuration is at fault, not the machine.
    pub fn is_bad_input(&self) -> bool {
        self.is_bad_input
    }

    /// The data plane's own error, if it is one.
    pub fn dataplane(&self) -> Option<&sluice_dataplane::Error> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(formatter)
    }
}

impl Error for CommitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

impl From<CheckError> for CommitError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Kernel(error) => Self::machine(error),
            error => Self::input(error),
        }
    }
}

impl From<AskError> for CommitError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Kernel(error) => error.into(),
            AskError::Dataplane(error) => error.into(),
        }
    }
}

impl From<KernelError> for CommitError {
    fn from(error: KernelError) -> Self {
        Self::machine(error)
    }
}

impl From<sluice_dataplane::Error> for CommitError {
    fn from(error: sluice_dataplane::Error) -> Self {
        Self::machine(error)
    }
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        Self::machine(error)
    }
}

/// What functions work with.
pub struct Tools {
    pub kernel: Kernel,
    pub store: Arc<Store>,
    pub dataplane: Arc<Dataplane>,
    pub in_force: InForce,
    pub devices_latest: Latest,
    pub audit: Arc<Audit>,
    pub fan_out: FanOutService,
}

/// The functions in the order in which a commit applies them. Nothing of the packet path changes before `programs`, and all
/// that stands before it can still be undone; devices stand behind the guard before anything is forwarded by them.
pub fn all(tools: &Tools) -> Vec<Box<dyn Function>> {
    let Tools { kernel, store, dataplane, in_force, devices_latest, audit, fan_out } = tools;
    vec![
        Box::new(room::Room::new(dataplane)),
        Box::new(fan_out::FanOut::new(fan_out)),
        Box::new(local::Local::new(kernel, dataplane)),
        Box::new(links::Links::new(kernel)),
        Box::new(guard::Guard),
        Box::new(forwarding::Forwarding::new(kernel)),
        Box::new(bindings::Bindings::new(dataplane)),
        Box::new(tables::Tables::new(dataplane)),
        Box::new(counts::Counts::new(devices_latest)),
        Box::new(gate::Gate::new(dataplane, audit)),
        Box::new(store::Written::new(store)),
        Box::new(programs::Programs::new(dataplane, in_force)),
    ]
}

/// Walks a candidate through the functions until it is in force, or until all of them have undone what they did. `replan`
/// looks at the machine once more when it is prepared.
pub fn put_in_force(
    functions: &mut [Box<dyn Function>],
    candidate: &mut Candidate<'_>,
    replan: impl FnOnce(&mut Candidate<'_>) -> Result<(), CommitError>,
) -> Result<(), CommitError> {
    functions.iter_mut().try_for_each(|function| function.check(candidate))?;
    let prepared = functions.iter_mut().try_for_each(|function| function.prepare(candidate));
    let applied = prepared
        .and_then(|()| replan(candidate))
        .and_then(|()| functions.iter_mut().try_for_each(|function| function.apply(candidate)));
    if applied.is_err() {
        for function in functions.iter_mut().rev() {
            if let Err(error) = function.abort(candidate) {
                tracing::error!(function = function.name(), %error, "what the failed commit did was not undone");
            }
        }
    }
    applied
}

/// After the point of no return: says what remains of what was replaced.
pub fn settle(functions: &mut [Box<dyn Function>], candidate: &Candidate<'_>) -> Vec<String> {
    let mut remains = vec![];
    for function in functions.iter_mut().rev() {
        for error in function.settle(candidate) {
            tracing::warn!(function = function.name(), error, "the commit stands, but something old remains");
            remains.push(error);
        }
    }
    remains
}

/// What [`Function::settle`] says of one step.
fn remaining(result: Result<(), impl ToString>) -> Vec<String> {
    result.err().iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
