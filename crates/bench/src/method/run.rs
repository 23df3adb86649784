//! Runs suites one after the other and brings what they found into one document.

use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use sluice_lab::interrupt;

use crate::method::checks;
use crate::method::document::{RunDocument, SCHEMA};
use crate::method::environment::{Environment, exclusive};
use crate::method::result::{Check, Figure, Profile, SuiteResult};
use crate::method::suite::{Context, Suite};
use crate::method::watch::{self, Watch};

/// Fewer rounds confirm nothing: a bootstrap of three samples has ten different values.
pub const CONFIRMED_ROUNDS: usize = 9;

/// Runs the suites; one that fails leaves the others running.
pub fn run(suites: &[&Suite], context: &Context) -> Result<RunDocument> {
    let jobs: Vec<Job<'_>> =
        suites.iter().map(|suite| -> Job<'_> { (suite.name, Box::new(|| (suite.run)(context))) }).collect();
    run_jobs(context, jobs)
}

/// A run of one suite with options of its own.
pub fn one_document(
    context: &Context,
    name: &'static str,
    measure: impl FnOnce() -> Result<SuiteResult>,
) -> Result<RunDocument> {
    run_jobs(context, vec![(name, Box::new(measure))])
}

type Job<'a> = (&'static str, Box<dyn FnOnce() -> Result<SuiteResult> + 'a>);

fn run_jobs(context: &Context, jobs: Vec<Job<'_>>) -> Result<RunDocument> {
    let _lock = exclusive()?;
    let mut document = begin(context.profile);
    let start = Instant::now();
    for (name, measure) in jobs {
        document.suites.push(one(name, context, measure));
        interrupt::check()?;
    }
    context.progress.end();
    Ok(end(document, start))
}

/// As it is repeated elsewhere: where the program stood is no part of it.
fn command(words: impl Iterator<Item = String>) -> String {
    let name = |program: &str| program.rsplit('/').next().unwrap_or(program).to_owned();
    let words = words.enumerate().map(|(index, word)| if index == 0 { name(&word) } else { word });
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

/// With the machine as it is now, and no suite yet.
pub fn begin(profile: Profile) -> RunDocument {
    RunDocument {
        schema: SCHEMA,
        began: utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())),
        seconds: 0.0,
        command: command(std::env::args()),
        profile,
        environment: Environment::begin(),
        suites: vec![],
        budgets: vec![],
    }
}

/// With what the whole run took.
pub fn end(mut document: RunDocument, start: Instant) -> RunDocument {
    document.seconds = start.elapsed().as_secs_f64();
    document.environment = document.environment.end();
    document
}

/// The program's own path means nothing on another machine.
fn quoted(word: &str) -> String {
    let name = if word.ends_with("/sluice") { "sluice" } else { word };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/".contains(c);
    if !name.is_empty() && name.chars().all(plain) { name.to_owned() } else { format!("{name:?}") }
}

/// One suite with everything that is watched and checked for it; an error is told in the result.
pub fn one(name: &str, context: &Context, measure: impl FnOnce() -> Result<SuiteResult>) -> SuiteResult {
    context.progress.begin(name);
    let (start, machine) = (Instant::now(), Machine::begin());
    let mut result = measure().unwrap_or_else(|error| {
        context.progress.say(&format!("{name}: {error:#}"));
        SuiteResult { errors: vec![format!("{error:#}")], ..SuiteResult::new(name) }
    });
    result.seconds = start.elapsed().as_secs_f64();
    finish(&mut result, context.profile, machine);
    result
}

/// What is watched while a suite runs.
pub struct Machine {
    watch: Watch,
    tracing: checks::Tracing,
}

impl Machine {
    /// From now on.
    pub fn begin() -> Machine {
        watch::take();
        Machine { watch: Watch::start(), tracing: checks::Tracing::read() }
    }

    /// What is known at the end of all figures, and of each: who else ran during its rounds. A suite that times without
    /// rounds is judged by all of its time.
    pub fn judge(self, result: &mut SuiteResult) {
        result.checks.push(checks::no_tracing(&self.tracing, &checks::Tracing::read()));
        let whole = self.watch.end();
        let load = watch::take().unwrap_or(whole);
        for figure in &mut result.figures {
            let load = figure.load.get_or_insert_with(|| load.clone());
            figure.checks.push(checks::quiet(load));
        }
    }
}

/// What no suite has to think of: the machine's checks, confirmation, and numbers that are none.
pub fn finish(result: &mut SuiteResult, profile: Profile, machine: Machine) {
    machine.judge(result);
    finish_figures(result, profile);
}

/// Takes out figures without a value, which become errors, and marks the others confirmed or not.
pub fn finish_figures(result: &mut SuiteResult, profile: Profile) {
    let (measured, empty): (Vec<Figure>, Vec<Figure>) =
        std::mem::take(&mut result.figures).into_iter().partition(|figure| figure.is_finite());
    result.errors.extend(empty.iter().map(|figure| format!("{}: no value was measured", figure.name)));
    result.figures = measured;
    for figure in &mut result.figures {
        figure.confirmed = profile == Profile::Full && figure.samples.len() >= CONFIRMED_ROUNDS;
    }
}

/// 0 measured and valid, 2 something could not be measured or did not stand its own checks.
pub fn exit_code(document: &RunDocument) -> ExitCode {
    let failed = |check: &Check| !check.passed;
    let bad = document.suites.iter().any(|suite| {
        let figures = suite.figures.iter().flat_map(|figure| &figure.checks);
        !suite.errors.is_empty() || suite.checks.iter().chain(figures).any(failed)
    });
    ExitCode::from(if bad { 2 } else { 0 })
}

/// Seconds since 1970 as RFC 3339 in UTC; days to civil date by counting 400-year eras from 0000-03-01.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let day = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::result::Better;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(utc(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(utc(4_107_542_400), "2100-03-01T00:00:00Z");
    }

    fn finished(profile: Profile, samples: Vec<f64>) -> SuiteResult {
        let mut result = SuiteResult::new("test");
        result.figures.push(Figure::new("a", "ns", Better::Lower, samples));
        finish(&mut result, profile, Machine::begin());
        result
    }

    #[test]
    fn quick_confirms_nothing_and_full_what_has_enough_rounds() {
        assert!(!finished(Profile::Quick, vec![1.0; 9]).figures[0].confirmed);
        assert!(!finished(Profile::Full, vec![1.0; 8]).figures[0].confirmed);
        assert!(finished(Profile::Full, vec![1.0; 9]).figures[0].confirmed);
    }

    #[test]
    fn a_figure_without_a_number_is_an_error_and_not_a_figure() {
        let result = finished(Profile::Full, vec![]);
        assert!(result.figures.is_empty());
        assert_eq!(result.errors, ["a: no value was measured"]);
    }
}
