//! Why was it dropped? Real packets on both hooks, what `show drops --recent` says of them, and floods of them.

use crate::common;

use std::fs;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use common::{Site, accepted, refused, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::devices;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;
use sluice_lab::stream::{Shape, Stream};

/// `web` stands in line 3 of what follows the base.
const WEB: &str = "\
set security policies from-zone left to-zone right policy out then log session-init
set security policies from-zone right to-zone left policy web match source-address any
set security policies from-zone right to-zone left policy web match destination-address any
set security policies from-zone right to-zone left policy web match application junos-http
set security policies from-zone right to-zone left policy web then deny
";

/// Packets of the flood.
const FLOOD: u64 = 1_000_000;
/// Ports that they come from, more than are remembered.
const FLOWS: u32 = 5000;
/// And so many are remembered.
const REMEMBERED: usize = 1000;
/// What the daemon may take of one CPU, in percent, while they come.
const MOST_CPU: u64 = 8;
/// For a share of a CPU: the daemon reads what it is told every now and then.
const LONG_ENOUGH: Duration = Duration::from_secs(3);
/// What it may need of memory to remember them, in KiB.
const MOST_MEMORY: u64 = 8 << 10;

fn recent(gateway: &Gateway, query: &str) -> Vec<Value> {
    let answer = gateway.json(&format!("/api/drops/recent{query}")).unwrap();
    answer["drops"].as_array().unwrap().clone()
}

/// The one drop that fits, once there is one.
fn the_drop(gateway: &Gateway, query: &str) -> Value {
    wait_until(query, Duration::from_secs(5), || !recent(gateway, query).is_empty());
    let mut found = recent(gateway, query);
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

/// Sends one datagram.
fn datagram(from: &Netns, to: &str, port: u16) {
    let text = format!("echo > /dev/udp/{to}/{port}");
    assert!(from.command("bash").args(["-c", &text]).status().unwrap().success());
}

fn every_drop_is_told(mode: &str) {
    let site = Site::new("drops");
    let more = format!("{WEB}set system services sluice mode {mode}\n");
    let configuration = site.write("a.conf", &more);
    let line = |words: &str| {
        let text = fs::read_to_string(&configuration).unwrap();
        1 + text.lines().position(|line| line.contains(words)).unwrap()
    };
    let gateway = site.start(&configuration);
    for (to, from) in [("10.71.1.2", "10.71.2.2"), ("fd71:1::2", "fd71:2::2")] {
        datagram(&site.right, to, 4444);
        let drop = the_drop(&gateway, &format!("?port=4444&prefix={to}"));
        let text = |name: &str| drop[name].as_str().unwrap_or("-").to_owned();
        let ends = [text("source"), text("destination"), text("protocol"), text("interface"), text("hook")];
        assert_eq!(ends, [from, to, "udp", "right0.0", "ingress"], "{drop:#}");
        let why = ["from_zone", "to_zone", "stage", "reason", "policy", "place"].map(text);
        assert_eq!(why, ["right", "left", "policy", "policy_default", "default-policy", "-"], "{drop:#}");
        assert_eq!(drop["packets"], 1, "{drop:#}");

        // with its rule, and where that stands
        let connect = format!("exec 3<>/dev/tcp/{to}/80");
        let mut command = site.right.command("timeout");
        assert!(!command.args(["0.5", "bash", "-c", &connect]).status().unwrap().success());
        let drop = the_drop(&gateway, &format!("?port=80&prefix={to}"));
        assert_eq!((&drop["reason"], &drop["policy"]), (&"policy_deny".into(), &"web".into()), "{drop:#}");
        let place = format!("{}:{}", configuration.display(), line("policy web"));
        assert_eq!((&drop["place"], &drop["tcp_flags"]), (&place.into(), &"syn".into()), "{drop:#}");
    }

    // what is for the gateway itself, twice, is one entry
    let begun = drops_of(&gateway, "host_inbound");
    assert!(site.silent(&site.right, "10.71.2.1") && site.silent(&site.right, "10.71.2.1"));
    wait_until("two packets", Duration::from_secs(5), || drops_of(&gateway, "host_inbound") == begun + 2);
    let drop = the_drop(&gateway, "?reason=host_inbound&protocol=icmp&prefix=10.71.2.1");
    assert_eq!((&drop["packets"], &drop["icmp"]), (&2.into(), &serde_json::json!([8, 0])), "{drop:#}");
    assert!(drop["first_unix_ms"].as_u64() < drop["last_unix_ms"].as_u64(), "{drop:#}");

    // as operators see it
    let shown = accepted(&site.sluice(&["show", "drops", "--recent", "--port", "4444"]));
    let row: Vec<&str> =
        shown.lines().find(|line| line.contains("10.71.1.2:4444")).unwrap().split_whitespace().collect();
    assert_eq!(row[1..6], ["1", "right0.0", "right", ">", "left"], "{shown}");
    assert_eq!(row[8..], ["udp", "policy", "policy_default", "default-policy"], "{shown}");
    assert!(shown.contains("[fd71:1::2]:4444"), "{shown}");
    // the counts are told as ever
    assert!(accepted(&site.sluice(&["show", "drops"])).contains("0 different"));
    let wrong = refused(&site.sluice(&["show", "drops", "--recent", "--reason", "bad_luck"]), 2);
    assert!(wrong.contains("there is no reason bad_luck"), "{wrong}");
}

/// Packets of entries with a reason.
fn drops_of(gateway: &Gateway, reason: &str) -> u64 {
    recent(gateway, &format!("?reason={reason}")).iter().map(|drop| drop["packets"].as_u64().unwrap()).sum()
}

#[test]
fn every_drop_is_told_on_tc() {
    every_drop_is_told("tc");
}

#[test]
fn every_drop_is_told_on_xdp() {
    every_drop_is_told("xdp");
}

/// What a host sends that the daemon's absence kept from being read waits for the next one.
#[test]
fn drops_wait_for_a_daemon() {
    let site = Site::new("waiting");
    let mut gateway = site.start(&site.write("a.conf", ""));
    gateway.kill().unwrap();
    datagram(&site.right, "10.71.1.2", 4445);
    let silent = site.sluice(&["show", "drops", "--recent"]);
    assert!(refused(&silent, 1).contains("no daemon answers"));
    gateway.start().unwrap();
    assert_eq!(the_drop(&gateway, "?port=4445")["reason"], "policy_default");
}

struct Process {
    pid: u64,
}

impl Process {
    /// Of its own memory, in KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Time on a CPU, in milliseconds.
    fn worked(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        ticks * 10
    }
}

fn mac(netns: &Netns, device: &str) -> [u8; 6] {
    let text = netns.ip(&format!("-json link show dev {device}")).unwrap();
    let links: Value = serde_json::from_str(&text).unwrap();
    let digits = links[0]["address"].as_str().unwrap().split(':');
    let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn denied_of(stats: &Value) -> u64 {
    let mut drops = stats["drops"].as_array().unwrap().iter();
    drops.find(|drop| drop["reason"] == "policy_default").map_or(0, |drop| drop["packets"].as_u64().unwrap())
}

/// What right sends to left, of which no policy permits anything.
fn denied_stream(site: &Site) -> Shape {
    Shape {
        flows: FLOWS,
        denied_every: 1,
        ifindex: site.right.ifindex("eth0").unwrap(),
        source_mac: mac(&site.right, "eth0"),
        destination_mac: mac(&site.gateway, "right0"),
        source: [10, 71, 2, 2].into(),
        destination: [10, 71, 1, 2].into(),
    }
}

/// Sessions that the log has as begun.
fn sessions_logged(gateway: &Gateway) -> usize {
    let log = gateway.json("/api/log?last=1000").unwrap();
    let of = |entry: &&Value| entry["event"] == "RT_FLOW_SESSION_CREATE";
    log.as_array().unwrap().iter().filter(of).count()
}

fn events_lost(stats: &Value) -> u64 {
    let lost = |entry: &Value| entry["counters"]["events_lost"].as_u64().unwrap();
    stats["interfaces"].as_array().unwrap().iter().map(lost).sum()
}

/// Packets that no policy permits, so far.
fn denied(gateway: &Gateway) -> u64 {
    denied_of(&gateway.json("/api/stats").unwrap())
}

/// A million packets that no policy permits: sessions are logged as ever, memory and work of the daemon have a bound, and
/// what is not told one by one is counted.
#[test]
fn a_flood_of_denied_packets_costs_neither_the_log_nor_the_daemon() {
    let site = Site::new("deluge");
    // XDP redirects only to devices whose other end polls
    for host in [&site.left, &site.right] {
        assert!(host.command("ethtool").args(["-K", "eth0", "gro", "on"]).status().unwrap().success());
    }
    let gateway = site.start(&site.write("a.conf", &format!("{WEB}set system services sluice mode xdp\n")));
    let daemon = Process { pid: gateway.json("/health").unwrap()["pid"].as_u64().unwrap() };
    wait_until("a ping", Duration::from_secs(10), || site.pings(&site.left, "10.71.2.2"));
    let (memory, worked, begun) = (daemon.memory(), daemon.worked(), Instant::now());

    let shape = denied_stream(&site);
    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape).unwrap();
    let running = stream.start(&site.right, 0, None).unwrap();
    let mut pings = 1;
    // what a busy machine loses in front of the gateway is no part of the flood
    // and what the daemon takes to answer this test neither
    while begun.elapsed() < LONG_ENOUGH || denied(&gateway) < FLOOD {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} packets denied", denied(&gateway));
        assert!(site.pings(&site.left, "10.71.2.2") || site.pings(&site.left, "10.71.2.2"), "ping {pings}");
        pings += 1;
        thread::sleep(Duration::from_millis(20));
    }
    stream.finish(running).unwrap();
    let (worked, took) = (daemon.worked() - worked, begun.elapsed().as_millis() as u64);
    let percent = worked * 100 / took;
    assert!(percent <= MOST_CPU, "{percent} % of a CPU over {took} ms");

    // another kind of drop is told in the midst of it, and after it
    datagram(&site.left, "10.71.1.1", 4446);
    assert_eq!(the_drop(&gateway, "?port=4446")["reason"], "host_inbound");
    let answer = gateway.json("/api/drops/recent").unwrap();
    let drops = answer["drops"].as_array().unwrap();
    assert!(drops.len() <= REMEMBERED, "{}", drops.len());
    let stats = gateway.json("/api/stats").unwrap();
    let (dropped, untold) = (denied_of(&stats), answer["untold"].as_u64().unwrap());
    // what was told has a rate; a CPU says how many it did not tell with the next one that it does
    assert!(untold >= dropped / 2 && untold <= dropped, "{untold} of {dropped}");
    assert!(daemon.memory() < memory + MOST_MEMORY, "{} KiB, {memory} before", daemon.memory());

    wait_until("every session's entry", Duration::from_secs(5), || sessions_logged(&gateway) >= pings);
    assert_eq!(events_lost(&stats), 0);
    println!(
        "{dropped} packets in {took} ms: the daemon took {percent} % of a CPU, told {}",
        dropped - untold
    );
}

const ALL_DENIED: &str = "\
set security policies from-zone right to-zone left policy none match source-address any
set security policies from-zone right to-zone left policy none match destination-address any
set security policies from-zone right to-zone left policy none match application any
set security policies from-zone right to-zone left policy none then deny
set security policies from-zone right to-zone left policy none then log session-init
set security policies from-zone left to-zone right policy out then log session-init
";

/// While nobody reads, refused packets that are logged leave half of the buffer to sessions.
#[test]
fn refused_packets_that_are_logged_leave_room_for_sessions() {
    let site = Site::new("logged");
    let gateway = site.start(&site.write("a.conf", ALL_DENIED));
    // what the stream sends reaches a device that polls
    site.gateway.run("ethtool", ["-K", "right0", "gro", "on"]).unwrap();
    let pid = Pid::from_raw(gateway.json("/health").unwrap()["pid"].as_i64().unwrap() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let shape = denied_stream(&site);
    let mut storage = MaybeUninit::uninit();
    let mut stream = Stream::load(&mut storage, shape).unwrap();
    let running = stream.start(&site.right, 0, None).unwrap();
    let received = || devices::count(&site.gateway, "right0", "rx/packets").unwrap();
    wait_until("more than the buffer holds", Duration::from_secs(20), || received() > 100_000);
    stream.finish(running).unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"));
    kill(pid, Signal::SIGCONT).unwrap();
    wait_until("the session's entry", Duration::from_secs(10), || sessions_logged(&gateway) > 0);
    assert!(events_lost(&gateway.json("/api/stats").unwrap()) > 50_000, "they are counted");
}
