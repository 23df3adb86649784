//! The cases marked `wire`, over real veth pairs, on both hooks.

use sluice_packet_tests::case::File;
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::kept::Kept;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::onwire::Wire;

fn files() -> Vec<File> {
    File::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// Of the files that `is_wanted` names by their number.
fn failures(files: &[File], hook: Hook, is_wanted: impl Fn(usize) -> bool) -> Vec<String> {
    let mut failures = Vec::new();
    let mut kept = Kept::new(hook, Wire::new);
    for (_, file) in files.iter().enumerate().filter(|(number, _)| is_wanted(*number)) {
        for case in file.cases.iter().filter(|case| case.wire) {
            if let Err(error) = kept.of(file).and_then(|wire| wire.run(case)) {
                let place = format!("{}:{} on {}", file.path.display(), case.line, hook.name());
                failures.push(format!("{place}: case \"{}\"\n{error:#}", case.name));
            }
        }
    }
    failures
}

fn run(hook: Hook, is_wanted: impl Fn(usize) -> bool + Send + 'static) {
    let files = files();
    let failures = in_thread(move || failures(&files, hook, is_wanted));
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn wire_cases_on_tc() {
    run(Hook::Tc, |_| true);
}

#[test]
fn wire_cases_on_xdp() {
    run(Hook::Xdp, |_| true);
}

/// Between them the three mixtures have every pair of ingress and egress hook: trust0 leads to untrust0, dmz0, wan0. The cases
/// of each file are run on one of them; `make soak` runs them on all.
#[test]
fn wire_cases_on_mixtures() {
    let each = extent::steps(1) > 1;
    (0..3).for_each(|first| run(Hook::Mixed(first), move |file| each || file % 3 == first));
}
