//! Logs: what they hold, and how they go on. `session` is what the daemon remembers of its session log, the others are files of
//! the configuration, and `messages` is the journal where none has that name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::{fs, io, thread};

use sluice_control::api::LogQuery;
use sluice_control::operations::NoArguments;
use sluice_control::operations::configuration::CONFIGURATION;
use sluice_control::operations::sessions::LOG;

use super::grammar::Given;
use super::kernel;
use super::out::{Done, Out, Stop};
use super::shell::Shell;
use crate::exit::Failure;
use crate::follow::{Growing, LOOK, Sessions};
use crate::{interrupt, show};

/// What the daemon says of itself.
const MESSAGES: &str = "messages";
/// Entries that stand before what comes.
const BEFORE: usize = 10;

/// `show log session`
pub fn session(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let query = LogQuery { last: given.number("last").unwrap_or(50) };
    out.show(&shell.ask(&LOG, &query)?, |log| show::session_log(log))
}

/// `show log messages`
pub fn messages(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    if let Some(path) = written(&files(shell)?, MESSAGES) {
        return lines(&path, given, out);
    }
    let last = given.get("last").unwrap_or_else(|| "50".to_owned());
    let journal = journal(&last).output();
    let journal = journal.map_err(|error| Failure::failed(format!("cannot run journalctl: {error}")))?;
    if !journal.status.success() {
        return Err(Failure::failed(String::from_utf8_lossy(&journal.stderr)).into());
    }
    out.text(&String::from_utf8_lossy(&journal.stdout))
}

fn journal(last: &str) -> Process {
    let mut process = Process::new("journalctl");
    process.args(["--no-pager", "--unit", "sluice", "--lines", last]);
    process
}

/// `show log`, of a name or of the sessions
pub fn show(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    match given.get("name") {
        Some(name) => lines(&file(shell, &name)?, given, out),
        None => session(shell, given, out),
    }
}

fn lines(path: &Path, given: &Given, out: &mut Out) -> Done {
    let text = fs::read(path).map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = given.number("last").unwrap_or(lines.len());
    out.text(&lines[lines.len().saturating_sub(last)..].join("\n"))
}

/// `monitor start`: what a log holds last and what comes, until Ctrl-C.
pub fn follow(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let name = given.get("name").unwrap_or_default();
    let done = match name.as_str() {
        "session" => sessions(shell, out),
        MESSAGES if written(&files(shell)?, MESSAGES).is_none() => {
            kernel::run(shell, journal(&BEFORE.to_string()).arg("--follow"), out)
        }
        name => growing(&file(shell, name)?, out),
    };
    match done {
        // that is how it ends
        Err(Stop::Interrupted) => {
            interrupt::forget();
            Ok(())
        }
        done => done,
    }
}

/// `monitor stop`
pub fn stop(_: &mut Shell, _: &Given, out: &mut Out) -> Done {
    out.text("no log is followed: `monitor start` lasts until Ctrl-C")
}

fn sessions(shell: &mut Shell, out: &mut Out) -> Done {
    let mut sessions = Sessions::new(BEFORE);
    loop {
        let (has_gap, new) = sessions.next(&shell.ask(&LOG, &LogQuery { last: Sessions::MOST })?);
        if has_gap {
            out.line(Sessions::GAP)?;
        }
        out.lines(&show::session_log(&new))?;
        pause(out)?;
    }
}

fn growing(path: &Path, out: &mut Out) -> Done {
    let mut growing = Growing::open(path, BEFORE).map_err(|error| unreadable(path, &error))?;
    loop {
        let new = growing.next().map_err(|error| unreadable(path, &error))?;
        new.iter().try_for_each(|line| out.line(line))?;
        pause(out)?;
    }
}

fn pause(out: &mut Out) -> Done {
    out.flush()?;
    thread::sleep(LOOK);
    match interrupt::requested() {
        true => Err(Stop::Interrupted),
        false => Ok(()),
    }
}

/// Where a log of this name is written.
fn file(shell: &Shell, name: &str) -> Result<PathBuf, Stop> {
    let files = files(shell)?;
    if let Some(path) = written(&files, name) {
        return Ok(path);
    }
    let mut names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    names.extend([MESSAGES, "session"]);
    let names: Vec<&str> = names.into_iter().collect();
    let why = format!("no log is called {name}; there are: {}", names.join(", "));
    Err(Failure::bad_input(why).into())
}

fn written(files: &[(String, PathBuf)], name: &str) -> Option<PathBuf> {
    files.iter().find(|(known, _)| known == name).map(|(_, path)| path.clone())
}

/// Files that the configuration in force has logs written to.
fn files(shell: &Shell) -> Result<Vec<(String, PathBuf)>, Stop> {
    let configuration = shell.ask(&CONFIGURATION, &NoArguments {})?;
    let tree = sluice_language::parse(&configuration.text, &configuration.file).map_err(Failure::failed)?;
    let config = sluice_language::compile(&tree).map_err(Failure::failed)?;
    let own = config.system.syslog.files.into_iter().map(|file| file.to);
    let files = config.log.file.into_iter().chain(own);
    Ok(files.map(|file| (file.name.clone(), PathBuf::from(file.directory).join(file.name))).collect())
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot read {}: {error}", path.display()))
}
