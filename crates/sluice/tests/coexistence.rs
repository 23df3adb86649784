//! Routing daemons and DHCP clients beside Sluice keep what they have; what they change moves live flows at once.

use crate::common;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Running, Site, accepted, installed, wait_until};
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

/// Longest time a change of routes or neighbours may take to move flows.
const MOVED: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

fn spawn(netns: &Netns, program: &str, arguments: &[&str]) -> Running {
    let mut command = netns.command(program);
    Running::spawn(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()))
}

const ZEBRA: &str = "/usr/lib/frr/zebra";
const BGPD: &str = "/usr/lib/frr/bgpd";

/// zebra and bgpd in a namespace, with a directory of their own.
fn frr(netns: &Netns, directory: &Path, configuration: &str) -> Vec<Running> {
    fs::create_dir_all(directory).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    fs::write(path("frr.conf"), configuration).unwrap();
    let run = |program: &str, name: &str| {
        let (pid, socket, own) = (path(&format!("{name}.pid")), path("zserv"), path("vty"));
        let conf = path("frr.conf");
        let common = [
            "-u",
            "frr",
            "-g",
            "frr",
            "-P",
            "0",
            "-f",
            &conf,
            "-i",
            &pid,
            "-z",
            &socket,
            "--vty_socket",
            &own,
        ];
        spawn(netns, program, &common)
    };
    fs::create_dir_all(path("vty")).unwrap();
    fs::set_permissions(path("vty"), fs::Permissions::from_mode(0o777)).unwrap();
    let zebra = run(ZEBRA, "zebra");
    wait_until("zebra listens", PATIENCE, || directory.join("zserv").exists());
    vec![zebra, run(BGPD, "bgpd")]
}

fn has_route(netns: &Netns, prefix: &str) -> bool {
    netns.ip(&format!("route show {prefix}")).unwrap().contains(prefix)
}

/// What may happen to a daemon: a commit, a restart, a crash.
fn disturb(site: &Site, gateway: &mut Gateway, conf: &Path, mut holds: impl FnMut(&str)) {
    accepted(&site.commit(conf));
    holds("after a commit");
    assert!(gateway.stop().unwrap().success());
    holds("without the daemon");
    gateway.start().unwrap();
    holds("after a restart");
    gateway.kill().unwrap();
    holds("after kill -9");
    gateway.start().unwrap();
    holds("after a crash");
}

fn routes_of_frr_survive(label: &str, mode: &str) {
    if !installed(&[ZEBRA, BGPD]) {
        return;
    }
    let site = Site::new(label);
    for host in [&site.left, &site.right] {
        // what native XDP redirects must have its checksums, and needs a far end that polls
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    let more = format!(
        "set security zones security-zone right host-inbound-traffic protocols bgp\n\
         set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n"
    );
    let conf = site.write("a.conf", &more);
    let mut gateway = site.start(&conf);
    site.right.ip("address add 10.90.0.1/32 dev lo").unwrap();
    let bgp = |own: &str, peer: &str, networks: &str| {
        format!(
            "router bgp 65001\n bgp router-id {own}\n no bgp ebgp-requires-policy\n neighbor {peer} remote-as 65001\n \
             neighbor {peer} timers 1 3\n neighbor {peer} timers connect 1\n address-family ipv4 unicast\n{networks} exit-address-family\n"
        )
    };
    let directory = site.state();
    let _near = frr(&site.gateway, &directory.join("near"), &bgp("10.71.2.1", "10.71.2.2", ""));
    let _far =
        frr(&site.right, &directory.join("far"), &bgp("10.71.2.2", "10.71.2.1", "  network 10.90.0.1/32\n"));
    wait_until("the route is learned through the gateway's own port 179", PATIENCE, || {
        has_route(&site.gateway, "10.90.0.1")
    });
    wait_until("the route is used", PATIENCE, || site.pings(&site.left, "10.90.0.1"));
    disturb(&site, &mut gateway, &conf, |when| {
        assert!(has_route(&site.gateway, "10.90.0.1"), "the route is gone {when}");
        assert!(site.pings(&site.left, "10.90.0.1"), "the route does not work {when}");
    });
    // the BGP session itself must have lived on, else the route would be gone in three seconds
    std::thread::sleep(Duration::from_secs(4));
    assert!(has_route(&site.gateway, "10.90.0.1"), "the BGP session has ended");
}

#[test]
fn routes_of_frr_survive_commits_restarts_and_crashes() {
    routes_of_frr_survive("frr", "tc");
}

#[test]
fn routes_of_frr_survive_on_xdp() {
    routes_of_frr_survive("frrxdp", "xdp");
}

const UDHCPC: &str = "/usr/sbin/udhcpc";
const DNSMASQ: &str = "/usr/sbin/dnsmasq";

/// What udhcpc runs: puts the lease on the device and writes down each event.
const LEASE_SCRIPT: &str = "#!/bin/sh
case \"$1\" in
bound|renew)
    ip address replace \"$ip/24\" dev \"$interface\" valid_lft \"$lease\" preferred_lft \"$lease\"
    ip route replace 10.91.0.0/16 via \"$router\" proto dhcp
    ;;
esac
echo \"$1 $ip\" >> \"$0.log\"
";

