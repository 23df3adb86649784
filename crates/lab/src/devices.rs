//! What the kernel counts of devices.

use std::process::Command;

use anyhow::{Context, Result};

use crate::netns::Netns;

/// A counter of a device of `netns` as `ip -s link` has it, like `tx/packets`.
pub fn count(netns: &Netns, device: &str, counter: &str) -> Result<u64> {
    read(&netns.run("ip", shown(device))?, counter)
}

/// The same in the calling thread's namespace.
pub fn count_here(device: &str, counter: &str) -> Result<u64> {
    let output = Command::new("ip").args(shown(device)).output().context("cannot run `ip`")?;
    read(&String::from_utf8_lossy(&output.stdout), counter)
}

fn shown(device: &str) -> [&str; 6] {
    ["-json", "-stats", "link", "show", "dev", device]
}

fn read(text: &str, counter: &str) -> Result<u64> {
    let links: serde_json::Value = serde_json::from_str(text)?;
    let count = links.pointer(&format!("/0/stats64/{counter}")).and_then(serde_json::Value::as_u64);
    count.with_context(|| format!("`ip -s link` counts no {counter}"))
}
