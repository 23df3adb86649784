//! Generations under traffic: every packet is judged by exactly one of them, and only what is new is loaded.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Netns, OPTIONAL, Pin, SMALL, activate, full_mask, tables, udp_frame};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_dataplane::abi::stages::{Reason, Stage};
use sluice_dataplane::abi::{ClassLine, MAX_RULES, NAT_PERSISTENT_TARGET_HOST, NatPool, Rule, ZonePair};
use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_dataplane::{
    Attachment, Dataplane, Error, Generation, Hook, Hooks, ObjectKind, Program, Sizes, Tables, Variant,
};

const XDP_DROP: u32 = 1;
const TC_ACT_SHOT: u32 = 2;

/// A frame that a generation with the unit drops for `other_host` and one without it for `unknown_unit`.
fn stray_frame() -> Vec<u8> {
    let mut frame = udp_frame();
    frame[5] = 0x77;
    frame
}

/// Commits these in turn while packets run through both roots, and says how many packets each kind of tables judged:
/// those with the unit, and those without.
fn commit_under_traffic(dataplane: &Dataplane, ifindex: u32, commits: &[Tables]) -> (u64, u64) {
    activate(dataplane, &commits[0], 1);
    let frame = stray_frame();
    let done = AtomicBool::new(false);
    let runs = thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut runs = 0;
            while !done.load(Ordering::Relaxed) {
                let xdp = XdpRun { repeat: 2000, ..XdpRun::new(&frame, ifindex) };
                assert_eq!(dataplane.run_xdp_root(0, &xdp).unwrap().retval, XDP_DROP);
                let tc = TcRun { repeat: 2000, ..TcRun::new(&frame, ifindex) };
                assert_eq!(dataplane.run_tc_root(0, &tc).unwrap().retval, TC_ACT_SHOT);
                runs += 4000;
            }
            runs
        });
        for (number, tables) in (2..).zip(&commits[1..]) {
            let epoch = dataplane.epoch();
            activate(dataplane, tables, number);
            assert_eq!(dataplane.epoch(), epoch + 1);
        }
        done.store(true, Ordering::Relaxed);
        traffic.join().unwrap()
    });

    let counters = dataplane.counters().unwrap();
    let (known, unknown) = (counters.drops(Reason::OtherHost), counters.drops(Reason::UnknownUnit));
    println!("{runs} packets: {known} by generations with the unit, {unknown} by those without");
    assert_eq!(counters.total().received, runs);
    assert_eq!(known + unknown, runs);
    assert_eq!(counters.drops(Reason::NoGeneration), 0);
    assert_eq!(counters.unit_drops(1).of(Reason::OtherHost), known);
    (known, unknown)
}

fn without_units() -> Tables {
    Tables { unit_multiplier: 1, ..Tables::default() }
}

/// Without the stages that configuration may leave out.
fn small_mask() -> u32 {
    Stage::ALL.into_iter().filter(|stage| !OPTIONAL.contains(stage)).map(Stage::bit).sum()
}

/// Tables of so many lines and more.
fn large(tables: &Tables, lines: usize) -> Tables {
    Tables { rows: vec![ClassLine::default(); lines], ..tables.clone() }
}

#[test]
fn nothing_is_lost_while_generations_change() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let turns = [tables(ifindex), without_units()];
    let commits: Vec<Tables> = turns.iter().cycle().take(200).cloned().collect();
    let (known, unknown) = commit_under_traffic(&dataplane, ifindex, &commits);
    assert!(known > 0 && unknown > 0);
}

#[test]
fn nothing_is_lost_while_memory_grows_and_shrinks() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let (with, without) = (tables(ifindex), without_units());
    // each slot has grown and shrunk at the end, beside one that was of another size and of the same
    let commits = [&with, &large(&without, 1 << 17), &large(&with, 1 << 18), &without, &with, &without];
    let commits: Vec<Tables> = commits.into_iter().cloned().collect();
    let (known, unknown) = commit_under_traffic(&dataplane, ifindex, &commits);
    assert!(known > 0 && unknown > 0);
}

fn program_ids(generation: &Generation) -> BTreeSet<u32> {
    generation.programs().unwrap().into_iter().map(|program| program.id).collect()
}

