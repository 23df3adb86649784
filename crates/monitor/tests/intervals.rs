//! When results are told: with the interval that they belong to, whatever comes behind it.

use crate::packets;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use packets::*;
use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::anomaly::Kind;
use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::frame::{Batch, LinkType, Record};
use sluice_monitor::summary::{Interval, Sink, Summary, Update};

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const IPV4: u16 = 0x0800;

/// Batches one after the other, and silence behind them for so long.
struct Tap {
    batches: VecDeque<Vec<(u64, Vec<u8>)>>,
    silence: Duration,
    silent_since: Option<Instant>,
    frames: u64,
}

impl Tap {
    fn new(batches: impl IntoIterator<Item = Vec<(u64, Vec<u8>)>>, silence: Duration) -> Tap {
        Tap { batches: batches.into_iter().collect(), silence, silent_since: None, frames: 0 }
    }
}

impl Source for Tap {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        batch.buffer().clear();
        let Some(frames) = self.batches.pop_front() else {
            std::thread::sleep(Duration::from_millis(50));
            let since = self.silent_since.get_or_insert_with(Instant::now);
            return Ok(since.elapsed() < self.silence);
        };
        for (time_ns, data) in frames {
            let wire_len = data.len() as u32;
            let record = Record { time_ns, wire_len, link: LinkType::Ethernet, ..Record::default() };
            batch.push_copy(record, &data);
        }
        self.frames += batch.len() as u64;
        Ok(true)
    }

    fn name(&self) -> &str {
        "tap"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.frames, None)
    }

    fn is_live(&self) -> bool {
        !self.silence.is_zero()
    }
}

/// What came, in its order.
#[derive(Default)]
struct Told {
    intervals: Vec<Interval>,
    /// Kinds, with the newest second of which there were counts by then.
    anomalies: Vec<(Kind, u64)>,
    loss_at: Option<usize>,
}

impl Sink for Told {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        self.intervals.push(update.interval);
        let counted = self.intervals.iter().filter(|interval| interval.counts.packets > 0);
        let newest = counted.map(|interval| interval.start_ns).max().unwrap_or(START);
        self.anomalies.extend(update.anomalies.iter().map(|of| (of.kind, (newest - START) / SECOND)));
        if !update.gaps.is_empty() {
            self.loss_at = Some(self.intervals.len());
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

fn packet(number: u32, payload: usize) -> Vec<u8> {
    eth(IPV4, &ip4(50, &esp(0x77, number, &vec![0x5a; payload])))
}

fn told(batches: Vec<Vec<(u64, Vec<u8>)>>, options: &Options) -> Told {
    let mut told = Told::default();
    analyze(&mut Tap::new(batches, Duration::ZERO), options, &mut told, &Control::default()).unwrap();
    told
}

/// Nothing but frames of channels follows, which close no interval of frames that belong to none.
#[test]
fn what_concerns_the_link_is_told_with_its_interval() {
    let clear = eth(IPV4, &ip4(6, &[0; 40]));
    let malformed = eth(IPV4, &ip4(50, &esp(0, 1, &[0; 40])));
    for workers in [1, 2] {
        let options = Options { expect_protected: true, mtu: Some(1500), workers, ..Options::default() };
        for (kind, frame) in [
            (Kind::ClearText, clear.clone()),
            (Kind::Malformed, malformed.clone()),
            (Kind::OverMtu, packet(1, 1600)),
        ] {
            let mut batches = vec![vec![(START, frame)]];
            batches
                .extend((1..40).map(|second| vec![(START + second * SECOND, packet(second as u32 + 1, 64))]));
            let told = told(batches, &options);
            let when = told.anomalies.iter().find(|(found, _)| *found == kind).map(|(_, second)| *second);
            // With several workers the one that saw the frame may have its next turn a little later.
            let latest = if workers == 1 { 2 } else { 38 };
            assert!(when.is_some_and(|second| second <= latest), "{kind:?} of {workers}: {when:?}");
        }
    }
}

#[test]
fn channels_that_give_way_are_told_with_their_interval() {
    let batch = |second: u64| {
        let frame = |spi| eth(IPV4, &ip4(50, &esp(spi, 1, &[0x5a; 64])));
        (0..40).map(|at| (START + second * SECOND, frame(second as u32 * 100 + at + 1))).collect()
    };
    let options = Options { max_channels: 64, ..Options::default() };
    let told = told((0..20).map(batch).collect(), &options);
    let when = told.anomalies.iter().find(|(found, _)| *found == Kind::Evicted).map(|(_, second)| *second);
    assert!(when.is_some_and(|second| second <= 3), "{when:?}");
}

/// A cable is pulled: the last loss is told, and nothing is active any more.
#[test]
fn a_live_tap_that_falls_silent_goes_on_telling() {
    for workers in [1, 2] {
        let batch =
            vec![(START, packet(1, 64)), (START + 1000, packet(2, 64)), (START + 2000, packet(5, 64))];
        let options = Options { workers, ..Options::default() };
        let mut told = Told::default();
        let mut tap = Tap::new([batch], Duration::from_secs(4));
        let summary = analyze(&mut tap, &options, &mut told, &Control::default()).unwrap();
        assert_eq!((summary.frames, summary.counts.lost, summary.last_ns), (3, 2, START + 2000));
        let silent = told.intervals.iter().filter(|of| of.start_ns > START && of.active == 0);
        let seconds: std::collections::BTreeSet<u64> =
            silent.map(|of| (of.start_ns - START) / SECOND).collect();
        assert!(seconds.contains(&1), "with {workers}: {seconds:?}");
        assert!(told.loss_at.is_some_and(|at| at < told.intervals.len() - 1), "the loss waited for the end");
    }
}

/// User packets in a tunnel without protection; what peers tell each other there is none.
#[test]
fn user_packets_in_gtp_u_are_clear_text() {
    let tunnel = |message| eth(IPV4, &ip4(17, &udp(2152, 2152, &gtpu(0x30, message, 7, None, &[0x45; 64]))));
    let count = |frame: Vec<u8>, expect_protected| {
        let batches = vec![vec![(START, frame.clone()), (START + 1, frame)]];
        let mut tap = Tap::new(batches, Duration::ZERO);
        let options = Options { expect_protected, ..Options::default() };
        let summary = analyze(&mut tap, &options, &mut Told::default(), &Control::default()).unwrap();
        summary.anomalies.iter().find(|(kind, _)| *kind == Kind::ClearText).map_or(0, |(_, count)| *count)
    };
    assert_eq!((count(tunnel(255), true), count(tunnel(255), false)), (2, 0));
    assert_eq!(count(tunnel(1), true), 0, "an echo");
    assert_eq!(count(packet(1, 64), true), 0);
}
