//! Over real devices, with the kernel's own stack behind the gateway: what a subscriber and a server say to each other,
//! pings that the gateway answers itself, and an ICMP error to the subscriber. Both equations hold at the end.

use std::path::Path;

use sluice_dataplane::{GtpuSession, Peer, Sizes, Tunnel};
use sluice_packet_tests::counters;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::{ifindex, in_thread};
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::tunnel::{Ends, Message, packet};
use sluice_packet_tests::world::World;

use super::bench::{PEER_TEID, TEID, UE, datagram};

pub fn wire(hook: Hook) -> Wire {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet");
    let world = World::read(&directory.join("gtpu.world")).expect("a world");
    let config = std::fs::read_to_string(&world.config).expect("a configuration");
    let sizes = Sizes { sessions4: 256, sessions6: 256, ..Sizes::default() };
    Wire::new(Gateway::new(world, &config, sizes, hook).expect("a gateway")).expect("programs on devices")
}

pub fn ends(wire: &Wire) -> Ends {
    let world = &wire.gateway.world;
    Ends {
        from: (world.host("gnb").expect("a host").mac, [10, 3, 0, 7].into(), 2152),
        to: (world.unit_mac("n3.0").expect("a unit"), [10, 3, 0, 1].into(), 2152),
    }
}

fn add_session(wire: &Wire) {
    let ends = ends(wire);
    let peer = Peer { local: ends.to.1, remote: ends.from.1, ifindex: ifindex("n3").expect("a device") };
    let mobile = ifindex("mif.0").expect("a device");
    let session = GtpuSession {
        teid: TEID,
        address: Some(UE.parse().expect("an address")),
        prefix: None,
        tunnel: Tunnel { peer, teid: PEER_TEID },
        rules: sluice_dataplane::abi::GtpuRules { ifindex: mobile, ..Default::default() },
        quota: [None; 2],
    };
    wire.gateway.dataplane.gtpu().expect("room").add(&session).expect("a session");
}

/// What is in the tunnel of a frame that leaves toward the base station.
fn inner(frame: &[u8]) -> &[u8] {
    &frame[14 + 36..]
}

fn run(hook: Hook) {
    let mut wire = wire(hook);
    add_session(&wire);
    let ends = ends(&wire);
    let up = |wire: &Wire, inner: &[u8]| {
        wire.inject("n3", &ends.frame(&Message::data(TEID, inner).bytes())).expect("a frame")
    };
    for payload in [20, 300, 1000] {
        up(&wire, &datagram(true, false, 64, payload));
        let expected = datagram(true, false, 63, payload);
        wire.expect("n6", |frame| frame[14..] == expected).unwrap_or_else(|error| panic!("{error:#}"));
        let world = &wire.gateway.world;
        let (near, far) = (world.unit_mac("n6.0").unwrap(), world.host("server").unwrap().mac);
        let down = datagram(true, true, 64, payload);
        wire.inject("n6", &[&near.0[..], &far.0, &[8, 0], &down].concat()).expect("a frame");
        let expected = datagram(true, true, 63, payload);
        wire.expect("n3", |frame| frame.len() > 50 && *inner(frame) == expected)
            .unwrap_or_else(|error| panic!("{error:#}"));
    }
    for sequence in 1..=3 {
        let ping =
            format!("ip(src={UE}, dst=10.45.0.1)/icmp(type=echo-request, id=9, seq={sequence})/fill(n=8)");
        up(&wire, &packet(&ping));
        wire.expect("n3", |frame| frame.len() > 72 && inner(frame)[20] == 0 && inner(frame)[27] == sequence)
            .unwrap_or_else(|error| panic!("{error:#}"));
    }
    up(&wire, &datagram(true, false, 1, 20));
    wire.expect("n3", |frame| frame.len() > 72 && inner(frame)[20] == 11)
        .unwrap_or_else(|error| panic!("{error:#}"));
    check_equations(&mut wire);
}

/// What the gateway itself says to a subscriber leaves twice: by the mobile unit, where the host's own is counted by the
/// egress program, and out of the tunnel's end.
fn check_equations(wire: &mut Wire) {
    wire.through_mobile = 4;
    wire.check_equations().unwrap_or_else(|error| panic!("{error:#}"));
    let now = counters::snapshot(&wire.gateway.dataplane, &wire.gateway.plan).expect("counters");
    let totals = ["decapsulated", "delivered_local", "encapsulated", "replies", "originated"]
        .map(|name| counters::total(&now, name));
    assert_eq!(totals[..4], [7, 3, 7, 1]);
}

#[test]
fn the_user_plane_over_devices_on_tc() {
    in_thread(|| run(Hook::Tc));
}

#[test]
fn the_user_plane_over_devices_on_xdp() {
    in_thread(|| run(Hook::Xdp));
}
