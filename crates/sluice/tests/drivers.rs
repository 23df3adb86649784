//! A gateway of virtio-net devices with several queues and one of a driver without XDP, whose network has a VLAN and DHCP:
//! it stands in a guest, its hosts stand here.

use crate::common;
use crate::dhcp;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Running, Site, accepted, balances, stderr, stdout, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sluice_lab::helpers::tag_with_vlan;
use sluice_lab::netns::{Netns, VethEnd, veth};

/// What both sides tell each other by files.
const SHARE: &str = "/mnt";
const KERNEL: &str = "6.12";
/// The guest's name of the test that is its gateway.
const INSIDE: &str = "drivers::the_gateway_of_the_guest";
/// Everything is emulated, and the daemon loads its programs four times.
const PATIENCE: Duration = Duration::from_secs(600);

/// Device of the guest, its model, and where its host is.
const SEGMENTS: [(&str, &str, &str); 3] = [
    ("trust0", "virtio-net-pci", "10.0.1.2/24"),
    ("untrust0", "virtio-net-pci", "10.0.2.2/24"),
    ("wan0", "e1000e", "10.72.0.254/24"),
];

const CONFIGURATION: &str = "
set interfaces trust0 mode xdp
set interfaces trust0 unit 0 family inet address 10.0.1.1/24
set interfaces untrust0 mode xdp
set interfaces untrust0 vlan-tagging
set interfaces untrust0 unit 200 vlan-id 200
set interfaces untrust0 unit 200 family inet address 10.0.2.1/24
set interfaces untrust0 unit 200 family inet6 address fd72:2::1/64
set interfaces wan0 mode generic
set interfaces wan0 vlan-tagging
set interfaces wan0 unit 100 vlan-id 100
set interfaces wan0 unit 100 family inet dhcp
set security zones security-zone trust interfaces trust0.0
set security zones security-zone untrust interfaces untrust0.200
set security zones security-zone untrust host-inbound-traffic system-services ping
set security zones security-zone wan interfaces wan0.100
set security policies from-zone trust to-zone untrust policy all match source-address any
set security policies from-zone trust to-zone untrust policy all match destination-address any
set security policies from-zone trust to-zone untrust policy all match application any
set security policies from-zone trust to-zone untrust policy all then permit
set security policies from-zone trust to-zone wan policy all match source-address any
set security policies from-zone trust to-zone wan policy all match destination-address any
set security policies from-zone trust to-zone wan policy all match application any
set security policies from-zone trust to-zone wan policy all then permit
set security nat source rule-set out from zone trust
set security nat source rule-set out to zone wan
set security nat source rule-set out rule all match source-address 10.0.1.0/24
set security nat source rule-set out rule all then source-nat interface
set security flow max-sessions 4096
set security flow max-sessions-v6 4096
";

fn says(share: &Path, word: &str) {
    fs::write(share.join(word), "").unwrap();
}

/// Looks seldom: both sides have work to do.
fn hears(share: &Path, word: &str) {
    wait_until(word, PATIENCE, || {
        std::thread::sleep(Duration::from_millis(100));
        share.join(word).exists()
    });
}

/// The guest's devices become the gateway's, in the order of their MAC addresses.
fn adopt(site: &Site) {
    let of = |name: &str| Path::new("/sys/class/net").join(name);
    let names = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut real: Vec<(String, String)> = names
        .filter(|name| of(name).join("device").exists())
        .map(|name| (fs::read_to_string(of(&name).join("address")).unwrap(), name))
        .collect();
    real.sort();
    assert_eq!(real.len(), SEGMENTS.len(), "{real:?}");
    for ((_, name), (device, ..)) in real.iter().zip(SEGMENTS) {
        accepted(
            &Command::new("ip")
                .args(["link", "set", name, "netns", site.gateway.name(), "name", device])
                .output()
                .unwrap(),
        );
        site.gateway.ip(&format!("link set {device} up")).unwrap();
    }
    for device in ["trust0", "untrust0"] {
        site.gateway.run("ethtool", ["-L", device, "combined", "2"]).unwrap();
    }
}

fn binding(site: &Site) -> Value {
    dhcp::binding(site, "dhcp-clients", "wan0.100")
}

