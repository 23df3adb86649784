//! Which processors threads may use, and which one a thread does.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Those that this process may use.
pub fn cpus() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).collect()
}

/// Keeps the calling thread on a processor.
pub fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    if let Err(error) = set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
        tracing::warn!(cpu, %error, "the thread stays unpinned");
    }
}
