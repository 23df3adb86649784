//! `sluice bench compare A B`: what became faster, slower, or neither.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};

use crate::method::document::{self, RunDocument};
use crate::method::number::number;
use crate::method::result::{Better, Estimate, Figure};
use crate::method::stats::{median, ratio_of_medians};

#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Results of the earlier run, as `--json` wrote them
    before: PathBuf,
    /// Results of the later run
    after: PathBuf,
    /// Differences up to this many per cent are none, whatever the intervals say
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    margin: f64,
    /// Only figures whose suite or name contains this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Faster,
    Slower,
    /// The interval holds 1, or the difference is within the margin.
    None,
    /// One of the runs is unsteady or failed a check of its own: no verdict.
    Undecided,
}

/// A figure that both runs have.
#[derive(Debug, Clone)]
pub struct Row {
    pub suite: String,
    pub name: String,
    pub unit: String,
    pub before: Estimate,
    pub after: Estimate,
    /// After over before. Where both were measured beside the same floor, each relative to its own: what the machine did
    /// meanwhile cancels.
    pub ratio: Estimate,
    pub by_floor: bool,
    pub change: Change,
}

#[derive(Debug, Default)]
pub struct Comparison {
    pub rows: Vec<Row>,
    /// Figures that only one of the runs has.
    pub missing: Vec<String>,
    pub added: Vec<String>,
    /// What makes the runs hard to compare.
    pub warnings: Vec<String>,
}

pub fn command(args: &CompareArgs) -> Result<ExitCode> {
    let (before, after) = (document::read(&args.before)?, document::read(&args.after)?);
    let mut comparison = compare(&before, &after, args.margin / 100.0);
    if let Some(text) = &args.only {
        comparison.rows.retain(|row| row.suite.contains(text) || row.name.contains(text));
    }
    if comparison.rows.is_empty() {
        bail!("the two runs have no figure in common");
    }
    print!("{}", table(&comparison));
    let slower = comparison.rows.iter().any(|row| row.change == Change::Slower);
    Ok(ExitCode::from(u8::from(slower)))
}

pub fn compare(before: &RunDocument, after: &RunDocument, margin: f64) -> Comparison {
    let mut comparison = Comparison { warnings: warnings(before, after), ..Comparison::default() };
    let names = |document: &RunDocument| -> BTreeSet<(String, String)> {
        let suites = document.suites.iter();
        suites.flat_map(|s| s.figures.iter().map(|f| (s.suite.clone(), f.name.clone()))).collect()
    };
    let (old, new) = (names(before), names(after));
    let told = |(suite, name): &(String, String)| format!("{suite}: {name}");
    comparison.missing = old.difference(&new).map(told).collect();
    comparison.added = new.difference(&old).map(told).collect();
    for suite in &after.suites {
        let Some(earlier) = before.suites.iter().find(|other| other.suite == suite.suite) else { continue };
        for figure in &suite.figures {
            let Some(old) = earlier.figure(&figure.name).filter(|old| old.unit == figure.unit) else {
                continue;
            };
            let fit = old.quotable(&earlier.checks) && figure.quotable(&suite.checks);
            comparison.rows.push(row(&suite.suite, old, figure, margin, fit));
        }
    }
    comparison
}

fn row(suite: &str, old: &Figure, new: &Figure, margin: f64, fit: bool) -> Row {
    let floors = old.floor.as_ref().zip(new.floor.as_ref()).filter(|(a, b)| a.name == b.name);
    let relative = |figure: &Figure| -> Vec<f64> {
        let floor = figure.floor.iter().flat_map(|floor| &floor.samples);
        figure.samples.iter().zip(floor).map(|(sample, floor)| sample / floor).collect()
    };
    let (by_floor, old_samples, new_samples) = match floors {
        Some(_) if new.unit != "x" => (true, relative(old), relative(new)),
        _ => (false, old.samples.clone(), new.samples.clone()),
    };
    let ratio = ratio_of_medians(&by_pass(new, &new_samples), &by_pass(old, &old_samples));
    let change = if !fit || is_signed(old, new) {
        Change::Undecided
    } else if median(&old.samples) == 0.0 || old.estimate.value == 0.0 {
        beside_nothing(old, new)
    } else {
        judge(&ratio, new.better, margin)
    };
    Row {
        suite: suite.to_owned(),
        name: new.name.clone(),
        unit: new.unit.clone(),
        before: old.estimate,
        after: new.estimate,
        ratio,
        by_floor,
        change,
    }
}

