//! Curves, trials and percentiles over one axis.

use super::scale::Scale;
use super::svg::{Anchor, Svg, fit, spread, width_of};
use crate::method::chart::{LineChart, Percentiles, Point, Role, Series};
use crate::method::number::number;

const WIDTH: f64 = 700.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = HEIGHT - 50.0;
const MOST_LABEL: f64 = 190.0;
/// Colours of the style sheet.
pub const COLOURS: usize = 6;

/// Room that names at the ends of curves need.
fn right(names: &[String]) -> f64 {
    let longest = names.iter().map(|name| width_of(name)).fold(0.0, f64::max);
    WIDTH - longest.min(MOST_LABEL) - 22.0
}

pub fn line(chart: &LineChart) -> String {
    let names: Vec<String> = chart.series.iter().map(|series| series.name.clone()).collect();
    let right = right(&names);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = Scale::over(points().map(|point| point.x), chart.x.log, LEFT, right);
    let spans = points().flat_map(|point| [Some(point.y), point.low, point.high].into_iter().flatten());
    let y = Scale::over(spans, chart.y.log, BOTTOM, TOP);
    let mut svg = Svg::new(WIDTH, HEIGHT, &chart.title);
    grid(&mut svg, &x.ticks(), &y, right, (&chart.x.label, &chart.y.label));
    let colours = colours(&chart.series);
    for (series, colour) in chart.series.iter().zip(&colours) {
        draw(&mut svg, series, *colour, &x, &y, right);
    }
    name_ends(&mut svg, &chart.series, &colours, &x, &y, right);
    svg.finish()
}

/// What is measured takes the strong colours first; limits have none.
fn colours(series: &[Series]) -> Vec<usize> {
    let mut next = 0;
    let mut colour = |series: &Series| {
        if series.role == Role::Limit {
            return COLOURS;
        }
        next += 1;
        (next - 1) % COLOURS
    };
    // A floor shares the colour of what stands on it: `floor xdp v4 udp` that of `xdp v4 udp`.
    let mut taken: Vec<(String, usize)> = vec![];
    let mut chosen = vec![];
    for one in series {
        let subject = taken.iter().find(|(name, _)| one.name.strip_prefix("floor ") == Some(name));
        let colour = subject.map(|(_, colour)| *colour).unwrap_or_else(|| colour(one));
        taken.push((one.name.clone(), colour));
        chosen.push(colour);
    }
    chosen
}

fn grid(svg: &mut Svg, x: &[(f64, f64, String)], y: &Scale, right: f64, labels: (&str, &str)) {
    for (_, at, label) in y.ticks() {
        svg.line(if label.is_empty() { "minor" } else { "grid" }, (LEFT, at), (right, at));
        svg.text("tick", (LEFT - 8.0, at + 4.0), Anchor::End, label);
    }
    let mut free = f64::NEG_INFINITY;
    for (_, at, label) in x {
        svg.line(if label.is_empty() { "minor" } else { "grid" }, (*at, TOP), (*at, BOTTOM));
        // Ticks of a logarithmic axis may crowd.
        if at - width_of(label) / 2.0 > free && !label.is_empty() {
            svg.text("tick", (*at, BOTTOM + 18.0), Anchor::Middle, label);
            free = at + width_of(label) / 2.0 + 4.0;
        }
    }
    svg.line("axis", (LEFT, BOTTOM), (right, BOTTOM));
    svg.text("label", ((LEFT + right) / 2.0, HEIGHT - 8.0), Anchor::Middle, labels.0);
    svg.upright("label", (14.0, (TOP + BOTTOM) / 2.0), labels.1);
}

fn draw(svg: &mut Svg, series: &Series, colour: usize, x: &Scale, y: &Scale, right: f64) {
    let at = |point: &Point| (x.at(point.x), y.at(point.y));
    let mut points: Vec<&Point> = series.points.iter().collect();
    points.sort_by(|a, b| a.x.total_cmp(&b.x));
    let path: Vec<(f64, f64)> = points.iter().map(|point| at(point)).collect();
    let class = format!("c{colour}");
    match (series.role, &path[..]) {
        (Role::Limit, [(_, only)]) => svg.line("limit", (LEFT, *only), (right, *only)),
        (Role::Limit, _) => svg.polyline("limit", &path),
        (Role::Trials, _) => {}
        (Role::Subject, _) => svg.polyline(&format!("curve {class}"), &path),
        (Role::Peer, _) => svg.polyline(&format!("curve thin {class}"), &path),
    }
    for point in points.iter().filter(|_| series.role != Role::Limit) {
        let (px, py) = at(point);
        if let (Some(low), Some(high)) = (point.low, point.high) {
            svg.line(&format!("whisker {class}"), (px, y.at(low)), (px, y.at(high)));
        }
        let dot = if series.role == Role::Trials { "trial" } else { "dot" };
        svg.circle(
            &format!("{dot} {class}"),
            (px, py),
            if series.role == Role::Subject { 3.5 } else { 3.0 },
            &tip(series, point),
        );
    }
}

