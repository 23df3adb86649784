//! Channels against a plain model that remembers everything, and against the faults that were planted: each is found
//! exactly once, and nothing else is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use sluice_monitor::channel::{Arrival, Channels, Directions, Event, What, hash_of};
use sluice_monitor::observation::{ChannelKey, Flags, Location, Observation, Protocol};
use sluice_monitor::summary::{ChannelState, Counts, Interval, Update};

/// xorshift64*: deterministic, and not the generator of the code under test.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, chance: u64) -> bool {
        self.below(chance) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    Plain,
    Duplicate,
    Replay,
    Reused,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    key: ChannelKey,
    number: u64,
    time_ns: u64,
    content: u32,
    origin: Origin,
}

/// Numbers by what was planted or found.
type Found = BTreeMap<(ChannelKey, What), Vec<u64>>;

struct Planted {
    packets: Vec<Packet>,
    lost: HashMap<ChannelKey, BTreeSet<u64>>,
    found: Found,
}

const SPACING_NS: u64 = 100_000;

fn key_of(channel: u64) -> ChannelKey {
    let address = [10, 0, (channel >> 8) as u8, channel as u8];
    match channel % 3 {
        0 => ChannelKey::macsec(0x0200_0000_0000_0001 + (channel << 16), 0, Location::default()),
        1 => ChannelKey::ipv4(
            Protocol::Esp,
            address,
            [10, 1, 0, 1],
            0x1000 + channel as u32,
            Location::default(),
        ),
        _ => ChannelKey::ipv6(Protocol::Ah, [7; 16], [channel as u8; 16], 9, Location::default()),
    }
}

/// One channel's packets in the order of arrival, with faults.
fn plant_channel(random: &mut Random, channel: u64, planted: &mut Planted) -> Vec<Packet> {
    let key = key_of(channel);
    let length = 200 + random.below(2500);
    // A third of the channels wrap within the run.
    let first = if channel.is_multiple_of(3) {
        (1 << 32) - 1 - random.below(length)
    } else {
        1 + random.below(1 << 30)
    };
    let lost = planted.lost.entry(key).or_default();
    let mut line: Vec<(u64, Packet)> = Vec::new();
    let mut skip = 0;
    for step in 0..length {
        let (number, at) = (first + step, step * 1000);
        if skip == 0 && step > 2 && random.one_in(60) {
            skip = 1 + if random.one_in(4) { random.below(40) } else { 0 };
        }
        if skip > 0 && step + 3 < length {
            skip -= 1;
            lost.insert(number);
            continue;
        }
        let content = random.next() as u32 | 1;
        let packet = Packet { key, number, time_ns: 0, content, origin: Origin::Plain };
        let delay = match random.below(100) {
            0..3 if step > 2 => 1000 + random.below(20_000),
            3 if step > 2 => 1000 + random.below(600_000),
            _ => 0,
        };
        line.push((at + delay, packet));
        let mut copy = |after: u64, origin, content| {
            line.push((at + delay + after, Packet { content, origin, ..packet }));
        };
        if delay < 400_000 && random.one_in(80) {
            copy(1 + random.below(8_000), Origin::Duplicate, content);
        }
        if step + 1600 < length && random.one_in(150) {
            copy(620_000 + random.below(900_000), Origin::Replay, content);
        }
        if random.one_in(150) && delay == 0 {
            copy(1 + random.below(6_000), Origin::Reused, content ^ 0x5a5a_0000);
        }
    }
    line.sort_by_key(|(at, _)| *at);
    line.into_iter().map(|(_, packet)| packet).collect()
}

/// Several channels, interleaved.
fn plant(seed: u64) -> Planted {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut planted = Planted { packets: Vec::new(), lost: HashMap::new(), found: Found::new() };
    let channels = 1 + random.below(6);
    let mut lines: Vec<_> =
        (0..channels).map(|channel| plant_channel(&mut random, channel, &mut planted).into_iter()).collect();
    let mut time_ns = 1_700_000_000_000_000_000 + random.below(1_000_000_000);
    while !lines.is_empty() {
        let turn = random.below(lines.len() as u64) as usize;
        match lines[turn].next() {
            Some(packet) => {
                time_ns += SPACING_NS + random.below(1000);
                planted.packets.push(Packet { time_ns, ..packet });
            }
            None => drop(lines.swap_remove(turn)),
        }
    }
    planted.found = model(&planted.packets);
    planted
}

/// The definitions, followed literally with unlimited memory.
fn model(packets: &[Packet]) -> Found {
    let mut found = Found::new();
    let mut highest: HashMap<ChannelKey, u64> = HashMap::new();
    let mut originals: HashMap<(ChannelKey, u64), Packet> = HashMap::new();
    for packet in packets {
        let top = *highest.entry(packet.key).or_insert(packet.number);
        let what = match originals.get(&(packet.key, packet.number)) {
            None if packet.number < top => Some(What::Late),
            None => None,
            Some(original) if original.content != packet.content => Some(What::Reused),
            Some(original) => {
                let (depth, age) = (top - packet.number, packet.time_ns - original.time_ns);
                Some(if depth < 512 && age <= 1_000_000_000 { What::Duplicate } else { What::Replay })
            }
        };
        if let Some(what) = what {
            found.entry((packet.key, what)).or_default().push(packet.number & 0xffff_ffff);
        }
        originals.entry((packet.key, packet.number)).or_insert(*packet);
        highest.insert(packet.key, top.max(packet.number));
    }
    found
}

