//! What the page shows, computed from the results.

use std::collections::BTreeMap;

use anyhow::Result;
use askama::Template;

use super::scale::Scale;
use super::svg::Svg;
use super::{Drawn, draw};
use crate::method::budget::Bound;
use crate::method::document::RunDocument;
use crate::method::judge::{Judged, Verdict};
use crate::method::number::number;
use crate::method::result::{Better, Check, Estimate, Figure, Profile, SuiteResult, Table};
use crate::method::suite::Suite;
use crate::report::published;
use crate::report::text::is_numeric;

#[derive(Template)]
#[template(path = "report.html")]
pub struct Page<'a> {
    style: &'static str,
    script: &'static str,
    document: &'a RunDocument,
    quick: bool,
    minutes: String,
    tiles: Vec<Tile>,
    cards: Vec<Card>,
    withheld: Vec<String>,
    suites: Vec<Section<'a>>,
    budgets: Vec<BudgetRow>,
    environment: Vec<(&'static str, String)>,
    json: String,
}

/// A count of the verdict strip.
struct Tile {
    value: String,
    label: &'static str,
    /// good, warn, bad
    state: &'static str,
}

/// A figure that may be quoted.
struct Card {
    suite: String,
    name: String,
    value: String,
    unit: String,
    interval: String,
    ratio: String,
    confirmed: bool,
}

struct Section<'a> {
    result: &'a SuiteResult,
    suite: Option<&'a Suite>,
    state: &'static str,
    /// The validity checks fill the place that an odd number of charts leaves free.
    beside: bool,
    charts: Vec<Drawn>,
    figures: Vec<FigureRow>,
    /// Whether any figure has a floor, or an A/A row.
    floors: bool,
    sames: bool,
    checks: Vec<CheckRow>,
    tables: Vec<TableView<'a>>,
}

struct FigureRow {
    name: String,
    unit: String,
    value: String,
    interval: String,
    rounds: String,
    n: usize,
    floor: String,
    ratio: String,
    same: String,
    headline: bool,
    /// (class, word)
    marks: Vec<(&'static str, String)>,
}

/// One validity check over all figures that it was asked of.
struct CheckRow {
    name: String,
    passed: usize,
    asked: usize,
    /// (figure, what was compared): every failure, or one example.
    details: Vec<(String, String)>,
}

struct TableView<'a> {
    table: &'a Table,
    numeric: Vec<bool>,
}

struct BudgetRow {
    name: String,
    limit: String,
    measured: String,
    verdict: &'static str,
    state: &'static str,
    sure: bool,
    bar: String,
    detail: String,
}

impl<'a> Page<'a> {
    pub fn new(document: &'a RunDocument, suites: &'a [Suite]) -> Result<Page<'a>> {
        let suites: Vec<Section<'a>> = document.suites.iter().map(|result| section(result, suites)).collect();
        let (cards, withheld) = cards(document);
        Ok(Page {
            style: include_str!("../../../templates/report.css"),
            script: include_str!("../../../templates/report.js"),
            document,
            quick: document.profile == Profile::Quick,
            minutes: duration(document.seconds),
            tiles: tiles(document, &suites),
            cards,
            withheld,
            suites,
            budgets: document.budgets.iter().map(budget).collect(),
            environment: document.environment.facts(),
            // Nothing in it can end the element early.
            json: serde_json::to_string(document)?.replace('<', "\\u003c"),
        })
    }
}

fn duration(seconds: f64) -> String {
    if seconds < 90.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0)
    }
}

