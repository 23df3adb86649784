//! Budgets: the promised figures in `bench/budgets.toml`, measured and judged. A limit is never loosened to pass.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::{Environment, exclusive};
use crate::frames::{self, Forwarder};
use crate::result::{self, Profile, SuiteResult};
use crate::run::{Machine, OutputArgs};
use crate::stats::Estimate;
use crate::suites;
use crate::suites::bulk;
use crate::suites::prog;
use crate::tables;
use crate::text::number;
use crate::way::Way;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost,
    AtLeast,
}

/// One promise.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    pub name: String,
    /// A suite of the list, or `frames`.
    pub suite: String,
    /// Row of the suite: for a suite of the list the figure's name.
    pub row: String,
    /// What the figure is relative to, in words; empty for absolute figures.
    #[serde(default)]
    pub floor: String,
    pub bound: Bound,
    pub limit: f64,
    /// `x` (a ratio), `ns`, `s`
    pub unit: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budgets {
    pub budget: Vec<Budget>,
}

impl Budgets {
    pub fn read(path: &Path) -> Result<Budgets> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read budgets from {}", path.display()))?;
        Budgets::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    pub fn parse(text: &str) -> Result<Budgets> {
        let budgets: Budgets = toml::from_str(text)?;
        for budget in &budgets.budget {
            let name = budget.suite.as_str();
            let known = STEPS.iter().any(|(step, _)| *step == name) || suites::find(name).is_some();
            ensure!(known, "budget `{}`: there is no suite `{name}`", budget.name);
            if name == "prog" {
                budget.row.parse::<prog::RowSpec>().with_context(|| format!("budget `{}`", budget.name))?;
            }
        }
        Ok(budgets)
    }

    fn rows(&self, suite: &str) -> Vec<&str> {
        self.budget.iter().filter(|budget| budget.suite == suite).map(|budget| budget.row.as_str()).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Kept,
    Missed,
    /// Nobody measured it: the row does not exist, or its suite failed.
    Unknown,
}

/// A promise beside what was measured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    pub budget: Budget,
    pub measured: Option<Estimate>,
    pub verdict: Verdict,
    /// Whether the whole interval lies on the verdict's side.
    pub certain: bool,
    /// The same measurement told in absolute figures.
    pub detail: String,
}

impl Judged {
    pub fn new(budget: Budget, figure: Option<&Figure>) -> Judged {
        let within = |value: f64| match budget.bound {
            Bound::AtMost => value <= budget.limit,
            Bound::AtLeast => value >= budget.limit,
        };
        let measured = figure.map(|figure| figure.estimate);
        let verdict = match measured {
            None => Verdict::Unknown,
            Some(estimate) if within(estimate.value) => Verdict::Kept,
            Some(_) => Verdict::Missed,
        };
        let certain = measured.is_some_and(|estimate| within(estimate.low) == within(estimate.high));
        let detail = figure.map(|figure| figure.detail.clone()).unwrap_or_default();
        Judged { measured, verdict, certain, detail, budget }
    }
}

/// A measured row by its name.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    pub estimate: Estimate,
    pub detail: String,
}

type Figures = BTreeMap<(String, String), Figure>;

#[derive(Debug, Clone)]
pub struct Options {
    pub rounds: usize,
    pub paired_rounds: usize,
    pub repeat: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: 9, paired_rounds: 15, repeat: 400_000 }
    }
}

#[derive(Debug, clap::Args)]
pub struct BudgetsArgs {
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
    #[command(flatten)]
    output: OutputArgs,
}

/// `sluice bench budgets`
pub fn command(args: &BudgetsArgs) -> Result<ExitCode> {
    let mut budgets = Budgets::read(&args.file)?;
    if let Some(text) = &args.only {
        budgets.budget.retain(|budget| budget.name.contains(text) || budget.row.contains(text));
        ensure!(!budgets.budget.is_empty(), "no budget's name or row contains `{text}`");
    }
    let _lock = exclusive()?;
    let (start, machine) = (Instant::now(), Machine::begin());
    let mut document = crate::run::begin(Profile::Full);
    let options = Options { rounds: args.rounds, paired_rounds: args.paired_rounds, ..Options::default() };
    let measured = run(&budgets, &options, &|line| println!("{line}"));
    document.suites = measured.suites()?;
    document.budgets = measured.judged.clone();
    let mut document = crate::run::end(document, start);
    let checks = machine.checks();
    for suite in &mut document.suites {
        suite.honesty.extend(checks.clone());
        crate::run::finish_figures(suite, Profile::Full);
    }
    print(&measured, &document.environment);
    crate::run::write(&document, &args.output)?;
    Ok(exit_code(&measured, args.strict))
}

