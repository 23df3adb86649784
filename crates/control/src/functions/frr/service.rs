//! What FRR shall have, and what it was told last.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::difference::{Line, difference, is_shared, ours, parse};
use super::vtysh::{Births, Vtysh};
use crate::state::files;

/// In the state directory: what FRR was told last.
const TOLD: &str = "frr.json";
/// And what it is told just now.
const SAID: &str = "frr.conf";

/// Characters of a line of FRR's that are told on.
const LONGEST_LINE: usize = 200;

/// Why FRR has not what it should.
#[derive(Debug, thiserror::Error)]
pub enum FrrError {
    #[error("FRR is not installed")]
    Absent,
    /// Its own words.
    #[error("FRR refuses {0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
}

impl FrrError {
    /// The lines that say what is wrong, of all that vtysh says.
    pub fn refused(stdout: &str, stderr: &str) -> Self {
        // that of a pathspace is usually not there
        let known = |line: &&str| !line.is_empty() && !line.contains("vtysh.conf");
        let lines = stdout.lines().chain(stderr.lines()).map(str::trim).filter(known).take(8);
        // a line that is too long for FRR is said whole
        let lines: Vec<String> = lines.map(|line| line.chars().take(LONGEST_LINE).collect()).collect();
        Self::Refused(format!("the configuration: {}", lines.join("; ")))
    }
}

/// What FRR was told, and what it then said it had: as long as it says the same, it has what it was told, however its version
/// prints that.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Told {
    text: String,
    said: String,
    /// The daemons that heard it.
    #[serde(default)]
    births: Births,
}

#[derive(Debug, Default)]
struct State {
    /// None until a commit has said so.
    wanted: Option<String>,
    told: Option<Told>,
    /// Daemons that it was put in force with.
    births: Births,
    /// Daemons that it still waits for; None when it is not known that FRR has what it should.
    missing: Option<Vec<&'static str>>,
}

/// FRR beside the gateway.
pub struct Frr {
    vtysh: Vtysh,
    dir: PathBuf,
    state: Mutex<State>,
}

impl Frr {
    /// With what an earlier daemon has told FRR.
    pub fn of(dir: &Path, pathspace: Option<String>) -> Self {
        let told = match std::fs::read(dir.join(TOLD)) {
            Ok(bytes) => {
                files::unsealed(&bytes).map_err(|why| tracing::warn!(why, "{TOLD} is not used")).ok()
            }
            Err(_) => None,
        };
        let state = Mutex::new(State { told, ..State::default() });
        Self { vtysh: Vtysh::new(pathspace), dir: dir.to_owned(), state }
    }

    pub fn vtysh(&self) -> &Vtysh {
        &self.vtysh
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a commit of this text has nothing to do with FRR.
    pub fn is_wanted(&self, text: &str) -> bool {
        let state = self.state();
        let told = state.told.as_ref().map_or("", |told| told.text.as_str());
        state.wanted.as_deref() == Some(text) || state.wanted.is_none() && text.is_empty() && told.is_empty()
    }

    pub fn wanted(&self) -> Option<String> {
        self.state().wanted.clone()
    }

    /// What the operator should know before such a configuration is in force.
    pub fn problem(&self, text: &str) -> Option<String> {
        let missing = if text.is_empty() { vec![] } else { self.vtysh.missing(text) };
        let (daemon, error) = missing.first()?;
        let names = names(&missing);
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "let the gateway into FRR's group frrvty".to_owned(),
            io::ErrorKind::WouldBlock => "it hangs: look at what it does, or restart frr".to_owned(),
            _ if *daemon == "zebra" => "install frr and start it".to_owned(),
            _ => format!("set `{daemon}=yes` in /etc/frr/daemons and restart frr"),
        };
        let names = names.join(", ");
        Some(format!("`protocols` waits for FRR: {names} not reached ({error}); {advice}"))
    }

    /// Whether FRR would understand it; where it is not installed, nobody knows.
    pub fn understands(&self, text: &str) -> Result<(), FrrError> {
        match self.dry_run(text) {
            Err(FrrError::Absent) => Ok(()),
            done => done,
        }
    }

    /// The same, of an FRR that has to be there.
    pub fn dry_run(&self, text: &str) -> Result<(), FrrError> {
        let all = difference(&[], &parse(text)).unwrap_or_default();
        self.with_file(&all, |file| self.vtysh.dry_run(file))
    }

