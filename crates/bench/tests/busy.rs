//! Beside a program that takes a CPU there is no verdict, however good the figures look. Alone in its file: the bench takes
//! orphans for its own, and the busy program must have none of it.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_bench::method::document::RunDocument;
use sluice_bench::method::judge::{PASSES, ROUNDS, Verdict, judge};
use sluice_bench::method::result::Profile;
use sluice_bench::method::run;
use sluice_bench::suites::budgets::{Budgets, Options, passes, status};

/// A busy loop that is nobody's child.
struct BusyLoop(Pid);

impl BusyLoop {
    fn start() -> BusyLoop {
        let script = "(while :; do :; done) >/dev/null 2>&1 & echo $!";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        BusyLoop(Pid::from_raw(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()))
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        // Nobody else ends it.
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[test]
fn beside_a_busy_program_there_is_no_verdict() {
    let _busy = BusyLoop::start();
    let text = "[[budget]]\nname = 'one flow'\nsuite = 'prog'\nrow = 'xdp v4 udp established 1'\n\
                bound = 'at-most'\nlimit = 100.0\nunit = 'x'\n";
    let budgets = Budgets::parse(text).unwrap();
    let options = Options { passes: PASSES.into(), rounds: ROUNDS.into() };
    let suites = passes::run(&budgets, &[], &options).unwrap();
    let document =
        RunDocument { budgets: judge(&budgets.budget, &suites), suites, ..run::begin(Profile::Full) };
    let entry = &document.budgets[0];
    assert!(entry.measured.is_some_and(|ratio| ratio.high < 100.0), "the figure looks good: {entry:?}");
    assert_eq!(entry.verdict, Verdict::NoVerdict);
    let busy = |doubt: &String| doubt.starts_with("machine to ourselves: other processes had");
    assert!(entry.doubts.iter().any(busy), "{:?}", entry.doubts);
    assert!(!entry.doubts.iter().any(|doubt| doubt.starts_with("passes") || doubt.starts_with("rounds")));
    assert_eq!([status(&document, false), status(&document, true)], [0, 1]);
}