fn tip(series: &Series, point: &Point) -> String {
    let mut text = format!("{}: {} at {}", series.name, number(point.y), number(point.x));
    if let (Some(low), Some(high)) = (point.low, point.high) {
        text += &format!(", 95 % [{}, {}]", number(low), number(high));
    }
    if !point.label.is_empty() {
        text += &format!("; {}", point.label);
    }
    text
}

/// Each curve's name at its right end, moved apart where curves end close together.
fn name_ends(svg: &mut Svg, series: &[Series], colours: &[usize], x: &Scale, y: &Scale, right: f64) {
    let end = |series: &Series| {
        series.points.iter().max_by(|a, b| a.x.total_cmp(&b.x)).map(|point| (x.at(point.x), y.at(point.y)))
    };
    let ends: Vec<(f64, f64)> = series.iter().map(|series| end(series).unwrap_or((right, TOP))).collect();
    let label_ys = spread(&ends.iter().map(|(_, y)| *y).collect::<Vec<_>>(), 15.0, TOP + 2.0, BOTTOM - 2.0);
    for (((series, colour), label_y), (end_x, end_y)) in series.iter().zip(colours).zip(&label_ys).zip(&ends)
    {
        svg.line(&format!("leader c{colour}"), (end_x + 5.0, *end_y), (right + 8.0, *label_y));
        svg.text(
            &format!("name c{colour}"),
            (right + 12.0, label_y + 4.0),
            Anchor::Start,
            fit(&series.name, MOST_LABEL),
        );
    }
}

/// The axis of percentiles: each further nine takes as much room as the one before.
struct Nines {
    most: f64,
    right: f64,
}

impl Nines {
    fn at(&self, percentile: f64) -> f64 {
        let nines = -(1.0 - percentile / 100.0).max(1e-12).log10();
        LEFT + (nines / self.most).min(1.0) * (self.right - LEFT)
    }

    fn ticks(&self) -> Vec<(f64, f64, String)> {
        let known = [0.0_f64, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999];
        let shown =
            known.into_iter().filter(|percentile| -(1.0 - percentile / 100.0).log10() < self.most - 0.25);
        let mut ticks: Vec<(f64, f64, String)> = shown.map(|p| (p, self.at(p), p.to_string())).collect();
        ticks.push((100.0, self.right, "max".to_owned()));
        ticks
    }
}

pub fn percentiles(chart: &Percentiles) -> String {
    let names: Vec<String> = chart.series.iter().map(|series| series.name.clone()).collect();
    let right = right(&names);
    let count = chart.series.iter().map(|series| series.count).max().unwrap_or(1).max(10);
    let x = Nines { most: (count as f64).log10().min(7.5), right };
    let values = chart.series.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
    let y = Scale::over(values, chart.y.log, BOTTOM, TOP);
    let mut svg = Svg::new(WIDTH, HEIGHT, &chart.title);
    grid(&mut svg, &x.ticks(), &y, right, ("percentile of packets", &chart.y.label));
    // The same curves as over any other axis, once their percentiles are positions.
    let positions = Scale::fixed(LEFT, right, LEFT, right);
    let series: Vec<Series> = chart
        .series
        .iter()
        .map(|one| Series {
            name: one.name.clone(),
            role: one.role,
            points: one.points.iter().map(|(p, value)| Point::new(x.at(*p), *value)).collect(),
        })
        .collect();
    let colours = colours(&series);
    for ((series, colour), source) in series.iter().zip(&colours).zip(&chart.series) {
        let path: Vec<(f64, f64)> = series.points.iter().map(|point| (point.x, y.at(point.y))).collect();
        let thin = if series.role == Role::Subject { "" } else { " thin" };
        svg.polyline(&format!("curve{thin} c{colour}"), &path);
        for ((px, py), (percentile, value)) in path.iter().zip(&source.points) {
            let tip = format!("{}: p{percentile} {} of {} values", source.name, number(*value), source.count);
            svg.circle(&format!("dot c{colour}"), (*px, *py), 2.5, &tip);
        }
    }
    name_ends(&mut svg, &series, &colours, &positions, &y, right);
    svg.finish()
}
