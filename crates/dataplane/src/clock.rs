//! Whatever looks at the clock, with ticks of any length: the data plane's own functions at times of the test's choice
//! (bpf/stress/clock.bpf.c), against what seconds say.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::ObjectBuilder;
use sluice_abi::{KNOWN_SOURCE_S, ProgramConfig, REEVALUATED_PER_SECOND, REPLY_RATE_PER_ZONE};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::generation::reevaluated_per_tick;
use crate::mmap::{Array, array};
use crate::{objects, prog_run};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/clock.bpf.o"));

/// Ticks a second that kernels are built with; 300 divides few round numbers.
const KERNELS: [u32; 4] = [100, 250, 300, 1000];
/// Times at which questions begin: ordinary ones, and where 32 bits of jiffies end.
const BEGINNINGS: [u32; 2] = [1_000_000, u32::MAX - 3];

/// `ASK_*` of bpf/stress/clock.h.
#[derive(Debug, Clone, Copy)]
enum Ask {
    Reply,
    Rate,
    Known,
    Fragment,
    Idle,
    NatFull,
    GrantUsed,
    ScreenLogged,
}

/// `struct clock_question` of bpf/stress/clock.h.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Question {
    ask: u32,
    then: u32,
    now: u32,
    limit_s: u32,
    tokens: u32,
    tick: u32,
    answer: u32,
    number: u32,
}

struct Clock {
    program: OwnedFd,
    questions: Array<Question>,
    asked: u32,
}

impl Clock {
    fn new(hz: u32) -> Clock {
        let mut object = ObjectBuilder::default().open_memory(OBJECT).unwrap();
        let config = ProgramConfig { hz, seed: 1, ..Default::default() };
        for mut map in object.maps_mut() {
            if map.name().to_str() == Some(objects::CONFIG_SECTION) {
                // `config` is the first of its section
                map.initial_value_mut().unwrap()[..size_of::<ProgramConfig>()]
                    .copy_from_slice(config.as_bytes());
            }
        }
        let object = object.load().unwrap();
        let questions = array(&objects::map(&object, "questions").unwrap()).unwrap();
        Clock { program: objects::program(&object, "clock_ask").unwrap(), questions, asked: 0 }
    }

    fn ask(&mut self, ask: Ask, question: Question) -> Question {
        self.asked += 1;
        self.questions.write(0, Question { ask: ask as u32, number: self.asked, ..question });
        prog_run::run_syscall_program(self.program.as_fd()).unwrap();
        self.questions.read(0)
    }

    /// What is said so many ticks after `then`, or before.
    fn after(&mut self, ask: Ask, then: u32, ticks: i32, limit_s: u32) -> u32 {
        let now = then.wrapping_add_signed(ticks);
        self.ask(ask, Question { then, now, limit_s, ..Default::default() }).answer
    }
}

#[test]
fn seconds_are_as_long_with_ticks_of_any_length() {
    for hz in KERNELS {
        let mut clock = Clock::new(hz);
        let second = hz as i32;
        // what lasts so many ticks: the answer in the last of them, and in the next
        let spans: [(Ask, i32, u32, [u32; 2]); 7] = [
            (Ask::Rate, second - 1, 0, [2, 1]),
            (Ask::Known, KNOWN_SOURCE_S as i32 * second - 1, 0, [1, 0]),
            (Ask::Fragment, sluice_abi::FRAGMENT_TIMEOUT_S as i32 * second - 1, 0, [0, 1]),
            (Ask::Idle, 60 * second, 60, [0, 1]),
            (Ask::Idle, 65_534 * second, 65_534, [0, 1]),
            (Ask::NatFull, second / 10 - 1, 0, [1, 0]),
            (Ask::ScreenLogged, second - 1, 0, [0, 1]),
        ];
        for then in BEGINNINGS {
            for (ask, last, limit_s, answers) in spans {
                let seen = [last, last + 1].map(|ticks| clock.after(ask, then, ticks, limit_s));
                assert_eq!(seen, answers, "{ask:?} at {hz} ticks a second, {last} after {then}");
            }
        }
        let used = [second / 8, second / 8 + 1].map(|ticks| clock.after(Ask::GrantUsed, 5000, ticks, 0));
        assert_eq!(used, [0, 1], "use of a grant at {hz} ticks a second");
    }
}

