//! `then log` and `then count`: what policies tell about their sessions, IPv4 and IPv6, also over a restart.

use crate::common;

use std::time::Duration;

use common::{BASE, Running, Site, accepted, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;

const LOGGED: &str = "\
set security policies from-zone left to-zone right policy out then log session-init
set security policies from-zone left to-zone right policy out then log session-close
set security policies from-zone left to-zone right policy out then count
set security policies from-zone right to-zone left policy none match source-address any
set security policies from-zone right to-zone left policy none match destination-address any
set security policies from-zone right to-zone left policy none match application any
set security policies from-zone right to-zone left policy none then deny
set security policies from-zone right to-zone left policy none then log session-init
";

/// Entries of an event as (fields as one object).
fn entries(gateway: &Gateway, event: &str) -> Vec<Value> {
    let log = gateway.json("/api/log?last=1000").unwrap();
    let of_event = log.as_array().unwrap().iter().filter(|entry| entry["event"] == event);
    of_event
        .map(|entry| {
            let fields = entry["fields"].as_array().unwrap().iter();
            fields.map(|f| (f[0].as_str().unwrap().to_owned(), f[1].clone())).collect()
        })
        .collect()
}

fn wait_for(gateway: &Gateway, event: &str, count: usize) -> Vec<Value> {
    wait_until(event, Duration::from_secs(5), || entries(gateway, event).len() >= count);
    entries(gateway, event)
}

#[test]
fn sessions_are_logged_and_counted() {
    let site = Site::new("log");
    let mut gateway = site.start(&site.write("a.conf", LOGGED));
    assert!(site.pings(&site.left, "10.71.2.2") && site.pings(&site.left, "fd71:2::2"));
    assert!(site.silent(&site.right, "10.71.1.2"));

    let created = wait_for(&gateway, "RT_FLOW_SESSION_CREATE", 2);
    assert_eq!(created.len(), 2, "{created:?}");
    assert_eq!(created[0]["source-address"], "10.71.1.2");
    assert_eq!(created[0]["destination-address"], "10.71.2.2");
    assert_eq!(created[0]["protocol-id"], "1");
    assert_eq!(created[0]["policy-name"], "out");
    assert_eq!(created[0]["source-zone-name"], "left");
    assert_eq!(created[0]["destination-zone-name"], "right");
    assert_eq!(created[0]["packet-incoming-interface"], "left0.0");
    assert_eq!((&created[0]["service-name"], &created[0]["destination-port"]), (&"icmp".into(), &"0".into()));
    assert_eq!(created[0]["nat-source-address"], "10.71.1.2");
    assert_eq!(created[1]["destination-address"], "fd71:2::2");
    let sessions = accepted(&site.sluice(&["show", "sessions"]));
    assert!(sessions.contains("10.71.2.2") && !sessions.contains(":2048"), "{sessions}");
    let denied = wait_for(&gateway, "RT_FLOW_SESSION_DENY", 1);
    assert_eq!(
        (&denied[0]["policy-name"], &denied[0]["source-zone-name"]),
        (&"none".into(), &"right".into())
    );

    // Live sessions are counted before they end, and once only after it.
    let counted = || {
        let policies = gateway.json("/api/policies").unwrap();
        let out = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "out").unwrap().clone();
        (out["packets"].as_u64().unwrap(), out["bytes"].as_u64().unwrap())
    };
    // One echo and its answer each way: 84 bytes in IPv4, 104 in IPv6.
    assert_eq!(counted(), (4, 2 * 84 + 2 * 104));
    accepted(&site.sluice(&["clear", "sessions"]));
    let closed = wait_for(&gateway, "RT_FLOW_SESSION_CLOSE", 2);
    assert_eq!(counted(), (4, 2 * 84 + 2 * 104));
    let v4 = closed.iter().find(|entry| entry["source-address"] == "10.71.1.2").unwrap();
    assert_eq!((&v4["reason"], &v4["packets-from-client"]), (&"cleared".into(), &"1".into()));
    assert_eq!((&v4["bytes-from-client"], &v4["bytes-from-server"]), (&"84".into(), &"84".into()));
    assert_eq!(v4["session-id-32"], created[0]["session-id-32"]);

    // What happens without a daemon waits in the buffer for the next one.
    gateway.kill().unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"));
    gateway.start().unwrap();
    wait_for(&gateway, "RT_FLOW_SESSION_CREATE", 1);
    let shown = accepted(&site.sluice(&["show", "log"]));
    assert!(shown.contains("Z RT_FLOW_SESSION_CREATE source-address=\"10.71.1.2\""), "{shown}");
}

#[test]
fn a_session_that_a_commit_forbids_says_so() {
    let site = Site::new("revoke");
    let gateway = site.start(&site.write("a.conf", LOGGED));
    let _ping = Running::spawn(site.left.command("ping").args(["-i", "0.1", "-c", "100", "-n", "10.71.2.2"]));
    wait_for(&gateway, "RT_FLOW_SESSION_CREATE", 1);
    let denying = format!("{BASE}{LOGGED}").replace("policy out then permit", "policy out then deny");
    accepted(&site.commit(&site.write_all("b.conf", &denying)));
    let closed = wait_for(&gateway, "RT_FLOW_SESSION_CLOSE", 1);
    assert_eq!(closed[0]["reason"], "policy changed");
}
