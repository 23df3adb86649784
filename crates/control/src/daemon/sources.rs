//! What to start with: the state directory knows, and a file counts where nothing was committed yet.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_fanout::Names;

use crate::commit::{Author, Source};
use crate::daemon::start::DaemonError;
use crate::state::archive::{Archive, Earlier, FALLBACK};
use crate::state::config;
use crate::state::store::{Memory, Stored};

/// Files that hold something else than statements.
pub trait Translate: Send + Sync {
    /// Makes statements of a file; told its text and name.
    fn statements(&self, text: &str, file: &str) -> Result<String, String>;

    /// What was read last is in force.
    fn in_force(&self) {}

    /// The same file would be other statements by now: the machine has changed.
    fn is_behind(&self) -> bool {
        false
    }
}

/// What `sluice run` is told on its command line.
#[derive(Clone)]
pub struct Options {
    /// Configuration to start with, where nothing was committed yet; None = the last one committed here.
    pub config: Option<PathBuf>,
    /// It counts whatever was committed.
    pub override_store: bool,
    /// Holds the history of commits, the candidate and the sockets.
    pub state_dir: PathBuf,
    /// Where pins stand; None = where one is found.
    pub bpffs: Option<PathBuf>,
    /// Interfaces that are not there yet are waited for, instead of ending the start.
    pub wait: bool,
    /// Reads configurations that are not in Junos syntax; None = those are refused.
    pub translate: Option<Arc<dyn Translate>>,
    /// What receivers by name mean.
    pub names: Names,
    /// `-N` of FRR's daemons; None = that of the system.
    pub frr_pathspace: Option<String>,
    /// Where the questions are answered over TCP.
    pub listen: Option<SocketAddr>,
    /// What this host is called there, besides its address, localhost and its host-name.
    pub listen_names: Vec<String>,
}

type Sources = Vec<Result<Source, DaemonError>>;

/// In the order in which they are tried: a start takes the first that works. Behind what was committed stands the commit before
/// it. Files of another language are what an operator has just written, and are put right instead.
pub fn of(options: &Options, memory: &Memory, archive: &Archive, notes: &mut Vec<String>) -> Sources {
    let file = options.config.as_ref();
    let named = || file.map(|path| read(path, options));
    let committed = || memory.stored.iter().map(again).chain(memory.before.iter().map(before)).map(Ok);
    if options.translate.is_some() {
        return named().into_iter().collect();
    }
    let Some(stored) = memory.stored.as_ref().filter(|_| !options.override_store || file.is_none()) else {
        return named().into_iter().chain(committed()).collect();
    };
    if let Some(path) = file {
        say_what_counts(path, stored, options);
    }
    let late = stored.confirm.as_ref().is_some_and(|confirm| confirm.deadline.has_passed());
    let back = late.then(|| stored.unconfirmed(archive)).flatten();
    if back.is_some() {
        notes.push(format!(
            "commit {} of {} was not confirmed in time; the one before it is in force",
            stored.file, stored.commit.user
        ));
    }
    back.map(Source::unconfirmed).map(Ok).into_iter().chain(committed()).collect()
}

fn again(stored: &Stored) -> Source {
    Source { text: stored.text.clone(), file: stored.file.clone(), by: None }
}

fn before(earlier: &Earlier) -> Source {
    let by = Some(Author::own(FALLBACK, "the commit after it cannot be used"));
    Source { text: earlier.text.clone(), file: earlier.commit.file.clone(), by }
}

/// Whoever changes a file and starts the daemon again would wait for what he wrote.
fn say_what_counts(path: &Path, stored: &Stored, options: &Options) {
    let differs = match std::fs::read_to_string(path) {
        Ok(text) => text != stored.text,
        Err(_) => true,
    };
    if differs {
        tracing::warn!(
            "{} is passed over: what was committed in {} counts ({}); `sluice commit {}` puts it in force, or start with \
             --override",
            path.display(),
            options.state_dir.display(),
            stored.file,
            path.display()
        );
    }
}

pub fn read(path: &Path, options: &Options) -> Result<Source, DaemonError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| DaemonError::Read { path: path.to_owned(), source })?;
    let file = path.display().to_string();
    let text = match &options.translate {
        Some(translate) => translate.statements(&text, &file).map_err(DaemonError::Translate)?,
        None => text,
    };
    config::refuse_empty(&text, &file)?;
    let by = Author { user: own_name(), client: "file".to_owned(), comment: None, confirm_within: None };
    Ok(Source { text, file, by: Some(by) })
}

/// Who started the daemon.
fn own_name() -> String {
    let uid = nix::unistd::geteuid();
    nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| format!("uid {uid}"), |user| user.name)
}
