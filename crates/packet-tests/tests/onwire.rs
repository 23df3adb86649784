//! The cases marked `wire`, over real veth pairs, on both hooks.

use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::Hook;
use sluice_packet_tests::kept::Kept;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::onwire::Wire;

fn files() -> Vec<File> {
    File::all().unwrap_or_else(|error| panic!("{error:#}"))
}

fn failures(files: &[File], hook: Hook) -> Vec<String> {
    let mut failures = Vec::new();
    let mut kept = Kept::new(hook, Wire::new);
    for file in files {
        for case in file.cases.iter().filter(|case| case.wire) {
            if let Err(error) = kept.of(file).and_then(|wire| wire.run(case)) {
                let place = format!("{}:{} on {}", file.path.display(), case.line, hook.name());
                failures.push(format!("{place}: case \"{}\"\n{error:#}", case.name));
            }
        }
    }
    failures
}

fn run_all(hook: Hook) {
    let files = files();
    let failures = in_thread(move || failures(&files, hook));
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn wire_cases_on_tc() {
    run_all(Hook::Tc);
}

#[test]
fn wire_cases_on_xdp() {
    run_all(Hook::Xdp);
}

/// Between them the three mixtures have every pair of ingress and egress hook: trust0 leads to untrust0, dmz0, wan0.
#[test]
fn wire_cases_on_mixtures() {
    (0..3).for_each(|first| run_all(Hook::Mixed(first)));
}
