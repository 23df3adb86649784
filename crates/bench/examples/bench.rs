use clap::Parser;
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: sluice_bench::Args,
}
fn main() -> anyhow::Result<std::process::ExitCode> {
    sluice_bench::main(Cli::parse().args)
}