fn tiles(document: &RunDocument, sections: &[Section<'_>]) -> Vec<Tile> {
    let figures = || document.suites.iter().flat_map(|suite| &suite.figures);
    let checks = || sections.iter().flat_map(|section| &section.checks);
    let (passed, asked) = checks().fold((0, 0), |(p, a), row| (p + row.passed, a + row.asked));
    let unsteady = figures().filter(|figure| figure.unsteady).count();
    let errors: usize = document.suites.iter().map(|suite| suite.errors.len()).sum();
    let state = |bad: bool, state| if bad { state } else { "good" };
    let mut tiles = vec![
        Tile { value: figures().count().to_string(), label: "figures", state: "plain" },
        Tile {
            value: format!("{passed}/{asked}"),
            label: "validity checks passed",
            state: state(passed < asked, "bad"),
        },
        Tile {
            value: unsteady.to_string(),
            label: "unsteady, not quoted",
            state: state(unsteady > 0, "warn"),
        },
        Tile { value: errors.to_string(), label: "not measured", state: state(errors > 0, "bad") },
    ];
    if !document.budgets.is_empty() {
        let kept = document.budgets.iter().filter(|entry| entry.verdict == Verdict::Kept).count();
        let all = document.budgets.len();
        tiles.push(Tile {
            value: format!("{kept}/{all}"),
            label: "budgets kept",
            state: state(kept < all, "bad"),
        });
    }
    tiles
}

/// Headline figures that may be quoted, and why the others may not.
fn cards(document: &RunDocument) -> (Vec<Card>, Vec<String>) {
    let (mut cards, mut withheld) = (vec![], vec![]);
    for suite in &document.suites {
        for figure in suite.figures.iter().filter(|figure| figure.headline) {
            if figure.quotable(&suite.checks) {
                cards.push(card(suite, figure));
            } else {
                withheld.push(format!(
                    "{}: {} ({})",
                    suite.suite,
                    figure.name,
                    crate::report::text::remarks(figure, &suite.checks)
                ));
            }
        }
    }
    (cards, withheld)
}

fn card(suite: &SuiteResult, figure: &Figure) -> Card {
    let floor = figure.floor.as_ref().map(|floor| floor.name.as_str()).unwrap_or_default();
    Card {
        suite: suite.suite.clone(),
        name: figure.name.clone(),
        value: number(figure.estimate.value),
        unit: figure.unit.clone(),
        interval: interval(&figure.estimate),
        ratio: figure.ratio.map(|ratio| format!("{} × {floor}", number(ratio.value))).unwrap_or_default(),
        confirmed: figure.confirmed,
    }
}

fn section<'a>(result: &'a SuiteResult, suites: &'a [Suite]) -> Section<'a> {
    let checks = checks(result);
    let charts: Vec<Drawn> = result.charts.iter().map(draw).collect();
    let failed = checks.iter().any(|row| row.passed < row.asked);
    Section {
        result,
        suite: suites.iter().find(|suite| suite.name == result.suite),
        state: if failed || !result.errors.is_empty() { "bad" } else { "good" },
        beside: charts.iter().filter(|chart| !chart.wide).count() % 2 == 1,
        charts,
        figures: result.figures.iter().map(|figure| figure_row(figure, &result.checks)).collect(),
        floors: result.figures.iter().any(|figure| figure.floor.is_some()),
        sames: result.figures.iter().any(|figure| figure.same.is_some()),
        checks,
        tables: result.tables.iter().map(table).collect(),
    }
}

fn table(table: &Table) -> TableView<'_> {
    TableView { table, numeric: (0..table.header.len()).map(|column| is_numeric(table, column)).collect() }
}

impl TableView<'_> {
    fn class(&self, column: &usize) -> &'static str {
        if self.numeric.get(*column).copied().unwrap_or(false) { "num" } else { "" }
    }
}

fn figure_row(figure: &Figure, suite: &[Check]) -> FigureRow {
    let floor = figure.floor.as_ref();
    FigureRow {
        name: figure.name.clone(),
        unit: figure.unit.clone(),
        value: number(figure.estimate.value),
        interval: interval(&figure.estimate),
        rounds: rounds(figure),
        n: figure.estimate.n,
        floor: floor
            .map(|floor| format!("{} {}", number(floor.estimate.value), floor.name))
            .unwrap_or_default(),
        ratio: figure
            .ratio
            .map(|ratio| format!("{:.2} {}", ratio.value, interval(&ratio)))
            .unwrap_or_default(),
        same: figure.same.map(|same| format!("{:.3}", same.value)).unwrap_or_default(),
        headline: figure.headline,
        marks: marks(figure, suite),
    }
}

