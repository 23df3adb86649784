//! Drives frames through parsers and channels, and results to their sink.

mod link;
mod parallel;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::anomaly::Kind;
use crate::capture::{CaptureError, Source};
use crate::channel::alarms::{Alarms, Occurrence};
use crate::channel::{Directions, LONG_PAUSE_NS, Sums, keep_worst};
use crate::frame::Batch;
use crate::summary::{Sink, Summary, Update};

use link::Link;
pub use worker::Observe;
use worker::{Parser, Shard};

/// How to analyse.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that parse and keep channels; results do not depend on their number.
    pub workers: usize,
    /// Length of an interval of capture time.
    pub interval_ns: u64,
    /// Channels kept at the same time; beyond that the longest silent ones are evicted and counted.
    pub max_channels: usize,
    /// User data in clear text is an anomaly on this link.
    pub expect_protected: bool,
    /// Frames of all capture interfaces form one sequence (aggregated links); otherwise each interface is a tap of
    /// its own.
    pub merge_interfaces: bool,
    /// Longer frames are an anomaly.
    pub mtu: Option<u32>,
    /// A busy sender that is silent for so long between two keys is an anomaly.
    pub rekey_pause_ns: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            interval_ns: 1_000_000_000,
            max_channels: 1 << 20,
            expect_protected: false,
            merge_interfaces: false,
            mtu: None,
            rekey_pause_ns: LONG_PAUSE_NS,
        }
    }
}

/// What other threads see of a run, and how they end it.
#[derive(Debug, Default)]
pub struct Control {
    /// Frames read so far.
    pub frames: AtomicU64,
    /// Bytes of the source read so far, packed as it is.
    pub bytes_read: AtomicU64,
    /// 0 where it is not known.
    pub bytes_total: AtomicU64,
    /// Set to end the run early; what was read is still analysed and reported.
    pub stop: AtomicBool,
}

/// Analyses a source to its end.
pub fn analyze(
    source: &mut dyn Source,
    options: &Options,
    sink: &mut dyn Sink,
    control: &Control,
) -> anyhow::Result<Summary> {
    analyze_with(worker::Protocols, source, options, sink, control)
}

/// Analyses a source whose frames `observe` reads.
pub fn analyze_with<O: Observe + Send>(
    observe: O,
    source: &mut dyn Source,
    options: &Options,
    sink: &mut dyn Sink,
    control: &Control,
) -> anyhow::Result<Summary> {
    let start = Instant::now();
    let outlet = Outlet::new(sink);
    let mut feed = Feed::new(source, control);
    let mut done = match options.workers {
        0 | 1 => vec![single(&mut feed, observe, options, &outlet)],
        _ => parallel::run(&mut feed, observe, options, &outlet),
    };
    if let Some(error) = feed.fatal.take() {
        return Err(error.into());
    }
    let mut summary = conclude(&mut done, &outlet, feed.drops);
    summary.source = feed.source.name().to_owned();
    summary.partial = feed.partial.take();
    summary.workers = options.workers.max(1) as u32;
    summary.elapsed_s = start.elapsed().as_secs_f64();
    outlet.finish(&summary)?;
    Ok(summary)
}

/// What a worker leaves behind.
struct Done {
    link: Link,
    alarms: Alarms,
    shard: Shard,
}

/// Where updates go: the sink, until it fails.
struct Outlet<'a> {
    sink: Mutex<(&'a mut dyn Sink, Option<anyhow::Error>)>,
    failed: AtomicBool,
    /// Anomalies of the link as a whole, which all workers add to.
    link: Mutex<Alarms>,
}

impl<'a> Outlet<'a> {
    fn new(sink: &'a mut dyn Sink) -> Self {
        Outlet { sink: Mutex::new((sink, None)), failed: AtomicBool::new(false), link: Mutex::default() }
    }

    fn emit(&self, update: Update) {
        let mut guard = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let (sink, error) = &mut *guard;
        if error.is_none()
            && let Err(failure) = sink.update(update)
        {
            *error = Some(failure);
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes so many anomalies of the link, if there are some; they are reported with the next [`Self::emit_link`].
    fn note_link(&self, kind: Kind, count: u64, time_ns: u64, frame: u64) {
        if count == 0 {
            return;
        }
        let occurrence = Occurrence { time_ns, sequence: 0, frame, count, value: count };
        self.link.lock().unwrap_or_else(PoisonError::into_inner).note(kind, None, occurrence);
    }

    /// Adds a worker's link anomalies to those of all and reports what changed.
    fn emit_link(&self, mut update: Update, alarms: &mut Alarms) {
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.absorb(alarms);
        update.anomalies = link.drain();
        if !update.anomalies.is_empty() || update.interval.unknown + update.interval.capture_drops > 0 {
            self.emit(update);
        }
    }

    fn finish(self, summary: &Summary) -> anyhow::Result<()> {
        let (sink, error) = self.sink.into_inner().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => Err(error).context("results could not be stored; the analysis stopped there"),
            None => sink.finish(summary),
        }
    }
}

/// The source with everything that is known about its end.
struct Feed<'a> {
    source: &'a mut dyn Source,
    control: &'a Control,
    /// Time of the last frame before the next batch.
    previous_ns: u64,
    /// When that came.
    heard: Instant,
    drops: u64,
    /// Those that came with a batch.
    reported_drops: u64,
    ended: bool,
    partial: Option<String>,
    /// An error without any frame before it.
    fatal: Option<CaptureError>,
}

