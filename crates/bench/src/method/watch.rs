//! What the machine did besides us while rounds were timed: a thread reads it, and no verdict is given where it was much.
//!
//! Ours are this process, its descendants and the kernel's threads, which work for live frames. All other processes
//! are counted with the children they have waited for (proc_pid_stat(5): utime, stime, cutime, cstime), so that
//! compilers which live for a moment are not overlooked.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::sched_getaffinity;
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method::affinity::keep_on;
use crate::method::cache;
use crate::method::environment::CpuTimes;

/// Between two looks at who runs.
const EVERY: Duration = Duration::from_millis(500);
/// What the kernel counts processes' time in (USER_HZ, the same on every architecture we run on).
const TICKS_PER_SECOND: f64 = 100.0;
/// PF_KTHREAD of linux/sched.h
const KERNEL_THREAD: u64 = 0x0020_0000;

/// What others had of the machine during timed rounds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    pub seconds: f64,
    pub cpus: usize,
    /// CPU time of processes that are not ours.
    pub others_s: f64,
    /// CPU time that the hypervisor gave to other guests.
    pub steal_s: f64,
    /// Time in which something waited for a CPU, ours included (PSI, `some`).
    pub pressure_s: f64,
    /// Processes that were not ours and ran or wanted to, over all looks.
    pub runnable: u64,
    pub looks: u64,
    /// Nanoseconds a line of walks through the last cache, one before each timed run, and of the quickest that was seen.
    #[serde(default)]
    pub walks_ns: Vec<f64>,
    #[serde(default)]
    pub undisturbed_ns: Option<f64>,
    /// What was run before had no part in them. Walks without say nothing of others.
    #[serde(default)]
    pub brought_back: bool,
}

/// Share of the machine's CPU time that others may have had.
const MOST_OTHERS: f64 = 0.05;
const MOST_STEAL: f64 = 0.05;
/// Processes of others that ran or wanted to, on average.
const MOST_RUNNABLE: f64 = 0.5;
/// Something of ours may wait for ours; where others ran as well, it is not to be told who waited for whom.
const MOST_PRESSURE: f64 = 0.2;
const OTHERS_BESIDE_PRESSURE: f64 = 0.01;
/// Two ticks of the clock in which processes' time is counted.
const GRAIN_S: f64 = 2.0 / TICKS_PER_SECOND;

impl Load {
    /// What forbids a verdict; empty on a quiet machine.
    pub fn doubts(&self) -> Vec<String> {
        let share = |seconds: f64| seconds / (self.seconds * self.cpus as f64).max(f64::MIN_POSITIVE);
        let (others, steal) = (share((self.others_s - GRAIN_S).max(0.0)), share(self.steal_s));
        let pressure = self.pressure_s / self.seconds.max(f64::MIN_POSITIVE);
        let runnable = self.runnable as f64 / self.looks.max(1) as f64;
        let mut doubts = vec![];
        if others > MOST_OTHERS {
            doubts.push(format!("other processes had {:.0} % of the CPUs", 100.0 * others));
        }
        if steal > MOST_STEAL {
            doubts.push(format!("the hypervisor took {:.0} % of the CPUs", 100.0 * steal));
        }
        if self.looks > 3 && runnable > MOST_RUNNABLE {
            doubts.push(format!("{runnable:.1} other processes ran or wanted to"));
        }
        if pressure > MOST_PRESSURE && others > OTHERS_BESIDE_PRESSURE {
            doubts.push(format!("something waited for a CPU {:.0} % of the time", 100.0 * pressure));
        }
        let undisturbed = self.undisturbed_ns.filter(|_| self.brought_back);
        doubts.extend(undisturbed.and_then(|quickest| cache::doubt(&self.walks_ns, quickest)));
        doubts
    }

    /// The numbers behind the doubts.
    pub fn line(&self) -> String {
        let percent =
            |seconds: f64| 100.0 * seconds / (self.seconds * self.cpus as f64).max(f64::MIN_POSITIVE);
        format!(
            "during {:.1} s of timed rounds others had {:.1} % of the CPUs, the hypervisor {:.1} %; {:.1} other \
             processes ran or wanted to, something waited for a CPU {:.0} % of the time",
            self.seconds,
            percent(self.others_s),
            percent(self.steal_s),
            self.runnable as f64 / self.looks.max(1) as f64,
            100.0 * self.pressure_s / self.seconds.max(f64::MIN_POSITIVE),
        )
    }

