//! Passes: every suite that the budgets need, a few rounds each, and the same again with everything allocated afresh.
//! Where maps happen to lie in memory moves a ratio more than rounds do, so intervals are over passes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use sluice_lab::interrupt;

use super::{Budgets, Options};
use crate::method::progress::Progress;
use crate::method::result::{Check, Figure, Profile, SuiteResult};
use crate::method::run;
use crate::method::stats::{dispersion, estimate};
use crate::method::suite::Context;
use crate::suites::frames::{self, Contestant};
use crate::suites::{self, bulk, monitor, prog};

/// Suites whose rows the budgets choose one by one, or that are not of the list.
pub const STEPS: [(&str, Step); 3] = [("prog", run_prog), ("frames", run_frames), ("bulk", run_bulk)];
type Step = fn(&Budgets, &Context) -> Result<SuiteResult>;

const PACKETS_A_ROUND: u32 = 400_000;

/// Every suite of the budgets, joined over all passes. A suite that fails leaves the others running.
pub fn run(budgets: &Budgets, also: &[&str], options: &Options) -> Result<Vec<SuiteResult>> {
    let names = budgets.suites(also);
    let mut passes: Vec<Vec<SuiteResult>> = names.iter().map(|_| vec![]).collect();
    let mut clock = Clock::new(names.len(), options.passes);
    // the same file in every pass
    let _captures = names.contains(&monitor::SUITE.name).then(monitor::keep_captures);
    for pass in 1..=options.passes {
        for (name, results) in names.iter().zip(&mut passes) {
            eprintln!("pass {pass} of {}, {name}{}", options.passes, clock.left());
            let began = Instant::now();
            results.push(one(name, budgets, options));
            interrupt::check()?;
            clock.done(began.elapsed());
        }
    }
    Ok(passes.into_iter().map(join).collect())
}

/// How long the rest will take, once every suite has run.
struct Clock {
    suites: usize,
    passes: usize,
    took: Vec<Duration>,
}

impl Clock {
    fn new(suites: usize, passes: usize) -> Clock {
        Clock { suites, passes, took: vec![] }
    }

    fn done(&mut self, took: Duration) {
        self.took.push(took);
    }

    /// What is left takes as long as it took in the pass before.
    fn left(&self) -> String {
        let done = self.took.len();
        if done < self.suites {
            return format!(" (suite {} of {})", done + 1, self.suites);
        }
        let pass: Duration = self.took[done - self.suites..].iter().sum();
        let began = done / self.suites * self.suites;
        let now: Duration = self.took[began..].iter().sum();
        let whole = pass * (self.passes - done / self.suites) as u32;
        let minutes = whole.saturating_sub(now).as_secs_f64() / 60.0;
        format!(" ({minutes:.1} minutes left)")
    }
}

fn one(name: &'static str, budgets: &Budgets, options: &Options) -> SuiteResult {
    let progress = Progress::stderr();
    let context = Context {
        profile: Profile::Full,
        rounds: options.rounds,
        interfaces: None,
        peer: None,
        wanted: budgets.rows(name).into_iter().map(str::to_owned).collect(),
        progress: progress.clone(),
    };
    let result = run::one(name, &context, || match STEPS.iter().find(|(step, _)| *step == name) {
        Some((_, step)) => step(budgets, &context),
        None => {
            let suite = suites::find(name).with_context(|| format!("there is no suite `{name}`"))?;
            (suite.run)(&context)
        }
    });
    progress.end();
    result
}

