//! Router advertisements: hosts of other makes hear, ask, and believe what is said.

use crate::common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, refused, stdout, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(15);

const LAN: &str = "\
set interfaces lan0 unit 0 family inet6 address fd71:9::1/64
set security zones security-zone left interfaces lan0.0
set protocols router-advertisement interface lan0.0 max-advertisement-interval 4
set protocols router-advertisement interface lan0.0 min-advertisement-interval 3
set protocols router-advertisement interface lan0.0 preference high
set protocols router-advertisement interface lan0.0 link-mtu 1400
set protocols router-advertisement interface lan0.0 dns-server-address fd71:9::53
set protocols router-advertisement interface lan0.0 dns-search-label corp.example
set protocols router-advertisement interface lan0.0 nat-prefix 64:ff9b::/96 lifetime 1801
set protocols router-advertisement interface lan0.0 other-stateful-configuration
";

/// A site with a third host that has nothing but its link.
struct Lan {
    site: Site,
    host: Netns,
}

impl Lan {
    fn new(label: &str) -> Self {
        let site = Site::new(label);
        let host = Netns::create(&format!("{label}-h")).unwrap();
        site.connect(&host, "lan0", &[]);
        host.sysctl("net.ipv6.conf.eth0.accept_ra", "1").unwrap();
        Self { site, host }
    }

    fn addresses(&self) -> String {
        self.host.ip("-6 address show dev eth0 scope global").unwrap()
    }

    fn has(&self, prefix: &str) -> bool {
        let addresses = self.addresses();
        addresses.contains(prefix) && !addresses.contains("tentative")
    }

    fn routers(&self) -> String {
        self.host.ip("-6 route show default").unwrap()
    }
}

fn installed(program: &str) -> bool {
    let is_there = Path::new("/usr/bin").join(program).exists() || Path::new("/bin").join(program).exists();
    if !is_there {
        eprintln!("NOT TESTED: {program} cannot be found; run scripts/setup.sh");
    }
    is_there
}

fn told(gateway: &Gateway) -> Value {
    gateway.json("/api/router-advertisement").unwrap()[0].clone()
}

