//! What a suite draws: data only, the report makes inline SVG of it and the JSON keeps it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method::stats::{Better, Estimate};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Chart {
    /// Curves or points over one axis: rate over size, ns over sessions, loss over offered rate.
    Line(LineChart),
    /// Values over percentiles, the axis stretched towards 100 %: latency.
    Percentiles(Percentiles),
    /// Parts that add up: ns a stage.
    Waterfall(Waterfall),
    /// What happened when: hitless events and the gaps around them.
    Timeline(Timeline),
    /// Ratios with their intervals beside 1.
    Forest(Forest),
    /// One bar a name.
    Bars(Bars),
    /// A call tree by CPU time.
    Flame(Flame),
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineChart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
    /// What to see in it, and what not; shown below.
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// With the unit: `offered rate, Mpps`.
    pub label: String,
    #[serde(default)]
    pub log: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    pub name: String,
    pub role: Role,
    pub points: Vec<Point>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What is measured: a solid line through its points.
    Subject,
    /// A peer or a floor, thinner.
    Peer,
    /// Line rate, generator ceiling: a dashed line that nothing can pass.
    Limit,
    /// Single trials: points without a line.
    Trials,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// 95 % interval of y.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Told when the pointer rests on it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    pub title: String,
    /// Of the values: `one-way latency, us`.
    pub y: Axis,
    pub series: Vec<PercentileSeries>,
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PercentileSeries {
    pub name: String,
    pub role: Role,
    /// (percentile 0 to 100, value), rising. 100 is the largest value seen.
    pub points: Vec<(f64, f64)>,
    /// Values recorded.
    pub count: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waterfall {
    pub title: String,
    pub unit: String,
    /// In the order in which a packet meets them; a negative one takes away.
    pub steps: Vec<Step>,
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    pub estimate: Estimate,
    /// The sum so far, measured as such: drawn from zero.
    #[serde(default)]
    pub total: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    pub title: String,
    pub seconds: f64,
    pub lanes: Vec<TimeLane>,
    #[serde(default)]
    pub note: String,
}

/// One run: what was done, and what packets saw.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeLane {
    pub name: String,
    /// Nothing was done here: what the machine does by itself.
    #[serde(default)]
    pub control: bool,
    /// (second, what was done)
    pub events: Vec<(f64, String)>,
    /// (from, to) in seconds, during which packets were missing or late, and what it was.
    pub gaps: Vec<(f64, f64, String)>,
    /// (second, packets a second that arrived), drawn as a filled curve.
    #[serde(default)]
    pub rate: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forest {
    pub title: String,
    /// `sluice / nftables`
    pub ratio: String,
    pub better: Better,
    pub rows: Vec<ForestRow>,
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForestRow {
    pub name: String,
    pub estimate: Estimate,
    /// An A/A row: equal contestants, which must hold 1.
    #[serde(default)]
    pub same: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    pub title: String,
    /// `Mpps`
    pub unit: String,
    pub bars: Vec<Bar>,
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    pub name: String,
    pub role: Role,
    pub estimate: Estimate,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flame {
    pub title: String,
    /// Samples, the children's included.
    pub root: Frame,
    #[serde(default)]
    pub note: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    pub name: String,
    pub samples: u64,
    /// A BPF program: coloured apart from the kernel's own functions.
    #[serde(default)]
    pub bpf: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Frame>,
}

impl Point {
    pub fn new(x: f64, y: f64) -> Point {
        Point { x, y, ..Point::default() }
    }

    /// The estimate's value with its interval.
    pub fn of(x: f64, estimate: &Estimate) -> Point {
        Point {
            x,
            y: estimate.value,
            low: Some(estimate.low),
            high: Some(estimate.high),
            label: String::new(),
        }
    }
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: false }
    }

    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: true }
    }
}
