//! Sessions and next hops against hand-written records, as the slow path would leave them.

use crate::common;

use std::net::IpAddr;

use common::{Pin, SMALL};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_dataplane::abi::*;
use sluice_dataplane::{Dataplane, Family, LocalKind, Session, Sizes, Timeouts, Tuple};
use zerocopy::{FromBytes, IntoBytes};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The pinned maps, as another process sees them.
struct Maps<'a>(&'a Pin);

impl Maps<'_> {
    fn map(&self, name: &str) -> MapHandle {
        MapHandle::from_pinned_path(self.0.path().join(name)).unwrap()
    }

    fn put(&self, map: &str, key: &[u8], value: &[u8]) {
        self.map(map).update(key, value, MapFlags::ANY).unwrap();
    }

    fn get<T: FromBytes>(&self, map: &str, key: &[u8]) -> Option<T> {
        let bytes = self.map(map).lookup(key, MapFlags::ANY).unwrap()?;
        Some(T::read_from_bytes(&bytes).unwrap_or_else(|_| panic!("{map} has values of another size")))
    }

    fn pop(&self, map: &str) -> Option<u32> {
        self.map(map).lookup_and_delete(&[]).unwrap().map(|bytes| u32::read_from_bytes(&bytes).unwrap())
    }

    fn set_watermark(&self, session4: u32, session6: u32) {
        let marks = Watermarks { session4, session6, seed: self.seed(), ..Default::default() };
        self.put("watermarks", &0u32.to_ne_bytes(), marks.as_bytes());
    }

    fn seed(&self) -> u64 {
        self.get::<Watermarks>("watermarks", &0u32.to_ne_bytes()).unwrap().seed
    }

    fn bucket(&self, map: &str, number: u32) -> FlowBucket {
        self.get(map, &number.to_ne_bytes()).unwrap()
    }

    /// Puts a line where the data plane would look for its key first.
    fn index(&self, map: &str, places: impl Fn(u32) -> BucketPair, line: u32) {
        let places = places(self.map(map).max_entries() - 1);
        let mut bucket = self.bucket(map, places.first);
        let slot = bucket.lines.iter().position(|l| *l == 0).expect("a test fills no bucket");
        bucket.lines[slot] = line;
        bucket.tags[FLOW_LANES[slot]] = places.tag;
        self.put(map, &places.first.to_ne_bytes(), bucket.as_bytes());
    }

    /// Lines that the index holds anywhere.
    fn indexed(&self, map: &str) -> Vec<u32> {
        let buckets = (0..self.map(map).max_entries()).map(|number| self.bucket(map, number));
        let mut lines: Vec<u32> = buckets.flat_map(|bucket| bucket.lines).filter(|line| *line != 0).collect();
        lines.sort_unstable();
        lines
    }

    fn line4(&self, line: u32) -> FlowLine4 {
        self.get("lines4", &line.to_ne_bytes()).unwrap()
    }

    fn shared4(&self, session: u32) -> FlowShared {
        self.get("shared4", &session.to_ne_bytes()).unwrap()
    }

    fn set_line4(&self, line: u32, change: impl Fn(&mut FlowLine4)) {
        let mut record = self.line4(line);
        change(&mut record);
        self.put("lines4", &line.to_ne_bytes(), record.as_bytes());
    }

    /// Session `number`: 10.0.0.<number>:1000 to 10.9.9.9:80, last seen at `now`.
    fn insert4(&self, number: u32, proto: u8, tcp_states: [u8; 2], now: u64) -> [FlowKey4; 2] {
        let host = u32::from_ne_bytes([10, 0, 0, number as u8]);
        let server = u32::from_ne_bytes([10, 9, 9, 9]);
        let forward = FlowKey4 {
            be_saddr: host,
            be_daddr: server,
            be_sport: 1000u16.to_be(),
            be_dport: 80u16.to_be(),
            routing_instance: 3,
            proto,
            zero: 0,
        };
        let back = FlowKey4 {
            be_saddr: server,
            be_daddr: host,
            be_sport: forward.be_dport,
            be_dport: forward.be_sport,
            ..forward
        };
        for (side, key) in [forward, back].into_iter().enumerate() {
            let (line, tag) = (2 * number + side as u32, 40 + number as u16);
            let state = FlowState {
                tag,
                nexthop: 5,
                zone: 2,
                last_seen: now as u32,
                tcp_state: tcp_states[side],
                flags: FLOW_LIVE | if side == 1 { FLOW_RESPONDER } else { 0 },
                bytes: 100,
                packets: 2,
                ..Default::default()
            };
            let record = FlowLine4 { key, state, ..Default::default() };
            self.put("lines4", &line.to_ne_bytes(), record.as_bytes());
            self.index("buckets4", |mask| bucket_pair4(self.seed(), &key, mask), line);
        }
        let shared =
            FlowShared { policy: 7, from_zone: 2, to_zone: 3, created: now as u32, ..Default::default() };
        self.put("shared4", &number.to_ne_bytes(), shared.as_bytes());
        [forward, back]
    }

    fn insert6(&self, number: u32, now: u64) -> FlowKey6 {
        let key = FlowKey6 { be_saddr: [1; 4], be_daddr: [number; 4], proto: UDP, ..Default::default() };
        let back = FlowKey6 { be_saddr: key.be_daddr, be_daddr: key.be_saddr, ..key };
        for (side, key) in [key, back].into_iter().enumerate() {
            let line = 2 * number + side as u32;
            let state = FlowState { tag: 9, last_seen: now as u32, flags: FLOW_LIVE, ..Default::default() };
            self.put(
                "lines6",
                &line.to_ne_bytes(),
                FlowLine6 { key, state, ..Default::default() }.as_bytes(),
            );
            self.index("buckets6", |mask| bucket_pair6(self.seed(), &key, mask), line);
        }
        key
    }
}

