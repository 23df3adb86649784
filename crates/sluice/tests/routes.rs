//! Static routes: preferences, and what takes the place of a next hop whose link is gone.

use crate::common;

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use common::{Site, accepted, refused, wait_until};
use sluice_lab::devices;
use sluice_lab::netns::Netns;
use sluice_lab::niceness;

const FLOATING: &str = "\
set routing-options static route 10.99.0.0/16 next-hop 10.71.1.2
set routing-options static route 10.99.0.0/16 qualified-next-hop 10.71.2.2 preference 10
set routing-options static route 10.99.0.0/16 qualified-next-hop right0.0 preference 20
set routing-options static route fd99::/32 qualified-next-hop fe80::99 interface left0.0
set routing-options static route fd99::/32 qualified-next-hop fd71:2::2 preference 10
set routing-options static route 10.98.0.0/16 discard
set routing-options static route 10.98.0.0/16 preference 200
";

const PATIENCE: Duration = Duration::from_secs(10);

/// The device that the kernel sends a packet by.
fn device(gateway: &Netns, to: &str) -> String {
    let text = gateway.ip(&format!("route get {to}")).unwrap_or_default();
    let mut words = text.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}

fn shown(site: &Site, command: &str) -> String {
    accepted(&site.sluice(&["cli", "-c", command]))
}

#[test]
fn a_next_hop_whose_link_is_gone_is_passed_over_until_it_is_back() {
    let site = Site::new("floating");
    let conf = site.write("a.conf", FLOATING);
    let _gateway = site.start(&conf);
    let routes = site.gateway.ip("route show 10.99.0.0/16").unwrap();
    for wanted in
        ["via 10.71.1.2 dev left0", "metric 5", "via 10.71.2.2 dev right0", "metric 10", "metric 20"]
    {
        assert!(routes.contains(wanted), "{routes}");
    }
    let routes = site.gateway.ip("-6 route show fd99::/32").unwrap();
    assert!(routes.contains("via fe80::99 dev left0") && routes.contains("metric 10"), "{routes}");
    assert!(site.gateway.ip("route show 10.98.0.0/16").unwrap().contains("blackhole 10.98.0.0/16"));
    let both = || [device(&site.gateway, "10.99.0.1"), device(&site.gateway, "fd99::1")];
    assert_eq!(both(), ["left0", "left0"]);
    for _ in 0..2 {
        // the carrier goes: the kernel keeps the route and its device is still up
        site.left.ip("link set eth0 down").unwrap();
        wait_until("the second next hop", PATIENCE, || both() == ["right0", "right0"]);
        let shown = shown(&site, "show route 10.99.0.0/16");
        assert!(shown.contains("to 10.71.1.2 via left0 (dead, linkdown)"), "{shown}");
        assert!(shown.contains(" [Static/5]") && shown.contains("*[Static/10]"), "{shown}");
        site.left.ip("link set eth0 up").unwrap();
        wait_until("the first one again", PATIENCE, || both() == ["left0", "left0"]);
    }
    // the device itself: the kernel drops its routes, which come back with it
    site.gateway.ip("link set left0 down").unwrap();
    wait_until("the second next hop", PATIENCE, || both() == ["right0", "right0"]);
    let missing = "10.99.0.0/16              [Static/5] configured, not in the kernel\n";
    let text = shown(&site, "show route");
    assert!(text.contains(missing), "{text}");
    assert!(text.contains("*[Static/10]") && text.contains(" [Static/20]"), "{text}");
    assert!(!shown(&site, "show route protocol direct").contains("Static"));
    site.gateway.ip("route add 10.97.0.0/16 via 10.71.2.2 proto static").unwrap();
    let text = shown(&site, "show route protocol static");
    assert!(text.contains("10.97.0.0/16             *[Static/0] not of this configuration"), "{text}");
    assert!(!text.contains("Direct") && text.contains(missing), "{text}");
    site.gateway.ip("link set left0 up").unwrap();
    wait_until("the first one again", PATIENCE, || both() == ["left0", "left0"]);
    // another preference is another route for the kernel: none of the old ones is left
    let other = FLOATING.replace("preference 10", "preference 3").replace("preference 200", "preference 7");
    accepted(&site.commit(&site.write("b.conf", &other)));
    let routes = site.gateway.ip("route show 10.99.0.0/16").unwrap();
    assert!(routes.contains("metric 3") && !routes.contains("metric 10"), "{routes}");
    assert_eq!(device(&site.gateway, "10.99.0.1"), "right0");
    assert!(!site.gateway.ip("route show 10.98.0.0/16").unwrap().contains("metric 200"));
    accepted(&site.commit(&site.write("none.conf", "")));
    let left = site.gateway.ip("route show").unwrap() + &site.gateway.ip("-6 route show").unwrap();
    assert!(!left.contains("10.99.0.0") && !left.contains("fd99::") && !left.contains("10.98.0.0"), "{left}");
}

