//! Numbers that are no counter, and counters that are shared: losses are counted where numbers count packets, nowhere else.
//! Every protocol with every kind of number.

use crate::packets;

use std::collections::HashMap;

use packets::*;
use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::anomaly::Kind;
use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::frame::{Batch, LinkType, Record};
use sluice_monitor::summary::{ChannelState, Sink, Summary, Update};

const MILLISECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000_000_000_000;

/// Frames with their times, from memory.
#[derive(Clone, Default)]
struct Frames {
    frames: Vec<(u64, Vec<u8>)>,
    at: usize,
}

impl Source for Frames {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.at as u64 + 1);
        batch.buffer().clear();
        for (time_ns, data) in self.frames.iter().skip(self.at).take(100) {
            let (time_ns, wire_len) = (*time_ns, data.len() as u32);
            let record = Record { time_ns, wire_len, link: LinkType::Ethernet, ..Record::default() };
            batch.push_copy(record, data);
        }
        self.at += batch.len();
        Ok(self.at < self.frames.len())
    }

    fn name(&self) -> &str {
        "frames"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.at as u64, Some(self.frames.len() as u64))
    }
}

/// The last word on everything that the analysis said.
#[derive(Default)]
struct Said {
    states: Vec<ChannelState>,
    lost: i64,
    gaps: HashMap<(u64, u64), u64>,
    anomalies: HashMap<(Kind, u64), (u64, String)>,
    summary: Summary,
}

impl Sink for Said {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.lost += update.deltas.iter().map(|delta| delta.counts.lost).sum::<i64>();
        self.states.extend(update.channels);
        self.gaps.extend(update.gaps.iter().map(|gap| ((gap.channel, gap.first), gap.lost)));
        let anomaly = |of: sluice_monitor::summary::Anomaly| ((of.kind, of.channel), (of.count, of.detail));
        self.anomalies.extend(update.anomalies.into_iter().map(anomaly));
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

impl Said {
    fn of(frames: Vec<(u64, Vec<u8>)>, workers: usize) -> Said {
        let (mut said, mut source) = (Said::default(), Frames { frames, at: 0 });
        let options = Options { workers, ..Options::default() };
        said.summary = analyze(&mut source, &options, &mut said, &Control::default()).unwrap();
        said
    }

    /// Kinds that were said and not taken back, without what does not concern numbers.
    fn kinds(&self) -> Vec<Kind> {
        let aside = [Kind::OneWay, Kind::IntegrityOnly, Kind::LengthMismatch];
        let kinds = self.anomalies.iter().filter(|(_, (count, _))| *count > 0).map(|((kind, _), _)| *kind);
        let mut kinds: Vec<Kind> = kinds.filter(|kind| !aside.contains(kind)).collect();
        kinds.sort();
        kinds.dedup();
        let in_summary = self.summary.anomalies.iter().map(|(kind, _)| *kind);
        let in_summary: Vec<Kind> = in_summary.filter(|kind| !aside.contains(kind)).collect();
        assert_eq!(kinds, in_summary, "the summary says what the anomalies say");
        kinds
    }

    fn lost(&self) -> i64 {
        let counts = self.summary.counts.lost;
        assert_eq!(self.lost, counts, "the intervals add up to the summary");
        assert_eq!(self.gaps.values().sum::<u64>() as i64, counts, "and so do the gaps");
        counts
    }

