//! Suite `ndr`: the highest rate at which nothing is lost, where that can be known, and the capacity where it cannot.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::method::checks::{self, Offer};
use crate::method::mlr::{Config, Found, Goal, GoalResult, Trial, search};
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role, Series, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::trial::{Device, Outcome, Sink, Stand};

pub const SUITE: Suite = Suite {
    name: "ndr",
    help: "No-drop rates by MLRsearch (RFC 9971) with every trial shown; refused where the generator is the limiter",
    says: "Frames are offered at a rate that the generator holds within 1 % while the device works on another CPU behind \
        a queue that can overflow. The search finds the highest rate whose trials lose nothing (NDR) and the highest \
        that lose at most 0.5 % (PDR); a longer trial confirms the first (RFC 2544 section 26.1). Where a gateway works \
        inline on the generator's CPU nothing can be lost: there it prints what a packet adds in nanoseconds, and \
        `no-drop rate not measurable here`.",
    silent: &[
        "A rate without loss says nothing about latency at that rate.",
        "On shared machines the scheduler takes the receiving CPU away for milliseconds; a queue that survives that \
            hides it, a shorter one shows it as loss.",
    ],
    run: suite,
};

/// Devices with a queue of their own, and those without.
const OPEN: [Device; 3] = [
    Device::RawForward { ring: 4096 },
    Device::RawReceive { ring: 4096, workers: 1 },
    Device::Through(Forwarder::Xdp, Sink::Socket { ring: 4096 }),
];
const CLOSED: [Device; 4] = [
    Device::Nobody,
    Device::Through(Forwarder::Xdp, Sink::Xdp),
    Device::Through(Forwarder::Linux, Sink::Xdp),
    Device::Through(Forwarder::Nftables, Sink::Xdp),
];
const FRAME_BYTES: usize = 60;
/// A pace can be kept only below what the generator does at full speed.
const CEILING_SHARE: f64 = 0.8;
/// Trials that the machine disturbed are made again so many times.
const ATTEMPTS: usize = 4;
const MOST_OFF: f64 = 0.01;

/// The longer trials at the rate that was found.
struct Confirmation {
    pps: f64,
    seconds: f64,
    outcome: Outcome,
}

impl Confirmation {
    fn is_held(&self) -> bool {
        (self.outcome.offered_pps() / self.pps - 1.0).abs() <= MOST_OFF
    }

    fn is_without_loss(&self) -> bool {
        self.is_held() && self.outcome.received == self.outcome.sent
    }
}

/// What was found out about one device.
struct Searched {
    device: Device,
    ceiling_pps: f64,
    found: Found,
    confirmation: Option<Confirmation>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let mut all = vec![];
    for (i, device) in OPEN.into_iter().enumerate() {
        context.progress.at(0.8 * i as f64 / OPEN.len() as f64, &device.name());
        match one_device(device, context) {
            Ok(searched) => all.push(searched),
            Err(error) => result.errors.push(format!("{}: {error:#}", device.name())),
        }
    }
    for searched in &all {
        report(searched, &mut result);
    }
    context.progress.at(0.8, "capacity of what works inline");
    closed(context, &mut result)?;
    result.tables.insert(0, table(&all));
    result.charts.insert(0, loss_curve(&all));
    Ok(result)
}

fn goals(context: &Context) -> Vec<Goal> {
    let no_drop = context.pick(Goal::no_drop(0.25, 0.75, 0.03), Goal::no_drop(1.0, 21.0, 0.005));
    vec![no_drop, no_drop.partial_drop(0.005)]
}

