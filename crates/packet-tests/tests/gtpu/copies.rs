//! Copies of what passes (FAR: DUPL, TS 29.244 5.2.1) over real devices: which packets are copied a plain model says, a copy is
//! the packet as it is in its session's tunnel, and whatever becomes of one, its original goes on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_abi::{
    FlowMatch, GTPU_CONTAINER, GTPU_DOWNLINK_CLOSED, GTPU_MARK_DOWNLINK, GTPU_MARK_UPLINK, GtpuFilters,
    GtpuRules,
};
use sluice_dataplane::{GtpuSession, Peer, Tunnel};
use sluice_packet_tests::counters::{self, CounterId};
use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::netns::{ifindex, in_thread, ip};
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::tunnel::{Ends, Message, TO_PORT, packet};
use sluice_packet_tests::tunnel_model::{Copied, Gate, Subscriber, UserPlane};
use sluice_wire::text::{diff, dissect};

use super::bench::{PEER_TEID, TEID, UE, datagram};
use super::fuzz;
use super::onwire::{ends, wire};

const PACKETS: u64 = 300;
const SUBSCRIBERS: usize = 8;
/// Of the tunnels of copies, up and down.
const COPIES: [u32; 2] = [0xc000_0001, 0xd000_0001];
/// Of the copies of a flow, and the port that its packets have on the other side.
const COPIES_OF_FLOW: [u32; 2] = [0xc000_0002, 0xd000_0002];
const PORT_OF_FLOW: u16 = 53;

/// Copies of uplink packets go to the other user plane function, in IPv4 and with a tag; those of downlink ones to the base
/// station, in IPv6.
fn copy_ends(wire: &Wire, direction: usize) -> Ends {
    let world = &wire.gateway.world;
    let (host, unit, from, to) = match direction {
        0 => ("psa", "n9.9", "10.9.0.1", "10.9.0.2"),
        _ => ("gnb", "n3.0", "2001:db8:3::1", "2001:db8:3::7"),
    };
    Ends {
        from: (world.unit_mac(unit).expect("a unit"), from.parse().expect("an address"), 0),
        to: (world.host(host).expect("a host").mac, to.parse().expect("an address"), TO_PORT),
    }
}

fn copy_peer(wire: &Wire, direction: usize) -> Peer {
    let ends = copy_ends(wire, direction);
    let device = if direction == 0 { "n9.9" } else { "n3" };
    Peer { local: ends.from.1, remote: ends.to.1, ifindex: ifindex(device).expect("a device") }
}

fn session_peer(wire: &Wire) -> Peer {
    let ends = ends(wire);
    Peer { local: ends.to.1, remote: ends.from.1, ifindex: ifindex("n3").expect("a device") }
}

/// What gates, quotas, marks and containers do; one has no copies, and the last two have some of a flow.
fn subscribers() -> BTreeMap<u32, Subscriber> {
    let of = |number: u8| Subscriber {
        address: Some([10, 45, 0, number].into()),
        prefix: Some(format!("2001:db8:45:{number:x}::").parse().expect("a prefix")),
        peer_teid: 0xdead_0000 | u32::from(number),
        outer4: true,
        copies: COPIES.map(Some),
        ..Subscriber::default()
    };
    let all = [
        of(2),
        Subscriber { qfi: Some(9), dscp: [Some(10), Some(46)], ..of(3) },
        Subscriber { gates: [Gate::Open, Gate::Closed], ..of(4) },
        Subscriber { quota: [Some(9_000), Some(7_000)], ..of(5) },
        Subscriber { copies: [None, Some(COPIES[1])], ..of(6) },
        Subscriber { copies: [None; 2], ..of(7) },
        Subscriber { copied_flow: Some((PORT_OF_FLOW, COPIES_OF_FLOW.map(Some))), ..of(8) },
        Subscriber {
            copies: [None, Some(COPIES[1])],
            copied_flow: Some((PORT_OF_FLOW, [Some(COPIES_OF_FLOW[0]), None])),
            ..of(9)
        },
    ];
    (TEID..).zip(all).collect()
}

