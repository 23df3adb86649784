//! What a provider's network does to clients of DHCP and DHCPv6: two servers at once, tags, addresses that others have, leases
//! that nobody renews.

use crate::common;
use crate::dhcp::{
    DNSMASQ, KEA4, KEA6, PATIENCE, RANGE, WAN, ask, binding, connect, connected, echo, is_bound, kea,
    kea6_of, provider, seen, spawn,
};

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use common::{Running, Site, installed, wait_until};
use sluice_lab::netns::{Netns, VethEnd, veth};

const TCPDUMP: &str = "/usr/bin/tcpdump";

/// Every packet of a kind that passes a device, in tcpdump's words, from when this returns.
fn listen(netns: &Netns, log: &Path, filter: &str) -> Running {
    let mut command = netns.command(TCPDUMP);
    command.args(["-i", "eth0", "-n", "-v", "-l", "--immediate-mode", filter]);
    let said = log.with_extension("said");
    command.stdout(File::create(log).unwrap()).stderr(File::create(&said).unwrap());
    let running = Running::spawn(&mut command);
    wait_until("tcpdump listens", PATIENCE, || fs::read_to_string(&said).unwrap().contains("listening on"));
    running
}

/// A server on a port of the provider's switch, with an address of the subnet.
fn server_at(switch: &Netns, label: &str, port: &str, addresses: &[&str]) -> Netns {
    let server = Netns::create(label).unwrap();
    let near = VethEnd { netns: switch, name: port, mac: None, addresses: &[] };
    veth(near, VethEnd { netns: &server, name: "eth0", mac: None, addresses }).unwrap();
    server.run("ethtool", ["-K", "eth0", "tx", "off"]).unwrap();
    switch.ip(&format!("link set {port} master br0 up")).unwrap();
    server
}

fn dnsmasq_at(site: &Site, server: &Netns, range: &str, router: &str, more: &str) -> Running {
    let leases = format!("--dhcp-leasefile={}", site.dir().join(server.name()).display());
    let (range, router) = (format!("--dhcp-range={range},120s"), format!("--dhcp-option=3,{router}"));
    let fixed = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=eth0",
        "--no-ping",
        "--user=root",
    ];
    let running =
        spawn(server, DNSMASQ, &[&fixed[..], &["--pid-file=", &leases, &range, &router, more]].concat());
    wait_until("dnsmasq listens", PATIENCE, || server.run("ss", ["-lun"]).unwrap().contains(":67 "));
    running
}

