//! Suite `bulk`: bulk TCP through a gateway, four streams towards the client, by every way Sluice can take packets.

use anyhow::{Context as _, Result};

use crate::method::checks;
use crate::method::result::{
    Bar, Bars, Better, Chart, Check, Figure, Forest, ForestRow, Role, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::stats::{estimate, median, paired_ratio};
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::iperf::{Arrived, Bulk, Length, Transfer};

mod flood;

pub(crate) const SUITE: Suite = Suite {
    name: "bulk",
    help: "iperf3, four streams in reverse, through Sluice on tc, native XDP and generic XDP, beside Linux forwarding",
    says: "What bulk TCP gets between two hosts on this machine when each kind of gateway stands between them, in \
        interleaved rounds. Whether 64 KB packets stay whole (tc, Linux) or must be cut to the MTU (XDP) decides it. \
        Under denied packets: one stream while a third host sends 64-byte datagrams that ten policies deny; it is told over what is \
        left of the CPU that receives them, and stands beside the same flood into a program that drops it first.",
    silent: &[
        "The end hosts share the CPUs with the gateway and are the bottleneck: this is not the gateway's capacity.",
        "It says little about the cost of a packet; `prog` and `wire` do.",
        "XDP suits network cards; on veth it forbids the large packets that make bulk TCP fast.",
    ],
    run: suite,
};

/// The last one is the first one's A/A.
const FORWARDERS: [Forwarder; 5] =
    [Forwarder::Linux, Forwarder::Tc, Forwarder::Xdp, Forwarder::Generic, Forwarder::Linux];
const STREAMS: u32 = 4;
/// Slowest stream over fastest: below, one was stuck.
const SIMILAR: f64 = 0.5;
/// Bytes of an Ethernet frame full of TCP, without and with the acknowledgements' direction mixed in.
const FRAME_BYTES: (f64, f64) = (1400.0, 1514.0);

fn suite(context: &Context) -> Result<SuiteResult> {
    let seconds = context.pick(2.0, 10.0);
    let transfer = Transfer { streams: STREAMS, length: Length::Seconds(seconds), reverse: true };
    context.progress.at(0.0, "setting up the gateways");
    let lanes = FORWARDERS[..4].iter().map(|forwarder| Bulk::new(*forwarder)).collect::<Result<Vec<_>>>()?;
    let mut seen: Vec<Vec<Arrived>> = vec![vec![]; FORWARDERS.len()];
    let total = (FORWARDERS.len() * context.rounds) as f64;
    let mut done = 0.0;
    interleave(FORWARDERS.len(), context.rounds, |contestant, _| {
        context.progress.at(done / total, &format!("iperf3 through {}", FORWARDERS[contestant].name()));
        done += 1.0;
        let arrived = lanes[contestant % lanes.len()].measure(transfer)?;
        let gbps = arrived.gbps;
        seen[contestant].push(arrived);
        Ok(gbps)
    })?;
    let mut result = SuiteResult::new(SUITE.name);
    for lane in &lanes {
        result.checks.push(lane.lane.mode_check()?);
        result.checks.push(checksums(lane)?);
    }
    result.figures = figures(&seen);
    result.charts = charts(&result.figures);
    result.tables = vec![table(&seen)];
    result.notes.push(format!(
        "{STREAMS} streams from server to client, {seconds:.0} s a round; a figure whose streams differ by more than a \
         factor of two is refused"
    ));
    flood::add(context, &mut result)?;
    Ok(result)
}

/// Generic XDP and offloads can hide wrong checksums from everybody but the receiver.
fn checksums(bulk: &Bulk) -> Result<Check> {
    let errors = bulk.lane.checksum_errors()?;
    let name = format!("checksums hold through {}", bulk.lane.forwarder.name());
    Ok(Check::new(name, errors == 0, format!("TcpInCsumErrors {errors}")))
}

fn rates(seen: &[Arrived]) -> Vec<f64> {
    seen.iter().map(|arrived| arrived.gbps).collect()
}

fn figures(seen: &[Vec<Arrived>]) -> Vec<Figure> {
    let linux = rates(&seen[0]);
    let figure = |i: usize| {
        let figure = Figure::new(FORWARDERS[i].name(), "Gb/s", Better::Higher, rates(&seen[i]))
            .check(similar(&seen[i]));
        let mut figure = match FORWARDERS[i] {
            Forwarder::Linux => figure.same(&linux, &rates(&seen[FORWARDERS.len() - 1])),
            _ => figure.against("Linux forwarding", &linux),
        };
        if let Some(check) = implied_size(&seen[i], FORWARDERS[i]) {
            figure.checks.push(check);
        }
        if FORWARDERS[i] == Forwarder::Tc { figure.headline() } else { figure }
    };
    (0..FORWARDERS.len() - 1).map(figure).collect()
}

/// In the median round: single rounds are short, and streams do not start at one moment.
fn similar(seen: &[Arrived]) -> Check {
    let all: Vec<f64> = seen.iter().map(|arrived| arrived.similar).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    Check::new(
        "streams similar",
        median(&all) >= SIMILAR && least > 0.0,
        format!("slowest over fastest: median {:.2}, least {least:.2}, {SIMILAR} wanted", median(&all)),
    )
}

/// Sluice's own counters of bytes and segments must imply frames of the size that was sent, and bytes of the rate that
/// iperf3 claims.
fn implied_size(seen: &[Arrived], forwarder: Forwarder) -> Option<Check> {
    let (mut bytes, mut segments) = (0, 0);
    for (more_bytes, more_segments) in seen.iter().filter_map(|arrived| arrived.counted) {
        bytes += more_bytes;
        segments += more_segments;
    }
    forwarder.is_sluice().then(|| checks::frame_size(8.0 * bytes as f64, segments as f64, FRAME_BYTES))
}

fn table(seen: &[Vec<Arrived>]) -> Table {
    let row = |i: usize| {
        let similar: Vec<f64> = seen[i].iter().map(|arrived| arrived.similar).collect();
        let retransmits: u64 = seen[i].iter().map(|arrived| arrived.retransmits).sum();
        let gbps = estimate(&rates(&seen[i]));
        let ratio = paired_ratio(&rates(&seen[i]), &rates(&seen[0]));
        vec![
            if i + 1 == FORWARDERS.len() {
                "linux again".to_owned()
            } else {
                FORWARDERS[i].name().to_owned()
            },
            format!("{:.2}", gbps.value),
            format!("{:.2} to {:.2}", gbps.low, gbps.high),
            format!("{:.2}", ratio.value),
            format!("{:.2}", median(&similar)),
            retransmits.to_string(),
        ]
    };
    Table {
        title: format!("iperf3 -P {STREAMS} -R"),
        header: ["through", "Gb/s", "95 %", "to linux", "streams", "retransmits"].map(str::to_owned).to_vec(),
        rows: (0..FORWARDERS.len()).map(row).collect(),
        note: "streams: slowest over fastest, median of the rounds".to_owned(),
    }
}

fn charts(figures: &[Figure]) -> Vec<Chart> {
    let bar = |figure: &Figure| Bar {
        name: figure.name.clone(),
        role: if figure.ratio.is_some() { Role::Subject } else { Role::Peer },
        estimate: figure.estimate,
    };
    let row = |figure: &Figure| {
        let (estimate, same) = (figure.ratio.or(figure.same)?, figure.ratio.is_none());
        let name = if same { format!("{} A/A", figure.name) } else { figure.name.clone() };
        Some(ForestRow { name, estimate, same })
    };
    vec![
        Chart::Bars(Bars {
            title: "Bulk TCP, four streams".to_owned(),
            unit: "Gb/s".to_owned(),
            bars: figures.iter().map(bar).collect(),
            note: String::new(),
        }),
        Chart::Forest(Forest {
            title: "Bulk TCP beside Linux forwarding".to_owned(),
            ratio: "Gb/s over those of Linux forwarding".to_owned(),
            better: Better::Higher,
            rows: figures.iter().filter_map(row).collect(),
            note: String::new(),
        }),
    ]
}

/// Figures of the budgets.
pub fn promised(context: &Context) -> Result<SuiteResult> {
    let is_wanted =
        |streams: &u32| PEERS.iter().any(|(peer, ..)| context.wants(&promised_name(*streams, peer)));
    let streams: Vec<u32> = [1, 4].into_iter().filter(is_wanted).collect();
    let mut result = SuiteResult::new(SUITE.name);
    if !streams.is_empty() {
        result.figures = towards_the_server(&streams, context.rounds)?;
    }
    flood::add(context, &mut result)?;
    Ok(result)
}

const PEERS: [(&str, usize, usize); 2] = [("linux", 1, 3), ("bare redirect", 2, 4)];

fn promised_name(streams: u32, peer: &str) -> String {
    format!("tc {streams} streams to {peer}")
}

/// Sluice on tc beside Linux forwarding and beside the least that a tc redirect can do. Each peer stands there twice, with
/// everything of its own, for A/A.
pub fn towards_the_server(streams: &[u32], rounds: usize) -> Result<Vec<Figure>> {
    const FORWARDERS: [Forwarder; 5] =
        [Forwarder::Tc, Forwarder::Linux, Forwarder::BareRedirect, Forwarder::Linux, Forwarder::BareRedirect];
    let lanes = FORWARDERS.iter().map(|forwarder| Bulk::new(*forwarder)).collect::<Result<Vec<_>>>()?;
    let mut figures = vec![];
    for streams in streams.iter().copied() {
        let transfer = Transfer { streams, length: Length::Seconds(1.0), reverse: false };
        let samples = interleave(lanes.len(), rounds, |contestant, _| {
            Ok(lanes[contestant].measure(transfer).context("bulk TCP")?.gbps)
        })?;
        figures.extend(PEERS.map(|(peer, once, again)| {
            let figure =
                Figure::new(promised_name(streams, peer), "Gb/s", Better::Higher, samples[0].clone());
            figure.against(peer, &samples[once]).same(&samples[once], &samples[again])
        }));
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(similar: f64, counted: Option<(u64, u64)>) -> Arrived {
        Arrived { gbps: 8.0, similar, retransmits: 0, counted }
    }

    #[test]
    fn a_stream_that_got_nothing_spoils_the_figure() {
        assert!(similar(&[arrived(0.9, None), arrived(0.4, None), arrived(0.8, None)]).passed);
        assert!(!similar(&[arrived(0.9, None), arrived(0.0, None), arrived(0.8, None)]).passed);
        assert!(!similar(&vec![arrived(0.4, None); 3]).passed);
    }

    #[test]
    fn counters_that_contradict_the_frames_are_seen() {
        let good = implied_size(&[arrived(1.0, Some((15_000_000, 10_000)))], Forwarder::Tc).unwrap();
        assert!(good.passed, "{}", good.detail);
        // 64 KB packets counted as one each.
        assert!(!implied_size(&[arrived(1.0, Some((15_000_000, 300)))], Forwarder::Tc).unwrap().passed);
        assert!(implied_size(&[arrived(1.0, None)], Forwarder::Linux).is_none());
    }
}
