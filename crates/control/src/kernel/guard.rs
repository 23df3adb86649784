//! The guard: the kernel never forwards by itself between devices that Sluice manages.
//!
//! A detached program, a device that came back, or a crash then fails closed. The table stays when the daemon ends.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::KernelError;

/// Replaces the table in one transaction.
pub fn install(devices: &BTreeSet<String>) -> Result<(), KernelError> {
    nft(&ruleset(devices))
}

pub fn remove() -> Result<(), KernelError> {
    nft("table inet sluice_guard\ndelete table inet sluice_guard\n")
}

pub fn is_installed() -> bool {
    let list =
        Command::new("nft").args(["list", "table", "inet", "sluice_guard"]).stdin(Stdio::null()).output();
    list.is_ok_and(|output| output.status.success())
}

fn ruleset(devices: &BTreeSet<String>) -> String {
    let mut text =
        "table inet sluice_guard\ndelete table inet sluice_guard\ntable inet sluice_guard {\n".to_owned();
    text += "  chain forward {\n    type filter hook forward priority filter - 10; policy accept;\n";
    if !devices.is_empty() {
        let names: Vec<String> = devices.iter().map(|d| format!("\"{d}\"")).collect();
        let names = names.join(", ");
        for direction in ["iifname", "oifname"] {
            let _ = writeln!(text, "    {direction} {{ {names} }} counter drop");
        }
    }
    text + "  }\n}\n"
}

fn nft(text: &str) -> Result<(), KernelError> {
    let fail = |reason: String| KernelError {
        action: "install table inet sluice_guard with nft".to_owned(),
        reason,
        advice: "install the nftables package and run as root",
    };
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| fail(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes()).map_err(|e| fail(e.to_string()))?;
    }
    let output = child.wait_with_output().map_err(|e| fail(e.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(fail(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_both_directions_of_every_device() {
        let text = ruleset(&BTreeSet::from(["trust0".to_owned(), "wan0.100".to_owned()]));
        assert!(text.contains("iifname { \"trust0\", \"wan0.100\" } counter drop"), "{text}");
        assert!(text.contains("oifname { \"trust0\", \"wan0.100\" } counter drop"), "{text}");
    }

    #[test]
    fn an_empty_guard_has_no_empty_set() {
        assert!(!ruleset(&BTreeSet::new()).contains("iifname"));
    }
}