fn marks(figure: &Figure, suite: &[Check]) -> Vec<(&'static str, String)> {
    let failed = figure.checks.iter().chain(suite).filter(|check| !check.passed);
    let mut marks: Vec<(&'static str, String)> = failed.map(|check| ("bad", check.name.clone())).collect();
    if figure.unsteady {
        marks.push(("warn", "unsteady".to_owned()));
    }
    if !figure.confirmed {
        marks.push(("plain", "unconfirmed".to_owned()));
    }
    if marks.is_empty() {
        marks.push(("good", "quotable".to_owned()));
    }
    marks
}

fn interval(estimate: &Estimate) -> String {
    format!("[{}, {}]", number(estimate.low), number(estimate.high))
}

/// Every round as a dot around the median, so that an unsteady figure looks like one.
fn rounds(figure: &Figure) -> String {
    const REACH: f64 = 0.25;
    let (width, height) = (120.0, 16.0);
    let middle = figure.estimate.value;
    let mut svg = Svg::new(width, height, &format!("{} rounds of {}", figure.samples.len(), figure.name));
    if middle == 0.0 || figure.samples.is_empty() {
        return String::new();
    }
    let x = Scale::fixed(1.0 - REACH, 1.0 + REACH, 6.0, width - 6.0);
    let at = |value: f64| x.at((value / middle).clamp(1.0 - REACH, 1.0 + REACH));
    svg.line("grid", (x.at(1.0), 1.0), (x.at(1.0), height - 1.0));
    svg.rect(
        "ci",
        (at(figure.estimate.low), 5.0),
        (at(figure.estimate.high) - at(figure.estimate.low), 6.0),
        "",
    );
    for (round, sample) in figure.samples.iter().enumerate() {
        svg.circle(
            "round",
            (at(*sample), height / 2.0),
            2.2,
            &format!("round {}: {}", round + 1, number(*sample)),
        );
    }
    svg.finish()
}

fn checks(result: &SuiteResult) -> Vec<CheckRow> {
    let mut rows: BTreeMap<&str, Vec<(&str, &Check)>> = BTreeMap::new();
    let of_figures =
        result.figures.iter().flat_map(|f| f.checks.iter().map(move |check| (f.name.as_str(), check)));
    for (figure, check) in result.checks.iter().map(|check| ("", check)).chain(of_figures) {
        rows.entry(&check.name).or_default().push((figure, check));
    }
    let row = |(name, asked): (&str, Vec<(&str, &Check)>)| {
        let told = |(figure, check): &(&str, &Check)| ((*figure).to_owned(), check.detail.clone());
        let failures: Vec<(String, String)> =
            asked.iter().filter(|(_, check)| !check.passed).map(told).collect();
        let passed = asked.len() - failures.len();
        let details =
            if failures.is_empty() { asked.first().map(told).into_iter().collect() } else { failures };
        CheckRow { name: name.to_owned(), passed, asked: asked.len(), details }
    };
    rows.into_iter().map(row).collect()
}

fn budget(entry: &Judged) -> BudgetRow {
    let state = match entry.verdict {
        Verdict::Kept => "good",
        Verdict::Missed => "bad",
        Verdict::NoVerdict => "warn",
    };
    let budget = &entry.budget;
    BudgetRow {
        name: budget.name.clone(),
        limit: published::limit(budget),
        measured: entry.measured.map(|m| format!("{} {}", number(m.value), interval(&m))).unwrap_or_default(),
        verdict: entry.verdict.word(),
        state,
        sure: entry.certain || entry.verdict == Verdict::NoVerdict,
        bar: entry.measured.map(|measured| budget_bar(entry, &measured, state)).unwrap_or_default(),
        detail: entry.remarks(),
    }
}

/// The interval on a scale on which every limit stands in the same place and the kept side is left of it.
fn budget_bar(entry: &Judged, measured: &Estimate, state: &str) -> String {
    let (width, height) = (150.0, 16.0);
    let limit = entry.budget.limit;
    let better = if entry.budget.bound == Bound::AtMost { Better::Lower } else { Better::Higher };
    let share = |value: f64| match better {
        Better::Lower => value / limit,
        Better::Higher => limit / value,
    };
    let x = Scale::fixed(0.0, 1.5, 4.0, width - 4.0);
    let mut svg = Svg::new(width, height, &format!("{} beside its limit", entry.budget.name));
    svg.line("axis", (4.0, 8.0), (width - 4.0, 8.0));
    svg.line("one", (x.at(1.0), 1.0), (x.at(1.0), 15.0));
    let (from, to) = (share(measured.low), share(measured.high));
    let (from, to) = (x.at(from.min(to).min(1.5)), x.at(from.max(to).min(1.5)));
    svg.rect(&format!("range {state}"), (from, 5.0), ((to - from).max(2.0), 6.0), "");
    svg.circle(&format!("point {state}"), (x.at(share(measured.value).min(1.5)), 8.0), 3.5, "");
    svg.finish()
}
