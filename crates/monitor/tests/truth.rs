//! Generated captures analysed: each planted event is found once, and nothing else.

use crate::reference;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sluice_monitor::analysis::{Control, Options as Analysis, analyze};
use sluice_monitor::anomaly::Kind as Alarm;
use sluice_monitor::capture::{self, Source};
use sluice_monitor::channel::{Arrival, Channels, Event, What, hash_of};
use sluice_monitor::compare::compare;
use sluice_monitor::frame::Batch;
use sluice_monitor::generate;
use sluice_monitor::generate::truth::{Kind, Truth};
use sluice_monitor::generate::{Generator, Mix, Options, OptionsError, Size, Synthetic};
use sluice_monitor::observation::{Flags, Observation, Protocol};

use sluice_monitor::protocol;
use sluice_monitor::slice;
use sluice_monitor::summary::{ChannelState, Gap, Interval, Rekey, Sink, Summary, Update};

/// Keeps all that the analysis reports.
#[derive(Default)]
struct Keep {
    gaps: Vec<Gap>,
    rekeys: Vec<Rekey>,
    states: Vec<ChannelState>,
    alarms: HashMap<(Alarm, u64), u64>,
}

impl Sink for Keep {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.gaps.extend(update.gaps);
        self.rekeys.extend(update.rekeys);
        self.states.extend(update.channels);
        for anomaly in update.anomalies {
            self.alarms.insert((anomaly.kind, anomaly.channel), anomaly.count);
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A capture of its own for every seed: protocols, sizes, numbers of flows and shares of faults vary.
fn options(seed: u64) -> Options {
    let protocol = [Mix::Mixed, Mix::Macsec, Mix::Ipsec, Mix::Gtpu][(seed % 4) as usize];
    let share = |step: u64, most: f64| ((seed / step) % 4) as f64 / 3.0 * most;
    let options = Options {
        packets: 1500 + seed % 7 * 500,
        flows: [1, 2, 3, 5, 8, 17, 32][(seed / 3 % 7) as usize],
        protocol,
        size: [Size::Fixed(64), Size::Imix, Size::Fixed(1500)][(seed % 3) as usize],
        loss: share(5, 0.04),
        reorder: share(7, 0.04),
        duplicate: share(11, 0.02),
        replay: share(13, 0.02),
        rekey: if protocol == Mix::Gtpu { 0 } else { [0, 64, 100, 400][(seed / 4 % 4) as usize] },
        vlans: [vec![], vec![9], vec![4094, 1]][(seed / 2 % 3) as usize].clone(),
        seed,
        rate: [None, Some(100), Some(400)][(seed / 6 % 3) as usize],
    };
    match Generator::new(options.clone()) {
        Err(OptionsError::TooShortForReplay { .. }) => Options { replay: 0.0, ..options },
        _ => options,
    }
}

fn run(options: &Options, analysis: &Analysis) -> (Truth, Keep, Summary) {
    let (mut source, mut keep) = (Synthetic::new(options.clone()).unwrap(), Keep::default());
    let summary = analyze(&mut source, analysis, &mut keep, &Control::default()).unwrap();
    (source.truth(), keep, summary)
}

/// Asserts that two collections agree, and shows only where they do not.
fn assert_same<T: Ord + Clone + std::fmt::Debug>(found: Vec<T>, planted: Vec<T>, seed: u64, what: &str) {
    let (mut extra, mut missing) = (found.clone(), planted.clone());
    for item in &planted {
        extra.iter().position(|other| other == item).map(|at| extra.remove(at));
    }
    for item in &found {
        missing.iter().position(|other| other == item).map(|at| missing.remove(at));
    }
    assert!(
        extra.is_empty() && missing.is_empty(),
        "seed {seed}: {what}: found but not planted {extra:?}, planted but not found {missing:?}"
    );
}

/// The last word on every reported gap, those that were given back left out: channel, first, last, frame.
fn final_gaps(gaps: &[Gap]) -> Vec<(u64, u64, u64, u64)> {
    let mut last: BTreeMap<(u64, u64, u64), &Gap> = BTreeMap::new();
    for gap in gaps {
        // An AN that comes round counts from 1 again: the frame tells its gaps from those before.
        last.insert((gap.channel, gap.first, gap.frame), gap);
    }
    let mut gaps: Vec<_> = last
        .values()
        .filter(|gap| gap.lost > 0)
        .map(|gap| {
            assert_eq!(gap.lost, gap.last - gap.first + 1);
            (gap.channel, gap.first, gap.last, gap.frame)
        })
        .collect();
    gaps.sort_unstable();
    gaps
}

fn check_losses(seed: u64, truth: &Truth, keep: &Keep, summary: &Summary) {
    let mut planted: Vec<_> = truth
        .events
        .iter()
        .filter(|event| event.kind == Kind::Loss)
        .map(|event| (event.channel, event.first, event.last, event.frame))
        .collect();
    planted.sort_unstable();
    assert_same(final_gaps(&keep.gaps), planted, seed, "lost ranges and the frames that reveal them");
    assert_eq!(summary.gaps, truth.totals.gaps, "seed {seed}: number of gaps");
    assert_eq!(summary.counts.lost, truth.totals.lost as i64, "seed {seed}: lost");
}

fn check_counts(seed: u64, truth: &Truth, keep: &Keep, summary: &Summary) {
    let (counts, totals) = (summary.counts, truth.totals);
    assert_eq!(summary.frames, totals.frames, "seed {seed}");
    assert_eq!(summary.bytes, totals.bytes, "seed {seed}");
    assert_eq!(counts.late, totals.late, "seed {seed}: late");
    assert_eq!(counts.duplicates, totals.duplicates, "seed {seed}: duplicates");
    assert_eq!(counts.replays, totals.replays, "seed {seed}: replays");
    assert_eq!((counts.reused, counts.too_old, counts.stray), (0, 0, 0), "seed {seed}");
    let clear = truth.clear;
    let unknown: u64 = summary.unknown.iter().map(|count| count.frames).sum();
    assert_eq!(unknown, clear.arp + clear.icmp + clear.tcp + clear.udp, "seed {seed}: {:?}", summary.unknown);
    let mut planted: BTreeMap<u64, [u64; 5]> = BTreeMap::new();
    for channel in &truth.channels {
        let sums = planted.entry(channel.id).or_default();
        let counts = [channel.packets, channel.bytes, channel.late, channel.duplicates, channel.replays];
        sums.iter_mut().zip(counts).for_each(|(sum, more)| *sum += more);
    }
    let found: BTreeMap<u64, [u64; 5]> = keep
        .states
        .iter()
        .filter(|state| state.figures.sequence_bits > 0)
        .map(|state| {
            let counts = state.figures.counts;
            (
                state.key.channel_id(),
                [counts.packets, counts.bytes, counts.late, counts.duplicates, counts.replays],
            )
        })
        .collect();
    let (found, planted) = (found.into_iter().collect(), planted.into_iter().collect());
    assert_same(found, planted, seed, "packets, bytes, late, duplicates, replays by channel");
    let depths: u64 = summary.reorder.depths.iter().sum();
    assert_eq!(depths, totals.late, "seed {seed}: histogram");
    let deepest = truth.events.iter().filter(|event| event.kind == Kind::Late).map(|event| event.depth).max();
    assert_eq!(u64::from(summary.reorder.max_depth), deepest.unwrap_or(0), "seed {seed}: deepest");
}

fn check_rekeys(seed: u64, truth: &Truth, keep: &Keep) {
    let planted = truth
        .events
        .iter()
        .filter(|event| event.kind == Kind::Rekey)
        .map(|event| (event.from, event.channel, event.time_ns, event.depth))
        .collect();
    let found = keep.rekeys.iter().map(|rekey| (rekey.from, rekey.to, rekey.at_ns, rekey.lost)).collect();
    assert_same(found, planted, seed, "rekeys");
    assert!(keep.rekeys.iter().all(|rekey| rekey.pause_ns > 0), "seed {seed}: keys follow each other");
}

/// Alarms that no planted event explains.
fn check_alarms(seed: u64, options: &Options, truth: &Truth, keep: &Keep, summary: &Summary) {
    let planted_late =
        truth.events.iter().filter(|event| event.kind == Kind::Late && event.depth >= 64).count() as u64;
    let missing: u64 =
        truth.events.iter().filter(|event| event.kind == Kind::Rekey).map(|event| event.depth).sum();
    for (kind, count) in &summary.anomalies {
        let expected = match kind {
            Alarm::Loss => {
                // A late packet's gap counts while it was reported; what was planted is there in any case.
                assert!(*count >= truth.totals.lost, "seed {seed}: {count} lost");
                continue;
            }
            Alarm::LateBeyondWindow => planted_late,
            Alarm::Duplicate => truth.totals.duplicates,
            Alarm::Replay => truth.totals.replays,
            Alarm::RekeyLoss => missing,
            // The last of an odd number of flows has no partner.
            Alarm::OneWay => {
                assert!(options.flows % 2 == 1, "seed {seed}: one-way with {} flows", options.flows);
                continue;
            }
            // Extended numbers on their way past 2^32.
            Alarm::Wrapped | Alarm::Exhaustion => {
                assert_eq!(options.protocol, Mix::Mixed, "seed {seed}: {kind:?}");
                continue;
            }
            other => panic!("seed {seed}: {other:?} was not planted ({:?})", keep.alarms),
        };
        assert_eq!(*count, expected, "seed {seed}: {kind:?}");
    }
}

fn check(seed: u64) {
    let options = options(seed);
    let (truth, keep, summary) = run(&options, &Analysis::default());
    check_losses(seed, &truth, &keep, &summary);
    check_counts(seed, &truth, &keep, &summary);
    check_rekeys(seed, &truth, &keep);
    check_alarms(seed, &options, &truth, &keep, &summary);
}

#[test]
fn a_thousand_captures_are_recovered_exactly() {
    for seed in 1..=1000 {
        check(seed);
    }
}

#[test]
fn several_workers_find_the_same() {
    for seed in (1..=1000).step_by(41) {
        let options = options(seed);
        let (truth, keep, summary) = run(&options, &Analysis { workers: 3, ..Analysis::default() });
        check_losses(seed, &truth, &keep, &summary);
        check_counts(seed, &truth, &keep, &summary);
        check_rekeys(seed, &truth, &keep);
    }
}

/// Everything that a run says, but for how long it took.
fn said(seed: u64, workers: usize) -> Vec<String> {
    let (_, keep, summary) = run(&options(seed), &Analysis { workers, ..Analysis::default() });
    // Workers hand out numbers of their own.
    let states = keep.states.iter().map(|state| format!("{:?}", ChannelState { number: 0, ..*state }));
    let summary = Summary { workers: 0, elapsed_s: 0.0, ..summary };
    let mut all: Vec<String> = states.collect();
    all.extend(keep.gaps.iter().map(|gap| format!("{gap:?}")));
    all.extend(keep.rekeys.iter().map(|rekey| format!("{rekey:?}")));
    all.extend(keep.alarms.iter().map(|alarm| format!("{alarm:?}")));
    all.sort();
    all.push(serde_json::to_string(&summary).unwrap());
    all
}

#[test]
fn the_number_of_workers_changes_nothing() {
    for seed in (3..=1000).step_by(83) {
        let alone = said(seed, 1);
        for workers in [2, 3, 8] {
            assert_eq!(said(seed, workers), alone, "seed {seed}, {workers} workers");
        }
    }
}

/// Every late packet, duplicate and replay with its number and frame, as the channels tell them one by one.
#[test]
fn each_packet_out_of_order_is_named_once() {
    for seed in 1..=300 {
        let mut source = Synthetic::new(options(seed)).unwrap();
        let (mut channels, mut batch) = (Channels::new(1 << 12), Batch::default());
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let sink = Arc::clone(&events);
        channels.watch(Box::new(move |event| sink.lock().unwrap().push(*event)));
        let mut last_ns = 0;
        loop {
            let more = source.next_batch(&mut batch).unwrap();
            for frame in batch.frames() {
                let Ok(observation) = protocol::observe(&frame) else { continue };
                if frame.number.is_multiple_of(211) {
                    channels.flush(frame.time_ns, Interval::default(), &mut |_| {});
                }
                let hash = hash_of(&observation.key);
                let arrival =
                    Arrival { time_ns: frame.time_ns, frame: frame.number, wire_len: frame.wire_len };
                channels.observe(
                    hash,
                    channels.prefetch_channel(hash, &observation.key),
                    &observation,
                    &arrival,
                );
                last_ns = frame.time_ns;
            }
            if !more {
                break;
            }
        }
        channels.finish(last_ns, Interval::default(), &mut |_| {});
        let events = events.lock().unwrap();
        let found = events.iter().filter(|event| event.what != What::Skipped);
        let found = found
            .map(|event| (event.frame, event.what, event.channel.channel_id(), event.sequence))
            .collect();
        let what = |kind| match kind {
            Kind::Late => Some(What::Late),
            Kind::Duplicate => Some(What::Duplicate),
            Kind::Replay => Some(What::Replay),
            Kind::Loss | Kind::Rekey => None,
        };
        let planted = source
            .truth()
            .events
            .iter()
            .filter_map(|event| Some((event.frame, what(event.kind)?, event.channel, event.first)))
            .collect();
        assert_same(found, planted, seed, "packets out of order");
    }
}

#[test]
fn every_protocol_of_a_mixed_capture_is_followed() {
    let options = Options { packets: 50_000, flows: 32, ..Options::default() };
    let (truth, _, summary) = run(&options, &Analysis::default());
    for counts in &summary.protocols {
        let planted: u64 = truth
            .channels
            .iter()
            .filter(|channel| channel.protocol == counts.protocol)
            .map(|channel| channel.packets)
            .sum();
        let expected = match counts.protocol {
            Protocol::Ike => truth.totals.ike,
            Protocol::EspUdp => planted + truth.totals.keepalives,
            _ => planted,
        };
        assert_eq!(counts.counts.packets, expected, "{}", counts.protocol);
    }
    assert_eq!(summary.protocols.len(), 6, "{:?}", summary.protocols);
}

/// The parser under test against one that is written for well-formed frames only.
#[test]
fn parsers_agree_on_every_frame() {
    for seed in (1..=1000).step_by(7) {
        let mut source = Synthetic::new(options(seed)).unwrap();
        let (mut batch, mut digests) = (Batch::default(), HashMap::new());
        loop {
            let more = source.next_batch(&mut batch).unwrap();
            for frame in batch.frames() {
                let (found, expected) = (protocol::observe(&frame), reference::observe(&frame));
                let at = format!("seed {seed} frame {}: {found:?} {expected:?}", frame.number);
                match (found, expected) {
                    (Ok(found), Ok(expected)) => {
                        // IKE has an identity of its own, which the reference does not know.
                        let key = |of: Observation| if of.bits == 0 { of.key.group() } else { of.key };
                        assert_eq!((key(found), found.bits), (key(expected), expected.bits), "{at}");
                        assert_eq!(found.sequence, expected.sequence, "{at}");
                        let bad = found.flags.has(Flags::LENGTH_MISMATCH) || found.flags.has(Flags::CUT);
                        assert!(!bad && (found.bits == 0 || found.fingerprint != 0), "{at}");
                        // The same content has the same digest, another content hardly ever.
                        let known = digests.entry(expected.fingerprint).or_insert(found.fingerprint);
                        assert_eq!(*known, found.fingerprint, "{at}");
                    }
                    (Err(found), Err(expected)) => assert_eq!(found, expected, "{at}"),
                    _ => panic!("{at}"),
                }
            }
            if !more {
                break;
            }
        }
    }
}

/// The whole way: file, reader, parser, channels.
#[test]
fn captures_in_files_are_recovered_too() {
    let directory = tempfile::tempdir().unwrap();
    for (seed, name) in [(12, "a.pcap"), (13, "b.pcapng"), (14, "c.pcap.gz"), (16, "d.pcapng.zst")] {
        let (path, options) = (directory.path().join(name), options(seed));
        let made = generate::generate(options.clone(), &path).unwrap();
        let truth: Truth = serde_json::from_slice(&std::fs::read(made.truth).unwrap()).unwrap();
        let open = |path: &Path| capture::open(path.to_str().unwrap()).unwrap();
        let (mut source, mut keep) = (open(&path), Keep::default());
        let summary = analyze(source.as_mut(), &Analysis::default(), &mut keep, &Control::default()).unwrap();
        check_losses(seed, &truth, &keep, &summary);
        check_counts(seed, &truth, &keep, &summary);
        check_rekeys(seed, &truth, &keep);
        check_alarms(seed, &options, &truth, &keep, &summary);

        let cut = directory.path().join("cut.pcapng");
        let event = Some(slice::Event::Frame(500));
        let request =
            slice::Request { channel: None, merged: false, event, before_ns: u64::MAX >> 1, after_ns: 0 };
        let made = slice::slice(
            open(&path).as_mut(),
            protocol::observe,
            &request,
            &cut,
            &std::sync::atomic::AtomicBool::new(false),
        )
        .unwrap();
        assert_eq!((made.first_frame, made.last_frame, made.frames), (1, 500, 500));
        let both = |a: &Path, b: &Path| {
            let (mut a, mut b) = (open(a), open(b));
            compare(a.as_mut(), b.as_mut(), protocol::observe, &Default::default()).unwrap().totals
        };
        let totals = both(&path, &cut);
        assert_eq!((totals.lost, totals.missed, totals.at_b), (0, 0, totals.at_both + totals.duplicates_b));
    }
}
