//! Timelines and flame graphs.

use super::scale::Scale;
use super::svg::{Anchor, Svg, fit, width_of};
use crate::method::chart::{Flame, Frame, TimeLane, Timeline};
use crate::method::number::number;

const WIDTH: f64 = 700.0;
const LANE: f64 = 64.0;
const TOP: f64 = 10.0;
const MOST_NAME: f64 = 170.0;

pub fn timeline(chart: &Timeline) -> String {
    let longest = chart.lanes.iter().map(|lane| width_of(&lane.name)).fold(40.0, f64::max);
    let left = longest.min(MOST_NAME) + 14.0;
    let height = TOP + LANE * chart.lanes.len() as f64 + 44.0;
    let bottom = height - 44.0;
    let x = Scale::over([chart.seconds], false, left, WIDTH - 14.0);
    let mut svg = Svg::new(WIDTH, height, &chart.title);
    for (_, at, label) in x.ticks() {
        svg.line("grid", (at, TOP), (at, bottom));
        svg.text("tick", (at, bottom + 16.0), Anchor::Middle, label);
    }
    for (i, lane) in chart.lanes.iter().enumerate() {
        let top = TOP + LANE * i as f64;
        lane_rows(&mut svg, lane, &x, (left, top));
    }
    svg.text("label", ((left + WIDTH) / 2.0, height - 6.0), Anchor::Middle, "seconds");
    svg.finish()
}

/// From above: events, the rate that arrived, the gaps in it.
fn lane_rows(svg: &mut Svg, lane: &TimeLane, x: &Scale, (left, top): (f64, f64)) {
    let (high, ground) = (top + 20.0, top + LANE - 10.0);
    svg.line("axis", (left, ground), (WIDTH - 14.0, ground));
    svg.text(
        if lane.control { "row control" } else { "row" },
        (left - 8.0, top + 38.0),
        Anchor::End,
        fit(&lane.name, MOST_NAME),
    );
    let most = lane.rate.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if most > 0.0 {
        let y = Scale::fixed(0.0, most * 1.05, ground, high);
        let mut area: Vec<(f64, f64)> = lane.rate.iter().map(|(at, rate)| (x.at(*at), y.at(*rate))).collect();
        if let (Some(first), Some(last)) = (area.first().copied(), area.last().copied()) {
            area.extend([(last.0, ground), (first.0, ground)]);
        }
        svg.polygon("area", &area);
    }
    for (from, to, what) in &lane.gaps {
        let (start, end) = (x.at(*from), x.at(*to));
        let tip = format!("{}: {what}, {} ms at {} s", lane.name, number((to - from) * 1e3), number(*from));
        svg.rect("gap", (start, high), ((end - start).max(2.0), ground - high), &tip);
    }
    events(svg, lane, x, (top, ground));
}

/// Names stand right of their marks, or left where the next mark is too near; where neither fits, the pointer tells them.
fn events(svg: &mut Svg, lane: &TimeLane, x: &Scale, (top, ground): (f64, f64)) {
    let marks: Vec<f64> = lane.events.iter().map(|(at, _)| x.at(*at)).collect();
    let mut taken = x.at(0.0);
    for (i, (at, what)) in lane.events.iter().enumerate() {
        let mark = marks[i];
        let next = marks.get(i + 1).copied().unwrap_or(WIDTH);
        svg.line("event", (mark, top + 14.0), (mark, ground));
        svg.circle("event", (mark, top + 14.0), 3.0, &format!("{what} at {} s", number(*at)));
        let room = width_of(what) + 10.0;
        if mark + room < next {
            svg.text("event-name", (mark + 6.0, top + 16.0), Anchor::Start, what);
            taken = mark + room;
        } else if mark - room > taken {
            svg.text("event-name", (mark - 6.0, top + 16.0), Anchor::End, what);
            taken = mark;
        } else {
            taken = mark;
        }
    }
}

const FLAME_WIDTH: f64 = 1400.0;
const FRAME: f64 = 18.0;
/// Narrower frames are left out.
const LEAST: f64 = 0.6;

pub fn flame(chart: &Flame) -> String {
    let depth = depth(&chart.root, FLAME_WIDTH / chart.root.samples.max(1) as f64);
    let mut svg = Svg::new(FLAME_WIDTH, FRAME * depth as f64 + 2.0, &chart.title);
    let total = chart.root.samples.max(1);
    frame(&mut svg, &chart.root, (0.0, 0), FLAME_WIDTH / total as f64, total);
    svg.finish()
}

fn depth(frame: &Frame, scale: f64) -> usize {
    let wide = frame.children.iter().filter(|child| child.samples as f64 * scale >= LEAST);
    1 + wide.map(|child| depth(child, scale)).max().unwrap_or(0)
}

fn frame(svg: &mut Svg, one: &Frame, (left, level): (f64, usize), scale: f64, total: u64) {
    let width = one.samples as f64 * scale;
    if width < LEAST {
        return;
    }
    let top = FRAME * level as f64;
    let kind = if one.bpf {
        "bpf".to_owned()
    } else {
        format!("f{}", one.name.bytes().map(usize::from).sum::<usize>() % 4)
    };
    let share = 100.0 * one.samples as f64 / total as f64;
    svg.rect(
        &format!("frame {kind}"),
        (left, top),
        (width - 0.5, FRAME - 1.0),
        &format!("{}: {share:.1} %", one.name),
    );
    if width > 40.0 {
        svg.text("frame", (left + 4.0, top + 13.0), Anchor::Start, fit(&one.name, width - 8.0));
    }
    let mut at = left;
    for child in &one.children {
        frame(svg, child, (at, level + 1), scale, total);
        at += child.samples as f64 * scale;
    }
}
