//! What happens to devices, addresses and routes underneath a running gateway: within a second everything works again,
//! without a commit.

use crate::common;

use std::time::Duration;

use common::{BASE, Site, accepted, stdout, wait_until};
use sluice_lab::netns::{VethEnd, veth};

use crate::nat::COME_IN;

/// Longest time until everything works again. The machine that runs tests may be busy with others.
const BACK: Duration = Duration::from_secs(1);
const BUSY: u32 = 4;

/// A network behind the right-hand host, by static routes.
const ROUTES: &str = "set routing-options static route 10.90.0.0/16 next-hop 10.71.2.2
set routing-options rib inet6.0 static route fd90::/64 next-hop fd71:2::2
";

struct Scene {
    site: Site,
    mode: &'static str,
}

impl Scene {
    fn new(label: &str, mode: &'static str) -> Scene {
        let site = Site::new(label);
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
        for address in ["10.90.0.1/32", "10.91.0.1/32", "fd90::1/128"] {
            site.right.ip(&format!("address add {address} dev lo")).unwrap();
        }
        Scene { site, mode }
    }

    fn configuration(&self) -> String {
        let mode = self.mode;
        format!("{BASE}{ROUTES}set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n")
    }

    /// Both families, through both devices, by connected and by static routes, and to the gateway itself.
    fn works(&self) -> bool {
        ["10.71.1.1", "fd71:1::1", "10.71.2.2", "fd71:2::2", "10.90.0.1", "fd90::1"].iter().all(|to| {
            let ping = ["-c", "1", "-W", "0.2", "-n", to];
            self.site.left.command("ping").args(ping).output().unwrap().status.success()
        })
    }

    fn moves(&self) {
        let (here, there) = (&self.site.gateway, &self.site.left);
        here.ip(&format!("link set right0 netns {}", there.name())).unwrap();
        there.ip(&format!("link set right0 netns {}", here.name())).unwrap();
        here.ip("link set right0 up").unwrap();
    }

    /// All of the devices lose forwarding with the whole machine's.
    fn forbids_forwarding(&self) {
        for family in ["ipv4", "ipv6"] {
            for value in ["1", "0"] {
                self.site.gateway.sysctl(&format!("net.{family}.conf.all.forwarding"), value).unwrap();
            }
        }
    }

    fn changes_the_hosts_mac(&self) {
        let host = &self.site.right;
        for notify in ["ipv4.conf.eth0.arp_notify", "ipv6.conf.eth0.ndisc_notify"] {
            host.sysctl(&format!("net.{notify}"), "1").unwrap();
        }
        host.ip("link set eth0 address 02:00:00:00:77:03").unwrap();
    }

    fn remakes(&self) {
        let gateway = &self.site.gateway;
        gateway.ip("link delete right0").unwrap();
        let near = VethEnd { netns: gateway, name: "right0", mac: None, addresses: &[] };
        let addresses = ["10.71.2.2/24", "fd71:2::2/64"];
        veth(near, VethEnd { netns: &self.site.right, name: "eth0", mac: None, addresses: &addresses })
            .unwrap();
        let right = &self.site.right;
        right.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        right.ip("route add default via 10.71.2.1").unwrap();
        right.ip("-6 route add default via fd71:2::1").unwrap();
    }
}

/// Runs `ip` commands in the gateway's namespace, one a line.
fn ip(scene: &Scene, lines: &str) {
    lines.lines().for_each(|line| scene.site.gateway.ip(line).map(drop).unwrap());
}

