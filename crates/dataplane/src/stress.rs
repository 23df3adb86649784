//! The flow table under random operations of two CPUs and a reader of its memory; then every slot, record, stash entry
//! and free number is audited. And the same operations through the kernel's hash must give the same results.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sluice_abi::{
    FLOW_LANES, FLOW_LIVE, FlowBucket, FlowExtension, FlowKey4, FlowLine4, MARK_EXTENDED, ProgramConfig,
    Unanswered, Watermarks, bucket_pair4,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mmap::{Array, array};
use crate::prog_run::{self, XdpRun};
use crate::{Sizes, objects};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stress.bpf.o"));
const SEED: u64 = 0x5eed_0123_4567_89ab;

/// `struct stress` of bpf/stress/stress.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
struct Stress {
    random: u64,
    ops: u32,
    keys: u32,
    stable: u32,
    zero: u32,
    found: u64,
    missed: u64,
    stable_lost: u64,
    torn: u64,
    inserted: u64,
    twins: u64,
    refused: u64,
    busy: u64,
    ended: u64,
    not_ended: u64,
}

/// What a trial is made of.
#[derive(Clone, Copy)]
struct Trial {
    sessions: u32,
    buckets: u32,
    stash: u32,
    keys: u32,
    stable: u32,
    kernel_index: bool,
    /// With the barriers of machines that need them.
    weak_order: bool,
}

struct Bench {
    object: Object,
    trial: Trial,
    stresses: Array<Stress>,
    presence: Array<u64>,
    lines: Array<FlowLine4>,
    buckets: Array<FlowBucket>,
}

fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).unwrap();
}

impl Bench {
    fn new(trial: Trial) -> Bench {
        let mut builder = ObjectBuilder::default();
        builder.name("stress").unwrap();
        let mut object = builder.open_memory(OBJECT).unwrap();
        let config = ProgramConfig {
            sessions4: trial.sessions,
            bucket_mask4: trial.buckets - 1,
            flags: objects::MACHINE_FLAGS
                | if trial.kernel_index { sluice_abi::CONFIG_KERNEL_INDEX } else { 0 }
                | if trial.weak_order { sluice_abi::CONFIG_WEAK_ORDER } else { 0 },
            hz: crate::control::hz(),
            seed: SEED,
            ..Default::default()
        };
        for mut map in object.maps_mut() {
            let entries = match map.name().to_str().unwrap() {
                "buckets4" => trial.buckets,
                "stash4" if trial.kernel_index => 2 * trial.sessions,
                "stash4" => trial.stash,
                "lines4" => 2 * (trial.sessions + 1),
                "shared4" | "flow_extensions" => trial.sessions + 1,
                "free4" => trial.sessions,
                "presence" => trial.keys,
                objects::CONFIG_SECTION => {
                    // `config` is the first of its section
                    map.initial_value_mut().unwrap()[..size_of::<ProgramConfig>()]
                        .copy_from_slice(config.as_bytes());
                    continue;
                }
                _ => continue,
            };
            map.set_max_entries(entries).unwrap();
        }
        let object = object.load().unwrap();
        let map = |name: &str| objects::map(&object, name).unwrap();
        Bench {
            stresses: array(&map("stresses")).unwrap(),
            presence: array(&map("presence")).unwrap(),
            lines: array(&map("lines4")).unwrap(),
            buckets: array(&map("buckets4")).unwrap(),
            trial,
            object,
        }
    }

    fn map(&self, name: &str) -> MapHandle {
        objects::map(&self.object, name).unwrap()
    }

    fn order(&self, cpu: u32, ops: u32) {
        let random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(u64::from(cpu) + 1);
        let (keys, stable) = (self.trial.keys, self.trial.stable);
        self.stresses.write(cpu, Stress { random, ops, keys, stable, ..Default::default() });
    }

    /// On the CPU of the calling thread, again and again until the time is over.
    fn run(&self, program: &str, until: Option<Instant>) {
        let program = objects::program(&self.object, program).unwrap();
        loop {
            let outcome = prog_run::xdp(program.as_fd(), &XdpRun::new(&[0; 64], 0)).unwrap();
            assert_eq!(outcome.retval, 2, "the program gave up");
            if until.is_none_or(|end| Instant::now() >= end) {
                return;
            }
        }
    }