fn rules_of(own: &Subscriber, numbers: &[u16]) -> GtpuRules {
    let flag = |is: bool, flag: u32| if is { flag } else { 0 };
    let flags = flag(own.qfi.is_some(), GTPU_CONTAINER)
        | flag(own.gates[1] == Gate::Closed, GTPU_DOWNLINK_CLOSED)
        | flag(own.dscp[0].is_some(), GTPU_MARK_UPLINK)
        | flag(own.dscp[1].is_some(), GTPU_MARK_DOWNLINK);
    let [dscp_uplink, dscp_downlink] = own.dscp.map(Option::unwrap_or_default);
    let number = |direction: usize| own.copies[direction].map_or(0, |_| numbers[direction]);
    GtpuRules {
        ifindex: ifindex("mif.0").expect("the mobile unit's device"),
        flags: flags as u16,
        qfi: own.qfi.unwrap_or(0),
        dscp_uplink,
        dscp_downlink,
        copy_teid: own.copies.map(Option::unwrap_or_default),
        copy_peer: [number(0), number(1)],
        ..Default::default()
    }
}

/// Those of its flow, if it has one; 0 = it has none.
fn filters_of(own: &Subscriber, numbers: &[u16]) -> Box<GtpuFilters> {
    let flow = own.copied_flow.map(|(port, copies)| {
        let asked =
            FlowMatch { protocol: Some(17), remote_ports: vec![(port, port)], ..FlowMatch::default() };
        (asked, rules_of(&Subscriber { copies, ..own.clone() }, numbers))
    });
    GtpuFilters::new(flow.as_slice()).expect("room for a flow")
}

fn fill(wire: &Wire, plane: &UserPlane) -> BTreeMap<u32, u32> {
    let gtpu = wire.gateway.dataplane.gtpu().expect("room");
    let numbers = gtpu.keep_copies([0, 1].map(|direction| copy_peer(wire, direction))).expect("room");
    let sets: Vec<_> = plane.sessions.values().map(|own| filters_of(own, &numbers)).collect();
    let filters = gtpu.keep_filters(sets.iter().map(|set| &**set)).expect("room");
    let add = |((teid, own), filters): ((&u32, &Subscriber), u16)| {
        let filters = if own.copied_flow.is_some() { filters } else { 0 };
        let session = GtpuSession {
            teid: *teid,
            address: own.address,
            prefix: own.prefix,
            tunnel: Tunnel { peer: session_peer(wire), teid: own.peer_teid },
            rules: GtpuRules { filters, ..rules_of(own, &numbers) },
            quota: own.quota,
        };
        (*teid, gtpu.add(&session).expect("a session"))
    };
    plane.sessions.iter().zip(filters).map(add).collect()
}

/// Sound, and answered by nobody.
fn some_packet(random: &mut Random, source: &str, destination: &str) -> Vec<u8> {
    let v4 = !source.contains(':');
    let (payload, class) = (*random.pick(&[0, 1, 4, 300, 1200, 1352]), *random.pick(&[0, 0xb8, 0x2a, 3]));
    let payload = if v4 { payload } else { payload.min(1332) };
    let (sport, dport) = (*random.pick(&[53, 1000, 2152]), *random.pick(&[53, 80, 2152]));
    let ip = match v4 {
        true => format!(
            "ip(src={source}, dst={destination}, ttl=64, tos=0x{class:x}, id={})",
            random.number() as u16
        ),
        false => format!("ip6(src={source}, dst={destination}, hop=64, tc=0x{class:x})"),
    };
    packet(&format!("{ip}/udp(sport={sport}, dport={dport})/fill(n={payload})"))
}

fn address(number: u32, v4: bool) -> String {
    if v4 { format!("10.45.0.{number}") } else { format!("2001:db8:45:{number:x}::7") }
}

