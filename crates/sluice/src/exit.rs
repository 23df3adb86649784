//! How a command ends.

use std::process::ExitCode;

pub type Outcome = Result<ExitCode, Failure>;

/// An error and the exit code it means.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub message: String,
}

/// Something failed while running, or something differs.
pub const FAILED: u8 = 1;
/// The command or the configuration is wrong.
pub const BAD_INPUT: u8 = 2;

impl Failure {
    pub fn failed(error: impl std::fmt::Display) -> Self {
        Self { code: FAILED, message: error.to_string() }
    }

    pub fn bad_input(error: impl std::fmt::Display) -> Self {
        Self { code: BAD_INPUT, message: error.to_string() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(format!("{error:#}"))
    }
}

impl From<sluice_control::ClientError> for Failure {
    fn from(error: sluice_control::ClientError) -> Self {
        if error.is_bad_input() { Self::bad_input(error) } else { Self::failed(error) }
    }
}

impl From<sluice_control::DaemonError> for Failure {
    fn from(error: sluice_control::DaemonError) -> Self {
        if error.is_bad_input() { Self::bad_input(error) } else { Self::failed(error) }
    }
}

pub fn code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("sluice: {}", failure.message.trim_end());
            ExitCode::from(failure.code)
        }
    }
}

/// `sluice show ... | head` must end like any other tool instead of panicking.
pub fn quiet_on_closed_pipe() {
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if text.contains("Broken pipe") {
            std::process::exit(i32::from(FAILED));
        }
        eprintln!("sluice: internal error: {text}");
    }));
}

/// Reads a configuration file.
pub fn read(file: &std::path::Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|e| Failure::bad_input(format!("cannot read {}: {e}; check the path", file.display())))
}

/// Reads what a command sends; `-` is standard input.
pub fn read_or_stdin(file: &std::path::Path) -> Result<String, Failure> {
    if file.as_os_str() != "-" {
        return read(file);
    }
    std::io::read_to_string(std::io::stdin())
        .map_err(|error| Failure::bad_input(format!("cannot read standard input: {error}")))
}
