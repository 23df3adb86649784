//! The gate alone and the index of grants: every grant is found at any fill, and after a crash.

use crate::common;

use std::net::Ipv4Addr;

use common::{Netns, Pin, SMALL, full_mask, tables, udp_frame};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_dataplane::abi::stages::{Reason, Stage};
use sluice_dataplane::abi::{FLOW_BUCKET_SLOTS, FlowBucket, UNIT_HOST_ANY};
use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_dataplane::{
    Dataplane, GateAlone, GateEndpoint, GateOnly, GrantKey, GrantSpec, LocalKind, ObjectKind, Pick, Refused,
    Sizes, Variant,
};
use zerocopy::{FromBytes, IntoBytes};

const XDP_PASS: u32 = 2;
const XDP_DROP: u32 = 1;
const TC_ACT_SHOT: u32 = 2;
const SERVICE: u16 = 3;

/// The gate before the address and port of [`udp_frame`].
fn alone() -> GateAlone {
    let v4 = Some(Ipv4Addr::new(10, 0, 2, 2));
    let place = GateEndpoint { service: SERVICE, udp: true, ports: (53, 53), v4, v6: None };
    GateAlone { unit: 1, zone: 2, endpoints: vec![place] }
}

fn source(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0b00_0000 + number)
}

fn spec(number: u32) -> GrantSpec {
    let key = GrantKey { source: source(number).into(), length: 32, service: SERVICE };
    GrantSpec { key, user: "somebody".to_owned(), idle_s: None, absolute_s: None }
}

/// RFC 1071
fn sum_header(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let words = frame[14..34].chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn passes(gate: &GateOnly, number: u32) -> bool {
    let mut frame = udp_frame();
    frame[26..30].copy_from_slice(&source(number).octets());
    sum_header(&mut frame);
    let verdict = prog_run::xdp(gate.program(), &XdpRun::new(&frame, 1)).unwrap().retval;
    assert!([XDP_PASS, XDP_DROP].contains(&verdict), "{verdict}");
    verdict == XDP_PASS
}

/// Grants `0..count` pass, but those that `without` names; so do none of as many others.
fn check(gate: &GateOnly, count: u32, without: impl Fn(u32) -> bool) {
    for number in (0..count).step_by(1 + count as usize / 60) {
        assert_eq!(passes(gate, number), !without(number), "grant {number}");
        assert!(!passes(gate, count + number), "{number} beyond");
    }
}

#[test]
fn both_gates_load_within_the_limits() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    for kind in [ObjectKind::Xdp, ObjectKind::Tc] {
        let gate = dataplane.gate_only(kind, 0, &alone()).unwrap();
        let details = gate.details().unwrap();
        println!(
            "{}: {} verified, {} bytes",
            details.name, details.verified_instructions, details.jited_bytes
        );
        assert!(details.verified_instructions <= 20_000 && details.jited_bytes <= 8_192, "{details:?}");
    }
}

#[test]
fn what_the_gate_hands_on_is_dropped_without_a_generation() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let mut frame = udp_frame();
    frame[37] = 54;
    let xdp = dataplane.gate_only(ObjectKind::Xdp, 0, &alone()).unwrap();
    assert_eq!(prog_run::xdp(xdp.program(), &XdpRun::new(&frame, 1)).unwrap().retval, XDP_DROP);
    let tc = dataplane.gate_only(ObjectKind::Tc, 0, &alone()).unwrap();
    assert_eq!(prog_run::tc(tc.program(), &TcRun::new(&frame, 1)).unwrap().retval, TC_ACT_SHOT);
    assert_eq!(dataplane.counters().unwrap().drops(Reason::NoGeneration), 2);
}

type Change<'a> = &'a dyn Fn(&mut Vec<u8>);

/// What its header says of it must be true before a grant lets it pass: the gateway's programs name what is wrong.
#[test]
fn a_grant_vouches_for_no_header_that_lies() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let now = dataplane.now_jiffies().unwrap();
    dataplane.grants().give(&[spec(0)], now).unwrap().unwrap();
    let gate = dataplane.gate_only(ObjectKind::Xdp, 0, &alone()).unwrap();
    let run = |change: Change, summed: bool| {
        let mut frame = udp_frame();
        frame[26..30].copy_from_slice(&source(0).octets());
        change(&mut frame);
        if summed {
            sum_header(&mut frame);
        }
        prog_run::xdp(gate.program(), &XdpRun::new(&frame, 1)).unwrap().retval
    };
    let length = u16::from_be_bytes([udp_frame()[16], udp_frame()[17]]);
    let long =
        |by: u16| move |frame: &mut Vec<u8>| frame[16..18].copy_from_slice(&(length + by).to_be_bytes());
    assert_eq!(run(&|_| (), true), XDP_PASS);
    let lies: [(&str, Change, bool); 6] = [
        ("checksum", &|frame| frame[24] ^= 1, false),
        ("one byte longer than the frame", &long(1), true),
        ("64 KB", &long(u16::MAX - length), true),
        ("no room for ports", &|frame| frame[16..18].copy_from_slice(&27u16.to_be_bytes()), true),
        ("options", &|frame| frame[14] = 0x46, true),
        ("a fragment", &|frame| frame[20] = 0x20, true),
    ];
    for (number, (what, change, summed)) in lies.into_iter().enumerate() {
        assert_eq!(run(change, summed), XDP_DROP, "{what}");
        assert_eq!(dataplane.counters().unwrap().drops(Reason::NoGeneration), number as u64 + 1, "{what}");
    }
}