    /// Reads records through memory as `show sessions` does; a read that is whole must say the same number everywhere.
    fn read_until(&self, stop: &AtomicBool) -> u64 {
        let mut whole = 0;
        while !stop.load(Ordering::Relaxed) {
            for number in 1..=self.trial.sessions {
                let read = || [self.lines.read(2 * number), self.lines.read(2 * number + 1)];
                let (before, lines, after) = (read(), read(), read());
                let steady = (0..2).all(|side| {
                    let (one, two) = (&before[side].state, &after[side].state);
                    one.tag == two.tag && one.flags & two.flags & FLOW_LIVE != 0
                });
                if steady && before[0].state.tag == before[1].state.tag {
                    let owner = u64::from(lines[0].key.be_saddr);
                    let owners = [lines[0].state.bytes, lines[1].state.bytes];
                    assert_eq!(owners, [owner; 2], "a torn read of session {number}");
                    whole += 1;
                }
            }
        }
        whole
    }

    /// Where every line number stands.
    fn references(&self) -> BTreeMap<u32, FlowKey4> {
        let mut found = BTreeMap::new();
        let mut elsewhere: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let buckets_of = |key: &FlowKey4| bucket_pair4(SEED, key, self.trial.buckets - 1);
        let mut refer = |line: u32| {
            let record = self.lines.read(line);
            assert!(record.state.flags & FLOW_LIVE != 0, "line {line} is indexed and not live");
            assert!(found.insert(line, record.key).is_none(), "line {line} is indexed twice");
            record.key
        };
        for number in 0..self.trial.buckets {
            let bucket = self.buckets.read(number);
            assert_eq!(bucket.lock, 0, "bucket {number} is locked");
            for (line, lane) in bucket.lines.into_iter().zip(FLOW_LANES) {
                assert_eq!(line == 0, bucket.tags[lane] == 0, "bucket {number}: half a slot");
                if line == 0 {
                    continue;
                }
                let pair = buckets_of(&refer(line));
                assert_eq!(pair.tag, bucket.tags[lane]);
                assert!([pair.first, pair.second].contains(&number), "line {line} is in a strange bucket");
                if pair.first != number {
                    elsewhere.entry(pair.first).or_default().0 += 1;
                }
            }
        }
        let stash = self.map("stash4");
        for key in stash.keys() {
            let value = stash.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            let key = FlowKey4::read_from_bytes(&key).unwrap();
            assert_eq!(refer(u32::read_from_bytes(&value).unwrap()), key, "the stash leads elsewhere");
            if !self.trial.kernel_index {
                elsewhere.entry(buckets_of(&key).first).or_default().1 += 1;
            }
        }
        for number in 0..self.trial.buckets {
            let (second, stashed) = elsewhere.remove(&number).unwrap_or_default();
            assert_eq!(self.buckets.read(number).overflow, second | stashed << 16, "overflow of {number}");
        }
        found
    }

    /// Everything at rest.
    fn audit(&self) -> BTreeSet<u32> {
        let references = self.references();
        let mut live = BTreeSet::new();
        let mut owners = BTreeSet::new();
        for number in 1..=self.trial.sessions {
            let indexed = [2 * number, 2 * number + 1].map(|line| references.contains_key(&line));
            let alive = [2 * number, 2 * number + 1].map(|l| self.lines.read(l).state.flags & FLOW_LIVE != 0);
            assert_eq!(indexed, alive, "session {number}");
            assert_eq!(indexed[0], indexed[1], "session {number} is half there");
            if indexed[0] {
                live.insert(number);
                let owner = references[&(2 * number)].be_saddr;
                assert!(owners.insert(owner), "two sessions have the same key");
                assert_eq!(references[&(2 * number + 1)].be_daddr, owner);
                assert_eq!(self.lines.read(2 * number).state.bytes, u64::from(owner));
            }
        }
        self.audit_extensions(&live);
        for number in 0..self.trial.keys {
            assert_eq!(self.presence.read(number), u64::from(owners.contains(&number)), "key {number}");
        }
        self.audit_free(&live);
        let waiting = self.map("unanswered_sessions").lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap();
        let waiting = Unanswered::read_from_bytes(&waiting.unwrap()).unwrap();
        assert_eq!(waiting.count4 as usize, live.len(), "each of them is unanswered");
        owners
    }

    /// Who needs an extension has it, and nobody else's.
    fn audit_extensions(&self, live: &BTreeSet<u32>) {
        let extensions = array::<FlowExtension>(&self.map("flow_extensions")).unwrap();
        for number in live {
            let (line, extension) = (self.lines.read(2 * number), extensions.read(*number));
            let owner = line.key.be_saddr;
            let marked = u32::from(line.state.marks) & MARK_EXTENDED != 0;
            let own = (extension.tag, extension.grant) == (line.state.tag, owner);
            assert_eq!((marked, own), (owner % 2 == 1, owner % 2 == 1), "session {number}: {extension:?}");
        }
    }

