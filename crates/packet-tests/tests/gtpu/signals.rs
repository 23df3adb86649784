//! Messages that are no user data, and answers to what cannot be delivered (TS 29.281 7).

use std::cell::Cell;
use std::net::IpAddr;

use sluice_abi::{EVENT_GTPU_ERROR, REPLY_BUCKET_ECHO, REPLY_BUCKET_ERROR};
use sluice_packet_tests::tunnel::{Ends, Message, TO_PORT};

use super::Check;
use super::bench::{Action, Bench, TEID, datagram};

pub const CHECKS: [Check; 7] = [
    ("Echo", echo),
    ("Echo Response", echo_response),
    ("Error Indication sent", error_sent),
    ("Error Indication received", error_received),
    ("other versions", versions),
    ("End Marker and messages that say nothing to it", end_marker),
    ("no more answers than a zone may have", withheld),
];

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// From this gateway, to a port.
fn back(ends: Ends, port: u16) -> Ends {
    let mut back = ends.turned();
    (back.from.2, back.to.2) = (TO_PORT, port);
    back
}

/// 7.2.1, 7.2.2: the same sequence number (4.3.1), the ports turned round (4.4.2.2), Recovery with a restart counter of 0 (8.2).
fn echo(bench: &mut Bench) {
    bench.summed = false;
    for v4 in [true, false] {
        let ends = bench.n3(v4);
        let plain = Message::signal(1, 0, 0x1234, &[]);
        let requests = [
            ("plain", plain.clone()),
            ("with a private extension, 8.6", Message::signal(1, 0, 0x1234, &[255, 0, 3, 0, 1, 9])),
            ("with an extension header that need not be known", plain.clone().with(&[(0x20, &[0, 0])])),
            ("with a TEID, which means nothing", Message::signal(1, 77, 0x1234, &[])),
        ];
        for (what, request) in &requests {
            let seen = bench.send("n3", &ends.frame(&request.bytes()));
            seen.counts(what, &[("received", 1), ("gtpu_signals", 1), ("replies", 1)]);
            let response = Message::signal(2, 0, 0x1234, &[14, 0]);
            seen.leaves(what, &back(ends, ends.from.2).signalled(&response.bytes()));
        }
        let long = Message::signal(1, 0, 1, &[255; 900]);
        let seen = bench.send("n3", &ends.frame(&long.bytes()));
        assert_eq!(seen.action, Action::Redirect, "a long one");
        let without = Message { flags: 0x30, ..Message::signal(1, 0, 0, &[]) };
        let seen = bench.send("n3", &ends.frame(&without.bytes()));
        let response = Message::signal(2, 0, 0, &[14, 0]);
        seen.leaves("without a sequence number", &back(ends, ends.from.2).signalled(&response.bytes()));
    }
    let ends = bench.n3(true);
    let frame = ends.frame_with(&Message::signal(1, 0, 5, &[]).bytes(), ", opts=0x94040000", "");
    let response = Message::signal(2, 0, 5, &[14, 0]);
    bench.send("n3", &frame).leaves("with options", &back(ends, ends.from.2).signalled(&response.bytes()));
}

fn echo_response(bench: &mut Bench) {
    bench.with(true, bench.rules());
    let heard = |bench: &Bench| {
        let gtpu = bench.gateway.dataplane.gtpu().expect("room");
        let peers = gtpu.peers();
        let peer = peers.iter().find(|record| record.peer == bench.peer(true)).expect("the base station");
        (peer.received, peer.last_received)
    };
    let before = heard(bench);
    let seen = bench.up(true, &Message::signal(2, 0, 1, &[14, 7]));
    seen.counts("from a peer", &[("received", 1), ("gtpu_signals", 1)]);
    let after = heard(bench);
    assert!(after.0 == before.0 + 1 && after.1 > before.1, "{before:?} {after:?}");
    let seen = bench.up(false, &Message::signal(2, 0, 1, &[14, 7]));
    seen.counts("from a stranger", &[("received", 1), ("gtpu_signals", 1)]);
    assert_eq!(heard(bench), after);
}