/// What the code under test says.
#[derive(Default)]
struct Report {
    found: Found,
    lost: HashMap<u64, BTreeSet<u64>>,
    deltas: HashMap<u64, Counts>,
    states: Vec<ChannelState>,
    rekeys: Vec<(u64, u64, u64)>,
}

impl Report {
    fn add(&mut self, update: Update) {
        for gap in update.gaps {
            let lost = self.lost.entry(gap.channel).or_default();
            for number in gap.first..=gap.last {
                if gap.lost > 0 {
                    lost.insert(number)
                } else {
                    lost.remove(&number)
                };
            }
        }
        for delta in update.deltas {
            self.deltas.entry(delta.channel).or_default().add(&delta.counts);
        }
        self.states.extend(update.channels);
        self.rekeys.extend(update.rekeys.iter().map(|rekey| (rekey.from, rekey.to, rekey.lost)));
    }
}

fn run(packets: &[Packet], interval_ns: u64, limit: usize) -> Report {
    let mut channels = Channels::new(limit);
    let events: Arc<Mutex<Vec<Event>>> = Arc::default();
    let sink = Arc::clone(&events);
    channels.watch(Box::new(move |event| sink.lock().unwrap().push(*event)));
    let mut report = Report::default();
    let mut next_ns = packets[0].time_ns + interval_ns;
    for (at, packet) in packets.iter().enumerate() {
        if packet.time_ns >= next_ns {
            channels.flush(packet.time_ns, Interval::default(), &mut |update| report.add(update));
            next_ns += interval_ns;
        }
        let observation = Observation {
            key: packet.key,
            sequence: packet.number & 0xffff_ffff,
            fingerprint: packet.content,
            payload_len: 64,
            bits: 32,
            flags: Flags::ENCRYPTED,
        };
        let hash = hash_of(&packet.key);
        let guess = channels.prefetch_channel(hash, &packet.key);
        let arrival = Arrival { time_ns: packet.time_ns, frame: at as u64 + 1, wire_len: 100 };
        channels.observe(hash, guess, &observation, &arrival);
    }
    let end_ns = packets.last().unwrap().time_ns;
    channels.finish(end_ns, Interval::default(), &mut |update| report.add(update));
    channels.conclude(&Directions::default(), Interval::default(), &mut |update| report.add(update));
    for event in events.lock().unwrap().iter().filter(|event| event.what != What::Skipped) {
        let numbers = report.found.entry((event.channel, event.what)).or_default();
        numbers.push(event.sequence & 0xffff_ffff);
    }
    report
}

fn sorted(mut found: Found) -> Found {
    found.values_mut().for_each(|numbers| numbers.sort_unstable());
    found
}

fn check(seed: u64) {
    let planted = plant(seed);
    let report = run(&planted.packets, 50_000_000, 1000);
    assert_eq!(
        sorted(report.found),
        sorted(planted.found.clone()),
        "seed {seed}: faults found against the model"
    );
    for (key, lost) in &planted.lost {
        let found = report.lost.get(&key.channel_id()).cloned().unwrap_or_default();
        assert_eq!(&found, lost, "seed {seed}: lost numbers of {key}");
        let counts = report.deltas[&key.channel_id()];
        assert_eq!(counts.lost, lost.len() as i64, "seed {seed}: count of lost numbers of {key}");
        let state = report.states.iter().find(|state| state.key == *key).unwrap();
        assert_eq!(state.figures.counts, counts, "seed {seed}: totals are the sum of the differences");
        let late = planted.found.get(&(*key, What::Late)).map_or(0, Vec::len) as u64;
        assert_eq!(state.figures.reorder.depths.iter().sum::<u64>(), late, "seed {seed}: histogram of {key}");
        assert_eq!(state.figures.reorder.would_drop[0], late, "strict order drops all late packets");
    }
    for (origin, what) in
        [(Origin::Duplicate, What::Duplicate), (Origin::Replay, What::Replay), (Origin::Reused, What::Reused)]
    {
        let count = planted.packets.iter().filter(|packet| packet.origin == origin).count();
        let modelled: usize =
            planted.found.iter().filter(|((_, is), _)| *is == what).map(|(_, v)| v.len()).sum();
        assert_eq!(count, modelled, "seed {seed}: the generator plants what the model calls {what:?}");
    }
}

#[test]
fn a_thousand_seeds_are_recovered_exactly() {
    for seed in 1..=1000 {
        check(seed);
    }
}