    fn no_counters(&self) -> usize {
        self.states.iter().filter(|state| state.figures.no_counter).count()
    }
}

/// A protocol's frame with a number, in whatever byte order, and content.
type Build = fn(u32, u32) -> Vec<u8>;

const PROTOCOLS: [(&str, u8, Build); 6] = [
    ("macsec", 32, |number, salt| {
        let secured = [&salt.to_be_bytes()[..], &[0x55; 60]].concat();
        let mut frame = eth(0x88e5, &sectag(0x2c, 0, number, Some(0x0200_0000_000c_0005), &secured));
        // The ICV goes with the content.
        let end = frame.len();
        frame[end - 4..].copy_from_slice(&salt.to_be_bytes());
        frame
    }),
    ("esp", 32, |number, salt| eth(0x0800, &ip4(50, &esp(0x1000, number, &content(salt))))),
    ("esp_udp", 32, |number, salt| {
        eth(0x0800, &ip4(17, &udp(4500, 4500, &esp(0x1000, number, &content(salt)))))
    }),
    ("ah", 32, |number, salt| {
        let icv = [[0xaa; 8], [salt.to_be_bytes(), salt.to_be_bytes()].concat().try_into().unwrap()].concat();
        eth(0x0800, &ip4(51, &ah(6, 0x1000, number, &icv[..12], &[1; 20])))
    }),
    ("mka", 32, |number, salt| {
        let mut frame = eth(0x888e, &mka(0x0200_0000_000c_0001, [7; 12], number, &[1; 16], &[]));
        let end = frame.len();
        frame[end - 4..].copy_from_slice(&salt.to_be_bytes());
        frame
    }),
    ("gtpu", 16, |number, salt| {
        let [_, _, a, b] = number.to_be_bytes();
        eth(0x0800, &ip4(17, &udp(2152, 2152, &gtpu(0x32, 255, 77, Some([a, b, 0, 0]), &content(salt)))))
    }),
];

fn content(salt: u32) -> Vec<u8> {
    salt.wrapping_mul(0x9e37_79b1).to_be_bytes().repeat(12)
}

fn random(seed: u32) -> u32 {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..3 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    (state >> 16) as u32
}

/// 400 packets, two milliseconds apart.
fn frames(build: Build, numbers: impl IntoIterator<Item = u32>) -> Vec<(u64, Vec<u8>)> {
    let at = |(n, number): (usize, u32)| (START + n as u64 * 2 * MILLISECOND, build(number, n as u32 + 1));
    numbers.into_iter().enumerate().map(at).collect()
}

#[test]
fn what_is_no_counter_loses_nothing() {
    type Number = fn(u32, u8) -> u32;
    let kinds: [(&str, Number); 6] = [
        ("little-endian", |n, bits| match bits {
            16 => ((n + 1) as u16).swap_bytes().into(),
            _ => (n + 1).swap_bytes(),
        }),
        ("little-endian, one of seven missing", |n, bits| match bits {
            16 => ((n * 7 / 6) as u16).swap_bytes().into(),
            _ => (n * 7 / 6).swap_bytes(),
        }),
        ("constant", |_, _| 0),
        ("random", |n, _| random(n + 1)),
        ("microseconds", |n, _| 500_000 + n * 2000 + random(n) % 300),
        ("one of a hundred", |n, _| 5 + n * 100),
    ];
    for (protocol, bits, build) in PROTOCOLS {
        for (kind, number) in kinds {
            let name = format!("{protocol}, {kind}");
            let said = Said::of(frames(build, (0..400).map(|n| number(n, bits))), 1);
            assert_eq!(said.summary.counts.packets, 400, "{name}");
            assert_eq!(said.lost(), 0, "{name}: {:?}", said.anomalies);
            if kind == "constant" && protocol != "gtpu" {
                // A number used twice under one key is grave, whatever the number is good for.
                assert_eq!((said.no_counters(), said.kinds()), (0, vec![Kind::CounterReuse]), "{name}");
                continue;
            }
            assert_eq!(said.no_counters(), 1, "{name}: {:?}", said.anomalies);
            assert_eq!(said.kinds(), [Kind::NoCounter], "{name}: {:?}", said.anomalies);
            let (_, detail) =
                said.anomalies.iter().find(|((kind, _), _)| *kind == Kind::NoCounter).unwrap().1;
            let word = if kind.starts_with("little") {
                "little-endian"
            } else if kind == "constant" {
                "the same number"
            } else {
                "no counter, or a sample"
            };
            assert!(detail.contains(word), "{name}: {detail}");
        }
    }
}

#[test]
fn what_counts_is_counted_however_bad_the_link_is() {
    type Numbers = fn() -> (Vec<u32>, i64);
    let kinds: [(&str, Numbers); 8] = [
        ("three missing", || ((1..400).filter(|n| ![7, 8, 90].contains(n)).collect(), 3)),
        ("every second", || ((1..400).map(|n| n * 2).collect(), 398)),
        ("one of two at random", || {
            let kept: Vec<u32> = (1..800).filter(|n| random(*n).is_multiple_of(2)).collect();
            let lost = kept[kept.len() - 1] - kept[0] + 1 - kept.len() as u32;
            (kept, lost.into())
        }),
        ("four of five missing at random", || {
            let kept: Vec<u32> = (1..2000).filter(|n| random(*n).is_multiple_of(5)).collect();
            let lost = kept[kept.len() - 1] - kept[0] + 1 - kept.len() as u32;
            (kept, lost.into())
        }),
        ("an outage", || ((1..200).chain(700..900).collect(), 500)),
        ("pairs turned round", || ((1..200).flat_map(|n| [2 * n + 1, 2 * n]).collect(), 0)),
        ("a stretch again", || ((1..200).chain(50..60).chain(200..400).collect(), 0)),
        ("256 and its multiples", || ((250..260).chain(510..514).chain(766..1100).collect(), 250 + 252)),
    ];
    for (protocol, _, build) in PROTOCOLS {
        for (kind, numbers) in kinds {
            let (name, (numbers, lost)) = (format!("{protocol}, {kind}"), numbers());
            let said = Said::of(frames(build, numbers), 1);
            assert_eq!(said.no_counters(), 0, "{name}: {:?}", said.anomalies);
            assert_eq!(said.lost(), lost, "{name}: {:?}", said.anomalies);
        }
    }
}

/// Who forges numbers must not silence the monitor.
#[test]
fn forged_packets_do_not_end_the_count() {
    for (protocol, _, build) in PROTOCOLS.into_iter().filter(|(name, ..)| *name != "gtpu" && *name != "mka") {
        for forged in [1, 4, 20] {
            let mut numbers = vec![];
            for n in 0..400 {
                numbers.extend((n != 100).then_some(n + 1));
                numbers.extend((0..forged).map(|again| random(n * 32 + again)));
            }
            let said = Said::of(frames(build, numbers), 1);
            assert_eq!(
                (said.no_counters(), said.summary.counts.lost),
                (0, 1),
                "{protocol}, {forged} a packet"
            );
        }
    }
}

#[test]
fn a_sender_that_begins_to_count_is_believed() {
    for (protocol, _, build) in PROTOCOLS {
        let numbers = (0..100).map(|n| random(n + 1)).chain((1..300).filter(|n| *n != 200));
        let said = Said::of(frames(build, numbers), 1);
        assert_eq!((said.no_counters(), said.lost()), (0, 1), "{protocol}");
        assert_eq!(said.kinds(), [Kind::Loss, Kind::NoCounter], "{protocol}");
    }
}

/// A router on a link: its packets to groups and neighbours under one SPI, by one counter.
struct Router {
    build: fn(destination: u8, number: u32) -> Vec<u8>,
    name: &'static str,
}

/// 0 and 1 are groups, others are neighbours.
fn link_local(next: u8, destination: u8, payload: &[u8]) -> Vec<u8> {
    let source = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut to = [0; 16];
    match destination {
        0 | 1 => (to[0], to[1], to[15]) = (0xff, 2, 5 + destination),
        _ => (to[0], to[1], to[15]) = (0xfe, 0x80, destination),
    }
    let length = (payload.len() as u16).to_be_bytes();
    eth(0x86dd, &join(&[&[0x60, 0, 0, 0], &length, &[next, 64], &source, &to, payload]))
}

fn four(destination: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = ip4(51, payload);
    let to = if destination < 2 { [224, 0, 0, 5 + destination] } else { [10, 0, 0, destination] };
    packet[16..20].copy_from_slice(&to);
    eth(0x0800, &packet)
}

const ROUTERS: [Router; 3] = [
    Router {
        build: |to, number| {
            link_local(51, to, &ah(89, 256, number, &[number as u8; 12], &content(number)[..36]))
        },
        name: "OSPFv3 with AH",
    },
    Router {
        build: |to, number| link_local(50, to, &esp(256, number, &content(number))),
        name: "OSPFv3 with ESP",
    },
    Router {
        build: |to, number| four(to, &ah(89, 256, number, &[number as u8; 12], &content(number)[..36])),
        name: "OSPFv2 with AH",
    },
];

fn routed(router: &Router, sent: impl IntoIterator<Item = (u8, u32)>) -> Vec<(u64, Vec<u8>)> {
    let at = |(n, (to, number)): (usize, (u8, u32))| {
        (START + n as u64 * 900 * MILLISECOND, (router.build)(to, number))
    };
    sent.into_iter().enumerate().map(at).collect()
}

/// RFC 4552: hellos to the group, databases to the neighbour, updates to either.
#[test]
fn a_counter_shared_by_groups_and_neighbours_is_one() {
    type Plan = (&'static str, fn(u32) -> u8);
    let plans: [Plan; 4] = [
        ("mostly the neighbour", |n| if n % 7 == 1 { 0 } else { 2 }),
        ("by turns", |n| if n % 2 == 1 { 0 } else { 2 }),
        ("two groups, two neighbours", |n| [2, 0, 3, 1][n as usize % 4]),
        ("the neighbour first", |n| if n < 9 { 2 } else { (random(n) % 3) as u8 }),
    ];
    for router in &ROUTERS {
        for (plan, destination) in plans {
            let name = format!("{}, {plan}", router.name);
            let all = || (1..62).map(|n| (destination(n), n));
            let said = Said::of(routed(router, all()), 1);
            assert_eq!((said.summary.frames, said.lost()), (61, 0), "{name}: {:?}", said.anomalies);
            assert_eq!(said.kinds(), [], "{name}: {:?}", said.anomalies);
            assert_eq!(said.states.len(), 1, "{name}");
            // Losses are still seen, wherever the packets would have gone.
            let said = Said::of(routed(router, all().filter(|(_, n)| ![20, 21, 40].contains(n))), 1);
            assert_eq!(said.lost(), 3, "{name}");
            for workers in [2, 5] {
                assert_eq!(Said::of(routed(router, all()), workers).lost(), 0, "{name}, {workers} workers");
            }
        }
    }
}

/// The same SPI chosen by two receivers, or by hand: two counters.
#[test]
fn counters_of_their_own_stay_apart() {
    for router in &ROUTERS {
        for ahead in [0, 1000] {
            let sent = (1..60).flat_map(|n| [(0, n + ahead), (2, n), (4, n)]);
            let said = Said::of(routed(router, sent.filter(|(to, n)| *to != 2 || *n != 30)), 1);
            assert_eq!((said.states.len(), said.lost()), (3, 1), "{}: {:?}", router.name, said.anomalies);
            assert_eq!(said.kinds(), [Kind::Loss], "{}", router.name);
        }
    }
}

/// Nobody answers from a group's address, and AH is not meant to hide anything.
#[test]
fn what_a_protocol_cannot_do_is_no_anomaly() {
    for router in &ROUTERS {
        let said = Said::of(routed(router, (1..60).map(|n| (0, n))), 1);
        assert_eq!(said.summary.anomalies, [], "{}", router.name);
        assert_eq!(said.states[0].figures.one_way, None);
        let said = Said::of(routed(router, (1..60).map(|n| (2, n))), 1);
        assert_eq!(said.summary.anomalies, [(Kind::OneWay, 59)], "{}: nobody answers", router.name);
    }
}

/// ESP from one host to another under a new SPI every `packets`, these times apart.
fn keys(spacing: &dyn Fn(u32) -> u64, pause_ns: u64) -> Vec<(u64, Vec<u8>)> {
    let (mut time_ns, mut frames) = (START, vec![]);
    for key in 0..9u32 {
        for n in 1..101 {
            let packet = esp(0x1000 + key, n, &content(n));
            frames.push((time_ns, eth(0x0800, &ip4(50, &packet))));
            time_ns += spacing(key * 100 + n);
        }
        time_ns += pause_ns;
    }
    frames
}

/// Eight changes of key each.
#[test]
fn quiet_links_do_not_pause_and_busy_ones_do() {
    const SECOND: u64 = 1000 * MILLISECOND;
    let pauses = |frames: Vec<(u64, Vec<u8>)>, rekey_pause_ns: u64| {
        let (mut said, mut source) = (Said::default(), Frames { frames, at: 0 });
        let options = Options { rekey_pause_ns, ..Options::default() };
        let summary = analyze(&mut source, &options, &mut said, &Control::default()).unwrap();
        let pauses = summary.anomalies.iter().find(|(kind, _)| *kind == Kind::RekeyPause);
        (summary.rekeys, pauses.map_or(0, |(_, count)| *count))
    };
    let quiet: [(&str, &dyn Fn(u32) -> u64); 4] = [
        ("a packet in ten seconds", &|_| 10 * SECOND),
        ("a packet now and then", &|n| SECOND + u64::from(random(n)) % (20 * SECOND)),
        ("bursts with silence between", &|n| if n % 20 == 0 { 30 * SECOND } else { MILLISECOND }),
        ("a burst a key", &|n| if n % 100 == 0 { 60 * SECOND } else { MILLISECOND }),
    ];
    for (name, spacing) in quiet {
        let (rekeys, found) = pauses(keys(spacing, 0), SECOND);
        assert!(rekeys >= 7 && found == 0, "{name}: {found} pauses at {rekeys} changes of key");
    }
    let busy = || keys(&|_| 200 * MILLISECOND, 4 * SECOND);
    assert_eq!(pauses(busy(), SECOND), (8, 8), "a sender that never rested");
    assert_eq!(pauses(busy(), 5 * SECOND), (8, 0), "and one who was told what is long");
    assert_eq!(pauses(keys(&|_| 20 * MILLISECOND, 300 * MILLISECOND), 200 * MILLISECOND), (8, 8), "or short");
}
