//! What does not pass leaves nothing behind: no session, port or next hop, whoever refuses it and wherever it ends.

use std::path::{Path, PathBuf};

use sluice_dataplane::{Program, Sizes};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::{counters, table, world::World};
use sluice_wire::text::bytes;

const PACKETS: usize = 40;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet").join(name)
}

fn gateway(world: &str, sessions: u32, hook: Hook) -> Gateway {
    let world = World::read(&file(world)).unwrap();
    let config = std::fs::read_to_string(&world.config).unwrap();
    let sizes = Sizes { sessions4: sessions, sessions6: 64, ..Sizes::default() };
    let gateway = Gateway::new(world, &config, sizes, hook).unwrap();
    gateway.idle_near_ends().unwrap();
    gateway
}

/// UDP from the client of zone trust.
fn from_trust(destination: &str, port: usize) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)";
    bytes(&format!("{ends}/ip(src=10.0.1.100, dst={destination})/udp(sport={port}, dport=9)")).unwrap()
}

/// The other way.
fn from_untrust(destination: &str) -> Vec<u8> {
    let ends = "eth(dst=02:00:00:00:02:01, src=02:00:00:00:02:64)";
    bytes(&format!("{ends}/ip(src=10.0.2.100, dst={destination})/udp(sport=1000, dport=9)")).unwrap()
}

/// How many of the packets ended for this reason, and how many went on.
fn send(gateway: &mut Gateway, device: &str, frames: &[Vec<u8>], reason: &str) -> (u64, u64) {
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap();
    for frame in frames {
        table::prog_run(gateway, device, frame, false).unwrap();
    }
    let delta = counters::delta(&before, &counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap());
    counters::first_equation(&delta).unwrap();
    let went = counters::total(&delta, "redirected") + counters::total(&delta, "handed_off");
    (counters::total(&delta, reason), went)
}

/// Each program in turn is missing while first packets come that are to be translated.
fn without_a_program(hook: Hook) {
    let mut gateway = gateway("nat.world", 256, hook);
    let config = std::fs::read_to_string(&gateway.world.config).unwrap();
    let first = [Program::Fast, Program::Admit, Program::Judge, Program::Record, Program::Leave];
    for (turn, program) in first.into_iter().enumerate() {
        // the one port of this pool toward its destination: a second session finds none
        let frames: Vec<Vec<u8>> =
            (0..PACKETS).map(|n| from_trust("10.0.2.50", 2000 + 100 * turn + n)).collect();
        gateway.dataplane.remove_program(program).unwrap();
        let (ended, went) = send(&mut gateway, "trust0", &frames, "no_generation");
        assert_eq!((ended, went), (PACKETS as u64, 0), "{program:?} on {}", hook.name());
        assert_eq!(gateway.dataplane.sessions().count(), 0, "{program:?} on {}", hook.name());
        // the slot is filled again by the second commit from here
        for _ in 0..2 {
            gateway.commit(&config).unwrap();
        }
        let (full, went) = send(&mut gateway, "trust0", &frames, "nat_ports_exhausted");
        assert_eq!((full, went), (PACKETS as u64 - 1, 1), "{program:?} on {}: its port is free", hook.name());
        gateway.clear_sessions().unwrap();
    }
}

#[test]
fn a_missing_program_leaves_no_session_and_no_port() {
    for hook in Hook::BOTH {
        in_thread(move || without_a_program(hook));
    }
}

fn refused(hook: Hook) {
    let next_hops = |gateway: &Gateway| gateway.dataplane.nexthops().unwrap().len();

    // policy
    let mut zones = gateway("zones.world", 64, hook);
    let frames: Vec<Vec<u8>> = (2..2 + PACKETS).map(|host| from_untrust(&format!("10.0.1.{host}"))).collect();
    assert_eq!(send(&mut zones, "untrust0", &frames, "policy_default"), (PACKETS as u64, 0));
    assert_eq!(next_hops(&zones), 0, "policy on {}", hook.name());

    // full table of sessions
    let mut full = gateway("zones.world", 4, hook);
    let frames: Vec<Vec<u8>> =
        (2..2 + PACKETS).map(|host| from_trust(&format!("10.0.2.{host}"), 1000)).collect();
    let (ended, went) = send(&mut full, "trust0", &frames, "session_table_full");
    assert_eq!(ended + went, PACKETS as u64);
    assert!(ended > 0 && next_hops(&full) as u64 == went, "full table on {}", hook.name());

    // no port left
    let mut nat = gateway("nat.world", 256, hook);
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(|n| from_trust("10.0.2.50", 1000 + n)).collect();
    assert_eq!(send(&mut nat, "trust0", &frames, "nat_ports_exhausted"), (PACKETS as u64 - 1, 1));
    assert_eq!(next_hops(&nat), 1, "ports on {}", hook.name());

    // no grant
    let mut gate = gateway("gate.world", 64, hook);
    let frames: Vec<Vec<u8>> =
        (2..2 + PACKETS).map(|host| from_trust(&format!("10.0.2.{host}"), 1000)).collect();
    assert_eq!(send(&mut gate, "trust0", &frames, "redirected").1, 0);
    assert_eq!(next_hops(&gate), 0, "gate on {}", hook.name());
}

#[test]
fn what_is_refused_takes_no_next_hop() {
    for hook in Hook::BOTH {
        in_thread(move || refused(hook));
    }
}
