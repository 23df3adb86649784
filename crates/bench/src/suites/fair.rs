//! Suite `fair`: whether shares are equal, with enough packets to know.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::method::checks::{enough_packets, fairness_needs};
use crate::method::chi::{Fit, equal_shares};
use crate::method::result::{Better, Check, Figure, SuiteResult, Table};
use crate::method::stats::Rng;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::shares;
use crate::testbed::trial::{Device, Sink, Stand};

pub const SUITE: Suite = Suite {
    name: "fair",
    help: "Shares of flows over receivers and of loss over flows: chi-square with enough packets to find unfairness",
    says: "Flows go to four sockets that share a device by hash, straight and behind Sluice: the chi-square test asks \
        whether equal chances would give such counts. A receiver that is too slow then drops frames of a hundred flows: \
        the spread of what each flow kept says whether some pay for others. A test with too few packets to find the \
        unfairness it is asked about is refused.",
    silent: &[
        "Packets of one flow stay together: what is drawn by lot are flows, so flows are counted, not packets.",
        "Equal shares of flows are unequal shares of load when flows differ in size.",
        "A test that finds nothing has not proved fairness; it has excluded unfairness above the effect it names.",
    ],
    run: suite,
};

const RECEIVERS: usize = 4;
const FLOWS: usize = 50_000;
/// One receiver a twentieth above its share must not go unnoticed.
const EFFECT: f64 = 0.05;
/// Below, equal chances are given up.
const ALARM: f64 = 0.001;
const LOSING_FLOWS: usize = 100;
/// (largest - smallest) over mean of what flows kept under overload.
const MOST_SPREAD: f64 = 0.25;
/// Frames a flow below which chance alone spreads them more than that.
const ENOUGH: f64 = 500.0;

struct Subject {
    name: &'static str,
    counts: Vec<u64>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let ring = Sink::Socket { ring: 4096 };
    let stands = [
        ("four sockets", Device::RawReceive { ring: 4096, workers: 1 }),
        ("four sockets behind sluice", Device::Through(Forwarder::Xdp, ring)),
    ];
    let mut subjects = vec![];
    for (i, (name, device)) in stands.into_iter().enumerate() {
        context.progress.at(0.3 * i as f64, name);
        let mut stand = Stand::new(device, 60)?;
        let counts = shares::over_receivers(&mut stand, FLOWS, RECEIVERS).context(name)?;
        let arrived: u64 = counts.iter().sum();
        result.checks.push(Check::new(
            format!("every flow counted once, {name}"),
            arrived == FLOWS as u64,
            format!("{FLOWS} flows of one frame each, {arrived} frames"),
        ));
        subjects.push(Subject { name, counts });
    }
    subjects.push(Subject { name: "drawn by lot (A/A)", counts: lottery() });
    for subject in &subjects {
        receivers(subject, &mut result);
    }
    result.tables.push(table(&subjects));
    context.progress.at(0.7, "a receiver that is too slow");
    overload(context, &mut result)?;
    result.checks.push(planted());
    result.tables.push(needs());
    Ok(result)
}

/// Equal chances by construction.
fn lottery() -> Vec<u64> {
    let mut rng = Rng::new(4);
    let mut counts = vec![0; RECEIVERS];
    (0..FLOWS).for_each(|_| counts[rng.below(RECEIVERS)] += 1);
    counts
}

fn receivers(subject: &Subject, result: &mut SuiteResult) {
    let Some(fit) = equal_shares(&subject.counts) else {
        result.errors.push(format!("{}: too few flows for a chi-square test", subject.name));
        return;
    };
    let total = subject.counts.iter().sum();
    let name = format!("{}: largest deviation from an equal share", subject.name);
    let mut figure = Figure::new(name, "%", Better::Lower, vec![100.0 * fit.worst]);
    figure.checks = vec![
        enough_packets(total, RECEIVERS as u64, EFFECT),
        Check::new("equal chances", fit.p >= ALARM, told(&fit)),
    ];
    figure.headline = subject.name.ends_with("sluice");
    result.figures.push(figure);
}

