//! Two taps: planted losses and delays come back exactly.

use crate::reference;

use std::collections::BTreeMap;

use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::compare::{Comparison, Direction, Options, compare, print};
use sluice_monitor::frame::{Batch, Record};
use sluice_monitor::generate::{self, Mix, Synthetic};

type Frames = Vec<(u64, Vec<u8>)>;

/// A tap's capture.
struct Tap {
    name: &'static str,
    frames: Frames,
    next: usize,
}

impl Tap {
    fn new(name: &'static str, mut frames: Frames) -> Self {
        frames.sort_by_key(|(time_ns, _)| *time_ns);
        Tap { name, frames, next: 0 }
    }
}

impl Source for Tap {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.next as u64 + 1);
        batch.buffer().clear();
        for (time_ns, data) in self.frames[self.next..].iter().take(100) {
            let wire_len = data.len() as u32;
            batch.push_copy(Record { time_ns: *time_ns, wire_len, ..Record::default() }, data);
            self.next += 1;
        }
        Ok(self.next < self.frames.len())
    }

    fn name(&self) -> &str {
        self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }
}

/// What was planted about one channel.
#[derive(Clone, Debug, Default, PartialEq)]
struct Planted {
    back: bool,
    packets: u64,
    lost: Vec<u64>,
    delays: Vec<i64>,
    copies: u64,
}

