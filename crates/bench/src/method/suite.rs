//! What a suite is, and what it is told.

use anyhow::Result;

use crate::method::progress::Progress;
use crate::method::result::{Profile, SuiteResult};

/// One thing that can be measured.
pub struct Suite {
    /// As `sluice bench NAME` has it.
    pub name: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
    /// What its numbers say, in sentences.
    pub says: &'static str,
    /// What they do not say, a sentence each.
    pub silent: &'static [&'static str],
    /// Measures; an error means that nothing could be measured at all.
    pub run: fn(&Context) -> Result<SuiteResult>,
}

/// What every suite is told.
#[derive(Debug, Clone)]
pub struct Context {
    /// How long to measure.
    pub profile: Profile,
    /// Interleaved rounds: 3 in quick, 9 in full unless the user says otherwise.
    pub rounds: usize,
    /// `--if A,B`: real devices, traffic goes in at A and comes out at B.
    pub interfaces: Option<(String, String)>,
    /// `--peer ADDRESS`: another machine runs `sluice bench serve`.
    pub peer: Option<String>,
    /// Names of the only figures that are wanted, which is what budgets ask for; empty: all.
    pub wanted: Vec<String>,
    /// What it tells whoever waits.
    pub progress: Progress,
}

impl Context {
    /// Not to be quoted, but soon done.
    pub fn quick(&self) -> bool {
        self.profile == Profile::Quick
    }

    /// Whether a figure is to be measured.
    pub fn wants(&self, figure: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|name| name == figure)
    }

    /// One value for each profile.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick() { quick } else { full }
    }
}

/// What a suite's numbers say and do not say, for `--help`.
pub fn says(suite: &Suite) -> String {
    let silent = suite.silent.iter().map(|sentence| format!("\n  - {sentence}")).collect::<String>();
    format!("{}\n\nWhat these numbers do not say:{silent}", suite.says)
}
