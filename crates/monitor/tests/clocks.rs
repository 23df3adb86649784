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
