//! What a suite draws: data only, the report makes inline SVG of it and the JSON keeps it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::method::stats::{Better, Estimate};

/// One drawing of a report.
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

/// Curves or points over one axis.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LineChart {
    /// Heading above it.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Drawn in this order.
    pub series: Vec<Series>,
    /// What to see in it, and what not; shown below.
    #[serde(default)]
    pub note: String,
}

/// How values become positions.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// With the unit: `offered rate, Mpps`.
    pub label: String,
    /// Logarithmic; else linear from zero.
    #[serde(default)]
    pub log: bool,
}

/// One curve, or one set of points.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// As the legend has it.
    pub name: String,
    /// How it is drawn.
    pub role: Role,
    /// Rising in x.
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

/// One value of a series.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// In the unit of the x axis.
    pub x: f64,
    /// In the unit of the y axis.
    pub y: f64,
    /// 95 % interval of y.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Told when the pointer rests on it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// Values over percentiles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Percentiles {
    /// Heading above it.
    pub title: String,
    /// Of the values: `one-way latency, us`.
    pub y: Axis,
    /// Drawn in this order.
    pub series: Vec<PercentileSeries>,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// One distribution.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PercentileSeries {
    /// As the legend has it.
    pub name: String,
    /// How it is drawn.
    pub role: Role,
    /// (percentile 0 to 100, value), rising. 100 is the largest value seen.
    pub points: Vec<(f64, f64)>,
    /// Values recorded.
    pub count: u64,
}

/// Parts that add up.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Waterfall {
    /// Heading above it.
    pub title: String,
    /// `ns/packet`
    pub unit: String,
    /// In the order in which a packet meets them; a negative one takes away.
    pub steps: Vec<Step>,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// One part of a waterfall.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Beside its bar.
    pub name: String,
    /// What it adds, or the sum so far.
    pub estimate: Estimate,
    /// The sum so far, measured as such: drawn from zero.
    #[serde(default)]
    pub total: bool,
}

/// What happened when, in several runs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeline {
    /// Heading above it.
    pub title: String,
    /// Length of the axis.
    pub seconds: f64,
    /// One below the other.
    pub lanes: Vec<TimeLane>,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// One run: what was done, and what packets saw.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeLane {
    /// Beside the lane.
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

/// Ratios with their intervals beside 1.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Forest {
    /// Heading above it.
    pub title: String,
    /// `sluice / nftables`
    pub ratio: String,
    /// Which side of 1 is the good one.
    pub better: Better,
    /// One below the other.
    pub rows: Vec<ForestRow>,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// One ratio of a forest.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForestRow {
    /// Beside its interval.
    pub name: String,
    /// The ratio.
    pub estimate: Estimate,
    /// An A/A row: equal contestants, which must hold 1.
    #[serde(default)]
    pub same: bool,
}

/// One bar a name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    /// Heading above it.
    pub title: String,
    /// `Mpps`
    pub unit: String,
    /// One below the other.
    pub bars: Vec<Bar>,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// One bar.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bar {
    /// Beside it.
    pub name: String,
    /// How it is drawn.
    pub role: Role,
    /// In the unit of the chart.
    pub estimate: Estimate,
}

/// A call tree by CPU time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flame {
    /// Heading above it.
    pub title: String,
    /// Samples, the children's included.
    pub root: Frame,
    /// Shown below.
    #[serde(default)]
    pub note: String,
}

/// A function within its callers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Symbol of the kernel, or name of a BPF program.
    pub name: String,
    /// Of it and of what it calls.
    pub samples: u64,
    /// A BPF program: coloured apart from the kernel's own functions.
    #[serde(default)]
    pub bpf: bool,
    /// Functions that it calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Frame>,
}

impl Point {
    /// Without an interval.
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
    /// From zero; `label` with the unit.
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: false }
    }

    /// Without a zero; `label` with the unit.
    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), log: true }
    }
}
