//! The gateway under test: a Sluice daemon in the gateway's namespace, asked through its unix socket.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::interrupt;
use crate::netns::Netns;
use crate::patience::patience;

/// Where the daemon pins its BPF objects, by the name of its state directory.
pub(crate) const PINS: &str = "/sys/fs/bpf/sluice";

const START_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A daemon that runs in a namespace. Dropping it ends it and removes its pins and its state directory.
#[derive(Debug)]
pub struct Gateway<'a> {
    program: PathBuf,
    verb: &'static str,
    netns: &'a Netns,
    configuration: Option<PathBuf>,
    state: PathBuf,
    child: Option<Child>,
    options: Vec<String>,
}

impl<'a> Gateway<'a> {
    /// `program` is the sluice binary; `state` is made when missing and removed at the end.
    pub fn new(program: &Path, netns: &'a Netns, configuration: &Path, state: &Path) -> Result<Gateway<'a>> {
        fs::create_dir_all(state).with_context(|| format!("cannot make {}", state.display()))?;
        Ok(Gateway {
            program: program.to_owned(),
            verb: "run",
            netns,
            configuration: Some(configuration.to_owned()),
            state: state.to_owned(),
            child: None,
            options: vec![],
        })
    }

    /// Another command than `run` that starts the daemon.
    pub fn with_command(mut self, verb: &'static str) -> Gateway<'a> {
        self.verb = verb;
        self
    }

    /// More options of the command that starts the daemon.
    pub fn with_options(mut self, options: &[&str]) -> Gateway<'a> {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    /// From here on it starts with what was committed last.
    pub fn forget_file(&mut self) {
        self.configuration = None;
    }

    /// The binary that the next start runs: an upgrade.
    pub fn set_program(&mut self, program: &Path) {
        self.program = program.to_owned();
    }

    /// Starts the daemon and waits until it says that it is healthy.
    pub fn start(&mut self) -> Result<()> {
        let child = self.command().spawn().context("cannot start the daemon")?;
        self.child = Some(child);
        let patience = patience(START_PATIENCE);
        let deadline = Instant::now() + patience;
        loop {
            interrupt::check()?;
            if self.get("/health").is_ok() {
                return Ok(());
            }
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                self.child = None;
                bail!(
                    "the daemon ended ({status}) before it was healthy; its last words:\n{}",
                    self.last_words()
                );
            }
            if Instant::now() > deadline {
                bail!("the daemon is not healthy after {patience:?}; its last words:\n{}", self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// SIGTERM; the data plane keeps running without the daemon.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.end(Signal::SIGTERM)
    }

    /// SIGKILL: the daemon gets no chance to do anything.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.end(Signal::SIGKILL)
    }

    /// `sluice commit` of a file.
    pub fn commit(&self, configuration: &Path) -> Result<()> {
        self.sluice(&["commit", &configuration.display().to_string()]).map(drop)
    }

    /// Of the daemon, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Where the daemon pins its BPF objects.
    pub fn pins(&self) -> PathBuf {
        pins_of(&self.state)
    }

    /// Runs a command of the sluice binary against this daemon.
    pub fn sluice(&self, arguments: &[&str]) -> Result<String> {
        let (program, state) = (self.program.display().to_string(), self.state.display().to_string());
        let arguments = [arguments, &["--state-dir", &state]].concat();
        Ok(self.netns.run(&program, arguments)?)
    }

    /// GET on the unix socket; anything but 200 is an error.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.state.join("sluice.sock"))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: sluice\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) =
            answer.split_once("\r\n\r\n").ok_or_else(|| anyhow!("{path}: not an HTTP answer"))?;
        let status = head.split_whitespace().nth(1).unwrap_or_default();
        if status != "200" {
            bail!("{path} answered {status}: {body}");
        }
        Ok(body.to_owned())
    }

    /// As [`Gateway::get`], parsed.
    pub fn json(&self, path: &str) -> Result<Value> {
        serde_json::from_str(&self.get(path)?).with_context(|| format!("{path} is not JSON"))
    }

    /// End of the daemon's log, for error messages.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn command(&self) -> Command {
        let mut command = self.netns.command(&self.program);
        command.arg(self.verb).args(&self.options).arg("--state-dir").arg(&self.state);
        if let Some(file) = &self.configuration {
            command.arg("--config").arg(file);
        }
        let log = File::options().create(true).append(true).open(self.log());
        match log.and_then(|log| Ok((log.try_clone()?, log))) {
            Ok((out, err)) => command.stdout(out).stderr(err),
            Err(_) => command.stdout(Stdio::null()).stderr(Stdio::null()),
        };
        command
    }

    fn log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    fn end(&mut self, signal: Signal) -> Result<ExitStatus> {
        let mut child = self.child.take().context("the daemon is not running")?;
        kill(Pid::from_raw(child.id() as i32), signal)?;
        let patience = patience(STOP_PATIENCE);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        child.wait()?;
        bail!(
            "the daemon did not end within {patience:?} of {signal}; its last words:\n{}",
            self.last_words()
        )
    }

    /// Stops the daemon and has it clean up; fails when pins remain.
    pub fn finish(mut self) -> Result<()> {
        if self.child.is_some() {
            let status = self.stop()?;
            if !status.success() {
                bail!("the daemon ended with {status}; its last words:\n{}", self.last_words());
            }
        }
        self.sluice(&["cleanup"])?;
        let pins = self.pins();
        if pins.exists() {
            bail!("`sluice cleanup` left {} behind", pins.display());
        }
        Ok(())
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself; then there is nothing to do but to collect it.
            let _ = child.kill();
            let _ = child.wait();
        }
        remove_state(&self.state);
    }
}

fn pins_of(state: &Path) -> PathBuf {
    Path::new(PINS).join(state.file_name().unwrap_or_default())
}

/// Removes a state directory and the pins that belong to it; removing the pins detaches the programs.
pub fn remove_state(state: &Path) {
    for directory in [pins_of(state), state.to_owned()] {
        if directory.exists()
            && let Err(error) = fs::remove_dir_all(&directory)
        {
            eprintln!("sluice lab: cannot remove {}: {error}", directory.display());
        }
    }
}