fn one_device(device: Device, context: &Context) -> Result<Searched> {
    let mut stand = Stand::new(device, FRAME_BYTES)?;
    // Once to warm up, once to see how much the generator can offer this device at all.
    stand.trial(None, Duration::from_millis(200))?;
    let ceiling_pps = stand.trial(None, Duration::from_millis(500))?.offered_pps();
    let goals = goals(context);
    let config = Config {
        min_pps: 10_000,
        max_pps: (CEILING_SHARE * ceiling_pps) as u64,
        goals,
        most_s: context.pick(6.0, 900.0),
    };
    let found = search(&config, |load, seconds| held(&mut stand, load, seconds))?;
    let confirmation = confirm(&mut stand, &found, context)?;
    Ok(Searched { device, ceiling_pps, found, confirmation })
}

/// One trial whose rate was held; a machine that could not hold it gets a few more chances.
fn held(stand: &mut Stand, load: u64, seconds: f64) -> Result<Trial> {
    let mut worst = 0.0;
    for _ in 0..ATTEMPTS {
        let outcome = stand.trial(Some(load as f64), Duration::from_secs_f64(seconds))?;
        let off = outcome.offered_pps() / load as f64 - 1.0;
        let trial = Trial { load_pps: load, seconds, sent: outcome.sent, received: outcome.received };
        if off.abs() <= MOST_OFF {
            return Ok(trial);
        }
        worst = off;
    }
    bail!(
        "the generator did not hold {load} packets a second: {:+.1} % in the last of {ATTEMPTS} trials",
        100.0 * worst
    )
}

/// RFC 2544 section 26.1: one trial of 60 seconds without loss; a rate that fails is lowered by a hundredth.
fn confirm(stand: &mut Stand, found: &Found, context: &Context) -> Result<Option<Confirmation>> {
    let Some(lower) = found.goals[0].lower else { return Ok(None) };
    let seconds = context.pick(1.0, 60.0);
    let mut pps = lower as f64;
    let mut last = None;
    for _ in 0..context.pick(3, 10) {
        let outcome = stand.trial(Some(pps), Duration::from_secs_f64(seconds))?;
        let trial = Confirmation { pps, seconds, outcome };
        let (held, confirmed) = (trial.is_held(), trial.is_without_loss());
        last = Some(trial);
        if confirmed {
            break;
        }
        if held {
            pps *= 0.99;
        }
    }
    Ok(last)
}

impl Searched {
    fn ndr(&self) -> &GoalResult {
        &self.found.goals[0]
    }

    /// RFC 2544 26.1: a rate is without loss only where the longer trial was.
    fn confirmation_check(&self) -> Check {
        let told = match &self.confirmation {
            Some(Confirmation { pps, seconds, outcome }) => {
                format!(
                    "{} of {} frames lost at {pps:.0} a second for {seconds:.0} s",
                    outcome.sent - outcome.received.min(outcome.sent),
                    outcome.sent
                )
            }
            None => "no rate to confirm".to_owned(),
        };
        Check::new("confirmed without loss", self.confirmed().is_some(), told)
    }

    /// What must hold before a rate may be called this device's.
    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![];
        let limit = self.ndr().upper.is_some();
        checks.push(Check::new(
            "generator not the limiter",
            limit,
            match self.ndr().upper {
                Some(upper) => {
                    format!("the device loses packets from {upper} a second, ceiling {:.0}", self.ceiling_pps)
                }
                None => format!(
                    "nothing was lost up to {:.0} a second, all that can be held here",
                    self.max_pps()
                ),
            },
        ));
        checks.push(Check::new(
            "search ended by itself",
            !self.found.gave_up,
            format!("{} trials", self.found.trials.len()),
        ));
        if let Some(Confirmation { pps, seconds, outcome }) = &self.confirmation {
            let offer = Offer {
                wanted_pps: *pps,
                offered_pps: outcome.offered_pps(),
                closed_loop: self.device.closed(),
                wanted_seconds: *seconds,
                seconds: outcome.seconds,
                ceiling_pps: self.ceiling_pps,
            };
            checks.push(checks::no_drop(&offer));
            checks.push(checks::conserved(outcome.sent, outcome.received, outcome.dropped));
        }
        checks
    }

    fn max_pps(&self) -> f64 {
        CEILING_SHARE * self.ceiling_pps
    }

    fn confirmed(&self) -> Option<&Confirmation> {
        self.confirmation.as_ref().filter(|confirmation| confirmation.is_without_loss())
    }
}