/// RFC 2131, section 3.1 (3): the first offer that is acceptable is asked for, and the request's server identifier tells the
/// others that theirs is not.
#[test]
fn of_two_servers_the_first_acceptable_offer_wins() {
    if !installed(&[DNSMASQ, TCPDUMP]) {
        return;
    }
    let site = Site::new("two");
    let switch = Netns::create("two-sw").unwrap();
    site.connect(&switch, "wan0", &[]);
    switch.ip("link add br0 type bridge").unwrap();
    switch.ip("link set br0 up").unwrap();
    switch.ip("link set eth0 master br0").unwrap();
    let quick = server_at(&switch, "two-a", "port1", &["10.72.0.253/24", "10.71.1.253/24"]);
    let slow = server_at(&switch, "two-b", "port2", &["10.72.0.254/24"]);
    let first = dnsmasq_at(&site, &quick, "10.72.0.50,10.72.0.60", "10.72.0.253", "--dhcp-broadcast");
    let _second = dnsmasq_at(&site, &slow, "10.72.0.150,10.72.0.160", "10.72.0.254", "--dhcp-reply-delay=1");
    let told = site.dir().join("told");
    let _listener = listen(&slow, &told, "udp dst port 67");
    let _gateway = site.start(&site.write("a.conf", WAN));
    wait_until("a lease", PATIENCE, || is_bound(&site));
    let lease = binding(&site, "dhcp-clients", "wan0.0");
    assert_eq!(lease["server"], "10.72.0.253", "the slow one's offer was not waited for: {lease}");
    assert!(site.addresses("wan0").contains("10.72.0.5") || site.addresses("wan0").contains("10.72.0.60"));
    let request = || fs::read_to_string(&told).unwrap();
    wait_until("the other is told", PATIENCE, || request().contains("Server-ID (54), length 4: 10.72.0.253"));
    std::thread::sleep(Duration::from_millis(1500));
    assert!(!request().contains("Server-ID (54), length 4: 10.72.0.254"), "{}", request());
    assert!(!fs::read_to_string(site.dir().join(slow.name())).unwrap_or_default().contains("10.72.0."));
    // the quick one now offers what is of this gateway's own network: the slow one's offer is the first acceptable one
    ask(&site, "request dhcp client release interface wan0.0");
    drop(first);
    let _first = dnsmasq_at(&site, &quick, "10.71.1.50,10.71.1.60", "10.71.1.253", "--dhcp-broadcast");
    ask(&site, "request dhcp client renew interface wan0.0");
    wait_until("a lease of the other", PATIENCE, || is_bound(&site));
    let lease = binding(&site, "dhcp-clients", "wan0.0");
    assert_eq!(lease["server"], "10.72.0.254", "{lease}");
    wait_until("it is told", PATIENCE, || request().contains("Server-ID (54), length 4: 10.72.0.254"));
    assert!(!request().contains("Server-ID (54), length 4: 10.71.1.253"), "{}", request());
    let words = fs::read_to_string(site.state().join("daemon.log")).unwrap();
    assert!(words.contains("overlaps 10.71.1.1/24 of left0"), "{words}");
}

const PROVIDER: &str = "\
set interfaces eth0 mode MODE
set interfaces eth0 vlan-tagging
set interfaces eth0 unit 100 vlan-id 100
set interfaces eth0 unit 100 family inet address 10.72.0.254/24
set security zones security-zone customers interfaces eth0.100
set security zones security-zone customers host-inbound-traffic system-services dhcp
set security zones security-zone customers host-inbound-traffic system-services ssh
";

/// A unit with a tag gets a lease behind its provider's tag, and traffic by it.
fn a_tagged_unit_gets_a_lease(mode: &str) {
    if !installed(&[DNSMASQ]) {
        return;
    }
    let site = Site::new(&format!("tag-{mode}"));
    // a gateway of the same kind is the provider's: kernels without 8021q have no other devices of a tag
    let isp = Site::new(&format!("tag-{mode}-isp"));
    site.connect(&isp.gateway, "wan0", &[]);
    for (netns, device) in [(&isp.gateway, "eth0"), (&site.gateway, "wan0"), (&site.left, "eth0")] {
        let off = ["-K", device, "tx", "off", "gro", "on", "txvlan", "off", "tx-vlan-stag-hw-insert", "off"];
        netns.run("ethtool", off).unwrap();
    }
    let _provider = isp.start(&isp.write("isp.conf", &PROVIDER.replace("MODE", mode)));
    let leases = format!("--dhcp-leasefile={}", site.dir().join("tagged.leases").display());
    let fixed = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--port=0",
        "--interface=eth0.100",
        "--no-ping",
        "--user=root",
    ];
    let _server = spawn(&isp.gateway, DNSMASQ, &[&fixed[..], &["--pid-file=", &leases], RANGE].concat());
    let text = WAN
        .replace("wan0 unit 0 family inet", "wan0 unit 100 family inet")
        .replace("wan0.0", "wan0.100")
        + &format!(
            "set interfaces wan0 vlan-tagging\nset interfaces wan0 unit 100 vlan-id 100\nset interfaces wan0 mode {mode}\n"
        );
    let mut gateway = site.start(&site.write("a.conf", &text));
    let lease = || binding(&site, "dhcp-clients", "wan0.100");
    wait_until("a lease", PATIENCE, || lease()["state"] == "bound");
    let address = lease()["address"].as_str().unwrap().to_owned();
    echo(&isp.gateway, "10.72.0.254:22");
    let mut session = connected(&site, "10.72.0.254:22");
    assert_eq!(seen(&mut session).as_deref(), address.split('/').next());
    // the unit's device outlives the daemon, and with it the lease
    gateway.kill().unwrap();
    assert_eq!(seen(&mut session).as_deref(), address.split('/').next(), "without a daemon");
    gateway.start().unwrap();
    wait_until("a renewal", PATIENCE, || lease()["left_s"].as_u64().is_some_and(|left| left > 110));
    assert_eq!(lease()["address"], *address);
    assert_eq!(seen(&mut session).as_deref(), address.split('/').next(), "the session goes on");
}

