//! The lab without the rest of Sluice: `cargo run -p sluice-lab --example lab -- run branch --gateway linux`.

use clap::Parser;

#[derive(Parser)]
struct Lab {
    #[command(flatten)]
    args: sluice_lab::Args,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    sluice_lab::main(Lab::parse().args)
}
