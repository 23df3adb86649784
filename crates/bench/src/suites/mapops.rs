//! Suite `mapops`: what the kernel's maps cost, to a program and to user space, and what an entry weighs.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use sluice_dataplane::Sizes;
use zerocopy::IntoBytes;

use crate::generator::harness::Hook;
use crate::generator::layouts::{MapopsKey, MapopsPrefix, MapopsState};
use crate::generator::mapping::Mapping;
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::memory;
use crate::method::result::{
    Axis, Better, Chart, Figure, LineChart, Point, Role, Series, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::Sluice;

pub const SUITE: Suite = Suite {
    name: "mapops",
    help: "Insert, lookup and delete in the kernel's maps: from a program, by system call, in batches; bytes an entry",
    says: "What one operation costs at a given fill, with keys that are all distinct and come in no order that memory \
        has; the loop that makes the keys is measured in the same round and taken off. User space is timed by itself: \
        one system call an operation, or 512 operations a call. Bytes are what the kernel says the map holds.",
    silent: &[
        "One CPU works at a time: nothing here waits for a bucket's lock.",
        "A program that does other things between two operations finds less of the map in its caches.",
        "Every operation waits for the one before, as it must where a packet's fate depends on it; a program that works \
            on several packets at once could hide some of the time.",
    ],
    run,
};

#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);

static OBJECT: &Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/mapops.bpf.o")).len() }> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/mapops.bpf.o")));

/// Operations of one sample from a program, and by system calls.
const OPERATIONS: u32 = 50_000;
const CALLS: u32 = 10_240;
const BATCH: u32 = 512;
/// Primes, larger than any fill: the order in which keys are met, and the one in which they were put in. Were they the
/// same, elements would stand in memory in the order in which they are asked for.
const STRIDE: u32 = 2_654_435_761;
const FILL_STRIDE: u32 = 1_610_612_741;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Lookup,
    /// A lookup of a key that is not there.
    Miss,
    Insert,
    Delete,
}

/// Who operates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Program,
    Call,
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Contestant {
    map: &'static str,
    operation: Operation,
    by: By,
}

impl Contestant {
    fn name(&self, fill: u32) -> String {
        let by = match self.by {
            By::Program => "program",
            By::Call => "call",
            By::Batch => "batch",
        };
        format!("{} {:?} {fill} by {by}", self.map, self.operation).to_lowercase()
    }
}

/// The empty loop comes first, and the first lookup comes again at the end (A/A).
fn contestants() -> Vec<Contestant> {
    use Operation::{Delete, Insert, Lookup, Miss};
    let of = |map, by, operations: &[Operation]| -> Vec<Contestant> {
        operations.iter().map(|operation| Contestant { map, operation: *operation, by }).collect()
    };
    [
        of("none", By::Program, &[Lookup]),
        of("hash", By::Program, &[Lookup, Miss, Insert, Delete]),
        of("lru", By::Program, &[Lookup, Miss, Insert, Delete]),
        of("lpm", By::Program, &[Lookup, Miss, Insert, Delete]),
        of("array", By::Program, &[Lookup]),
        of("hash", By::Call, &[Lookup, Insert, Delete]),
        of("hash", By::Batch, &[Lookup, Insert, Delete]),
        of("hash", By::Program, &[Lookup]),
    ]
    .concat()
}

/// The maps at one fill.
struct Maps {
    object: Object,
    state: Mapping<MapopsState>,
    fill: u32,
    start: u32,
    stride: u32,
}

impl Maps {
    fn load(fill: u32) -> Result<Maps> {
        let mut open =
            ObjectBuilder::default().open_memory(&OBJECT.0).context("cannot open the maps' object")?;
        for mut map in open.maps_mut() {
            let room = fill + OPERATIONS;
            match map.name().to_str() {
                // An LRU evicts before it is full.
                Some("lru") => map.set_max_entries(2 * room)?,
                Some("hash" | "array" | "lpm") => map.set_max_entries(room)?,
                _ => {}
            }
        }
        let object = open.load().context("cannot load the maps' programs (root and Linux 6.8 are needed)")?;
        let section = object.maps().find(|map| map.name() == ".data.mapops");
        let state = Mapping::new(section.context("the object has no .data.mapops")?.as_fd(), 1)?;
        let mut maps = Maps { object, state, fill, start: 0, stride: FILL_STRIDE };
        for map in ["hash", "lru", "lpm"] {
            maps.program(map, "update", 0, fill, fill, true)?;
        }
        maps.stride = STRIDE;
        Ok(maps)
    }

