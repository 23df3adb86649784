//! The guard: the kernel never forwards by itself between devices that Sluice manages.
//!
//! A detached program, a device that came back, or a crash then fails closed. The table stays when the daemon ends.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use super::{KernelError, ethtool};

/// Replaces the table in one transaction. Devices are met by name, for those that are made anew, and by number, for those
/// that are renamed.
pub fn install(devices: &BTreeSet<String>) -> Result<(), KernelError> {
    nft(&ruleset(devices, &numbers(devices), &bridges(devices)))
}

fn numbers(devices: &BTreeSet<String>) -> BTreeSet<u32> {
    devices.iter().filter_map(|device| if_nametoindex(device.as_str()).ok()).collect()
}

/// Bridges among the devices, with their MAC addresses.
fn bridges(devices: &BTreeSet<String>) -> Vec<(String, String)> {
    let all = getifaddrs().into_iter().flatten().filter(|entry| devices.contains(&entry.interface_name));
    let bridges = all.filter_map(|entry| {
        let mac = entry.address?.as_link_addr()?.addr()?;
        let is_bridge = ethtool::driver(&entry.interface_name).is_ok_and(|driver| driver == "bridge");
        is_bridge.then(|| (entry.interface_name, mac.map(|byte| format!("{byte:02x}")).join(":")))
    });
    bridges.collect()
}

pub fn remove() -> Result<(), KernelError> {
    nft("table inet sluice_guard\ndelete table inet sluice_guard\n")
}

pub fn is_installed() -> bool {
    listing().is_some()
}

/// Whether it is there as it was installed. Rulesets that others load often begin with `flush ruleset`.
pub fn stands(devices: &BTreeSet<String>) -> bool {
    let expected = ruleset(devices, &numbers(devices), &bridges(devices));
    listing().is_some_and(|listing| is_whole(&listing, &expected, devices))
}

/// nft has its own words for the same rules: their number and the devices' names are compared.
fn is_whole(listing: &str, expected: &str, devices: &BTreeSet<String>) -> bool {
    let rules = |text: &str| text.lines().filter(|line| ends_a_rule(line.trim())).count();
    let named = |device: &String| listing.matches(&format!("\"{device}\"")).count() >= 2;
    rules(listing) == rules(expected) && devices.iter().all(named)
}

/// nft breaks long sets into lines.
fn ends_a_rule(line: &str) -> bool {
    let frames = ["table ", "delete ", "chain ", "type ", "}"];
    !line.is_empty() && !line.ends_with([',', '{']) && !frames.iter().any(|frame| line.starts_with(frame))
}

/// Without what is counted.
fn listing() -> Option<String> {
    let list = ["--stateless", "list", "table", "inet", "sluice_guard"];
    let output = Command::new("nft").args(list).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ruleset(devices: &BTreeSet<String>, numbers: &BTreeSet<u32>, bridges: &[(String, String)]) -> String {
    let mut text =
        "table inet sluice_guard\ndelete table inet sluice_guard\ntable inet sluice_guard {\n".to_owned();
    text += "  chain forward {\n    type filter hook forward priority filter - 10; policy accept;\n";
    // With bridge-nf-call-iptables the kernel asks here about frames that a bridge only switches: none are for its own address.
    for (bridge, mac) in bridges {
        let _ = writeln!(text, "    iifname \"{bridge}\" oifname \"{bridge}\" ether daddr != {mac} accept");
    }
    if !devices.is_empty() {
        let names: Vec<String> = devices.iter().map(|d| format!("\"{d}\"")).collect();
        let names = names.join(", ");
        for direction in ["iifname", "oifname"] {
            let _ = writeln!(text, "    {direction} {{ {names} }} counter drop");
        }
    }
    if !numbers.is_empty() {
        let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
        let numbers = numbers.join(", ");
        for direction in ["iif", "oif"] {
            let _ = writeln!(text, "    {direction} {{ {numbers} }} counter drop");
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
        let names = BTreeSet::from(["trust0".to_owned(), "wan0.100".to_owned()]);
        let text =
            ruleset(&names, &BTreeSet::from([4, 7]), &[("br0".to_owned(), "02:00:00:00:00:01".to_owned())]);
        assert!(text.contains("iif { 4, 7 } counter drop"), "{text}");
        let switched = "iifname \"br0\" oifname \"br0\" ether daddr != 02:00:00:00:00:01 accept";
        assert!(text.find(switched) < text.find("counter drop"), "{text}");
        assert!(text.contains("iifname { \"trust0\", \"wan0.100\" } counter drop"), "{text}");
        assert!(text.contains("oifname { \"trust0\", \"wan0.100\" } counter drop"), "{text}");
    }

    #[test]
    fn a_guard_that_others_have_changed_does_not_stand() {
        let devices = BTreeSet::from(["left0".to_owned(), "right0".to_owned()]);
        let expected = ruleset(&devices, &BTreeSet::from([4, 7]), &[]);
        let listed = "table inet sluice_guard {\n\tchain forward {\n\t\ttype filter hook forward priority filter - 10; policy accept;\n\
                      \t\tiifname { \"left0\", \"right0\" } counter drop\n\t\toifname { \"left0\", \"right0\" } counter drop\n\
                      \t\tiif { \"left0\", \"right0\" } counter drop\n\t\toif { \"left0\", \"right0\" } counter drop\n\t}\n}\n";
        assert!(is_whole(listed, &expected, &devices));
        let broken = listed.replace("{ \"left0\", \"right0\"", "{ \"left0\",\n\t\t\t  \"right0\"");
        assert!(is_whole(&broken, &expected, &devices), "{broken}");
        for other in [
            listed.replace("\t\tiif {", "\t\taccept\n\t\tiif {"),
            listed.replace("\t\tiif {", "\t\tjump elsewhere\n\t\tiif {"),
            listed.replace("\t\tiif {", "\t\tiifname \"left0\" accept\n\t\tiif {"),
            listed.replace("\"right0\"", "\"other0\""),
            "table inet sluice_guard {\n\tchain forward {\n\t}\n}\n".to_owned(),
            "table inet sluice_guard {\n}\n".to_owned(),
        ] {
            assert!(!is_whole(&other, &expected, &devices), "{other}");
        }
    }

    #[test]
    fn an_empty_guard_has_no_empty_set() {
        assert!(!ruleset(&BTreeSet::new(), &BTreeSet::new(), &[]).contains("iif"));
    }
}