fn run_prog(budgets: &Budgets, context: &Context) -> Result<SuiteResult> {
    let mut rows: Vec<prog::RowSpec> = vec![];
    for row in budgets.rows("prog") {
        let row = row.parse()?;
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let total = rows.len() as f64;
    let options = prog::Options { rows, rounds: context.rounds, repeat: PACKETS_A_ROUND, capacity: None };
    let mut done = 0.0;
    let outcome = prog::run(&options, |row| {
        done += 1.0;
        context.progress.at(done / total, &row.name);
        context.progress.say(&prog::line(row));
    });
    prog::result(&outcome)
}

/// Row of the budgets.
const FRAMES: &str = "udp 64 bytes, 10000 flows";

fn run_frames(_: &Budgets, context: &Context) -> Result<SuiteResult> {
    use Contestant::{Linux, Nftables, Nobody, Sluice};
    let rows = frames::run(&[Sluice, Nftables, Linux, Nobody, Nftables], 10_000, context.rounds)?;
    let [sluice, nftables, others @ .., again] = &rows[..] else { unreachable!("a row a forwarder") };
    let figure = |name: &str, row: &frames::FramesRow| {
        Figure::new(name, "Mpps", crate::method::result::Better::Higher, row.samples.clone())
    };
    let mut figures = vec![
        figure(FRAMES, sluice)
            .against("nftables stateful", &nftables.samples)
            .same(&nftables.samples, &again.samples),
    ];
    figures.extend(others.iter().map(|row| figure(&format!("{:?}", row.forwarder).to_lowercase(), row)));
    Ok(SuiteResult { figures, rows: serde_json::to_value(&rows)?, ..SuiteResult::new("frames") })
}

fn run_bulk(_: &Budgets, context: &Context) -> Result<SuiteResult> {
    bulk::promised(context)
}

/// One suite's passes as one result. Tables and charts tell of one pass alone and are left out.
pub fn join(passes: Vec<SuiteResult>) -> SuiteResult {
    let mut whole = SuiteResult { ..SuiteResult::new(passes.first().map_or("", |pass| &pass.suite)) };
    let mut order: Vec<String> = vec![];
    let mut figures: BTreeMap<String, Vec<Figure>> = BTreeMap::new();
    let mut rows = vec![];
    for pass in passes {
        for figure in pass.figures {
            if !order.contains(&figure.name) {
                order.push(figure.name.clone());
            }
            figures.entry(figure.name.clone()).or_default().push(figure);
        }
        whole.checks.extend(pass.checks);
        whole.seconds += pass.seconds;
        rows.push(pass.rows);
        add_new(&mut whole.notes, pass.notes);
        add_new(&mut whole.errors, pass.errors);
    }
    whole.checks = worst(whole.checks);
    whole.figures = order.iter().filter_map(|name| join_figures(figures.remove(name)?)).collect();
    whole.rows = rows.into();
    whole
}

fn add_new(all: &mut Vec<String>, more: Vec<String>) {
    for line in more {
        if !all.contains(&line) {
            all.push(line);
        }
    }
}

/// Each check once: as it failed, if it did.
fn worst(checks: Vec<Check>) -> Vec<Check> {
    let mut kept: Vec<Check> = vec![];
    for check in checks {
        match kept.iter_mut().find(|other| other.name == check.name) {
            None => kept.push(check),
            Some(other) if other.passed => *other = check,
            Some(_) => {}
        }
    }
    kept
}

/// A figure's value is the median of its passes' medians, or the worst pass's; the interval is bootstrapped over passes.
fn join_figures(passes: Vec<Figure>) -> Option<Figure> {
    let over =
        |value: &dyn Fn(&Figure) -> Option<f64>| -> Option<Vec<f64>> { passes.iter().map(value).collect() };
    let value = over(&|figure| Some(figure.estimate.value))?;
    let ratio = over(&|figure| Some(figure.ratio?.value));
    let mut joined = passes.first()?.clone();
    joined.passes = passes.len();
    joined.estimate = estimate(&value);
    joined.ratio = ratio.as_deref().map(estimate);
    joined.same = over(&|figure| Some(figure.same?.value)).as_deref().map(estimate);
    joined.unsteady = dispersion(ratio.as_ref().unwrap_or(&value)) > crate::method::result::STEADY;
    joined.samples = passes.iter().flat_map(|figure| figure.samples.clone()).collect();
    if joined.worst {
        joined = joined.worst();
    }
    if let Some(floor) = &mut joined.floor {
        let floors = || passes.iter().filter_map(|figure| figure.floor.as_ref());
        floor.estimate = estimate(&floors().map(|floor| floor.estimate.value).collect::<Vec<_>>());
        floor.samples = floors().flat_map(|floor| floor.samples.clone()).collect();
    }
    joined.checks = worst(passes.iter().flat_map(|figure| figure.checks.clone()).collect());
    for figure in &passes[1..] {
        if let (Some(all), Some(more)) = (&mut joined.load, &figure.load) {
            all.add(more);
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::result::Better;

    fn pass(value: f64, check: bool) -> SuiteResult {
        let samples = vec![value, value + 0.1, value - 0.1];
        let figure = Figure::new("a", "ns", Better::Lower, samples).against("floor", &[50.0; 3]);
        let figure = figure.same(&[50.0; 3], &[51.0; 3]).check(Check::new("held", check, format!("{value}")));
        let errors = vec!["the same in every pass".to_owned()];
        SuiteResult { figures: vec![figure], errors, seconds: 2.0, ..SuiteResult::new("test") }
    }

    #[test]
    fn a_figure_is_the_median_of_passes_and_its_interval_is_over_passes() {
        let joined = join(vec![pass(100.0, true), pass(120.0, true), pass(90.0, true)]);
        let figure = joined.figure("a").unwrap();
        assert_eq!((figure.estimate.value, figure.estimate.n, figure.passes), (100.0, 3, 3));
        assert_eq!((figure.estimate.low, figure.estimate.high), (90.0, 120.0));
        let ratio = figure.ratio.unwrap();
        assert_eq!((ratio.value, ratio.low, ratio.high), (2.0, 1.8, 2.4));
        assert_eq!((figure.samples.len(), figure.floor.as_ref().unwrap().samples.len()), (9, 9));
        assert_eq!(figure.same.unwrap().value, 1.02);
        assert_eq!((joined.seconds, joined.errors.len()), (6.0, 1));
        assert!(figure.unsteady, "passes differ by more than rounds");
    }

    #[test]
    fn a_check_that_failed_once_has_failed() {
        let joined = join(vec![pass(100.0, true), pass(101.0, false), pass(102.0, true)]);
        let checks = &joined.figure("a").unwrap().checks;
        assert_eq!(checks, &[Check::new("held", false, "101")]);
    }

    #[test]
    fn what_is_lost_in_one_round_of_one_pass_is_lost() {
        let pass = |lost: f64| {
            let figure = Figure::new("a", "frames", Better::Lower, vec![0.0, lost, 0.0]).worst();
            SuiteResult { figures: vec![figure], ..SuiteResult::new("test") }
        };
        let joined = join(vec![pass(0.0), pass(7.0), pass(0.0)]);
        let figure = joined.figure("a").unwrap();
        assert_eq!((figure.estimate.value, figure.estimate.low, figure.unsteady), (7.0, 7.0, false));
    }

    #[test]
    fn an_a_a_that_one_pass_lacks_is_none() {
        let mut bare = pass(100.0, true);
        bare.figures[0].same = None;
        assert!(join(vec![pass(100.0, true), bare]).figures[0].same.is_none());
    }

    #[test]
    fn the_time_left_is_told_by_the_pass_before() {
        let mut clock = Clock::new(2, 3);
        assert_eq!(clock.left(), " (suite 1 of 2)");
        for seconds in [60, 120, 60] {
            clock.done(Duration::from_secs(seconds));
        }
        assert_eq!(clock.left(), " (5.0 minutes left)");
    }
}
