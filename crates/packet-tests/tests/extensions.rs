//! Sessions that need more than their lines have an extension, and no others; it ends with them, however they end.

use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::{EXTENSION_GRANT, FlowExtension, FlowLine4, FlowLine6, MARK_EXTENDED};
use sluice_dataplane::{Family, Program, Sizes, Timeouts};
use sluice_packet_tests::case::GateStep;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::{counters, table, world::World};
use sluice_wire::text::bytes;
use zerocopy::{FromBytes, IntoBytes};

const SESSIONS4: u32 = 24;
const SESSIONS6: u32 = 8;
/// Of each kind: those that need an extension, and the others.
const HALF: usize = SESSIONS4 as usize / 2;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet").join(name)
}

fn config(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

fn gateway(world: &str, config: &str, hook: Hook) -> Gateway {
    let world = World::read(&file(world)).unwrap();
    let sizes = Sizes { sessions4: SESSIONS4, sessions6: SESSIONS6, ..Sizes::default() };
    let gateway = Gateway::new(world, config, sizes, hook).unwrap();
    gateway.idle_near_ends().unwrap();
    gateway
}

/// How many of the packets ended for this reason, and how many went on.
fn send(gateway: &mut Gateway, device: &str, frames: &[Vec<u8>], reason: &str) -> (usize, usize) {
    let delta = table::count_frames(gateway, device, frames).unwrap();
    let went = counters::total(&delta, "redirected") + counters::total(&delta, "handed_off");
    (counters::total(&delta, reason) as usize, went as usize)
}

/// From a host of zone trust, which demands grants, to the service dns.
fn query(host: u8, port: usize) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)";
    bytes(&format!("{ends}/ip(src=10.0.1.{host}, dst=10.0.2.100)/udp(sport={port}, dport=53)")).unwrap()
}

fn query6(port: usize) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)";
    bytes(&format!("{ends}/ip6(src=fd00:1::100, dst=fd00:2::100)/udp(sport={port}, dport=53)")).unwrap()
}

/// Between zones that demand none.
fn plain(port: usize) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:02:01, src=02:00:00:00:02:32)";
    bytes(&format!("{ends}/ip(src=10.0.2.50, dst=10.0.30.100)/udp(sport={port}, dport=9)")).unwrap()
}

fn grant(gateway: &Gateway, source: &str, service: &str) -> u32 {
    let (user, source, service) = ("alice".to_owned(), source.to_owned(), service.to_owned());
    let step = GateStep::Grant { user, source, service, idle_s: None, absolute_s: None };
    gateway.change_grants(&step).unwrap();
    handle_and_sessions(gateway).0
}

/// Of alice's last grant.
fn handle_and_sessions(gateway: &Gateway) -> (u32, usize) {
    let list = gateway.dataplane.grants().list(gateway.dataplane.now_jiffies().unwrap());
    let grant = list.iter().filter(|grant| grant.user == "alice").max_by_key(|grant| grant.handle).unwrap();
    (grant.handle, grant.sessions as usize)
}

fn revoke(gateway: &Gateway) {
    gateway.change_grants(&GateStep::Revoke("user".to_owned(), "alice".to_owned())).unwrap();
}

fn map(gateway: &Gateway, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(gateway.dataplane.pin().join(name)).unwrap()
}

