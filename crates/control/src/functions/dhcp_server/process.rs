//! Kea as a process. It outlives the daemon, as the data plane does: whoever comes next finds it by its pid and goes on with it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_language::dhcp_server::Family;

use super::delegated::{NEXT_HOP, SCRIPT, SCRIPT_TEXT};
use super::names::{Names, names};
use crate::functions::dhcp::chance;
use crate::state::files;

pub const SOCKET: &str = "control.sock";

/// The DUID of this server, without its type; made once.
const IDENTIFIER: &str = "server-id";

const PROGRAMS: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

/// The process that was started last: Kea writes its own pid only when it has read everything.
const STARTED: &str = "started.pid";

/// How long it may take to end, and to answer.
const END: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(5);
/// Longest answer of the control socket.
const LONGEST_ANSWER: u64 = 1 << 20;

pub fn program(family: Family) -> Option<PathBuf> {
    PROGRAMS.iter().map(|dir| Path::new(dir).join(names(family).program)).find(|path| path.is_file())
}

/// The profile of Debian's packages allows Kea no other directories than its own; ours is kept by the daemon's unit.
fn command(program: &Path) -> Command {
    let confined =
        fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|on| on.starts_with('Y'));
    let without = Path::new("/usr/bin/aa-exec");
    if !confined || !without.is_file() {
        return Command::new(program);
    }
    let mut command = Command::new(without);
    command.args(["-p", "unconfined", "--"]).arg(program);
    command
}

/// Where Kea has its files.
#[derive(Debug, Clone)]
pub struct Place {
    dir: PathBuf,
    family: Family,
}

impl Place {
    pub fn of(state_dir: &Path, family: Family) -> Self {
        Self { dir: state_dir.join(names(family).directory), family }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn family(&self) -> Family {
        self.family
    }

    pub fn names(&self) -> &'static Names {
        names(self.family)
    }