    /// ns an operation on `count` of the keys `first..first + range`.
    fn program(
        &mut self,
        map: &str,
        verb: &str,
        first: u32,
        range: u32,
        count: u32,
        works: bool,
    ) -> Result<f64> {
        let (start, stride) = (self.start, self.stride);
        self.state.update(0, |state| {
            *state = MapopsState { first, range, stride, start, count, none: 0, ns: 0, done: 0, failed: 0 };
        });
        let name = format!("{map}_{verb}");
        let found = self.object.progs_mut().find(|program| program.name().to_str() == Some(&name));
        let program = found.with_context(|| format!("the object has no program {name}"))?;
        program
            .test_run(ProgramInput { data_in: Some(&[0; 64]), ..Default::default() })
            .context("prog-run failed")?;
        let state = self.state.read(0);
        let worked = if works { state.done } else { state.failed };
        ensure!(worked == u64::from(count), "{name}: {worked} of {count} operations did what they should");
        Ok(state.ns as f64 / f64::from(count))
    }

    fn sample(&mut self, contestant: Contestant) -> Result<f64> {
        match contestant.by {
            By::Program => self.sample_program(contestant),
            By::Call | By::Batch => self.sample_user(contestant),
        }
    }

    fn sample_program(&mut self, Contestant { map, operation, .. }: Contestant) -> Result<f64> {
        let fill = self.fill;
        // Other keys than the last time.
        self.start = self.start.wrapping_add(OPERATIONS) % fill.max(OPERATIONS);
        match operation {
            Operation::Lookup => self.program(map, "lookup", 0, fill, OPERATIONS, true),
            Operation::Miss => self.program(map, "lookup", fill, OPERATIONS, OPERATIONS, false),
            Operation::Insert => {
                let ns = self.program(map, "update", fill, OPERATIONS, OPERATIONS, true)?;
                self.program(map, "delete", fill, OPERATIONS, OPERATIONS, true)?;
                Ok(ns)
            }
            Operation::Delete => {
                self.program(map, "update", fill, OPERATIONS, OPERATIONS, true)?;
                self.program(map, "delete", fill, OPERATIONS, OPERATIONS, true)
            }
        }
    }

    fn sample_user(&self, Contestant { map, operation, by }: Contestant) -> Result<f64> {
        let found = self.object.maps().find(|candidate| candidate.name().to_str() == Some(map));
        let map = found.with_context(|| format!("the object has no map {map}"))?;
        let keys: Vec<[u8; 16]> = (0..CALLS).map(|n| wide_key(self.fill + n)).collect();
        let values = vec![0u8; 8 * keys.len()];
        let insert = |by| user_insert(&map, &keys, &values, by);
        let delete = |by| user_delete(&map, &keys, by);
        let seconds = match operation {
            Operation::Insert => {
                let seconds = timed(|| insert(by))?;
                delete(By::Batch)?;
                seconds
            }
            Operation::Delete => {
                insert(By::Batch)?;
                timed(|| delete(by))?
            }
            Operation::Lookup | Operation::Miss => {
                insert(By::Batch)?;
                let (seconds, seen) = user_lookup(&map, &keys, by)?;
                delete(By::Batch)?;
                return Ok(seconds * 1e9 / seen as f64);
            }
        };
        Ok(seconds * 1e9 / f64::from(CALLS))
    }
}

/// The key that the programs make of a number.
fn wide_key(number: u32) -> [u8; 16] {
    let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key.copy_from_slice(MapopsKey { mixed, number: number.into() }.as_bytes());
    key
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

fn user_insert(map: &impl MapCore, keys: &[[u8; 16]], values: &[u8], by: By) -> Result<()> {
    if by != By::Batch {
        return keys.iter().try_for_each(|key| Ok(map.update(key, &values[..8], MapFlags::NO_EXIST)?));
    }
    for (keys, values) in keys.chunks(BATCH as usize).zip(values.chunks(8 * BATCH as usize)) {
        map.update_batch(keys.as_flattened(), values, keys.len() as u32, MapFlags::ANY, MapFlags::ANY)?;
    }
    Ok(())
}

fn user_delete(map: &impl MapCore, keys: &[[u8; 16]], by: By) -> Result<()> {
    if by != By::Batch {
        return keys.iter().try_for_each(|key| Ok(map.delete(key)?));
    }
    for keys in keys.chunks(BATCH as usize) {
        map.delete_batch(keys.as_flattened(), keys.len() as u32, MapFlags::ANY, MapFlags::ANY)?;
    }
    Ok(())
}

/// Seconds and operations. A batch lookup walks the map from its beginning: it cannot be told keys.
fn user_lookup(map: &impl MapCore, keys: &[[u8; 16]], by: By) -> Result<(f64, usize)> {
    let began = Instant::now();
    let seen = match by {
        By::Batch => map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY)?.take(keys.len()).count(),
        _ => keys.iter().filter(|key| matches!(map.lookup(*key, MapFlags::ANY), Ok(Some(_)))).count(),
    };
    let seconds = began.elapsed().as_secs_f64();
    ensure!(seen > 0 && (by == By::Batch || seen == keys.len()), "{seen} of {} keys were found", keys.len());
    Ok((seconds, seen))
}

