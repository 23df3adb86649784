//! Requested rates: what the generator sent, by its clock and by the receiver's.

use std::time::Duration;

use anyhow::Result;

use crate::generator::wire::Sent;
use crate::generator::wire::pair::Pair;
use crate::generator::wire::receiver::{Received, Role};
use crate::method::checks;
use crate::method::result::{
    Axis, Better, Chart, Check, Estimate, Figure, PercentileSeries, Percentiles, Role as Line, SuiteResult,
    Table,
};
use crate::method::rounds::interleave;
use crate::method::suite::Context;

const RATES: [f64; 6] = [10e3, 100e3, 500e3, 1e6, 1.5e6, 2e6];
/// Beyond this the rate is not the one asked for.
const WITHIN_PERCENT: f64 = 1.0;
const FLOWS: u32 = 1000;

pub fn run(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let seconds = context.pick(0.25, 1.0);
    let mut pair = Pair::veth(Role::Judge)?;
    let mut runs: Vec<Vec<(Sent, Received)>> = vec![vec![]; RATES.len()];
    let total = RATES.len() * context.rounds;
    let mut done = 0;
    let samples = interleave(RATES.len(), context.rounds, |contestant, _| {
        let rate = RATES[contestant];
        context.progress.at(0.5 + 0.3 * done as f64 / total as f64, &format!("{rate:.0} frames a second"));
        done += 1;
        let order = pair.order(FLOWS).stamped().rate(rate).limit((rate * seconds) as u64);
        let (sent, received) = pair.exchange(&order)?;
        let arrived = (received.received.max(1) - 1) as f64 / received.seconds;
        runs[contestant].push((sent, received));
        Ok(100.0 * (arrived / rate - 1.0).abs())
    })?;
    let mut table = Table {
        title: "Requested rates".to_owned(),
        header: ["requested pps", "sent", "received", "off by %", "late ms", "p50 us", "p99 us"].map(str::to_owned).into(),
        rows: vec![],
        note: "off by: median over the rounds, by the receiver's clock. late: the schedule was moved on because the \
               generator did not get its CPU; nothing is made up for in a burst. Times are one way, to the end of the batch."
            .to_owned(),
    };
    for ((rate, runs), samples) in RATES.iter().zip(&runs).zip(&samples) {
        table.rows.push(row(*rate, runs, samples));
        result.figures.push(figure(*rate, runs, samples));
    }
    result.tables.push(table);
    result.charts.push(latency(&runs));
    Ok(())
}

fn row(rate: f64, runs: &[(Sent, Received)], samples: &[f64]) -> Vec<String> {
    let last = &runs[runs.len() - 1].1;
    let late: Duration = runs.iter().map(|(sent, _)| Duration::from_secs_f64(sent.late_seconds)).sum();
    vec![
        format!("{rate:.0}"),
        runs.iter().map(|(sent, _)| sent.frames).sum::<u64>().to_string(),
        runs.iter().map(|(_, received)| received.distinct).sum::<u64>().to_string(),
        format!("{:.3}", crate::method::stats::median(samples)),
        format!("{:.2}", late.as_secs_f64() * 1e3),
        format!("{:.2}", last.latency.percentile(50.0) / 1e3),
        format!("{:.2}", last.latency.percentile(99.0) / 1e3),
    ]
}

fn figure(rate: f64, runs: &[(Sent, Received)], samples: &[f64]) -> Figure {
    let off = Estimate::worst(samples).value;
    let sum = |field: fn(&Received) -> u64| runs.iter().map(|(_, received)| field(received)).sum::<u64>();
    let mut figure =
        Figure::new(format!("rate of {rate:.0} pps off by"), "%", Better::Lower, samples.to_vec())
            .check(Check::new(
                "requested rate held",
                off <= WITHIN_PERCENT,
                format!("off by {off:.3} % in the worst round, at most {WITHIN_PERCENT} %"),
            ))
            .check(checks::conserved(sum(|r| r.sent), sum(|r| r.received), 0))
            .check(checks::single_pass(sum(|r| r.sent), sum(|r| r.distinct)));
    // Ratios of errors near zero say nothing about steadiness.
    figure.unsteady = samples.iter().any(|off| *off > WITHIN_PERCENT);
    figure
}

fn latency(runs: &[Vec<(Sent, Received)>]) -> Chart {
    let series =
        RATES.iter().zip(runs).filter(|(rate, _)| [100e3, 1e6, 2e6].contains(*rate)).map(|(rate, runs)| {
            let latency = &runs[runs.len() - 1].1.latency;
            PercentileSeries {
                name: format!("{:.0}k pps", rate / 1e3),
                role: Line::Subject,
                points: latency.curve().into_iter().map(|(percent, ns)| (percent, ns / 1e3)).collect(),
                count: latency.count(),
            }
        });
    Chart::Percentiles(Percentiles {
        title: "From generator to receiver over a veth".to_owned(),
        y: Axis { label: "one way, us".to_owned(), log: true },
        series: series.collect(),
        note:
            "The floor of what this receiver can tell: half a batch of the sender and the poll of the veth."
                .to_owned(),
    })
}
