//! Every case of `tests/packet`, on both hooks, by prog-run.

use std::path::PathBuf;

use sluice_dataplane::Sizes;
use sluice_packet_tests::case::{Action, File};
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

/// The gateway of the file before, which files of the same world use again.
#[derive(Default)]
struct Last(Option<(PathBuf, u32, Gateway)>);

impl Last {
    fn gateway(&mut self, file: &File, hook: Hook) -> anyhow::Result<&mut Gateway> {
        let fits =
            |(world, sessions, _): &(PathBuf, u32, _)| (world, *sessions) == (&file.world, file.sessions);
        if !self.0.as_ref().is_some_and(fits) {
            let world = World::read(&file.world)?;
            let config = std::fs::read_to_string(&world.config)?;
            let sizes = Sizes { sessions4: file.sessions, sessions6: file.sessions, ..Sizes::default() };
            let gateway = Gateway::new(world, &config, sizes, hook)?;
            gateway.idle_near_ends()?;
            self.0 = Some((file.world.clone(), file.sessions, gateway));
        }
        Ok(&mut self.0.as_mut().expect("it was made just now").2)
    }
}

/// Whether a file leaves another configuration, or other addresses, than it found.
fn changes_the_gateway(file: &File) -> bool {
    let mut steps = file.cases.iter().flat_map(|case| &case.steps);
    steps.any(|step| matches!(step.action, Action::Commit(_) | Action::Ip(_)))
}

/// Failures of one file on one hook.
fn run_file(file: &File, hook: Hook, last: &mut Last) -> Vec<String> {
    let mut failures = Vec::new();
    if changes_the_gateway(file) {
        *last = Last::default();
    }
    let gateway = match last.gateway(file, hook) {
        Ok(gateway) => gateway,
        Err(error) => return vec![format!("{} on {}: {error:#}", file.path.display(), hook.name())],
    };
    for case in &file.cases {
        if case.only.as_ref().is_some_and(|only| only != hook.name()) {
            continue;
        }
        if let Err(error) = table::run(gateway, case) {
            let place = format!("{}:{} on {}", file.path.display(), case.line, hook.name());
            failures.push(format!("{place}: case \"{}\"\n{error:#}", case.name));
        }
    }
    let forwarded = std::mem::take(&mut gateway.forwarded);
    if file.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nat")) {
        let judged = judge(&forwarded).unwrap_or_else(|error| vec![format!("{error:#}")]);
        failures.extend(
            judged.into_iter().map(|text| format!("{} on {}: {text}", file.path.display(), hook.name())),
        );
    }
    if changes_the_gateway(file) {
        *last = Last::default();
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
    let failures: Vec<String> = in_thread(move || {
        let mut last = Last::default();
        files.iter().flat_map(|file| run_file(file, hook, &mut last)).collect()
    });
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