/// What an entry weighs, by map.
struct Weight {
    name: String,
    entries: u32,
    bytes: u64,
}

fn weights(maps: &Maps) -> Result<Vec<Weight>> {
    let weigh = |name: &'static str| -> Result<Weight> {
        let map = maps.object.maps().find(|map| map.name().to_str() == Some(name));
        let map = map.with_context(|| format!("the object has no map {name}"))?;
        // A trie grows with what it holds, the others are made whole.
        let entries = if name == "lpm" { maps.fill } else { map.max_entries() };
        Ok(Weight { name: format!("{name} map"), entries, bytes: sluice_libbpf::map::bytes(&map)? })
    };
    ["hash", "lru", "array", "lpm"].into_iter().map(weigh).collect()
}

fn session_weight(sessions: u32) -> Result<Weight> {
    let site = Site::create("maps")?;
    let sizes = Sizes { sessions4: sessions, sessions6: 1024, ..Sizes::default() };
    let start = || -> Result<u64> {
        let sluice = Sluice::start(&site, Hook::Xdp, sizes, false)?;
        Ok(memory::of_sessions4(sluice.pin())?.iter().map(|(_, bytes)| bytes).sum())
    };
    let bytes = site.gateway.enter(start)??;
    Ok(Weight { name: "sluice session".to_owned(), entries: sessions, bytes })
}