fn print(measured: &Measured, environment: &Environment) {
    if !measured.frames.is_empty() {
        let table = tables::frames_table(&measured.frames);
        println!("\nLive frames, 64 bytes, generator + gateway + sink on one core\n{table}");
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

/// Everything a run of the budgets produced.
#[derive(Debug, Default)]
pub struct Measured {
    pub judged: Vec<Judged>,
    pub prog: Vec<prog::Row>,
    pub frames: Vec<frames::FramesRow>,
    pub bulk: Vec<bulk::BulkRow>,
    pub listed: Vec<SuiteResult>,
    /// Suites that could not run, and why.
    pub errors: Vec<String>,
}

impl Measured {
    fn fail(&mut self, error: String, progress: Progress<'_>) {
        progress(&error);
        self.errors.push(error);
    }

    /// The same in the form all suites share.
    fn suites(&self) -> Result<Vec<SuiteResult>> {
        let outcome = prog::Outcome { rows: self.prog.clone(), errors: vec![] };
        let mut suites = vec![
            prog::result(&outcome)?,
            suite("frames", frames_figures(&self.frames), &self.frames)?,
            suite("bulk", bulk_figures(&self.bulk), &self.bulk)?,
        ];
        suites.extend(self.listed.iter().cloned());
        suites.retain(|suite| !suite.figures.is_empty());
        if let Some(first) = suites.first_mut() {
            first.errors.extend(self.errors.iter().cloned());
        }
        Ok(suites)
    }
}

fn suite(name: &str, figures: Vec<result::Figure>, rows: &impl Serialize) -> Result<SuiteResult> {
    Ok(SuiteResult { figures, rows: serde_json::to_value(rows)?, ..SuiteResult::new(name) })
}

fn frames_figures(rows: &[frames::FramesRow]) -> Vec<result::Figure> {
    let peer = rows.iter().find(|row| row.forwarder == Forwarder::Nftables);
    let figure = |row: &frames::FramesRow| {
        let name =
            format!("{:?}, {} bytes, {} flows", row.forwarder, row.frame_bytes, row.flows).to_lowercase();
        let figure = result::Figure::new(name, "Mpps", result::Better::Higher, row.samples.clone());
        match peer.filter(|_| row.forwarder != Forwarder::Nftables) {
            Some(peer) => figure.against("nftables stateful", &peer.samples),
            None => figure,
        }
    };
    rows.iter().map(figure).collect()
}

fn bulk_figures(rows: &[bulk::BulkRow]) -> Vec<result::Figure> {
    let figure = |row: &bulk::BulkRow| {
        let name = format!("{} {} streams", row.way.name(), row.streams);
        result::Figure::new(name, "Gb/s", result::Better::Higher, row.samples.clone())
    };
    rows.iter().map(figure).collect()
}

type Progress<'a> = &'a (dyn Fn(&str) + Sync);
type Step = fn(&Budgets, &Options, &mut Measured, &mut Figures, Progress<'_>) -> Result<()>;

/// Suites whose rows the budgets choose one by one, or that are not of the list.
const STEPS: [(&str, Step); 3] = [("prog", run_prog), ("frames", run_frames), ("bulk", run_bulk)];

/// Runs the suites that the budgets need. A suite that fails leaves its budgets unknown and the others running.
pub fn run(budgets: &Budgets, options: &Options, progress: Progress<'_>) -> Measured {
    let mut measured = Measured::default();
    let mut figures = Figures::new();
    let listed: BTreeSet<&str> = budgets.budget.iter().map(|budget| budget.suite.as_str()).collect();
    let own = |name: &&str| STEPS.iter().any(|(step, _)| step == name);
    let (own, listed): (Vec<&str>, Vec<&str>) = listed.into_iter().partition(own);
    for (name, step) in STEPS.iter().filter(|(name, _)| own.contains(name)) {
        progress(&format!("suite {name}"));
        if let Err(error) = step(budgets, options, &mut measured, &mut figures, progress) {
            measured.fail(format!("{name}: {error:#}"), progress);
        }
    }
    for name in listed {
        progress(&format!("suite {name}"));
        if let Err(error) = run_listed(name, budgets, options, &mut measured, &mut figures) {
            measured.fail(format!("{name}: {error:#}"), progress);
        }
    }
    let judge = |budget: &Budget| {
        Judged::new(budget.clone(), figures.get(&(budget.suite.clone(), budget.row.clone())))
    };
    measured.judged = budgets.budget.iter().map(judge).collect();
    measured
}

/// A suite of the list in full; a figure that failed a check is no measurement.
fn run_listed(
    name: &str,
    budgets: &Budgets,
    options: &Options,
    measured: &mut Measured,
    figures: &mut Figures,
) -> Result<()> {
    let suite = suites::find(name).with_context(|| format!("there is no suite `{name}`"))?;
    let wanted = budgets.rows(name).into_iter().map(str::to_owned).collect();
    let progress = crate::progress::Progress::stderr();
    let context = suites::Context {
        profile: Profile::Full,
        rounds: options.rounds,
        interfaces: None,
        peer: None,
        wanted,
        progress: progress.clone(),
    };
    let result = (suite.run)(&context);
    progress.end();
    let result = result?;
    for budget in budgets.budget.iter().filter(|budget| budget.suite == name) {
        let Some(figure) = result.figure(&budget.row) else { continue };
        let failed = figure.checks.iter().chain(&result.honesty).find(|check| !check.passed);
        if let Some(check) = failed {
            measured.errors.push(format!("{name}: {}: {}: {}", budget.row, check.name, check.detail));
            continue;
        }
        // A figure that is a ratio itself has none to its floor.
        let is_ratio = budget.unit == "x" && figure.unit != "x";
        let estimate = if is_ratio { figure.ratio } else { Some(figure.estimate) };
        let floor =
            figure.floor.as_ref().map(|floor| format!("{} {}", number(floor.estimate.value), floor.name));
        let detail = if figure.unsteady { "UNSTEADY".to_owned() } else { floor.unwrap_or_default() };
        if let Some(estimate) = estimate {
            figures.insert((name.to_owned(), budget.row.clone()), Figure { estimate, detail });
        }
    }
    measured.errors.extend(result.errors.iter().map(|error| format!("{name}: {error}")));
    measured.listed.push(result);
    Ok(())
}

fn run_prog(
    budgets: &Budgets,
    options: &Options,
    measured: &mut Measured,
    figures: &mut Figures,
    progress: Progress<'_>,
) -> Result<()> {
    let mut rows: Vec<prog::RowSpec> = vec![];
    for row in budgets.rows("prog") {
        let row = row.parse()?;
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let options = prog::Options { rows, rounds: options.rounds, repeat: options.repeat, capacity: None };
    let outcome = prog::run(&options, |row| progress(&tables::prog_line(row)));
    for row in outcome.rows {
        let detail = format!(
            "{:.0} ns / {:.0} ns, raw {:.2}x, floor against itself {:.2}{}",
            row.target_ns.value,
            row.floor_ns.value,
            row.ratio_raw.value,
            row.same_ratio.value,
            if row.unsteady { ", UNSTEADY" } else { "" }
        );
        figures.insert(("prog".to_owned(), row.name.clone()), Figure { estimate: row.ratio, detail });
        measured.prog.push(row);
    }
    outcome.errors.iter().for_each(|error| progress(error));
    measured.errors.extend(outcome.errors);
    Ok(())
}

fn run_frames(
    _: &Budgets,
    options: &Options,
    measured: &mut Measured,
    figures: &mut Figures,
    _: Progress<'_>,
) -> Result<()> {
    let forwarders = [Forwarder::Sluice, Forwarder::Nftables, Forwarder::Linux, Forwarder::Nobody];
    let rows = frames::run(&forwarders, 10_000, options.rounds)?;
    let rates = rows.iter().map(|row| format!("{:?} {:.2}", row.forwarder, row.mpps.value).to_lowercase());
    let detail = format!("Mpps: {}", rates.collect::<Vec<_>>().join(", "));
    for row in &rows {
        if let (Forwarder::Sluice, Some(ratio)) = (row.forwarder, row.ratio_to_nftables) {
            let figure = Figure { estimate: ratio, detail: detail.clone() };
            figures.insert(("frames".to_owned(), "udp 64 bytes, 10000 flows".to_owned()), figure);
        }
    }
    measured.frames = rows;
    Ok(())
}

fn run_bulk(
    _: &Budgets,
    options: &Options,
    measured: &mut Measured,
    figures: &mut Figures,
    _: Progress<'_>,
) -> Result<()> {
    let rows = bulk::run(&[1, 4], options.paired_rounds)?;
    for row in rows.iter().filter(|row| row.way != Way::Tc) {
        let against = match row.way {
            Way::BareRedirect => "bare redirect",
            _ => "linux",
        };
        let sluice = rows.iter().find(|other| other.way == Way::Tc && other.streams == row.streams);
        let sluice = sluice.map_or(f64::NAN, |sluice| sluice.gbps.value);
        let detail = format!("{sluice:.1} Gb/s / {:.1} Gb/s", row.gbps.value);
        let name = format!("tc {} streams to {against}", row.streams);
        figures.insert(("bulk".to_owned(), name), Figure { estimate: row.sluice_ratio, detail });
    }
    measured.bulk = rows;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bound: Bound, limit: f64) -> Budget {
        Budget {
            name: "n".to_owned(),
            suite: "load".to_owned(),
            row: "r".to_owned(),
            floor: String::new(),
            bound,
            limit,
            unit: "x".to_owned(),
        }
    }

    fn figure(value: f64, low: f64, high: f64) -> Figure {
        Figure { estimate: Estimate { value, low, high, n: 9 }, detail: String::new() }
    }

    #[test]
    fn a_limit_is_kept_or_missed_and_the_interval_says_how_surely() {
        let judge = |bound, value, low, high| {
            let judged = Judged::new(budget(bound, 2.0), Some(&figure(value, low, high)));
            (judged.verdict, judged.certain)
        };
        assert_eq!(judge(Bound::AtMost, 1.9, 1.8, 1.95), (Verdict::Kept, true));
        assert_eq!(judge(Bound::AtMost, 1.9, 1.8, 2.1), (Verdict::Kept, false));
        assert_eq!(judge(Bound::AtMost, 2.0, 2.0, 2.0), (Verdict::Kept, true));
        assert_eq!(judge(Bound::AtMost, 2.01, 2.005, 2.1), (Verdict::Missed, true));
        assert_eq!(judge(Bound::AtLeast, 1.9, 1.8, 1.95), (Verdict::Missed, true));
        assert_eq!(judge(Bound::AtLeast, 4.0, 3.9, 4.1), (Verdict::Kept, true));
    }

    #[test]
    fn what_nobody_measured_is_not_kept() {
        let judged = Judged::new(budget(Bound::AtMost, 2.0), None);
        assert_eq!((judged.verdict, judged.certain), (Verdict::Unknown, false));
    }

    #[test]
    fn the_shipped_budgets_are_readable_and_name_rows_once() {
        let text = include_str!("../../../../bench/budgets.toml");
        let budgets = Budgets::parse(text).unwrap();
        let mut seen: Vec<(&str, &str)> =
            budgets.budget.iter().map(|budget| (budget.suite.as_str(), budget.row.as_str())).collect();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn unknown_words_in_a_budget_are_refused() {
        let text =
            "[[budget]]\nname='n'\nsuite='load'\nrow='r'\nbound='at-most'\nlimit=1\nunit='s'\nsloppy=true\n";
        assert!(Budgets::parse(text).is_err());
        let text = "[[budget]]\nname='n'\nsuite='prog'\nrow='r'\nbound='at-most'\nlimit=1\nunit='s'\n";
        assert!(format!("{:#}", Budgets::parse(text).unwrap_err()).contains("is not of the form"));
        let error = Budgets::parse(&text.replace("'prog'", "'prug'")).unwrap_err();
        assert!(format!("{error:#}").contains("there is no suite `prug`"), "{error:#}");
    }
}