fn record<T: FromBytes>(map: &MapHandle, number: u32) -> T {
    let bytes = map.lookup(&number.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    T::read_from_bytes(&bytes).unwrap()
}

/// Where the extension of each session stands, and whether the session has it.
fn extended(gateway: &Gateway) -> Vec<(u32, bool)> {
    let extensions = map(gateway, "flow_extensions");
    let (lines4, lines6) = (map(gateway, "lines4"), map(gateway, "lines6"));
    let of = |number: u32, family: Family| {
        let (place, states) = match family {
            Family::V4 => (number, [0, 1].map(|side| record::<FlowLine4>(&lines4, 2 * number + side).state)),
            Family::V6 => {
                (SESSIONS4 + number, [0, 1].map(|side| record::<FlowLine6>(&lines6, 2 * number + side).state))
            }
        };
        let marks = states.map(|state| u32::from(state.marks) & MARK_EXTENDED != 0);
        assert_eq!(marks[0], marks[1], "session {number} of {family:?}");
        let found = record::<FlowExtension>(&extensions, place);
        let own = found.needs != 0 && found.tag == states[0].tag;
        assert_eq!(marks[0], own, "session {number} of {family:?}: {found:?}");
        (place, own)
    };
    gateway.dataplane.sessions().map(|session| of(session.id.number, session.id.family)).collect()
}

fn count(gateway: &Gateway) -> (usize, usize) {
    let all = extended(gateway);
    (all.len(), all.iter().filter(|(_, own)| *own).count())
}

/// Fills the table with sessions of both kinds; what finds no room, or has no grant, leaves nothing.
fn fill(gateway: &mut Gateway, cycle: usize) {
    let what = format!("cycle {cycle} on {}", gateway.hook.name());
    let handle = grant(gateway, "10.0.1.100", "dns");
    let ports = || (0..HALF).map(|number| 1000 + 100 * cycle + number);
    let queries: Vec<Vec<u8>> = ports().flat_map(|port| [query(101, port), query(100, port)]).collect();
    let others: Vec<Vec<u8>> = ports().map(plain).collect();
    assert_eq!(send(gateway, "trust0", &queries, "gate_no_grant"), (HALF, HALF), "{what}");
    assert_eq!(send(gateway, "untrust0", &others, "gate_no_grant"), (0, HALF), "{what}");
    let more: Vec<Vec<u8>> = (5000..5010).map(|port| query(100, port)).collect();
    assert_eq!(send(gateway, "trust0", &more, "session_table_full"), (10, 0), "{what}");
    assert_eq!(count(gateway), (2 * HALF, HALF), "{what}");
    assert_eq!(handle_and_sessions(gateway), (handle, HALF), "{what}: those that were recorded");
}

fn sweep(gateway: &Gateway, seconds: u64) {
    let dataplane = &gateway.dataplane;
    let now = dataplane.now_jiffies().unwrap() + seconds * u64::from(dataplane.hz());
    dataplane.sweep(now, &Timeouts::default()).unwrap();
}

fn end(gateway: &mut Gateway, cycle: usize) {
    match cycle % 5 {
        0 => sweep(gateway, 1000),
        1 => gateway.clear_sessions().unwrap(),
        2 => {
            revoke(gateway);
            let frames: Vec<Vec<u8>> = (0..HALF).map(|n| query(100, 1000 + 100 * cycle + n)).collect();
            assert_eq!(send(gateway, "trust0", &frames, "grant_revoked"), (HALF, 0));
        }
        3 => {
            revoke(gateway);
            sweep(gateway, 0);
        }
        _ => {
            // a session is recorded and its packet ends: it is withdrawn
            gateway.clear_sessions().unwrap();
            let config = config("gate.conf");
            gateway.dataplane.remove_program(Program::Leave).unwrap();
            let (ended, went) = send(gateway, "trust0", &[query(100, 900)], "no_generation");
            assert_eq!((ended, went), (1, 0));
            assert_eq!(handle_and_sessions(gateway).1, HALF, "none was recorded by it");
            for _ in 0..2 {
                gateway.commit(&config).unwrap();
            }
        }
    }
    let (live, own) = count(gateway);
    assert_eq!(own, 0, "cycle {cycle}");
    assert_eq!(live, if matches!(cycle % 5, 2 | 3) { HALF } else { 0 }, "cycle {cycle}");
    gateway.clear_sessions().unwrap();
    if !matches!(cycle % 5, 2 | 3) {
        revoke(gateway);
    }
}

#[test]
fn ten_full_tables_leave_nothing_behind() {
    for hook in Hook::BOTH {
        in_thread(move || {
            let mut gateway = gateway("gate.world", &config("gate.conf"), hook);
            for cycle in 0..10 {
                fill(&mut gateway, cycle);
                end(&mut gateway, cycle);
            }
        });
    }
}

/// IPv6's stand behind IPv4's, so sessions with the same number have different ones.
fn both_families(hook: Hook) {
    let mut gateway = gateway("gate.world", &config("gate.conf"), hook);
    grant(&gateway, "10.0.1.100", "dns");
    let four = handle_and_sessions(&gateway).0;
    let six = grant(&gateway, "fd00:1::100", "dns");
    let queries: Vec<Vec<u8>> = (0..4).flat_map(|n| [query(100, 1000 + n), query6(1000 + n)]).collect();
    assert_eq!(send(&mut gateway, "trust0", &queries, "gate_no_grant"), (0, 8));
    assert_eq!(count(&gateway), (8, 8));
    let extensions = map(&gateway, "flow_extensions");
    for (place, _) in extended(&gateway) {
        let found: FlowExtension = record(&extensions, place);
        assert_eq!(found.grant, if place <= SESSIONS4 { four } else { six });
        assert_eq!((u32::from(found.needs), found.grant_use), (EXTENSION_GRANT, 1));
        let reserved = [&found.reserved_tunnel[..], &found.reserved_policer, &found.reserved_usage].concat();
        assert!(reserved.iter().all(|word| *word == 0));
    }
}

#[test]
fn each_family_has_its_own() {
    for hook in Hook::BOTH {
        in_thread(move || both_families(hook));
    }
}

/// Two sessions want the same answers: the second is refused, and so is what it needed.
fn conflict(hook: Hook) {
    let mut gateway = gateway("gate-nat.world", &config("gate-nat.conf"), hook);
    grant(&gateway, "192.0.2.100", "web");
    let syn = |destination: &str, source: usize, port: u16| {
        let ends = "eth(dst=02:00:00:00:03:01, src=02:00:00:00:03:64)";
        let tcp = format!("tcp(sport={source}, dport={port}, flags=S, seq=1)");
        bytes(&format!("{ends}/ip(src=192.0.2.100, dst={destination})/{tcp}")).unwrap()
    };
    for cycle in 0..10 {
        let ports = 2000 + 100 * cycle..2000 + 100 * cycle + HALF;
        let pair = |port| [syn("198.51.100.33", port, 8080), syn("203.0.113.80", port, 80)];
        let syns: Vec<Vec<u8>> = ports.flat_map(pair).collect();
        assert_eq!(send(&mut gateway, "out0", &syns, "session_conflict"), (HALF, HALF));
        assert_eq!(count(&gateway), (HALF, HALF), "cycle {cycle}");
        assert_eq!(handle_and_sessions(&gateway).1, (cycle + 1) * HALF, "cycle {cycle}");
        gateway.clear_sessions().unwrap();
    }
}

#[test]
fn what_conflicts_is_not_counted_and_not_kept() {
    for hook in Hook::BOTH {
        in_thread(move || conflict(hook));
    }
}

/// Room for extensions comes with the first configuration that needs it, and nobody notices.
fn later_gate(hook: Hook) {
    let with = config("gate.conf");
    let without = &with[..with.find("services {\n    gate {").unwrap()];
    let mut gateway = gateway("gate.world", without, hook);
    let bytes = |gateway: &Gateway| {
        let memory = gateway.dataplane.memory().unwrap();
        memory
            .into_iter()
            .find(|map| map.name == "flow_extensions")
            .map(|map| (map.entries, map.bytes))
            .unwrap()
    };
    let before = bytes(&gateway);
    assert_eq!(before.0, 1, "nobody needs any");
    let plains: Vec<Vec<u8>> = (0..4).map(|n| plain(1000 + n)).collect();
    assert_eq!(send(&mut gateway, "untrust0", &plains, "policy_deny"), (0, 4));
    assert_eq!(gateway.dataplane.sessions().count(), 4);

    gateway.commit(&with).unwrap();
    let (entries, room) = bytes(&gateway);
    assert_eq!(entries, SESSIONS4 + SESSIONS6 + 1);
    assert!(room >= u64::from(entries) * 64 && before.1 <= room, "{before:?} {room}");
    assert_eq!(send(&mut gateway, "untrust0", &plains, "policy_deny"), (0, 4));
    assert_eq!(count(&gateway), (4, 0), "they go on, and need none");
    grant(&gateway, "10.0.1.100", "dns");
    assert_eq!(send(&mut gateway, "trust0", &[query(100, 1000)], "gate_no_grant"), (0, 1));
    assert_eq!(count(&gateway), (5, 1));

    // the sweep that was there before knows them, too
    revoke(&gateway);
    sweep(&gateway, 0);
    assert_eq!(count(&gateway), (4, 0));
    grant(&gateway, "10.0.1.100", "dns");
    assert_eq!(send(&mut gateway, "trust0", &[query(100, 1001)], "gate_no_grant"), (0, 1));
    // without the gate its grants are revoked, and nobody new needs one
    gateway.commit(without).unwrap();
    let late = [query(100, 1001), query(101, 7)];
    assert_eq!(send(&mut gateway, "trust0", &late, "grant_revoked"), (1, 1));
    assert_eq!(count(&gateway), (5, 0));
    assert_eq!(bytes(&gateway), (entries, room), "who comes next finds it");
}

#[test]
fn a_commit_makes_room_for_them() {
    for hook in Hook::BOTH {
        in_thread(move || later_gate(hook));
    }
}

/// Programs that knew no extensions have the handle in the lines, and their sessions live and end by it.
fn of_older_programs(hook: Hook) {
    let mut gateway = gateway("gate.world", &config("gate.conf"), hook);
    let handle = grant(&gateway, "10.0.1.100", "dns");
    assert_eq!(send(&mut gateway, "trust0", &[query(100, 1000), query(100, 1001)], "gate_no_grant"), (0, 2));
    let (extensions, lines) = (map(&gateway, "flow_extensions"), map(&gateway, "lines4"));
    let places: Vec<u32> = extended(&gateway).iter().map(|(place, _)| *place).collect();
    let put = |place: u32, record: FlowExtension| {
        extensions.update(&place.to_ne_bytes(), record.as_bytes(), MapFlags::ANY).unwrap();
    };
    // nothing, or what an earlier session of the record has left
    let own: FlowExtension = record(&extensions, places[1]);
    put(places[0], FlowExtension::default());
    put(places[1], FlowExtension { tag: own.tag.wrapping_sub(2), grant: handle + 1, ..own });
    for place in &places {
        let line: FlowLine4 = record(&lines, 2 * place);
        assert_eq!(line.grant, handle, "what older programs read");
    }
    let again = [query(100, 1000), query(100, 1001)];
    assert_eq!(send(&mut gateway, "trust0", &again, "grant_revoked"), (0, 2));
    sweep(&gateway, 0);
    assert_eq!(gateway.dataplane.sessions().count(), 2);
    // the extension is what counts where there is one
    put(places[1], FlowExtension { grant: handle + (1 << sluice_abi::GRANT_INDEX_BITS), ..own });
    gateway.wait(std::time::Duration::from_millis(80)).unwrap();
    let (ended, went) = send(&mut gateway, "trust0", &again, "grant_revoked");
    assert_eq!((ended, went), (1, 1));
    revoke(&gateway);
    assert_eq!(send(&mut gateway, "trust0", &again[..1], "grant_revoked").0, 1);
    assert_eq!(gateway.dataplane.sessions().count(), 0);
}

#[test]
fn sessions_of_older_programs_keep_their_grant() {
    for hook in Hook::BOTH {
        in_thread(move || of_older_programs(hook));
    }
}
