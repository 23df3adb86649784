//! The DHCPv6 server: addresses, delegated prefixes with their routes, options and reservations, for a gateway of our own and for
//! a client of another make, whatever ends.

use crate::common;
use crate::dhcp::{KEA6, ask, binding};
use crate::dhcp_server::{Ended, is_alive};

use std::fs;
use std::process::Output;
use std::time::Duration;

use common::{Site, accepted, installed, stderr, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

const DHCLIENT: &str = "/usr/sbin/dhclient";
const PATIENCE: Duration = Duration::from_secs(20);
const DIRECTORY: &str = "dhcpv6-server";

const SERVED: &str = "\
set interfaces lan0 unit 0 family inet6 address fd71:9::1/64
set security zones security-zone branch interfaces lan0.0 host-inbound-traffic system-services ping
set security policies from-zone branch to-zone right policy out match source-address any
set security policies from-zone branch to-zone right policy out match destination-address any
set security policies from-zone branch to-zone right policy out match application any
set security policies from-zone branch to-zone right policy out then permit
set protocols router-advertisement interface lan0.0 managed-configuration
set system services dhcp-local-server dhcpv6 group lan interface lan0.0
set system services dhcp-local-server dhcpv6 group lan overrides delegated-pool branches
set system services dhcp-local-server dhcpv6 overrides rapid-commit
set access address-assignment pool office family inet6 prefix fd71:9::/64
set access address-assignment pool office family inet6 range all low fd71:9::1 high fd71:9::3
set access address-assignment pool office family inet6 dhcp-attributes dns-server [ fd71:9::53 fd71:9::54 ]
set access address-assignment pool office family inet6 dhcp-attributes domain-name [ corp.example lab.example ]
set access address-assignment pool office family inet6 dhcp-attributes valid-lifetime 3600
set access address-assignment pool office family inet6 dhcp-attributes preferred-lifetime 1800
set access address-assignment pool office family inet6 host printer duid 00:03:00:01:02:00:5e:10:00:01
set access address-assignment pool office family inet6 host printer ip-address fd71:9::77
set access address-assignment pool branches family inet6 prefix fd71:100::/48
set access address-assignment pool branches family inet6 range all prefix-length 56
";
const ADMITTED: &str =
    "set security zones security-zone branch interfaces lan0.0 host-inbound-traffic system-services dhcpv6\n";

/// Of the gateway of a branch, whose link to the server is eth0.
const BRANCH: &str = "\
set interfaces eth0 unit 0 family inet6 dhcpv6-client client-type stateful
set interfaces eth0 unit 0 family inet6 dhcpv6-client client-ia-type [ ia-na ia-pd ]
set interfaces eth0 unit 0 family inet6 dhcpv6-client req-option dns-server
set interfaces eth0 unit 0 family inet6 dhcpv6-client update-router-advertisement interface left0.0
set security zones security-zone wan interfaces eth0.0
set security policies from-zone left to-zone wan policy out match source-address any
set security policies from-zone left to-zone wan policy out match destination-address any
set security policies from-zone left to-zone wan policy out match application any
set security policies from-zone left to-zone wan policy out then permit
";

fn view(gateway: &Gateway) -> Value {
    gateway.json("/api/dhcpv6-server").unwrap()
}

fn pid(gateway: &Gateway) -> Option<u64> {
    view(gateway)["pid"].as_u64()
}

/// The lease of an address or a prefix.
fn bound(gateway: &Gateway, address: &str) -> Option<Value> {
    view(gateway)["bindings"].as_array().unwrap().iter().find(|own| own["address"] == address).cloned()
}

/// As the kernel of the server's gateway has them.
fn routes(site: &Site) -> String {
    site.gateway.ip("-6 route show proto 84").unwrap()
}

/// What native XDP redirects must have its checksums, and needs a far end that polls.
fn prepare(hosts: &[&Netns]) {
    for host in hosts {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
}

fn modes(mode: &str, devices: &[&str]) -> String {
    devices.iter().map(|device| format!("set interfaces {device} mode {mode}\n")).collect()
}

/// A lease of a gateway that is a branch of the other.
struct Branch {
    address: String,
    prefix: String,
}

fn branch_is_bound(branch: &Site, what: &str) -> Branch {
    let now = || binding(branch, "dhcpv6-clients", "eth0.0");
    wait_until(what, PATIENCE, || now()["state"] == "bound");
    let lease = now();
    let text = |name: &str| lease[name]["prefix"].as_str().unwrap_or_default().to_owned();
    Branch { address: text("address").trim_end_matches("/128").to_owned(), prefix: text("prefix") }
}

/// The host behind the branch has an address of the delegated prefix, as its gateway's neighbour.
fn settle(branch: &Site) {
    let shown = || branch.gateway.ip("-6 -brief address show dev left0").unwrap();
    wait_until("the branch has a part of its prefix", PATIENCE, || shown().contains("fd71:100:"));
    let shown = shown();
    let own = shown.split_whitespace().find(|word| word.starts_with("fd71:100:")).unwrap();
    let own = own.trim_end_matches("/64");
    branch.left.ip(&format!("-6 address add {own}2/64 dev eth0 nodad")).unwrap();
    branch.left.ip(&format!("-6 route replace default via {own} src {own}2")).unwrap();
}

fn a_branch_is_reached_by_its_prefix(label: &str, mode: &str) {
    if !installed(&[KEA6]) {
        return;
    }
    let site = Site::new(label);
    let branch = Site::new(&format!("{label}-b"));
    site.connect(&branch.gateway, "lan0", &[]);
    prepare(&[&site.left, &site.right, &branch.gateway, &branch.left, &branch.right]);
    let conf =
        site.write("a.conf", &format!("{SERVED}{ADMITTED}{}", modes(mode, &["left0", "right0", "lan0"])));
    let mut gateway = site.start(&conf);
    let _ended = Ended::of(&site, DIRECTORY);
    wait_until("the server runs", PATIENCE, || pid(&gateway).is_some());
    let client = branch.write("b.conf", &format!("{BRANCH}{}", modes(mode, &["left0", "right0", "eth0"])));
    let mut cpe = branch.start(&client);
    let lease = branch_is_bound(&branch, "a lease");
    assert_eq!(lease.address, "fd71:9::2", "the gateway's own address is lent to nobody");
    assert!(lease.prefix.starts_with("fd71:100:") && lease.prefix.ends_with("/56"), "{}", lease.prefix);
    wait_until("the prefix has a route", PATIENCE, || routes(&site).contains(&lease.prefix));
    let route = routes(&site);
    assert!(route.contains("via fe80::") && route.contains("dev lan0"), "{route}");
    wait_until("leases are shown", PATIENCE, || {
        bound(&gateway, &lease.prefix).is_some_and(|own| !own["next_hop"].is_null())
            && bound(&gateway, &lease.address).is_some()
    });
    let shown = bound(&gateway, &lease.prefix).unwrap();
    assert_eq!(
        (shown["pool"].as_str(), shown["interface"].as_str()),
        (Some("branches"), Some("lan0.0")),
        "{shown}"
    );
    assert!(route.contains(shown["next_hop"].as_str().unwrap()), "{shown} {route}");
    settle(&branch);
    let reaches = || site.pings(&branch.left, "fd71:2::2");
    wait_until("what is behind the branch is served by its prefix", PATIENCE, reaches);
    let first = pid(&gateway).unwrap();
    // the daemon is killed and its route lost meanwhile: the same server goes on, and the next daemon puts the route back
    gateway.kill().unwrap();
    assert!(reaches(), "the route outlives the daemon");
    site.gateway.ip(&format!("-6 route del {}", lease.prefix)).unwrap();
    gateway.start().unwrap();
    wait_until("the daemon has found the server", PATIENCE, || pid(&gateway) == Some(first));
    wait_until("the route is back", PATIENCE, || routes(&site).contains(&lease.prefix));
    // the server is killed: another one comes, and knows its clients
    kill(Pid::from_raw(first as i32), Signal::SIGKILL).unwrap();
    wait_until("another server runs", PATIENCE, || pid(&gateway).is_some_and(|pid| pid != first));
    assert!(bound(&gateway, &lease.prefix).is_some());
    assert!(routes(&site).contains(&lease.prefix) && reaches());
    wait_until("the branch renews with it", PATIENCE, || {
        ask(&branch, "request dhcpv6 client renew interface eth0.0");
        branch_is_bound(&branch, "renewed").prefix == lease.prefix
    });
    // with the device goes its route, and with the device it comes back
    branch.gateway.ip("link set eth0 down").unwrap();
    site.gateway.ip("link set lan0 down").unwrap();
    assert!(!routes(&site).contains(&lease.prefix));
    site.gateway.ip("link set lan0 up").unwrap();
    branch.gateway.ip("link set eth0 up").unwrap();
    wait_until("the route is back with its device", PATIENCE, || routes(&site).contains(&lease.prefix));
    // what is given back has no route
    branch_is_bound(&branch, "the lease outlives the carrier");
    ask(&branch, "request dhcpv6 client release interface eth0.0");
    wait_until("no route", PATIENCE, || routes(&site).is_empty() && bound(&gateway, &lease.prefix).is_none());
    ask(&branch, "request dhcpv6 client renew interface eth0.0");
    let lease = branch_is_bound(&branch, "another lease");
    wait_until("its route", PATIENCE, || routes(&site).contains(&lease.prefix));
    // nor has what is taken away by hand
    let prefix = lease.prefix.clone();
    let cleared = site.sluice(&["cli", "-c", &format!("clear dhcpv6 server binding {prefix}")]);
    assert!(accepted(&cleared).contains("has ended"));
    wait_until("no route", PATIENCE, || routes(&site).is_empty());
    ask(&branch, "request dhcpv6 client renew interface eth0.0");
    wait_until("a route again", PATIENCE, || !routes(&site).is_empty());
    assert!(cpe.stop().unwrap().success());
    ends_with_its_statement(&site, &mut gateway, &conf);
}

/// The statement goes, and server and routes with it; the daemon stops, and they stay, until `sluice cleanup`.
fn ends_with_its_statement(site: &Site, gateway: &mut Gateway, conf: &std::path::Path) {
    let before = pid(gateway).unwrap();
    accepted(&site.commit(&site.write("none.conf", "")));
    wait_until("no server", PATIENCE, || !is_alive(before) && pid(gateway).is_none());
    wait_until("no route", PATIENCE, || routes(site).is_empty());
    accepted(&site.commit(conf));
    wait_until("a server again", PATIENCE, || pid(gateway).is_some());
    wait_until("and the route to what is still lent", PATIENCE, || !routes(site).is_empty());
    let last = pid(gateway).unwrap();
    assert!(gateway.stop().unwrap().success());
    assert!(is_alive(last) && !routes(site).is_empty(), "it serves while the daemon is away");
    accepted(&site.sluice(&["cleanup"]));
    assert!(!is_alive(last) && routes(site).is_empty() && !site.state().join(DIRECTORY).exists());
}

#[test]
#[ignore = "the same on the other hook; runs with make soak"]
fn a_branch_is_reached_by_its_prefix_on_tc() {
    a_branch_is_reached_by_its_prefix("pds-tc", "tc");
}

#[test]
fn a_branch_is_reached_by_its_prefix_on_xdp() {
    a_branch_is_reached_by_its_prefix("pds-xdp", "xdp");
}

/// One run of ISC's client, which says what it was told.
fn dhclient(site: &Site, host: &Netns, mac: &str, seconds: &str) -> (Output, String) {
    host.ip("link set eth0 down").unwrap();
    host.ip(&format!("link set eth0 address {mac}")).unwrap();
    host.ip("link set eth0 up").unwrap();
    wait_until("a link-local address", PATIENCE, || {
        host.ip("-6 -brief address show dev eth0").unwrap().contains("fe80:")
    });
    let path = |name: &str| site.dir().join(name).display().to_string();
    let script = path("dhclient.sh");
    // what is bound is told once, and no address is set
    fs::write(&script, "#!/bin/sh\n[ \"$reason\" = BOUND6 ] && set >>\"${0%/*}/told6\"\nexit 0\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for name in ["told6", "leases6", "pid6"] {
        let _ = fs::remove_file(path(name));
    }
    let conf = path("dhclient.conf");
    fs::write(&conf, "request dhcp6.name-servers, dhcp6.domain-search;\n").unwrap();
    fs::write(path("leases6"), "").unwrap();
    let mut command = host.command("timeout");
    command.args([seconds, DHCLIENT, "-6", "-1", "-N", "-P", "-D", "LL", "-cf", &conf, "-sf", &script]);
    let output = command.args(["-lf", &path("leases6"), "-pf", &path("pid6"), "eth0"]).output().unwrap();
    let told = fs::read_to_string(path("told6")).unwrap_or_default();
    if let Ok(pid) = fs::read_to_string(path("pid6")).unwrap_or_default().trim().parse() {
        // it has gone into the background, and may have ended
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    (output, told)
}

/// A client of another make, on the other hook: what is not admitted is not served; options, a reserved address, a prefix.
#[test]
fn a_client_of_another_make_is_served() {
    if !installed(&[KEA6, DHCLIENT]) {
        return;
    }
    let site = Site::new("dhcpd6");
    let host = Netns::create("dhcpd6-h").unwrap();
    site.connect(&host, "lan0", &[]);
    let on = modes("tc", &["left0", "right0", "lan0"]);
    let gateway = site.start(&site.write("a.conf", &format!("{SERVED}{on}")));
    let _ended = Ended::of(&site, DIRECTORY);
    wait_until("the server runs", PATIENCE, || pid(&gateway).is_some());
    let (output, told) = dhclient(&site, &host, "02:00:5e:10:00:01", "4");
    assert!(!output.status.success() && told.is_empty(), "its zone does not admit it: {told}");
    accepted(&site.commit(&site.write("b.conf", &format!("{SERVED}{ADMITTED}{on}"))));
    let (output, told) = dhclient(&site, &host, "02:00:5e:10:00:01", "20");
    assert!(output.status.success(), "{}", stderr(&output));
    for word in [
        "new_ip6_address='fd71:9::77'",
        "new_ip6_prefix='fd71:100:",
        "new_dhcp6_name_servers='fd71:9::53 fd71:9::54'",
        "new_dhcp6_domain_search='corp.example. lab.example.'",
        "new_max_life='3600'",
        "new_preferred_life='1800'",
    ] {
        assert!(told.contains(word), "`{word}` is missing:\n{told}");
    }
    wait_until("both leases are shown", PATIENCE, || {
        bound(&gateway, "fd71:9::77").is_some() && !routes(&site).is_empty()
    });
    let shown = accepted(&site.sluice(&["cli", "-c", "show dhcpv6 server binding"]));
    for word in ["fd71:9::77", "00:03:00:01:02:00:5e:10:00:01", "/56", "branches", "office", "fe80::"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let (_, told) = dhclient(&site, &host, "02:00:5e:10:00:09", "20");
    assert!(
        told.contains("new_ip6_address='fd71:9::2'") || told.contains("new_ip6_address='fd71:9::3'"),
        "{told}"
    );
    accepted(&site.commit(&site.write("c.conf", "")));
    wait_until("no server", PATIENCE, || pid(&gateway).is_none() && routes(&site).is_empty());
}

#[test]
fn a_zone_that_drops_what_clients_send_is_told() {
    let site = Site::new("dhcpd6-deaf");
    let _gateway = site.start(&site.write("a.conf", ""));
    let _ended = Ended::of(&site, DIRECTORY);
    let text = "set system services dhcp-local-server dhcpv6 group g interface left0.0\n\
                set access address-assignment pool p family inet6 prefix fd71:1::/64\n\
                set access address-assignment pool p family inet6 range r low fd71:1::100 high fd71:1::1ff\n";
    let said = site.commit(&site.write("b.conf", text));
    assert!(stderr(&said).contains("host-inbound-traffic system-services dhcpv6"), "{}", stderr(&said));
    accepted(&said);
    accepted(&site.commit(&site.write("c.conf", "")));
}