/// Rounds of a pass share what it has allocated: they are one sample, their median.
fn by_pass(figure: &Figure, samples: &[f64]) -> Vec<f64> {
    match samples.len().div_ceil(figure.passes.max(1)) {
        _ if figure.passes == 0 => samples.to_vec(),
        0 => vec![],
        rounds => samples.chunks(rounds).map(median).collect(),
    }
}

/// A ratio of what may be negative, as differences between two runs may, says nothing.
fn is_signed(old: &Figure, new: &Figure) -> bool {
    old.estimate.low < 0.0 || new.estimate.value < 0.0
}

fn worst(figure: &Figure) -> f64 {
    Estimate::worst(&figure.samples).value
}

/// A ratio to zero says nothing: lost packets where there were none are a difference whatever their number, also in few
/// rounds.
fn beside_nothing(old: &Figure, new: &Figure) -> Change {
    let (up, down) = changes(new.better);
    match worst(new).total_cmp(&worst(old)) {
        Ordering::Equal => Change::None,
        Ordering::Greater => up,
        Ordering::Less => down,
    }
}

/// What more and less are.
fn changes(better: Better) -> (Change, Change) {
    match better {
        Better::Higher => (Change::Faster, Change::Slower),
        Better::Lower => (Change::Slower, Change::Faster),
    }
}

fn judge(ratio: &Estimate, better: Better, margin: f64) -> Change {
    let (up, down) = changes(better);
    if !ratio.value.is_finite() {
        Change::Undecided
    } else if ratio.low > 1.0 && ratio.value > 1.0 + margin {
        up
    } else if ratio.high < 1.0 && ratio.value < 1.0 / (1.0 + margin) {
        down
    } else {
        Change::None
    }
}

fn warnings(before: &RunDocument, after: &RunDocument) -> Vec<String> {
    let (old, new) = (&before.environment, &after.environment);
    let mut warnings = vec![];
    let mut differ = |what: &str, a: &str, b: &str| {
        if a != b {
            warnings.push(format!("{what} differs: {a} before, {b} after"));
        }
    };
    differ("CPU", &old.cpu, &new.cpu);
    differ("number of CPUs", &old.cpus.to_string(), &new.cpus.to_string());
    differ("kernel", &old.kernel, &new.kernel);
    differ("profile", &format!("{:?}", before.profile), &format!("{:?}", after.profile));
    warnings
}