struct Link {
    a: Frames,
    b: Frames,
    channels: BTreeMap<u64, Planted>,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Whether a generated frame goes from B to A: its sender is the second station of a pair.
fn goes_back(data: &[u8]) -> bool {
    let at =
        12 + data[12..].chunks(4).take_while(|tag| matches!(tag[..2], [0x81, 0] | [0x88, 0xa8])).count() * 4;
    match [data[at], data[at + 1]] {
        [0x88, 0xe5] => data[7] & 1 == 1,
        [0x08, 0x00] => data[at + 2 + 12] == 100,
        _ => data[at + 2 + 8 + 5] == 0xb,
    }
}

/// A link with delays of 200 to 300 us, now and then 5 ms; lost packets and copies behind it.
fn link(protocol: Mix, seed: u64, loss: u64, copies: u64) -> Link {
    let options = generate::Options {
        packets: 12_000,
        flows: 16,
        protocol,
        seed,
        rate: Some(10_000),
        ..Default::default()
    };
    let (mut source, mut batch) = (Synthetic::new(options).unwrap(), Batch::default());
    let (mut state, mut more) = (seed | 1, true);
    let mut link = Link { a: Vec::new(), b: Vec::new(), channels: BTreeMap::new() };
    while more {
        more = source.next_batch(&mut batch).unwrap();
        for frame in batch.frames() {
            let data = frame.data.to_vec();
            let Ok(observation) = reference::observe(&frame) else {
                link.a.push((frame.time_ns, data));
                continue;
            };
            let back = goes_back(&data);
            let (near, far) = if back { (&mut link.b, &mut link.a) } else { (&mut link.a, &mut link.b) };
            near.push((frame.time_ns, data.clone()));
            if observation.bits == 0 {
                continue;
            }
            let planted = link.channels.entry(observation.key.channel_id()).or_default();
            (planted.back, planted.packets) = (back, planted.packets + 1);
            let inside = (200..11_000).contains(&frame.number);
            if inside && random(&mut state) % 1000 < loss {
                planted.lost.push(observation.sequence);
                continue;
            }
            let delay = match random(&mut state) % 50 {
                0 => 5_000_000,
                _ => 200_000 + (random(&mut state) % 100_000) as i64,
            };
            planted.delays.push(delay);
            let arrival_ns = frame.time_ns + delay as u64;
            if random(&mut state) % 1000 < copies {
                planted.copies += 1;
                far.push((arrival_ns + 1_000_000, data.clone()));
            }
            far.push((arrival_ns, data));
        }
    }
    link
}

fn run(a: Frames, b: Frames, options: &Options) -> Comparison {
    let (mut a, mut b) = (Tap::new("a.pcap", a), Tap::new("b.pcap", b));
    compare(&mut a, &mut b, reference::observe, options).unwrap()
}

/// The number that `share` of sorted numbers do not exceed.
fn quantile(sorted: &[i64], share: f64) -> i64 {
    sorted[((sorted.len() as f64 * share).ceil() as usize).max(1) - 1]
}

fn check(link: &Link, found: &Comparison, what: &str) {
    assert_eq!(found.channels.len(), link.channels.len(), "{what}");
    let mut losses: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for loss in &found.losses {
        losses.entry(loss.channel).or_default().extend(loss.first..=loss.last);
    }
    for channel in &found.channels {
        let name = &channel.identity.name;
        let planted = &link.channels[&channel.identity.id];
        let counts = &channel.counts;
        let expected = if planted.back { Direction::BToA } else { Direction::AToB };
        assert_eq!(channel.direction, expected, "{what}: {name}");
        assert_eq!(counts.at_both, planted.delays.len() as u64, "{what}: {name} at both");
        assert_eq!(counts.lost, planted.lost.len() as u64, "{what}: {name} lost");
        assert_eq!((counts.missed, counts.undecided), (0, 0), "{what}: {name}");
        let copies = if planted.back { (planted.copies, 0) } else { (0, planted.copies) };
        assert_eq!((counts.duplicates_a, counts.duplicates_b), copies, "{what}: {name} copies");
        let (near, far) = if planted.back { (counts.at_b, counts.at_a) } else { (counts.at_a, counts.at_b) };
        assert_eq!(near, planted.packets, "{what}: {name} at the first tap");
        assert_eq!(far, planted.packets - counts.lost + planted.copies, "{what}: {name} at the second tap");
        assert_eq!(losses.remove(&channel.identity.id).unwrap_or_default(), planted.lost, "{what}: {name}");
        let (delay, mut delays) = (channel.delay.unwrap(), planted.delays.clone());
        delays.sort_unstable();
        assert_eq!((delay.min_ns, delay.max_ns), (delays[0], *delays.last().unwrap()), "{what}: {name}");
        assert_eq!(delay.mean_ns, delays.iter().sum::<i64>() / delays.len() as i64, "{what}: {name}");
        assert_eq!((delay.packets, delay.negative), (delays.len() as u64, 0), "{what}: {name}");
        for (value, share) in
            [(delay.p50_ns, 0.5), (delay.p90_ns, 0.9), (delay.p99_ns, 0.99), (delay.p999_ns, 0.999)]
        {
            let exact = quantile(&delays, share) as f64;
            assert!(
                (value as f64 / exact - 1.0).abs() < 0.011,
                "{what}: {name} {share}: {value} for {exact}"
            );
        }
    }
    assert!(losses.is_empty() && found.more_losses == 0, "{what}: {losses:?}");
}

#[test]
fn planted_losses_and_delays_are_recovered_exactly() {
    for protocol in [Mix::Macsec, Mix::Ipsec, Mix::Mixed, Mix::Gtpu] {
        for (seed, loss, copies) in [(1, 0, 0), (2, 20, 0), (3, 5, 10), (4, 150, 3)] {
            let link = link(protocol, seed, loss, copies);
            let found = run(link.a.clone(), link.b.clone(), &Options::default());
            check(&link, &found, &format!("{protocol:?} seed {seed}"));
            assert!(found.warnings.is_empty(), "{:?}", found.warnings);
            let lost: usize = link.channels.values().map(|channel| channel.lost.len()).sum();
            assert_eq!((found.totals.lost as usize, lost > 0), (lost, loss > 0));
        }
    }
}

#[test]
fn the_result_survives_json_and_prints() {
    let link = link(Mix::Mixed, 9, 20, 5);
    let found = run(link.a, link.b, &Options::default());
    let json = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&json).unwrap(), found);
    let text = print(&found);
    let worst = &found.channels[0];
    assert!(
        text.contains(&worst.identity.name) && text.contains("A > B") && text.contains("B > A"),
        "{text}"
    );
    assert!(text.contains(&format!("{} lost between", found.totals.lost)), "{text}");
}

#[test]
fn clocks_that_differ_are_noticed_and_put_right() {
    let link = link(Mix::Ipsec, 5, 10, 0);
    for shift in [40_000_000i64, -40_000_000] {
        let moved: Frames =
            link.b.iter().map(|(ns, data)| (ns.saturating_add_signed(shift), data.clone())).collect();
        let found = run(link.a.clone(), moved.clone(), &Options::default());
        let offset = found.clock_offset_ns.expect("both directions are there");
        assert!((offset - shift).abs() < 1000, "{offset} for {shift}");
        let word = if shift > 0 { "40.000 ms ahead" } else { "40.000 ms behind" };
        assert!(found.warnings.iter().any(|warning| warning.contains(word)), "{:?}", found.warnings);
        let direction = |found: &Comparison| -> BTreeMap<u64, Direction> {
            found.channels.iter().map(|channel| (channel.identity.id, channel.direction)).collect()
        };
        let put_right = run(link.a.clone(), moved, &Options { offset_ns: -shift, ..Options::default() });
        assert_eq!(direction(&found), direction(&put_right), "directions are right even so");
        check(&link, &put_right, "put right");
        assert!(put_right.warnings.is_empty(), "{:?}", put_right.warnings);
    }
    let far: Frames = link.b.iter().map(|(ns, data)| (ns + 5_000_000_000, data.clone())).collect();
    let found = run(link.a.clone(), far, &Options::default());
    assert_eq!(found.totals.at_both, 0);
    assert!(found.warnings[0].contains("no packet was seen at both taps"), "{:?}", found.warnings);
}