fn dataplane() -> (Pin, Dataplane, u64) {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    (pin, dataplane, now)
}

fn all(dataplane: &Dataplane) -> Vec<Session> {
    dataplane.sessions().collect()
}

#[test]
fn sessions_are_read() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(3, 1);
    maps.insert4(1, TCP, [TCP_DIR_ESTABLISHED; 2], now);
    maps.insert4(3, UDP, [0; 2], now);
    maps.insert6(1, now);

    let sessions = all(&dataplane);
    let ids: Vec<(Family, u32)> =
        sessions.iter().map(|session| (session.id.family, session.id.number)).collect();
    assert_eq!(ids, [(Family::V4, 1), (Family::V4, 3), (Family::V6, 1)]);
    let first = sessions[0];
    assert_eq!((first.policy, first.from_zone, first.to_zone, first.protocol()), (7, 2, 3, TCP));
    let tuple = Tuple {
        source: "10.0.0.1".parse().unwrap(),
        source_port: 1000,
        destination: "10.9.9.9".parse().unwrap(),
        destination_port: 80,
        protocol: TCP,
        routing_instance: 3,
    };
    assert_eq!(first.initiator.tuple, tuple);
    assert_eq!((first.initiator.packets, first.responder.bytes), (2, 100));
    assert_eq!(dataplane.find_session(&tuple).unwrap(), Some(first));
    assert_eq!(dataplane.find_session(&first.responder.tuple).unwrap(), Some(first));
    assert_eq!(dataplane.find_session(&Tuple { source_port: 1, ..tuple }).unwrap(), None);
    let six = sessions[2].initiator.tuple;
    assert_eq!(dataplane.find_session(&six).unwrap(), Some(sessions[2]));
}

#[test]
fn a_deleted_session_leaves_nothing() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(2, 1);
    maps.insert4(1, UDP, [0; 2], now);
    maps.insert4(2, UDP, [0; 2], now);
    maps.insert6(1, now);
    let sessions = all(&dataplane);

    assert!(dataplane.delete_session(&sessions[0].id).unwrap());
    assert_eq!(maps.indexed("buckets4"), [4, 5]);
    assert_eq!(maps.line4(2).state.flags & FLOW_LIVE, 0);
    assert_eq!(maps.line4(3).state.flags, FLOW_RESPONDER);
    assert_eq!(all(&dataplane), sessions[1..]);
    assert!(!dataplane.delete_session(&sessions[0].id).unwrap(), "a session ends once");
    assert!(dataplane.delete_session(&sessions[2].id).unwrap());
    assert_eq!(maps.indexed("buckets6"), []);
    assert_eq!([maps.pop("free4"), maps.pop("free4")], [Some(1), None], "the number is given back once");
    assert_eq!([maps.pop("free6"), maps.pop("free6")], [Some(1), None]);
}

