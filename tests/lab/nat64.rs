//! `sluice lab run nat64` as a user runs it: an IPv6-only client, IPv4-only servers, a resolver with DNS64.

use crate::common::lab;

#[test]
fn an_ipv6_only_client_reaches_ipv4_servers() {
    let text = lab("nat64");
    assert_eq!(text.matches("Checksum errors in the hosts' stacks: none").count(), 2, "{text}");
    assert_eq!(text.matches("  ok   ").count(), 20, "{text}");
}
