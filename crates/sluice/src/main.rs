//! `sluice`: the daemon, its checks and its reports, in one binary.
//!
//! Exit codes: 0 ok, 1 failure while running, 2 bad usage or bad configuration.

mod api;
mod arguments;
mod check;
mod cli;
mod commit;
mod configurations;
mod drops;
mod exit;
mod fanout;
mod follow;
mod gate;
mod help;
mod import;
mod interrupt;
mod matching;
mod messages;
mod nat;
mod output;
mod run;
mod sessions;
mod setup;
mod show;
mod trace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

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
    /// Take over the configuration of a Junos router or firewall
    ///
    /// Writes a configuration that `check` accepts, in which what Sluice does not do stands as `inactive:`, and tells what that
    /// costs, costliest first. Exit codes: 0 all is taken over, 1 something is inactive, 2 nothing to use.
    Import(import::ImportArgs),
    /// Make the running gateway use a configuration: all of it or, on any error, nothing
    ///
    /// Without a file it is the candidate that is committed: what `load`, `rollback` and the shell have made.
    Commit(commit::CommitArgs),
    /// Load a text into the candidate configuration
    Load(configurations::LoadArgs),
    /// Make the candidate what was committed earlier
    Rollback(configurations::RollbackArgs),
    /// Show how the configuration in force, or an earlier one, becomes the candidate
    Compare(configurations::CompareArgs),
    /// List commits: who, when, why
    History(configurations::HistoryArgs),
    /// Save a configuration that is known to work, beside the history
    Rescue(configurations::RescueArgs),
    /// Show what the running gateway does
    Show(show::ShowArgs),
    /// Show packets on their way: phases and stages, the rule with its line, translation, next hop, verdict and reason
    ///
    /// A packet fits a filter as it comes or as it leaves. While it runs, traced programs stand in the places of the gateway's
    /// own; nothing of it is there before and after. It works without the daemon, too.
    Trace(trace::TraceArgs),
    /// Capture packets as they come and as they leave, with what became of each as its comment
    ///
    /// Also those that are redirected, which packet sockets (tcpdump) never see. Without -w it prints a line a packet.
    Capture(trace::CaptureArgs),
    /// Ask what a configuration would do
    Test(matching::TestArgs),
    /// The shell: operational and configuration mode, as on the appliance
    Cli(cli::CliArgs),
    /// Give, revoke and list grants of the gate
    Gate(gate::GateArgs),
    /// End sessions
    Clear(sessions::ClearArgs),
    /// Ask or tell the running gateway anything, by the name that docs/API.md has for it
    ///
    /// What it answers is printed as data. `show`, `clear`, `gate` and `commit` say the same in a form for people.
    Api(api::ApiArgs),
    /// Remove everything a gateway left behind: programs, pins, sessions, guard, addresses and routes it added
    ///
    /// What was committed goes, too (configuration, history, rescue, candidate), with GTP-U sessions made over the API and
    /// leases of DHCP, unless --keep-commits is given.
    Cleanup(run::CleanupArgs),
    /// Keep the kernel from forwarding between the interfaces of the last commit
    ///
    /// For a machine that starts, before its network is up; `sluice run` takes over from there.
    Guard(run::GuardArgs),
    /// Write a first configuration of this machine, which lets SSH in where it is typed
    Setup(setup::SetupArgs),
    /// Print the version
    Version,
    /// Print what a shell needs to complete these commands
    ///
    /// For bash: `sluice completion bash > /etc/bash_completion.d/sluice`; zsh looks in its $fpath for `_sluice`, fish in
    /// ~/.config/fish/completions for `sluice.fish`.
    Completion(help::CompletionArgs),
    /// Write manual pages
    #[command(hide = true)]
    Man(help::ManArgs),
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

/// As they were given; called as a login shell, those of `sluice cli`.
fn arguments() -> Vec<OsString> {
    let mut given: Vec<OsString> = std::env::args_os().collect();
    if given.first().is_some_and(|name| cli::is_login(&name.to_string_lossy())) {
        given.splice(..1, ["sluice".into(), "cli".into()]);
    }
    given
}

fn main() -> ExitCode {
    exit::quiet_on_closed_pipe();
    let result: Outcome = match Cli::parse_from(arguments()).command {
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::check(&args),
        Command::Import(args) => import::import(&args),
        Command::Commit(args) => commit::commit(&args),
        Command::Load(args) => configurations::load(&args),
        Command::Rollback(args) => configurations::rollback(&args),
        Command::Compare(args) => configurations::compare(&args),
        Command::History(args) => configurations::history(&args),
        Command::Rescue(args) => configurations::rescue(&args),
        Command::Show(args) => show::show(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Capture(args) => trace::capture(&args),
        Command::Test(args) => matching::test(&args),
        Command::Cli(args) => cli::cli(&args),
        Command::Gate(args) => gate::gate(&args),
        Command::Clear(args) => sessions::clear(&args),
        Command::Api(args) => api::api(&args),
        Command::Cleanup(args) => run::cleanup(&args),
        Command::Guard(args) => run::guard(&args),
        Command::Setup(args) => setup::setup(&args),
        Command::Version => show::version(),
        Command::Completion(args) => help::completion(&args, Cli::command()),
        Command::Man(args) => help::man(&args, Cli::command()),
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
