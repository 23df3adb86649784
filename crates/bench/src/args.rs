//! `sluice bench ...`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{ArgMatches, FromArgMatches, Subcommand};
use sluice_lab::interrupt;

use crate::method::document::{self, RunDocument};
use crate::method::progress::Progress;
use crate::method::result::Profile;
use crate::method::run;
use crate::method::suite::{self, Suite};
use crate::report::compare;
use crate::report::output::{self, OutputArgs};
use crate::report::text;
use crate::suites::options::CommonArgs;
use crate::suites::{self, SUITES, budgets, gate, prog};
use crate::testbed::gateway::remove_leftovers;

/// Measure; docs/BENCH.md says what each number means and what it does not
///
/// Exit code 0 when measured, 1 for a regression (compare) or a missed budget (budgets --strict), 2 when something could
/// not be measured or did not stand its own checks.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug)]
enum Command {
    /// A suite of the list, by its name.
    Suite(&'static Suite, CommonArgs),
    Other(Other),
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What is not simply a suite.
#[derive(Debug, Subcommand)]
enum Other {
    /// Run every suite
    All(CommonArgs),
    #[command(about = prog::SUITE.help, after_help = suite::says(&prog::SUITE))]
    Prog(prog::ProgArgs),
    #[command(about = gate::SUITE.help, after_help = suite::says(&gate::SUITE))]
    Gate(gate::GateArgs),
    /// Measure every promised figure and compare it with its limit
    ///
    /// Exit code 0 when measured (with --strict: only when all are kept, else 1), 2 when something could not be measured.
    Budgets(budgets::BudgetsArgs),
    /// Say of two runs what became faster, slower, or neither
    ///
    /// Exit code 1 when something became slower.
    Compare(compare::CompareArgs),
    /// Make the report of results that were written as JSON
    Report(ReportArgs),
    Serve(crate::generator::wire::control::ServeArgs),
    Replay(crate::generator::wire::pcap::ReplayArgs),
    /// The plain relay of the suite `fanout`, until it is killed
    #[command(hide = true)]
    Relay(crate::generator::relay::RelayArgs),
    /// The bare ring forwarder of the suite `fanout`, until it is killed
    #[command(hide = true)]
    RingRelay(crate::generator::ring_relay::RingRelayArgs),
}

#[derive(Debug, clap::Args)]
struct ReportArgs {
    /// What `--json` wrote
    results: PathBuf,
    /// Where the report goes
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    html: PathBuf,
}

impl Subcommand for Command {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        let listed = |suite: &&'static Suite| ![prog::SUITE.name, gate::SUITE.name].contains(&suite.name);
        let add = |command: clap::Command, suite: &'static Suite| {
            let own = <CommonArgs as clap::Args>::augment_args(clap::Command::new(suite.name));
            // Its options would tell of themselves.
            command.subcommand(own.about(suite.help).long_about(None).after_help(suite::says(suite)))
        };
        SUITES.iter().filter(listed).fold(Other::augment_subcommands(command), add)
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Command::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        suites::find(name).is_some() || Other::has_subcommand(name)
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        match matches.subcommand() {
            Some((name, own)) if !Other::has_subcommand(name) => {
                let suite = suites::find(name)
                    .ok_or_else(|| clap::Error::new(clap::error::ErrorKind::InvalidSubcommand))?;
                Ok(Command::Suite(suite, CommonArgs::from_arg_matches(own)?))
            }
            _ => Ok(Command::Other(Other::from_arg_matches(matches)?)),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Command::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs `sluice bench ...`.
pub fn main(args: Args) -> Result<ExitCode> {
    let result = match args.command {
        Command::Suite(suite, args) => measure(&[suite], &args),
        Command::Other(Other::All(args)) => measure(&SUITES.iter().collect::<Vec<_>>(), &args),
        Command::Other(Other::Prog(args)) => {
            ready().and_then(|()| show(&prog::command(&args)?, &args.common.output))
        }
        Command::Other(Other::Gate(args)) => ready().and_then(|()| match gate::command(&args)? {
            Some(document) => show(&document, &args.common.output),
            None => Ok(ExitCode::SUCCESS),
        }),
        Command::Other(Other::Budgets(args)) => ready().and_then(|()| budgets::command(&args)),
        Command::Other(Other::Compare(args)) => compare::command(&args),
        Command::Other(Other::Report(args)) => report(&args),
        Command::Other(Other::Serve(args)) => crate::generator::wire::control::command(&args),
        Command::Other(Other::Relay(args)) => crate::generator::relay::command(&args),
        Command::Other(Other::RingRelay(args)) => crate::generator::ring_relay::command(&args),
        Command::Other(Other::Replay(args)) => crate::generator::wire::pcap::command(&args),
    };
    result.or_else(|error| {
        eprintln!("sluice bench: {error:#}");
        Ok(ExitCode::from(2))
    })
}

/// Whatever a killed bench left behind would be measured along.
fn ready() -> Result<()> {
    anyhow::ensure!(
        nix::unistd::geteuid().is_root(),
        "must run as root: the bench makes network namespaces and loads BPF programs"
    );
    interrupt::install_once()?;
    remove_leftovers();
    Ok(())
}

fn measure(suites: &[&Suite], args: &CommonArgs) -> Result<ExitCode> {
    ready()?;
    let document = run::run(suites, &args.context(Profile::Quick, Progress::stderr()))?;
    show(&document, &args.output)
}

fn show(document: &RunDocument, output: &OutputArgs) -> Result<ExitCode> {
    print!("{}", text::document(document));
    output::write(document, output, SUITES)?;
    Ok(run::exit_code(document))
}

fn report(args: &ReportArgs) -> Result<ExitCode> {
    let document = document::read(&args.results)?;
    std::fs::write(&args.html, crate::report::html::render(&document, SUITES)?)
        .with_context(|| format!("cannot write {}", args.html.display()))?;
    eprintln!("report: {}", args.html.display());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.args.command)
    }

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_suite_is_a_command_with_its_help() {
        for suite in SUITES {
            let help = parse(&format!("{} --help", suite.name)).unwrap_err().to_string();
            let unwrapped = help.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(unwrapped.contains(suite.help) && unwrapped.contains(suite.silent[0]), "{help}");
            assert!(parse(&format!("{} --profile full --if a,b", suite.name)).is_ok());
        }
        assert!(matches!(parse("all --html r.html"), Ok(Command::Other(Other::All(_)))));
        assert!(parse("nothing").is_err());
    }
}