/// In the guest: a gateway that is restarted three times.
#[test]
#[ignore = "the guest's part of the other test"]
fn the_gateway_of_the_guest() {
    let (site, share) = (Site::new("mix"), Path::new(SHARE));
    adopt(&site);
    let mut gateway = site.start(&site.write_all("a.conf", CONFIGURATION));
    wait_until("a lease", PATIENCE, || binding(&site)["state"] == "bound");
    let address = binding(&site)["address"].clone();
    let modes = || -> Vec<String> {
        let views = gateway.json("/api/interfaces").unwrap();
        views.as_array().unwrap().iter().map(|view| view["mode"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(modes(), ["xdp-native", "xdp-native", "xdp-generic"]);
    says(share, "ready");
    hears(share, "streams");
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
        let ended = if signal == Signal::SIGKILL { gateway.kill() } else { gateway.stop() };
        ended.unwrap();
        std::thread::sleep(Duration::from_secs(3));
        gateway.start().unwrap_or_else(|error| panic!("{error:#}\n{}", gateway.last_words()));
    }
    says(share, "restarted");
    hears(share, "over");
    assert_eq!(binding(&site)["address"], address, "a lease outlives restarts");
    for device in ["untrust0", "wan0"] {
        let shown = site.gateway.ip(&format!("link show {device}")).unwrap();
        assert!(shown.contains("ALLMULTI"), "{shown}");
    }
    let stats = balances(&gateway);
    println!("{stats}");
}

/// A host, behind a bridge whose other port is the guest's device.
fn host(switch: &Netns, (device, model, address): (&str, &str, &str)) -> Netns {
    let host = Netns::create(&format!("mix-{device}")).unwrap();
    let (bridge, port) = (format!("{device}-b"), format!("{device}-p"));
    let near = VethEnd { netns: switch, name: &port, mac: None, addresses: &[] };
    veth(near, VethEnd { netns: &host, name: "eth0", mac: None, addresses: &[address] }).unwrap();
    let queues = if model.starts_with("virtio") { "multi_queue" } else { "" };
    switch.ip(&format!("tuntap add {device} mode tap {queues}")).unwrap();
    switch.ip(&format!("link add {bridge} type bridge")).unwrap();
    for member in [device, &port] {
        switch.ip(&format!("link set {member} master {bridge} up")).unwrap();
    }
    switch.ip(&format!("link set {bridge} up")).unwrap();
    host
}

/// `tests/vm/run`, which ends its emulator when it is asked to.
struct Guest(Option<Running>);

impl Guest {
    /// What it says when it has come so far; one that has ended says why.
    fn hears(&mut self, share: &Path, word: &str) {
        wait_until(word, PATIENCE, || {
            std::thread::sleep(Duration::from_millis(100));
            if self.0.as_mut().unwrap().try_wait().unwrap().is_some() {
                let ended = self.0.take().unwrap().ended("the guest", PATIENCE);
                panic!("{word} was not said: {}{}", stdout(&ended), stderr(&ended));
            }
            share.join(word).exists()
        });
    }

    fn ended(mut self) -> Output {
        self.0.take().unwrap().ended("the guest", PATIENCE)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let Some(running) = &mut self.0 else { return };
        let _ = kill(Pid::from_raw(running.id().cast_signed()), Signal::SIGTERM);
        let _ = running.wait();
    }
}

/// qemu with what the configuration's devices are joined to.
fn guest(switch: &Netns, share: &Path) -> Guest {
    let vm = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vm");
    // downloads its kernel, which it could not from that namespace
    accepted(&Command::new(vm.join("prepare")).arg(KERNEL).output().unwrap());
    let mut command = switch.command(vm.join("run"));
    command.args(["-k", KERNEL, "-t", "1800", "-m", "2048", "-s"]).arg(share);
    for (device, model, _) in SEGMENTS {
        command.arg("-n").arg(format!("{model}:{device}"));
    }
    command.arg(vm.join("guest")).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", "--nocapture", INSIDE]);
    Guest(Some(Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))))
}

/// Slow streams: a guest that is busy with packets has no time for a daemon's start.
fn iperf3(client: &Netns, server: &str, streams: &str) -> Running {
    let words = ["-c", server, "-P", streams, "-R", "-b", "1M", "-t", "3600", "-i", "20", "--json"];
    Running::spawn(client.command("iperf3").args(words).stdout(Stdio::piped()))
}

/// Ends a client; every stream must have gone on in each 20 seconds.
fn went_on(client: Running, streams: usize) {
    kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = client.ended("iperf3", Duration::from_secs(10));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["error"].as_str().is_some_and(|why| why.starts_with("interrupt")), "{streams}: {report}");
    let intervals = report["intervals"].as_array().unwrap();
    assert!(intervals.len() > 2, "{streams}: {report}");
    // the last one was cut short
    for interval in &intervals[..intervals.len() - 1] {
        let moved: Vec<u64> = interval["streams"]
            .as_array()
            .unwrap()
            .iter()
            .map(|stream| stream["bytes"].as_u64().unwrap())
            .collect();
        assert!(moved.len() == streams && moved.iter().all(|bytes| *bytes > 0), "{interval}");
    }
}

/// Four reverse streams past two devices of native XDP, two more that are translated to a leased address of a tagged unit
/// in generic XDP, and three restarts of the daemon: none stands still or is reset.
#[test]
#[ignore = "a guest that is restarted thrice takes minutes: `make kernels`"]
fn restarts_reset_nothing_whatever_the_drivers_are() {
    let site = Site::new("mixed");
    let switch = Netns::create("mix-switch").unwrap();
    let [trust, untrust, wan] = SEGMENTS.map(|segment| host(&switch, segment));
    tag_with_vlan(&wan, "eth0", 100).unwrap();
    tag_with_vlan(&untrust, "eth0", 200).unwrap();
    untrust.ip("address add fd72:2::2/64 dev eth0 nodad").unwrap();
    trust.ip("route add default via 10.0.1.1").unwrap();
    untrust.ip("route add default via 10.0.2.1").unwrap();
    let _leases = dhcp::dnsmasq(&site, &wan, &["--dhcp-range=10.72.0.50,10.72.0.60,1h"]);
    let _servers = [&untrust, &wan].map(|host| dhcp::spawn(host, "iperf3", &["-s"]));
    let mut guest = guest(&switch, site.dir());
    guest.hears(site.dir(), "ready");
    // the guest's device filters VLANs, and multicast groups, by which its neighbours ask for its address
    wait_until("an IPv6 neighbour in a VLAN", PATIENCE, || {
        untrust.run("ping", ["-6", "-c1", "-W2", "fd72:2::1"]).is_ok()
    });
    let clients = [(iperf3(&trust, "10.0.2.2", "4"), 4), (iperf3(&trust, "10.72.0.254", "2"), 2)];
    std::thread::sleep(Duration::from_secs(10));
    says(site.dir(), "streams");
    guest.hears(site.dir(), "restarted");
    std::thread::sleep(Duration::from_secs(10));
    for (client, streams) in clients {
        went_on(client, streams);
    }
    says(site.dir(), "over");
    println!("{}", accepted(&guest.ended()));
}
