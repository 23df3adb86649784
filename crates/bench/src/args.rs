//! `sluice bench ...`

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use serde::Serialize;

use crate::environment::{Environment, exclusive};
use crate::gateway::remove_leftovers;
use crate::harness::Hook;
use crate::packets::{Family, Protocol};
use crate::suites::budgets::{self, Budgets, Measured, Verdict};
use crate::suites::prog::{self, Kind, RowSpec};
use crate::tables;

/// Measure; docs/BENCH.md says what each number means and what it does not
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Nanoseconds a packet of the whole path, beside the floor, in interleaved rounds
    Prog(ProgArgs),
    /// Measure every promised figure and compare it with its limit
    ///
    /// Exit code 0 when measured (with --strict: only when all are kept, else 1), 2 when something could not be measured.
    Budgets(BudgetsArgs),
}

#[derive(Debug, clap::Args)]
struct ProgArgs {
    /// Hooks to measure
    #[arg(long, value_delimiter = ',', default_value = "xdp,tc")]
    hook: Vec<Hook>,
    /// Address families
    #[arg(long, value_delimiter = ',', default_value = "v4,v6")]
    family: Vec<Family>,
    /// Protocols
    #[arg(long, value_delimiter = ',', default_value = "udp,tcp")]
    protocol: Vec<Protocol>,
    /// Established sessions in the tables; the packets are twice as many and all distinct
    #[arg(long, value_delimiter = ',', default_value = "1,10000,100000,1000000")]
    sessions: Vec<usize>,
    /// Packets of existing sessions, or first packets
    #[arg(long, value_delimiter = ',', default_value = "established,new")]
    kind: Vec<Kind>,
    /// Interleaved rounds; fewer than 9 make no figure worth quoting
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Packets a round and contestant
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    repeat: u32,
    /// Sessions that the tables have room for [default: 65536, or the power of two that the row needs]
    #[arg(long)]
    capacity: Option<u32>,
    /// Also write everything, every round's samples included, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct BudgetsArgs {
    /// The promises
    #[arg(long, value_name = "FILE", default_value = "bench/budgets.toml")]
    file: PathBuf,
    /// Only budgets whose name or row contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Exit with 1 when a budget is missed
    #[arg(long)]
    strict: bool,
    /// Rounds of prog-run and live frames
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Rounds of iperf3
    #[arg(long, default_value_t = 15)]
    paired_rounds: usize,
    /// Also write everything, every round's samples included, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs `sluice bench ...`.
pub fn main(args: Args) -> Result<ExitCode> {
    remove_leftovers();
    match args.command {
        Command::Prog(args) => prog_command(&args),
        Command::Budgets(args) => match budgets_command(&args) {
            Ok(code) => Ok(code),
            Err(error) => {
                eprintln!("sluice bench: {error:#}");
                Ok(ExitCode::from(2))
            }
        },
    }
}

/// What `--json` holds.
#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: u32,
    environment: &'a Environment,
    #[serde(flatten)]
    results: &'a T,
}

const SCHEMA: u32 = 1;

fn write_json(path: Option<&Path>, environment: &Environment, results: &impl Serialize) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(&Document { schema: SCHEMA, environment, results })?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

#[derive(Serialize)]
struct ProgResults<'a> {
    prog: &'a [prog::Row],
}

fn prog_command(args: &ProgArgs) -> Result<ExitCode> {
    let _lock = exclusive()?;
    let environment = Environment::begin();
    let options = prog::Options {
        rows: args.rows(),
        rounds: args.rounds,
        repeat: args.repeat,
        capacity: args.capacity,
    };
    let prog::Outcome { rows, errors } = prog::run(&options, |row| println!("{}", tables::prog_line(row)));
    let environment = environment.end();
    println!("\n{}\n{}\n{}", tables::prog_table(&rows), tables::PROG_LEGEND, environment.lines());
    write_json(args.json.as_deref(), &environment, &ProgResults { prog: &rows })?;
    anyhow::ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(ExitCode::SUCCESS)
}

impl ProgArgs {
    fn rows(&self) -> Vec<RowSpec> {
        let mut rows = vec![];
        for family in &self.family {
            for protocol in &self.protocol {
                for sessions in &self.sessions {
                    for hook in &self.hook {
                        rows.extend(self.kind.iter().map(|kind| RowSpec {
                            hook: *hook,
                            family: *family,
                            protocol: *protocol,
                            kind: *kind,
                            sessions: *sessions,
                        }));
                    }
                }
            }
        }
        rows
    }
}

fn budgets_command(args: &BudgetsArgs) -> Result<ExitCode> {
    let mut budgets = Budgets::read(&args.file)?;
    if let Some(text) = &args.only {
        let wanted = |budget: &budgets::Budget| budget.name.contains(text) || budget.row.contains(text);
        budgets.budget.retain(wanted);
        anyhow::ensure!(!budgets.budget.is_empty(), "no budget's name or row contains `{text}`");
    }
    let _lock = exclusive()?;
    let environment = Environment::begin();
    let options =
        budgets::Options { rounds: args.rounds, paired_rounds: args.paired_rounds, ..Default::default() };
    let measured = budgets::run(&budgets, &options, &|line| println!("{line}"));
    let environment = environment.end();
    print_budgets(&measured, &environment);
    write_json(args.json.as_deref(), &environment, &measured)?;
    Ok(exit_code(&measured, args.strict))
}

fn print_budgets(measured: &Measured, environment: &Environment) {
    if !measured.frames.is_empty() {
        println!(
            "\nLive frames, 64 bytes, generator + gateway + sink on one core\n{}",
            tables::frames_table(&measured.frames)
        );
    }
    println!("\n{}", tables::budgets_table(&measured.judged, std::io::stdout().is_terminal()));
    println!("{}\n{}", tables::summary(measured), environment.lines());
    for error in &measured.errors {
        eprintln!("sluice bench: {error}");
    }
}

fn exit_code(measured: &Measured, strict: bool) -> ExitCode {
    let any = |verdict| measured.judged.iter().any(|entry| entry.verdict == verdict);
    if any(Verdict::Unknown) || !measured.errors.is_empty() {
        return ExitCode::from(2);
    }
    ExitCode::from(u8::from(strict && any(Verdict::Missed)))
}
