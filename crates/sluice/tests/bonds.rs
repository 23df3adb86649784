//! A unit on a bond of two links, one of which fails.

use crate::common;

use std::process::Stdio;
use std::time::Duration;

use common::{BASE, Running, Site, accepted, balances, refused, stdout, wait_until};
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::{Netns, VethEnd, veth};
use sluice_lab::patience::patience;

const PATIENCE: Duration = Duration::from_secs(20);
const ECHOES: u32 = 400;
/// What is on its way while the kernel sees that a link is down: ten looks at its carrier.
const LOST: u32 = 20;

/// Two links to a switch in the host, whose address is behind both.
fn bond(site: &Site) -> Netns {
    let host = Netns::create("bond-host").unwrap();
    host.ip("link add br0 type bridge").unwrap();
    site.gateway.ip("link add bond0 type bond mode active-backup miimon 10").unwrap();
    for port in ["port0", "port1"] {
        let near = VethEnd { netns: &site.gateway, name: port, mac: None, addresses: &[] };
        veth(near, VethEnd { netns: &host, name: port, mac: None, addresses: &[] }).unwrap();
        host.run("ethtool", ["-K", port, "tx", "off", "gro", "on"]).unwrap();
        host.ip(&format!("link set {port} master br0 up")).unwrap();
        site.gateway.ip(&format!("link set {port} down")).unwrap();
        site.gateway.ip(&format!("link set {port} master bond0")).unwrap();
    }
    for line in ["address add 10.71.3.2/24 dev br0", "link set br0 up", "route add default via 10.71.3.1"] {
        host.ip(line).unwrap();
    }
    host.run("ethtool", ["-K", "br0", "tx", "off"]).unwrap();
    host
}

fn configuration(left: &str, bond: &str) -> String {
    format!(
        "{BASE}set interfaces left0 mode {left}\nset interfaces bond0 mode {bond}\n\
         set interfaces bond0 unit 0 family inet address 10.71.3.1/24\n\
         set security zones security-zone right interfaces bond0.0\n"
    )
}

fn active(gateway: &Gateway, site: &Site) -> String {
    let shown = site.gateway.run("cat", ["/proc/net/bonding/bond0"]).unwrap();
    let line = shown.lines().find_map(|line| line.strip_prefix("Currently Active Slave: "));
    line.unwrap_or_else(|| panic!("{shown}\n{}", gateway.last_words())).to_owned()
}

#[test]
#[ignore = "wants a kernel with `bonding`, which many hosts of containers lack: `make kernels`"]
fn a_link_of_a_bond_fails_and_sessions_go_on() {
    for (left, mode) in [("tc", "tc"), ("xdp", "tc"), ("generic", "generic"), ("xdp", "generic")] {
        let site = Site::new(&format!("bond{left}{mode}"));
        site.left.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        let host = bond(&site);
        let conf = site.write_all("a.conf", &configuration(left, mode));
        let mut gateway = site.start(&conf);
        wait_until("the bond carries", PATIENCE, || site.pings(&site.left, "10.71.3.2"));
        let mut ping = site.left.command("ping");
        ping.args(["-q", "-n", "-i", "0.05", "-c", &ECHOES.to_string(), "10.71.3.2"]);
        let echoes = Running::spawn(ping.stdout(Stdio::piped()));
        let first = active(&gateway, &site);
        host.ip(&format!("link set {first} down")).unwrap();
        wait_until("the other link is used", PATIENCE, || active(&gateway, &site) != first);
        gateway.kill().unwrap();
        gateway.start().unwrap();
        host.ip(&format!("link set {first} up")).unwrap();
        accepted(&site.commit(&conf));
        let text = stdout(&echoes.ended("ping", patience(Duration::from_secs(30))));
        let received = text.split(", ").find_map(|part| part.strip_suffix(" received")).unwrap();
        assert!(received.parse::<u32>().unwrap() + LOST >= ECHOES, "{left}, {mode}: {text}");
        balances(&gateway);
        // a bond's own native XDP runs on its ports, where nothing says whose they are
        let said = refused(&site.commit(&site.write_all("b.conf", &configuration(left, "xdp"))), 2);
        assert!(said.contains("interface bond0: driver bond has no native XDP"), "{said}");
    }
}
