//! What users rely on, across versions: connections, their numbers, translations and grants, and what was counted.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;
use sluice_lab::stats;

use crate::common::{BINARY, Site, accepted};
use crate::load::{Load, serve_echo};
use crate::trees;

/// left needs grants and is translated, third is neither, and nobody may go to third.
const MORE: &str = "
set interfaces third0 unit 0 family inet address 10.71.3.1/24
set interfaces third0 unit 0 family inet6 address fd71:3::1/64
set security zones security-zone third interfaces third0.0
set security policies from-zone third to-zone right policy on match source-address any
set security policies from-zone third to-zone right policy on match destination-address any
set security policies from-zone third to-zone right policy on match application any
set security policies from-zone third to-zone right policy on then permit
set security nat proxy-arp interface right0.0 address 10.71.2.10/32
set security nat source pool p address 10.71.2.10/32
set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule r match source-address 10.71.1.0/24
set security nat source rule-set out rule r then source-nat pool p
set services gate zone left
set services gate service db destination-address 10.71.2.2
set services gate service db protocol tcp
set services gate service db destination-port 5432
";

const LONG: usize = 12;

pub struct Bed {
    pub site: Site,
    third: Arc<Netns>,
}

impl Bed {
    pub fn new(label: &str, hook: &str) -> (Bed, std::path::PathBuf) {
        let site = Site::new(label);
        let third = Arc::new(Netns::create(&format!("{label}-t")).unwrap());
        site.connect_third(&third);
        for (netns, device) in [(&site.left, "left0"), (&site.right, "right0"), (&third, "third0")] {
            // native redirects need checksums in the frames, and a peer that polls
            netns.run("ethtool", ["-K", "eth0", "tx", "off"]).unwrap();
            netns.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
            site.gateway.run("ethtool", ["-K", device, "gro", "on"]).unwrap();
        }
        let modes: String = ["left0", "right0", "third0"]
            .map(|device| format!("set interfaces {device} mode {hook}\n"))
            .concat();
        let conf = site.write("a.conf", &format!("{MORE}{modes}"));
        serve_echo(&site.right, "10.71.2.2:5432");
        serve_echo(&site.right, "[fd71:2::2]:5432");
        (Bed { site, third }, conf)
    }

    /// Everything that must not notice, on its way.
    pub fn load(&self) -> Load {
        let mut load = Load::new();
        load.stay(&self.site.left, "10.71.2.2:5432", LONG);
        load.stay(&self.third, "10.71.2.2:5432", LONG);
        load.stay(&self.third, "[fd71:2::2]:5432", LONG);
        load.come_and_go(self.third.clone(), "10.71.2.2:5432");
        load.come_and_go(self.third.clone(), "[fd71:2::2]:5432");
        load.come_and_go(Arc::new(Netns::open(self.site.left.name()).unwrap()), "10.71.2.2:5432");
        load.intrude(&self.site.right, &self.third, "10.71.3.2:9");
        load.intrude(&self.site.left, &self.site.right, "10.71.2.2:9");
        load
    }
}

/// Number, tuple, translation and rule of each session that is established and old enough to be one of those that stay.
pub fn sessions(gateway: &Gateway) -> BTreeMap<u64, Vec<Value>> {
    let list = gateway.json("/api/sessions?limit=10000").unwrap();
    let names =
        ["source", "source_port", "out_destination", "out_destination_port", "nat_source_rule", "policy"];
    let of = |session: &Value| names.iter().map(|name| session[*name].clone()).collect();
    let all = list["sessions"].as_array().unwrap();
    let long = all.iter().filter(|s| s["state"] == "established" && s["packets"][0].as_u64() > Some(20));
    long.map(|session| (number(session), of(session))).collect()
}

/// Each family numbers its own.
fn number(session: &Value) -> u64 {
    session["id"].as_u64().unwrap() + session["family"].as_u64().unwrap() * 1_000_000
}

fn counted(gateway: &Gateway) -> BTreeMap<String, u64> {
    let stats = gateway.json("/api/stats").unwrap();
    let mut counted = BTreeMap::new();
    for drop in stats["drops"].as_array().unwrap() {
        counted.insert(format!("drops {}", drop["reason"]), drop["packets"].as_u64().unwrap());
    }
    for interface in stats["interfaces"].as_array().unwrap() {
        for (name, value) in interface["counters"].as_object().unwrap() {
            if let Some(value) = value.as_u64() {
                counted.insert(format!("{} {name}", interface["name"]), value);
            }
        }
    }
    counted
}

/// Two CPUs at a time send into a veth here, and its count of frames from XDP then loses some, as it is no atomic one. What
/// left by XDP is counted where one CPU sends: tests/lab/hitless.rs.
pub fn check_equations(gateway: &Gateway, hook: &str) {
    let stats = stats::at_rest(gateway).unwrap();
    assert!(stats.equations.ingress.holds(), "{stats:#?}");
    assert!(hook == "xdp" || stats.equations.egress.holds(), "{stats:#?}");
}

