//! What the channels alone cost, without reading and parsing. Run with
//! `cargo test --release -p sluice-monitor --test all -- --ignored speed:: --nocapture`.

use std::time::Instant;

use sluice_monitor::channel::{Arrival, Channels, hash_of};
use sluice_monitor::observation::{ChannelKey, Flags, Location, Observation, Protocol};
use sluice_monitor::summary::Interval;

const GROUP: usize = 64;

fn key_of(channel: u32) -> ChannelKey {
    let [_, a, b, c] = channel.to_be_bytes();
    ChannelKey::ipv4(
        Protocol::Esp,
        [10, a, b, c],
        [11, c, b, a],
        channel.wrapping_mul(0x9e37_79b1),
        Location::default(),
    )
}

/// Nanoseconds a packet, with packets spread over the channels at random and 1 % lost.
fn measure(count: u32, packets: u64, interval_ns: u64) -> f64 {
    let mut channels = Channels::new(1 << 20);
    let mut numbers = vec![1u64; count as usize];
    let keys: Vec<_> = (0..count).map(key_of).collect();
    let (mut random, mut time_ns, mut next_ns) = (88172645463325252u64, 1_700_000_000_000_000_000u64, 0);
    let (mut spent, mut deltas) = (0u128, 0);
    let mut group = Vec::with_capacity(GROUP);
    let mut guesses = [0; GROUP];
    for round in 0..packets / GROUP as u64 {
        group.clear();
        for _ in 0..GROUP {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random % u64::from(count)) as usize;
            numbers[at] += 1 + u64::from(random >> 32 & 127 == 0);
            time_ns += 80;
            let observation = Observation {
                key: keys[at],
                sequence: numbers[at],
                fingerprint: random as u32,
                payload_len: 40,
                bits: 32,
                flags: Flags::ENCRYPTED,
            };
            group.push((hash_of(&keys[at]), observation, Arrival { time_ns, frame: round, wire_len: 64 }));
        }
        let start = Instant::now();
        for (hash, _, _) in &group {
            channels.prefetch_slot(*hash);
        }
        for (guess, (hash, observation, _)) in guesses.iter_mut().zip(&group) {
            *guess = channels.prefetch_channel(*hash, &observation.key);
        }
        for (guess, (hash, observation, arrival)) in guesses.iter().zip(&group) {
            channels.observe(*hash, *guess, observation, arrival);
        }
        if time_ns >= next_ns {
            channels.flush(time_ns, Interval::default(), &mut |update| deltas += update.deltas.len());
            next_ns = time_ns + interval_ns;
        }
        spent += start.elapsed().as_nanos();
    }
    println!("{count} channels: {deltas} differences reported");
    spent as f64 / packets as f64
}

#[test]
#[ignore = "a measurement: needs a release build and a quiet machine"]
fn channels_alone() {
    for (count, packets) in [(10, 10_000_000), (10_000, 20_000_000), (1_000_000, 20_000_000)] {
        let ns = measure(count, packets, 1_000_000_000);
        println!("{count} channels: {ns:.1} ns a packet");
        assert!(ns < 400.0, "{ns:.1} ns a packet with {count} channels");
    }
}
