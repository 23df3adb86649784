//! Suite `prog`: nanoseconds a packet of Sluice's whole path, beside the floor, in the same rounds.

use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::bed::{Bed, CAPACITY};
use crate::gateway::{Site, Tally};
use crate::harness::{Hook, Sample, Target};
use crate::packets::{Direction, Family, Protocol};
use crate::rounds::{bench_cpu, interleave, pin};
use crate::stats::{Estimate, estimate, paired_ratio, restlessness};

/// Which rows, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    pub hooks: Vec<Hook>,
    pub families: Vec<Family>,
    pub protocols: Vec<Protocol>,
    pub sessions: Vec<usize>,
    pub kinds: Vec<Kind>,
    pub rounds: usize,
    pub repeat: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Packets of sessions that exist
    Established,
    /// First packets, each of a session of its own
    New,
}

/// One row: what it measured and what was checked.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// `xdp v4 udp established 10000`
    pub name: String,
    pub hook: Hook,
    pub family: Family,
    pub protocol: Protocol,
    pub kind: Kind,
    pub sessions: usize,
    pub floor: &'static str,
    pub distinct_packets: u32,
    pub repeat: u32,
    /// ns a packet, the wrapper included.
    pub wrapper_ns: Estimate,
    pub floor_raw_ns: Estimate,
    pub target_raw_ns: Estimate,
    /// ns a packet, the round's wrapper taken off.
    pub floor_ns: Estimate,
    pub target_ns: Estimate,
    pub ratio: Estimate,
    pub ratio_raw: Estimate,
    /// The floor against itself: how far equal contestants differ here.
    pub same_ratio: Estimate,
    /// The rounds were too restless to be quoted alone.
    pub unsteady: bool,
    pub samples: Samples,
}

/// Every round's figure, for whoever wants to compute anew.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    pub wrapper: Vec<f64>,
    pub floor: Vec<f64>,
    pub floor_again: Vec<f64>,
    pub target: Vec<f64>,
}

const WRAPPER: usize = 0;
const FLOOR: usize = 1;
const TARGET: usize = 2;
const FLOOR_AGAIN: usize = 3;
const CONTESTANTS: usize = 4;

/// A row is called unsteady when the middle half of its rounds spreads more than this around the median.
const STEADY: f64 = 0.08;

/// Runs the rows, reporting each as soon as it is there.
pub fn run(options: &Options, mut report: impl FnMut(&Row) + Send) -> Result<Vec<Row>> {
    let mut rows = vec![];
    let most = options.sessions.iter().copied().max().unwrap_or(0);
    let capacity = CAPACITY.max((most + fresh_sessions(options.repeat)) as u32);
    for family in &options.families {
        for protocol in &options.protocols {
            let site = Site::create("prog")?;
            let done = site.gateway.enter(|| -> Result<Vec<Row>> {
                pin(bench_cpu())?;
                let mut bed = Bed::new(&site, &options.hooks, *family, *protocol, capacity)?;
                bed_rows(&mut bed, options, &mut report)
            })?;
            rows.extend(done.with_context(|| format!("rows of {family:?} {protocol:?}"))?);
        }
    }
    Ok(rows)
}

