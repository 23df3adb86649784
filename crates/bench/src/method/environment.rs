//! What a figure was measured on, recorded with it.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Held by everything on this machine that takes time.
const LOCK: &str = "/tmp/sluice-bench.lock";

/// Of the programs in this binary.
pub const BPF_SOURCES: &str = env!("SLUICE_BPF_SOURCES");

/// The machine and the program that measured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// `uname -r`
    pub kernel: String,
    /// Model name of the first one.
    pub cpu: String,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// Of the machine.
    pub memory_mib: u64,
    /// What the kernel tells the time by: `tsc`, `kvm-clock`.
    pub clocksource: String,
    /// Version of Sluice.
    pub sluice: String,
    /// What `git describe --always --dirty` says where the run began; empty outside of a repository.
    #[serde(default)]
    pub commit: String,
    /// Hash of the sources below bpf/ that this program was built from.
    #[serde(default)]
    pub bpf_sources: String,
    /// One-minute load average when the run began.
    pub load: f64,
    /// Share of CPU time the hypervisor took during the run, and share spent by others on the bench's CPU.
    pub steal_percent: f64,
    #[serde(skip)]
    began: CpuTimes,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTimes {
    pub total: u64,
    pub steal: u64,
}

impl Environment {
    /// As it is now; `end` adds what others took meanwhile.
    pub fn begin() -> Environment {
        let cpu_info = read("/proc/cpuinfo");
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        Environment {
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: field(&cpu_info, "model name").unwrap_or_else(|| "unknown".to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0u64)
                / 1024,
            clocksource: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            sluice: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            bpf_sources: BPF_SOURCES.to_owned(),
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or(f64::NAN),
            steal_percent: 0.0,
            began: CpuTimes::now(),
        }
    }

    /// Completes what is known only at the end.
    pub fn end(mut self) -> Environment {
        let now = CpuTimes::now();
        let total = now.total.saturating_sub(self.began.total).max(1);
        self.steal_percent = 100.0 * now.steal.saturating_sub(self.began.steal) as f64 / total as f64;
        self
    }

    /// Everything, for the report.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("Kernel", format!("Linux {}", self.kernel)),
            ("CPU", format!("{} x {}", self.cpus, self.cpu)),
            ("Memory", format!("{} MiB", self.memory_mib)),
            ("Clock source", self.clocksource.clone()),
            ("Sluice", format!("{}, commit {}", self.sluice, self.commit)),
            ("Load", format!("{:.2} when it began", self.load)),
            ("Stolen", format!("{:.2} % of CPU time by the hypervisor during the run", self.steal_percent)),
        ]
    }

    /// Two lines for a terminal.
    pub fn lines(&self) -> String {
        format!(
            "Linux {}, {} x {}, {} MiB, clock {}, sluice {}\nload {:.2} when it began, {:.1} % stolen by the hypervisor",
            self.kernel,
            self.cpus,
            self.cpu,
            self.memory_mib,
            self.clocksource,
            self.sluice,
            self.load,
            self.steal_percent
        )
    }
}

impl CpuTimes {
    /// First line of /proc/stat, proc_stat(5): user nice system idle iowait irq softirq steal.
    pub fn now() -> CpuTimes {
        let stat = read("/proc/stat");
        let line = stat.lines().next().unwrap_or_default();
        let times: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        CpuTimes { total: times.iter().take(8).sum(), steal: times.get(7).copied().unwrap_or(0) }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn commit() -> String {
    let said = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    let text = said.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8_lossy(&text.unwrap_or_default()).trim().to_owned()
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Waits for the machine's one stopwatch.
pub fn exclusive() -> Result<Flock<File>> {
    let file = File::options()
        .create(true)
        .append(true)
        .open(LOCK)
        .with_context(|| format!("cannot open {LOCK}"))?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, _)) => {
            eprintln!("waiting for another measurement to end ({LOCK}, fd {})", file.as_raw_fd());
            Flock::lock(file, FlockArg::LockExclusive)
                .map_err(|(_, errno)| errno)
                .with_context(|| format!("cannot lock {LOCK}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let environment = Environment::begin().end();
        assert!(environment.kernel.starts_with(|c: char| c.is_ascii_digit()), "{}", environment.kernel);
        assert!(environment.cpus >= 1 && environment.memory_mib > 0);
        assert!((0.0..=100.0).contains(&environment.steal_percent));
    }
}
