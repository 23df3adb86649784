//! Processes of this machine, told from others that have their number later.

use std::fs;

use serde::{Deserialize, Serialize};

/// A process: its number, and when it began, in the kernel's clock ticks since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    pub started: u64,
}

impl Process {
    /// None when there is none of this number.
    pub fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        started(&text).map(|started| Self { pid, started })
    }

    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }
}

/// Field 22 (proc_pid_stat(5)); the name in field 2 may hold blanks and parentheses.
fn started(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    // field 3 is the first one behind the name; a process that has ended and is waited for does nothing any more
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok()).flatten()
}

/// Processes that this one comes from, the nearest first. The first process of all is the last.
pub fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |process: &u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().filter(|parent| *parent > 0)
    };
    std::iter::successors(Some(std::os::unix::process::parent_id()).filter(|parent| *parent > 0), parent)
}

const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// `SSH_CONNECTION` (ssh(1)) of the session that this process was started in. sudo takes it out of the environment; the shell that it
/// was typed in has it.
pub fn ssh_connection() -> Option<String> {
    let own = std::env::var(SSH_CONNECTION).ok();
    own.or_else(|| {
        ancestors().find_map(|process| variable(&fs::read(format!("/proc/{process}/environ")).ok()?))
    })
}

fn variable(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|byte| *byte == 0).filter_map(|one| str::from_utf8(one).ok());
    let value = variables.find_map(|one| one.strip_prefix(SSH_CONNECTION)?.strip_prefix('='))?;
    Some(value.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn names_may_look_like_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 10 11";
        assert_eq!(started(stat), Some(4711));
        assert_eq!(started(&stat.replace(" S ", " Z ")), None);
        assert_eq!(started("garbage"), None);
    }

    #[test]
    fn the_session_stands_in_an_environment() {
        let environment = b"A=b\0SSH_CONNECTION_X=no\0SSH_CONNECTION=192.0.2.9 4000 192.0.2.1 22\0\xff=\0";
        assert_eq!(variable(environment).as_deref(), Some("192.0.2.9 4000 192.0.2.1 22"));
        assert_eq!(variable(b""), None);
    }

    #[test]
    fn a_process_that_ended_is_gone() {
        let own = Process::of(std::process::id() as i32).unwrap();
        assert!(own.is_alive());
        assert!(!Process { started: own.started + 1, ..own }.is_alive(), "another of the same number");
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::of(child.id() as i32).unwrap();
        assert!(process.is_alive());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