fn report(searched: &Searched, result: &mut SuiteResult) {
    let name = searched.device.name();
    for (goal, word) in searched.found.goals.iter().zip(["no-drop rate", "0.5 % drop rate"]) {
        // Without an upper bound there is no such rate, only one that was not reached.
        let (Some(throughput), Some(_)) = (goal.throughput_pps, goal.upper) else { continue };
        let is_no_drop = goal.goal.loss_ratio == 0.0;
        let confirmed = searched.confirmed().filter(|_| is_no_drop);
        let rate = confirmed.map_or(throughput, |confirmation| confirmation.pps);
        let mut figure = Figure::new(format!("{name}: {word}"), "Mpps", Better::Higher, vec![rate / 1e6]);
        figure.estimate.low = goal.lower.unwrap_or(0) as f64 / 1e6;
        figure.estimate.high = goal.upper.unwrap_or(0) as f64 / 1e6;
        figure.estimate.low = figure.estimate.low.min(figure.estimate.value);
        figure.checks = searched.checks();
        figure.checks.extend(is_no_drop.then(|| searched.confirmation_check()));
        figure.headline = is_no_drop;
        result.figures.push(figure);
    }
    if searched.ndr().upper.is_none() {
        result.notes.push(format!(
            "{name}: refused, the generator is the limiter: nothing was lost up to {:.2} Mpps, all that can be held here",
            searched.max_pps() / 1e6
        ));
    }
}

fn table(all: &[Searched]) -> Table {
    let mpps = |load: Option<u64>| load.map_or("-".to_owned(), |load| format!("{:.3}", load as f64 / 1e6));
    let row = |searched: &Searched| {
        let (ndr, pdr) = (&searched.found.goals[0], &searched.found.goals[1]);
        let verdict = match (ndr.upper, searched.confirmed()) {
            (None, _) => "refused: the generator is the limiter".to_owned(),
            (_, Some(one)) => format!("{:.3} Mpps for {:.0} s without loss", one.pps / 1e6, one.seconds),
            (_, None) => "not confirmed".to_owned(),
        };
        vec![
            searched.device.name(),
            format!("{:.3}", searched.ceiling_pps / 1e6),
            mpps(ndr.lower),
            mpps(ndr.upper),
            mpps(pdr.lower),
            searched.found.trials.len().to_string(),
            verdict,
        ]
    };
    Table {
        title: "No-drop rates of 64-byte frames, Mpps".to_owned(),
        header: ["device", "ceiling", "no drop", "drops at", "0.5 % drop", "trials", "confirmation"]
            .map(str::to_owned)
            .to_vec(),
        rows: all.iter().map(row).collect(),
        note:
            "ceiling: the generator at full speed into this device. 64 bytes with the frame check sequence."
                .to_owned(),
    }
}

/// Every trial of every device: rate offered, share lost.
fn loss_curve(all: &[Searched]) -> Chart {
    let trials = |searched: &Searched| Series {
        name: searched.device.name(),
        role: Role::Trials,
        points: searched
            .found
            .trials
            .iter()
            .map(|trial| Point {
                label: format!("{} of {} in {} s", trial.received, trial.sent, trial.seconds),
                ..Point::new(trial.load_pps as f64 / 1e6, 100.0 * trial.loss_ratio())
            })
            .collect(),
    };
    Chart::Line(LineChart {
        title: "Every trial of the searches".to_owned(),
        x: Axis::linear("offered, Mpps"),
        y: Axis::linear("lost, %"),
        series: all.iter().map(trials).collect(),
        note: "Trials differ in length: the search begins with short ones.".to_owned(),
    })
}

