//! Both equations of conservation hold through what happens to devices and neighbours: a unit that leaves its zone and
//! comes back, a device that is deleted and made again, neighbours that never answer or are asked for the first time.

use crate::common;

use std::process::Stdio;
use std::time::Duration;

use common::{BASE, Running, Site, accepted};
use sluice_lab::netns::Netns;

const THIRD: &str = "set interfaces third0 unit 0 family inet address 10.71.3.1/24
set interfaces third0 unit 0 family inet6 address fd71:3::1/64
set security zones security-zone third interfaces third0.0
set security policies from-zone third to-zone left policy in match source-address any
set security policies from-zone third to-zone left policy in match destination-address any
set security policies from-zone third to-zone left policy in match application any
set security policies from-zone third to-zone left policy in then permit
";

/// The daemon looks at devices every second.
const LOOKED: Duration = Duration::from_millis(1500);

struct Scene {
    site: Site,
    third: Netns,
}

impl Scene {
    fn new(label: &str) -> Scene {
        let site = Site::new(label);
        let third = Netns::create(&format!("{label}-t")).unwrap();
        let scene = Scene { site, third };
        scene.connect();
        for host in [&scene.site.left, &scene.site.right] {
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
        scene
    }

    fn connect(&self) {
        self.site.connect_third(&self.third);
        self.third.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
    }

    /// From the third zone, by either family; the first packets of a generic device may be lost.
    fn reaches(&self, what: &str) {
        for to in ["10.71.1.2", "fd71:1::2"] {
            let patience = Duration::from_secs(30);
            common::wait_until(what, patience, || self.site.pings(&self.third, to));
            assert!((0..5).all(|_| self.site.pings(&self.third, to)), "{what}");
        }
    }
}

fn hold(label: &str, mode: &str) {
    let scene = Scene::new(label);
    let site = &scene.site;
    let modes = |devices: &[&str]| -> String {
        devices.iter().map(|device| format!("set interfaces {device} mode {mode}\n")).collect()
    };
    let two = format!("{BASE}{}", modes(&["left0", "right0"]));
    let zoned = site.write_all("zoned.conf", &format!("{two}{}{THIRD}", modes(&["third0"])));
    let without = site.write_all("without.conf", &two);
    let gateway = site.start(&zoned);
    scene.reaches("at the start");
    common::balances(&gateway);

    for to in ["10.71.1.99", "fd71:1::99"] {
        assert!(site.silent(&scene.third, to), "nobody is there");
    }
    common::balances(&gateway);
    if mode == "generic" {
        return; // nobody counts what a generic device has sent by the time it is gone
    }

    accepted(&site.commit(&without));
    common::balances(&gateway);
    accepted(&site.commit(&zoned));
    scene.reaches("back in its zone");
    common::balances(&gateway);

    std::thread::sleep(LOOKED);
    site.gateway.ip("link del third0").unwrap();
    common::balances(&gateway);
    scene.connect();
    accepted(&site.commit(&zoned));
    scene.reaches("made again");
    common::balances(&gateway);
}

#[test]
fn equations_hold_on_tc() {
    hold("eqtc", "tc");
}

#[test]
fn equations_hold_on_xdp() {
    hold("eqxdp", "xdp");
}

#[test]
fn equations_hold_on_generic_xdp() {
    hold("eqgen", "generic");
}

/// What happens to a device while packets leave by it and arrive on it: a name, what is done in the gateway, what undoes it.
const EVENTS: [(&str, &str, &str); 4] = [
    ("its other end goes down", "", ""),
    ("it goes down", "ip link set DEV down", "ip link set DEV up"),
    ("it has another MAC address", "ip link set DEV address 02:00:00:00:77:01", ""),
    (
        "it is renamed",
        "ip link set DEV down; ip link set DEV name other0; ip link set other0 up",
        "ip link set other0 down; ip link set other0 name DEV; ip link set DEV up",
    ),
];

const UNDER_WAY: Duration = Duration::from_millis(300);

/// Packets of both families, answers included, until it is dropped.
fn begin_load(from: &Netns) -> [Running; 2] {
    ["10.71.1.2", "fd71:1::2"].map(|to| {
        let mut command = from.command("ping");
        command.args(["-i", "0.002", "-q", "-n", to]).stdout(Stdio::null()).stderr(Stdio::null());
        Running::spawn(&mut command)
    })
}

fn hold_through_events(label: &str, mode: &str) {
    let scene = Scene::new(label);
    let site = &scene.site;
    let modes = ["left0", "third0"].map(|device| format!("set interfaces {device} mode {mode}\n")).concat();
    let gateway = site.start(&site.write_all("a.conf", &format!("{BASE}{modes}{THIRD}")));
    scene.reaches("at the start");
    for (device, host) in [("third0", &scene.third), ("left0", &site.left)] {
        for (name, done, undone) in EVENTS {
            // the kernel has no count of what XDP sends to a device that is down, or whose other end is
            if mode == "xdp" && (done.is_empty() || undone.contains("up")) {
                continue;
            }
            let run = |what: &str, state: &str| {
                if what.is_empty() {
                    host.ip(&format!("link set eth0 {state}")).unwrap();
                }
                site.gateway.run("sh", ["-c", &what.replace("DEV", device)]).unwrap();
            };
            let load = begin_load(&scene.third);
            std::thread::sleep(UNDER_WAY);
            run(done, "down");
            std::thread::sleep(UNDER_WAY);
            run(undone, "up");
            std::thread::sleep(UNDER_WAY);
            drop(load);
            println!("{device}: {name}");
            common::balances(&gateway);
            for (host, net) in [(&scene.third, 3), (&site.left, 1)] {
                // what a link that was down took from the hosts
                host.ip(&format!("-6 address replace fd71:{net}::2/64 dev eth0 nodad")).unwrap();
                host.ip(&format!("route replace default via 10.71.{net}.1")).unwrap();
                host.ip(&format!("-6 route replace default via fd71:{net}::1")).unwrap();
            }
            scene.reaches(name);
            common::balances(&gateway);
        }
    }
}

#[test]
fn equations_hold_through_events_on_xdp() {
    hold_through_events("evxdp", "xdp");
}

#[test]
fn equations_hold_through_events_on_tc() {
    hold_through_events("evtc", "tc");
}
