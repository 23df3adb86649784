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

/// What the first commits of a new state cost, one after the other.
fn commits(turn: u32) -> Vec<Duration> {
    let pin = std::path::Path::new("/sys/fs/bpf").join(format!("sluice-start-{}-{turn}", std::process::id()));
    let dataplane = Dataplane::open(&pin, Sizes::default()).unwrap();
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
    drop(dataplane);
    cleanup(&pin).unwrap();
    spent
}

/// The least of a few: caches that others have emptied only add to it.
#[test]
fn start_and_commit_with_every_function_are_cheap() {
    let turns: Vec<(f64, Vec<Duration>)> = (0..4).map(|turn| (slower(), commits(turn))).collect();
    println!("{turns:?}");
    let least =
        |number: usize| turns.iter().map(|(slower, spent)| spent[number].div_f64(*slower)).min().unwrap();
    assert!(least(0) < MOST_START, "{turns:?}");
    assert!(least(2) < MOST_COMMIT && least(3) < MOST_COMMIT, "{turns:?}");
}
