//! A version that dies in the midst of taking over: whoever starts next, it or the one before, finds a whole state.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sluice_lab::gateway::Gateway;

use crate::carried::{Bed, check_equations, sessions};
use crate::common::{BINARY, Running, accepted};
use crate::trees;

/// Every step, in order; `link` is passed once for each link.
const STEPS: [&str; 12] = [
    "made",
    "fill",
    "staged",
    "committing",
    "committed",
    "link:1",
    "link:4",
    "attached",
    "followed",
    "totals:2",
    "counted",
    "removing",
];

/// Starts a version that ends at a step, and waits for its end.
fn crash(gateway: &Gateway, bed: &Bed, program: &Path, conf: &Path, step: &str) {
    let mut command = bed.site.gateway.command(program);
    command.args(["run", "--listen", "none", "--config"]).arg(conf).arg("--state-dir").arg(bed.site.state());
    command.env("SLUICE_CRASH", step).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Running::spawn(&mut command);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let patience = Duration::from_secs(60);
        assert!(begun.elapsed() < patience, "{step}: nobody came by; {}", gateway.last_words());
        thread::sleep(Duration::from_millis(5));
    };
    assert!(!status.success(), "{step}: {status}");
}

/// `next` says which of the two starts after the crash.
fn check(label: &str, hook: &str, next: impl Fn(usize) -> bool) {
    let (bed, conf) = Bed::new(label, hook);
    let site = &bed.site;
    let versions = [Path::new(BINARY).to_owned(), trees::twin()];
    let mut gateway = Gateway::new(&versions[0], &site.gateway, &conf, &site.state()).unwrap();
    gateway.start().unwrap_or_else(|error| panic!("{error:#}"));
    accepted(&site.sluice(&["gate", "grant", "--user", "alice", "--source", "10.71.1.2", "--service", "db"]));
    let load = bed.load();
    thread::sleep(Duration::from_millis(500));
    let before = sessions(&gateway);
    let mut running = 0;
    for (turn, step) in STEPS.iter().enumerate() {
        gateway.kill().unwrap();
        crash(&gateway, &bed, &versions[1 - running], &conf, step);
        thread::sleep(Duration::from_millis(50));
        if next(turn) {
            running = 1 - running;
        }
        gateway.set_program(&versions[running]);
        gateway.start().unwrap_or_else(|error| panic!("{step}: {error:#}"));
        let now = sessions(&gateway);
        for (id, session) in &before {
            assert_eq!(now.get(id), Some(session), "{step}: session {id}; {:?}", load.seen);
        }
        assert!(load.seen.failures.lock().unwrap().is_empty(), "{step}: {:?}", load.seen);
    }
    let seen = load.finish();
    println!("{label}: {seen:?}");
    assert!(seen.failures.lock().unwrap().is_empty(), "{seen:?}");
    assert_eq!(seen.intruders.load(Ordering::Relaxed), 0, "{seen:?}");
    check_equations(&gateway, hook);
    gateway.finish().unwrap();
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn the_one_that_crashed_starts_again() {
    check("crash-new", "tc", |_| true);
}

#[test]
#[ignore = "builds other versions of Sluice: make upgrades"]
fn the_one_before_starts_again() {
    check("crash-old", "xdp", |_| false);
}
