use std::sync::{Arc, Mutex};

use sluice_language::Config;
use sluice_plan::{Environment, Ids};

use super::*;
use crate::functions::function::remaining;
use crate::state::config;
use crate::state::store::Stored;

type Steps = Arc<Mutex<Vec<String>>>;

/// Notes what it is asked for, and fails at one of it.
struct Noted {
    name: &'static str,
    steps: Steps,
    fails: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0} failed")]
struct Failed(&'static str);

impl Noted {
    fn step(&self, step: &'static str) -> Result<(), CommitError> {
        self.steps.lock().unwrap().push(format!("{step} {}", self.name));
        if self.fails == Some(step) { Err(CommitError::input(Failed(step))) } else { Ok(()) }
    }
}

impl Function for Noted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.step("check")
    }

    fn prepare(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.step("prepare")
    }

    fn apply(&mut self, _candidate: &mut Candidate<'_>) -> Result<(), CommitError> {
        self.step("apply")
    }

    fn abort(&mut self, _candidate: &Candidate<'_>) -> Result<(), CommitError> {
        self.step("abort")
    }

    fn retire(&mut self, _candidate: &Candidate<'_>) -> Vec<String> {
        remaining(self.step("retire"))
    }
}

/// What two functions are asked for when the second fails at a step, and what the commit says.
fn walk(fails: Option<&'static str>) -> (Vec<String>, Result<Vec<String>, String>) {
    let steps = Steps::default();
    let noted = |name, fails| -> Box<dyn Function> { Box::new(Noted { name, steps: steps.clone(), fails }) };
    let mut functions = [noted("a", None), noted("b", fails)];
    let config = Config::default();
    let mut candidate = Candidate {
        config: &config,
        old: None,
        stored: None,
        is_again: false,
        counters_are_new: true,
        links: vec![],
        attached: vec![],
        plan: config::plan(&config, "", &Environment::default(), &mut Ids::default(), 1).unwrap(),
        next: Stored::default(),
        loaded: None,
        rules: None,
    };
    let replan = |_: &mut Candidate<'_>| {
        steps.lock().unwrap().push("replan".to_owned());
        Ok(())
    };
    let done = put_in_force(&mut functions, &mut candidate, replan)
        .map(|()| retire(&mut functions, &candidate))
        .map_err(|error| error.to_string());
    (steps.lock().unwrap().clone(), done)
}

const CHECKED: [&str; 2] = ["check a", "check b"];
const PREPARED: [&str; 3] = ["prepare a", "prepare b", "replan"];
const APPLIED: [&str; 2] = ["apply a", "apply b"];

#[test]
fn a_commit_goes_forwards_and_retires_backwards() {
    let (steps, done) = walk(None);
    let expected: Vec<&str> = [&CHECKED[..], &PREPARED, &APPLIED, &["retire b", "retire a"]].concat();
    assert_eq!(steps, expected);
    assert_eq!(done, Ok(vec![]));
}

#[test]
fn what_a_check_refuses_has_touched_nothing() {
    let (steps, done) = walk(Some("check"));
    assert_eq!(steps, CHECKED);
    assert_eq!(done, Err("check failed".to_owned()));
}

#[test]
fn a_failure_has_every_function_undo_what_it_did_the_last_one_first() {
    for (fails, before) in [
        ("prepare", [&CHECKED[..], &PREPARED[..2]].concat()),
        ("apply", [&CHECKED[..], &PREPARED, &APPLIED].concat()),
    ] {
        let (steps, done) = walk(Some(fails));
        assert_eq!(steps, [before, vec!["abort b", "abort a"]].concat(), "{fails}");
        assert_eq!(done, Err(format!("{fails} failed")));
    }
}

#[test]
fn what_cannot_be_taken_away_is_said_and_the_commit_stands() {
    let (steps, done) = walk(Some("retire"));
    assert_eq!(steps.last().map(String::as_str), Some("retire a"));
    assert_eq!(done, Ok(vec!["retire failed".to_owned()]));
}