/// What came with a batch.
struct Fed {
    previous_ns: u64,
    new_drops: u64,
    /// Where nothing came: what the time is on a live tap.
    silent_ns: Option<u64>,
}

impl Fed {
    /// The capture's clock behind the batch.
    fn clock_ns(&self, batch: &Batch) -> u64 {
        let last = batch.records().last().map(|last| last.time_ns);
        last.or(self.silent_ns).unwrap_or(self.previous_ns)
    }
}

/// Frames of a live tap may come so long after their time.
const ON_THE_WAY: Duration = Duration::from_secs(1);

impl<'a> Feed<'a> {
    fn new(source: &'a mut dyn Source, control: &'a Control) -> Self {
        Feed {
            source,
            control,
            previous_ns: 0,
            heard: Instant::now(),
            drops: 0,
            reported_drops: 0,
            ended: false,
            partial: None,
            fatal: None,
        }
    }

    /// Fills the batch, which may stay empty; `None` when there is nothing any more.
    fn next(&mut self, batch: &mut Batch, outlet: &Outlet<'_>) -> Option<Fed> {
        if self.control.stop.load(Ordering::Relaxed) && !self.ended {
            self.ended = true;
            // What has no end is whole wherever it is stopped.
            let has_end = !self.source.is_live() && self.source.progress().1.is_some();
            self.partial = has_end.then(|| "stopped on request".to_owned());
        }
        if self.ended || outlet.failed.load(Ordering::Relaxed) {
            return None;
        }
        match self.source.next_batch(batch) {
            Ok(more) => self.ended = !more,
            Err(error) => {
                self.ended = true;
                match error.is_partial() {
                    true => self.partial = Some(error.to_string()),
                    false => self.fatal = Some(error),
                }
            }
        }
        self.control.frames.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let (read, total) = self.source.progress();
        self.control.bytes_read.store(read, Ordering::Relaxed);
        self.control.bytes_total.store(total.unwrap_or(0), Ordering::Relaxed);
        self.drops = self.source.drops();
        let mut fed = Fed { previous_ns: self.previous_ns, new_drops: 0, silent_ns: self.silent_ns() };
        if let Some(last) = batch.records().last() {
            self.previous_ns = last.time_ns;
            self.heard = Instant::now();
        }
        // Before the first frame they have no time.
        if self.previous_ns > 0 {
            fed.new_drops = self.drops.saturating_sub(self.reported_drops);
            self.reported_drops = self.drops;
        }
        Some(fed)
    }

    /// The time on a live tap after the last frame that was heard, by the clock that its frames have.
    fn silent_ns(&self) -> Option<u64> {
        let silence = self.heard.elapsed().checked_sub(ON_THE_WAY)?;
        (self.source.is_live() && self.previous_ns > 0)
            .then(|| self.previous_ns.saturating_add(silence.as_nanos() as u64))
    }
}

/// One thread does everything.
fn single<O: Observe>(feed: &mut Feed<'_>, observe: O, options: &Options, outlet: &Outlet<'_>) -> Done {
    let (mut parser, mut shard) = (Parser::new(observe), Shard::new(options, 0));
    let (mut batch, mut slots) = (Batch::default(), Vec::with_capacity(worker::GROUP));
    let mut emit = |update| outlet.emit(update);
    while let Some(fed) = feed.next(&mut batch, outlet) {
        worker::analyse_batch(
            &batch,
            fed.previous_ns,
            &mut parser,
            &mut shard,
            options,
            &mut slots,
            &mut emit,
        );
        if batch.is_empty()
            && let Some(time_ns) = fed.silent_ns
        {
            shard.tick(time_ns, &mut emit);
        }
        after_batch(&batch, &fed, &mut parser, &mut shard, options, outlet);
    }
    Done { link: parser.link, alarms: parser.alarms, shard }
}