/// What tshark makes of messages that one fits, as `field=value` lines.
fn judged(host: &Netns, seconds: u32, fields: &[&str], meanwhile: impl FnOnce()) -> Vec<Vec<String>> {
    let mut command = host.command("tshark");
    command.args(["-l", "-n", "-i", "eth0", "-a", &format!("duration:{seconds}")]);
    command.args(["-Y", "icmpv6.type == 134", "-T", "fields", "-E", "separator=|"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let mut capture = Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut said = BufReader::new(capture.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("Capturing on")), "tshark captures nothing");
    // it says so a moment before it is true
    std::thread::sleep(Duration::from_millis(500));
    let rest = std::thread::spawn(move || said.count());
    meanwhile();
    let said = stdout(&capture.ended("tshark", Duration::from_secs(60)));
    rest.join().unwrap();
    said.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

fn hosts_believe(label: &str, mode: &str) {
    let lan = Lan::new(label);
    let (site, host) = (&lan.site, &lan.host);
    if mode == "xdp" {
        for end in [&site.left, &site.right, host] {
            // what native XDP redirects must have its checksums, and needs a far end that polls
            end.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
    }
    let modes: String =
        ["left0", "right0", "lan0"].map(|device| format!("set interfaces {device} mode {mode}\n")).concat();
    let conf = site.write("a.conf", &format!("{LAN}{modes}"));
    let mut gateway = site.start(&conf);
    wait_until("the host has an address by SLAAC", PATIENCE, || lan.has("fd71:9::"));
    let routers = lan.routers();
    assert!(routers.contains("via fe80::") && routers.contains("pref high"), "{routers}");
    assert!(site.pings(host, "fd71:2::2"), "{}\n{routers}", lan.addresses());
    assert_eq!(host.run("cat", ["/proc/sys/net/ipv6/conf/eth0/mtu"]).unwrap().trim(), "1400");
    if installed("rdisc6") {
        let before = told(&gateway)["solicitations"].as_u64().unwrap();
        let said = host.run("rdisc6", ["-1", "-w", "3000", "eth0"]).unwrap();
        for word in [
            "fd71:9::/64",
            "fd71:9::53",
            "corp.example",
            "1400 bytes",
            "Stateful other conf.      :          Yes",
        ] {
            assert!(said.contains(word), "`{word}` is missing:\n{said}");
        }
        wait_until("the solicitation is counted", PATIENCE, || {
            told(&gateway)["solicitations"].as_u64().unwrap() > before
        });
    }
    // a restart says nothing, and hosts keep what they have
    assert!(gateway.stop().unwrap().success());
    assert!(lan.routers().contains("via fe80::"));
    assert!(site.pings(host, "fd71:2::2"), "without the daemon");
    gateway.start().unwrap();
    // an address takes the place of another: what was made of the old one is deprecated
    site.gateway.ip("address add fd71:8::1/64 dev lan0 valid_lft 3000 preferred_lft 2000 nodad").unwrap();
    wait_until("the new prefix", PATIENCE, || lan.has("fd71:8::"));
    let view = told(&gateway);
    let new = view["prefixes"].as_array().unwrap().iter().find(|p| p["prefix"] == "fd71:8::/64").unwrap();
    assert!(new["valid_lifetime_s"].as_u64().unwrap() <= 3000, "{new}");
    site.gateway.ip("address delete fd71:8::1/64 dev lan0").unwrap();
    wait_until("the old prefix is deprecated", PATIENCE, || {
        let addresses = lan.addresses();
        let line =
            addresses.lines().skip_while(|line| !line.contains("fd71:8::")).take(2).collect::<String>();
        line.contains("deprecated")
    });
    assert!(lan.has("fd71:9::") && site.pings(host, "fd71:2::2"));
    // the statement goes, and with it the router
    let without: String =
        LAN.lines().filter(|line| !line.contains("protocols")).map(|l| format!("{l}\n")).collect();
    accepted(&site.commit(&site.write("b.conf", &format!("{without}{modes}"))));
    wait_until("the host has no router any more", PATIENCE, || lan.routers().is_empty());
    accepted(&site.commit(&conf));
    wait_until("and has it again", PATIENCE, || lan.routers().contains("via fe80::"));
    // so it is when the gateway is removed
    assert!(gateway.stop().unwrap().success());
    accepted(&site.sluice(&["cleanup"]));
    wait_until("the host has no router after cleanup", PATIENCE, || lan.routers().is_empty());
}

#[test]
fn hosts_have_addresses_and_a_router_on_tc() {
    hosts_believe("ra-tc", "tc");
}

#[test]
#[ignore = "the same on the other hook; runs with make soak"]
fn hosts_have_addresses_and_a_router_on_xdp() {
    hosts_believe("ra-xdp", "xdp");
}

#[test]
fn a_dissector_reads_what_was_configured_and_a_flood_is_answered_boundedly() {
    let lan = Lan::new("ra-bytes");
    let conf = lan.site.write("a.conf", LAN);
    let gateway = lan.site.start(&conf);
    wait_until("an address", PATIENCE, || lan.has("fd71:9::"));
    let fields = [
        "ipv6.hlim",
        "icmpv6.checksum.status",
        "icmpv6.nd.ra.router_lifetime",
        "icmpv6.nd.ra.flag.prf",
        "icmpv6.opt.mtu",
        "icmpv6.opt.prefix.valid_lifetime",
        "icmpv6.opt.prefix.preferred_lifetime",
        "icmpv6.opt.rdnss.lifetime",
        "icmpv6.opt.pref64.scaled_lifetime",
        "icmpv6.opt.pref64.prefix",
        "_ws.malformed",
    ];
    let flood = || {
        let script = "from scapy.all import *\n\
            s = conf.L2socket(iface='eth0')\n\
            e = Ether(dst='33:33:00:00:00:02')\n\
            for n in range(3000):\n\
            \x20   s.send(e/IPv6(src='fe80::%x' % (n + 1), dst='ff02::2', hlim=255)/ICMPv6ND_RS())\n\
            s.send(e/IPv6(src='fe80::1', dst='ff02::2', hlim=64)/ICMPv6ND_RS())\n";
        lan.host.run("/usr/bin/python3", ["-c", script]).unwrap();
    };
    let begun = Instant::now();
    let before = told(&gateway);
    let seen = judged(&lan.host, 9, &fields, flood);
    let took = begun.elapsed().as_secs() + 1;
    let after = told(&gateway);
    assert!(!seen.is_empty());
    for message in &seen {
        assert_eq!(
            message[..10],
            ["255", "1", "12", "1", "1400", "2592000", "604800", "12", "226", "64:ff9b::"].map(str::to_owned),
            "{message:?}"
        );
        assert_eq!(message[10], "", "{message:?}");
    }
    let grew = |what: &str| after[what].as_u64().unwrap() - before[what].as_u64().unwrap();
    assert!(grew("solicitations") >= 1000 && grew("invalid") >= 1, "{after}");
    // 32 a second to single hosts, one in three seconds to all
    assert!(
        grew("sent_unicast") <= 33 * took && grew("sent") - grew("sent_unicast") <= took / 3 + 1,
        "{before} {after}"
    );
}

#[test]
fn wrong_advertisements_are_refused_by_line() {
    let site = Site::new("ra-wrong");
    let _gateway = site.start(&site.write("a.conf", ""));
    let on = "set protocols router-advertisement interface left0.0";
    let wrong = [
        (
            format!("{on} min-advertisement-interval 500\n{on} max-advertisement-interval 600\n"),
            "450, are the most",
        ),
        (format!("{on} default-lifetime 60\n"), "hosts would lose their route"),
        (format!("{on} nat-prefix 64:ff9b::/95\n"), "96, 64, 56, 48, 40 or 32"),
        (
            format!(
                "{on} prefix fd71:1::/64 valid-lifetime 10\n{on} prefix fd71:1::/64 preferred-lifetime 20\n"
            ),
            "preferred for 20",
        ),
        (format!("{on} dns-server-address 10.0.0.1\n"), "IPv4"),
        (format!("{on} virtual-router-only\n"), "not supported by Sluice"),
        ("set protocols router-advertisement interface lan9.0 link-mtu 1400\n".to_owned(), "`lan9.0` in"),
    ];
    for (text, says) in &wrong {
        let said = refused(&site.commit(&site.write("b.conf", text)), 2);
        assert!(said.contains(says) && said.contains("b.conf:"), "{said}");
    }
    let odd = format!("{on} prefix fd71:1::/56\n");
    let said = site.commit(&site.write("c.conf", &odd));
    assert!(common::stderr(&said).contains("hosts make no addresses"), "{}", common::stderr(&said));
    accepted(&said);
}