#[test]
fn from_the_third_commit_on_no_program_is_loaded() {
    let pin = Pin::new();
    let mut slots = vec![];
    {
        // some of the commits have a gate
        let dataplane = pin.open(Sizes { extended: true, ..SMALL });
        for number in 1..3 {
            let generation = activate(&dataplane, &tables(1), number);
            assert_eq!(generation.programs_loaded(), generation.programs().unwrap().len());
            slots.push(program_ids(&generation));
        }
        assert!(slots[0].is_disjoint(&slots[1]));
        for number in 3..9 {
            let mut changed = tables(1);
            (changed.tcp_mss, changed.unit_multiplier) = (1000 + number as u16, 2 * number + 1);
            changed.gate.zones[0] = number.into();
            changed.flow.sequence_check = number % 2 == 0;
            let begin = Instant::now();
            let generation = activate(&dataplane, &changed, number);
            let took = begin.elapsed();
            assert_eq!(generation.programs_loaded(), 0);
            assert_eq!(program_ids(&generation), slots[(number as usize + 1) % 2]);
            assert!(took < Duration::from_millis(300), "{took:?}");
        }
    }
    // another daemon of the same binary
    let dataplane = pin.open(SMALL);
    for number in 9..11 {
        let generation = activate(&dataplane, &tables(1), number);
        assert_eq!(generation.programs_loaded(), 0);
        assert_eq!(program_ids(&generation), slots[(number as usize + 1) % 2]);
    }
}

#[test]
fn programs_are_loaded_where_their_code_or_their_memory_is_another() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let mask = small_mask();
    let mut number = 0;
    // two commits, one for each slot
    let mut commit = |dataplane: &Dataplane, mask: u32, tables: &Tables| {
        [(); 2].map(|()| {
            number += 1;
            let generation = dataplane.load(tables, &[Variant::new(mask)], number).unwrap();
            dataplane.switch(&generation);
            dataplane.grace().unwrap();
            dataplane.retire_idle().unwrap();
            let all = generation.programs().unwrap().len();
            assert!([0, all].contains(&generation.programs_loaded()));
            generation.programs_loaded() > 0
        })
    };
    let plain = tables(1);
    assert_eq!(commit(&dataplane, mask, &plain), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &plain), [false; 2]);
    // another stage
    assert_eq!(commit(&dataplane, mask | Stage::Screen.bit(), &plain), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &plain), [true; 2]);
    // another memory, then the same with other contents, then less than a quarter of it
    assert_eq!(commit(&dataplane, mask, &large(&plain, 1 << 16)), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &large(&plain, (1 << 16) + 1)), [false; 2]);
    assert_eq!(commit(&dataplane, mask, &plain), [true; 2]);
    // persistent-nat is code
    let mut persistent = plain.clone();
    persistent.nat.pools = vec![NatPool { persistent: NAT_PERSISTENT_TARGET_HOST, ..Default::default() }];
    assert_eq!(commit(&dataplane, mask, &persistent), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &persistent), [false; 2]);
    // the first gate makes room for extensions, which stays
    let mut gate = persistent.clone();
    gate.gate.zones[0] = 1;
    assert_eq!(commit(&dataplane, mask, &gate), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &persistent), [false; 2]);
    assert_eq!(commit(&dataplane, mask, &gate), [false; 2]);

    // what another binary wrote down of its programs
    let records = MapHandle::from_pinned_path(pin.path().join("loaded")).unwrap();
    for key in records.keys() {
        let mut record = records.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        record[0] ^= 1;
        records.update(&key, &record, MapFlags::ANY).unwrap();
    }
    assert_eq!(commit(&dataplane, mask, &persistent), [true; 2]);
    assert_eq!(commit(&dataplane, mask, &persistent), [false; 2]);
    // programs that nobody wrote down
    fs::remove_file(pin.path().join("loaded")).unwrap();
    drop(dataplane);
    let dataplane = pin.open(SMALL);
    assert_eq!(commit(&dataplane, mask, &persistent), [true; 2]);
    // memory that was made anew
    fs::remove_file(pin.path().join("tables_0")).unwrap();
    drop(dataplane);
    let dataplane = pin.open(SMALL);
    let loaded = commit(&dataplane, mask, &persistent);
    assert_eq!(loaded.into_iter().filter(|loaded| *loaded).count(), 1, "of slot 0");
}

