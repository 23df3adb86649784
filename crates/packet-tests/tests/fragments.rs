//! The bounds of the table of datagrams in pieces: room and time.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::{
    FRAGMENT_DATAGRAMS, FRAGMENT_REFUSED, FRAGMENT_SESSION, FRAGMENT_TIMEOUT_S, FRAGMENT_WAYS,
    FragmentDatagram,
};
use sluice_dataplane::Sizes;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::{counters, table};
use sluice_wire::text::bytes;
use zerocopy::{FromBytes, IntoBytes};

const FIRST: &str =
    "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, mf)/udp(sport=1, dport=2, len=48)/fill(n=16)";
const LATER: &str = "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, frag=3, mf, proto=udp)/fill(n=16)";
const DENIED: &str =
    "in trust0.0: ip(src=10.0.1.100, dst=10.0.2.100, id=1, mf)/tcp(sport=1, dport=23, flags=S)/fill(n=12)";

struct Bed {
    gateway: Gateway,
    datagrams: MapHandle,
}

impl Bed {
    fn new(hook: Hook) -> Bed {
        Bed::of("zones.world", hook)
    }

    fn of(world: &str, hook: Hook) -> Bed {
        let sizes = Sizes { sessions4: 64, sessions6: 64, ..Sizes::default() };
        let gateway = Gateway::of(world, sizes, hook).unwrap();
        let datagrams =
            MapHandle::from_pinned_path(gateway.dataplane.pin().join("fragment_datagrams")).unwrap();
        Bed { gateway, datagrams }
    }

    fn now(&self) -> u32 {
        self.gateway.dataplane.now_jiffies().unwrap() as u32
    }

    fn datagram(&self, place: u32) -> FragmentDatagram {
        let bytes = self.datagrams.lookup(&place.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        FragmentDatagram::read_from_bytes(&bytes).unwrap()
    }

    /// Changes every place of the table.
    fn each(&self, change: impl Fn(&mut FragmentDatagram)) {
        for place in 0..FRAGMENT_DATAGRAMS {
            let mut datagram = self.datagram(place);
            change(&mut datagram);
            self.datagrams.update(&place.to_ne_bytes(), datagram.as_bytes(), MapFlags::ANY).unwrap();
        }
    }

    /// Other datagrams from the zone of `unit` in all places.
    fn fill(&self, unit: &str, follow: u32, first_seen: u32) {
        let zone = self.gateway.zone_of(unit).unwrap() as u16;
        self.each(|datagram| {
            datagram.tag = 2;
            datagram.key.zone = zone;
            datagram.follow = follow as u8;
            datagram.first_seen = first_seen;
        });
    }

    /// In how many places of each bucket datagrams of the unit's zone are.
    fn shares(&self, unit: &str) -> Vec<usize> {
        let zone = self.gateway.zone_of(unit).unwrap() as u16;
        let zones = (0..FRAGMENT_DATAGRAMS).map(|place| self.datagram(place).key.zone).collect::<Vec<_>>();
        let buckets = zones.chunks(FRAGMENT_WAYS as usize);
        buckets.map(|bucket| bucket.iter().filter(|held| **held == zone).count()).collect()
    }

    /// Runs steps in the words of a `.case` file.
    fn run(&mut self, steps: &[(&str, &str)]) {
        let text: String =
            steps.iter().map(|(packet, verdict)| format!("  {packet}\n  {verdict}\n")).collect();
        table::run_text(&mut self.gateway, &text).unwrap_or_else(|error| panic!("{error:#}"));
    }
}

const NEW: &str = "redirect untrust0.0 new policy trust>untrust/out";

fn bounds(hook: Hook) {
    let mut bed = Bed::new(hook);
    let timeout = FRAGMENT_TIMEOUT_S * bed.gateway.dataplane.hz();
    let now = bed.now();

    // full of live datagrams: a permitted first is dropped by name, a refused one as ever
    bed.fill("trust0.0", FRAGMENT_SESSION, now);
    bed.run(&[
        (FIRST, "drop fragment_table_full new policy trust>untrust/out"),
        (LATER, "drop fragment_no_first"),
    ]);
    assert_eq!(bed.gateway.dataplane.sessions().count(), 0, "no session of what did not leave");
    bed.run(&[(DENIED, "drop policy_deny policy trust>untrust/no-telnet")]);

    // refused datagrams give way
    bed.fill("trust0.0", FRAGMENT_REFUSED, now);
    bed.run(&[(FIRST, NEW), (LATER, "redirect untrust0.0")]);

    // so do those whose time is over
    bed.fill("trust0.0", FRAGMENT_SESSION, now.wrapping_sub(timeout));
    bed.run(&[(FIRST, NEW), (LATER, "redirect untrust0.0")]);

    // the rest of a datagram that comes too late
    bed.each(|datagram| datagram.tag = 0);
    bed.run(&[(FIRST, NEW)]);
    bed.each(|datagram| datagram.first_seen = datagram.first_seen.wrapping_sub(timeout));
    bed.run(&[(LATER, "drop fragment_no_first")]);
}

#[test]
fn room_and_time_are_bounded_on_tc() {
    bounds(Hook::Tc);
}

#[test]
fn room_and_time_are_bounded_on_xdp() {
    bounds(Hook::Xdp);
}

const FOR_A_LISTENER: &str = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)/\
    ip(src=10.0.1.100, dst=10.0.1.1, id=9, mf)/udp(sport=1000, dport=514, len=48)/fill(n=16)";