/// Reports what a batch did to the link as a whole.
fn after_batch<O>(
    batch: &Batch,
    fed: &Fed,
    parser: &mut Parser<O>,
    shard: &mut Shard,
    options: &Options,
    outlet: &Outlet<'_>,
) {
    let first_ns = batch.records().first().map(|record| record.time_ns);
    parser.link.first_ns = parser.link.first_ns.into_iter().chain(first_ns).min();
    // What the capture lost may be told behind the last frame.
    let time_ns = fed.clock_ns(batch);
    let frame = (batch.first_number() + batch.len() as u64).saturating_sub(1);
    outlet.note_link(Kind::CaptureDrops, fed.new_drops, time_ns, frame);
    outlet.note_link(Kind::Evicted, shard.new_evictions(), time_ns, frame);
    let length = options.interval_ns.max(1);
    if fed.new_drops > 0 {
        let mut update = link_update(time_ns / length, length);
        update.interval.capture_drops = fed.new_drops;
        outlet.emit_link(update, &mut parser.alarms);
    }
    let left = parser.link.move_clock(time_ns, length);
    for update in parser.link.close_intervals(false, length) {
        outlet.emit_link(update, &mut parser.alarms);
    }
    if let Some(index) = left {
        outlet.emit_link(link_update(index, length), &mut parser.alarms);
    }
}

fn link_update(index: u64, length_ns: u64) -> Update {
    Update { interval: link::interval(index, length_ns), ..Update::default() }
}

/// Ends all channels, reports their final state and adds everything up.
fn conclude(done: &mut [Done], outlet: &Outlet<'_>, capture_drops: u64) -> Summary {
    let now_ns = done.iter().map(|worker| worker.shard.now_ns.max(worker.link.last_ns)).max().unwrap_or(0);
    let mut directions = Directions::default();
    for worker in done.iter_mut() {
        let interval = worker.shard.interval();
        worker.shard.channels.finish(now_ns, interval, &mut |update| outlet.emit(update));
        directions.add(worker.shard.channels.directions());
    }
    let (mut sums, mut link) = (Sums::default(), Link::default());
    for worker in done.iter_mut() {
        let interval = worker.shard.interval();
        let part = worker.shard.channels.conclude(&directions, interval, &mut |update| outlet.emit(update));
        add_sums(&mut sums, part);
        for update in worker.link.close_intervals(true, interval.length_ns) {
            outlet.emit_link(update, &mut worker.alarms);
        }
        outlet.note_link(Kind::Evicted, worker.shard.new_evictions(), now_ns, worker.link.frames);
        outlet.emit_link(Update { interval, ..Update::default() }, &mut worker.alarms);
        link.add(std::mem::take(&mut worker.link));
    }
    let link_alarms = outlet.link.lock().unwrap_or_else(PoisonError::into_inner);
    for (kind, count) in link_alarms.totals().filter(|(_, count)| *count > 0) {
        sums.anomalies.push((kind, count));
    }
    summarize(sums, &link, capture_drops)
}

fn add_sums(sums: &mut Sums, part: Sums) {
    sums.channels += part.channels;
    sums.evicted += part.evicted;
    sums.gaps += part.gaps;
    sums.unlisted += part.unlisted;
    sums.rekeys += part.rekeys;
    sums.reorder.add(&part.reorder);
    for more in part.protocols {
        match sums.protocols.iter_mut().find(|sum| sum.protocol == more.protocol) {
            Some(sum) => {
                sum.channels += more.channels;
                sum.counts.add(&more.counts);
            }
            None => sums.protocols.push(more),
        }
    }
    for (kind, count) in part.anomalies {
        match sums.anomalies.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, sum)) => *sum += count,
            None => sums.anomalies.push((kind, count)),
        }
    }
    for state in &part.worst {
        keep_worst(&mut sums.worst, state);
    }
}

fn summarize(mut sums: Sums, link: &Link, capture_drops: u64) -> Summary {
    sums.protocols.sort_by_key(|sum| sum.protocol);
    sums.anomalies.sort_unstable();
    let mut counts = crate::summary::Counts::default();
    sums.protocols.iter().for_each(|protocol| counts.add(&protocol.counts));
    let mut warnings = link.warnings(capture_drops);
    if sums.unlisted > 0 {
        let text = "occurrences of anomalies were too many at once to name their channels: they are counted by kind only";
        warnings.push(format!("{} {text}", sums.unlisted));
    }
    Summary {
        first_ns: link.first_ns.unwrap_or(0),
        last_ns: link.last_ns,
        frames: link.frames,
        bytes: link.bytes,
        cut_frames: link.cut_frames,
        time_steps_back: link.steps_back,
        capture_drops,
        counts,
        protocols: sums.protocols,
        unknown: link.unknown_counts(),
        channels: sums.channels,
        evicted: sums.evicted,
        reorder: sums.reorder,
        gaps: sums.gaps,
        rekeys: sums.rekeys,
        anomalies: sums.anomalies,
        warnings,
        worst: sums.worst.iter().map(|state| state.summary()).collect(),
        ..Summary::default()
    }
}