    fn with_file(
        &self,
        text: &str,
        read: impl FnOnce(&Path) -> Result<(), FrrError>,
    ) -> Result<(), FrrError> {
        let written = files::replace(&self.dir, SAID, text.as_bytes());
        written.map_err(|error| FrrError::Failed(format!("{SAID} cannot be written: {error}")))?;
        let done = read(&self.dir.join(SAID));
        let _ = files::remove(&self.dir, SAID);
        done
    }

    /// From here on FRR shall have this text; it gets what its daemons that run can take. True when something was said to it.
    pub fn want(&self, text: &str) -> Result<bool, FrrError> {
        let mut state = self.state();
        state.wanted = Some(text.to_owned());
        self.put(&mut state)
    }

    /// Puts back what FRR has lost, if a daemon of it was started anew or `look` says so. True when something was said to it.
    pub fn keep(&self, look: bool) -> Result<bool, FrrError> {
        let mut state = self.state();
        let births = self.vtysh.births();
        let is_idle = state.wanted.as_ref().is_none_or(String::is_empty) && state.told.is_none();
        let waits = || state.missing.as_ref().is_some_and(|missing| *missing == names(&self.missing(&state)));
        if is_idle || !look && births == state.births && waits() {
            return Ok(false);
        }
        self.put(&mut state)
    }

    /// Daemons that are not there, of those that what is wanted and what was told needs.
    fn missing(&self, state: &State) -> Vec<(&'static str, io::Error)> {
        let told = state.told.as_ref().map_or("", |told| told.text.as_str());
        let text = format!("{told}{}", state.wanted.as_deref().unwrap_or_default());
        self.vtysh.missing(&text)
    }

    fn put(&self, state: &mut State) -> Result<bool, FrrError> {
        state.missing = None;
        let Some(text) = state.wanted.clone() else { return Ok(false) };
        if text.is_empty() && state.told.is_none() {
            return Ok(false);
        }
        let (births, missing) = (self.vtysh.births(), self.missing(state));
        if let Some((daemon, _)) = missing.iter().find(|(_, error)| error.kind() == io::ErrorKind::WouldBlock)
        {
            // vtysh would wait for it, and every commit for that
            return Err(FrrError::Failed(format!("{daemon} takes no connections: it hangs")));
        }
        let missing = names(&missing);
        let mut said_something = false;
        if !missing.contains(&"zebra") {
            let told = state.told.clone().unwrap_or_default();
            let has = ours(&self.vtysh.running()?);
            let (wants, heard) = (parse(&text), told.births == births);
            let is_known = heard && printed(&has) == told.said && !told.said.is_empty();
            let mut base = if is_known { parse(&told.text) } else { has };
            if !heard {
                // vtysh shows what any of them has, and one that was started anew may have none of it
                base.retain(|line| !is_shared(line) || !wants.contains(line));
            }
            if let Some(said) = difference(&base, &wants) {
                tracing::debug!(said, "FRR is told");
                self.with_file(&said, |file| self.vtysh.say(file))?;
                said_something = true;
                // so that FRR alone comes up with it; where watchfrr runs, that one writes
                if let Err(error) = self.vtysh.ask("write memory") {
                    tracing::warn!(%error, "FRR's own configuration file was not written");
                }
            }
            let said =
                if missing.is_empty() { printed(&ours(&self.vtysh.running()?)) } else { String::new() };
            self.remember(state, Told { text, said, births: births.clone() })?;
        }
        (state.births, state.missing) = (births, Some(missing));
        Ok(said_something)
    }

    fn remember(&self, state: &mut State, told: Told) -> Result<(), FrrError> {
        let failed = |error: io::Error| FrrError::Failed(format!("{TOLD} cannot be written: {error}"));
        if told.text.is_empty() {
            files::remove(&self.dir, TOLD).map_err(failed)?;
            state.told = None;
            return Ok(());
        }
        if state.told.as_ref() != Some(&told) {
            let bytes = files::sealed(&told).map_err(failed)?;
            files::replace(&self.dir, TOLD, &bytes).map_err(failed)?;
            state.told = Some(told);
        }
        Ok(())
    }
}

fn names(missing: &[(&'static str, io::Error)]) -> Vec<&'static str> {
    missing.iter().map(|(daemon, _)| *daemon).collect()
}

fn printed(lines: &[Line]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