/// 7.3.1: TEID and address of what was sent, its source port in a UDP Port header (5.2.2.1), to port 2152 (4.4.2.4).
fn error_sent(bench: &mut Bench) {
    bench.summed = false;
    bench.with(true, bench.rules());
    for v4 in [true, false] {
        let ends = bench.n3(v4);
        for teid in [TEID + 1, 1, u32::MAX] {
            let seen =
                bench.send("n3", &ends.frame(&Message::data(teid, &datagram(true, false, 64, 700)).bytes()));
            seen.counts("unknown TEID", &[("received", 1), ("gtpu_teid", 1), ("replies", 1)]);
            let own = octets(ends.to.1);
            let elements = [&[16][..], &teid.to_be_bytes(), &[133, 0, own.len() as u8], &own].concat();
            let error = Message::signal(26, 0, 0, &elements).with(&[(0x40, &ends.from.2.to_be_bytes())]);
            seen.leaves("Error Indication", &back(ends, TO_PORT).signalled(&error.bytes()));
        }
        // of any TEID but "all zeros"
        let nobody = ends.frame(&Message::data(0, &datagram(true, false, 64, 700)).bytes());
        bench.send("n3", &nobody).drops("TEID 0", "gtpu_teid");
    }
    // its TEID decides, whatever else there is
    let strange = Message::data(TEID + 1, &[1, 2, 3]).with(&[(0xc1, &[0, 0])]);
    let seen = bench.up(true, &strange);
    seen.counts("with a strange header", &[("received", 1), ("gtpu_teid", 1), ("replies", 1)]);
}

fn error_received(bench: &mut Bench) {
    let events = |bench: &Bench| {
        let (mut events, turns) = (Vec::new(), Cell::new(0));
        let once = || turns.replace(1) == 0;
        let take = |event: sluice_dataplane::Event| events.push(event);
        bench.gateway.dataplane.watch_events(once, take).expect("events");
        events.retain(|event| u32::from(event.raw.kind) == EVENT_GTPU_ERROR);
        events
    };
    events(bench);
    for v4 in [true, false] {
        let ends = bench.n3(v4);
        let theirs = octets(ends.from.1);
        let mut elements = [&[16, 0xca, 0xfe, 0, 1, 133, 0, theirs.len() as u8][..], &theirs].concat();
        for more in [&[][..], &[231, 0, 4, 1, 2, 3, 4], &[255, 0, 2, 0, 1]] {
            elements.extend(more);
            let error = Message::signal(26, 0, 0, &elements).with(&[(0x40, &[0x75, 0x30])]);
            let seen = bench.send("n3", &ends.frame(&error.bytes()));
            seen.counts("Error Indication", &[("received", 1), ("gtpu_signals", 1)]);
            assert_eq!(seen.action, Action::Drop);
        }
        let told = events(bench);
        assert_eq!(told.len(), 3);
        for event in told {
            assert_eq!(event.raw.policy, 0xcafe_0001);
            assert_eq!((event.tuple.source, event.tuple.destination), (ends.from.1, ends.from.1));
            assert_eq!(usize::from(event.raw.ingress_unit), bench.gateway.unit_index("n3.0"));
        }
    }
    // no other answers take anything of theirs, and those that are too many are counted
    bench.gateway.drain("ran").expect("a bucket");
    bench.gateway.leave_replies("ran", REPLY_BUCKET_ERROR, 1).expect("a bucket");
    let error = Message::signal(26, 0, 0, &[16, 0, 0, 0, 1, 133, 0, 4, 1, 2, 3, 4]);
    bench.up(true, &error).counts("the last", &[("received", 1), ("gtpu_signals", 1)]);
    assert_eq!(events(bench).len(), 1);
    let seen = bench.up(true, &error);
    seen.counts("one too many", &[("received", 1), ("gtpu_signals", 1), ("events_lost", 1)]);
    let short = Message::signal(26, 0, 0, &[133, 0, 4, 1, 2, 3, 4, 16, 0, 0, 0, 1]);
    bench.up(true, &short).drops("elements in another order", "gtpu_malformed");
    assert!(events(bench).is_empty());
}