/// Where a frame arrives, and the frame.
fn some_frame(wire: &Wire, random: &mut Random) -> (&'static str, Vec<u8>) {
    let (v4, number) = (random.percent(50), 2 + random.below(SUBSCRIBERS) as u32);
    let server = if v4 { "10.6.0.100" } else { "2001:db8:6::100" };
    if random.percent(50) {
        let inner = some_packet(random, server, &address(number, v4));
        let world = &wire.gateway.world;
        let (to, from) = (world.unit_mac("n6.0").expect("a unit"), world.host("server").expect("a host").mac);
        let kind: [u8; 2] = if v4 { [8, 0] } else { [0x86, 0xdd] };
        return ("n6", [&to.0[..], &from.0, &kind, &inner].concat());
    }
    // sometimes of another's, sometimes to another subscriber
    let own = if random.percent(90) { number } else { 2 + random.below(SUBSCRIBERS + 1) as u32 };
    let other = address(2 + random.below(SUBSCRIBERS) as u32, v4);
    let to = if random.percent(80) { server } else { &other };
    let mut inner = some_packet(random, &address(own, v4), to);
    if random.percent(10) {
        // behind the packet's end
        inner.extend([0xaa; 3]);
    }
    let mut message = Message::data(TEID + number - 2, &inner);
    if random.percent(40) {
        message = message.with(&[(0x85, &[0x10, 9])]);
    }
    ("n3", ends(wire).frame(&message.bytes()))
}

/// The copy that a frame is; None = it is none.
fn copy_in(frame: &[u8]) -> Option<(usize, u16, &[u8])> {
    let (direction, udp) = if frame[12..14] == [0x81, 0] { (0, 18 + 20) } else { (1, 14 + 40) };
    let message = frame.get(udp + 8..)?;
    let teid = u32::from_be_bytes(message.get(4..8)?.try_into().ok()?);
    let sport = u16::from_be_bytes([frame[udp], frame[udp + 1]]);
    let is_copy = [COPIES, COPIES_OF_FLOW].iter().any(|teids| teids[direction] == teid);
    (is_copy && message[1] == 255).then_some((direction, sport, frame))
}

fn copy_frame(wire: &Wire, copied: &Copied, sport: u16) -> Vec<u8> {
    let ends = copy_ends(wire, copied.direction);
    let ends = Ends { from: (ends.from.0, ends.from.1, sport), ..ends };
    let class = match copied.packet[0] >> 4 {
        4 => copied.packet[1],
        _ => copied.packet[0] << 4 | copied.packet[1] >> 4,
    };
    let mut frame = ends.tunnelled(&Message::data(copied.teid, &copied.packet).bytes(), class & 0xfc);
    if copied.direction == 0 {
        frame.splice(12..12, [0x81, 0, 0, 9]).for_each(drop);
    }
    frame
}

/// Copies that came out, once there are so many and no more come.
fn collect(wire: &mut Wire, wanted: usize) -> Vec<Vec<u8>> {
    let (begun, mut copies) = (Instant::now(), vec![]);
    let mut quiet_since = Instant::now();
    loop {
        for (_, frame) in wire.receive().expect("frames") {
            quiet_since = Instant::now();
            copies.extend(copy_in(&frame).map(|_| frame.clone()));
        }
        let patience = if copies.len() >= wanted { Duration::from_millis(3) } else { Duration::from_secs(3) };
        if quiet_since.elapsed() > patience || begun.elapsed() > Duration::from_secs(5) {
            return copies;
        }
    }
}

fn check(wire: &mut Wire, wanted: &mut [Copied], what: &str) {
    wanted.sort();
    let frames = collect(wire, wanted.len());
    let mut seen: Vec<_> = frames.iter().filter_map(|frame| copy_in(frame)).collect();
    seen.sort_by_key(|(direction, _, _)| *direction);
    assert_eq!(
        seen.len(),
        wanted.len(),
        "{what}: {wanted:?}\n{:#?}",
        frames.iter().map(|f| dissect(f)).collect::<Vec<_>>()
    );
    for (copied, (_, sport, frame)) in wanted.iter().zip(seen) {
        assert!(sport >= 49152, "{what}: source port {sport}");
        if let Some(text) = diff(&copy_frame(wire, copied, sport), frame) {
            panic!("{what}\n{text}");
        }
    }
}