/// What a listener has received is sent, or dropped by name, also where the exit has the last word.
#[test]
fn a_listener_accounts_for_datagrams_that_find_no_room() {
    for hook in Hook::BOTH {
        let mut bed = Bed::of("fanout.world", hook);
        bed.fill("trust0.0", FRAGMENT_SESSION, bed.now());
        let frame = bytes(FOR_A_LISTENER).unwrap();
        let delta = table::count_frames(&mut bed.gateway, "trust0", &[frame]).unwrap();
        assert_eq!(counters::total(&delta, "fragment_table_full"), 1);
        let dataplane = &bed.gateway.dataplane;
        let listeners: Vec<_> = (0..5).map(|index| dataplane.fan_out_listener(index).unwrap()).collect();
        let received: u64 = listeners.iter().map(|listener| listener.received).sum();
        let dropped: u64 = listeners.iter().flat_map(|listener| listener.drops.packets).sum();
        let sent: u64 = (0..5).map(|index| dataplane.fan_out_receiver(index).unwrap().packets).sum();
        assert_eq!((received, sent, dropped), (1, 0, 1), "on {}", hook.name());
    }
}

/// Datagrams that are sent to find every bucket several times.
const MANY: usize = 20_000;

/// One zone's datagrams, permitted and never completed, take all of the table only until another zone wants its part.
fn shared(hook: Hook, v4: bool) {
    let mut bed = Bed::new(hook);
    bed.fill("untrust0.0", FRAGMENT_SESSION, bed.now());
    let frames: Vec<Vec<u8>> = (1..=MANY).map(|id| pieces(&bed.gateway, v4, id).swap_remove(0)).collect();
    let delta = table::count_frames(&mut bed.gateway, "trust0", &frames).unwrap();
    let (went, full) =
        (counters::total(&delta, "redirected"), counters::total(&delta, "fragment_table_full"));
    assert_eq!(went + full, MANY as u64, "on {}", hook.name());
    let (ours, theirs) = (bed.shares("trust0.0"), bed.shares("untrust0.0"));
    let half = FRAGMENT_WAYS as usize / 2;
    assert!(ours.iter().all(|share| *share <= half), "nobody takes more than a half: {ours:?}");
    assert!(ours.iter().sum::<usize>() as u64 == went, "what goes on is remembered");
    let equal = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours == theirs).count();
    assert!(equal * 10 > ours.len() * 9, "{equal} of {} buckets are shared alike", ours.len());
}

#[test]
fn one_zones_pieces_leave_room_for_anothers() {
    for hook in Hook::BOTH {
        [true, false].into_iter().for_each(|v4| shared(hook, v4));
    }
}

/// All orders of these, each once.
fn orders(left: &mut Vec<usize>, done: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.is_empty() {
        return all.push(done.clone());
    }
    let mut tried = Vec::new();
    for at in 0..left.len() {
        if tried.contains(&left[at]) {
            continue;
        }
        tried.push(left[at]);
        let piece = left.remove(at);
        done.push(piece);
        orders(left, done, all);
        done.pop();
        left.insert(at, piece);
    }
}

/// Pieces of one datagram: the first one and three more, 24 bytes each.
fn pieces(gateway: &Gateway, v4: bool, id: usize) -> Vec<Vec<u8>> {
    let text = |piece: usize| match (v4, piece) {
        (true, 0) => format!(
            "ip(src=10.0.1.100, dst=10.0.2.100, id={id}, mf)/udp(sport=1, dport=2, len=96)/fill(n=16)"
        ),
        (true, _) => {
            let more = if piece < 3 { ", mf" } else { "" };
            format!(
                "ip(src=10.0.1.100, dst=10.0.2.100, id={id}, frag={}{more}, proto=udp)/fill(n=24)",
                piece * 3
            )
        }
        (false, 0) => format!(
            "ip6(src=fd00:1::100, dst=fd00:2::100)/fragment(frag=0, mf=1, id={id})/udp(sport=1, dport=2, len=96)/fill(n=16)"
        ),
        (false, _) => {
            let more = u8::from(piece < 3);
            format!(
                "ip6(src=fd00:1::100, dst=fd00:2::100)/fragment(next=udp, frag={}, mf={more}, id={id})/fill(n=24)",
                piece * 3
            )
        }
    };
    let (near, far) =
        (gateway.world.unit_mac("trust0.0").unwrap(), gateway.world.host("client").unwrap().mac);
    (0..4)
        .map(|piece| {
            sluice_wire::text::bytes(&format!("eth(dst={near}, src={far})/{}", text(piece))).unwrap()
        })
        .collect()
}

/// Whatever is doubled, in whatever order: until all of a datagram has come, every piece and every copy goes on (each
/// way of sending it with an identification of its own).
fn doubled(hook: Hook, v4: bool) {
    let mut gateway = Bed::new(hook).gateway;
    let mut id = 1;
    for doubles in 0..8 {
        let mut sent: Vec<usize> = (1..4).flat_map(|p| vec![p; 1 + (doubles >> (p - 1) & 1)]).collect();
        let mut all = Vec::new();
        orders(&mut sent, &mut Vec::new(), &mut all);
        for order in all {
            id += 1;
            let frames = pieces(&gateway, v4, id);
            let mut missing = vec![1, 2, 3];
            let went = |gateway: &mut Gateway, piece: usize| {
                let seen = table::prog_run(gateway, "trust0", &frames[piece], false).unwrap();
                matches!((hook, seen.retval), (Hook::Tc, 7) | (Hook::Xdp, 4))
            };
            assert!(went(&mut gateway, 0), "the first fragment");
            for (at, piece) in order.iter().enumerate() {
                assert!(missing.is_empty() || went(&mut gateway, *piece), "number {at} of {order:?}");
                missing.retain(|other| other != piece);
            }
        }
    }
}

#[test]
fn copies_end_no_datagram_early() {
    for hook in Hook::BOTH {
        [true, false].into_iter().for_each(|v4| doubled(hook, v4));
    }
}