    pub fn add(&mut self, other: &Load) {
        self.seconds += other.seconds;
        self.cpus = self.cpus.max(other.cpus);
        self.others_s += other.others_s;
        self.steal_s += other.steal_s;
        self.pressure_s += other.pressure_s;
        self.runnable += other.runnable;
        self.looks += other.looks;
        self.walks_ns.extend(&other.walks_ns);
        self.brought_back |= other.brought_back;
        self.undisturbed_ns = self.undisturbed_ns.into_iter().chain(other.undisturbed_ns).reduce(f64::min);
    }
}

/// Timed rounds whose load nobody has asked for yet.
static TIMED: Mutex<Option<Load>> = Mutex::new(None);

/// The load of all rounds that were timed since the last call; None when none were.
pub fn take() -> Option<Load> {
    TIMED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Before each timed run: whether the last cache is ours.
pub fn walk() {
    let walks_ns = vec![cache::walk()];
    let undisturbed_ns = cache::undisturbed();
    let walk = Load { walks_ns, undisturbed_ns, brought_back: true, ..Load::default() };
    TIMED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().add(&walk);
}

/// Watches while `work` is timed, and keeps what it saw for `take`.
pub fn over<T>(work: impl FnOnce() -> T) -> T {
    let watch = Watch::start();
    let done = work();
    let load = watch.end();
    TIMED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().add(&load);
    done
}

/// A thread that looks at the machine until it is asked what it saw.
pub struct Watch {
    began: Instant,
    first: Look,
    end: Sender<()>,
    thread: JoinHandle<(u64, u64)>,
}

impl Watch {
    pub fn start() -> Watch {
        // Daemons of ours that leave their parents must stay ours; where that is refused they count as others.
        let _ = set_child_subreaper(true);
        let (end, ended) = channel();
        let free = free_cpu();
        let thread = thread::spawn(move || {
            // unbound it works as well
            let _ = free.map(keep_on);
            let (mut runnable, mut looks) = (0, 0);
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                runnable += Look::now().runnable;
                looks += 1;
            }
            (runnable, looks)
        });
        Watch { began: Instant::now(), first: Look::now(), end, thread }
    }

    pub fn end(self) -> Load {
        let (last, seconds) = (Look::now(), self.began.elapsed().as_secs_f64());
        // It waits for nothing else, and cannot have gone before.
        let _ = self.end.send(());
        let (runnable, looks) = self.thread.join().unwrap_or_default();
        Load {
            seconds,
            cpus: cpus(),
            others_s: last.others.saturating_sub(self.first.others) as f64 / TICKS_PER_SECOND,
            steal_s: last.steal.saturating_sub(self.first.steal) as f64 / TICKS_PER_SECOND,
            pressure_s: last.pressure_us.saturating_sub(self.first.pressure_us) as f64 / 1e6,
            runnable,
            looks,
            ..Load::default()
        }
    }
}

/// All of the machine's, also when the calling thread is bound to one of them.
fn cpus() -> usize {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1)
}

/// One that the calling thread, which may be bound to that on which rounds run, leaves to others.
fn free_cpu() -> Option<usize> {
    let bound = sched_getaffinity(Pid::from_raw(0)).ok()?;
    (0..cpus()).find(|cpu| bound.is_set(*cpu) == Ok(false))
}

/// Counters of the machine at one moment.
#[derive(Debug, Default)]
struct Look {
    /// Ticks of processes that are not ours.
    others: u64,
    runnable: u64,
    steal: u64,
    pressure_us: u64,
}

impl Look {
    fn now() -> Look {
        let processes = processes();
        let others = || processes.iter().filter(|(_, one)| !one.is_kernel && !is_ours(one, &processes));
        Look {
            others: others().map(|(_, one)| one.ticks).sum(),
            runnable: others().filter(|(_, one)| one.runs).count() as u64,
            steal: CpuTimes::now().steal,
            pressure_us: pressure_us(&fs::read_to_string("/proc/pressure/cpu").unwrap_or_default()),
        }
    }
}

struct Process {
    pid: u32,
    parent: u32,
    is_kernel: bool,
    runs: bool,
    ticks: u64,
}

fn processes() -> HashMap<u32, Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbered = entries.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok());
    let stats = numbered.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    stats.filter_map(|stat| Process::parse(&stat)).map(|one| (one.pid, one)).collect()
}

