//! Packets before and after the gateway's programs, on both hooks, and that nothing of a trace stays behind.

use crate::common;

use std::fs;

use common::{Netns, OPTIONAL, Pin, SMALL, activate, full_mask, run, tables, udp_frame};
use sluice_dataplane::abi::TraceFilter;
use sluice_dataplane::abi::stages::Stage;
use sluice_dataplane::prog_run::{TcRun, XdpRun};
use sluice_dataplane::{
    Action, Attachment, Dataplane, Error, Hook, ObjectKind, Program, Trace, TracePath, TracePoint,
    TraceRequest, Traced, Variant,
};

const HOOKS: [(Hook, TracePoint); 2] =
    [(Hook::XdpNative, TracePoint::Xdp), (Hook::Tc, TracePoint::TcIngress)];

/// Devices have traffic of their own: only packets for the port of [`udp_frame`].
fn request() -> TraceRequest {
    let filter = TraceFilter { port: 53, by_packet: 1, ..Default::default() };
    TraceRequest { filter, snaplen: 128, rate: 1000, ..Default::default() }
}

/// One packet through the root of a hook.
fn send(dataplane: &Dataplane, point: TracePoint, ifindex: u32, frame: &[u8]) {
    send_to(dataplane, 0, point, ifindex, frame);
}

/// The same of any variant.
fn send_to(dataplane: &Dataplane, variant: u32, point: TracePoint, ifindex: u32, frame: &[u8]) {
    if point == TracePoint::Xdp {
        dataplane.run_xdp_root(variant, &XdpRun::new(frame, ifindex)).unwrap();
    } else {
        dataplane.run_tc_root(variant, &TcRun::new(frame, ifindex)).unwrap();
    }
}

fn told(trace: &mut Trace<'_>) -> Vec<Traced> {
    let mut told = vec![];
    for _ in 0..5 {
        trace.poll(|packet| told.push(packet)).unwrap();
    }
    told
}

/// Ids of all programs in their places.
fn programs(pin: &Pin) -> [String; 2] {
    ["programs_xdp", "programs_tc"].map(|map| {
        let map = pin.path().join(map);
        run(&["bpftool", "-j", "map", "dump", "pinned", map.to_str().unwrap()])
    })
}

/// How many programs wait for their places.
fn waiting(pin: &Pin) -> usize {
    fs::read_dir(pin.path().join("traced")).map_or(0, Iterator::count)
}

#[test]
fn a_packet_is_told_before_and_after_on_both_hooks() {
    for (hook, point) in HOOKS {
        let netns = Netns::enter();
        let ifindex = netns.veth("v0");
        let pin = Pin::new();
        let dataplane = pin.open(SMALL);
        activate(&dataplane, &tables(ifindex), 1);
        dataplane.attach(&Attachment { ifindex, hook, variant: 0 }).unwrap();
        let (own, frame) = (programs(&pin), udp_frame());
        {
            let mut trace = dataplane.trace(request()).unwrap();
            assert_ne!(programs(&pin), own);
            send(&dataplane, point, ifindex, &frame);
            let packets = told(&mut trace);
            assert_eq!(packets.len(), 1, "{packets:#?}");
            let packet = &packets[0];
            assert_eq!((packet.point, packet.action), (point, Action::Dropped), "{packet:#?}");
            assert_eq!(packet.path, TracePath::Slow, "{packet:#?}");
            assert_ne!(dataplane.counters().unwrap().drops(packet.reason.unwrap()), 0, "{packet:#?}");
            assert_eq!((packet.raw.unit, packet.raw.from_zone, packet.raw.generation), (1, 2, 1));
            let before = packet.before.as_ref().unwrap();
            assert_eq!((&before.bytes, before.length), (&frame, frame.len() as u32));
            assert_eq!(before.bytes, packet.after.bytes);
        }
        assert_eq!((programs(&pin), waiting(&pin)), (own, 0));
        // nobody is told any more, and packets go as before
        send(&dataplane, point, ifindex, &frame);
    }
}