/// Rates of what works on the generator's own CPU, and what a packet adds there.
fn closed(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let length = context.pick(Duration::from_millis(300), Duration::from_secs(2));
    let mut stands =
        CLOSED.iter().map(|device| Stand::new(*device, FRAME_BYTES)).collect::<Result<Vec<_>>>()?;
    let count = stands.len();
    let samples = interleave(count + 1, context.rounds, |i, _| {
        // The last one is nobody again (A/A).
        Ok(stands[i % count].trial(None, length).context("at full speed")?.offered_pps())
    })?;
    let ns = |i: usize| -> Vec<f64> { samples[i].iter().map(|pps| 1e9 / pps).collect() };
    let nobody = ns(0);
    for (i, device) in CLOSED.iter().enumerate().skip(1) {
        let added: Vec<f64> = ns(i).iter().zip(&nobody).map(|(with, without)| with - without).collect();
        let name = format!("{}: capacity, ns a packet adds", device.name());
        let figure = Figure::new(name, "ns/packet", Better::Lower, added).same(&nobody, &ns(count));
        result.figures.push(figure);
        result.notes.push(format!(
            "{}: no-drop rate not measurable here (inline: the generator waits)",
            device.name()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(upper: Option<u64>) -> Searched {
        let goal = Goal::no_drop(1.0, 1.0, 0.01);
        let result = GoalResult { goal, lower: Some(1_000_000), upper, throughput_pps: Some(1e6) };
        let partial = GoalResult { goal: goal.partial_drop(0.005), ..result.clone() };
        let found = Found { goals: vec![result, partial], trials: vec![], gave_up: false };
        let outcome = Outcome { sent: 1_000_000, received: 1_000_000, dropped: 0, seconds: 1.0 };
        Searched {
            device: Device::RawForward { ring: 64 },
            ceiling_pps: 2e6,
            found,
            confirmation: Some(Confirmation { pps: 1e6, seconds: 1.0, outcome }),
        }
    }

    #[test]
    fn a_rate_that_only_the_generator_limits_is_refused() {
        let mut result = SuiteResult::new("ndr");
        report(&searched(None), &mut result);
        assert!(result.figures.is_empty() && result.notes[0].contains("generator is the limiter"));
        report(&searched(Some(1_010_000)), &mut result);
        assert_eq!(result.figures.len(), 2);
        assert!(result.figures[0].checks.iter().all(|check| check.passed), "{:?}", result.figures[0].checks);
    }

    #[test]
    fn a_rate_whose_confirmation_lost_frames_is_refuted_and_a_lower_one_reported() {
        let mut lossy = searched(Some(1_010_000));
        let confirmation = lossy.confirmation.as_mut().unwrap();
        (confirmation.outcome.received, confirmation.outcome.dropped) = (999_999, 1);
        let mut result = SuiteResult::new("ndr");
        report(&lossy, &mut result);
        let failed =
            |figure: &Figure| figure.checks.iter().find(|check| !check.passed).map(|one| one.name.clone());
        assert_eq!(failed(&result.figures[0]).as_deref(), Some("confirmed without loss"));
        assert_eq!(failed(&result.figures[1]), None, "half a per cent may be lost");

        let mut lower = searched(Some(1_010_000));
        let outcome = Outcome { sent: 990_000, received: 990_000, dropped: 0, seconds: 1.0 };
        lower.confirmation = Some(Confirmation { pps: 0.99e6, seconds: 1.0, outcome });
        let mut result = SuiteResult::new("ndr");
        report(&lower, &mut result);
        assert_eq!([result.figures[0].estimate.value, result.figures[1].estimate.value], [0.99, 1.0]);
    }

    #[test]
    fn a_stretched_confirmation_fails_its_check() {
        let mut stretched = searched(Some(1_010_000));
        stretched.confirmation.as_mut().unwrap().outcome.seconds = 1.5;
        assert!(stretched.checks().iter().any(|check| !check.passed));
    }
}