impl Process {
    /// proc_pid_stat(5); the command's name may hold anything, so what follows its last parenthesis counts.
    fn parse(stat: &str) -> Option<Process> {
        let (front, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Process {
            pid: front.split_once(' ')?.0.parse().ok()?,
            parent: number(1)? as u32,
            is_kernel: number(6)? & KERNEL_THREAD != 0,
            runs: fields.first() == Some(&"R"),
            ticks: (11..15).map(number).sum::<Option<u64>>()?,
        })
    }
}

fn is_ours(process: &Process, all: &HashMap<u32, Process>) -> bool {
    let own = std::process::id();
    let mut at = Some(process);
    // No chain of parents is longer than there are processes, but they are not read at one moment.
    for _ in 0..all.len() {
        match at {
            Some(one) if one.pid == own => return true,
            Some(one) => at = all.get(&one.parent),
            None => return false,
        }
    }
    false
}

/// Documentation/accounting/psi.rst: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`; a kernel without says nothing.
fn pressure_us(text: &str) -> u64 {
    let some = text.lines().find(|line| line.starts_with("some")).unwrap_or_default();
    some.split_once("total=").and_then(|(_, total)| total.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn quiet() -> Load {
        Load { seconds: 10.0, cpus: 2, others_s: 0.1, pressure_s: 5.0, looks: 20, ..Load::default() }
    }

    #[test]
    fn a_quiet_machine_is_one_whose_time_is_ours() {
        assert_eq!(quiet().doubts(), [""; 0], "what waits is ours");
        let spoiled = [
            (Load { others_s: 9.5, pressure_s: 0.0, ..quiet() }, "other processes had 47 %"),
            (Load { steal_s: 1.2, ..quiet() }, "the hypervisor took 6 %"),
            (Load { runnable: 40, ..quiet() }, "2.0 other processes"),
            (Load { others_s: 0.5, ..quiet() }, "waited for a CPU 50 %"),
        ];
        for (load, doubt) in spoiled {
            let doubts = load.doubts();
            assert!(doubts.len() == 1 && doubts[0].contains(doubt), "{doubt}: {doubts:?}");
        }
    }

    #[test]
    fn a_short_round_is_not_spoiled_by_one_tick() {
        let short = Load { seconds: 0.1, cpus: 2, others_s: 0.02, looks: 1, runnable: 1, ..Load::default() };
        assert!(short.doubts().is_empty());
        assert!(!Load { others_s: 0.1, ..short }.doubts().is_empty());
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "7 (a) R 1 (b) R 3 7 7 0 -1 2097216 1 2 3 4 100 20 3 1 20 0 1 0 5 6 7";
        let process = Process::parse(stat).unwrap();
        assert_eq!((process.pid, process.parent, process.ticks), (7, 3, 124));
        assert!(process.runs && process.is_kernel);
        assert!(Process::parse("7 (a) R 1").is_none());
    }

    #[test]
    fn pressure_is_read_and_missing_pressure_is_none() {
        let text = "some avg10=1.39 avg60=9.46 avg300=9.73 total=70876584\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
        assert_eq!((pressure_us(text), pressure_us("")), (70_876_584, 0));
    }

    #[test]
    fn whoever_is_bound_to_a_cpu_is_watched_from_another() {
        let seen = thread::spawn(|| {
            keep_on(0).unwrap();
            (free_cpu(), cpus())
        });
        let (free, all) = seen.join().unwrap();
        assert_eq!(free, (all > 1).then_some(1));
        assert!(all >= thread::available_parallelism().unwrap().get());
    }

    /// A busy loop of ours is our own affair; one that nobody of ours has started makes the machine busy.
    #[test]
    fn busy_loops_are_told_apart_by_whose_they_are() {
        let mut mine = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        thread::sleep(Duration::from_millis(200));
        let (all, me) = (processes(), mine.id());
        let found = all.get(&me).map(|one| (is_ours(one, &all), one.runs));
        mine.kill().unwrap();
        mine.wait().unwrap();
        assert_eq!(found, Some((true, true)));
        assert!(!is_ours(&all[&1], &all) && Look::now().others > 0);
        let kernel = all.values().find(|one| one.is_kernel);
        assert!(kernel.is_none_or(|one| !is_ours(one, &all)));
    }
}
