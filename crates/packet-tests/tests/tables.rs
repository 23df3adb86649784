//! Every case of `tests/packet`, on both hooks, by prog-run.

use sluice_dataplane::Sizes;
use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::judge::Judge;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::{table, world::World};
use sluice_wire::text::dissect;

/// Fewer cases than this means that files were not found.
const LEAST_CASES: usize = 80;
/// And a file of translations with fewer packets than this was not run.
const LEAST_TRANSLATED: usize = 50;

fn files() -> Vec<File> {
    File::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// Failures of one file on one hook.
fn run_file(file: &File, hook: Hook) -> Vec<String> {
    let world = World::read(&file.world).unwrap_or_else(|error| panic!("{error:#}"));
    let config = std::fs::read_to_string(&world.config).expect("the world's configuration can be read");
    let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions, ..Sizes::default() };
    let mut failures = Vec::new();
    let made = Gateway::new(world, &config, sizes, hook).and_then(|gateway| {
        gateway.idle_near_ends()?;
        Ok(gateway)
    });
    let mut gateway = match made {
        Ok(gateway) => gateway,
        Err(error) => return vec![format!("{} on {}: {error:#}", file.path.display(), hook.name())],
    };
    for case in &file.cases {
        if case.only.as_ref().is_some_and(|only| only != hook.name()) {
            continue;
        }
        if let Err(error) = table::run(&mut gateway, case) {
            let place = format!("{}:{} on {}", file.path.display(), case.line, hook.name());
            failures.push(format!("{place}: case \"{}\"\n{error:#}", case.name));
        }
    }
    if file.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nat")) {
        let judged = judge(&gateway.forwarded).unwrap_or_else(|error| vec![format!("{error:#}")]);
        failures.extend(
            judged.into_iter().map(|text| format!("{} on {}: {text}", file.path.display(), hook.name())),
        );
    }
    failures
}

/// Every packet that a translation made, or let through, has the right checksums in another program's eyes.
fn judge(forwarded: &[(Vec<u8>, Vec<u8>)]) -> anyhow::Result<Vec<String>> {
    let mut judge = Judge::default();
    for (came, left) in forwarded {
        judge.add(dissect(came).to_string(), left);
    }
    let wrong = judge.wrong()?;
    let say = |(came, said)| format!("tshark finds a wrong checksum in what became of {came}\n{said}");
    let enough = (judge.len() < LEAST_TRANSLATED).then(|| format!("only {} packets judged", judge.len()));
    Ok(wrong.into_iter().map(say).chain(enough).collect())
}

fn run_all(hook: Hook) {
    let files = files();
    let failures: Vec<String> = in_thread(move || files.iter().flat_map(|f| run_file(f, hook)).collect());
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_case_on_tc() {
    run_all(Hook::Tc);
}

#[test]
fn every_case_on_xdp() {
    run_all(Hook::Xdp);
}

#[test]
fn there_are_enough_cases() {
    let count: usize = files().iter().map(|file| file.cases.len()).sum();
    assert!(count >= LEAST_CASES || std::env::var("SLUICE_CASES").is_ok(), "only {count} cases");
}