#[test]
fn wrong_next_hops_are_refused_by_line() {
    let site = Site::new("hops");
    let wrong = "set routing-options static route fd99::/32 qualified-next-hop fe80::99\n\
                 set routing-options static route 10.99.0.0/16 qualified-next-hop 10.71.1.2 preference 0\n";
    let _gateway = site.start(&site.write("a.conf", ""));
    let said = refused(&site.commit(&site.write("b.conf", wrong)), 2);
    assert!(said.contains("interface NAME.UNIT") && said.contains("a number from 1 to"), "{said}");
}

/// More than are judged again in the time that it takes to send a packet of each.
const FLOWS: u16 = 10_000;
/// What a routing daemon's word may take to be in effect (issue: 100 ms).
const AT_ONCE: Duration = Duration::from_millis(100);
/// Packets of hosts themselves.
const NOISE: u64 = 50;

fn received(host: &Netns) -> u64 {
    devices::count(host, "eth0", "rx/packets").unwrap()
}

/// A packet of each flow; how many came to each host.
fn one_each(site: &Site, hosts: [&Netns; 2]) -> [u64; 2] {
    let before = hosts.map(received);
    let send = || {
        let socket = UdpSocket::bind("10.71.1.2:4000").unwrap();
        (1..=FLOWS).all(|port| socket.send_to(b"x", ("10.99.0.1", port)).is_ok())
    };
    assert!(site.left.enter(send).unwrap());
    wait_until("all packets", PATIENCE, || {
        hosts.iter().zip(before).map(|(host, before)| received(host) - before).sum::<u64>() >= FLOWS.into()
    });
    [0, 1].map(|host| received(hosts[host]) - before[host])
}