#[test]
fn a_record_in_other_hands_is_left_alone() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(2, 0);
    let keys = maps.insert4(1, UDP, [0; 2], now);
    let id = all(&dataplane)[0].id;

    // the record was re-used
    [2, 3].iter().for_each(|line| maps.set_line4(*line, |line| line.state.tag += 1));
    assert!(!dataplane.delete_session(&id).unwrap());
    assert_eq!(maps.line4(2).state.flags, FLOW_LIVE);
    [2, 3].iter().for_each(|line| maps.set_line4(*line, |line| line.state.tag -= 1));

    // another deletion has taken the responder's key: the record is that one's to give back
    let places = bucket_pair4(maps.seed(), &keys[1], maps.map("buckets4").max_entries() - 1);
    maps.put("buckets4", &places.first.to_ne_bytes(), FlowBucket::default().as_bytes());
    assert!(!dataplane.delete_session(&id).unwrap());
    assert_eq!(maps.pop("free4"), None);
}

#[test]
fn a_packet_in_time_saves_a_session_from_the_sweep() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(1, 0);
    maps.insert4(1, UDP, [0; 2], now);
    let late = now + 61 * u64::from(dataplane.hz());
    maps.set_line4(3, |line| line.state.last_seen = late as u32);
    assert_eq!(dataplane.sweep(late, &Timeouts::default()).unwrap().expired4, 0);
    maps.set_line4(3, |line| line.state.last_seen = now as u32);
    assert_eq!(dataplane.sweep(late, &Timeouts::default()).unwrap().expired4, 1);
    assert_eq!(maps.indexed("buckets4"), []);
}

#[test]
fn the_sweep_ends_what_was_idle_too_long() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(64, 1);
    let cases = [
        (TCP, [TCP_DIR_ESTABLISHED; 2], 1800),
        (TCP, [TCP_DIR_SYN, TCP_DIR_NONE], 20),
        (TCP, [TCP_DIR_FIN, TCP_DIR_ESTABLISHED], 150),
        (TCP, [TCP_DIR_CLOSED, TCP_DIR_FIN], 150),
        (TCP, [TCP_DIR_CLOSED; 2], 2),
        (UDP, [0; 2], 60),
        (1, [0; 2], 60),
        (47, [0; 2], 60),
    ];
    for (number, (proto, states, _)) in (1..).zip(cases) {
        maps.insert4(number, proto, states, now);
    }
    maps.insert6(1, now);

    let hz = u64::from(dataplane.hz());
    for limit in [2, 20, 60, 150, 1800] {
        let before = dataplane.sweep(now + limit * hz, &Timeouts::default()).unwrap();
        assert_eq!((before.expired4, before.expired6), (0, 0), "after exactly {limit} s");
        let after = dataplane.sweep(now + limit * hz + 1, &Timeouts::default()).unwrap();
        let due = cases.iter().filter(|case| case.2 == limit).count() as u32;
        assert_eq!((after.expired4, after.expired6), (due, u32::from(limit == 60)), "after {limit} s");
        assert_eq!(after.live4, before.live4 - due);
    }
    assert_eq!(all(&dataplane), []);
}

#[test]
fn either_direction_keeps_a_session_alive_and_applications_have_their_own_time() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(2, 0);
    let hz = u64::from(dataplane.hz());
    maps.insert4(1, UDP, [0; 2], now);
    maps.set_line4(3, |line| line.state.last_seen = (now + 50 * hz) as u32);
    maps.insert4(2, UDP, [0; 2], now);
    maps.set_line4(4, |line| line.state.flags |= FLOW_OWN_TIMEOUT);
    let shared = FlowShared { timeout_s: 600, ..Default::default() };
    maps.put("shared4", &2u32.to_ne_bytes(), shared.as_bytes());
    let report = dataplane.sweep(now + 100 * hz, &Timeouts::default()).unwrap();
    assert_eq!((report.live4, report.expired4), (2, 0));
    let report = dataplane.sweep(now + 120 * hz, &Timeouts::default()).unwrap();
    assert_eq!((report.live4, report.expired4), (1, 1));
    // a stamp from a CPU that is a tick ahead is young, not ancient
    maps.set_line4(4, |line| line.state.last_seen = (now + 200 * hz + 1) as u32);
    let report = dataplane.sweep(now + 200 * hz, &Timeouts::default()).unwrap();
    assert_eq!((report.live4, report.expired4), (1, 0));
}