fn lease_script(directory: &Path) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let script = directory.join("lease");
    fs::write(&script, LEASE_SCRIPT).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn a_lease_survives(mode: &str) {
    if !installed(&[UDHCPC, DNSMASQ]) {
        return;
    }
    let site = Site::new(&format!("dhcp-{mode}"));
    let provider = Netns::create(&format!("dhcp-{mode}-isp")).unwrap();
    site.connect(&provider, "wan0", &["10.72.0.254/24"]);
    for (netns, device) in [(&provider, "eth0"), (&site.gateway, "wan0")] {
        netns.run("ethtool", ["-K", device, "tx", "off", "gro", "on"]).unwrap();
    }
    // the zone admits nothing: what DHCP needs passes all the same
    let conf = site.write(
        "a.conf",
        &format!(
            "set system services sluice mode {mode}\nset interfaces wan0 unit 0 family inet\n\
             set security zones security-zone wan interfaces wan0.0\n"
        ),
    );
    let mut gateway = site.start(&conf);
    fs::create_dir_all(site.state()).unwrap();
    let leases = format!("--dhcp-leasefile={}", site.state().join("leases").display());
    let _server = spawn(
        &provider,
        DNSMASQ,
        &[
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=eth0",
            "--bind-interfaces",
            "--dhcp-range=10.72.0.50,10.72.0.60,120s",
            "--dhcp-option=3,10.72.0.254",
            "--dhcp-authoritative",
            "--user=root",
            &leases,
            "--pid-file=",
        ],
    );
    let script = lease_script(&site.state()).display().to_string();
    let client = spawn(&site.gateway, UDHCPC, &["-f", "-i", "wan0", "-s", &script, "-t", "20", "-T", "1"]);
    let events = || fs::read_to_string(format!("{script}.log")).unwrap_or_default();
    wait_until("a lease is given", PATIENCE, || events().contains("bound 10.72.0."));
    let holds = |when: &str| {
        assert!(
            site.addresses("wan0").contains("10.72.0.5") || site.addresses("wan0").contains("10.72.0.60"),
            "no address {when}"
        );
        assert!(has_route(&site.gateway, "10.91.0.0/16"), "no route {when}");
        // asked of the server in unicast, from the address itself
        let before = events().lines().count();
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(client.id() as i32),
            nix::sys::signal::Signal::SIGUSR1,
        )
        .unwrap();
        wait_until(&format!("the lease is renewed {when}"), PATIENCE, || {
            events().lines().skip(before).any(|line| line.starts_with("renew"))
        });
    };
    holds("at first");
    disturb(&site, &mut gateway, &conf, holds);
}

#[test]
fn a_lease_survives_on_tc() {
    a_lease_survives("tc");
}

#[test]
fn a_lease_survives_on_xdp() {
    a_lease_survives("xdp");
}

/// Sends a datagram every 200 microseconds until it is stopped.
fn stream(site: &Site, to: &str, stop: &AtomicBool) {
    let socket = site.left.enter(|| UdpSocket::bind("10.71.1.2:5555")).unwrap().unwrap();
    socket.connect(to).unwrap();
    while !stop.load(Ordering::Relaxed) {
        // an ICMP error in between is no reason to end
        let _ = socket.send(b"tick");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn listener(netns: &Netns, address: &str) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    socket
}

/// Throws away what has come so far.
fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}

/// Runs `change` while a flow is live, and says how long the flow took to arrive at `there` from then on.
fn moves(site: &Site, to: &str, here: &UdpSocket, there: &UdpSocket, change: impl FnOnce()) -> Duration {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| stream(site, to, &stop));
        let took = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            here.recv(&mut [0; 64]).expect("the flow arrives");
            std::thread::sleep(Duration::from_millis(200));
            let begun = Instant::now();
            change();
            drain(there);
            there.recv(&mut [0; 64]).expect("the flow arrives after the change");
            begun.elapsed()
        }));
        stop.store(true, Ordering::Relaxed);
        took.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_route_moves_a_live_flow_within_100_ms() {
    let site = Site::new("move-route");
    let other = Netns::create("move-route-o").unwrap();
    site.connect(&other, "other0", &["10.73.0.2/24"]);
    let _gateway = site.start(&site.write(
        "a.conf",
        "set interfaces other0 unit 0 family inet address 10.73.0.1/24\n\
         set security zones security-zone right interfaces other0.0\n",
    ));
    for host in [&site.right, &other] {
        host.ip("address add 10.99.0.1/32 dev lo").unwrap();
    }
    site.gateway.ip("route add 10.99.0.0/16 via 10.71.2.2").unwrap();
    site.gateway.run("ping", ["-c", "1", "-W", "2", "10.73.0.2"]).unwrap();
    let (here, there) = (listener(&site.right, "10.99.0.1:7000"), listener(&other, "10.99.0.1:7000"));
    let took = moves(&site, "10.99.0.1:7000", &here, &there, || {
        site.gateway.ip("route replace 10.99.0.0/16 via 10.73.0.2").unwrap();
    });
    println!("a route change moved a live flow in {took:?}");
    assert!(took < MOVED, "took {took:?}");
}

#[test]
fn a_neighbour_moves_a_live_flow_within_100_ms() {
    let site = Site::new("move-neigh");
    let _gateway = site.start(&site.write("a.conf", ""));
    let here = listener(&site.right, "10.71.2.2:7000");
    let moved = "02:71:00:00:00:77";
    assert!(site.pings(&site.left, "10.71.2.2"));
    let stop = AtomicBool::new(false);
    let took = std::thread::scope(|scope| {
        scope.spawn(|| stream(&site, "10.71.2.2:7000", &stop));
        here.recv(&mut [0; 64]).expect("the flow arrives");
        // from here on frames to the old address are lost, until the gateway knows the new one
        site.right.ip(&format!("link set eth0 address {moved}")).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        drain(&here);
        let begun = Instant::now();
        site.gateway.ip(&format!("neigh replace 10.71.2.2 dev right0 lladdr {moved}")).unwrap();
        let arrived = here.recv(&mut [0; 64]);
        let took = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        arrived.expect("the flow arrives at the new address");
        took
    });
    println!("a neighbour change moved a live flow in {took:?}");
    assert!(took < MOVED, "took {took:?}");
}