/// What leaves by the mobile unit comes in again at its far end.
fn check_equations(wire: &mut Wire, before: &counters::Values) -> BTreeMap<&'static str, u64> {
    std::thread::sleep(Duration::from_millis(20));
    let now = counters::snapshot(&wire.gateway.dataplane, &wire.gateway.plan).expect("counters");
    let since = counters::delta(before, &now);
    let sent = CounterId::Unit(wire.gateway.unit_index("mif.0"), counters::slot("sent").expect("a counter"));
    wire.through_mobile = since.get(&sent).copied().unwrap_or(0);
    wire.check_equations().unwrap_or_else(|error| panic!("{error:#}"));
    [
        "duplicated",
        "gtpu_returned",
        "gtpu_duplicate",
        "gtpu_quota",
        "gtpu_gate",
        "gtpu_spoofed",
        "decapsulated",
    ]
    .map(|name| (name, counters::total(&since, name)))
    .into()
}

fn random_packets(hook: Hook) {
    let mut wire = wire(hook);
    let before = counters::snapshot(&wire.gateway.dataplane, &wire.gateway.plan).expect("counters");
    let mut plane = fuzz::plane(&wire.gateway, subscribers());
    let numbers = fill(&wire, &plane);
    let mut total = 0;
    let mut random = Random::new(0x29_244);
    for number in 0..PACKETS {
        let (device, frame) = some_frame(&wire, &mut random);
        plane.judge(device, &frame);
        let mut wanted = std::mem::take(&mut plane.copied);
        total += wanted.len() as u64;
        wire.inject(device, &frame).expect("a frame");
        check(&mut wire, &mut wanted, &format!("on {}, packet {number}: {}", hook.name(), dissect(&frame)));
    }
    let counted = check_equations(&mut wire, &before);
    assert_eq!((counted["duplicated"], counted["gtpu_duplicate"]), (total, 0), "{counted:?}");
    assert!(total > PACKETS / 3 && counted["gtpu_quota"] > 0 && counted["gtpu_gate"] > 0, "{counted:?}");
    assert!(counted["gtpu_spoofed"] > 0, "{counted:?}");
    assert_eq!(counted["gtpu_returned"] > 0, hook == Hook::Xdp, "{counted:?}");
    let gtpu = wire.gateway.dataplane.gtpu().expect("room");
    for (teid, own) in &plane.sessions {
        let usage = gtpu.get(numbers[teid]).expect("a session").usage;
        assert_eq!((usage.bytes, usage.packets), (own.bytes, own.packets), "{teid:#x}");
    }
}

/// One whose copies go elsewhere, up and down alike.
fn session_with(wire: &Wire, remote: &str) -> u32 {
    let peer = Peer { remote: remote.parse().expect("an address"), ..session_peer(wire) };
    let gtpu = wire.gateway.dataplane.gtpu().expect("room");
    let numbers: Vec<u32> = gtpu.list(0, 9).iter().map(|record| record.number).collect();
    wire.gateway.dataplane.remove_gtpu(&numbers).expect("sessions end");
    let number = gtpu.keep_copies([peer]).expect("room")[0];
    let rules = GtpuRules {
        ifindex: ifindex("mif.0").expect("the mobile unit's device"),
        copy_teid: COPIES,
        copy_peer: [number; 2],
        ..Default::default()
    };
    let session = GtpuSession {
        teid: TEID,
        address: Some(UE.parse().expect("an address")),
        prefix: None,
        tunnel: Tunnel { peer: session_peer(wire), teid: PEER_TEID },
        rules,
        quota: [None; 2],
    };
    gtpu.add(&session).expect("a session")
}

