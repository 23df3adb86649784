//! Native XDP beside a device that takes no frames from it: what is for that one leaves by the kernel, and nothing is lost.

use crate::common;
use crate::trace::Watch;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use common::{BASE, Site, balances, wait_until};
use sluice_lab::gateway::Gateway;
use sluice_lab::helpers::tag_with_vlan;

const PATIENCE: Duration = Duration::from_secs(10);
const BULK: usize = 4 << 20;

/// The right network behind a bridge, whose driver has no `ndo_xdp_xmit`, and a third one behind another.
fn bridged(site: &Site, device: &str) {
    let gateway = &site.gateway;
    gateway.ip(&format!("link set {device} name {device}p")).unwrap();
    gateway.ip(&format!("link add {device} type bridge")).unwrap();
    gateway.ip(&format!("link set {device}p master {device} up")).unwrap();
    gateway.ip(&format!("link set {device} up")).unwrap();
}

fn reads_all(mut stream: TcpStream) -> usize {
    let mut data = Vec::new();
    stream.read_to_end(&mut data).unwrap();
    data.iter().filter(|byte| **byte == 0x5a).count()
}

/// Both ways: what the left host sends to an address, and what is sent back to it.
fn transfers(site: &Site, to: &str) {
    let listener = site.right.enter(|| TcpListener::bind((to, 7777)).unwrap()).unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&vec![0x5a; BULK]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            reads_all(stream)
        });
        let mut stream = site.left.enter(|| TcpStream::connect((to, 7777)).unwrap()).unwrap();
        let writer = stream.try_clone().unwrap();
        let got = scope.spawn(|| reads_all(writer));
        stream.write_all(&vec![0x5a; BULK]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!((got.join().unwrap(), server.join().unwrap()), (BULK, BULK), "{to}");
    });
}

fn sent(gateway: &Gateway, name: &str) -> u64 {
    let views = gateway.json("/api/interfaces").unwrap();
    let view = views.as_array().unwrap().iter().find(|view| view["name"] == name).unwrap();
    view["counters"]["sent"].as_u64().unwrap()
}

fn reaches(label: &str, beyond: &str, vlan: Option<u16>) {
    let site = Site::new(label);
    for host in [&site.left, &site.right] {
        let off = ["-K", "eth0", "tx", "off", "gro", "on", "txvlan", "off", "tx-vlan-stag-hw-insert", "off"];
        host.run("ethtool", off).unwrap();
    }
    bridged(&site, "right0");
    let mut text = format!(
        "{BASE}set interfaces left0 mode xdp\nset interfaces right0 mode {beyond}\n\
         set security nat source rule-set out from zone left\nset security nat source rule-set out to zone right\n\
         set security nat source rule-set out rule all match source-address 10.71.1.0/24\n\
         set security nat source rule-set out rule all then source-nat interface\n"
    );
    if let Some(vlan) = vlan {
        text = text.replace("set interfaces right0 unit 0", &format!("set interfaces right0 unit {vlan}"));
        text = text.replace("right0.0", &format!("right0.{vlan}"));
        text += &format!(
            "set interfaces right0 vlan-tagging\nset interfaces right0 unit {vlan} vlan-id {vlan}\n"
        );
    }
    let gateway = site.start(&site.write_all("a.conf", &text));
    if let Some(vlan) = vlan {
        tag_with_vlan(&site.right, "eth0", vlan).unwrap();
    }
    wait_until("the first packet", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
    let unit = format!("right0.{}", vlan.unwrap_or(0));
    let before = sent(&gateway, &unit);
    for to in ["10.71.2.2", "fd71:2::2"] {
        transfers(&site, to);
    }
    {
        let watch = Watch::new(&site, &["trace", "--json", "--protocol", "icmp", "--count", "100"]);
        assert!(site.pings(&site.left, "10.71.2.2"));
        let told = || watch.packets().iter().any(|packet| packet["verdict"] == "forwarded");
        wait_until("the trace tells that it went on", PATIENCE, told);
    }
    let least = 2 * BULK as u64 / 1500;
    assert!(sent(&gateway, &unit) >= before + least, "counted where they left");
    balances(&gateway);
}

#[test]
fn native_xdp_sends_to_a_device_of_tc() {
    reaches("bykerneltc", "tc", None);
}

#[test]
fn native_xdp_sends_to_a_tagged_unit() {
    reaches("bykerneltag", "tc", Some(100));
}

#[test]
fn native_xdp_sends_to_a_device_of_generic_xdp() {
    reaches("bykernelgen", "generic", None);
}

/// Generic XDP beside native one sends to every device by itself.
#[test]
fn generic_xdp_sends_to_another_device_of_its_kind() {
    let site = Site::new("bykernel2");
    bridged(&site, "right0");
    bridged(&site, "left0");
    let third = sluice_lab::netns::Netns::create("bykernel2-t").unwrap();
    site.connect_third(&third);
    let text = format!(
        "{BASE}set interfaces third0 mode xdp\nset interfaces third0 unit 0 family inet address 10.71.3.1/24\n\
         set security zones security-zone left interfaces third0.0\n\
         set interfaces left0 mode generic\nset interfaces right0 mode generic\n"
    );
    for host in [&site.left, &site.right, &third] {
        host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }
    let gateway = site.start(&site.write_all("a.conf", &text));
    for host in [&site.left, &third] {
        wait_until("the first packet", PATIENCE, || site.pings(host, "10.71.2.2"));
    }
    transfers(&site, "10.71.2.2");
    balances(&gateway);
}
