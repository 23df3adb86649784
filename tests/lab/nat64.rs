//! `sluice lab run nat64` as a user runs it: an IPv6-only client, IPv4-only servers, a resolver with DNS64.

use std::process::Command;

#[test]
fn an_ipv6_only_client_reaches_ipv4_servers() {
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["lab", "run", "nat64", "--hook", "both"])
        .output()
        .unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(text.matches("Checksum errors in the hosts' stacks: none").count(), 2, "{text}");
    assert_eq!(text.matches("  ok   ").count(), 20, "{text}");
}
