//! Charts with one row a name: forest plots, bars, waterfalls.

use super::scale::Scale;
use super::svg::{Anchor, Svg, fit, width_of};
use crate::method::chart::{Bars, Forest, ForestRow, Role, Step, Waterfall};
use crate::method::number::number;
use crate::method::result::{Better, Estimate};

const WIDTH: f64 = 700.0;
const ROW: f64 = 22.0;
const TOP: f64 = 26.0;
const MOST_NAME: f64 = 230.0;
const GAP: f64 = 12.0;

/// Where the plot begins, so that the names fit before it.
fn left<'a>(names: impl Iterator<Item = &'a str>) -> f64 {
    names.map(width_of).fold(40.0, f64::max).min(MOST_NAME) + GAP
}

fn interval(estimate: &Estimate) -> String {
    format!("{} [{}, {}]", number(estimate.value), number(estimate.low), number(estimate.high))
}

pub fn forest(chart: &Forest) -> String {
    // An A/A row stands on the line of the row it belongs to.
    let rows: Vec<&ForestRow> =
        chart.rows.iter().filter(|row| !row.same || owner(chart, row).is_none()).collect();
    let left = left(rows.iter().map(|row| row.name.as_str()));
    let right = WIDTH - 150.0;
    let height = TOP + ROW * rows.len() as f64 + 46.0;
    let bottom = height - 46.0;
    let x = ratio_scale(&chart.rows, left + 10.0, right);
    let mut svg = Svg::new(WIDTH, height, &chart.title);
    for (_, at, label) in x.ticks().iter().filter(|(_, _, label)| !label.is_empty()) {
        svg.line("grid", (*at, TOP - 6.0), (*at, bottom));
        svg.text("tick", (*at, bottom + 16.0), Anchor::Middle, label);
    }
    svg.line("one", (x.at(1.0), TOP - 10.0), (x.at(1.0), bottom));
    let (at, anchor, arrow) = match chart.better {
        Better::Lower => (x.at(1.0) - 8.0, Anchor::End, "← better"),
        Better::Higher => (x.at(1.0) + 8.0, Anchor::Start, "better →"),
    };
    svg.text("hint", (at, TOP - 12.0), anchor, arrow);
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * (i as f64 + 0.5);
        svg.text("row", (left, y + 4.0), Anchor::End, fit(&row.name, MOST_NAME));
        if let Some(same) =
            chart.rows.iter().find(|other| other.same && owner(chart, other) == Some(&row.name))
        {
            mark(&mut svg, same, &x, y + 5.0);
        }
        mark(&mut svg, row, &x, y);
        svg.text("value", (WIDTH - 4.0, y + 4.0), Anchor::End, interval(&row.estimate));
    }
    svg.text("label", ((left + right) / 2.0, height - 8.0), Anchor::Middle, &chart.ratio);
    svg.finish()
}

/// `A/A name` belongs to `name`.
fn owner<'a>(chart: &'a Forest, row: &'a ForestRow) -> Option<&'a String> {
    let name = row.name.strip_prefix("A/A ")?;
    chart.rows.iter().find(|other| !other.same && other.name == name).map(|other| &other.name)
}

fn ratio_scale(rows: &[ForestRow], from: f64, to: f64) -> Scale {
    let all = || {
        rows.iter()
            .flat_map(|row| [row.estimate.low, row.estimate.high, row.estimate.value])
            .filter(|x| *x > 0.0)
    };
    let (low, high) = (all().fold(0.8, f64::min), all().fold(1.25, f64::max));
    Scale::fixed_log(low * 0.95, high * 1.05, from, to)
}

fn mark(svg: &mut Svg, row: &ForestRow, x: &Scale, y: f64) {
    let Estimate { value, low, high, n } = row.estimate;
    let open = low <= 1.0 && 1.0 <= high;
    let class = if row.same {
        "same"
    } else if open {
        "open"
    } else {
        "clear"
    };
    svg.line(&format!("span {class}"), (x.at(low), y), (x.at(high), y));
    let tip = format!("{}: {}, n = {n}", row.name, interval(&row.estimate));
    let size = if row.same { 4.0 } else { 7.0 };
    svg.rect(&format!("box {class}"), (x.at(value) - size / 2.0, y - size / 2.0), (size, size), &tip);
}

