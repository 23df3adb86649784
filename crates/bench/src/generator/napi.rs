//! A device's receiving in a thread of the kernel, on a CPU of one's choice and ahead of every process, as interrupts are.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use sluice_lab::netns::Netns;

use crate::method::affinity::pin_other;

/// The thread that polls a device with one queue.
pub struct NapiThread(Pid);

impl NapiThread {
    /// The device must poll already, for GRO or an XDP program.
    pub fn of(netns: &Netns, device: &str, cpu: usize) -> Result<NapiThread> {
        let before = threads(device);
        // /sys shows the namespace that it was mounted in: `ip netns exec` mounts it anew
        let order = format!("echo 1 > /sys/class/net/{device}/threaded");
        netns.run("ip", ["netns", "exec", netns.name(), "sh", "-c", &order])?;
        let after = threads(device);
        let new: Vec<i32> = after.difference(&before).copied().collect();
        ensure!(new.len() == 1, "{device} has {} threads that poll it, not one", new.len());
        let thread = Pid::from_raw(new[0]);
        pin_other(thread, cpu)?;
        Ok(NapiThread(thread))
    }

    /// CPU time by the clock of the scheduler.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let path = format!("/proc/{}/schedstat", self.0);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let first = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
        Ok(first.with_context(|| format!("{path}: {text}"))? / 1e9)
    }
}

/// Threads of all devices of this name: `napi/out0-8193`.
fn threads(device: &str) -> BTreeSet<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let prefix = format!("napi/{device}-");
    let one = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(entry.path().join("comm")).ok()?.starts_with(&prefix).then_some(pid)
    };
    entries.flatten().filter_map(one).collect()
}
