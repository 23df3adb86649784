//! On which CPU a thread runs, and ahead of whom.

use std::io;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The CPU that measurements run on: the second, where there is one.
pub fn bench_cpu() -> usize {
    usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1))
}

/// Keeps the calling thread on one CPU.
pub fn keep_on(cpu: usize) -> Result<()> {
    bind(Pid::from_raw(0), cpu).with_context(|| format!("cannot pin the bench to CPU {cpu}"))
}

fn bind(thread: Pid, cpu: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(thread, &set)
}

/// The same, ahead of everything of normal priority there.
pub fn pin(cpu: usize) -> Result<()> {
    keep_on(cpu)?;
    raise_priority(0).context("cannot raise the bench's priority")
}

/// The same for another thread, of the kernel for example.
pub fn pin_other(thread: Pid, cpu: usize) -> Result<()> {
    bind(thread, cpu).with_context(|| format!("cannot pin thread {thread} to CPU {cpu}"))?;
    raise_priority(thread.as_raw() as u32)
        .with_context(|| format!("cannot raise the priority of thread {thread}"))
}

/// The calling thread ahead of everything of normal priority, until dropped: whoever directs threads that never sleep
/// must be heard at once.
pub struct RaisedPriority(());

impl RaisedPriority {
    pub fn new() -> Result<RaisedPriority> {
        raise_priority(0).context("cannot raise the bench's priority")?;
        Ok(RaisedPriority(()))
    }
}

impl Drop for RaisedPriority {
    #[allow(unsafe_code)] // as in `raise_priority`
    fn drop(&mut self) {
        // SAFETY: as in `raise_priority`. Going back to normal cannot fail.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    }
}

/// A real-time class would starve the softirq thread that live frames may need.
#[allow(unsafe_code)] // no safe wrapper of setpriority
fn raise_priority(thread: u32) -> io::Result<()> {
    const HIGHEST: i32 = -20;
    // SAFETY: plain numbers in and out; `who` is a thread, 0 the calling one.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, HIGHEST) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