    /// Hexadecimal digits of a locally administered MAC address (RFC 8415 11.4).
    pub fn identifier(&self) -> io::Result<String> {
        let known = fs::read_to_string(self.dir.join(IDENTIFIER)).unwrap_or_default();
        if known.len() == 12 && known.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Ok(known);
        }
        let made = format!("0200{:08x}", chance::word());
        self.make()?;
        files::replace(&self.dir, IDENTIFIER, made.as_bytes())?;
        Ok(made)
    }

    /// Paths outside of Kea's own are refused by it unless its environment has them.
    fn kea(&self, program: &Path) -> Command {
        let mut command = command(program);
        for name in [
            "KEA_PIDFILE_DIR",
            "KEA_LOCKFILE_DIR",
            "KEA_DHCP_DATA_DIR",
            "KEA_LOG_FILE_DIR",
            "KEA_CONTROL_SOCKET_DIR",
            "KEA_HOOK_SCRIPTS_PATH",
        ] {
            command.env(name, &self.dir);
        }
        command.stdin(Stdio::null());
        command
    }

    pub fn make(&self) -> io::Result<()> {
        files::make_dir(&self.dir)?;
        fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o750))?;
        let is_written = || fs::read(self.dir.join(SCRIPT)).is_ok_and(|text| text == SCRIPT_TEXT.as_bytes());
        if self.family == Family::Inet || is_written() {
            return Ok(());
        }
        // Kea may be about to run the one that is there
        files::write_new(&self.dir, SCRIPT, SCRIPT_TEXT.as_bytes())?;
        let new = self.dir.join(format!("{SCRIPT}{}", files::NEW));
        fs::set_permissions(new, fs::Permissions::from_mode(0o700))?;
        files::keep(&self.dir, SCRIPT)
    }

    /// What Kea says of a configuration that it is not to run with yet: nothing, or what is wrong.
    pub fn try_out(&self, program: &Path, text: &str) -> io::Result<Result<(), String>> {
        self.make()?;
        let name = format!("{}.try", self.names().configuration);
        files::replace(&self.dir, &name, text.as_bytes())?;
        let said = self.kea(program).arg("-t").arg(self.dir.join(&name)).output();
        files::remove(&self.dir, &name)?;
        let said = said?;
        let all = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
        let wrong = |line: &&str| line.contains("ERROR") || line.contains("rror");
        let words = all.lines().rfind(wrong).or(all.lines().last()).unwrap_or("without a word").to_owned();
        Ok(if said.status.success() { Ok(()) } else { Err(words) })
    }

    /// The process that runs here, if one does: its pid may be another's by now.
    pub fn running(&self) -> Option<u32> {
        let written = |name| fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok();
        [self.names().pid, STARTED].into_iter().filter_map(written).find(|pid| self.is_ours(*pid))
    }

    pub fn is_ours(&self, pid: u32) -> bool {
        // one that has ended and was ours to collect
        let _ = waitpid(Pid::from_raw(pid as i32), Some(WaitPidFlag::WNOHANG));
        let conf = self.conf().display().to_string();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == conf.as_bytes())
    }

    /// What Kea was started with, or told last.
    pub fn configuration(&self) -> Option<String> {
        fs::read_to_string(self.conf()).ok()
    }

    pub fn write(&self, text: &str) -> io::Result<()> {
        self.make()?;
        files::replace(&self.dir, self.names().configuration, text.as_bytes())
    }

    fn conf(&self) -> PathBuf {
        self.dir.join(self.names().configuration)
    }

    /// In a process group of its own, so that what ends the daemon does not end it.
    pub fn start(&self, program: &Path) -> io::Result<u32> {
        // a pid that another process has by now would keep Kea from starting
        files::remove(&self.dir, self.names().pid)?;
        let words = File::create(self.dir.join(self.names().words))?;
        let mut command = self.kea(program);
        command.arg("-c").arg(self.conf()).process_group(0);
        let pid = command.stdout(words.try_clone()?).stderr(words).spawn()?.id();
        // whoever comes before Kea has written its own finds it by this one
        if let Err(error) = files::replace(&self.dir, STARTED, pid.to_string().as_bytes()) {
            self.stop(pid);
            return Err(error);
        }
        Ok(pid)
    }

    /// The last words of a process that has ended.
    pub fn last_words(&self) -> String {
        let last = |name: &str| {
            let text = fs::read_to_string(self.dir.join(name)).ok()?;
            text.lines().rfind(|line| line.contains("ERROR") || line.contains("FATAL")).map(str::to_owned)
        };
        last(self.names().words)
            .or_else(|| last(self.names().log))
            .unwrap_or_else(|| "it has not said why".to_owned())
    }

    /// Ends it, and waits until it has ended.
    pub fn stop(&self, pid: u32) {
        let process = Pid::from_raw(pid as i32);
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            if !self.is_ours(pid) {
                break;
            }
            // it may have ended just now
            let _ = kill(process, signal);
            let begun = Instant::now();
            while self.is_ours(pid) && begun.elapsed() < END {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Asks Kea over its control socket.
    pub fn ask(&self, command: &str, arguments: Value) -> Result<Value, String> {
        let ask = || -> io::Result<Value> {
            let mut stream = UnixStream::connect(self.dir.join(SOCKET))?;
            stream.set_read_timeout(Some(ANSWER))?;
            let request = json!({ "command": command, "arguments": arguments });
            stream.write_all(request.to_string().as_bytes())?;
            let mut answer = vec![];
            stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
            Ok(serde_json::from_slice(&answer)?)
        };
        let answer = ask().map_err(|error| format!("{command}: {error}"))?;
        match answer["result"].as_i64() {
            Some(0) => Ok(answer),
            _ => Err(format!("{command}: {}", answer["text"].as_str().unwrap_or("an answer without words"))),
        }
    }

    /// Has the written configuration in force, without an interruption.
    pub fn reload(&self) -> Result<(), String> {
        self.ask("config-reload", json!({})).map(drop)
    }

    /// Leaves nothing but leases, which must hold if the server comes back, and what belongs to them.
    pub fn tidy(&self) -> io::Result<()> {
        let lasting = [self.names().leases, IDENTIFIER, NEXT_HOP];
        let Ok(entries) = fs::read_dir(&self.dir) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !lasting.iter().any(|begin| name.starts_with(begin)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// With the gateway.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
