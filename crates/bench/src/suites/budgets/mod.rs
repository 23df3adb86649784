//! Budgets: the promised figures in `bench/budgets.toml`, measured and judged. A limit is never loosened to pass.

pub mod passes;

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::method::budget::Budget;
use crate::method::cache;
use crate::method::checks;
use crate::method::document::RunDocument;
use crate::method::environment::exclusive;
use crate::method::judge::{PASSES, ROUNDS, Verdict, judge};
use crate::method::result::{Check, Profile};
use crate::report::output::{self, OutputArgs};
use crate::report::published;
use crate::report::tables;
use crate::suites::prog;
use crate::suites::{self, SUITES};

/// The promises of `bench/budgets.toml`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budgets {
    /// In the order of the file.
    pub budget: Vec<Budget>,
}

impl Budgets {
    /// Fails where a budget names no suite or no row.
    pub fn read(path: &Path) -> Result<Budgets> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read budgets from {}", path.display()))?;
        Budgets::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// As [`Budgets::read`], of a text.
    pub fn parse(text: &str) -> Result<Budgets> {
        let budgets: Budgets = toml::from_str(text)?;
        for budget in &budgets.budget {
            let name = budget.suite.as_str();
            let known = passes::STEPS.iter().any(|(step, _)| *step == name) || suites::find(name).is_some();
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

    /// Every suite that is needed, or wanted besides, once, in the order in which they run.
    fn suites(&self, also: &[&str]) -> Vec<&'static str> {
        let steps = passes::STEPS.iter().map(|(name, _)| *name);
        let listed = SUITES.iter().map(|suite| suite.name);
        let mut names: Vec<&str> = vec![];
        for name in steps.chain(listed) {
            let needed = also.contains(&name) || self.budget.iter().any(|budget| budget.suite == name);
            if needed && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

/// How often everything is measured.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Times that everything is allocated afresh.
    pub passes: usize,
    /// Rounds of each of these.
    pub rounds: usize,
}

#[derive(Debug, clap::Args)]
#[allow(missing_docs, reason = "clap would take it for help")]
pub struct BudgetsArgs {
    /// The promises
    #[arg(long, value_name = "FILE", default_value = "bench/budgets.toml")]
    file: PathBuf,
    /// Only budgets whose name, suite or row contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Exit with 1 when a budget is missed, or has no verdict
    #[arg(long)]
    strict: bool,
    /// Times that everything is allocated and measured afresh; fewer than the usual make no verdict
    #[arg(long, value_name = "N", default_value_t = PASSES, value_parser = clap::value_parser!(u16).range(1..))]
    passes: u16,
    /// Interleaved rounds of each pass; fewer than the usual make no verdict
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measure nothing: judge the figures of this file once more, by today's promises and doubts
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["only", "passes", "rounds"])]
    judge: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// `sluice bench budgets`
pub fn command(args: &BudgetsArgs) -> Result<ExitCode> {
    let budgets = Budgets::read(&args.file)?;
    let document = match &args.judge {
        Some(results) => judged_again(crate::method::document::read(results)?, &budgets),
        None => measured(args, budgets)?,
    };
    print(&document);
    output::write(&document, &args.output, SUITES)?;
    Ok(ExitCode::from(status(&document, args.strict)))
}

fn measured(args: &BudgetsArgs, mut budgets: Budgets) -> Result<RunDocument> {
    if let Some(text) = &args.only {
        let is_meant = |budget: &Budget| {
            [&budget.name, &budget.suite, &budget.row].iter().any(|word| word.contains(text))
        };
        budgets.budget.retain(is_meant);
        ensure!(!budgets.budget.is_empty(), "no budget's name, suite or row contains `{text}`");
    }
    let _lock = exclusive()?;
    let start = Instant::now();
    let mut document = crate::method::run::begin(Profile::Full);
    let options = Options { passes: args.passes.into(), rounds: args.rounds.into() };
    let also: &[&str] = if args.only.is_some() { &[] } else { &published::UNPROMISED_SUITES };
    document.suites = passes::run(&budgets, also, &options)?;
    document.budgets = judge(&budgets.budget, &document.suites);
    Ok(crate::method::run::end(document, start))
}

/// Whether the machine was quiet is told anew from what was seen of it beside each figure. The sums over passes say nothing
/// of one of them, so of what a pass failed only the walks are told anew; other checks stand.
fn judged_again(mut document: RunDocument, budgets: &Budgets) -> RunDocument {
    for figure in document.suites.iter_mut().flat_map(|suite| &mut suite.figures) {
        let Some(load) = &figure.load else { continue };
        let quiet = checks::quiet(load);
        figure.checks.retain(|check| check.name != quiet.name || stands(check));
        figure.checks.push(quiet);
    }
    document.budgets = judge(&budgets.budget, &document.suites);
    document
}

/// A pass was disturbed by more than others' use of the last cache, which is told last.
fn stands(quiet: &Check) -> bool {
    let others = quiet.detail.split(cache::DOUBT).next().unwrap_or_default();
    !quiet.passed && !others.is_empty()
}

fn print(document: &RunDocument) {
    println!("\n{}", tables::budgets_table(&document.budgets, std::io::stdout().is_terminal()));
    println!("{}\n{}", published::summary(&document.budgets), document.environment.lines());
    for suite in &document.suites {
        suite.errors.iter().for_each(|error| eprintln!("sluice bench: {}: {error}", suite.suite));
    }
}

/// 2 where something was not measured; `strict` refuses whatever is not kept.
pub fn status(document: &RunDocument, strict: bool) -> u8 {
    let failed = document.suites.iter().any(|suite| !suite.errors.is_empty());
    if failed || document.budgets.iter().any(|entry| entry.measured.is_none()) {
        return 2;
    }
    let kept = document.budgets.iter().all(|entry| entry.verdict == Verdict::Kept);
    u8::from(strict && !kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::result::{Better, Figure, SuiteResult};
    use crate::method::watch::Load;

    #[test]
    fn the_shipped_budgets_are_readable_and_name_rows_once() {
        let text = include_str!("../../../../../bench/budgets.toml");
        let budgets = Budgets::parse(text).unwrap();
        let mut seen: Vec<(&str, &str)> =
            budgets.budget.iter().map(|budget| (budget.suite.as_str(), budget.row.as_str())).collect();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }

    /// Walks whose circle the bench itself had pushed out say nothing of others; what others had of the CPUs still counts.
    #[test]
    fn stored_figures_are_judged_by_what_was_seen_beside_them() {
        let budgets = Budgets::parse(
            "[[budget]]\nname='n'\nsuite='load'\nrow='r'\nbound='at-most'\nlimit=2\nunit='s'\n",
        );
        let budgets = budgets.unwrap();
        let told = |stored: &str, others_s: f64, brought_back: bool| {
            let load = Load {
                seconds: 10.0,
                cpus: 2,
                others_s,
                walks_ns: vec![90.0; 3],
                undisturbed_ns: Some(16.0),
                brought_back,
                ..Load::default()
            };
            let mut figure = Figure::new("r", "s", Better::Lower, vec![1.0, 1.01, 0.99]);
            figure.load = Some(load);
            let pass = || SuiteResult { figures: vec![figure.clone()], ..SuiteResult::new("load") };
            let mut passes: Vec<SuiteResult> = (0..PASSES).map(|_| pass()).collect();
            passes[2].figures[0].checks.push(Check::new("machine to ourselves", false, stored));
            let mut document = crate::method::run::begin(Profile::Full);
            document.suites = vec![passes::join(passes)];
            judged_again(document, &budgets).budgets.remove(0)
        };
        let walks = "others had the last cache: a line of it took 90 ns, 16 when undisturbed";
        let judged = |others_s: f64, brought_back: bool| told(walks, others_s, brought_back);
        let quiet = judged(0.0, false);
        assert_eq!((quiet.verdict, quiet.doubts.len()), (Verdict::Kept, 0), "{:?}", quiet.doubts);
        assert!(judged(3.0, false).doubts[0].contains("other processes"));
        assert!(judged(0.0, true).doubts[0].contains("last cache"));
        let spoiled = told(&format!("other processes had 30 % of the CPUs, {walks}"), 0.0, false);
        assert_eq!(spoiled.verdict, Verdict::NoVerdict, "one pass was disturbed, all of them were not");
        assert!(spoiled.doubts[0].contains("other processes had 30 %"), "{:?}", spoiled.doubts);
    }

    #[test]
    fn only_what_is_kept_passes_strictly_and_what_is_not_measured_never() {
        let budgets = Budgets::parse(
            "[[budget]]\nname='n'\nsuite='load'\nrow='r'\nbound='at-most'\nlimit=2\nunit='s'\n",
        );
        let mut document = crate::method::run::begin(Profile::Full);
        document.budgets = judge(&budgets.unwrap().budget, &[]);
        assert_eq!([status(&document, false), status(&document, true)], [2, 2]);
        let estimate = crate::method::stats::Estimate { value: 1.0, low: 1.0, high: 1.0, n: 5 };
        document.budgets[0].measured = Some(estimate);
        for (verdict, strictly) in [(Verdict::NoVerdict, 1), (Verdict::Missed, 1), (Verdict::Kept, 0)] {
            document.budgets[0].verdict = verdict;
            assert_eq!([status(&document, false), status(&document, true)], [0, strictly], "{verdict:?}");
        }
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
