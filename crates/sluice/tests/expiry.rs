//! Sessions end by being idle while no daemon lives: the kernel's timer sweeps. On both hooks.

use crate::common;

use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{Site, accepted, bpftool, wait_until};

const SHORT: &str = "\
set security flow icmp-timeout 4
set security policies from-zone left to-zone right policy out then log session-close
set security policies from-zone left to-zone right policy out then count
set system services sluice mode ";

/// Sessions that the timer's sweep has ended, as the pinned map says.
fn expired(site: &Site) -> u64 {
    let map = site.pins().join("sweeps").display().to_string();
    let bytes = bpftool(&["map", "lookup", "pinned", &map, "key", "0", "0", "0", "0"]);
    let value = bytes["value"].as_array().unwrap();
    let byte =
        |at: usize| u8::from_str_radix(value[at].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    // expired4 and expired6 of `struct sweep`
    [32, 40].map(|at| u64::from_le_bytes(std::array::from_fn(|i| byte(at + i)))).iter().sum()
}

fn idle_sessions_end_without_a_daemon(label: &str, mode: &str) {
    let site = Site::new(label);
    // what XDP redirects to a veth arrives when its far end polls
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
    }
    let mut gateway = site.start(&site.write("a.conf", &format!("{SHORT}{mode}\n")));
    assert!(site.pings(&site.left, "10.71.2.2") && site.pings(&site.left, "fd71:2::2"));
    let last_packet = Instant::now();
    gateway.kill().unwrap();
    assert_eq!(expired(&site), 0);
    sleep(Duration::from_millis(3500).saturating_sub(last_packet.elapsed()));
    assert_eq!(expired(&site), 0, "not before their time");
    wait_until("both sessions end", Duration::from_secs(4), || expired(&site) == 2);
    let after = last_packet.elapsed();
    assert!(after < Duration::from_millis(5800), "they ended after {after:?}, their time is 4 s");

    // a daemon that comes back finds them gone, and their end in the log and in the policy's counters
    gateway.start().unwrap();
    assert_eq!(gateway.json("/api/sessions").unwrap()["total"], 0);
    let closed = || accepted(&site.sluice(&["show", "log"])).matches("reason=\"idle Timeout\"").count();
    wait_until("their ends are logged", Duration::from_secs(5), || closed() == 2);
    let policies = gateway.json("/api/policies").unwrap();
    let out = policies.as_array().unwrap().iter().find(|policy| policy["name"] == "out").unwrap();
    assert_eq!((&out["packets"], &out["bytes"]), (&4.into(), &(2 * 84 + 2 * 104).into()));

    // and the sweep goes on with the new daemon's programs, over a commit too
    let passes = || gateway.json("/api/stats").unwrap()["sweeps"].as_u64().unwrap();
    accepted(&site.commit(&site.dir().join("a.conf")));
    let before = passes();
    wait_until("another pass", Duration::from_secs(4), || passes() > before + 1);
}

#[test]
fn idle_sessions_end_without_a_daemon_on_tc() {
    idle_sessions_end_without_a_daemon("expiretc", "tc");
}

#[test]
fn idle_sessions_end_without_a_daemon_on_xdp() {
    idle_sessions_end_without_a_daemon("expirexdp", "xdp");
}
