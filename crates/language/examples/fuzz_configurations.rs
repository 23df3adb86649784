//! Mutates real configurations until a time is over or something does not hold.
//!
//! `cargo run --release -p sluice-language --example fuzz_configurations -- [SECONDS [SEED]]`. A failing input is left in
//! `fuzz-failure.conf`.

#[path = "../tests/fuzz/mod.rs"]
mod fuzz;
#[path = "../../../tests/fuzz/run.rs"]
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    run::run(&fuzz::corpus(), "fuzz-failure.conf", fuzz::mutate, fuzz::exercise)
}
