//! What runs that were killed have left behind: namespaces, and the processes in them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{DIRECTORY, Netns};

/// First part of every name made by [`Netns::create`].
pub(crate) const PREFIX: &str = "slu";

/// Removes the namespaces of runs that were killed before they could clean up: those whose maker does not live.
/// Returns their names.
pub fn remove_leftovers() -> Vec<String> {
    let mut removed = vec![];
    for name in names() {
        if maker(&name).is_some_and(|pid| !is_alive(pid)) {
            Netns::of(&name).remove();
            removed.push(name);
        }
    }
    removed
}

/// Removes every namespace whose name begins with `prefix`, whoever made it. Returns their names.
pub fn remove_by_prefix(prefix: &str) -> Vec<String> {
    let found: Vec<String> = names().into_iter().filter(|name| name.starts_with(prefix)).collect();
    for name in &found {
        Netns::of(name).remove();
    }
    found
}

/// Names of all bound namespaces.
pub fn names() -> Vec<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else { return vec![] };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A zombie does not count: it runs nothing and holds nothing.
pub fn is_alive(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// SIGTERM, a second of patience, then SIGKILL.
pub(crate) fn end_processes(pids: &[i32]) {
    let signal = |signal| {
        for pid in pids {
            // One that has ended meanwhile is what we want.
            let _ = kill(Pid::from_raw(*pid), signal);
        }
    };
    if pids.is_empty() {
        return;
    }
    signal(Signal::SIGTERM);
    let deadline = Instant::now() + Duration::from_secs(1);
    while pids.iter().any(|pid| is_alive(*pid)) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(10));
    }
    signal(Signal::SIGKILL);
}

/// Pid in a name made by [`Netns::create`].
fn maker(name: &str) -> Option<i32> {
    let rest = name.strip_prefix(PREFIX)?.strip_prefix('-')?;
    rest.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_are_read_from_names() {
        assert_eq!(maker("slu-42-7-gw"), Some(42));
        assert_eq!(maker("slu-lab-branch-gw"), None);
        assert_eq!(maker("other-42-7-gw"), None);
    }
}
