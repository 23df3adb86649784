//! Suite `latency`: how long a request and its echo take through each gateway, at a fixed rate.

use std::time::Duration;

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;

use crate::generator::echo::{self, Echoes, Server, histogram};
use crate::method::checks;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, PercentileSeries, Percentiles, Role, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::{Forwarder, Lane};

pub const SUITE: Suite = Suite {
    name: "latency",
    help: "Round trips through each gateway at a fixed rate: percentiles corrected for coordinated omission",
    says: "Time from the moment a request was due to the arrival of its echo, through the gateway there and back, for \
        UDP at a fixed rate. A request that leaves late because something held the sender up is counted from when it \
        should have left. Percentiles come from an HDR histogram with three digits.",
    silent: &[
        "Both hosts' socket calls are in it, twice: the differences between gateways are the gateways.",
        "Both ends spin, so a sleeping process that must be woken is not in it.",
        "A veth has no wire: serialisation and interrupts of real network cards come on top.",
    ],
    run: suite,
};

/// The last one is the first one's A/A.
const FORWARDERS: [Forwarder; 5] =
    [Forwarder::Linux, Forwarder::Tc, Forwarder::Xdp, Forwarder::Nftables, Forwarder::Linux];
const RATE: f64 = 20_000.0;
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

struct Lanes {
    lane: Lane,
    server: Server,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let length = context.pick(Duration::from_millis(1500), Duration::from_secs(10));
    context.progress.at(0.0, "setting up the gateways");
    let lane = |forwarder: &Forwarder| -> Result<Lanes> {
        let lane = Lane::new(*forwarder, "lat")?;
        Ok(Lanes { server: Server::bind(&lane.site.wan_host)?, lane })
    };
    let lanes = FORWARDERS[..4].iter().map(lane).collect::<Result<Vec<_>>>()?;
    let mut seen: Vec<Vec<Echoes>> = vec![vec![]; FORWARDERS.len()];
    let total = (FORWARDERS.len() * context.rounds) as f64;
    let mut done = 0.0;
    interleave(FORWARDERS.len(), context.rounds, |i, _| {
        context.progress.at(done / total, FORWARDERS[i].name());
        done += 1.0;
        let Lanes { lane, server } = &lanes[i % lanes.len()];
        let echoes = echo::run(&lane.site.lan_host, server, RATE, length)
            .with_context(|| format!("echoes through {}", FORWARDERS[i].name()))?;
        seen[i].push(echoes);
        Ok(0.0)
    })?;
    let mut result = SuiteResult::new(SUITE.name);
    for lanes in &lanes {
        result.checks.push(lanes.lane.mode_check()?);
    }
    result.figures = figures(&seen);
    let merged = seen.iter().map(|echoes| merge(echoes)).collect::<Result<Vec<_>>>()?;
    result.charts.push(chart(&merged));
    result.tables.push(table(&merged));
    result.notes.push(format!(
        "{RATE:.0} requests of 58-byte frames a second, {:.1} s a round",
        length.as_secs_f64()
    ));
    Ok(result)
}

fn microseconds(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}

fn figures(seen: &[Vec<Echoes>]) -> Vec<Figure> {
    let mut figures = vec![];
    for (i, forwarder) in FORWARDERS.iter().enumerate().take(FORWARDERS.len() - 1) {
        for (name, quantile) in QUANTILES {
            let samples = |i: usize| -> Vec<f64> {
                seen[i].iter().map(|echoes| microseconds(&echoes.scheduled, quantile)).collect()
            };
            let figure = Figure::new(format!("{} {name}", forwarder.name()), "us", Better::Lower, samples(i));
            let mut figure = match forwarder {
                Forwarder::Linux => figure.same(&samples(0), &samples(FORWARDERS.len() - 1)),
                _ => figure.against("Linux forwarding", &samples(0)),
            };
            figure.checks = checks(&seen[i]);
            figure.headline = forwarder.is_sluice() && name == "p99";
            figures.push(figure);
        }
    }
    figures
}

fn checks(seen: &[Echoes]) -> Vec<Check> {
    let sent: u64 = seen.iter().map(|echoes| echoes.sent).sum();
    let received = seen.iter().map(|echoes| echoes.received).sum();
    let seconds = seen.iter().map(|echoes| echoes.seconds).sum();
    vec![checks::conserved(sent, received, 0), checks::rate(RATE, sent, seconds)]
}

/// All rounds of one contestant: since the schedule, and since the request really left.
fn merge(seen: &[Echoes]) -> Result<(Histogram<u64>, Histogram<u64>)> {
    let (mut scheduled, mut really) = (histogram()?, histogram()?);
    for echoes in seen {
        scheduled.add(&echoes.scheduled)?;
        really.add(&echoes.really)?;
    }
    Ok((scheduled, really))
}

fn name(i: usize) -> String {
    if i + 1 == FORWARDERS.len() { "linux again".to_owned() } else { FORWARDERS[i].name().to_owned() }
}

fn table(merged: &[(Histogram<u64>, Histogram<u64>)]) -> Table {
    let row = |(i, (scheduled, really)): (usize, &(Histogram<u64>, Histogram<u64>))| {
        let mut cells = vec![name(i), scheduled.len().to_string()];
        cells.extend(QUANTILES.map(|(_, quantile)| format!("{:.1}", microseconds(scheduled, quantile))));
        cells.push(format!("{:.1}", scheduled.max() as f64 / 1e3));
        cells.push(format!("{:.1}", microseconds(really, 0.999)));
        cells
    };
    let mut header = vec!["through".to_owned(), "echoes".to_owned()];
    header.extend(QUANTILES.map(|(name, _)| name.to_owned()));
    header.extend(["max", "p99.9 uncorrected"].map(str::to_owned));
    Table {
        title: "Round trip, us".to_owned(),
        header,
        rows: merged.iter().enumerate().map(row).collect(),
        note: "All rounds. Uncorrected: counted from when the request really left, which hides what a stall cost."
            .to_owned(),
    }
}

fn chart(merged: &[(Histogram<u64>, Histogram<u64>)]) -> Chart {
    let series = |(i, (scheduled, _)): (usize, &(Histogram<u64>, Histogram<u64>))| {
        let steps = scheduled.iter_quantiles(2).map(|step| {
            (100.0 * step.quantile_iterated_to().min(1.0), step.value_iterated_to() as f64 / 1e3)
        });
        PercentileSeries {
            name: name(i),
            role: if FORWARDERS[i].is_sluice() { Role::Subject } else { Role::Peer },
            points: steps.collect(),
            count: scheduled.len(),
        }
    };
    Chart::Percentiles(Percentiles {
        title: "Round trip at a fixed rate".to_owned(),
        y: Axis::log("round trip, us"),
        series: merged.iter().enumerate().map(series).collect(),
        note: "Counted from when a request was due. The last percentiles are single events: compare them with the A/A."
            .to_owned(),
    })
}