#[test]
#[ignore = "`make soak` runs it"]
fn a_tagged_unit_gets_a_lease_on_tc() {
    a_tagged_unit_gets_a_lease("tc");
}

#[test]
#[ignore = "as on tc; `make soak` runs it"]
fn a_tagged_unit_gets_a_lease_on_xdp() {
    a_tagged_unit_gets_a_lease("xdp");
}

const ADDRESS6: &str = "\
set interfaces wan0 unit 0 family inet6 dhcpv6-client client-type stateful
set interfaces wan0 unit 0 family inet6 dhcpv6-client client-ia-type ia-na
set interfaces wan0 unit 0 family inet6 dhcpv6-client rapid-commit
set security zones security-zone wan interfaces wan0.0
set security zones security-zone wan host-inbound-traffic system-services ping
";

const TWO_ADDRESSES: &str =
    "\"pools\": [{\"pool\": \"2001:db8:72::1000 - 2001:db8:72::1001\"}], \"rapid-commit\": true";

/// RFC 8415, sections 18.2.1 (rapid commit: two messages instead of four), 18.2.8 and 18.2.10.1 (Decline after RFC 4862, section
/// 5.4), 16.1: another address is given afterwards.
#[test]
fn an_address_that_another_host_has_is_declined() {
    if !installed(&[KEA6, TCPDUMP]) {
        return;
    }
    let site = Site::new("declined");
    let isp = provider(&site, "declined-isp", "wan0");
    // it has both of those that its server may give
    for address in ["2001:db8:72::1000", "2001:db8:72::1001"] {
        isp.ip(&format!("address add {address}/64 dev eth0 nodad")).unwrap();
    }
    let _server = kea6_of(&site, &isp, TWO_ADDRESSES, [100, 200, 300, 400]);
    let log = site.dir().join("messages");
    let _listener = listen(&isp, &log, "udp port 547");
    let said = || fs::read_to_string(&log).unwrap();
    // namespaces of tests ask nobody
    for device in ["all", "wan0"] {
        site.gateway.sysctl(&format!("net/ipv6/conf/{device}/accept_dad"), "1").unwrap();
    }
    let _gateway = site.start(&site.write("a.conf", ADDRESS6));
    let now = || binding(&site, "dhcpv6-clients", "wan0.0");
    wait_until("the conflict is declined", PATIENCE, || said().contains("dhcp6 decline"));
    assert!(!said().contains("dhcp6 advertise") && !said().contains("dhcp6 request"), "{}", said());
    let note = now()["note"].as_str().unwrap_or_default().to_owned();
    assert!(note.contains("belongs to another host; declined"), "{note}");
    let first = note.split('/').next().unwrap().to_owned();
    wait_until("it is not used", PATIENCE, || !site.addresses("wan0").contains(&first));
    assert_ne!(now()["state"], "bound");
    for address in ["2001:db8:72::1000", "2001:db8:72::1001"] {
        isp.ip(&format!("address delete {address}/64 dev eth0")).unwrap();
    }
    // no sooner than ten seconds later, unless somebody asks
    ask(&site, "request dhcpv6 client renew interface wan0.0");
    wait_until("another address", PATIENCE, || now()["state"] == "bound");
    let second = now()["address"]["prefix"].as_str().unwrap().to_owned();
    assert!(!second.starts_with(&format!("{first}/")), "{second}");
    let plain = second.split('/').next().unwrap().to_owned();
    // which router advertisements would say
    site.gateway.ip("-6 route add 2001:db8:72::/64 dev wan0").unwrap();
    wait_until("it answers", PATIENCE, || site.pings(&isp, &plain));
}