fn run(context: &Context) -> Result<SuiteResult> {
    let fills: &[u32] =
        context.pick(&[1000, 100_000, 1_000_000][..], &[100, 1000, 10_000, 100_000, 1_000_000][..]);
    let mut result = SuiteResult::new(SUITE.name);
    let mut heavy = vec![];
    let wanted = |fill: &u32| contestants().iter().any(|one| context.wants(&one.name(*fill)));
    let fills: Vec<u32> = fills.iter().copied().filter(wanted).collect();
    for (done, fill) in fills.iter().enumerate() {
        context.progress.at(done as f64 / fills.len() as f64, &format!("{fill} entries"));
        let samples = std::thread::scope(|scope| {
            // Pinning must not outlast the suite.
            let worker = scope.spawn(|| one_fill(*fill, context.rounds));
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let (samples, weights) = samples.with_context(|| format!("at {fill} entries"))?;
        result.figures.extend(figures(*fill, &samples));
        heavy = weights;
    }
    heavy.push(session_weight(1_000_000)?);
    result.figures.extend(heavy.iter().map(|weight| weight_figure(weight, context.rounds)));
    result.tables = vec![table(&fills, &result.figures), weight_table(&heavy)];
    result.charts.push(chart(&fills, &result.figures));
    let met = fills.iter().map(|fill| checks::distinct(keys_met(*fill), (*fill).min(OPERATIONS).into()));
    result.checks.extend(met);
    Ok(result)
}

fn one_fill(fill: u32, rounds: usize) -> Result<(Vec<Vec<f64>>, Vec<Weight>)> {
    pin(bench_cpu())?;
    // the last contestant is the first lookup in maps of its own (A/A)
    let (mut maps, mut again) = (Maps::load(fill)?, Maps::load(fill)?);
    let contestants = contestants();
    let last = contestants.len() - 1;
    let samples = interleave(contestants.len(), rounds, |contestant, _| {
        let maps = if contestant == last { &mut again } else { &mut maps };
        maps.sample(contestants[contestant])
    })?;
    let weights = weights(&maps)?;
    Ok((samples, weights))
}

fn figures(fill: u32, samples: &[Vec<f64>]) -> Vec<Figure> {
    let contestants = contestants();
    let last = contestants.len() - 1;
    let lookup = contestants.iter().position(|other| *other == contestants[last]).unwrap_or(last);
    let without_loop = |i: usize| -> Vec<f64> {
        let raw = samples[i].iter().zip(&samples[0]);
        raw.map(|(raw, empty)| if contestants[i].by == By::Program { raw - empty } else { *raw }).collect()
    };
    let figure = |i: usize| {
        let figure = Figure::new(contestants[i].name(fill), "ns/operation", Better::Lower, without_loop(i));
        if i == lookup {
            return figure.same(&without_loop(lookup), &without_loop(last)).headline();
        }
        if contestants[i].by == By::Program {
            figure
                .against("hash lookup", &without_loop(lookup))
                .same(&without_loop(lookup), &without_loop(last))
        } else {
            figure
        }
    };
    (1..last).map(figure).collect()
}

/// Different keys among those that one run of lookups asks for.
fn keys_met(fill: u32) -> u64 {
    let key = |n: u32| (u64::from(n) * u64::from(STRIDE) % u64::from(fill)) as u32;
    (0..OPERATIONS).map(key).collect::<HashSet<u32>>().len() as u64
}

/// A weight does not change from round to round.
fn weight_figure(weight: &Weight, rounds: usize) -> Figure {
    let each = weight.bytes as f64 / f64::from(weight.entries);
    Figure::new(format!("{} bytes", weight.name), "bytes/entry", Better::Lower, vec![each; rounds])
}

fn table(fills: &[u32], figures: &[Figure]) -> Table {
    let mut seen: Vec<Contestant> = contestants();
    seen.remove(0);
    seen.pop();
    let header = ["map", "operation", "by"].map(str::to_owned).into_iter();
    let value = |contestant: &Contestant, fill: u32| {
        let name = contestant.name(fill);
        figures
            .iter()
            .find(|figure| figure.name == name)
            .map_or(String::new(), |f| format!("{:.1}", f.estimate.value))
    };
    Table {
        title: "Nanoseconds an operation, by entries in the map".to_owned(),
        header: header.chain(fills.iter().map(|fill| fill.to_string())).collect(),
        rows: seen
            .iter()
            .map(|contestant| {
                let words = [
                    contestant.map.to_owned(),
                    format!("{:?}", contestant.operation),
                    format!("{:?}", contestant.by),
                ];
                let words = words.map(|word| word.to_lowercase());
                words.into_iter().chain(fills.iter().map(|fill| value(contestant, *fill))).collect()
            })
            .collect(),
        note: format!(
            "by call: one system call an operation; by batch: {BATCH} a call. A batch lookup walks the map."
        ),
    }
}

fn weight_table(weights: &[Weight]) -> Table {
    let row = |weight: &Weight| {
        vec![
            weight.name.clone(),
            weight.entries.to_string(),
            format!("{:.1}", weight.bytes as f64 / 1048576.0),
            format!("{:.1}", weight.bytes as f64 / f64::from(weight.entries)),
        ]
    };
    Table {
        title: "Memory".to_owned(),
        header: ["what", "entries", "MiB", "bytes/entry"].map(str::to_owned).to_vec(),
        rows: weights.iter().map(row).collect(),
        note: format!(
            "Keys of {} bytes (lpm: {}), values of 8. A session is two keys with all that is known of both directions.",
            size_of::<MapopsKey>(),
            size_of::<MapopsPrefix>()
        ),
    }
}

fn chart(fills: &[u32], figures: &[Figure]) -> Chart {
    let series = |(map, role): (&'static str, Role)| {
        let lookup = Contestant { map, operation: Operation::Lookup, by: By::Program };
        let point = |fill: &u32| {
            let figure = figures.iter().find(|figure| figure.name == lookup.name(*fill))?;
            Some(Point::of(f64::from(*fill), &figure.estimate))
        };
        Series { name: format!("{map} lookup"), role, points: fills.iter().filter_map(point).collect() }
    };
    Chart::Line(LineChart {
        title: "Lookup from a program".to_owned(),
        x: Axis::log("entries in the map"),
        y: Axis::log("ns/operation"),
        series: [("hash", Role::Subject), ("lru", Role::Peer), ("lpm", Role::Peer), ("array", Role::Peer)]
            .map(series)
            .into(),
        note: "Distinct keys in random order: what grows is the time memory takes.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_every_contestant_apart_but_the_repeated_one() {
        let mut names: Vec<String> = contestants().iter().map(|contestant| contestant.name(7)).collect();
        let count = names.len();
        assert!(names.contains(&"hash insert 7 by batch".to_owned()), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count - 1);
    }

    #[test]
    fn the_stride_meets_every_key_of_any_fill() {
        for fill in [100u64, 1000, 10_000, 50_000, 100_000, 1_000_000] {
            for stride in [STRIDE, FILL_STRIDE] {
                let keys: std::collections::HashSet<u64> =
                    (0..fill).map(|i| i * u64::from(stride) % fill).collect();
                assert_eq!(keys.len() as u64, fill);
            }
        }
    }
}
