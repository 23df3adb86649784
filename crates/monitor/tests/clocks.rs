//! What the analysis makes of clocks that step, and of what a capture says about itself behind its last frame.

use crate::packets;

use std::collections::{BTreeMap, VecDeque};

use packets::*;
use sluice_monitor::analysis::{Control, Options, analyze};
use sluice_monitor::anomaly::Kind;
use sluice_monitor::capture::{CaptureError, Source};
use sluice_monitor::frame::{Batch, LinkType, Record};
use sluice_monitor::summary::{Sink, Summary, Update};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const HOUR: u64 = 3600 * SECOND;
const START: u64 = 1_700_000_000 * SECOND;

/// Batches of times and frames, each with what the capture had lost by then.
type Batches = VecDeque<(Vec<(u64, Vec<u8>)>, u64)>;

struct Capture {
    batches: Batches,
    frames: u64,
    drops: u64,
}

impl Source for Capture {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        batch.buffer().clear();
        let Some((frames, drops)) = self.batches.pop_front() else { return Ok(false) };
        for (time_ns, data) in frames {
            let wire_len = data.len() as u32;
            let record = Record { time_ns, wire_len, link: LinkType::Ethernet, ..Record::default() };
            batch.push_copy(record, &data);
        }
        self.frames += batch.len() as u64;
        self.drops = drops;
        Ok(!self.batches.is_empty())
    }

    fn name(&self) -> &str {
        "capture"
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.frames, None)
    }

    fn drops(&self) -> u64 {
        self.drops
    }
}

/// By interval, which is a second: packets of channels, other frames, frames that the capture lost.
#[derive(Default)]
struct Course {
    intervals: BTreeMap<u64, [u64; 3]>,
    dropped: u64,
    evicted: u64,
    order: Vec<u64>,
}

impl Sink for Course {
    fn update(&mut self, update: Update) -> anyhow::Result<()> {
        let interval = update.interval;
        let counts = [interval.counts.packets, interval.unknown, interval.capture_drops];
        if counts != [0; 3] {
            let sums = self.intervals.entry(interval.index).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            self.order.push(interval.index);
        }
        for anomaly in &update.anomalies {
            match anomaly.kind {
                Kind::CaptureDrops => self.dropped = anomaly.count,
                Kind::Evicted => self.evicted = anomaly.count,
                _ => {}
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &Summary) -> anyhow::Result<()> {
        Ok(())
    }
}

fn analysed(batches: impl Into<Batches>, options: Options) -> (Course, Summary) {
    let mut capture = Capture { batches: batches.into(), frames: 0, drops: 0 };
    let mut course = Course::default();
    let summary = analyze(&mut capture, &options, &mut course, &Control::default()).unwrap();
    (course, summary)
}

fn followed(number: u32) -> Vec<u8> {
    eth(0x0800, &ip4(50, &esp(0x1000, number, &[0x5a; 40])))
}

fn unknown() -> Vec<u8> {
    eth(0x88cc, &[0; 50])
}

/// Ten frames a second from `from_ns` on, numbered from `first` on, each with one of no protocol.
fn seconds(from_ns: u64, seconds: u64, first: u32) -> Vec<(u64, Vec<u8>)> {
    let at = |step: u64| from_ns + step * 100 * MILLISECOND;
    (0..seconds * 10)
        .flat_map(|step| [(at(step), followed(first + step as u32)), (at(step), unknown())])
        .collect()
}

/// dumpcap writes its Interface Statistics Block at the end by itself.
#[test]
fn frames_lost_by_the_capture_and_told_behind_the_last_frame_are_reported() {
    for workers in [1, 3] {
        let batches =
            [(vec![], 2), (seconds(START, 2, 1), 5), (vec![], 7), (seconds(START + 2 * SECOND, 1, 21), 7)];
        let batches: Vec<_> = batches.into_iter().chain([(vec![], 12)]).collect();
        let (course, summary) = analysed(batches, Options { workers, ..Options::default() });
        assert_eq!((summary.capture_drops, course.dropped), (12, 12), "{workers} workers");
        let index = START / SECOND;
        let drops: Vec<_> = course
            .intervals
            .iter()
            .filter(|(_, sums)| sums[2] > 0)
            .map(|(at, sums)| (*at, sums[2]))
            .collect();
        assert_eq!(drops, [(index + 1, 7), (index + 2, 5)], "{workers} workers");
    }
}

/// The clock of the machine is an hour fast and is put right; the course goes on at once.
#[test]
fn a_clock_that_is_set_back_does_not_stop_the_course() {
    for workers in [1, 2] {
        let mut frames = seconds(START + HOUR, 20, 1);
        frames.extend(seconds(START, 60, 201));
        let batches: Vec<_> = frames.chunks(400).map(|frames| (frames.to_vec(), 0)).collect();
        let (course, _) = analysed(batches, Options { workers, ..Options::default() });
        let (index, fast) = (START / SECOND, (START + HOUR) / SECOND);
        for at in (fast..fast + 20).chain(index + 1..index + 60) {
            let sums = course.intervals.get(&at);
            // What comes with the first frames of the right time may be counted with the last of the wrong one.
            let is_last = at == fast + 19 || at < index + 8;
            assert!(is_last || sums == Some(&[10, 10, 0]), "{workers} workers, {at}: {sums:?}");
        }
        let sums = course.intervals.values().fold([0, 0], |sum, more| [sum[0] + more[0], sum[1] + more[1]]);
        assert_eq!(sums, [800, 800], "{workers} workers: everything is somewhere");
    }
}

#[test]
fn one_record_of_the_far_future_takes_no_others_with_it() {
    for workers in [1, 2] {
        let mut frames = seconds(START, 60, 1);
        for (time_ns, _) in &mut frames[100..102] {
            *time_ns = 0xffff_ffff * SECOND;
        }
        let (course, _) = analysed([(frames, 0)], Options { workers, ..Options::default() });
        let far = course.intervals[&0xffff_ffff];
        assert!(far[0] <= 64 && far[1] <= 64, "{workers} workers: {far:?}");
        let index = START / SECOND;
        let whole = |at: &u64| course.intervals.get(at) == Some(&[10, 10, 0]);
        assert!((index + 13..index + 60).all(|at| whole(&at)), "{workers} workers: {:?}", course.intervals);
    }
}

/// Two taps whose clocks disagree by a minute, in one capture: not every frame ends an interval.
#[test]
fn two_clocks_that_take_turns_are_borne() {
    let (one, other) = (seconds(START, 60, 1), seconds(START + 60 * SECOND, 60, 601));
    let frames: Vec<_> = one.into_iter().zip(other).flat_map(|(one, other)| [one, other]).collect();
    let (course, _) = analysed([(frames, 0)], Options::default());
    assert!(course.order.len() < 400, "{} reports", course.order.len());
}
