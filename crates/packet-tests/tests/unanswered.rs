//! `max-unanswered`: sessions that wait for their first answer may take a part of the table only.

use sluice_dataplane::Sizes;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::{counters, table};
use sluice_wire::text::bytes;

/// What small tables leave to sessions without an answer, whatever the percentage.
const BOUND: usize = 1024;

fn run(hook: Hook) {
    let sizes = Sizes { sessions4: 4096, sessions6: 64, ..Sizes::default() };
    let mut gateway = Gateway::of("zones.world", sizes, hook).unwrap();
    let query = |port: usize| {
        let ends = "eth(dst=02:00:00:00:01:01, src=02:00:00:00:01:64)/ip(src=10.0.1.100, dst=10.0.2.100)";
        bytes(&format!("{ends}/udp(sport={port}, dport=53)")).unwrap()
    };
    let answer = bytes(
        "eth(dst=02:00:00:00:02:01, src=02:00:00:00:02:64)/ip(src=10.0.2.100, dst=10.0.1.100)/udp(sport=53, dport=1000)",
    )
    .unwrap();
    let mut send = |device: &str, frame: &[u8]| {
        let delta = table::count_frames(&mut gateway, device, &[frame]).unwrap();
        let total = |name: &str| counters::total(&delta, name);
        (total("redirected"), total("session_unanswered"))
    };
    for number in 0..BOUND {
        assert_eq!(send("trust0", &query(1000 + number)), (1, 0), "session {number}");
    }
    assert_eq!(
        send("trust0", &query(9000)),
        (0, 1),
        "the table has room, but not for one more without an answer"
    );
    assert_eq!(send("trust0", &query(1000)), (1, 0), "those that are in stay");
    assert_eq!(send("untrust0", &answer), (1, 0));
    assert_eq!(send("trust0", &query(9000)), (1, 0), "an answer makes room for one");
    assert_eq!(send("trust0", &query(9001)), (0, 1));
}

#[test]
fn sessions_without_an_answer_are_bounded() {
    for hook in [Hook::Tc, Hook::Xdp] {
        in_thread(move || run(hook));
    }
}