#[test]
fn old_stamps_never_come_round() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(2, 0);
    maps.insert4(1, UDP, [0; 2], now);
    maps.insert4(2, UDP, [0; 2], now);
    (0..0x4000).for_each(|_| dataplane.ask_routes_again());
    let aged = || dataplane.sweep(now, &Timeouts::default()).unwrap().aged;
    assert_eq!(aged(), 0);
    dataplane.ask_routes_again();
    maps.set_line4(4, |line| line.state.stamp = 0x4001);
    assert_eq!(aged(), 3);
    assert_eq!(maps.line4(2).state.stamp, 0x4000, "one behind: re-evaluated at the next packet");
    assert_eq!(maps.line4(2).state.flags, FLOW_LIVE);
    assert_eq!(maps.line4(4).state.stamp, 0x4001, "current: left alone");
    // lines start one stamp ahead of nothing: a stamp just before the switch is not 65,535 behind
    maps.set_line4(4, |line| line.state.stamp = 0x4002);
    assert_eq!(aged(), 0);
}

#[test]
fn epochs_of_decisions_never_come_round() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(1, 0);
    maps.insert4(1, UDP, [0; 2], now);
    // as many commits as an epoch has values: of no other packet since
    for commits in 1..=0x8000u32 {
        dataplane.judge_again();
        if commits % 0x1000 == 0 {
            dataplane.sweep(now, &Timeouts::default()).unwrap();
        }
    }
    assert_ne!(maps.shared4(1).epoch, dataplane.epoch(), "a decision of long ago is not taken for a new one");
}

#[test]
fn packets_are_counted_past_32_bits() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(1, 0);
    maps.insert4(1, UDP, [0; 2], now);
    let mut expected = 2u64;
    for step in [0x7fff_0000u64, 0x7fff_0000, 0x7fff_0000, 0x1000_0000, 0x7000_0000, 0x7fff_ffff] {
        expected += step;
        maps.set_line4(2, |line| line.state.packets = expected as u32);
        assert_eq!(all(&dataplane)[0].initiator.packets, expected);
        dataplane.sweep(now, &Timeouts::default()).unwrap();
        assert_eq!(all(&dataplane)[0].initiator.packets, expected);
    }
    assert!(expected > 1 << 32);
}

/// A resync of many neighbours reads the index once, also where routes have MTUs of their own.
#[test]
fn many_neighbours_are_found_at_once() {
    const COUNT: u32 = 4000;
    let (pin, dataplane, _) = dataplane();
    let maps = Maps(&pin);
    let marks = maps.get::<Watermarks>("watermarks", &0u32.to_ne_bytes()).unwrap();
    let marks = Watermarks { nexthops_retired: NEXTHOPS_HAVE_MTUS, ..marks };
    maps.put("watermarks", &0u32.to_ne_bytes(), marks.as_bytes());
    let address = |n: u32| std::net::Ipv4Addr::from(0x0a00_0000 + n);
    for n in 0..COUNT {
        let be_addr = [u32::from_ne_bytes(address(n).octets()), 0, 0, 0];
        let key = NexthopKey { host_ifindex: 4, family: 4, be_addr };
        maps.put("nexthop_index", key.as_bytes(), &n.to_ne_bytes());
    }
    let all: Vec<(u32, IpAddr)> = (0..COUNT).map(|n| (4, address(n).into())).collect();
    let begun = std::time::Instant::now();
    let found = dataplane.find_nexthops(&all).unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(found.iter().zip(0..).all(|(found, n)| *found == [n]), "{found:?}");
}

