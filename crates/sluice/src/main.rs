//! `sluice`: the daemon, its checks and its reports, in one binary.
//!
//! Exit codes: 0 ok, 1 failure while running, 2 bad usage or bad configuration.

mod check;
mod commit;
mod exit;
mod fanout;
mod gate;
mod matching;
mod nat;
mod output;
mod run;
mod sessions;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use exit::Outcome;

/// Linux gateway on XDP and tc, configured in Junos syntax.
#[derive(Parser)]
#[command(name = "sluice", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway in the foreground
    ///
    /// Programs, sessions, addresses and routes stay in force when it ends; `sluice cleanup` removes them.
    Run(run::RunArgs),
    /// Check a configuration without touching anything
    ///
    /// Reports errors of the text with file:line:column, statements that Sluice does not support, and what this
    /// machine could not do (missing interfaces, refused MTUs, full tables).
    Check(check::CheckArgs),
    /// Make the running gateway use a configuration: all of it or, on any error, nothing
    Commit(commit::CommitArgs),
    /// Show what the running gateway does
    Show(show::ShowArgs),
    /// Ask what a configuration would do
    Test(matching::TestArgs),
    /// Give, revoke and list grants of the gate
    Gate(gate::GateArgs),
    /// End sessions
    Clear(sessions::ClearArgs),
    /// Remove everything a gateway left behind: programs, pins, sessions, guard, addresses and routes it added
    Cleanup(run::CleanupArgs),
    /// Print the version
    Version,
    /// Spread UDP datagrams over receivers, as a YAML file says
    ///
    /// SIGHUP, or a change of the file, puts the file in force anew without losing a packet. Modes xdp, tc_ebpf and auto run
    /// the gateway daemon with a generated configuration; userspace and tcp_forward alone need no privileges.
    Fanout(fanout::FanoutArgs),
    /// Lay out, exercise and remove network-namespace topologies
    #[cfg(feature = "workshop")]
    Lab(sluice_lab::Args),
    Monitor(sluice_monitor::args::Args),
    Pcap(sluice_monitor::args::PcapArgs),
    /// Measure speed and judge it by the promised budgets
    #[cfg(feature = "workshop")]
    Bench(sluice_bench::Args),
}

/// Which gateway of this machine is meant.
#[derive(Args, Clone)]
pub struct Instance {
    /// Directory of its state, lock and socket
    #[arg(long, value_name = "DIR", default_value = sluice_control::DEFAULT_STATE_DIR)]
    pub state_dir: PathBuf,
}

fn main() -> ExitCode {
    exit::quiet_on_closed_pipe();
    let result: Outcome = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Commit(args) => commit::commit(&args),
        Command::Show(args) => show::show(&args),
        Command::Test(args) => matching::test(&args),
        Command::Gate(args) => gate::gate(&args),
        Command::Clear(args) => sessions::clear(&args),
        Command::Cleanup(args) => run::cleanup(&args),
        Command::Version => show::version(),
        Command::Fanout(args) => fanout::run(&args),
        #[cfg(feature = "workshop")]
        Command::Lab(args) => sluice_lab::main(args).map_err(exit::Failure::from),
        Command::Monitor(args) => sluice_monitor::args::main(args).map_err(exit::Failure::from),
        Command::Pcap(args) => sluice_monitor::args::pcap(&args).map_err(exit::Failure::from),
        #[cfg(feature = "workshop")]
        Command::Bench(args) => sluice_bench::main(args).map_err(exit::Failure::from),
    };
    exit::code(result)
}
