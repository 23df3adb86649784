//! `sluice lab` as a user runs it: the whole matrix on both hooks, and nothing left behind however it ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::{netns, state};

use crate::common::{Running, lab};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn the_branch_does_what_its_configuration_says() {
    let text = lab("branch");
    assert_eq!(text.matches(": balanced").count(), 4, "two equations on two hooks:\n{text}");
}

#[test]
fn an_interrupted_run_tears_everything_down() {
    let mut run = start();
    kill(Pid::from_raw(run.id() as i32), Signal::SIGINT).unwrap();
    let started = Instant::now();
    while run.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < PATIENCE, "still running {PATIENCE:?} after SIGINT");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(run.wait().unwrap().code(), Some(130));
    assert_eq!(traces(run.id()), Vec::<String>::new());
}

#[test]
fn a_killed_run_is_cleaned_up_by_the_next() {
    let mut run = start();
    run.kill().unwrap();
    run.wait().unwrap();
    assert_ne!(traces(run.id()), Vec::<String>::new(), "SIGKILL leaves something to clean up");
    state::remove_leftovers();
    assert_eq!(traces(run.id()), Vec::<String>::new());
}

/// Starts a run and waits until its gateway is up.
fn start() -> Running {
    let mut command = Command::new(SLUICE);
    command.args(["lab", "run", "branch", "--hook", "tc"]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Running::spawn(&mut command);
    let socket = state(run.id()).join("sluice.sock");
    let started = Instant::now();
    while !socket.exists() {
        assert!(run.try_wait().unwrap().is_none(), "the run ended before its gateway was up");
        assert!(started.elapsed() < PATIENCE, "no gateway after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
    run
}

fn state(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("sluice-lab-{pid}-tc"))
}

/// Namespaces, state and pins of a run.
fn traces(pid: u32) -> Vec<String> {
    let prefix = format!("slu-{pid}-");
    let mut traces: Vec<String> =
        netns::names().into_iter().filter(|name| name.starts_with(&prefix)).collect();
    let pins = Path::new("/sys/fs/bpf/sluice").join(format!("sluice-lab-{pid}-tc"));
    for path in [state(pid), pins] {
        if path.exists() {
            traces.push(path.display().to_string());
        }
    }
    traces
}
