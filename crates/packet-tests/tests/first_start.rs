//! How much a gateway's start and a commit of a small change cost with every function on, in processor time: a busy
//! machine takes longer, and not more. A file of its own, so that no other test loads programs at the same time.

use std::time::Duration;

use libbpf_rs::ObjectBuilder;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sluice_dataplane::{Dataplane, Sizes, cleanup};
use sluice_packet_tests::limits::{everything, plan_of, variants_of};

static YARDSTICK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/yardstick.bpf.o"));

/// Where the yardstick takes `REFERENCE` to load. The second is promised of the optimised binary; the tests' own reads
/// objects and tables more slowly.
const MOST_START: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1300 } else { 1000 });
const MOST_COMMIT: Duration = Duration::from_millis(300);
const REFERENCE: Duration = Duration::from_millis(120);
const MOST_VERIFIED: u32 = 870_000;
const MOST_TURNS: usize = 16;

/// How many times slower than there this machine verifies at the moment.
fn slower() -> f64 {
    let begin = processor_time();
    (0..4).for_each(|_| drop(ObjectBuilder::default().open_memory(YARDSTICK).unwrap().load().unwrap()));
    ((processor_time() - begin).as_secs_f64() / REFERENCE.as_secs_f64()).max(1.0)
}

/// Of all threads of this process, in the kernel and outside.
fn processor_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(micros.try_into().unwrap())
}

/// With a new state, which is gone after it.
fn with_dataplane<T>(turn: usize, work: impl FnOnce(&Dataplane) -> T) -> T {
    let pin = std::path::Path::new("/sys/fs/bpf").join(format!("sluice-start-{}-{turn}", std::process::id()));
    let dataplane = Dataplane::open(&pin, Sizes::default()).unwrap();
    let result = work(&dataplane);
    drop(dataplane);
    cleanup(&pin).unwrap();
    result
}

/// What the first commits of a new state cost, one after the other.
fn commits(dataplane: &Dataplane) -> Vec<Duration> {
    let mut spent = Vec::new();
    for number in 1..=4 {
        let plan = plan_of(&everything(), number).unwrap();
        let begin = processor_time();
        let generation = dataplane.load(&plan.tables, &variants_of(&plan), number).unwrap();
        dataplane.switch(&generation);
        dataplane.grace().unwrap();
        dataplane.retire_idle().unwrap();
        spent.push(processor_time() - begin);
    }
    spent
}

/// Instructions that the kernel's verifier looks at for all programs of a start.
fn verified(dataplane: &Dataplane) -> u32 {
    let plan = plan_of(&everything(), 1).unwrap();
    let programs = dataplane.examine(&plan.tables, &variants_of(&plan)).unwrap();
    let all = programs.into_iter().chain(dataplane.examine_fixed().unwrap());
    all.map(|program| program.verified_instructions).sum()
}

/// What of a start is the same on every machine, then its time. Of that the least of a few: caches that others have emptied
/// only add to it, so there are more turns while they do.
#[test]
fn start_and_commit_with_every_function_are_cheap() {
    let verified = with_dataplane(0, verified);
    assert!(verified < MOST_VERIFIED, "{verified} verified instructions");
    let mut turns: Vec<(f64, Vec<Duration>)> = vec![];
    let is_cheap = |turns: &[(f64, Vec<Duration>)]| {
        let least = |number: usize| turns.iter().map(|(slower, spent)| spent[number].div_f64(*slower)).min();
        [(0, MOST_START), (2, MOST_COMMIT), (3, MOST_COMMIT)]
            .iter()
            .all(|(number, most)| least(*number).is_some_and(|least| least < *most))
    };
    while turns.len() < MOST_TURNS && !is_cheap(&turns) {
        turns.push((slower(), with_dataplane(turns.len(), commits)));
    }
    println!("{verified} verified instructions, {turns:?}");
    assert!(is_cheap(&turns), "{turns:?}");
}
