//! Generations under traffic: every packet is judged by exactly one of them.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{Netns, Pin, SMALL, activate, full_mask, tables, udp_frame};
use sluice_dataplane::abi::stages::Reason;
use sluice_dataplane::abi::{MAX_RULES, Rule};
use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_dataplane::{Error, ObjectKind, Program, Tables, Variant};

const XDP_DROP: u32 = 1;
const TC_ACT_SHOT: u32 = 2;

/// A frame that a generation with the unit drops for `other_host` and one without it for `unknown_unit`.
fn stray_frame() -> Vec<u8> {
    let mut frame = udp_frame();
    frame[5] = 0x77;
    frame
}

#[test]
fn nothing_is_lost_while_generations_change() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    let with_unit = tables(ifindex);
    let without = Tables { unit_multiplier: 1, ..Tables::default() };
    activate(&dataplane, &with_unit, 1);

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
        for number in 2..12 {
            let tables = if number % 2 == 0 { &without } else { &with_unit };
            let epoch = dataplane.epoch();
            activate(&dataplane, tables, number);
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
    assert!(known > 0 && unknown > 0);
    assert_eq!(counters.unit(1).drops[Reason::OtherHost as usize], known);
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
    assert_eq!(dataplane.counters().unwrap().unit(1).drops[Reason::OtherHost as usize], 1000);
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
    assert_eq!(dataplane.counters().unwrap().unit(1).drops[Reason::OtherHost as usize], 11);
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
fn bumping_the_epoch_changes_nothing_else() {
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(1), 1);
    let (slot, epoch) = (dataplane.active_slot(), dataplane.epoch());
    dataplane.bump_epoch();
    assert_eq!((dataplane.active_slot(), dataplane.epoch()), (slot, epoch + 1));
}