/// Both originals go on as if there were no copies, and what the gateway says of these is their reason alone.
fn both_go_on(wire: &mut Wire, payload: usize, what: &str) {
    let message = Message::data(TEID, &datagram(true, false, 64, payload));
    wire.inject("n3", &ends(wire).frame(&message.bytes())).expect("a frame");
    let out = datagram(true, false, 63, payload);
    wire.expect("n6", |frame| frame[14..] == out).unwrap_or_else(|error| panic!("{what}: {error:#}"));
    let world = &wire.gateway.world;
    let (to, from) = (world.unit_mac("n6.0").expect("a unit"), world.host("server").expect("a host").mac);
    let down = datagram(true, true, 64, payload);
    wire.inject("n6", &[&to.0[..], &from.0, &[8, 0], &down].concat()).expect("a frame");
    let into = Message::data(PEER_TEID, &datagram(true, true, 63, payload)).bytes();
    wire.expect("n3", |frame| frame.len() > 42 && frame[42..] == into)
        .unwrap_or_else(|error| panic!("{what}: {error:#}"));
}

fn lost_copies(hook: Hook) {
    let mut wire = wire(hook);
    ip(&["route replace 10.3.0.8/32 via 10.3.0.7 mtu lock 1000".to_owned()]).expect("a route");
    let snapshot =
        |wire: &Wire| counters::snapshot(&wire.gateway.dataplane, &wire.gateway.plan).expect("counters");
    let first = snapshot(&wire);
    // no route; behind a mobile unit; a route that takes less; the longest copy that fits there
    let cases = [("192.0.2.9", 20, 2), ("10.45.7.7", 20, 2), ("10.3.0.8", 937, 2), ("10.3.0.8", 936, 0)];
    for (remote, payload, lost) in cases {
        let number = session_with(&wire, remote);
        let before = snapshot(&wire);
        both_go_on(&mut wire, payload, remote);
        std::thread::sleep(Duration::from_millis(20));
        let since = counters::delta(&before, &snapshot(&wire));
        let of = |name: &str| counters::total(&since, name);
        let all = ["duplicated", "gtpu_duplicate", "replies", "gtpu_mtu", "gtpu_peer"].map(of);
        assert_eq!(all, [2, lost, 0, 0, 0], "{remote}, {payload}");
        let usage = wire.gateway.dataplane.gtpu().expect("room").get(number).expect("a session").usage;
        assert_eq!(usage.packets, [1, 1], "{remote}, {payload}");
    }
    // longer than the mobile unit's MTU: as long as the way of copies takes them
    session_with(&wire, "10.3.0.9");
    ip(&["neigh replace 10.3.0.9 lladdr 02:00:00:00:03:09 dev n3".to_owned()]).expect("a neighbour");
    let inner = datagram(true, false, 64, 1420);
    wire.inject("n3", &ends(&wire).frame(&Message::data(TEID, &inner).bytes())).expect("a frame");
    let (mut out, mut copies) = (0, 0);
    let begun = Instant::now();
    while (out, copies) != (1, 1) && begun.elapsed() < Duration::from_secs(3) {
        for (device, frame) in wire.receive().expect("frames") {
            out += u32::from(device == "n6" && frame[14..] == datagram(true, false, 63, 1420));
            copies += u32::from(device == "n3" && frame.len() > 50 && frame[50..] == inner);
        }
    }
    assert_eq!((out, copies), (1, 1), "a long one");
    // the kernel asks for a neighbour that nobody has asked for
    session_with(&wire, "10.3.0.77");
    let before = snapshot(&wire);
    both_go_on(&mut wire, 20, "an unknown neighbour");
    std::thread::sleep(Duration::from_millis(20));
    let since = counters::delta(&before, &snapshot(&wire));
    let of = |name: &str| counters::total(&since, name);
    assert_eq!(["duplicated", "gtpu_duplicate", "handed_off", "queued"].map(of), [2, 0, 2, 2]);
    check_equations(&mut wire, &first);
}

#[test]
fn copies_of_what_passes_on_tc() {
    in_thread(|| random_packets(Hook::Tc));
}

#[test]
fn copies_of_what_passes_on_xdp() {
    in_thread(|| random_packets(Hook::Xdp));
}

#[test]
fn lost_copies_on_tc() {
    in_thread(|| lost_copies(Hook::Tc));
}

#[test]
fn lost_copies_on_xdp() {
    in_thread(|| lost_copies(Hook::Xdp));
}