fn told(fit: &Fit) -> String {
    format!("chi-square {:.2} with {} degrees of freedom, p = {:.3}", fit.statistic, fit.freedom, fit.p)
}

/// A fan-out that gives one receiver the effect asked about must be found with these many flows.
fn planted() -> Check {
    let share = FLOWS as f64 / RECEIVERS as f64;
    let more = (share * (1.0 + EFFECT)) as u64;
    let rest = (FLOWS as u64 - more) / (RECEIVERS as u64 - 1);
    let mut counts = vec![rest; RECEIVERS];
    counts[0] = more;
    let p = equal_shares(&counts).map_or(1.0, |fit| fit.p);
    Check::new(
        "a planted unfairness is found",
        p < ALARM,
        format!("{:.0} % too many for one: p = {p:.1e}", 100.0 * EFFECT),
    )
}

fn overload(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let length = context.pick(Duration::from_secs(1), Duration::from_secs(10));
    let ring = 256;
    let mut stand = Stand::new(Device::RawReceive { ring, workers: 1 }, 60)?;
    let counts = shares::over_flows(&mut stand, LOSING_FLOWS, ring, length)?;
    let total: u64 = counts.iter().sum();
    let mean = total as f64 / LOSING_FLOWS as f64;
    let (least, most) =
        (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
    let spread = (most - least) as f64 / mean.max(1.0);
    let figure =
        Figure::new("overloaded receiver: (most - least) / mean of a flow", "x", Better::Lower, vec![spread]);
    result.figures.push(figure.check(Check::new(
        "no flow pays for the others",
        spread <= MOST_SPREAD && mean >= ENOUGH,
        format!("{LOSING_FLOWS} flows, {total} frames arrived: {least} to {most} a flow, mean {mean:.0}"),
    )));
    Ok(())
}

fn table(subjects: &[Subject]) -> Table {
    let row = |subject: &Subject| {
        let mut cells = vec![subject.name.to_owned()];
        cells.extend(subject.counts.iter().map(u64::to_string));
        let fit = equal_shares(&subject.counts);
        cells.push(fit.map_or(String::new(), |fit| format!("{:.2}", fit.statistic)));
        cells.push(fit.map_or(String::new(), |fit| format!("{:.3}", fit.p)));
        cells
    };
    let mut header = vec!["flows over".to_owned()];
    header.extend((1..=RECEIVERS).map(|i| format!("receiver {i}")));
    header.extend(["chi-square", "p"].map(str::to_owned));
    Table {
        title: format!("{FLOWS} flows over {RECEIVERS} receivers"),
        header,
        rows: subjects.iter().map(row).collect(),
        note: format!(
            "p: how likely equal chances are to give counts at least as unequal; below {ALARM} is unfair"
        ),
    }
}

/// What numbers of packets can show, a published figure's 90 among them.
fn needs() -> Table {
    let row = |effect: f64| {
        let mut cells = vec![format!("{:.0} %", 100.0 * effect)];
        cells.extend([2, 3, 4, 8].map(|receivers| fairness_needs(receivers, effect).to_string()));
        cells
    };
    Table {
        title: "Packets needed to find that one receiver is off by".to_owned(),
        header: ["off by", "2 receivers", "3", "4", "8"].map(str::to_owned).to_vec(),
        rows: [0.01, 0.05, 0.1, 0.5].map(row).to_vec(),
        note: "5 % false alarms, 80 % power. Ninety packets over three receivers show nothing below a third."
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_own_number_of_flows_is_enough_for_its_question() {
        assert!(enough_packets(FLOWS as u64, RECEIVERS as u64, EFFECT).passed);
        assert!(!enough_packets(90, 3, 0.1).passed);
        assert!(planted().passed);
    }

    #[test]
    fn a_lopsided_fan_out_fails_and_a_lottery_passes() {
        let mut result = SuiteResult::new("fair");
        receivers(&Subject { name: "lot", counts: lottery() }, &mut result);
        receivers(&Subject { name: "lopsided", counts: vec![20_000, 10_000, 10_000, 10_000] }, &mut result);
        let passed = |i: usize| result.figures[i].checks.iter().all(|check: &Check| check.passed);
        assert!(passed(0) && !passed(1));
    }
}
