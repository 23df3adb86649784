//! Routing instances: two customers with the same networks, side by side, and what one of them is let out to.

use crate::common;

use std::net::{SocketAddr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use common::{Running, Site, accepted, balances, refused, wait_until};
use sluice_lab::netns::Netns;
use sluice_lab::patience::patience;

/// Two instances of the same addresses; red has a way out, and translates.
const TWICE: &str = "
set interfaces right0 unit 0 family inet address 10.71.2.1/24
set interfaces right0 unit 0 family inet6 address fd71:2::1/64
set interfaces red0 unit 0 family inet address 10.0.0.1/24
set interfaces red0 unit 0 family inet6 address fd00:a::1/64
set interfaces red1 unit 0 family inet address 10.0.1.1/24
set interfaces red1 unit 0 family inet6 address fd00:b::1/64
set interfaces blue0 unit 0 family inet address 10.0.0.1/24
set interfaces blue0 unit 0 family inet6 address fd00:a::1/64
set interfaces blue1 unit 0 family inet address 10.0.1.1/24
set interfaces blue1 unit 0 family inet6 address fd00:b::1/64
set interfaces moved0 unit 0 family inet address 10.0.7.1/24
set interfaces moved0 unit 0 family inet6 address fd00:7::1/64
set security zones security-zone world interfaces right0.0
set security zones security-zone red interfaces red0.0
set security zones security-zone red interfaces red1.0
set security zones security-zone red host-inbound-traffic system-services ping
set security zones security-zone blue interfaces blue0.0
set security zones security-zone blue interfaces blue1.0
set security zones security-zone blue host-inbound-traffic system-services ping
set security zones security-zone moved interfaces moved0.0
set security policies global policy all match source-address any
set security policies global policy all match destination-address any
set security policies global policy all match application any
set security policies global policy all then permit
set security nat source rule-set out from routing-instance red
set security nat source rule-set out to routing-instance default
set security nat source rule-set out rule all match source-address 10.0.0.0/8
set security nat source rule-set out rule all then source-nat interface
set security nat source rule-set out6 from routing-instance red
set security nat source rule-set out6 to routing-instance default
set security nat source rule-set out6 rule all6 match source-address fd00::/16
set security nat source rule-set out6 rule all6 then source-nat interface
set security flow max-sessions 4096
set security flow max-sessions-v6 4096
set routing-instances red instance-type virtual-router
set routing-instances red interface red0.0
set routing-instances red interface red1.0
set routing-instances red routing-options static route 0.0.0.0/0 next-table inet.0
set routing-instances red routing-options static route ::/0 next-table inet6.0
set routing-instances blue instance-type vrf
set routing-instances blue interface blue0.0
set routing-instances blue interface blue1.0
";

const PATIENCE: Duration = Duration::from_secs(5);
const SERVERS: [&str; 2] = ["10.0.1.2:9000", "[fd00:b::2]:9000"];

/// A host of both families at a device of the gateway.
fn host(site: &Site, device: &str, net4: u8, net6: &str) -> Netns {
    let host = Netns::create(&format!("vrf-{device}")).unwrap();
    site.connect(&host, device, &[&format!("10.0.{net4}.2/24"), &format!("fd00:{net6}::2/64")]);
    host.ip(&format!("route add default via 10.0.{net4}.1")).unwrap();
    host.ip(&format!("-6 route add default via fd00:{net6}::1")).unwrap();
    host
}

/// A word that each server adds to what it has got.
fn serve(host: &Netns, address: &str, word: u8, is_over: &AtomicBool) {
    let socket = host.enter(|| UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 64];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        buffer[length] = word;
        let _ = socket.send_to(&buffer[..=length], from);
    }
}

