//! The cases marked `wire`, over real veth pairs, on both hooks.

use std::path::PathBuf;

use sluice_dataplane::Sizes;
use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::world::World;

fn files() -> Vec<File> {
    File::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// Devices with programs, as one file needs them and the next may use them again.
fn wire_for(file: &File, hook: Hook, last: &mut Option<(PathBuf, u32, Wire)>) -> anyhow::Result<()> {
    if last.as_ref().is_some_and(|(world, sessions, _)| *world == file.world && *sessions == file.sessions) {
        return Ok(());
    }
    let world = World::read(&file.world)?;
    let config = std::fs::read_to_string(&world.config)?;
    let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions, ..Sizes::default() };
    let wire = Wire::new(Gateway::new(world, &config, sizes, hook)?)?;
    *last = Some((file.world.clone(), file.sessions, wire));
    Ok(())
}

fn failures(files: &[File], hook: Hook) -> Vec<String> {
    let mut failures = Vec::new();
    let mut last = None;
    for file in files {
        for case in file.cases.iter().filter(|case| case.wire) {
            let run = wire_for(file, hook, &mut last).and_then(|()| {
                let (.., wire) = last.as_mut().expect("it was made just now");
                wire.run(case)
            });
            if let Err(error) = run {
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