/// Ten thousand at once, although far fewer are judged again in that time where their next hop is only one that might have
/// changed.
#[test]
fn sessions_leave_a_dead_next_hop_at_their_next_packet() {
    for hook in ["tc", "xdp"] {
        let site = Site::new("dead");
        let third = Netns::create("dead-t").unwrap();
        site.connect_third(&third);
        for host in [&site.left, &site.right, &third] {
            // what native XDP redirects must have its checksums, and needs a far end that polls
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
        let mut text = String::from(
            "set interfaces third0 unit 0 family inet address 10.71.3.1/24\n\
             set security zones security-zone right interfaces third0.0\n\
             set security flow max-sessions 65536\n",
        );
        for device in ["left0", "right0", "third0"] {
            text += &format!("set interfaces {device} mode {hook}\n");
        }
        let gateway = site.start(&site.write("a.conf", &text));
        // how soon it acts is its own, not what others do on these CPUs
        for task in std::fs::read_dir(format!("/proc/{}/task", gateway.pid().unwrap())).unwrap() {
            let thread = task.unwrap().file_name().to_string_lossy().parse().unwrap();
            niceness::set(Pid::from_raw(thread), niceness::HIGHEST).unwrap();
        }
        let route = |change: &str| drop(site.gateway.ip(&format!("route {change}")).unwrap());
        // as a routing daemon does it
        route("add 10.99.0.0/16 via 10.71.2.2 metric 20 proto bgp");
        route("add 10.99.0.0/16 via 10.71.2.2 metric 30 proto bgp");
        let hosts = [&site.right, &third];
        let count = || one_each(&site, hosts);
        // neighbours first
        assert!(site.pings(&site.left, "10.71.2.2"));
        site.gateway.run("ping", ["-c1", "-W2", "10.71.3.2"]).unwrap();
        count();
        let [right, _] = count();
        assert!(right >= FLOWS.into(), "{hook}: {right}");
        for _ in 0..2 {
            // an update that names another gateway
            route("replace 10.99.0.0/16 via 10.71.3.2 metric 20 proto bgp");
            sleep(AT_ONCE);
            let [right, moved] = count();
            assert!(right < NOISE && moved >= FLOWS.into(), "{hook}: {right} stayed, {moved} moved");
            // one that withdraws
            route("del 10.99.0.0/16 via 10.71.3.2 metric 20");
            sleep(AT_ONCE);
            let [moved, third] = count();
            assert!(third < NOISE && moved >= FLOWS.into(), "{hook}: {third} stayed, {moved} moved");
            route("add 10.99.0.0/16 via 10.71.2.2 metric 20 proto bgp");
        }
    }
}

/// Flows of a test of several next hops, and the port that they go to.
const SHARED_FLOWS: u16 = 600;
const SHARED_PORT: u16 = 5000;
/// So many at a time have room in a socket.
const AT_A_TIME: u16 = 100;

/// A route with three next hops, and who received a flow's last packet.
struct Members<'a> {
    site: &'a Site,
    hosts: [&'a Netns; 3],
    target: &'a str,
    source: &'a str,
    sockets: Vec<UdpSocket>,
}

impl<'a> Members<'a> {
    fn new(site: &'a Site, hosts: [&'a Netns; 3], source: &'a str, target: &'a str) -> Self {
        let open = |host: &&Netns| {
            let bound = (target.to_owned(), SHARED_PORT);
            let socket = host.enter(move || UdpSocket::bind(bound)).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let sockets = hosts.iter().map(open).collect();
        Self { site, hosts, target, source, sockets }
    }

    fn send(&self, flows: Vec<u16>) {
        let (source, target) = (self.source.to_owned(), self.target.to_owned());
        let send = move || {
            for flow in flows {
                let socket = UdpSocket::bind((source.as_str(), 20_000 + flow)).unwrap();
                socket.send_to(b"x", (target.as_str(), SHARED_PORT)).unwrap();
            }
        };
        self.site.left.enter(send).unwrap();
    }

    /// What has come since, by flow.
    fn receive(&self, found: &mut BTreeMap<u16, usize>) {
        for (member, socket) in self.sockets.iter().enumerate() {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 8]) {
                found.insert(from.port() - 20_000, member);
            }
        }
    }

    /// A packet of each flow: which member has it.
    fn one_each(&self) -> BTreeMap<u16, usize> {
        let mut found = BTreeMap::new();
        for first in (0..SHARED_FLOWS).step_by(AT_A_TIME.into()) {
            self.send((first..first + AT_A_TIME).collect());
            wait_until("a packet of each flow", PATIENCE, || {
                self.receive(&mut found);
                found.len() == usize::from(first + AT_A_TIME)
            });
        }
        found
    }

    /// Until the daemon has acted on the kernel's word: packets for a member that goes are lost meanwhile.
    fn wait_until_left(&self, member: usize, before: &BTreeMap<u16, usize>) {
        let flows: Vec<u16> = before.iter().filter(|(_, of)| **of == member).map(|(flow, _)| *flow).collect();
        let flows = &flows[..flows.len().min(AT_A_TIME.into())];
        wait_until("its flows are elsewhere", PATIENCE, || {
            self.send(flows.to_vec());
            sleep(AT_ONCE);
            let mut found = BTreeMap::new();
            self.receive(&mut found);
            flows.iter().all(|flow| found.get(flow).is_some_and(|there| *there != member))
        });
    }

    fn carrier(&self, member: usize, state: &str) {
        self.hosts[member].ip(&format!("link set eth0 {state}")).unwrap();
    }
}

/// Only the flows of the member that went may be elsewhere.
fn only_those_of(gone: usize, before: &BTreeMap<u16, usize>, now: &BTreeMap<u16, usize>) {
    for (flow, member) in before {
        let there = now[flow];
        assert!(there != gone, "flow {flow} goes where nobody is");
        assert!(*member == gone || there == *member, "flow {flow} went from {member} to {there}");
    }
}