/// What judges their packets is one program, and what tells of them is each one's own.
#[test]
fn variants_that_share_programs_are_told_with_their_own_stages() {
    for (hook, point) in HOOKS {
        let netns = Netns::enter();
        let ifindex = netns.veth("v0");
        let pin = Pin::new();
        let dataplane = pin.open(SMALL);
        // without stages that want tables of their own
        let plain = OPTIONAL.map(Stage::bit).iter().fold(full_mask(), |mask, bit| mask & !bit);
        let masks = [plain, plain | Stage::Screen.bit()];
        let generation = dataplane.load(&tables(ifindex), &masks.map(Variant::new), 1).unwrap();
        dataplane.switch(&generation);
        let kind = if hook == Hook::Tc { ObjectKind::Tc } else { ObjectKind::Xdp };
        let judge = |variant| generation.program(kind, variant, Program::Judge).unwrap();
        let [leader, led] = [0, 1].map(|variant| sluice_libbpf::program::details(judge(variant)).unwrap().id);
        assert_eq!(leader, led);
        let own = programs(&pin);
        let mut trace = dataplane.trace(request()).unwrap();
        for (variant, mask) in (0..).zip(masks) {
            send_to(&dataplane, variant, point, ifindex, &udp_frame());
            let packets = told(&mut trace);
            assert_eq!(packets.len(), 1, "{point:?}, variant {variant}: {packets:#?}");
            assert_eq!(packets[0].reason.unwrap().stage().phase(), Program::Judge, "{packets:#?}");
            assert_eq!(packets[0].raw.stage_mask, mask, "{point:?}, variant {variant}");
        }
        drop(trace);
        assert_eq!((programs(&pin), waiting(&pin)), (own, 0));
    }
}

/// Commits come as they do without a trace: their programs are found, and each packet is told by the one that judged it.
#[test]
fn a_trace_follows_commits() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    for number in 1..3 {
        activate(&dataplane, &tables(ifindex), number);
    }
    dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap();
    let own = programs(&pin);
    // as another process does
    let reader = pin.open(SMALL);
    let mut trace = reader.trace(request()).unwrap();
    for number in 3..8 {
        let generation = activate(&dataplane, &tables(ifindex), number);
        assert_eq!(generation.programs_loaded(), 0, "commit {number}");
        // as long as it takes to load
        told(&mut trace);
        send(&dataplane, TracePoint::Xdp, ifindex, &udp_frame());
        let packets = told(&mut trace);
        let generations: Vec<u32> = packets.iter().map(|packet| packet.raw.generation).collect();
        assert_eq!(generations, [number]);
    }
    drop(trace);
    assert_eq!((programs(&pin), waiting(&pin)), (own, 0));
}

/// One that was killed leaves its programs: the daemon puts the others back, once nobody traces.
#[test]
fn what_a_killed_trace_leaves_is_put_back() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(ifindex), 1);
    dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap();
    let own = programs(&pin);
    let trace = dataplane.trace(request()).unwrap();
    let (traced, waits) = (programs(&pin), waiting(&pin));
    assert!(waits > 0 && traced != own);
    // as long as it lives it keeps its place, and others out
    dataplane.end_abandoned_trace().unwrap();
    assert_eq!((programs(&pin), waiting(&pin)), (traced, waits));
    assert!(matches!(pin.open(SMALL).trace(request()).err(), Some(Error::AlreadyTraced)));
    // its descriptors go, its work stays
    trace.abandon();
    assert_eq!(waiting(&pin), waits);
    send(&dataplane, TracePoint::Xdp, ifindex, &udp_frame());
    dataplane.end_abandoned_trace().unwrap();
    assert_eq!((programs(&pin), waiting(&pin)), (own, 0));
}

#[test]
fn packets_beyond_the_rate_are_counted() {
    let netns = Netns::enter();
    let ifindex = netns.veth("v0");
    let pin = Pin::new();
    let dataplane = pin.open(SMALL);
    activate(&dataplane, &tables(ifindex), 1);
    dataplane.attach(&Attachment { ifindex, hook: Hook::XdpNative, variant: 0 }).unwrap();
    let mut trace = dataplane.trace(TraceRequest { rate: 3, ..request() }).unwrap();
    let frame = udp_frame();
    dataplane.run_xdp_root(0, &XdpRun { repeat: 1000, ..XdpRun::new(&frame, ifindex) }).unwrap();
    let packets = told(&mut trace).len() as u64;
    let untold = trace.untold();
    assert!((3..=12).contains(&packets), "{packets}");
    assert_eq!(packets + untold.rate, 1000, "{untold:?}");
    assert_eq!(untold.lost, 0);
}