pub fn bars(chart: &Bars) -> String {
    let left = left(chart.bars.iter().map(|bar| bar.name.as_str()));
    let row = ROW + 4.0;
    let height = TOP + row * chart.bars.len() as f64 + 8.0;
    let right = WIDTH - 150.0;
    let values = chart.bars.iter().flat_map(|bar| [bar.estimate.value, bar.estimate.high]);
    let x = Scale::over(values, false, left + 8.0, right);
    let mut svg = Svg::new(WIDTH, height, &chart.title);
    ticks_above(&mut svg, &x, height - 8.0, &chart.unit);
    for (i, bar) in chart.bars.iter().enumerate() {
        let y = TOP + row * i as f64;
        let role = match bar.role {
            Role::Subject => "subject",
            Role::Limit => "ceiling",
            Role::Peer | Role::Trials => "peer",
        };
        let tip = format!("{}: {} {}, n = {}", bar.name, interval(&bar.estimate), chart.unit, bar.estimate.n);
        svg.text("row", (left, y + row / 2.0 + 4.0), Anchor::End, fit(&bar.name, MOST_NAME));
        svg.rect(
            &format!("bar {role}"),
            (x.at(0.0), y + 4.0),
            (x.at(bar.estimate.value) - x.at(0.0), row - 8.0),
            &tip,
        );
        whisker(&mut svg, &x, &bar.estimate, y + row / 2.0);
        svg.text("value", (WIDTH - 4.0, y + row / 2.0 + 4.0), Anchor::End, interval(&bar.estimate));
    }
    svg.finish()
}

fn ticks_above(svg: &mut Svg, x: &Scale, bottom: f64, unit: &str) {
    for (_, at, label) in x.ticks() {
        svg.line("grid", (at, TOP - 4.0), (at, bottom));
        svg.text("tick", (at, TOP - 10.0), Anchor::Middle, label);
    }
    svg.text("hint", (WIDTH - 4.0, TOP - 10.0), Anchor::End, format!("{unit} [95 %]"));
}

fn whisker(svg: &mut Svg, x: &Scale, estimate: &Estimate, y: f64) {
    let (low, high) = (x.at(estimate.low), x.at(estimate.high));
    svg.line("error", (low, y), (high, y));
    for end in [low, high] {
        svg.line("error", (end, y - 3.0), (end, y + 3.0));
    }
}

pub fn waterfall(chart: &Waterfall) -> String {
    let left = left(chart.steps.iter().map(|step| step.name.as_str()));
    let row = ROW + 4.0;
    let height = TOP + row * chart.steps.len() as f64 + 8.0;
    let spans = spans(&chart.steps);
    let highs = chart
        .steps
        .iter()
        .zip(&spans)
        .map(|(step, (from, _))| if step.total { step.estimate.high } else { from + step.estimate.high });
    let edges = spans.iter().flat_map(|(from, to)| [*from, *to]).chain(highs);
    let x = Scale::over(edges, false, left + 8.0, WIDTH - 150.0);
    let mut svg = Svg::new(WIDTH, height, &chart.title);
    ticks_above(&mut svg, &x, height - 8.0, &chart.unit);
    for (i, (step, (from, to))) in chart.steps.iter().zip(&spans).enumerate() {
        let y = TOP + row * i as f64;
        let middle = y + row / 2.0;
        let class = if step.total {
            "total"
        } else if to >= from {
            "adds"
        } else {
            "takes"
        };
        let tip = format!("{}: {} {}", step.name, interval(&step.estimate), chart.unit);
        svg.text("row", (left, middle + 4.0), Anchor::End, fit(&step.name, MOST_NAME));
        let (start, end) = (x.at(from.min(*to)), x.at(from.max(*to)));
        svg.rect(&format!("bar {class}"), (start, y + 4.0), ((end - start).max(1.0), row - 8.0), &tip);
        if i + 1 < chart.steps.len() {
            svg.line("step", (x.at(*to), y + 4.0), (x.at(*to), y + row + row - 4.0));
        }
        let sign = if step.total || step.estimate.value < 0.0 { "" } else { "+" };
        svg.text(
            "value",
            (WIDTH - 4.0, middle + 4.0),
            Anchor::End,
            format!("{sign}{}", interval(&step.estimate)),
        );
    }
    svg.finish()
}

/// From where to where each step reaches.
fn spans(steps: &[Step]) -> Vec<(f64, f64)> {
    let mut sum = 0.0;
    let span = |step: &Step| {
        let from = if step.total { 0.0 } else { sum };
        sum = from + step.estimate.value;
        (from, sum)
    };
    steps.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(value: f64, total: bool) -> Step {
        Step { name: "s".to_owned(), estimate: Estimate { value, low: value, high: value, n: 3 }, total }
    }

    #[test]
    fn steps_stand_on_each_other_and_totals_on_the_ground() {
        let steps =
            [step(10.0, true), step(5.0, false), step(-3.0, false), step(12.5, true), step(1.0, false)];
        assert_eq!(spans(&steps), [(0.0, 10.0), (10.0, 15.0), (15.0, 12.0), (0.0, 12.5), (12.5, 13.5)]);
    }
}
