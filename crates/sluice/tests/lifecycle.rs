//! Start, restart, crash, cleanup, and what the kernel changes meanwhile.

use crate::common;

use std::fs;
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, bpftool, refused, wait_until};
use sluice_abi::{active_epoch, active_routes};
use sluice_lab::netns::Netns;

#[test]
fn start_guards_forwarding() {
    let site = Site::new("guard");
    let _gateway = site.start(&site.write("a.conf", ""));
    let rules = site.gateway.run("nft", ["list", "table", "inet", "sluice_guard"]).unwrap();
    for direction in ["iifname", "oifname"] {
        let line = rules.lines().find(|l| l.contains(direction)).unwrap();
        assert!(
            line.contains("\"left0\"") && line.contains("\"right0\"") && line.contains("drop"),
            "{rules}"
        );
    }
    for family in ["ipv4", "ipv6"] {
        let forwarding = format!("/proc/sys/net/{family}/conf/left0/forwarding");
        assert_eq!(site.gateway.run("cat", [&forwarding]).unwrap().trim(), "1");
    }
    // Without programs the kernel would forward; the guard does not let it.
    fs::remove_dir_all(site.pins().join("links")).unwrap();
    // The kernel frees links in the background.
    std::thread::sleep(Duration::from_millis(300));
    assert!(site.silent(&site.left, "10.71.2.2"), "programs gone: closed");
    let rules = site.gateway.run("nft", ["list", "table", "inet", "sluice_guard"]).unwrap();
    assert!(!rules.lines().filter(|l| l.contains("packets")).all(|l| l.contains("packets 0 ")), "{rules}");
}

fn session_ids(gateway: &sluice_lab::gateway::Gateway) -> Vec<(u64, u64)> {
    let list = gateway.json("/api/sessions").unwrap();
    let sessions = list["sessions"].as_array().unwrap();
    sessions.iter().map(|s| (s["id"].as_u64().unwrap(), s["source_port"].as_u64().unwrap())).collect()
}

#[test]
fn restart_and_crash_keep_sessions_and_links() {
    let site = Site::new("restart");
    let conf = site.write("a.conf", "");
    let mut gateway = site.start(&conf);
    assert!(site.pings(&site.left, "10.71.2.2") && site.pings(&site.left, "fd71:2::2"));
    let (links, sessions) = (site.links(), session_ids(&gateway));
    assert_eq!((links.len(), sessions.len()), (4, 2));

    for crash in [false, true] {
        if crash {
            gateway.kill().unwrap();
        } else {
            assert!(gateway.stop().unwrap().success());
        }
        assert!(site.pings(&site.left, "10.71.2.2"), "the data plane forwards without its daemon");
        assert!(site.silent(&site.right, "10.71.1.2"), "and still drops");
        gateway.start().unwrap();
        assert_eq!(site.links(), links, "links are updated, never replaced");
        let now = session_ids(&gateway);
        assert!(sessions.iter().all(|s| now.contains(s)), "{sessions:?} in {now:?}");
        assert!(site.addresses("left0").contains("10.71.1.1/24"));
    }
}

/// Not one echo request is lost while the daemon restarts and commits.
#[test]
fn restart_and_commit_under_traffic_lose_nothing() {
    let site = Site::new("hitless");
    let conf = site.write("a.conf", "");
    let mut gateway = site.start(&conf);
    assert!(site.pings(&site.left, "10.71.2.2"));
    let mut ping = site.left.command("ping");
    ping.args(["-q", "-n", "-i", "0.002", "-c", "1500", "-W", "1", "10.71.2.2"]);
    let ping = Running::spawn(ping.stdout(std::process::Stdio::piped()));
    accepted(&site.commit(&conf));
    gateway.stop().unwrap();
    gateway.start().unwrap();
    gateway.kill().unwrap();
    gateway.start().unwrap();
    let text = common::stdout(&ping.ended("ping", Duration::from_secs(60)));
    assert!(text.contains(" 0% packet loss"), "{text}");
}

#[test]
fn a_second_instance_is_refused() {
    let site = Site::new("second");
    let conf = site.write("a.conf", "");
    let gateway = site.start(&conf);
    let pid = gateway.json("/health").unwrap()["pid"].as_u64().unwrap();
    let message = refused(&site.run(&["--config", &conf.display().to_string()]), 1);
    assert!(message.contains(&format!("pid {pid}")) && message.contains("--state-dir"), "{message}");
    assert!(refused(&site.sluice(&["cleanup"]), 1).contains(&format!("pid {pid}")));
    assert!(site.pings(&site.left, "10.71.2.2"), "the first one is not disturbed");
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let site = Site::new("failed");
    let run = |more: &str| {
        let conf = site.write("bad.conf", more).display().to_string();
        site.run(&["--config", &conf])
    };
    let message = refused(&run("set interfaces eth9 unit 0 family inet address 10.9.0.1/24\n"), 2);
    assert!(message.contains("interface eth9 does not exist here"), "{message}");
    let message = refused(&run("set routing-options static route 10.74.0.0/16 next-hop 192.0.2.77\n"), 1);
    assert!(message.contains("10.74.0.0/16"), "{message}");
    assert!(!site.pins().exists(), "no pins");
    assert!(!site.addresses("left0").contains("10.71.1.1"), "no addresses");
    assert!(!site.gateway.run("nft", ["list", "tables"]).unwrap().contains("sluice"), "no guard");
}