/// Nobody renews: with the lease go its address, what used it, and the log says so.
#[test]
#[ignore = "twenty seconds; `make soak` runs it"]
fn a_lease_that_nobody_renews_ends() {
    if !installed(&[KEA4, KEA6]) {
        return;
    }
    let site = Site::new("ends");
    let isp = provider(&site, "ends-isp", "wan0");
    let conf = "{\"Dhcp4\": {\"interfaces-config\": {\"interfaces\": [\"eth0/10.72.0.254\"], \"dhcp-socket-type\": \"raw\"},
      \"lease-database\": {\"type\": \"memfile\", \"persist\": false}, \"valid-lifetime\": 15, \"renew-timer\": 8, \"rebind-timer\": 12,
      \"subnet4\": [{\"id\": 1, \"subnet\": \"10.72.0.0/24\", \"interface\": \"eth0\",
        \"pools\": [{\"pool\": \"10.72.0.50 - 10.72.0.60\"}],
        \"option-data\": [{\"name\": \"routers\", \"data\": \"10.72.0.254\"}]}]}}";
    let server4 = kea(&site, &isp, KEA4, "kea4.conf", conf);
    let pool = "\"pools\": [{\"pool\": \"2001:db8:72::1000 - 2001:db8:72::1fff\"}]";
    let server6 = kea6_of(&site, &isp, pool, [6, 9, 12, 15]);
    let text = format!("{WAN}{}", ADDRESS6.replace("rapid-commit", "no-default-route"));
    let _gateway = site.start(&site.write("a.conf", &text));
    let v6 = || binding(&site, "dhcpv6-clients", "wan0.0");
    wait_until("both leases", PATIENCE, || is_bound(&site) && v6()["state"] == "bound");
    echo(&isp, "10.72.0.254:7");
    let mut session = connected(&site, "10.72.0.254:7");
    assert!(seen(&mut session).unwrap().starts_with("10.72.0."));
    let address = v6()["address"]["prefix"].as_str().unwrap().split('/').next().unwrap().to_owned();
    // which router advertisements would say
    site.gateway.ip("-6 route add 2001:db8:72::/64 dev wan0").unwrap();
    wait_until("it answers", PATIENCE, || site.pings(&isp, &address));
    drop((server4, server6));
    wait_until("the addresses go", Duration::from_secs(30), || {
        let left = site.addresses("wan0");
        !left.contains("10.72.0.") && !left.contains("2001:db8:72:")
    });
    assert_eq!(seen(&mut session), None, "nothing goes out by an address that is not ours any more");
    assert!(connect(&site.left, "10.72.0.254:7").is_none());
    assert!(site.silent(&isp, &address));
    assert!(!site.gateway.ip("route show default").unwrap().contains("10.72.0.254"));
    let words = || fs::read_to_string(site.state().join("daemon.log")).unwrap();
    for told in ["DHCP: expired", "DHCPv6: expired"] {
        let begun = std::time::Instant::now();
        while !words().contains(told) {
            assert!(begun.elapsed() < PATIENCE, "`{told}` is not in {}", words());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    assert_ne!(binding(&site, "dhcp-clients", "wan0.0")["state"], "bound");
    // servers that come back give them again
    let _server4 = kea(&site, &isp, KEA4, "kea4.conf", conf);
    let _server6 = kea6_of(&site, &isp, pool, [6, 9, 12, 15]);
    ask(&site, "request dhcp client renew interface wan0.0");
    ask(&site, "request dhcpv6 client renew interface wan0.0");
    wait_until("leases again", PATIENCE, || is_bound(&site) && v6()["state"] == "bound");
}
