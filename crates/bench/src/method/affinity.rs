//! On which CPU a thread runs, and ahead of whom.

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sluice_lab::niceness;

/// The calling thread.
const SELF: Pid = Pid::from_raw(0);

/// The CPU that measurements run on: the second, where there is one.
pub fn bench_cpu() -> usize {
    usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
}

/// Keeps the calling thread on one CPU.
pub fn keep_on(cpu: usize) -> Result<()> {
    bind(SELF, cpu).with_context(|| format!("cannot pin the bench to CPU {cpu}"))
}

fn bind(thread: Pid, cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(thread, &set)
}

/// The same, ahead of everything of normal priority there.
pub fn pin(cpu: usize) -> Result<()> {
    keep_on(cpu)?;
    niceness::set(SELF, niceness::HIGHEST).context("cannot raise the bench's priority")
}

/// The same for another thread, of the kernel for example.
pub fn pin_other(thread: Pid, cpu: usize) -> Result<()> {
    bind(thread, cpu).with_context(|| format!("cannot pin thread {thread} to CPU {cpu}"))?;
    niceness::set(thread, niceness::HIGHEST)
        .with_context(|| format!("cannot raise the priority of thread {thread}"))
}

/// The calling thread ahead of everything of normal priority, until dropped: whoever directs threads that never sleep
/// must be heard at once.
pub struct RaisedPriority(());

impl RaisedPriority {
    pub fn new() -> Result<RaisedPriority> {
        niceness::set(SELF, niceness::HIGHEST).context("cannot raise the bench's priority")?;
        Ok(RaisedPriority(()))
    }
}

impl Drop for RaisedPriority {
    fn drop(&mut self) {
        // going back to normal cannot fail
        let _ = niceness::set(SELF, niceness::NORMAL);
    }
}