/// Of a variant, by program: the kernel's number of it, and of the memory that it works with.
type Standing = BTreeMap<Program, (u32, u32)>;

/// Packets go from one of these programs to the next in memory of a CPU: all that share programs must have the same.
#[test]
fn what_differs_by_stages_of_devices_shares_programs_and_their_memory() {
    const SHARED: [Program; 5] =
        [Program::GtpuSignal, Program::Judge, Program::Record, Program::Leave, Program::GtpuEncap];
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let plain = small_mask();
    let (screened, listening) = (plain | Stage::Screen.bit(), plain | Stage::Fanout.bit());
    let gated = plain | Stage::Gate.bit();
    let mut number = 0;
    let mut commit = |masks: &[u32]| -> (usize, Vec<Standing>) {
        number += 1;
        let variants: Vec<Variant> = masks.iter().map(|mask| Variant::new(*mask)).collect();
        let generation = dataplane.load(&tables(1), &variants, number).unwrap();
        dataplane.switch(&generation);
        dataplane.grace().unwrap();
        let of = |variant| {
            let found = Program::ALL.into_iter().filter(|program| *program != Program::Egress);
            let found = found.filter_map(|program| {
                let fd = generation.program(ObjectKind::Xdp, variant, program)?;
                let details = sluice_libbpf::program::details(fd).unwrap();
                let maps = details.map_ids.iter().map(|id| MapHandle::from_map_id(*id).unwrap());
                let memory =
                    maps.filter(|map| map.name() == "scratch").map(|map| map.info().unwrap().info.id);
                Some((program, (details.id, memory.collect::<Vec<_>>()[0])))
            });
            found.collect()
        };
        (generation.programs_loaded(), (0..masks.len() as u32).map(of).collect())
    };
    let share = |of: &[Standing], one: usize, other: usize| {
        let memory: BTreeSet<u32> = [one, other]
            .iter()
            .flat_map(|of_variant| of[*of_variant].values())
            .map(|found| found.1)
            .collect();
        let same = of[one].iter().filter(|(program, found)| of[other].get(program) == Some(found));
        let same: Vec<Program> = same.map(|(program, _)| *program).collect();
        assert_eq!(same.is_empty(), memory.len() > 1, "{one} and {other} share {same:?}");
        same
    };
    for turn in 0..4 {
        let (loaded, of) = commit(&[plain, screened, gated, listening]);
        assert_eq!(loaded == 0, turn > 1, "commit {turn} loaded {loaded}");
        assert_eq!((share(&of, 0, 1), share(&of, 0, 3)), (SHARED.to_vec(), SHARED.to_vec()));
        assert_eq!(share(&of, 0, 2), []);
    }
    // another one leads: who is led works with its memory, although its own stages are the same
    for first in [listening, plain | Stage::ScreenRate.bit(), gated, plain] {
        for _ in 0..2 {
            let (_, of) = commit(&[first, screened, gated]);
            let expected = if first == gated { vec![] } else { SHARED.to_vec() };
            assert_eq!(share(&of, 0, 1), expected);
            assert_eq!(share(&of, 1, 2), []);
        }
    }
}

#[test]
fn only_hooks_with_devices_have_programs() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let variant = Variant { hooks: Hooks { tc: true, xdp: false, cpu: false }, ..Variant::new(small_mask()) };
    let generation = dataplane.load(&tables(ifindex), &[variant], 1).unwrap();
    dataplane.switch(&generation);
    assert!(generation.program(ObjectKind::Xdp, 0, Program::Fast).is_none());
    assert!(generation.program(ObjectKind::Tc, 0, Program::Fast).is_some());
    let error = dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap_err();
    assert!(matches!(error, Error::NotActive { hook: "xdp", variant: 0 }), "{error}");
    dataplane.attach(&Attachment { ifindex, hook: Hook::Tc, variant: 0 }).unwrap();

    // both hooks again, then the other one: what the slot had for the first is gone
    for (number, (tc, xdp)) in (2..).zip([(true, true), (false, true)]) {
        let variant = Variant { hooks: Hooks { tc, xdp, cpu: false }, ..variant };
        let generation = dataplane.load(&tables(ifindex), &[variant], number).unwrap();
        dataplane.switch(&generation);
    }
    let error = dataplane.attach(&Attachment { ifindex, hook: Hook::Tc, variant: 0 }).unwrap_err();
    assert!(matches!(error, Error::NotActive { hook: "tc", variant: 0 }), "{error}");
    dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap();
}