#[test]
fn next_hops_follow_their_neighbours() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    let (address4, address6): (IpAddr, IpAddr) =
        ("10.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap());
    let keys = [
        NexthopKey { host_ifindex: 4, family: 4, be_addr: [u32::from_ne_bytes([10, 0, 0, 1]), 0, 0, 0] },
        NexthopKey { host_ifindex: 4, family: 6, be_addr: [0xb80d_0120, 0, 0, 0x0100_0000] },
    ];
    for (index, key) in (2u32..).zip(keys) {
        let entry = Nexthop {
            smac: [2, 0, 0, 0, 0, 9],
            flags: NEXTHOP_VALID,
            last_used: now as u32,
            ..Default::default()
        };
        maps.put("nexthops", &index.to_ne_bytes(), entry.as_bytes());
        maps.put("nexthop_index", key.as_bytes(), &index.to_ne_bytes());
    }
    let asked = [(4, address4), (4, address6), (5, address6)];
    assert_eq!(dataplane.find_nexthops(&asked).unwrap(), [vec![2], vec![3], vec![]]);
    let mut entries: Vec<_> = dataplane.nexthops().unwrap().iter().map(|e| (e.index, e.address)).collect();
    entries.sort();
    assert_eq!(entries, [(2, address4), (3, address6)]);

    // a route with an MTU of its own has an entry of its own, which the same neighbour resolves
    let key = NexthopKey { family: 4 | 1300 << NEXTHOP_MTU_SHIFT, ..keys[0] };
    maps.put("nexthop_index", key.as_bytes(), &9u32.to_ne_bytes());
    let marks = maps.get::<Watermarks>("watermarks", &0u32.to_ne_bytes()).unwrap();
    let marks = Watermarks { nexthops_retired: NEXTHOPS_HAVE_MTUS, ..marks };
    maps.put("watermarks", &0u32.to_ne_bytes(), marks.as_bytes());
    let mut found = dataplane.find_nexthops(&asked).unwrap();
    found[0].sort();
    assert_eq!(found, [vec![2, 9], vec![3], vec![]]);

    let mac = [0xaa, 1, 2, 3, 4, 5];
    assert!(dataplane.set_nexthop_mac(2, mac).unwrap());
    assert!(!dataplane.set_nexthop_mac(2, mac).unwrap(), "the same again is no news");
    let entry = dataplane.nexthop(2).unwrap();
    assert_eq!((entry.dmac, entry.smac), (mac, [2, 0, 0, 0, 0, 9]));
    assert_eq!(entry.flags, NEXTHOP_VALID | NEXTHOP_RESOLVED);
    assert!(dataplane.unresolve_nexthop(2).unwrap());
    assert!(!dataplane.unresolve_nexthop(2).unwrap());
    assert_eq!(dataplane.nexthop(2).unwrap().flags, NEXTHOP_VALID);
    assert!(dataplane.nexthop(MAX_NEXTHOPS as u32).is_err());
}

#[test]
fn only_unused_next_hops_are_freed() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    let hz = dataplane.hz();
    maps.set_watermark(1, 0);
    maps.insert4(1, UDP, [0; 2], now); // refers to next hop 5
    for index in 4..8u32 {
        let age_s = if index == 7 { 1 } else { 1000 };
        let last_used = (now as u32).wrapping_sub(age_s * hz);
        let entry = Nexthop { flags: NEXTHOP_VALID, last_used, ..Default::default() };
        let key = NexthopKey { host_ifindex: 4, family: 4, be_addr: [index, 0, 0, 0] };
        maps.put("nexthops", &index.to_ne_bytes(), entry.as_bytes());
        maps.put("nexthop_index", key.as_bytes(), &index.to_ne_bytes());
    }
    assert_eq!(dataplane.free_unused_nexthops(600).unwrap(), 2);
    let mut left: Vec<u32> = dataplane.nexthops().unwrap().iter().map(|entry| entry.index).collect();
    left.sort();
    assert_eq!(left, [5, 7]);
    let mut freed = [maps.pop("free_nexthops").unwrap(), maps.pop("free_nexthops").unwrap()];
    freed.sort();
    assert_eq!(freed, [4, 6]);
    assert_eq!(dataplane.nexthop(4).unwrap().flags, 0);
    let retired = || maps.get::<Watermarks>("watermarks", &0u32.to_ne_bytes()).unwrap().nexthops_retired;
    assert_eq!(retired(), 1, "what CPUs remember is void");
    assert_eq!(dataplane.free_unused_nexthops(600).unwrap(), 0);
    assert_eq!(retired(), 1, "nothing was retired");
}

