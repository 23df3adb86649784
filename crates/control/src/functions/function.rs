//! What every function of the gateway can do in a commit, what it does that with, and why it refuses.

use std::error::Error;
use std::fmt;

use sluice_dataplane::{Attached, Generation, RuleTables};
use sluice_language::Config;
use sluice_plan::{Plan, PlanError};

use crate::kernel::{KernelError, Link};
use crate::state::active::Active;
use crate::state::config::CheckError;
use crate::state::error::AskError;
use crate::state::store::{StoreError, Stored};

/// One function of the gateway in a commit. Every step does nothing unless a function says otherwise, and what it has done
/// so far it remembers itself.
///
/// What a function shows is no step of a commit and not here: what can be asked is one list, `serve::operations`, whose answers
/// are made in `views`, which stands above this room.
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
    fn retire(&mut self, _candidate: &Candidate<'_>) -> Vec<String> {
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
    /// Nobody asks for it but the daemon: what is in force already, on a machine that has changed, or at another time.
    pub is_again: bool,
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

    /// The interface that is configured and not there, if that is all.
    pub fn missing_interface(&self) -> Option<&str> {
        match self.source.downcast_ref()? {
            CheckError::Plan { source: PlanError::UnknownInterface { name, .. }, .. } => Some(name),
            _ => None,
        }
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

/// What [`Function::retire`] says of one step.
pub fn remaining(result: Result<(), impl ToString>) -> Vec<String> {
    result.err().iter().map(ToString::to_string).collect()
}
