//! What a suite hands back: the one set of types behind tables, JSON, the report and `bench compare`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::method::stats::{Better, Estimate};
use crate::method::stats::{dispersion, estimate, paired_ratio};
use crate::method::watch::Load;

/// How long each measurement takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Three rounds, at most 45 s a suite: every figure is marked unconfirmed
    Quick,
    /// As many rounds and seconds as a figure needs to be quoted
    Full,
}

/// What one suite measured, how it checked itself, and what it could not do.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SuiteResult {
    /// As the list of suites names it.
    pub suite: String,
    /// What comparisons and budgets go by.
    pub figures: Vec<Figure>,
    /// For people.
    #[serde(default)]
    pub tables: Vec<Table>,
    /// For people.
    #[serde(default)]
    pub charts: Vec<Chart>,
    /// Checks that hold, or fail, for every figure of the suite.
    #[serde(default, rename = "honesty")]
    pub checks: Vec<Check>,
    /// What a reader must know: peers that are not installed, refusals, limits of this machine.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What could not be measured, and why.
    #[serde(default)]
    pub errors: Vec<String>,
    /// From start to end of the suite.
    #[serde(default)]
    pub seconds: f64,
    /// The suite's own rows, every sample included, for whoever wants to compute anew.
    #[serde(default)]
    pub rows: serde_json::Value,
}

/// One measured number with its interval, what it was measured against, and what was checked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Unique within the suite, and the same in every run: comparisons go by it.
    pub name: String,
    /// `ns/packet`, `Mpps`, `Gb/s`, `us`, `s`, `sessions/s`, `x`, `packets`
    pub unit: String,
    /// Which change is an improvement.
    pub better: Better,
    /// Over all rounds, or over passes where there are some.
    pub estimate: Estimate,
    /// One value a round, in round order.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// What ran in the same rounds as the least that can be done, or as the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<Floor>,
    /// This figure over its floor, paired by round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Estimate>,
    /// A/A: two equal contestants over each other in the same rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same: Option<Estimate>,
    /// The rounds were too unsteady for the figure to be quoted alone.
    #[serde(default)]
    pub unsteady: bool,
    /// Measured with as many rounds and seconds as it takes to be quoted; set by the runner.
    #[serde(default)]
    pub confirmed: bool,
    /// One of the suite's few most telling figures.
    #[serde(default)]
    pub headline: bool,
    /// Checks of this figure alone; those of the suite hold besides.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// How often everything was allocated afresh: each time has its share of the samples, and intervals are over these
    /// times. 0: once, and intervals are over rounds.
    #[serde(default)]
    pub passes: usize,
    /// The estimate is the worst round's, and of several passes the worst pass's: what happens in few rounds happens.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worst: bool,
    /// What others did meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// What a figure is compared with.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// What it is, in words.
    pub name: String,
    /// In the figure's unit.
    pub estimate: Estimate,
    /// One value a round, in round order.
    #[serde(default)]
    pub samples: Vec<f64>,
}

/// One validity check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The same in every run.
    pub name: String,
    /// What was asked holds.
    pub passed: bool,
    /// The numbers that were compared.
    pub detail: String,
}

/// A table for people. Cells that are numbers are set right.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Heading above it.
    pub title: String,
    /// One a column.
    pub header: Vec<String>,
    /// Each as long as the header.
    pub rows: Vec<Vec<String>>,
    /// What the columns mean, where their names do not say it.
    #[serde(default)]
    pub note: String,
}

/// Above this much spread of the middle half of the rounds a figure is unsteady.
pub const STEADY: f64 = 0.08;

impl Figure {
    /// From one sample a round: median, 95 % interval, steadiness.
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        better: Better,
        samples: Vec<f64>,
    ) -> Figure {
        Figure {
            name: name.into(),
            unit: unit.into(),
            better,
            estimate: estimate(&samples),
            unsteady: dispersion(&samples) > STEADY,
            samples,
            floor: None,
            ratio: None,
            same: None,
            confirmed: false,
            headline: false,
            checks: vec![],
            passes: 0,
            worst: false,
            load: None,
        }
    }

    /// Puts the figure beside what ran in the same rounds: `floor[i]` belongs to `samples[i]`.
    pub fn against(mut self, name: impl Into<String>, floor: &[f64]) -> Figure {
        self.ratio = Some(paired_ratio(&self.samples, floor));
        self.floor = Some(Floor { name: name.into(), estimate: estimate(floor), samples: floor.to_vec() });
        self
    }

    /// Adds the A/A row: the same contestant twice in the same rounds.
    pub fn same(mut self, once: &[f64], again: &[f64]) -> Figure {
        self.same = Some(paired_ratio(again, once));
        self
    }

    /// Of losses and the like, where less is better: the worst round counts, and few of them need not settle.
    pub fn worst(mut self) -> Figure {
        self.estimate = Estimate::worst(&self.samples);
        (self.worst, self.unsteady) = (true, false);
        self
    }

    /// Marks it as one of the suite's most telling figures.
    pub fn headline(mut self) -> Figure {
        self.headline = true;
        self
    }

    /// Adds a check of this figure alone.
    pub fn check(mut self, check: Check) -> Figure {
        self.checks.push(check);
        self
    }

    /// No part of it is NaN or infinite.
    pub fn is_finite(&self) -> bool {
        let estimates =
            [Some(self.estimate), self.ratio, self.same, self.floor.as_ref().map(|floor| floor.estimate)];
        let finite =
            |estimate: Estimate| [estimate.value, estimate.low, estimate.high].iter().all(|x| x.is_finite());
        estimates.into_iter().flatten().all(finite) && self.samples.iter().all(|x| x.is_finite())
    }

    /// Fit to stand at the top of a report, given the checks of its suite.
    pub fn quotable(&self, suite: &[Check]) -> bool {
        !self.unsteady && self.checks.iter().chain(suite).all(|check| check.passed)
    }
}

impl Check {
    /// `detail` names the numbers that were compared.
    pub fn new(name: impl Into<String>, passed: bool, detail: impl Into<String>) -> Check {
        Check { name: name.into(), passed, detail: detail.into() }
    }
}

impl SuiteResult {
    /// With nothing measured yet.
    pub fn new(suite: &str) -> SuiteResult {
        SuiteResult { suite: suite.to_owned(), ..SuiteResult::default() }
    }

    /// By name.
    pub fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }
}

pub use crate::method::chart::*;