#[test]
fn cleanup_removes_everything() {
    let site = Site::new("cleanup");
    // An address that was there before stays.
    site.gateway.ip("address add 10.71.1.1/24 dev left0").unwrap();
    let mut gateway =
        site.start(&site.write("a.conf", "set routing-options static route 10.74.0.0/16 discard\n"));
    gateway.stop().unwrap();
    assert!(site.addresses("right0").contains("10.71.2.1"), "SIGTERM removes nothing");
    accepted(&site.sluice(&["cleanup"]));
    assert!(!site.pins().exists());
    assert!(
        site.addresses("left0").contains("10.71.1.1/24") && !site.addresses("left0").contains("fd71:1::1")
    );
    assert!(!site.addresses("right0").contains("10.71.2.1"));
    assert!(!site.gateway.ip("route show").unwrap().contains("10.74.0.0/16"));
    assert!(!site.gateway.run("nft", ["list", "tables"]).unwrap().contains("sluice"));
    let forwarding = site.gateway.run("cat", ["/proc/sys/net/ipv4/conf/left0/forwarding"]).unwrap();
    assert_eq!(forwarding.trim(), "0", "the kernel must not forward in our place");
    accepted(&site.sluice(&["cleanup"]));
}

/// dmac of a next hop.
fn next_hop_mac(site: &Site, index: u8) -> String {
    let pin = site.pins().join("nexthops").display().to_string();
    let byte = |v: &serde_json::Value| v.as_str().unwrap().trim_start_matches("0x").to_owned();
    let entry = bpftool(&["map", "lookup", "pinned", &pin, "key", &index.to_string(), "0", "0", "0"]);
    let bytes: Vec<String> = entry["value"].as_array().unwrap()[..6].iter().map(byte).collect();
    bytes.join(":")
}

#[test]
fn a_neighbour_that_moves_is_followed_within_100_ms() {
    let site = Site::new("neigh");
    let _gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let link = site.right.ip("-brief link show dev eth0").unwrap();
    let old = link.split_whitespace().nth(2).unwrap();
    let mut index = None;
    wait_until("a next hop has the host's MAC", Duration::from_secs(5), || {
        index = (2..8).find(|index| next_hop_mac(&site, *index) == old);
        index.is_some()
    });
    let index = index.unwrap();
    let moves = |moved: &String| {
        site.gateway.ip(&format!("neigh replace 10.71.2.2 dev right0 lladdr {moved}")).unwrap();
        wait_until("the next hop follows", Duration::from_secs(5), || next_hop_mac(&site, index) == *moved)
            < Duration::from_millis(100)
    };
    // a busy machine may take longer once
    let moved =
        (10..18).map(|n| format!("02:71:00:00:00:{n}")).find(moves).expect("one that is followed at once");
    assert!(site.silent(&site.left, "10.71.2.2"), "frames go to the new address, where nobody listens");
    site.right.ip(&format!("link set eth0 address {moved}")).unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"));
}

#[test]
fn routes_have_a_generation_of_their_own_within_100_ms_and_for_bursts_only_a_few() {
    let site = Site::new("routes");
    let _gateway = site.start(&site.write("a.conf", ""));
    std::thread::sleep(Duration::from_millis(300));
    let routes = || active_routes(site.active());
    let epoch = active_epoch(site.active());
    // a busy machine may take longer once
    let soon = (0..8).any(|number| {
        let before = routes();
        site.gateway.ip(&format!("route add 10.80.{number}.0/24 via 10.71.2.2")).unwrap();
        let took = wait_until("it rises", Duration::from_secs(2), || routes() != before);
        took < Duration::from_millis(100)
    });
    assert!(soon, "a change is not seen within 100 ms");
    let lines: String =
        (0..2000).map(|n| format!("route add 10.81.{}.{}/32 via 10.71.2.2\n", n / 256, n % 256)).collect();
    let (before, begun) = (routes(), Instant::now());
    site.gateway.ip_batch(&lines).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let (risen, most) = (routes().wrapping_sub(before), begun.elapsed().as_millis() / 50 + 2);
    assert!(risen >= 1 && u128::from(risen) <= most, "{risen} generations in {:?}", begun.elapsed());
    assert_eq!(active_epoch(site.active()), epoch, "commits alone raise it");
}

#[test]
fn an_interface_that_comes_back_is_attached_again() {
    let site = Site::new("back");
    let gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"));
    site.gateway.ip("link del right0").unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(gateway.json("/api/stats").unwrap()["interfaces"][1]["mode"], "detached");
    let again = Netns::create("back-again").unwrap();
    site.connect(&again, "right0", &["10.71.2.2/24"]);
    again.ip("route add default via 10.71.2.1").unwrap();
    wait_until("the device is attached again", Duration::from_secs(10), || {
        gateway.json("/api/stats").unwrap()["interfaces"][1]["mode"] == "tc"
    });
    assert!(site.addresses("right0").contains("10.71.2.1/24"));
    assert!(site.pings(&site.left, "10.71.2.2"));
}

#[test]
fn an_address_that_comes_from_elsewhere_is_this_hosts() {
    let site = Site::new("addr");
    let _gateway = site.start(&site.write("a.conf", ""));
    assert!(site.silent(&site.left, "10.71.1.77"));
    site.gateway.ip("address add 10.71.1.77/24 dev left0").unwrap();
    wait_until("the address answers", Duration::from_secs(2), || site.pings(&site.left, "10.71.1.77"));
}
