//! Mutates captures until a time is over or something does not hold.
//!
//! `cargo run --release -p sluice-monitor --example fuzz_captures -- [SECONDS [SEED]]`. A failing input is left in
//! `fuzz-failure.pcap`.

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[path = "../../../tests/fuzz/run.rs"]
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let corpus = fuzz::corpus(folder.path());
    run::run(&corpus, "fuzz-failure.pcap", fuzz::mutate, |bytes| fuzz::exercise(folder.path(), bytes))
}