type Event = (&'static str, fn(&Scene));

const EVENTS: [Event; 18] = [
    ("a link goes down and up", |s| ip(s, "link set right0 down\nlink set right0 up")),
    ("both links go down and up", |s| {
        ip(s, "link set left0 down\nlink set right0 down\nlink set right0 up\nlink set left0 up");
    }),
    ("an IPv4 address is deleted", |s| ip(s, "address del 10.71.2.1/24 dev right0")),
    ("an IPv6 address is deleted", |s| ip(s, "address del fd71:2::1/64 dev right0")),
    ("all addresses are flushed", |s| ip(s, "address flush dev right0 scope global")),
    ("an IPv4 route is deleted", |s| ip(s, "route del 10.90.0.0/16")),
    ("an IPv6 route is deleted", |s| ip(s, "-6 route del fd90::/64")),
    ("the way to a subnet is deleted", |s| {
        ip(s, "route del 10.71.2.0/24 dev right0\n-6 route del fd71:2::/64 dev right0");
    }),
    ("all IPv4 routes are flushed", |s| ip(s, "route flush table main")),
    ("the MAC address changes", |s| ip(s, "link set left0 address 02:00:00:00:77:01")),
    ("the MAC address changes on the other side", |s| ip(s, "link set right0 address 02:00:00:00:77:02")),
    ("a host's MAC address changes, and it says so", Scene::changes_the_hosts_mac),
    ("neighbours are forgotten", |s| ip(s, "neigh flush dev left0\nneigh flush dev right0")),
    ("the MTU changes and changes back", |s| ip(s, "link set right0 mtu 1400\nlink set right0 mtu 1500")),
    ("nothing may forward any more", Scene::forbids_forwarding),
    ("it is renamed and gets its name back", |s| {
        ip(
            s,
            "link set right0 down\nlink set right0 name other0\nlink set other0 name right0\nlink set right0 up",
        );
    }),
    ("it is moved to another namespace and back", Scene::moves),
    ("the device is made anew", Scene::remakes),
];

fn comes_back(label: &str, mode: &'static str) {
    let scene = Scene::new(label, mode);
    let conf = scene.site.write_all("a.conf", &scene.configuration());
    let _gateway = scene.site.start(&conf);
    // the first commit loads programs, a second's work
    accepted(&scene.site.commit(&conf));
    wait_until("it works", 10 * BACK, || scene.works());
    for (what, event) in EVENTS {
        let took = || {
            event(&scene);
            wait_until(what, BUSY * BACK, || scene.works())
        };
        let first = took();
        println!("{what}: {first:?}");
        // a busy machine may be late once
        assert!(first <= BACK || took() <= BACK, "{what}: {first:?}");
    }
}

#[test]
fn every_event_is_over_within_a_second_on_tc() {
    comes_back("eventtc", "tc");
}

#[test]
fn every_event_is_over_within_a_second_on_xdp() {
    comes_back("eventxdp", "xdp");
}

/// What decides over a route, what is done to it, what undoes that, and who is behind it.
const DECISIONS: [(&str, &str, &str, &str); 5] = [
    ("a route", "route add prohibit 10.71.2.2", "route del prohibit 10.71.2.2", "10.71.2.2"),
    ("a rule", "rule add to 10.71.2.2 prohibit", "rule del to 10.71.2.2 prohibit", "10.71.2.2"),
    ("an IPv6 rule", "-6 rule add to fd71:2::2 prohibit", "-6 rule del to fd71:2::2 prohibit", "fd71:2::2"),
    (
        "a next-hop object",
        "nexthop replace id 7 via 10.71.2.99 dev right0",
        "nexthop replace id 7 via 10.71.2.2 dev right0",
        "10.91.0.1",
    ),
    ("a route's table", "rule add pref 5 to 10.90.0.1 table 99", "rule del pref 5", "10.90.0.1"),
];

/// Within a second a session that lives goes where its first packet would go now.
fn sessions_follow(label: &str, mode: &'static str) {
    let scene = Scene::new(label, mode);
    let gateway = &scene.site.gateway;
    let _gateway = scene.site.start(&scene.site.write_all("a.conf", &scene.configuration()));
    // else the kernel tells of the routes that use an object
    gateway.sysctl("net.ipv4.nexthop_compat_mode", "0").unwrap();
    ip(&scene, "nexthop add id 7 via 10.71.2.2 dev right0\nroute add 10.91.0.0/16 nhid 7");
    ip(&scene, "route add unreachable default table 99");
    // one session: always the same identifier
    let lives = |to: &str| {
        let ping = ["-e", "77", "-c", "1", "-W", "0.2", "-n", to];
        scene.site.left.command("ping").args(ping).output().unwrap().status.success()
    };
    for (what, done, undone, to) in DECISIONS {
        wait_until(what, BUSY * BACK, || lives(to));
        ip(&scene, done);
        wait_until(&format!("{what} is obeyed"), BUSY * BACK, || !lives(to));
        ip(&scene, undone);
        wait_until(&format!("{what} is as before"), BUSY * BACK, || lives(to));
    }
}

#[test]
fn sessions_follow_whatever_decides_over_routes_on_tc() {
    sessions_follow("followtc", "tc");
}

#[test]
fn sessions_follow_whatever_decides_over_routes_on_xdp() {
    sessions_follow("followxdp", "xdp");
}

/// `systemctl reload nftables` begins with `flush ruleset`.
#[test]
fn the_guard_comes_back_and_other_rulesets_stay() {
    let scene = Scene::new("ruleset", "tc");
    let gateway = &scene.site.gateway;
    let _gateway = scene.site.start(&scene.site.write_all("a.conf", &scene.configuration()));
    let nft = |command: &str| gateway.run("nft", command.split_whitespace());
    let guard = || nft("--stateless list table inet sluice_guard").unwrap_or_default();
    let whole = guard();
    assert!(whole.contains("counter drop"), "{whole}");
    for change in [
        "flush ruleset",
        "delete table inet sluice_guard",
        "flush table inet sluice_guard",
        "delete chain inet sluice_guard forward",
        "insert rule inet sluice_guard forward accept",
    ] {
        nft("add table inet others").unwrap();
        nft(change).unwrap();
        wait_until(change, BUSY * BACK, || guard() == whole);
        assert_eq!(nft("list table inet others").is_ok(), change != "flush ruleset", "{change}");
    }
}

/// Routes and addresses of others stay as they are.
#[test]
fn what_is_not_configured_is_not_touched() {
    let scene = Scene::new("eventnot", "tc");
    let conf = scene.site.write_all("a.conf", &scene.configuration());
    let _gateway = scene.site.start(&conf);
    let gateway = &scene.site.gateway;
    ip(&scene, "address add 10.77.0.1/24 dev left0\nroute add 10.78.0.0/16 via 10.71.1.2");
    ip(&scene, "address del 10.77.0.1/24 dev left0\nroute del 10.78.0.0/16\nroute del 10.90.0.0/16");
    wait_until("the configured route is back", BUSY * BACK, || {
        gateway.ip("route show 10.90.0.0/16").unwrap().contains("10.71.2.2")
    });
    assert_eq!(gateway.ip("route show 10.78.0.0/16").unwrap(), "");
    assert!(!scene.site.addresses("left0").contains("10.77"));
}

/// Addresses that somebody else gave (DHCP): errors are sent from them, and source NAT translates to them.
#[test]
fn addresses_of_others_are_used() {
    let scene = Scene::new("learned", "tc");
    let site = &scene.site;
    let text = scene
        .configuration()
        .lines()
        .filter(|line| !line.contains("interfaces right0 unit 0 family") && !line.contains("routing-options"))
        .map(|line| format!("{line}\n"))
        .collect::<String>()
        + COME_IN
        + "set interfaces right0 unit 0 family inet\nset interfaces right0 unit 0 family inet6\n\
           set security nat source rule-set out from zone left\nset security nat source rule-set out to zone right\n\
           set security nat source rule-set out rule all match source-address 0.0.0.0/0\n\
           set security nat source rule-set out rule all then source-nat interface\n";
    let _gateway = site.start(&site.write_all("a.conf", &text));
    ip(&scene, "address add 10.71.2.9/24 dev right0\naddress add fd71:2::9/64 dev right0 nodad");
    // without translation the answers would find no way back
    site.right.ip("route del default").unwrap();
    wait_until("source NAT translates to it", BUSY * BACK, || site.pings(&site.left, "10.71.2.2"));
    site.right.ip("route add 10.71.1.0/24 via 10.71.2.9").unwrap();
    site.right.ip("-6 route replace default via fd71:2::9").unwrap();
    for (to, from) in [("10.71.1.2", "10.71.2.9"), ("fd71:1::2", "fd71:2::9")] {
        let hop = ["-c", "1", "-W", "0.2", "-n", "-t", "1", to];
        wait_until(&format!("errors come from {from}"), BUSY * BACK, || {
            stdout(&site.right.command("ping").args(hop).output().unwrap()).contains(&format!("From {from}"))
        });
    }
}