#[test]
fn what_a_tap_could_not_see_is_undecided_not_lost() {
    let link = link(Mix::Mixed, 6, 0, 0);
    let (first, last) = (link.a[0].0, link.a.last().unwrap().0);
    let span = last - first;
    let part: Frames =
        link.b.iter().filter(|(ns, _)| (first + span / 4..first + span / 2).contains(ns)).cloned().collect();
    let found = run(link.a.clone(), part.clone(), &Options::default());
    let totals = found.totals;
    assert_eq!((totals.lost, totals.missed), (0, 0), "{totals:?}");
    assert!(totals.undecided > totals.at_both && totals.at_both > 1000, "{totals:?}");
    assert_eq!(totals.at_a, totals.at_both + totals.undecided);
    assert_eq!(totals.at_b, totals.at_both);
}

#[test]
fn packets_are_recognised_behind_a_nat_and_another_vlan() {
    let link = link(Mix::Ipsec, 7, 20, 0);
    let translate = |data: &mut Vec<u8>| match [data[12], data[13]] {
        // Source of one direction, destination of the other.
        [0x08, 0x00] => {
            let at = if data[26] == 10 { 26 } else { 30 };
            data[at..at + 4].copy_from_slice(&[192, 0, 2, 9]);
            data.splice(12..12, [0x81, 0, 0, 77]);
        }
        _ => drop(data.splice(12..12, [0x81, 0, 0, 77])),
    };
    let mut b = link.b.clone();
    b.iter_mut().for_each(|(_, data)| translate(data));
    let found = run(link.a.clone(), b, &Options::default());
    let lost: usize = link.channels.values().map(|channel| channel.lost.len()).sum();
    let both: usize = link.channels.values().map(|channel| channel.delays.len()).sum();
    assert_eq!((found.totals.lost, found.totals.at_both), (lost as u64, both as u64));
    assert_eq!((found.totals.missed, found.totals.undecided), (0, 0));
    assert_eq!(found.channels.len(), link.channels.len(), "a channel is one, whatever its addresses");
}

#[test]
fn memory_is_bounded_and_says_so() {
    let link = link(Mix::Macsec, 8, 0, 0);
    // Without the other tap everything waits.
    let options = Options { max_waiting: 100, max_channels: 3, ..Options::default() };
    let far = vec![(link.a.last().unwrap().0, link.b[0].1.clone())];
    let found = run(link.a.clone(), far, &options);
    assert_eq!(found.channels.len(), 3);
    let said = |part: &str| found.warnings.iter().any(|warning| warning.contains(part));
    assert!(said("for lack of memory") && said("channels beyond the first 3"), "{:?}", found.warnings);
}

/// Two senders under one key, or somebody who forges packets of one number.
#[test]
fn packets_under_one_number_cost_no_more_each() {
    let link = link(Mix::Ipsec, 3, 0, 0);
    let is_esp = |frame: &&(u64, Vec<u8>)| frame.1[12..14] == [0x08, 0x00] && frame.1[23] == 50;
    let (start_ns, data) = link.a.iter().find(is_esp).unwrap().clone();
    let packets = 30_000u32;
    let frames = |delay_ns: u64| -> Frames {
        let frame = |number: u32| {
            let mut data = data.clone();
            let end = data.len();
            data[end - 4..].copy_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
            (start_ns + u64::from(number) * 1000 + delay_ns, data)
        };
        (0..packets).map(frame).collect()
    };
    let start = std::time::Instant::now();
    let found = run(frames(0), frames(500_000_000), &Options::default());
    let spent = start.elapsed();
    // Two of them may have one fingerprint.
    assert!(found.totals.at_both >= u64::from(packets) - 2 && found.totals.lost == 0, "{:?}", found.totals);
    assert!(spent < std::time::Duration::from_secs(4), "{spent:?}");
}