/// One of three next hops goes, by its link or as a route without it comes, and comes back: flows of others stay where they
/// are, as the kernel alone would not have it.
fn members_keep_their_flows(hook: &str) {
    let site = Site::new(&format!("ecmp-{hook}"));
    let hosts = ["b", "c"].map(|part| Netns::create(&format!("ecmp-{hook}-{part}")).unwrap());
    let mut text = String::new();
    for (host, (device, net)) in hosts.iter().zip([("lan3", 3), ("lan4", 4)]) {
        site.connect(host, device, &[&format!("10.71.{net}.2/24"), &format!("fd71:{net}::2/64")]);
        text += &format!(
            "set interfaces {device} unit 0 family inet address 10.71.{net}.1/24\n\
             set interfaces {device} unit 0 family inet6 address fd71:{net}::1/64\n\
             set security zones security-zone right interfaces {device}.0\n"
        );
    }
    let members = [&site.right, &hosts[0], &hosts[1]];
    for (number, host) in members.iter().enumerate() {
        for address in ["10.99.0.1/32", "fd99::1/128"] {
            host.ip(&format!("address add {address} dev lo nodad")).unwrap();
        }
        let net = number + 2;
        text += &format!("set routing-options static route 10.99.0.0/16 next-hop 10.71.{net}.2\n");
        text += &format!("set routing-options static route fd99::/32 next-hop fd71:{net}::2\n");
    }
    for host in [&site.left, &site.right, &hosts[0], &hosts[1]] {
        host.sysctl("net.ipv6.conf.eth0.keep_addr_on_down", "1").unwrap();
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    for device in ["left0", "right0", "lan3", "lan4"] {
        text += &format!("set interfaces {device} mode {hook}\n");
    }
    let conf = site.write("a.conf", &text);
    let _gateway = site.start(&conf);
    for (source, target, all) in
        [("10.71.1.2", "10.99.0.1", "10.99.0.0/16"), ("fd71:1::2", "fd99::1", "fd99::/32")]
    {
        let family = if target.contains(':') { "-6" } else { "-4" };
        let routes = || site.gateway.ip(&format!("{family} route show {all}")).unwrap();
        let shared = Members::new(&site, members, source, target);
        for net in 2..=4 {
            let address =
                source.replacen("71:1", &format!("71:{net}"), 1).replacen("71.1", &format!("71.{net}"), 1);
            assert!(site.pings(&site.gateway, &address), "{address} is a neighbour");
        }
        let before = shared.one_each();
        for member in 0..members.len() {
            let own = before.values().filter(|of| **of == member).count();
            assert!(own > usize::from(SHARED_FLOWS) / 10, "member {member} has {own} flows of {target}");
        }
        shared.carrier(1, "down");
        wait_until("the kernel knows", PATIENCE, || routes().contains("linkdown"));
        shared.wait_until_left(1, &before);
        let now = shared.one_each();
        only_those_of(1, &before, &now);
        shared.carrier(1, "up");
        wait_until("it is back", PATIENCE, || {
            !routes().contains("linkdown") && routes().matches("via").count() == 3
        });
        sleep(AT_ONCE);
        assert_eq!(shared.one_each(), now, "who is there again takes new flows alone");
        // an update of a routing daemon, or a commit
        let gone = if family == "-6" { "next-hop fd71:2::2" } else { "next-hop 10.71.2.2" };
        let fewer: String =
            text.lines().filter(|line| !line.ends_with(gone)).map(|line| format!("{line}\n")).collect();
        accepted(&site.commit(&site.write("b.conf", &fewer)));
        shared.wait_until_left(0, &now);
        only_those_of(0, &now, &shared.one_each());
        accepted(&site.commit(&conf));
    }
}

#[test]
fn members_of_a_route_keep_their_flows_on_tc() {
    members_keep_their_flows("tc");
}

#[test]
fn members_of_a_route_keep_their_flows_on_xdp() {
    members_keep_their_flows("xdp");
}

/// More messages than the daemon's socket has room for.
const FLOOD: u32 = 60_000;

/// What the kernel could not tell, because the daemon slept, is looked for.
#[test]
fn changes_whose_messages_were_lost_are_seen_all_the_same() {
    let site = Site::new("overrun");
    let gateway = site.start(&site.write("a.conf", FLOATING));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let pid = Pid::from_raw(gateway.pid().unwrap() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let each = |verb: &str| -> String {
        let line = |n: u32| format!("route {verb} 11.{}.{}.0/24 via 10.71.2.2 proto bgp\n", n >> 8, n & 255);
        (0..FLOOD / 2).map(line).collect()
    };
    site.gateway.ip_batch(&(each("add") + &each("del"))).unwrap();
    // what nobody tells of any more: a route and an address of the configuration, and who the next hop is
    site.gateway.ip("route del blackhole 10.98.0.0/16").unwrap();
    site.gateway.ip("address del fd71:2::1/64 dev right0").unwrap();
    site.right.ip("link set eth0 address 02:71:00:00:00:99").unwrap();
    site.gateway.ip("neigh replace 10.71.2.2 lladdr 02:71:00:00:00:99 dev right0 nud reachable").unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    wait_until("the route is back", PATIENCE, || {
        site.gateway.ip("route show 10.98.0.0/16").unwrap().contains("blackhole")
    });
    wait_until("the address is back", PATIENCE, || site.addresses("right0").contains("fd71:2::1/64"));
    wait_until("packets find the next hop", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
    let log = std::fs::read_to_string(site.state().join("daemon.log")).unwrap();
    assert!(log.contains("rtnetlink lost messages"), "there was room for all: {log}");
}
