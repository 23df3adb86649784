//! The harness on the real kernel: what the wrapper makes, what the floors find, and that a wrong run gives no figure.

use std::collections::HashSet;

use sluice_bench::generator::harness::{Harness, Hook, Target};
use sluice_bench::generator::packets::{Direction, Family, Protocol, TCP_ACK, TCP_SYN};
use sluice_bench::method::progress::Progress;
use sluice_bench::method::result::Profile;
use sluice_bench::method::suite::Context;
use sluice_bench::suites::bulk;
use sluice_bench::suites::frames::{self, Contestant};
use sluice_bench::suites::load;
use sluice_bench::suites::prog;
use sluice_bench::suites::tailcall;
use sluice_wire::checksum::Pseudo;
use sluice_wire::{eth, ipv4, ipv6, tcp, udp};

const DMAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SMAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const LOOPBACK: u32 = 1;

fn harness(hook: Hook, family: Family) -> Harness {
    Harness::load(hook, family, 2000, 2000, (DMAC, SMAC)).unwrap()
}

/// Source and destination with their ports, after every length and checksum was found right.
fn read(frame: &[u8], family: Family, protocol: Protocol) -> (String, u16, String, u16) {
    let link = eth::View::new(frame).unwrap();
    assert_eq!((link.destination().0, link.source().0), (DMAC, SMAC));
    let (source, destination, pseudo, payload) = match family {
        Family::V4 => {
            let ip = ipv4::View::new(link.payload()).unwrap();
            assert!(ip.checksum_ok() && ip.ttl() == 64 && ip.dont_fragment());
            let pseudo = Pseudo::V4(ip.source(), ip.destination());
            (ip.source().to_string(), ip.destination().to_string(), pseudo, ip.payload())
        }
        Family::V6 => {
            let ip = ipv6::View::new(link.payload()).unwrap();
            assert_eq!(ip.hop_limit(), 64);
            let pseudo = Pseudo::V6(ip.source(), ip.destination());
            (ip.source().to_string(), ip.destination().to_string(), pseudo, ip.payload())
        }
    };
    let (source_port, destination_port) = match protocol {
        Protocol::Udp => {
            let datagram = udp::View::new(payload).unwrap();
            assert!(datagram.checksum_ok(pseudo) && usize::from(datagram.length()) == payload.len());
            (datagram.source_port(), datagram.destination_port())
        }
        Protocol::Tcp => {
            let segment = tcp::View::new(payload).unwrap();
            assert!(segment.checksum_ok(pseudo));
            (segment.source_port(), segment.destination_port())
        }
    };
    (source, source_port, destination, destination_port)
}

#[test]
fn the_wrapper_makes_distinct_whole_frames_with_right_checksums() {
    for hook in [Hook::Xdp, Hook::Tc] {
        for family in [Family::V4, Family::V6] {
            let mut harness = harness(hook, family);
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                harness.set_established(protocol, 50).unwrap();
                // Twice round: the second lap's sequence numbers differ, its checksums must hold as well.
                let laps: Vec<_> =
                    (0..200).map(|_| read(&harness.frame().unwrap(), family, protocol)).collect();
                let distinct: HashSet<_> = laps[..100].iter().cloned().collect();
                assert_eq!(distinct.len(), 100, "{hook:?} {family:?} {protocol:?}");
                assert_eq!(laps[..100], laps[100..]);
                let reversed = |(a, b, c, d): &(String, u16, String, u16)| (c.clone(), *d, a.clone(), *b);
                assert!(distinct.iter().all(|tuple| distinct.contains(&reversed(tuple))));
            }
        }
    }
}

#[test]
fn a_handshake_carries_no_data() {
    let mut harness = harness(Hook::Xdp, Family::V4);
    for flags in [TCP_SYN, TCP_SYN | TCP_ACK] {
        harness.set_packets(Protocol::Tcp, flags, 0, 10, Direction::Initiator).unwrap();
        let frame = harness.frame().unwrap();
        read(&frame, Family::V4, Protocol::Tcp);
        let ip = ipv4::View::new(&frame[14..]).unwrap();
        let segment = tcp::View::new(ip.payload()).unwrap();
        assert_eq!((segment.flags(), segment.payload().len()), (flags, 0));
    }
}

