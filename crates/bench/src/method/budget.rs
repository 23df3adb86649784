//! A budget: a promised figure and its limit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost,
    AtLeast,
}

impl Bound {
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Bound::AtMost => value <= limit,
            Bound::AtLeast => value >= limit,
        }
    }

    pub fn sign(self) -> &'static str {
        match self {
            Bound::AtMost => "<=",
            Bound::AtLeast => ">=",
        }
    }
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