/// Where screens do not count, a host without any grant is refused before the slow path, but for one packet a second.
#[test]
fn hosts_without_a_grant_are_refused_before_the_slow_path() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let mut tables = tables(ifindex);
    tables.gate.zones[0] = 1 << tables.units[0].1.zone;
    tables.units[0].1.flags |= UNIT_HOST_ANY;
    dataplane.add_local_address(0, Ipv4Addr::new(10, 0, 2, 2).into(), LocalKind::Address).unwrap();
    let before = [Stage::Screen, Stage::ScreenRate, Stage::ScreenFirst, Stage::Fanout, Stage::Nat64];
    let stage_mask = full_mask() & !before.map(Stage::bit).iter().sum::<u32>();
    let generation = dataplane.load(&tables, &[Variant::new(stage_mask)], 1).unwrap();
    dataplane.switch(&generation);
    let frame = udp_frame();
    let run = || {
        let xdp = XdpRun { repeat: 5_000, ..XdpRun::new(&frame, ifindex) };
        assert_eq!(dataplane.run_xdp_root(0, &xdp).unwrap().retval, XDP_DROP);
        let tc = TcRun { repeat: 5_000, ..TcRun::new(&frame, ifindex) };
        assert_eq!(dataplane.run_tc_root(0, &tc).unwrap().retval, TC_ACT_SHOT);
        let counters = dataplane.counters().unwrap();
        (counters.drops(Reason::GateNoGrant), counters.total().slow)
    };
    let (refused, slow) = run();
    assert_eq!(refused, 10_000);
    assert!((1..200).contains(&slow), "{slow} of them took the slow path");
    // whoever has a grant, for whatever, is asked what it wants
    let key = GrantKey { source: Ipv4Addr::new(10, 0, 1, 2).into(), length: 32, service: 9 };
    let spec = GrantSpec { key, user: "somebody".to_owned(), idle_s: None, absolute_s: None };
    let now = dataplane.now_jiffies().unwrap();
    dataplane.grants().give(&[spec], now).unwrap().unwrap();
    run();
    let counters = dataplane.counters().unwrap();
    assert_eq!(counters.total().slow, slow + 10_000);
    assert_eq!(counters.drops(Reason::GateNoService), 10_000);
}

fn full(sizes: Sizes) -> (Pin, Dataplane, Vec<GrantSpec>) {
    let pin = Pin::new();
    let dataplane = pin.open(sizes);
    let specs: Vec<GrantSpec> = (0..sizes.grants).map(spec).collect();
    let now = dataplane.now_jiffies().unwrap();
    dataplane.grants().give(&specs, now).unwrap().unwrap();
    (pin, dataplane, specs)
}

/// Every key of a full table is found, also those that stand behind full buckets; a grant more is refused.
#[test]
fn a_full_table_finds_every_grant_and_refuses_one_more() {
    for grants in [16, 5_000, 65_536] {
        let sizes = Sizes { grants, ..SMALL };
        let (_pin, dataplane, specs) = full(sizes);
        let gate = dataplane.gate_only(ObjectKind::Xdp, 0, &alone()).unwrap();
        check(&gate, grants, |_| false);
        let now = dataplane.now_jiffies().unwrap();
        let more = dataplane.grants().give(&[spec(grants)], now).unwrap();
        assert!(matches!(more, Err(Refused::Full { room: 0, .. })), "{more:?}");
        for spec in specs.iter().skip(1).step_by(2) {
            let ended = dataplane.grants().revoke(&Pick::Source(spec.key.source, 32), now).unwrap();
            assert_eq!(ended.len(), 1);
            if grants > 5_000 {
                break;
            }
        }
        if grants <= 5_000 {
            check(&gate, grants, |number| number % 2 == 1);
        }
    }
}

/// What a crash may leave: keys that lead nowhere, keys that are missing, wrong counts of what went on.
#[test]
fn a_damaged_index_is_mended_when_it_is_opened() {
    let sizes = Sizes { grants: 2_000, ..SMALL };
    let (pin, dataplane, _) = full(sizes);
    let map = MapHandle::from_pinned_path(pin.path().join("grant_index")).unwrap();
    for number in 0..map.max_entries() {
        let bytes = map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let mut bucket = FlowBucket::read_from_bytes(&bytes).unwrap();
        match number % 4 {
            0 => bucket.overflow ^= 5,
            1 => (bucket.tags, bucket.lines) = ([0; 8], [0; FLOW_BUCKET_SLOTS]),
            2 => bucket.lines = bucket.lines.map(|line| if line == 0 { 0x00a0_0007 } else { line }),
            _ => bucket.tags = bucket.tags.map(|tag| if tag == 0 { 77 } else { tag }),
        }
        map.update(&number.to_ne_bytes(), bucket.as_bytes(), MapFlags::ANY).unwrap();
    }
    drop(dataplane);
    let dataplane = pin.open(sizes);
    let gate = dataplane.gate_only(ObjectKind::Xdp, 0, &alone()).unwrap();
    check(&gate, 2_000, |_| false);
    let now = dataplane.now_jiffies().unwrap();
    assert_eq!(dataplane.grants().revoke(&Pick::All, now).unwrap().len(), 2_000);
    let sources = MapHandle::from_pinned_path(pin.path().join("grant_sources")).unwrap();
    for number in 0..sources.max_entries() {
        let word = sources.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        assert_eq!(word, [0; 8], "word {number}: nobody has a grant any more");
    }
    for number in 0..map.max_entries() {
        let bytes = map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let bucket = FlowBucket::read_from_bytes(&bytes).unwrap();
        assert_eq!(bucket, FlowBucket::default(), "bucket {number}: nothing stays behind");
    }
}
