//! Real namespaces: these need root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::*;

/// Asks until it is so, which the kernel does not tell.
fn wait_until(is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is not so after a minute");
        thread::sleep(Duration::from_millis(20));
    }
}

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
    wait_until(|| left.is_settled().unwrap() && right.is_settled().unwrap());
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
    wait_until(|| !netns.pids().is_empty());
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
fn a_namespace_without_a_name_is_found_by_its_path() {
    let namespace = Namespace::new().unwrap();
    namespace.enter(|| here::ip(&["link add v0 type veth peer name v1".to_owned()])).unwrap().unwrap();
    assert_ne!(namespace.enter(|| here::ifindex("v0")).unwrap().unwrap(), 0);
    let net = format!("--net={}", namespace.path());
    let shown = Command::new("nsenter").args([net.as_str(), "ip", "link", "show", "v1"]).output().unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
}

#[test]
fn a_thread_stays_where_it_went() {
    let own = || fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    let before = own();
    let (inside, found) = in_thread(move || {
        let namespace = Namespace::new().unwrap();
        assert_eq!(own(), before);
        namespace.enter_for_good().unwrap();
        (own(), namespace.enter(own).unwrap())
    });
    assert!(inside == found && inside != before && own() == before);
}

#[test]
fn a_named_namespace_is_among_all_of_them_once() {
    let netns = Netns::create("all").unwrap();
    let wanted = fs::metadata(netns.path()).unwrap().ino();
    let found = all().into_iter().filter(|one| fs::metadata(one.path()).unwrap().ino() == wanted);
    assert_eq!(found.count(), 1);
}

#[test]
fn of_many_lines_those_that_failed_are_told() {
    let lines = ["link set lo up", "link set nonesuch up", "link add v0 type veth"].map(str::to_owned);
    let namespace = Namespace::new().unwrap();
    let error = namespace.enter(|| here::ip(&lines)).unwrap().unwrap_err().to_string();
    assert!(error.ends_with("of: link set nonesuch up"), "{error}");
    namespace.enter(|| here::ifindex("v0")).unwrap().unwrap();
    let error = namespace.enter(|| here::sysctl("net/ipv4/nonesuch", "1")).unwrap().unwrap_err();
    assert!(error.to_string().contains("net/ipv4/nonesuch"), "{error}");
}
