//! Both equations of conservation hold through what happens to devices and neighbours: a unit that leaves its zone and
//! comes back, a device that is deleted and made again, neighbours that never answer or are asked for the first time.

mod common;

use std::time::Duration;

use common::{BASE, Site, accepted};
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
            let patience = Duration::from_secs(8);
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
        assert!(!site.pings(&scene.third, to), "nobody is there");
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
