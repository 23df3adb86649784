//! The cases marked `wire`, over real veth pairs, on both hooks.

use std::path::{Path, PathBuf};

use sluice_dataplane::Sizes;
use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::world::World;

fn files() -> Vec<File> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet");
    let wanted = std::env::var("SLUICE_CASES").unwrap_or_default();
    let entries = std::fs::read_dir(directory).expect("tests/packet can be read").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|e| e == "case") && path.to_string_lossy().contains(&wanted)
    });
    paths.sort();
    paths.iter().map(|path| File::read(path).unwrap_or_else(|error| panic!("{error:#}"))).collect()
}

fn run_file(file: &File, hook: Hook) -> Vec<String> {
    let cases: Vec<_> = file.cases.iter().filter(|case| case.wire).collect();
    if cases.is_empty() {
        return Vec::new();
    }
    let world = World::read(&file.world).unwrap_or_else(|error| panic!("{error:#}"));
    let config = std::fs::read_to_string(&world.config).expect("the world's configuration can be read");
    let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions };
    let mut wire = match Gateway::new(world, &config, sizes, hook).and_then(Wire::new) {
        Ok(wire) => wire,
        Err(error) => return vec![format!("{} on {}: {error:#}", file.path.display(), hook.name())],
    };
    let mut failures = Vec::new();
    for case in cases {
        if let Err(error) = wire.run(case) {
            let place = format!("{}:{} on {}", file.path.display(), case.line, hook.name());
            failures.push(format!("{place}: case \"{}\"\n{error:#}", case.name));
        }
    }
    failures
}

fn run_all(hook: Hook) {
    let files = files();
    let failures: Vec<String> =
        std::thread::spawn(move || files.iter().flat_map(|f| run_file(f, hook)).collect())
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
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
