//! Suite `peers`: Sluice beside what Linux itself offers, in the same rounds, with the same frames.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::method::checks;
use crate::method::result::{
    Bar, Bars, Better, Chart, Check, Figure, Forest, ForestRow, Role, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::stats::{estimate, paired_ratio};
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::{FLOWS, Forwarder, has_flow_tables};
use crate::testbed::trial::{Device, Outcome, Sink, Stand};

/// What `sluice bench peers` runs.
pub const SUITE: Suite = Suite {
    name: "peers",
    help: "Sluice, Linux forwarding, nftables stateful, with a flowtable, and masquerade on live frames, into an XDP and a socket sink",
    says: "64-byte UDP frames of 10,000 flows that were answered before, made inside the kernel, forwarded on the same \
        core by each gateway in turn, and taken by an XDP program or by a packet socket of the host behind. All of them \
        run in every round.",
    silent: &[
        "Generator, gateway and XDP sink share one core: a rate is the inverse of all their work together, so ratios \
            of the gateways alone are larger than ratios of these rates.",
        "Inline on veth nothing is lost: these are capacities and no no-drop rates.",
        "Into a socket the kernel's own work for the tap weighs more than a fast gateway.",
    ],
    run: suite,
};

const SOCKET: Sink = Sink::Socket { ring: 4096 };
/// Those from `ONCE` on are there for A/A, each with a gateway of its own.
const DEVICES: [Device; 17] = [
    Device::Through(Forwarder::Xdp, Sink::Xdp),
    Device::Through(Forwarder::Tc, Sink::Xdp),
    Device::Through(Forwarder::Linux, Sink::Xdp),
    Device::Through(Forwarder::Nftables, Sink::Xdp),
    Device::Through(Forwarder::Flowtable, Sink::Xdp),
    Device::Through(Forwarder::Masquerade, Sink::Xdp),
    Device::Nobody,
    Device::Through(Forwarder::Xdp, SOCKET),
    Device::Through(Forwarder::Tc, SOCKET),
    Device::Through(Forwarder::Linux, SOCKET),
    Device::Through(Forwarder::Nftables, SOCKET),
    Device::Through(Forwarder::Flowtable, SOCKET),
    Device::Through(Forwarder::Masquerade, SOCKET),
    Device::Through(Forwarder::Nftables, Sink::Xdp),
    Device::Through(Forwarder::Nftables, SOCKET),
    Device::Through(Forwarder::Linux, Sink::Xdp),
    Device::Through(Forwarder::Linux, SOCKET),
];
const ONCE: usize = 13;
const FRAME_BYTES: usize = 60;
/// A flow goes into the flow table with its next packet; long enough for one of each.
const FLOWS_INTO_TABLE: Duration = Duration::from_millis(200);

/// Who runs: whose figures are wanted, whom they are compared with, and these once more.
fn chosen(context: &Context) -> Vec<usize> {
    let wanted: Vec<usize> = (0..ONCE).filter(|i| context.wants(&DEVICES[*i].name())).collect();
    let needed = |i: &usize| wanted.iter().any(|one| [*one, rival(*one), again(*one)].contains(i));
    (0..DEVICES.len()).filter(needed).collect()
}

fn is_flow_table(i: usize) -> bool {
    matches!(DEVICES[i], Device::Through(Forwarder::Flowtable, _))
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let length = context.pick(Duration::from_millis(400), Duration::from_secs(1));
    context.progress.at(0.0, "setting up the gateways");
    let mut result = SuiteResult::new(SUITE.name);
    let mut chosen = chosen(context);
    if chosen.iter().any(|i| is_flow_table(*i)) && !has_flow_tables()? {
        chosen.retain(|i| !is_flow_table(*i));
        result.notes.push("nft flowtable: this kernel has none (CONFIG_NFT_FLOW_OFFLOAD)".to_owned());
    }
    let mut stands =
        chosen.iter().map(|i| Stand::new(DEVICES[*i], FRAME_BYTES)).collect::<Result<Vec<_>>>()?;
    for (stand, _) in stands.iter_mut().zip(&chosen).filter(|(_, i)| is_flow_table(**i)) {
        stand.trial(None, FLOWS_INTO_TABLE).context("nft flowtable")?;
    }
    let mut seen: Vec<Vec<Outcome>> = vec![vec![]; DEVICES.len()];
    let total = (chosen.len() * context.rounds) as f64;
    let mut done = 0.0;
    let rates = interleave(chosen.len(), context.rounds, |contestant, _| {
        let i = chosen[contestant];
        context.progress.at(done / total, &DEVICES[i].name());
        done += 1.0;
        let outcome = measure(&mut stands[contestant], length).with_context(|| DEVICES[i].name())?;
        seen[i].push(outcome);
        // What came through; into a socket some may be lost.
        Ok(outcome.received as f64 / outcome.seconds / 1e6)
    })?;
    let mut samples: Vec<Vec<f64>> = vec![vec![]; DEVICES.len()];
    chosen.iter().zip(rates).for_each(|(i, rates)| samples[*i] = rates);
    let forwarding = stands.iter().filter(|stand| stand.device != Device::Nobody);
    result.checks = forwarding.map(Stand::mode_check).collect::<Result<Vec<_>>>()?;
    let fewest = stands.iter().map(|stand| stand.frames.flows()).min().unwrap_or_default();
    result.checks.push(checks::distinct(fewest.into(), FLOWS as u64));
    result.figures = chosen.iter().filter(|i| **i < ONCE).map(|i| figure(*i, &samples, &seen[*i])).collect();
    result.tables.push(table(&chosen, &samples, &seen));
    result.charts = charts(&samples, &result.figures);
    Ok(result)
}

/// At full speed, and by the way that is being judged.
fn measure(stand: &mut Stand, length: Duration) -> Result<Outcome> {
    let slow = stand.past_the_flow_table()?;
    let outcome = stand.trial_counted(length)?;
    if let (Some(slow), Some(after)) = (slow, stand.past_the_flow_table()?) {
        let most = outcome.sent / 1000;
        ensure!(after - slow <= most, "of {} frames {} went past the flow table", outcome.sent, after - slow);
    }
    Ok(outcome)
}

/// Who does the same job into the same sink: nftables for stateful gateways; plain forwarding for Sluice on tc, which is
/// what `auto` chooses on veth.
fn rival(i: usize) -> usize {
    let Device::Through(forwarder, sink) = DEVICES[i] else { return i };
    let forwarder = if forwarder == Forwarder::Tc { Forwarder::Linux } else { Forwarder::Nftables };
    DEVICES.iter().position(|device| *device == Device::Through(forwarder, sink)).unwrap_or(i)
}

/// Its rival once more.
fn again(i: usize) -> usize {
    let once = rival(i);
    (ONCE..DEVICES.len()).find(|i| DEVICES[*i] == DEVICES[once]).unwrap_or(once)
}

fn figure(i: usize, samples: &[Vec<f64>], seen: &[Outcome]) -> Figure {
    let mut figure = Figure::new(DEVICES[i].name(), "Mpps", Better::Higher, samples[i].clone());
    // whoever runs for another's sake has perhaps no rival here
    if rival(i) != i && !samples[rival(i)].is_empty() {
        let to_linux = matches!(DEVICES[i], Device::Through(Forwarder::Tc, _));
        let name = if to_linux { "linux, the same sink" } else { "nftables, stateful, the same sink" };
        let rates = &samples[rival(i)];
        figure = figure.against(name, rates).same(rates, &samples[again(i)]);
    }
    figure.headline = i == 0;
    figure.check(conserved(seen))
}

fn conserved(seen: &[Outcome]) -> Check {
    let sum = |count: fn(&Outcome) -> u64| seen.iter().map(count).sum();
    checks::conserved(sum(|one| one.sent), sum(|one| one.received), sum(|one| one.dropped))
}

fn table(chosen: &[usize], samples: &[Vec<f64>], seen: &[Vec<Outcome>]) -> Table {
    let row = |i: usize| {
        let mpps = estimate(&samples[i]);
        let rivals = Some(&samples[rival(i)]).filter(|rivals| !rivals.is_empty());
        let ratio = rivals.map(|rivals| format!("{:.2}", paired_ratio(&samples[i], rivals).value));
        let (sent, lost) =
            seen[i].iter().fold((0, 0), |(sent, lost), one| (sent + one.sent, lost + one.dropped));
        vec![
            format!("{}{}", DEVICES[i].name(), if i < ONCE { "" } else { " again" }),
            format!("{:.3}", mpps.value),
            format!("{:.3} to {:.3}", mpps.low, mpps.high),
            format!("{:.0}", 1e3 / mpps.value),
            ratio.unwrap_or_default(),
            format!("{:.2}", 100.0 * lost as f64 / sent.max(1) as f64),
        ]
    };
    Table {
        title: "64-byte frames, 10,000 flows, one core".to_owned(),
        header: ["through", "Mpps", "95 %", "ns/packet", "to its rival", "lost %"]
            .map(str::to_owned)
            .to_vec(),
        rows: chosen.iter().map(|i| row(*i)).collect(),
        note: "ns/packet includes generator and sink (nobody: those alone). Lost: in the socket's ring."
            .to_owned(),
    }
}

fn charts(samples: &[Vec<f64>], figures: &[Figure]) -> Vec<Chart> {
    let bar = |figure: &Figure| Bar {
        name: figure.name.clone(),
        role: match figure.name.as_str() {
            "nobody" => Role::Limit,
            name if name.starts_with("sluice") => Role::Subject,
            _ => Role::Peer,
        },
        estimate: figure.estimate,
    };
    let first = |i: usize| DEVICES.iter().position(|device| *device == DEVICES[i]).unwrap_or(i);
    let equals = |i: usize| ForestRow {
        name: format!("{} A/A", DEVICES[i].name()),
        estimate: paired_ratio(&samples[i], &samples[first(i)]),
        same: true,
    };
    let repeated = (ONCE..DEVICES.len()).filter(|i| !samples[*i].is_empty());
    let mut rows: Vec<ForestRow> = repeated.map(equals).collect();
    rows.extend(figures.iter().filter_map(|figure| {
        Some(ForestRow { name: figure.name.clone(), estimate: figure.ratio?, same: false })
    }));
    vec![
        Chart::Bars(Bars {
            title: "Live frames through each gateway".to_owned(),
            unit: "Mpps".to_owned(),
            bars: figures.iter().map(bar).collect(),
            note: "Generator, gateway and sink on one core; nobody: without a gateway.".to_owned(),
        }),
        Chart::Forest(Forest {
            title: "Beside the rival with the same sink".to_owned(),
            ratio: "Mpps over those of nftables, stateful; of Linux for tc".to_owned(),
            better: Better::Higher,
            rows,
            note: String::new(),
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_compared_behind_the_same_sink() {
        for (i, device) in DEVICES.iter().enumerate() {
            let Device::Through(forwarder, sink) = device else { continue };
            let other = if *forwarder == Forwarder::Tc { Forwarder::Linux } else { Forwarder::Nftables };
            assert_eq!(DEVICES[rival(i)], Device::Through(other, *sink));
        }
        for i in [0, 1, 7, 8] {
            assert!(rival(i) < ONCE && again(i) >= ONCE && DEVICES[again(i)] == DEVICES[rival(i)]);
        }
    }

    /// Where the kernel has flow tables, answered flows are past the rules; elsewhere the error says what is missing.
    #[test]
    fn a_flow_table_takes_answered_flows() {
        let device = Device::Through(Forwarder::Flowtable, Sink::Xdp);
        if !has_flow_tables().unwrap() {
            let error = Stand::new(device, FRAME_BYTES).err().unwrap();
            assert!(format!("{error:#}").contains("CONFIG_NFT_FLOW_OFFLOAD"), "{error:#}");
            return;
        }
        let mut stand = Stand::new(device, FRAME_BYTES).unwrap();
        stand.trial(None, FLOWS_INTO_TABLE).unwrap();
        let outcome = measure(&mut stand, FLOWS_INTO_TABLE).unwrap();
        assert!(outcome.sent > FLOWS as u64 && outcome.received == outcome.sent, "{outcome:?}");
    }
}