/// A packet's time is read when it comes in: another CPU may have written a later one meanwhile.
#[test]
fn a_clock_that_is_a_tick_ahead_ends_nothing() {
    for hz in KERNELS {
        let mut clock = Clock::new(hz);
        for then in BEGINNINGS {
            for (ask, answer) in [(Ask::Rate, 2), (Ask::Fragment, 0), (Ask::Idle, 0)] {
                assert_eq!(clock.after(ask, then, -1, 60), answer, "{ask:?} at {hz} ticks a second");
            }
            let question = Question { then, now: then.wrapping_sub(1), ..Default::default() };
            let seen = clock.ask(Ask::Reply, question);
            assert_eq!((seen.answer, seen.tokens, seen.tick), (0, 0, then), "bucket at {hz} ticks a second");
        }
    }
}

/// From an empty bucket: as many as the rate says in every second, evenly, and no more than the burst.
#[test]
fn answers_leave_at_the_rate_whatever_a_tick_is() {
    for hz in KERNELS {
        let mut clock = Clock::new(hz);
        for begin in BEGINNINGS {
            let (mut tokens, mut tick, mut sent) = (0, begin, 0);
            for ticks in 1..=hz {
                let now = begin.wrapping_add(ticks);
                loop {
                    let seen =
                        clock.ask(Ask::Reply, Question { then: tick, now, tokens, ..Default::default() });
                    (tokens, tick) = (seen.tokens, seen.tick);
                    if seen.answer == 0 {
                        break;
                    }
                    sent += 1;
                }
                assert_eq!(sent, ticks * REPLY_RATE_PER_ZONE / hz, "{ticks} ticks at {hz} a second");
            }
            let question = Question { then: begin, now: begin.wrapping_add(90 * hz), ..Default::default() };
            let full = clock.ask(Ask::Reply, question);
            assert_eq!((full.answer, full.tokens), (1, (REPLY_RATE_PER_ZONE - 1) * hz), "after a pause");
        }
    }
}

#[test]
fn flows_are_judged_again_at_the_rate_whatever_a_tick_is() {
    for hz in KERNELS {
        let in_a_second = reevaluated_per_tick(hz) * hz;
        assert!(
            (REEVALUATED_PER_SECOND..REEVALUATED_PER_SECOND + hz).contains(&in_a_second),
            "{hz}: {in_a_second}"
        );
    }
}

/// The kernel says how long a tick is; nobody else does.
#[test]
fn no_length_of_a_tick_is_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for directory in ["bpf", "crates/dataplane/src", "crates/plan/src", "crates/control/src"] {
        let others = |(path, _): &(PathBuf, String)| !path.ends_with("dataplane/src/clock.rs");
        for (path, text) in sources(&root.join(directory)).into_iter().filter(others) {
            seen += 1;
            for (number, line) in text.lines().enumerate() {
                let names_one = ["TICKS_PER_", "_PER_TICK"].iter().any(|name| line.contains(name));
                let at = format!("{}:{}: {line}", path.display(), number + 1);
                assert!(
                    !names_one && !line.match_indices("hz").any(|(at, _)| is_set(&line[at + 2..])),
                    "{at}"
                );
            }
        }
    }
    assert!(seen > 100, "only {seen} files were found");
}

/// Whether what stands behind a name gives it a number, as in `hz: 250` or `hz = 250`.
fn is_set(behind: &str) -> bool {
    let value = behind.trim_start().strip_prefix([':', '=']).map(str::trim_start);
    value.is_some_and(|value| value.starts_with(|c: char| ('1'..='9').contains(&c)))
}

/// Every C and Rust file below, with its text.
fn sources(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| ["h", "c", "rs"].contains(&e)) {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}
