//! Every case of `tests/packet`, on both hooks, by prog-run.

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use sluice_packet_tests::case::File;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::judge::Judge;
use sluice_packet_tests::kept::Kept;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::refused::Watch;
use sluice_wire::text::dissect;

/// Fewer cases than this means that files were not found.
const LEAST_CASES: usize = 80;
/// And fewer reasons to refuse a packet.
const LEAST_REASONS: usize = 80;
/// And a file of translations with fewer packets than this was not run.
const LEAST_TRANSLATED: usize = 50;

fn files() -> Vec<File> {
    File::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// Keeps the thread on the CPU that it is on: each has its own turns of a listener.
fn stay() {
    let mut here = CpuSet::new();
    let pinned = sched_getcpu()
        .and_then(|cpu| here.set(cpu))
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &here));
    pinned.expect("a CPU that the thread is on");
}

/// Failures of one file on one hook.
fn run_file(file: &File, hook: Hook, kept: &mut Kept<Gateway>, watch: &mut Watch) -> Vec<String> {
    let mut failures = Vec::new();
    let gateway = match kept.of(file) {
        Ok(gateway) => gateway,
        Err(error) => return vec![format!("{} on {}: {error:#}", file.path.display(), hook.name())],
    };
    for case in &file.cases {
        if case.only.as_ref().is_some_and(|only| only != hook.name()) {
            continue;
        }
        if let Err(error) = watch.run(gateway, case) {
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
    let (failures, watch): (Vec<String>, Watch) = in_thread(move || {
        stay();
        let idle = |gateway: Gateway| gateway.idle_near_ends().map(|()| gateway);
        let (mut kept, mut watch) = (Kept::new(hook, idle), Watch::default());
        (files.iter().flat_map(|file| run_file(file, hook, &mut kept, &mut watch)).collect(), watch)
    });
    assert!(failures.is_empty(), "{} cases fail\n\n{}", failures.len(), failures.join("\n"));
    // what a reason may write is told of its first packet in all the files
    if std::env::var("SLUICE_CASES").is_err() {
        assert!(watch.wrong.is_empty(), "refused on {}, but {}", hook.name(), watch.wrong.join(", "));
        assert!(watch.reasons.len() >= LEAST_REASONS, "{:?}", watch.reasons);
    }
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