    /// A number is live, free, kept by a CPU, or was never used.
    fn audit_free(&self, live: &BTreeSet<u32>) {
        let mut all = live.clone();
        let free = self.map("free4");
        while let Some(number) = free.lookup_and_delete(&[]).unwrap() {
            let number = u32::read_from_bytes(&number).unwrap();
            assert!(all.insert(number), "number {number} is free and something else");
        }
        let spares = self.map("spares").lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        for spare in spares.iter().map(|bytes| u32::read_from_prefix(bytes).unwrap().0).filter(|n| *n != 0) {
            assert!(all.insert(spare), "number {spare} is a spare and something else");
        }
        let marks = self.map("watermarks").lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let used = Watermarks::read_from_bytes(&marks).unwrap().session4.min(self.trial.sessions);
        assert_eq!(all, (1..=used).collect(), "every number ever used is somewhere");
    }
}

fn two_cpus(trial: Trial, seconds: u64) -> [Stress; 2] {
    let bench = Bench::new(trial);
    let ready = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(0);
            bench.order(0, 200_000);
            bench.run("stress_settle", None);
        });
    });
    bench.order(0, 200_000);
    bench.order(1, 200_000);
    let until = Instant::now() + Duration::from_millis(1000 * seconds);
    let whole = thread::scope(|scope| {
        let workers = [0, 1].map(|cpu| {
            let bench = &bench;
            scope.spawn(move || {
                pin_to(cpu);
                bench.run("stress_run", Some(until));
            })
        });
        let reader = scope.spawn(|| bench.read_until(&ready));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        ready.store(true, Ordering::Relaxed);
        reader.join().unwrap()
    });
    let results = [bench.stresses.read(0), bench.stresses.read(1)];
    let owners = bench.audit();
    for result in &results {
        // an insert may find a lock held by a CPU that the hypervisor has taken away
        assert!(result.busy < 100, "{result:?}");
        assert_eq!((result.stable_lost, result.torn), (0, 0), "{result:?}");
        assert!(result.inserted > 1000 && result.ended > 1000, "{result:?}");
    }
    assert!((0..trial.stable).all(|key| owners.contains(&key)), "a session that nobody ended is gone");
    assert!(whole > 0, "the reader saw no session");
    let ops: u64 = results
        .iter()
        .map(|r| r.found + r.missed + r.inserted + r.twins + r.refused + r.ended + r.not_ended)
        .sum();
    println!("{ops} operations, {whole} whole reads, {} sessions left: {results:?}", owners.len());
    results
}

/// Two CPUs where there are two.
fn cpus() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[test]
fn two_cpus_lose_and_double_nothing() {
    if cpus() < 2 {
        println!("skipped: one CPU only");
        return;
    }
    let usual = Trial {
        sessions: 20_000,
        buckets: 4096,
        stash: 312,
        keys: 30_000,
        stable: 2_000,
        kernel_index: false,
        weak_order: false,
    };
    two_cpus(usual, 6);
    // few and hot: everything is re-used at once
    let hot = Trial { sessions: 64, buckets: 16, stash: 64, keys: 80, stable: 8, ..usual };
    two_cpus(hot, 4);
    two_cpus(Trial { weak_order: true, ..hot }, 4);
    // more keys than slots: second buckets, stash, and refusals
    let overfull =
        two_cpus(Trial { sessions: 4096, buckets: 512, stash: 64, keys: 5000, stable: 500, ..usual }, 4);
    assert!(overfull.iter().all(|result| result.refused > 0));
    // fewer records than keys
    let short = two_cpus(Trial { sessions: 8, buckets: 2, stash: 64, keys: 12, stable: 2, ..usual }, 4);
    assert!(short.iter().all(|result| result.refused > 0));
}

/// What a run on one CPU gives, and which sessions it leaves.
fn alone(trial: Trial) -> (Stress, BTreeSet<u32>) {
    let bench = Bench::new(trial);
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(0);
            bench.order(0, 2_000_000);
            bench.run("stress_run", None);
        });
    });
    (bench.stresses.read(0), bench.audit())
}

#[test]
fn both_indexes_give_the_same_results() {
    for (sessions, keys) in [(20_000, 30_000), (8, 12), (1000, 1000)] {
        let buckets = Sizes { sessions4: sessions, ..Sizes::default() }.buckets(sessions);
        let own =
            Trial { sessions, buckets, stash: 64, keys, stable: 0, kernel_index: false, weak_order: false };
        let (ours, left) = alone(own);
        let (kernels, left_there) = alone(Trial { kernel_index: true, ..own });
        assert_eq!(ours, kernels, "{sessions} sessions");
        assert_eq!(left, left_there);
        assert!(ours.inserted > 1000 && ours.ended > 1000);
    }
}