fn bed_rows(bed: &mut Bed, options: &Options, report: &mut impl FnMut(&Row)) -> Result<Vec<Row>> {
    let mut rows = vec![];
    let mut sessions = options.sessions.clone();
    sessions.sort_unstable();
    for fill in sessions {
        bed.fill(fill).with_context(|| format!("cannot establish {fill} sessions"))?;
        for hook in bed.hooks() {
            for kind in &options.kinds {
                let row = match kind {
                    Kind::Established => established(bed, hook, options)?,
                    Kind::New => new_sessions(bed, hook, options)?,
                };
                report(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

fn established(bed: &mut Bed, hook: Hook, options: &Options) -> Result<Row> {
    let (protocol, fill) = (bed.protocol, bed.filled);
    bed.harness(hook).set_established(protocol, fill)?;
    let floor = bed.harness(hook).floor("lookup");
    // A whole lap untimed: nothing is met for the first time in round one.
    let lap = bed.harness(hook).distinct_packets().max(options.repeat.min(100_000));
    for contestant in [FLOOR, TARGET] {
        run_one(bed, hook, contestant, &floor, lap)?;
    }
    let samples = interleave(CONTESTANTS, options.rounds, |contestant, _| {
        run_one(bed, hook, contestant, &floor, options.repeat)
    })?;
    Ok(make_row(bed, hook, Kind::Established, options.repeat, samples))
}

/// Runs a contestant of an established row and proves what its packets did.
fn run_one(bed: &mut Bed, hook: Hook, contestant: usize, floor: &str, repeat: u32) -> Result<f64> {
    let ingress = bed.ingress;
    if contestant == TARGET {
        return run_target(bed, hook, repeat, |tally| tally.all_replayed(u64::from(repeat)));
    }
    let harness = bed.harness(hook);
    harness.set_target(Target::Own(if contestant == WRAPPER { "empty" } else { floor }))?;
    let sample = harness.run(repeat, ingress)?;
    if contestant != WRAPPER {
        all_hit(&sample, repeat)?;
    }
    Ok(sample.ns)
}

fn all_hit(sample: &Sample, repeat: u32) -> Result<()> {
    ensure!(
        sample.hits == u64::from(repeat) && sample.misses == 0,
        "hit rate of the floor is {} of {repeat}, not 1.000",
        sample.hits
    );
    Ok(())
}

/// Runs Sluice's root on the ring's packets and checks its counters.
fn run_target(bed: &mut Bed, hook: Hook, repeat: u32, check: impl Fn(Tally) -> Result<()>) -> Result<f64> {
    let ingress = bed.ingress;
    let root = bed.root(hook).try_clone()?;
    bed.harness(hook).set_target(Target::Foreign(root.as_fd()))?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let sample = bed.harness(hook).run(repeat, ingress)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    check(tally).with_context(|| bed.reasons().unwrap_or_default())?;
    ensure!(
        sample.returned == hook.redirected(),
        "the last packet returned {}, not {} (redirected)",
        sample.returned,
        hook.redirected()
    );
    Ok(sample.ns)
}

/// First packets a round: enough to time, few enough to leave the fill as it is.
fn fresh_sessions(repeat: u32) -> usize {
    (repeat as usize / 10).clamp(1000, 40_000)
}

/// `[first packet through the slow line]` against `[two HASH inserts at the same fill]`; undone after every round.
fn new_sessions(bed: &mut Bed, hook: Hook, options: &Options) -> Result<Row> {
    let (protocol, fill) = (bed.protocol, bed.filled);
    let count = fresh_sessions(options.repeat);
    let flags = crate::packets::TCP_SYN;
    let samples = interleave(CONTESTANTS, options.rounds, |contestant, _| {
        bed.harness(hook).set_packets(protocol, flags, fill, count, Direction::Initiator)?;
        run_new(bed, hook, contestant, fill, count)
    })?;
    Ok(make_row(bed, hook, Kind::New, count as u32, samples))
}

fn run_new(bed: &mut Bed, hook: Hook, contestant: usize, first: usize, count: usize) -> Result<f64> {
    let (ingress, packets) = (bed.ingress, count as u32);
    if contestant == TARGET {
        let made = Tally {
            received: count as u64,
            redirected: count as u64,
            slow: count as u64,
            sessions: count as u64,
            ..Tally::default()
        };
        let ns = run_target(bed, hook, packets, |tally| {
            ensure!(tally == made, "{count} first packets gave {tally:?}");
            Ok(())
        })?;
        bed.close(first, count)?;
        return Ok(ns);
    }
    let harness = bed.harness(hook);
    if contestant == WRAPPER {
        harness.set_target(Target::Own("empty"))?;
        return Ok(harness.run(packets, ingress)?.ns);
    }
    let (insert, delete) = (harness.floor("insert"), harness.floor("delete"));
    harness.set_target(Target::Own(&insert))?;
    let sample = harness.run(packets, ingress)?;
    all_hit(&sample, packets)?;
    harness.set_target(Target::Own(&delete))?;
    let undone = harness.run(packets, ingress)?;
    all_hit(&undone, packets)?;
    Ok(sample.ns)
}

fn make_row(bed: &mut Bed, hook: Hook, kind: Kind, repeat: u32, samples: Vec<Vec<f64>>) -> Row {
    let off = |contestant: usize| -> Vec<f64> {
        samples[contestant].iter().zip(&samples[WRAPPER]).map(|(raw, wrapper)| raw - wrapper).collect()
    };
    let (floor, target) = (off(FLOOR), off(TARGET));
    let (family, protocol, sessions) = (bed.family, bed.protocol, bed.filled);
    Row {
        name: row_name(hook, family, protocol, kind, sessions),
        hook,
        family,
        protocol,
        kind,
        sessions,
        floor: match kind {
            Kind::Established => "parse + one HASH lookup + drop",
            Kind::New => "parse + two HASH inserts + drop",
        },
        distinct_packets: bed.harness(hook).distinct_packets(),
        repeat,
        wrapper_ns: estimate(&samples[WRAPPER]),
        floor_raw_ns: estimate(&samples[FLOOR]),
        target_raw_ns: estimate(&samples[TARGET]),
        floor_ns: estimate(&floor),
        target_ns: estimate(&target),
        ratio: paired_ratio(&target, &floor),
        ratio_raw: paired_ratio(&samples[TARGET], &samples[FLOOR]),
        same_ratio: paired_ratio(&samples[FLOOR_AGAIN], &samples[FLOOR]),
        unsteady: restlessness(&floor).max(restlessness(&target)) > STEADY,
        samples: Samples {
            wrapper: samples[WRAPPER].clone(),
            floor: samples[FLOOR].clone(),
            floor_again: samples[FLOOR_AGAIN].clone(),
            target: samples[TARGET].clone(),
        },
    }
}

pub fn row_name(hook: Hook, family: Family, protocol: Protocol, kind: Kind, sessions: usize) -> String {
    format!("{hook:?} {family:?} {protocol:?} {kind:?} {sessions}").to_lowercase()
}