/// What the daemon refreshes every half minute: neighbours that have answered, of next hops that a flow names or a first
/// packet has asked for (RFC 6583). Unused ones are given back, and the kernel may forget them.
#[test]
fn only_neighbours_in_use_are_refreshed() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    let hz = dataplane.hz();
    maps.set_watermark(1, 0);
    maps.insert4(1, UDP, [0; 2], now); // refers to next hop 5
    let (answered, silent) = (NEXTHOP_VALID | NEXTHOP_RESOLVED, NEXTHOP_VALID);
    let put = |index: u32, idle_s: u32, flags: u8, key: NexthopKey| {
        let last_used = (now as u32).wrapping_sub(idle_s * hz);
        let entry = Nexthop { flags, last_used, ..Default::default() };
        maps.put("nexthops", &index.to_ne_bytes(), entry.as_bytes());
        maps.put("nexthop_index", key.as_bytes(), &index.to_ne_bytes());
    };
    let key = |host: u8| {
        let be_addr = [u32::from_ne_bytes([10, 0, 0, host]), 0, 0, 0];
        NexthopKey { host_ifindex: 4, family: 4, be_addr }
    };
    put(4, 1000, answered, key(4));
    put(5, 1000, answered, key(5));
    put(6, 1, answered, key(6));
    put(7, 1, silent, key(7));
    put(8, 1000, silent, key(8));
    // another entry of a neighbour, for a route with an MTU of its own
    put(9, 1, answered, NexthopKey { family: 4 | 1300 << NEXTHOP_MTU_SHIFT, ..key(6) });
    let refreshed = Vec::from_iter(dataplane.neighbours_in_use(600).unwrap());
    assert_eq!(refreshed, [5u8, 6].map(|host| (4u32, IpAddr::from([10, 0, 0, host]))));
    let mut left: Vec<u32> = dataplane.nexthops().unwrap().iter().map(|entry| entry.index).collect();
    left.sort();
    assert_eq!(left, [5, 6, 7, 9], "the others are given back");
}

#[test]
fn local_addresses_are_replaced_as_a_set() {
    let (_pin, dataplane, _) = dataplane();
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    let (one, two, three) = (address("192.0.2.1"), address("2001:db8::1"), address("192.0.2.3"));
    dataplane.set_local_addresses(&[(0, one, LocalKind::Address), (0, two, LocalKind::Address)]).unwrap();
    dataplane
        .set_local_addresses(&[
            (0, three, LocalKind::Address),
            (0, two, LocalKind::Broadcast { ifindex: None }),
        ])
        .unwrap();
    let mut found = dataplane.local_addresses();
    found.sort();
    assert_eq!(found, [(0, three), (0, two)]);
    assert!(dataplane.remove_local_address(0, three).unwrap());
    assert!(!dataplane.remove_local_address(0, three).unwrap());
    assert!(!dataplane.remove_local_address(1, two).unwrap());
}

#[test]
fn a_watermark_beyond_the_table_is_clamped() {
    let (pin, dataplane, now) = dataplane();
    let maps = Maps(&pin);
    maps.set_watermark(SMALL.sessions4 + 1, SMALL.sessions6 + 9);
    maps.insert4(SMALL.sessions4, UDP, [0; 2], now);
    assert_eq!(all(&dataplane).len(), 1);
    assert_eq!(dataplane.sweep(now, &Timeouts::default()).unwrap().live4, 1);
}

/// The mapping makes it a walk through memory, without a system call a record.
#[test]
fn a_large_table_is_swept_quickly() {
    let pin = Pin::new();
    let sizes = Sizes { sessions4: 1 << 20, sessions6: 64, ..Sizes::default() };
    let dataplane = pin.open(sizes);
    Maps(&pin).set_watermark(sizes.sessions4, 0);
    let now = dataplane.now_jiffies().unwrap();
    dataplane.sweep(now, &Timeouts::default()).unwrap();
    let begin = std::time::Instant::now();
    dataplane.sweep(now, &Timeouts::default()).unwrap();
    println!("1M empty records in {:?}", begin.elapsed());
    assert!(begin.elapsed().as_millis() < 1000);
}
