//! Interleaved rounds: every contestant runs in every round, in rotating order.

use std::io;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::watch;

/// Samples of every contestant, in round order: `samples[contestant][round]`. The machine is watched meanwhile.
pub fn interleave(
    contestants: usize,
    rounds: usize,
    mut run: impl FnMut(usize, usize) -> Result<f64>,
) -> Result<Vec<Vec<f64>>> {
    watch::over(|| {
        let mut samples = vec![Vec::with_capacity(rounds); contestants];
        for round in 0..rounds {
            for position in 0..contestants {
                let contestant = (position + round) % contestants;
                watch::walk();
                samples[contestant].push(run(contestant, round)?);
            }
        }
        Ok(samples)
    })
}

/// The samples of one contestant alone.
pub fn alone(rounds: usize, mut run: impl FnMut(usize) -> Result<f64>) -> Result<Vec<f64>> {
    let mut one = |round| {
        watch::walk();
        run(round)
    };
    watch::over(|| (0..rounds).map(&mut one).collect())
}

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
    hurry(0).context("cannot raise the bench's priority")
}

/// The same for another thread, of the kernel for example.
pub fn pin_other(thread: Pid, cpu: usize) -> Result<()> {
    bind(thread, cpu).with_context(|| format!("cannot pin thread {thread} to CPU {cpu}"))?;
    hurry(thread.as_raw() as u32).with_context(|| format!("cannot raise the priority of thread {thread}"))
}

/// The calling thread ahead of everything of normal priority, until dropped: whoever directs threads that never sleep
/// must be heard at once.
pub struct Hurried(());

impl Hurried {
    pub fn new() -> Result<Hurried> {
        hurry(0).context("cannot raise the bench's priority")?;
        Ok(Hurried(()))
    }
}

impl Drop for Hurried {
    #[allow(unsafe_code)] // as in `hurry`
    fn drop(&mut self) {
        // SAFETY: as in `hurry`. Going back to normal cannot fail.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
    }
}

/// A real-time class would starve the softirq thread that live frames may need.
#[allow(unsafe_code)] // no safe wrapper of setpriority
fn hurry(thread: u32) -> io::Result<()> {
    const HIGHEST: i32 = -20;
    // SAFETY: plain numbers in and out; `who` is a thread, 0 the calling one.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, HIGHEST) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contestant_runs_once_a_round_and_leads_in_turn() {
        let mut order = vec![];
        let samples = interleave(3, 3, |contestant, round| {
            order.push(contestant);
            Ok((10 * contestant + round) as f64)
        })
        .unwrap();
        assert_eq!(order, [0, 1, 2, 1, 2, 0, 2, 0, 1]);
        assert_eq!(samples[2], [20.0, 21.0, 22.0]);
    }
}
