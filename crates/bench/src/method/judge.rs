//! Whether a promise is kept, and what forbids to say so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method::budget::{Bound, Budget};
use crate::method::number::number;
use crate::method::result::{Check, Figure, SuiteResult};
use crate::method::stats::Estimate;

/// Times that everything is allocated afresh, and rounds of each, without which there is no verdict.
pub const PASSES: u16 = 5;
/// See [`PASSES`].
pub const ROUNDS: u16 = 3;
/// The interval may be this much of the figure or of its limit, whichever is larger.
const WIDEST: f64 = 0.2;
/// How far two equal things may be apart, and how much the interval of their ratio may miss 1 by chance: five passes
/// lie on one side of it once in sixteen times.
const MOST_APART: f64 = 0.1;
const CHANCE: f64 = 0.02;

/// What became of a promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure keeps its limit.
    Kept,
    /// It does not.
    Missed,
    /// Neither: it was not measured, or there are doubts.
    NoVerdict,
}

impl Verdict {
    /// In the order of summaries.
    pub const ALL: [Verdict; 3] = [Verdict::Kept, Verdict::Missed, Verdict::NoVerdict];

    /// As reports have it.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Kept => "kept",
            Verdict::Missed => "missed",
            Verdict::NoVerdict => "no verdict",
        }
    }
}

/// A promise beside what was measured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Judged {
    /// What was promised.
    pub budget: Budget,
    /// None = the figure was not measured.
    pub measured: Option<Estimate>,
    /// Whether it was kept.
    pub verdict: Verdict,
    /// Whether the whole interval lies on one side of the limit.
    pub certain: bool,
    /// Why there is no verdict.
    pub doubts: Vec<String>,
    /// The same measurement told in absolute figures.
    pub detail: String,
}

impl Judged {
    /// `suite`: checks that hold, or fail, for all figures of the suite.
    pub fn new(budget: Budget, figure: Option<&Figure>, suite: &[Check]) -> Judged {
        let measured = figure.and_then(|figure| value(&budget, figure));
        let (doubts, detail) = match (figure, measured) {
            (Some(figure), Some(measured)) => {
                (doubts(figure, &measured, Some(&budget), suite), detail(figure))
            }
            _ => (vec!["not measured".to_owned()], String::new()),
        };
        let kept = |value: f64| budget.bound.holds(value, budget.limit);
        let verdict = match measured {
            Some(estimate) if doubts.is_empty() && kept(estimate.value) => Verdict::Kept,
            Some(_) if doubts.is_empty() => Verdict::Missed,
            _ => Verdict::NoVerdict,
        };
        let certain = measured.is_some_and(|estimate| kept(estimate.low) == kept(estimate.high));
        Judged { measured, verdict, certain, doubts, detail, budget }
    }

    /// What was measured, and what forbids to believe it.
    pub fn remarks(&self) -> String {
        let detail = Some(&self.detail).filter(|detail| !detail.is_empty());
        detail.into_iter().chain(&self.doubts).cloned().collect::<Vec<_>>().join("; ")
    }
}

/// Judged last, when all checks are known.
pub fn judge(budgets: &[Budget], suites: &[SuiteResult]) -> Vec<Judged> {
    let one = |budget: &Budget| {
        let suite = suites.iter().find(|suite| suite.suite == budget.suite);
        let checks = suite.map(|suite| &suite.checks[..]).unwrap_or_default();
        Judged::new(budget.clone(), suite.and_then(|suite| suite.figure(&budget.row)), checks)
    };
    budgets.iter().map(one).collect()
}

/// What the promise is about. A figure that is a ratio itself has none to its floor. Where nothing at all is promised, the
/// worst round must keep it.
fn value(budget: &Budget, figure: &Figure) -> Option<Estimate> {
    if budget.bound == Bound::AtMost && budget.limit == 0.0 {
        return Some(Estimate::worst(&figure.samples)).filter(|worst| worst.n > 0);
    }
    if budget.unit == "x" && figure.unit != "x" { figure.ratio } else { Some(figure.estimate) }
}

/// All that forbids a verdict on what was promised, or on the figure's ratio if nobody promised anything. What is doubted
/// stands before the colon.
pub fn doubts(figure: &Figure, measured: &Estimate, budget: Option<&Budget>, suite: &[Check]) -> Vec<String> {
    let (passes, rounds) = (usize::from(PASSES), usize::from(PASSES * ROUNDS));
    let mut doubts = vec![];
    if figure.passes < passes {
        doubts.push(format!("passes: {} of {passes}", figure.passes));
    } else if figure.samples.len() < rounds {
        doubts.push(format!("rounds: {} of {rounds}", figure.samples.len()));
    }
    let limit = budget.map_or(0.0, |budget| budget.limit.abs());
    let widest = WIDEST * measured.value.abs().max(limit);
    let width = measured.high - measured.low;
    if width.is_nan() || width > widest {
        doubts.push("unsteady".to_owned());
    }
    if budget.is_none_or(|budget| budget.unit == "x") {
        doubts.extend(unequal(figure.same.as_ref()));
    }
    let failed = suite.iter().chain(&figure.checks).filter(|check| !check.passed);
    doubts.extend(failed.map(|check| format!("{}: {}", check.name, check.detail)));
    doubts
}