#[test]
fn tables_are_told_apart_from_those_of_later_commits() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let mut with_pair = tables(1);
    with_pair.zone_pairs[5] = ZonePair { context: 7, ..Default::default() };
    let rules = activate(&dataplane, &with_pair, 1).rule_tables();
    assert_eq!((rules.zone_pair(5).context, rules.zone_pair(16)), (7, ZonePair::default()));
    activate(&dataplane, &tables(1), 2);
    assert!(rules.are_there());
    assert_eq!(rules.zone_pair(5).context, 7);
    activate(&dataplane, &tables(1), 3);
    assert!(!rules.are_there());
}

#[test]
fn without_a_generation_packets_are_dropped_and_counted() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let outcome = dataplane.run_xdp_root(0, &XdpRun::new(&udp_frame(), 1)).unwrap();
    assert_eq!(outcome.retval, XDP_DROP);
    let outcome = dataplane.run_tc_root(0, &TcRun::new(&udp_frame(), 1)).unwrap();
    assert_eq!(outcome.retval, TC_ACT_SHOT);
    assert_eq!(dataplane.counters().unwrap().drops(Reason::NoGeneration), 2);
}

#[test]
fn live_frames_are_counted() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(ifindex), 1);
    let frame = stray_frame();
    let run = XdpRun { repeat: 1000, live: Some(64), ..XdpRun::new(&frame, ifindex) };
    dataplane.run_xdp_root(0, &run).unwrap();
    assert_eq!(dataplane.counters().unwrap().unit_drops(1).of(Reason::OtherHost), 1000);
}

#[test]
fn a_run_gives_frame_and_context() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let generation = activate(&dataplane, &tables(ifindex), 1);
    let program = generation.program(ObjectKind::Tc, 0, Program::Admit).unwrap();
    let frame = stray_frame();
    let run = TcRun { mark: 5, repeat: 10, ..TcRun::new(&frame, ifindex) };
    let outcome = prog_run::tc(program, &run).unwrap();
    assert_eq!((outcome.data, outcome.context.mark, outcome.context.ifindex), (frame.clone(), 5, ifindex));
    assert!(outcome.duration.as_nanos() > 0);
    let program = generation.program(ObjectKind::Xdp, 0, Program::Admit).unwrap();
    let with_meta = [&[0; 8], &frame[..]].concat();
    let run = XdpRun { meta_len: 8, ..XdpRun::new(&with_meta, ifindex) };
    let outcome = prog_run::xdp(program, &run).unwrap();
    assert_eq!((outcome.data, outcome.context.data), (with_meta, 8));
    assert_eq!(dataplane.counters().unwrap().unit_drops(1).of(Reason::OtherHost), 11);
}

#[test]
fn a_refused_generation_leaves_the_active_one_alone() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(1), 1);
    let before = (dataplane.active_slot(), dataplane.epoch());
    let too_many = Tables { rules: vec![Rule::default(); MAX_RULES + 1], ..tables(1) };
    let error = dataplane.load(&too_many, &[Variant::new(full_mask())], 2).unwrap_err();
    assert!(matches!(error, Error::Tables(_)), "{error}");
    assert_eq!((dataplane.active_slot(), dataplane.epoch()), before);
    dataplane.run_tc_root(0, &TcRun::new(&stray_frame(), 1)).unwrap();
    assert_eq!(dataplane.counters().unwrap().drops(Reason::OtherHost), 1);
}

#[test]
fn only_commits_raise_the_epoch() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(1), 1);
    let (slot, epoch, routes) = (dataplane.active_slot(), dataplane.epoch(), dataplane.route_generation());
    // past the end of its 15 bits, and of the stamp's 16
    for n in 1..=70_000u32 {
        dataplane.ask_routes_again();
        assert_eq!(dataplane.route_generation(), (u32::from(routes) + n) as u16 & 0x7fff);
    }
    assert_eq!((dataplane.active_slot(), dataplane.epoch()), (slot, epoch));
    let routes = dataplane.route_generation();
    dataplane.judge_again();
    assert_eq!((dataplane.epoch(), dataplane.route_generation()), (epoch + 1, routes));
}