fn change(gateway: &mut Gateway, program: &Path) {
    gateway.kill().unwrap();
    thread::sleep(Duration::from_millis(100));
    gateway.set_program(program);
    gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
    thread::sleep(Duration::from_millis(400));
}

/// From the first version to each of the others in turn.
fn check(label: &str, hook: &str, versions: &[&Path]) {
    let (bed, conf) = Bed::new(label, hook);
    let site = &bed.site;
    let mut gateway = Gateway::new(versions[0], &site.gateway, &conf, &site.state()).unwrap();
    gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
    accepted(&site.sluice(&["gate", "grant", "--user", "alice", "--source", "10.71.1.2", "--service", "db"]));
    let links = site.links();
    let load = bed.load();
    thread::sleep(Duration::from_millis(500));
    let before = sessions(&gateway);
    let grants = gateway.json("/api/gate/grants").unwrap();
    assert_eq!(before.len(), 3 * LONG, "{before:?}");

    for (step, program) in versions[1..].iter().enumerate() {
        let (counts, words) = (counted(&gateway), load.seen.words.load(Ordering::Relaxed));
        change(&mut gateway, program);
        let now = sessions(&gateway);
        for (id, session) in &before {
            assert_eq!(now.get(id), Some(session), "step {step}: session {id}; {:?}", load.seen);
        }
        let counts_now = counted(&gateway);
        // but for what only the twin counts
        for (name, count) in counts.iter().filter(|(name, _)| !name.ends_with(" twin")) {
            assert!(counts_now.get(name) >= Some(count), "step {step}: {name} was {count}: {counts_now:?}");
        }
        assert!(load.seen.words.load(Ordering::Relaxed) > words, "nobody talks any more");
        assert_eq!(site.links(), links, "links are updated, never replaced");
        assert!(!site.pins().join("programs_xdp").exists(), "the earlier state is put away");
    }
    let seen = load.finish();
    let now = gateway.json("/api/gate/grants").unwrap();
    assert_eq!(now["grants"][0]["handle"], grants["grants"][0]["handle"], "{grants} {now}");
    assert_eq!(seen.intruders.load(Ordering::Relaxed), 0, "{seen:?}");
    assert!(seen.failures.lock().unwrap().is_empty(), "{seen:?}");
    assert!(seen.opened.load(Ordering::Relaxed) > 50, "{seen:?}");
    check_equations(&gateway, hook);
    println!("{label}: {seen:?}");
    // the grant still is what lets them pass
    accepted(&site.sluice(&["gate", "revoke", "--user", "alice"]));
    thread::sleep(Duration::from_millis(1500));
    let left = sessions(&gateway);
    assert!(left.len() <= 2 * LONG, "{} sessions live on without their grant", left.len());
    gateway.finish().unwrap();
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn from_the_version_before_on_tc() {
    if let Some(before) = trees::before() {
        check("before-tc", "tc", &[&before, Path::new(BINARY)]);
    }
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn from_the_version_before_on_xdp() {
    if let Some(before) = trees::before() {
        check("before-xdp", "xdp", &[&before, Path::new(BINARY)]);
    }
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn to_a_twin_and_back_on_tc() {
    let (own, twin) = (Path::new(BINARY), trees::twin());
    check("twin-tc", "tc", &[own, &twin, own, &twin]);
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn to_a_twin_and_back_on_xdp() {
    let (own, twin) = (Path::new(BINARY), trees::twin());
    check("twin-xdp", "xdp", &[own, &twin, own, &twin]);
}

/// A version without the means to carry state says so, and disturbs nobody.
#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn the_version_before_refuses_what_it_does_not_know() {
    let Some(before) = trees::before() else { return };
    let (bed, conf) = Bed::new("refuses", "tc");
    let site = &bed.site;
    let mut gateway = Gateway::new(&before, &site.gateway, &conf, &site.state()).unwrap();
    gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
    accepted(&site.sluice(&["gate", "grant", "--user", "alice", "--source", "10.71.1.2", "--service", "db"]));
    let load = bed.load();
    change(&mut gateway, Path::new(BINARY));
    gateway.kill().unwrap();
    gateway.set_program(&before);
    let refused = gateway.start().unwrap_err().to_string();
    assert!(
        refused.contains("belongs to the pinned state") && refused.contains("sluice cleanup"),
        "{refused}"
    );
    thread::sleep(Duration::from_millis(300));
    gateway.set_program(Path::new(BINARY));
    gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
    let seen = load.finish();
    assert!(seen.failures.lock().unwrap().is_empty(), "{seen:?}");
    assert_eq!(seen.intruders.load(Ordering::Relaxed), 0, "{seen:?}");
    gateway.finish().unwrap();
}
