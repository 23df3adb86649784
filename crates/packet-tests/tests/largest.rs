//! The largest gateway there can be: 254 zones beside the host itself, 4,096 units.

use std::fmt::Write;
use std::net::IpAddr;

use sluice_dataplane::Sizes;
use sluice_dataplane::abi::stages::Reason;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::world::{Device, Host, World};
use sluice_packet_tests::{counters, table};
use sluice_wire::Mac;
use sluice_wire::text::bytes;

const ZONES: usize = 254;
const TAGGED: usize = 4094;

/// Units of two devices that are there, the first and the last, and of one that is not.
fn config() -> String {
    let mut text = String::from("set interfaces first0 unit 0 family inet address 10.250.1.1/24\n");
    text += "set security zones security-zone z0 interfaces first0.0\nset interfaces trunk0 vlan-tagging\n";
    for n in 1..=TAGGED {
        let zone = 1 + n % (ZONES - 2);
        writeln!(text, "set interfaces trunk0 unit {n} vlan-id {n}").unwrap();
        writeln!(text, "set interfaces trunk0 unit {n} family inet address 10.{}.{}.1/24", n / 256, n % 256)
            .unwrap();
        writeln!(text, "set security zones security-zone z{zone} interfaces trunk0.{n}").unwrap();
    }
    text += "set interfaces last0 unit 0 family inet address 10.250.2.1/24\n";
    writeln!(text, "set security zones security-zone z{} interfaces last0.0", ZONES - 1).unwrap();
    let policy = format!("set security policies from-zone z0 to-zone z{} policy p", ZONES - 1);
    for what in ["source-address", "destination-address", "application"] {
        writeln!(text, "{policy} match {what} any").unwrap();
    }
    writeln!(text, "{policy} then permit").unwrap();
    // and one whose rule-sets tell units apart
    text += "set security nat source rule-set n from zone z1\nset security nat source rule-set n to zone z2\n\
             set security nat source rule-set n rule r match source-address 10.0.0.0/8\n\
             set security nat source rule-set n rule r then source-nat interface\n";
    text
}

fn world() -> World {
    let mac = |text: &str| -> Mac { text.parse().unwrap() };
    let device = |name: &str, text: &str| Device { name: name.to_owned(), mac: mac(text), mtu: 1500 };
    let host = |name: &str, unit: &str, text: &str, address: &str| Host {
        name: name.to_owned(),
        unit: unit.to_owned(),
        mac: mac(text),
        addresses: vec![address.parse::<IpAddr>().unwrap()],
    };
    World {
        devices: vec![device("first0", "02:00:00:00:01:01"), device("last0", "02:00:00:00:02:01")],
        hosts: vec![
            host("client", "first0.0", "02:00:00:00:01:64", "10.250.1.100"),
            host("server", "last0.0", "02:00:00:00:02:64", "10.250.2.100"),
        ],
        imagined: vec!["trunk0".to_owned()],
        ..World::default()
    }
}

fn run(hook: Hook) {
    let sizes = Sizes { sessions4: 1024, sessions6: 64, ..Sizes::default() };
    let sizes = sizes.with_room(TAGGED + 2, ZONES);
    let mut gateway = Gateway::new(world(), &config(), sizes, hook).unwrap();
    gateway.idle_near_ends().unwrap();
    let index = |gateway: &Gateway, unit: &str| gateway.unit_index(unit) as u16;
    let (first, last) = (index(&gateway, "first0.0"), index(&gateway, "last0.0"));
    assert_eq!((gateway.plan.zones.len(), gateway.plan.units.len()), (ZONES, TAGGED + 2));
    assert_eq!((first, last), (1, 4096), "both ends of the numbers");
    assert_eq!(gateway.zone_of("last0.0").unwrap(), 255);

    let query = |port: u16| {
        let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)/ip(src=10.250.1.100, dst=10.250.2.100)";
        bytes(&format!("{ends}/udp(sport={port}, dport=53)")).unwrap()
    };
    let answer = |port: u16| {
        let ends = "eth(dst=02:00:00:00:02:01, src=02:00:00:00:02:64)/ip(src=10.250.2.100, dst=10.250.1.100)";
        bytes(&format!("{ends}/udp(sport=53, dport={port})")).unwrap()
    };
    let mut send = |device: &str, frame: &[u8]| {
        let delta = table::count_frames(&mut gateway, device, &[frame]).unwrap();
        ["redirected", "slow", "policy_default"].map(|name| counters::total(&delta, name))
    };
    assert_eq!(send("first0", &query(1000)), [1, 1, 0], "opens a session");
    assert_eq!(send("last0", &answer(1000)), [1, 1, 0]);
    assert_eq!(send("last0", &answer(1000)), [1, 0, 0], "is established");
    assert_eq!(send("first0", &query(1000)), [1, 0, 0]);
    assert_eq!(send("last0", &answer(2000)), [0, 1, 1], "nothing is permitted from here");
    let drops = gateway.dataplane.counters().unwrap().unit_drops(last);
    assert_eq!(drops.of(Reason::PolicyDefault), 1);
}

#[test]
fn the_first_and_the_last_unit_of_4096_forward_on_tc() {
    in_thread(|| run(Hook::Tc));
}

#[test]
fn the_first_and_the_last_unit_of_4096_forward_on_xdp() {
    in_thread(|| run(Hook::Xdp));
}
