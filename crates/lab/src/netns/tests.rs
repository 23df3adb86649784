//! Real namespaces: these need root.

use super::*;
use crate::patience::until;

fn pair(left: &Netns, right: &Netns) {
    veth(
        VethEnd {
            netns: left,
            name: "left0",
            mac: Some("02:00:00:00:00:01"),
            addresses: &["192.0.2.1/24", "fd00::1/64"],
        },
        VethEnd { netns: right, name: "right0", mac: None, addresses: &["192.0.2.2/24", "fd00::2/64"] },
    )
    .unwrap();
}

#[test]
fn packets_cross_a_veth_pair_once_it_is_settled() {
    let (left, right) = (Netns::create("left").unwrap(), Netns::create("right").unwrap());
    pair(&left, &right);
    let settled = || Ok(left.is_settled()? && right.is_settled()?);
    until(Duration::from_secs(5), settled, || left.ip("link show").unwrap()).unwrap();
    left.run("ping", ["-c1", "-W1", "192.0.2.2"]).unwrap();
    right.run("ping", ["-c1", "-W1", "fd00::1"]).unwrap();
    assert!(left.ip("link show left0").unwrap().contains("02:00:00:00:00:01"));
    assert_ne!(left.ifindex("left0").unwrap(), 0);
}

#[test]
fn drop_ends_processes_and_removes_the_namespace() {
    let netns = Netns::create("drop").unwrap();
    let mut sleeper = netns.command("sleep").arg("1000").spawn().unwrap();
    let path = netns.path();
    let started = Instant::now();
    while netns.pids().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(5), "sleep never arrived in the namespace");
    }
    drop(netns);
    assert!(!path.exists());
    assert!(!sleeper.wait().unwrap().success());
}

#[test]
fn sysctls_and_closures_see_the_namespace() {
    let netns = Netns::create("sysctl").unwrap();
    netns.enable_forwarding().unwrap();
    let read = |file: &'static str| netns.enter(move || fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(read("/proc/sys/net/ipv4/ip_forward").trim(), "1");
    assert_eq!(read("/proc/sys/net/ipv6/conf/default/accept_dad").trim(), "0");
    let error = netns.sysctl("net.ipv4.no_such_key", "1").unwrap_err().to_string();
    assert!(error.contains("net.ipv4.no_such_key"), "{error}");
}

#[test]
fn leftovers_of_dead_makers_are_removed_and_live_ones_stay() {
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = format!("slu-{}-0-leftover", dead.id());
    Netns::create_named(&left).unwrap().keep();
    let live = Netns::create("live").unwrap();
    assert!(remove_leftovers().contains(&left));
    assert!(live.path().exists());
    assert!(!Path::new(DIRECTORY).join(left).exists());
}

#[test]
fn failures_name_command_place_and_cause() {
    let netns = Netns::create("fail").unwrap();
    let error = netns.ip("link set nonesuch up").unwrap_err().to_string();
    assert!(error.contains("nonesuch") && error.contains(netns.name()), "{error}");
    let error = Netns::open("slu-no-such-namespace").unwrap_err().to_string();
    assert!(error.contains("slu-no-such-namespace"), "{error}");
}

#[test]
fn makers_are_read_from_names() {
    assert_eq!(maker("slu-42-7-gw"), Some(42));
    assert_eq!(maker("slu-lab-branch-gw"), None);
    assert_eq!(maker("other-42-7-gw"), None);
}
