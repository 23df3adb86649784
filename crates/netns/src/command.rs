//! Commands, and what they say when they fail.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use crate::{Error, Result};

/// Runs a command to its end and returns its standard output; `place` is where it runs, for the error.
pub(crate) fn run(command: &mut Command, place: &str) -> Result<String> {
    let output = command.output().map_err(|source| Error::Start { command: describe(command), source })?;
    checked(output, || describe(command), place)
}

/// Runs a command to its end that reads `text`.
pub(crate) fn run_on(command: &mut Command, text: &str) -> Result<Output> {
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A child that died early shows in its exit status.
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait_with_output().map_err(|source| Error::Start { command: describe(command), source })
}

/// Standard output of a command that succeeded.
pub(crate) fn checked(output: Output, command: impl FnOnce() -> String, place: &str) -> Result<String> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::Command {
        command: command(),
        place: place.to_owned(),
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.spawn().map_err(|source| Error::Start { command: describe(command), source })
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