fn table(comparison: &Comparison) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY).set_header([
        "suite",
        "figure",
        "before",
        "after",
        "unit",
        "after / before",
        "95 %",
        "verdict",
    ]);
    for row in &comparison.rows {
        table.add_row([
            row.suite.clone(),
            row.name.clone(),
            number(row.before.value),
            number(row.after.value),
            row.unit.clone(),
            format!("{:.3}{}", row.ratio.value, if row.by_floor { " by floor" } else { "" }),
            format!("[{:.3}, {:.3}]", row.ratio.low, row.ratio.high),
            word(row.change).to_owned(),
        ]);
    }
    for column in [2, 3, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let count = |change| comparison.rows.iter().filter(|row| row.change == change).count();
    let mut text = format!("{table}\n");
    for (what, names) in [("only before", &comparison.missing), ("only after", &comparison.added)] {
        names.iter().for_each(|name| text += &format!("{what}: {name}\n"));
    }
    comparison.warnings.iter().for_each(|warning| text += &format!("WARNING: {warning}\n"));
    text + &format!(
        "{} figures: {} faster, {} slower, {} no difference, {} undecided (unsteady, or a check failed)\n",
        comparison.rows.len(),
        count(Change::Faster),
        count(Change::Slower),
        count(Change::None),
        count(Change::Undecided)
    )
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Faster => "faster",
        Change::Slower => "SLOWER",
        Change::None => "no difference",
        Change::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::result::{Profile, SuiteResult};
    use std::time::Instant;

    fn rounds(value: f64) -> Vec<f64> {
        (0..9).map(|round| value * (1.0 + 0.002 * f64::from(round - 4))).collect()
    }

    fn run(figures: Vec<Figure>) -> RunDocument {
        let mut document = crate::method::run::end(crate::method::run::begin(Profile::Full), Instant::now());
        document.suites.push(SuiteResult { figures, ..SuiteResult::new("test") });
        document
    }

    fn one(better: Better, before: f64, after: f64) -> Change {
        let figure = |value| Figure::new("a", "unit", better, rounds(value));
        compare(&run(vec![figure(before)]), &run(vec![figure(after)]), 0.05).rows[0].change
    }

    #[test]
    fn faster_slower_and_no_difference() {
        assert_eq!(one(Better::Lower, 100.0, 80.0), Change::Faster);
        assert_eq!(one(Better::Lower, 100.0, 130.0), Change::Slower);
        assert_eq!(one(Better::Higher, 100.0, 80.0), Change::Slower);
        assert_eq!(one(Better::Higher, 100.0, 130.0), Change::Faster);
        assert_eq!(one(Better::Lower, 100.0, 103.0), Change::None, "within the margin");
        assert_eq!(one(Better::Higher, 0.0, 0.0), Change::None, "nothing lost before and after");
        assert_eq!(one(Better::Lower, 0.0, 7.0), Change::Slower, "packets are lost where none were");
    }

    #[test]
    fn a_loss_in_one_round_is_one_beside_none() {
        let figure = |lost: f64| {
            let mut samples = vec![0.0; 9];
            samples[4] = lost;
            run(vec![Figure::new("a", "packets", Better::Lower, samples).worst()])
        };
        let change = |before, after| compare(&figure(before), &figure(after), 0.05).rows[0].change;
        assert_eq!(change(0.0, 7.0), Change::Slower);
        assert_eq!(change(7.0, 0.0), Change::Faster);
        assert_eq!(change(7.0, 7.0), Change::None);
    }

    #[test]
    fn below_nothing_there_is_no_ratio() {
        assert_eq!(one(Better::Lower, -0.5, 20.0), Change::Undecided);
        assert_eq!(one(Better::Lower, 20.0, -0.5), Change::Undecided);
    }

    /// Two of three passes are slower: nine rounds that do not know of passes would call that certain.
    #[test]
    fn rounds_of_a_pass_are_one_sample() {
        let joined = |passes: [f64; 3]| {
            let samples: Vec<f64> =
                passes.iter().flat_map(|value| [value - 0.01, *value, value + 0.01]).collect();
            let figure = Figure::new("a", "ns", Better::Lower, samples);
            run(vec![Figure { passes: 3, unsteady: false, ..figure }])
        };
        let (before, after) = (joined([100.0, 108.0, 100.0]), joined([108.0, 108.0, 100.0]));
        let row = &compare(&before, &after, 0.05).rows[0];
        assert_eq!((row.ratio.n, row.change), (3, Change::None), "{row:?}");
    }

    #[test]
    fn an_unsteady_or_invalid_figure_decides_nothing() {
        let unsteady: Vec<f64> = (0..9).map(|round| 100.0 + 20.0 * f64::from(round % 3)).collect();
        let before = run(vec![Figure::new("a", "ns", Better::Lower, rounds(50.0))]);
        let after = run(vec![Figure::new("a", "ns", Better::Lower, unsteady)]);
        assert_eq!(compare(&before, &after, 0.05).rows[0].change, Change::Undecided);
        let mut after = run(vec![Figure::new("a", "ns", Better::Lower, rounds(90.0))]);
        assert_eq!(compare(&before, &after, 0.05).rows[0].change, Change::Slower);
        after.suites[0].checks.push(crate::method::result::Check::new("single pass", false, ""));
        assert_eq!(compare(&before, &after, 0.05).rows[0].change, Change::Undecided);
    }

    #[test]
    fn a_machine_that_is_slower_by_half_makes_no_regression() {
        let beside = |value: f64, floor: f64| {
            run(vec![Figure::new("a", "ns", Better::Lower, rounds(value)).against("lookup", &rounds(floor))])
        };
        let row = &compare(&beside(60.0, 40.0), &beside(90.0, 60.0), 0.05).rows[0];
        assert!(row.by_floor && row.change == Change::None, "{row:?}");
        let row = &compare(&beside(60.0, 40.0), &beside(90.0, 40.0), 0.05).rows[0];
        assert_eq!(row.change, Change::Slower);
    }

    #[test]
    fn what_only_one_run_has_is_told() {
        let figure = |name: &str| Figure::new(name, "ns", Better::Lower, rounds(1.0));
        let mut after = run(vec![figure("same"), figure("new")]);
        after.environment.kernel = "7.0".to_owned();
        let comparison = compare(&run(vec![figure("same"), figure("old")]), &after, 0.05);
        assert_eq!(
            (comparison.missing, comparison.added),
            (vec!["test: old".to_owned()], vec!["test: new".to_owned()])
        );
        assert!(comparison.warnings[0].contains("kernel differs"), "{:?}", comparison.warnings);
    }
}