/// Sockets of one address and port in each instance, to one server's address and port.
fn sockets(clients: [&Netns; 2], server: &str) -> [UdpSocket; 2] {
    let server: SocketAddr = server.parse().unwrap();
    let own = if server.is_ipv4() { "10.0.0.2:4000" } else { "[fd00:a::2]:4000" };
    clients.map(|client| {
        let socket = client.enter(|| UdpSocket::bind(own).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.enter(|| socket.connect(server).unwrap()).unwrap();
        socket
    })
}

/// Whose server answers each socket, in turn.
fn answers(sockets: &[UdpSocket; 2]) -> [Option<u8>; 2] {
    sockets.each_ref().map(|socket| {
        let mut buffer = [0; 64];
        while socket.recv(&mut buffer).is_ok() {}
        socket.send(b"who are you ").ok()?;
        let length = socket.recv(&mut buffer).ok()?;
        Some(buffer[length - 1])
    })
}

fn each_has_its_own(sockets: &[[UdpSocket; 2]]) {
    for pair in sockets {
        wait_until("both servers answer their own client", patience(PATIENCE), || {
            answers(pair) == [Some(b'r'), Some(b'b')]
        });
    }
    for pair in sockets.iter().cycle().take(20) {
        let answers = answers(pair);
        assert!(
            answers.iter().zip(*b"rb").all(|(seen, own)| seen.is_none_or(|seen| seen == own)),
            "{answers:?}"
        );
    }
}

struct Hosts {
    red: [Netns; 2],
    blue: [Netns; 2],
    moved: Netns,
}

fn reaches(site: &Site, from: &Netns, to: &str) {
    wait_until(&format!("{to} answers"), patience(PATIENCE), || site.pings(from, to));
}

fn the_way_out_is_of_one_alone(site: &Site, hosts: &Hosts) {
    for to in ["10.71.2.2", "fd71:2::2"] {
        reaches(site, &hosts.red[0], to);
        assert!(site.silent(&hosts.blue[0], to), "{to} answers blue");
    }
    for host in [&hosts.red[0], &hosts.blue[0]] {
        for own in ["10.0.0.1", "10.0.1.1", "fd00:a::1"] {
            reaches(site, host, own);
        }
        assert!(site.silent(host, "10.71.2.1"), "the gateway's address in the main instance answers");
    }
}

fn all_of_it_is_shown(site: &Site) {
    let ask = |words: &str| accepted(&site.sluice(&["cli", "-c", words]));
    let list = ask("show routing instances");
    for wanted in ["red", "virtual-router", "red0.0 red1.0", "blue", "vrf", "blue0.0 blue1.0"] {
        assert!(list.contains(wanted) && !list.contains("down") && !list.contains("without"), "{list}");
    }
    let routes = ask("show route instance red");
    for wanted in ["red.inet.0: ", "red.inet6.0: ", "10.0.0.0/24", "fd00:a::/64", "throw", "unreachable"] {
        assert!(routes.contains(wanted), "{wanted}: {routes}");
    }
    let routes = ask("show route table blue.inet.0");
    assert!(routes.contains("blue.inet.0: ") && !routes.contains("inet6.0"), "{routes}");
    assert!(!routes.contains("throw"), "{routes}");
    assert!(!ask("show route").contains("10.0.0.0/24"), "routes of instances in the main table");
    let sessions = ask("show security flow session");
    for wanted in ["Routing instance: red", "Routing instance: blue", "10.0.0.2/4000 --> 10.0.1.2/9000"] {
        assert!(sessions.contains(wanted), "{wanted}: {sessions}");
    }
}

/// By what a routing daemon does to the table of one instance.
fn only_a_next_hop_that_routes_have_left_is_dead(site: &Site, hosts: &Hosts, log: impl Fn() -> String) {
    const DEAD: &str = "the next hop is dead, or a route has left it";
    let route = |change: &str| drop(site.gateway.ip(&format!("route {change} vrf red proto bgp")).unwrap());
    hosts.red[1].ip("addr add 10.9.0.9/32 dev lo").unwrap();
    route("add 10.9.0.0/24 via 10.0.1.2 metric 20");
    reaches(site, &hosts.red[0], "10.9.0.9");
    let mut ping = hosts.red[0].command("ping");
    let _ping = Running::spawn(ping.args(["-n", "-q", "-i", "0.2", "10.9.0.9"]).stdout(Stdio::null()));
    for _ in 0..3 {
        // whenever routes change, next hops in use are looked at
        sleep(patience(Duration::from_millis(200)));
        route("add 10.98.0.0/24 via 10.0.1.2");
        route("del 10.98.0.0/24 via 10.0.1.2");
    }
    sleep(patience(Duration::from_millis(100)));
    assert!(!log().contains(DEAD), "{}", log());
    route("del 10.9.0.0/24 via 10.0.1.2 metric 20");
    wait_until("the next hop is found to be dead", patience(PATIENCE), || log().contains(DEAD));
}

fn a_lost_vrf_comes_back(site: &Site, sockets: &[[UdpSocket; 2]]) {
    site.gateway.ip("link delete red").unwrap();
    let shown = || site.gateway.ip("-d link show master red").unwrap_or_default();
    let took = wait_until("the VRF device with its ports", patience(PATIENCE), || {
        ["red0", "red1"].iter().all(|port| shown().contains(port))
    });
    assert!(took < patience(Duration::from_secs(1)), "{took:?}");
    each_has_its_own(sockets);
    site.gateway.ip("link set blue1 nomaster").unwrap();
    let shown = || site.gateway.ip("link show master blue").unwrap_or_default();
    wait_until("the port", patience(PATIENCE), || shown().contains("blue1"));
    each_has_its_own(sockets);
}

fn a_unit_goes_to_another_instance_and_back(site: &Site, hosts: &Hosts, text: &str) {
    let of = |instance: &str| format!("{text}set routing-instances {instance} interface moved0.0\n");
    for (name, there, elsewhere) in
        [("red", &hosts.red[0], &hosts.blue[0]), ("blue", &hosts.blue[0], &hosts.red[0])]
    {
        accepted(&site.commit(&site.write_all(&format!("{name}.conf"), &of(name))));
        for to in ["10.0.7.2", "fd00:7::2"] {
            reaches(site, there, to);
            assert!(site.silent(elsewhere, to), "{to} answers from another instance than {name}");
        }
    }
    accepted(&site.sluice(&["rollback", "1"]));
    accepted(&site.sluice(&["commit"]));
    for to in ["10.0.7.2", "fd00:7::2"] {
        reaches(site, &hosts.red[0], to);
        assert!(site.silent(&hosts.blue[0], to), "{to} answers blue after the rollback");
    }
    // and out of all of them
    accepted(&site.commit(&site.write_all("none.conf", text)));
    assert!(!site.gateway.ip("link show dev moved0").unwrap().contains("master"));
    assert!(site.silent(&hosts.blue[0], "10.0.7.2"));
    reaches(site, &hosts.red[0], "10.0.7.2");
    reaches(site, &hosts.moved, "10.71.2.2");
}

fn circles_are_refused(site: &Site, text: &str) {
    let circle = format!("{text}set routing-options static route 10.0.0.0/16 next-table red.inet.0\n");
    let said = refused(&site.commit(&site.write_all("circle.conf", &circle)), 2);
    assert!(said.contains("round in circles: inet.0 to red.inet.0 to inet.0"), "{said}");
    site.gateway.ip("link add green type vrf table 4711").unwrap();
    let foreign = format!("{text}set routing-instances green instance-type virtual-router\n");
    let said = refused(&site.commit(&site.write_all("foreign.conf", &foreign)), 1);
    assert!(said.contains("vrf green with table 4711 exists and was not made by Sluice"), "{said}");
    site.gateway.ip("link delete green").unwrap();
}

fn two_customers(hook: &str) {
    let site = Site::new("vrf");
    let hosts = Hosts {
        red: [host(&site, "red0", 0, "a"), host(&site, "red1", 1, "b")],
        blue: [host(&site, "blue0", 0, "a"), host(&site, "blue1", 1, "b")],
        moved: host(&site, "moved0", 7, "7"),
    };
    for host in hosts.red.iter().chain(&hosts.blue).chain([&hosts.moved, &site.right]) {
        // what native XDP redirects must have its checksums, and needs a far end that polls
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    site.gateway.ip("link delete left0").unwrap();
    let text = format!("set system services sluice mode {hook}\n{TWICE}");
    let gateway = site.start(&site.write_all("a.conf", &text));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (host, word) in [(&hosts.red[1], b'r'), (&hosts.blue[1], b'b')] {
            for address in SERVERS {
                let is_over = &is_over;
                scope.spawn(move || serve(host, address, word, is_over));
            }
        }
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let sockets = SERVERS.map(|server| sockets([&hosts.red[0], &hosts.blue[0]], server));
            each_has_its_own(&sockets);
            all_of_it_is_shown(&site);
            the_way_out_is_of_one_alone(&site, &hosts);
            only_a_next_hop_that_routes_have_left_is_dead(&site, &hosts, || gateway.last_words());
            a_lost_vrf_comes_back(&site, &sockets);
            a_unit_goes_to_another_instance_and_back(&site, &hosts, &text);
            circles_are_refused(&site, &text);
            each_has_its_own(&sockets);
        }));
        is_over.store(true, Ordering::Relaxed);
        tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    balances(&gateway);
    drop(gateway);
    accepted(&site.sluice(&["cleanup"]));
    let left = site.gateway.ip("-d link show type vrf").unwrap();
    assert!(left.is_empty(), "{left}");
    for family in ["-4", "-6"] {
        let left = site.gateway.ip(&format!("{family} route show table all proto 83")).unwrap();
        assert!(left.is_empty(), "{left}");
    }
}

#[test]
#[ignore = "wants a kernel with `vrf`, which many hosts of containers lack: `make kernels`"]
fn the_same_networks_twice_by_tc() {
    two_customers("tc");
}

#[test]
#[ignore = "wants a kernel with `vrf`, which many hosts of containers lack: `make kernels`"]
fn the_same_networks_twice_by_xdp() {
    two_customers("xdp");
}

/// Nothing is changed where there are no VRF devices.
#[test]
fn a_kernel_without_vrf_is_named() {
    let site = Site::new("novrf");
    if site.gateway.ip("link add probe type vrf table 7").is_ok() {
        return eprintln!("NOT TESTED: this kernel has VRF devices");
    }
    let gateway = site.start(&site.write("a.conf", ""));
    let text = "set routing-instances red instance-type virtual-router\nset routing-instances red interface left0.0\n";
    let said = refused(&site.commit(&site.write("b.conf", text)), 1);
    assert!(said.contains("has no VRF devices") && said.contains("CONFIG_NET_VRF"), "{said}");
    assert!(site.pings(&site.left, "10.71.2.2"));
    balances(&gateway);
}