/// A ratio says nothing where the same thing measured twice differs.
fn unequal(same: Option<&Estimate>) -> Option<String> {
    let Some(same) = same else { return Some("A/A: the floor ran only once".to_owned()) };
    let holds = same.low - CHANCE <= 1.0 && 1.0 <= same.high + CHANCE;
    let near = (same.value - 1.0).abs() <= MOST_APART;
    (!holds || !near).then(|| format!("A/A: {:.2} [{:.2}, {:.2}]", same.value, same.low, same.high))
}

fn detail(figure: &Figure) -> String {
    let own = format!("{} {}", number(figure.estimate.value), figure.unit);
    let floor = figure.floor.as_ref().map(|floor| number(floor.estimate.value));
    let same = figure.same.map(|same| format!(", A/A {:.2}", same.value)).unwrap_or_default();
    match (floor, figure.unit.as_str()) {
        (Some(floor), unit) => format!("{} / {floor} {unit}{same}", number(figure.estimate.value)),
        (None, "x") => same.trim_start_matches(", ").to_owned(),
        (None, _) => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::checks;
    use crate::method::result::{Better, SuiteResult};
    use crate::method::watch::Load;
    use crate::suites::budgets::passes::join;

    fn budget(bound: Bound, limit: f64, unit: &str) -> Budget {
        let [name, suite, row] = ["n", "load", "r"].map(str::to_owned);
        Budget { name, suite, row, floor: String::new(), bound, limit, unit: unit.to_owned() }
    }

    /// Passes of three rounds: a floor of 50 ns, the same again `same` times as long, ours `ratio` times as long.
    fn measured(ratios: &[f64], same: f64) -> Figure {
        let pass = |ratio: &f64| {
            let floor = [50.0, 51.0, 50.5];
            let ours = floor.map(|ns| ns * ratio).to_vec();
            let figure = Figure::new("r", "ns/packet", Better::Lower, ours).against("floor", &floor);
            let figure = figure.same(&floor, &floor.map(|ns| ns * same));
            SuiteResult { figures: vec![figure], ..SuiteResult::new("load") }
        };
        join(ratios.iter().map(pass).collect()).figures.remove(0)
    }

    const STEADY: [f64; 5] = [1.19, 1.18, 1.2, 1.21, 1.19];

    fn judge(figure: &Figure) -> Judged {
        Judged::new(budget(Bound::AtMost, 1.5, "x"), Some(figure), &[])
    }

    #[track_caller]
    fn doubted(figure: &Figure, doubt: &str) {
        let judged = judge(figure);
        assert_eq!(judged.verdict, Verdict::NoVerdict);
        assert!(judged.doubts.iter().any(|told| told.contains(doubt)), "{doubt}: {:?}", judged.doubts);
        assert!(judged.remarks().contains(doubt), "{}", judged.remarks());
    }

    #[test]
    fn a_limit_is_kept_or_missed_and_the_interval_says_how_surely() {
        let judge = |bound, limit, passes: [f64; 5]| {
            let judged = Judged::new(budget(bound, limit, "x"), Some(&measured(&passes, 1.0)), &[]);
            assert_eq!(judged.doubts, [""; 0]);
            (judged.verdict, judged.certain)
        };
        assert_eq!(judge(Bound::AtMost, 2.0, [1.9, 1.85, 1.95, 1.9, 1.9]), (Verdict::Kept, true));
        assert_eq!(judge(Bound::AtMost, 2.0, [1.9, 1.8, 2.1, 1.8, 2.1]), (Verdict::Kept, false));
        assert_eq!(judge(Bound::AtMost, 2.0, [2.0; 5]), (Verdict::Kept, true));
        assert_eq!(judge(Bound::AtMost, 2.0, [2.01, 2.005, 2.1, 2.01, 2.02]), (Verdict::Missed, true));
        assert_eq!(judge(Bound::AtLeast, 2.0, [1.9, 1.8, 1.95, 1.9, 1.9]), (Verdict::Missed, true));
        assert_eq!(judge(Bound::AtLeast, 4.0, [4.0, 4.1, 4.05, 4.0, 4.1]), (Verdict::Kept, true));
    }

    #[test]
    fn a_loss_in_a_few_rounds_misses_a_promise_of_none() {
        let rounds = |lost: f64| {
            let mut samples = vec![0.0; 15];
            samples[7] = lost;
            Figure { passes: 5, ..Figure::new("r", "frames", Better::Lower, samples) }
        };
        let judge = |lost| Judged::new(budget(Bound::AtMost, 0.0, "frames"), Some(&rounds(lost)), &[]);
        assert_eq!((judge(0.0).verdict, judge(3.0).verdict), (Verdict::Kept, Verdict::Missed));
        assert!(judge(3.0).certain && judge(3.0).measured.unwrap().value == 3.0);
    }

    #[test]
    fn one_round_at_load_9_with_a_floor_that_differs_from_itself_is_no_verdict() {
        let one = Figure::new("r", "ns/packet", Better::Lower, vec![59.5]).against("floor", &[50.0]);
        let load = Load { seconds: 4.0, cpus: 2, others_s: 7.2, runnable: 63, looks: 7, ..Load::default() };
        let figure = one.same(&[50.0], &[38.0]).check(checks::quiet(&load));
        for doubt in
            ["passes: 0 of 5", "A/A: 0.76", "other processes had 90 % of the CPUs", "9.0 other processes"]
        {
            doubted(&figure, doubt);
        }
    }

    #[test]
    fn each_doubt_alone_forbids_a_verdict() {
        assert_eq!(judge(&measured(&STEADY, 1.0)).verdict, Verdict::Kept);
        doubted(&measured(&STEADY[..4], 1.0), "passes: 4 of 5");
        doubted(&measured(&[1.19, 1.0, 1.4, 1.2, 1.1], 1.0), "unsteady");
        doubted(&measured(&STEADY, 0.76), "A/A: 0.76");
        doubted(&measured(&STEADY, 1.03), "A/A: 1.03");
        doubted(&Figure { same: None, ..measured(&STEADY, 1.0) }, "A/A: the floor ran only once");
        let mut few = measured(&STEADY, 1.0);
        few.samples.pop();
        doubted(&few, "rounds: 14 of 15");
        let busy = Load { seconds: 2.0, cpus: 2, others_s: 2.0, ..Load::default() };
        doubted(&measured(&STEADY, 1.0).check(checks::quiet(&busy)), "machine to ourselves: other processes");
        let crowded = Load {
            walks_ns: vec![15.0, 40.0, 50.0],
            undisturbed_ns: Some(14.0),
            brought_back: true,
            ..Load::default()
        };
        doubted(
            &measured(&STEADY, 1.0).check(checks::quiet(&crowded)),
            "machine to ourselves: others had the last cache: a line of it took 40 ns, 14 when undisturbed",
        );
        doubted(
            &measured(&STEADY, 1.0).check(Check::new("single pass", false, "10 of 20")),
            "single pass: 10",
        );
    }

    #[test]
    fn a_wide_interval_around_one_does_not_make_two_floors_equal() {
        let apart = Estimate { value: 0.8, low: 0.6, high: 1.3, n: 5 };
        doubted(&Figure { same: Some(apart), ..measured(&STEADY, 1.0) }, "A/A: 0.80");
        let chance = Estimate { value: 1.01, low: 1.01, high: 1.02, n: 5 };
        assert_eq!(judge(&Figure { same: Some(chance), ..measured(&STEADY, 1.0) }).verdict, Verdict::Kept);
    }

    #[test]
    fn a_check_of_the_whole_suite_forbids_a_verdict() {
        let failed = [Check::new("no tracing", false, "kernel.bpf_stats_enabled is 1")];
        let judged = Judged::new(budget(Bound::AtMost, 1.5, "x"), Some(&measured(&STEADY, 1.0)), &failed);
        assert_eq!(judged.verdict, Verdict::NoVerdict);
        assert!(judged.remarks().ends_with("no tracing: kernel.bpf_stats_enabled is 1"));
    }

    #[test]
    fn an_absolute_figure_needs_no_floor() {
        let figure = Figure { same: None, floor: None, ratio: None, ..measured(&[1.0; 5], 1.0) };
        let judged = Judged::new(budget(Bound::AtMost, 60.0, "ns"), Some(&figure), &[]);
        assert_eq!((judged.verdict, judged.doubts.len()), (Verdict::Kept, 0));
    }

    #[test]
    fn what_nobody_measured_is_not_kept() {
        let judged = Judged::new(budget(Bound::AtMost, 2.0, "x"), None, &[]);
        assert_eq!((judged.verdict, judged.certain), (Verdict::NoVerdict, false));
        assert_eq!(judged.remarks(), "not measured");
        let no_ratio = Figure { ratio: None, ..measured(&STEADY, 1.0) };
        assert_eq!(judge(&no_ratio).doubts, ["not measured"]);
    }
}