/// TS 29.060 7.2.3, 11.1.1: the version that is supported, to whom asked; an answer gets none.
fn versions(bench: &mut Bench) {
    bench.summed = false;
    let ends = bench.n3(true);
    for flags in [0x00, 0x1e, 0x40, 0x48, 0x50, 0x70, 0xf0] {
        let message = Message { flags, kind: 32, ..Message::data(7, &[0; 12]) };
        let seen = bench.up(true, &message);
        seen.counts("another version", &[("received", 1), ("gtpu_version", 1), ("replies", 1)]);
        let told = Message::signal(3, 0, 0, &[]);
        seen.leaves("Version Not Supported", &back(ends, ends.from.2).signalled(&told.bytes()));
        bench.up(true, &Message { kind: 3, ..message }).drops("an answer", "gtpu_version");
    }
    let seen = bench.up(true, &Message::signal(3, 0, 1, &[]));
    seen.counts("of version 1", &[("received", 1), ("gtpu_signals", 1)]);
}

/// 7.3.2: for a session that is there it is noted, for another one ignored. 6.1: what is not known is dropped.
fn end_marker(bench: &mut Bench) {
    let number = bench.with(true, bench.rules());
    let marker = |teid: u32| Message { kind: 254, ..Message::data(teid, &[]) };
    bench.up(true, &marker(TEID)).counts("of a session", &[("received", 1), ("gtpu_signals", 1)]);
    bench.up(true, &marker(TEID + 1)).drops("of none", "gtpu_teid");
    let with = marker(TEID).with(&[(0x85, &[0x10, 9])]);
    bench.up(true, &with).counts("with a container, 5.2.2.7", &[("received", 1), ("gtpu_signals", 1)]);
    for kind in [31, 253] {
        let seen = bench.up(true, &Message::signal(kind, 0, 1, &[141, 1, 0x85]));
        seen.counts("noted", &[("received", 1), ("gtpu_signals", 1)]);
    }
    for kind in [0, 4, 16, 27, 30, 32, 252] {
        bench.up(true, &Message::signal(kind, 0, 1, &[])).drops("not known", "gtpu_message");
    }
    assert_eq!(bench.usage(number), [(0, 0); 2]);
}

fn withheld(bench: &mut Bench) {
    bench.summed = false;
    let unknown = bench.n3(true).frame(&Message::data(9, &datagram(true, false, 64, 4)).bytes());
    bench.send("n3", &unknown);
    bench.gateway.drain("ran").expect("a bucket");
    let seen = bench.send("n3", &unknown);
    seen.counts("beyond the rate", &[("received", 1), ("gtpu_teid", 1), ("replies_withheld", 1)]);
    assert_eq!(seen.action, Action::Drop);
    // paths live by these (7.2.1), so others take nothing of theirs, nor do answers that nobody has asked for
    bench.gateway.leave_replies("ran", REPLY_BUCKET_ECHO, 1).expect("a bucket");
    let (echo, answer) = (Message::signal(1, 0, 9, &[]), Message::signal(2, 0, 9, &[14, 0]));
    bench.up(true, &answer).counts("an answer", &[("received", 1), ("gtpu_signals", 1)]);
    let seen = bench.up(true, &echo);
    seen.counts("an echo beside it", &[("received", 1), ("gtpu_signals", 1), ("replies", 1)]);
    let seen = bench.up(true, &echo);
    seen.counts("an echo", &[("received", 1), ("gtpu_signals", 1), ("replies_withheld", 1)]);
}