#[test]
fn floors_find_what_is_there_and_nothing_else() {
    for (hook, family) in [(Hook::Xdp, Family::V4), (Hook::Tc, Family::V4), (Hook::Xdp, Family::V6)] {
        let mut harness = harness(hook, family);
        let mut pass = |floor: &str, first: usize, count: usize, direction: Direction| {
            harness.set_packets(Protocol::Udp, 0, first, count, direction).unwrap();
            harness.set_target(Target::Own(&harness.floor(floor))).unwrap();
            let sample = harness.run(harness.distinct_packets(), LOOPBACK).unwrap();
            assert_eq!(sample.returned, hook.dropped());
            assert!(sample.ns > 0.0);
            (sample.hits, sample.misses)
        };
        assert_eq!(pass("lookup", 0, 500, Direction::Both), (0, 1000));
        assert_eq!(pass("insert", 0, 500, Direction::Initiator), (500, 0));
        assert_eq!(pass("lookup", 0, 500, Direction::Both), (1000, 0));
        assert_eq!(pass("lookup", 400, 200, Direction::Both), (200, 200));
        assert_eq!(pass("insert", 0, 500, Direction::Initiator), (0, 500));
        assert_eq!(pass("delete", 0, 500, Direction::Initiator), (500, 0));
        assert_eq!(pass("lookup", 0, 500, Direction::Both), (0, 1000));
    }
}

#[test]
fn a_program_that_is_not_reached_gives_no_figure() {
    let mut harness = harness(Hook::Xdp, Family::V4);
    harness.set_established(Protocol::Udp, 10).unwrap();
    // Nothing was put behind the wrapper.
    let error = harness.run(1000, LOOPBACK).unwrap_err();
    assert!(error.to_string().contains("1000 of 1000 packets did not reach"), "{error}");
}

#[test]
fn rows_of_both_hooks_account_for_every_packet() {
    let rows = ["established", "new"].iter().flat_map(|kind| {
        ["xdp v4 udp", "tc v4 udp", "xdp v6 tcp", "tc v6 tcp"]
            .map(|tables| format!("{tables} {kind} 200").parse().unwrap())
    });
    let options = prog::Options { rows: rows.collect(), rounds: 2, repeat: 10_000, capacity: Some(2000) };
    let mut reported = 0;
    let prog::Outcome { rows, errors } = prog::run(&options, |_| reported += 1);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((rows.len(), reported), (8, 8));
    for row in rows {
        assert!(row.target_ns.value > 0.0 && row.floor_ns.value > 0.0, "{row:?}");
        assert!(row.distinct_packets >= if row.name.contains("new") { 1000 } else { 400 });
    }
}

#[test]
fn the_root_alone_is_measured_and_leaves_the_fast_path_in_place() {
    let row = tailcall::run(Hook::Xdp, 2, 20_000).unwrap();
    assert_eq!((row.with_root.len(), row.without_root.len()), (2, 2));
}

#[test]
fn live_frames_arrive_all_through_every_forwarder() {
    let forwarders = [Contestant::Sluice, Contestant::Nftables, Contestant::Linux, Contestant::Nobody];
    let rows = frames::run(&forwarders, 1000, 1).unwrap();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.mpps.value > 0.01), "{rows:?}");
    assert!(rows[3].mpps.value > rows[2].mpps.value, "the generator must not be the limiter: {rows:?}");
}

#[test]
fn bulk_tcp_passes_through_every_path() {
    let figures = bulk::towards_the_server(&[1], 1).unwrap();
    assert_eq!(figures.len(), 2);
    for figure in figures {
        let (ours, floor) = (figure.estimate.value, figure.floor.as_ref().unwrap().estimate.value);
        assert!(ours > 0.05 && floor > 0.05 && figure.same.is_some(), "{figure:?}");
    }
}

#[test]
fn a_stream_passes_beside_denied_packets_and_both_are_accounted_for() {
    let context = Context {
        profile: Profile::Quick,
        rounds: 1,
        interfaces: None,
        peer: None,
        wanted: ["tc", "xdp"].map(|hook| format!("{hook} 1 stream under denied packets")).to_vec(),
        progress: Progress::silent(),
    };
    let result = bulk::promised(&context).unwrap();
    assert_eq!(result.figures.len(), 2, "{:?}", result.figures);
    for figure in &result.figures {
        let (ours, floor) = (figure.estimate.value, figure.floor.as_ref().unwrap().estimate.value);
        assert!(ours > 0.05 && floor > 0.05 && figure.same.is_some(), "{figure:?}");
    }
}

#[test]
fn the_load_time_covers_a_whole_start() {
    let row = load::run("default", sluice_dataplane::Sizes::default(), 1).unwrap();
    assert!((0.01..60.0).contains(&row.seconds.value), "{row:?}");
}
