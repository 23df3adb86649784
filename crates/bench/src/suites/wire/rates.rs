//! As fast as it goes: the generator's own ceiling, by size of frame and by way of sending.

use std::time::Duration;

use anyhow::Result;

use crate::generator::wire::frame::RFC2544_SIZES;
use crate::generator::wire::pair::{MOST_FLOWS, Pair, Window};
use crate::generator::wire::receiver::Role;
use crate::generator::wire::socket::{self, Kind};
use crate::generator::wire::{Device, Order, Size};
use crate::method::checks;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role as Line, Series, SuiteResult,
};
use crate::method::rounds::interleave;
use crate::method::suite::Context;

const SETTLE: Duration = Duration::from_millis(100);
const FLOWS: u32 = MOST_FLOWS;

/// What sends, and into what.
struct Lane {
    name: String,
    order: Order,
    sink: Role,
    by: By,
    windows: Vec<Window>,
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    LiveFrames,
    Socket(Kind),
}

const FLOOR: &str = "kernel's own path, one repeated frame";
const DISTINCT: &str = "64 B distinct into XDP drop";
/// The floor, the distinct frames and these again come first.
const AGAIN: usize = 2;

fn lanes(plain: &Order) -> Vec<Lane> {
    let lane = |name: &str, order: Order, sink: Role, by: By| Lane {
        name: name.to_owned(),
        order,
        sink,
        by,
        windows: vec![],
    };
    let mut lanes = vec![
        lane(FLOOR, plain.clone().repeated(), Role::Drop, By::LiveFrames),
        lane(DISTINCT, plain.clone(), Role::Drop, By::LiveFrames),
        lane("64 B distinct into XDP drop, again", plain.clone(), Role::Drop, By::LiveFrames),
        lane("64 B with time into XDP drop", plain.clone().stamped(), Role::Drop, By::LiveFrames),
        lane("64 B AF_XDP", plain.clone(), Role::Drop, By::Socket(Kind::Xdp)),
        lane("64 B AF_PACKET", plain.clone(), Role::Drop, By::Socket(Kind::Packet)),
    ];
    let sizes = RFC2544_SIZES.map(Size::Bytes).into_iter().chain([Size::Imix]);
    lanes.extend(sizes.map(|size| {
        let order = plain.clone().stamped().size(size);
        lane(&format!("{} judged", size.name()), order, Role::Judge, By::LiveFrames)
    }));
    lanes
}

pub fn run(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let window = Duration::from_millis(context.pick(200, 700));
    let (mut dropping, mut judging) = (Pair::veth(Role::Drop)?, Pair::veth(Role::Judge)?);
    let all = lanes(&dropping.order(FLOWS)).into_iter().enumerate();
    let needed = all.filter(|(i, lane)| *i <= AGAIN || context.wants(&lane.name));
    let mut lanes: Vec<Lane> = needed.map(|(_, lane)| lane).collect();
    let total = lanes.len() * context.rounds;
    let mut done = 0;
    let samples = interleave(lanes.len(), context.rounds, |contestant, _| {
        let lane = &mut lanes[contestant];
        context.progress.at(0.5 * done as f64 / total as f64, &lane.name);
        done += 1;
        let pair = if lane.sink == Role::Drop { &mut dropping } else { &mut judging };
        let measured = match lane.by {
            By::LiveFrames => pair.window(&lane.order, SETTLE, window)?,
            By::Socket(kind) => by_socket(pair, &lane.order, kind, window)?,
        };
        let pps = measured.received_pps;
        lane.windows.push(measured);
        Ok(pps / 1e6)
    })?;
    let floor = samples[0].clone();
    for (lane, samples_of_lane) in lanes.iter().zip(&samples).skip(1) {
        let mut figure = Figure::new(&lane.name, "Mpps", Better::Higher, samples_of_lane.clone());
        if lane.by == By::LiveFrames {
            figure = figure.against(FLOOR, &floor);
        }
        if lane.name == DISTINCT {
            figure = figure.same(&samples[1], &samples[AGAIN]).headline();
        }
        for check in checks(lane) {
            figure = figure.check(check);
        }
        result.figures.push(figure);
    }
    result.charts.push(by_size(&lanes, &samples));
    result.notes.push(format!(
        "live frames, {FLOWS} flows; {FLOOR}: {:.2} Mpps. The kernel's page pool, bulk queue, veth ring and poll take \
         that long whatever is in a frame, so it is the ceiling of any generator on this path.",
        crate::method::stats::median(&floor)
    ));
    Ok(())
}

fn by_socket(pair: &mut Pair, order: &Order, kind: Kind, window: Duration) -> Result<Window> {
    pair.receiver.expect(order.flows, false)?;
    let device = Device { netns: pair.netns(), ifindex: pair.from };
    let sent = socket::send(kind, device, order, SETTLE + window)?;
    pair.receiver.settle(sent.frames);
    let all = pair.receiver.report(sent.frames);
    let pps = all.received as f64 / sent.seconds;
    Ok(Window { sent_pps: sent.frames as f64 / sent.seconds, received_pps: pps, all })
}

fn checks(lane: &Lane) -> Vec<Check> {
    let sum = |field: fn(&Window) -> u64| lane.windows.iter().map(field).sum::<u64>();
    let (sent, received) = (sum(|w| w.all.sent), sum(|w| w.all.received));
    let mut checks = vec![checks::conserved(sent, received, 0)];
    if lane.sink == Role::Judge {
        let (distinct, bytes) = (sum(|w| w.all.distinct), sum(|w| w.all.bytes));
        checks.push(checks::single_pass(sent, distinct));
        let size = lane.order.size.mean_bytes();
        // The frame check sequence is counted in a size and is not in memory.
        let bits = 8.0 * (bytes + 4 * received) as f64;
        checks.push(checks::frame_size(bits, received as f64, (size, size)));
    }
    checks
}

fn by_size(lanes: &[Lane], samples: &[Vec<f64>]) -> Chart {
    let judged: Vec<_> = lanes
        .iter()
        .zip(samples)
        .filter_map(|(lane, samples)| match lane.order.size {
            Size::Bytes(size) if lane.sink == Role::Judge => Some((f64::from(size), samples)),
            _ => None,
        })
        .collect();
    let points = judged.iter().map(|(size, samples)| {
        let rate = crate::method::stats::estimate(samples);
        Point { x: *size, y: rate.value, low: Some(rate.low), high: Some(rate.high), label: String::new() }
    });
    let mut series = vec![Series {
        name: "sent, numbered, stamped and judged on one core".to_owned(),
        role: Line::Subject,
        points: points.collect(),
    }];
    for gbps in [10.0, 25.0, 40.0] {
        let points = RFC2544_SIZES.map(|size| Point {
            x: f64::from(size),
            y: Size::Bytes(size).line_rate(gbps) / 1e6,
            ..Point::default()
        });
        let name = format!("{gbps:.0} Gb/s line rate");
        series.push(Series { name, role: Line::Limit, points: points.to_vec() });
    }
    Chart::Line(LineChart {
        title: "Generator and receiver by frame size".to_owned(),
        x: Axis { label: "frame size, bytes".to_owned(), log: true },
        y: Axis { label: "Mpps".to_owned(), log: true },
        series,
        note: "One core sends over a veth and judges every frame. Above a dashed line the pair fills such a link."
            .to_owned(),
    })
}
