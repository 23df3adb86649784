//! Suite `hitless`: what packets notice when the gateway is restarted, killed, reloaded or replaced by another binary.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sluice_lab::branch::Hook;
use sluice_lab::stats;

use crate::method::result::{Better, Chart, Check, Figure, SuiteResult, Table, TimeLane, Timeline};
use crate::method::stats::{estimate, median};
use crate::method::suite::{Context, Suite};
use crate::testbed::disruption::{Event, Field, Passage, Station};

pub const SUITE: Suite = Suite {
    name: "hitless",
    help: "Packets lost, time blocked and packets un-judged while the gateway is restarted, killed, reloaded, replaced",
    says: "A stream of numbered packets at full rate crosses the gateway while something is done to its daemon. Lost: \
        sent and not arrived. Blocked: milliseconds without a single arrival. Longest gap: between two arrivals. \
        Un-judged: packets that the policies deny and that arrived all the same. Every event is paired with a stream \
        of the same length in the same round during which nothing was done.",
    silent: &[
        "No more than 128 packets are under way at one time, as a veth would drop more by itself: a stall is seen as \
            a gap, and as loss only when packets vanish.",
        "Generator, gateway and daemon share the machine: a gap may be the scheduler's; the control shows how long \
            such gaps are.",
        "Sessions last over the event; how many new ones could be made in it is not asked.",
    ],
    run: suite,
};

const EVENTS: [Event; 5] = [Event::Nothing, Event::Restart, Event::Kill, Event::Reload, Event::Upgrade];
const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];

/// Binary whose daemon is restarted: this one, unless the environment names another.
fn program() -> Result<PathBuf> {
    match std::env::var_os("SLUICE_PROGRAM") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().context("cannot find this program's own file"),
    }
}

/// Every passage over one hook, by event.
struct Seen {
    hook: Hook,
    passages: Vec<Vec<Passage>>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let program = program()?;
    let mut result = SuiteResult::new(SUITE.name);
    let mut all = vec![];
    for (i, hook) in HOOKS.into_iter().enumerate() {
        let field = Field::new(hook, &program)?;
        let at = |share: f64, what: &str| {
            context.progress.at((i as f64 + share) / HOOKS.len() as f64, &format!("{} {what}", hook.name()));
        };
        let seen = field.with_gateway(|station| {
            let passages = rounds(station, context.rounds, &at)?;
            result.checks.extend(account_checks(station, hook)?);
            Ok(Seen { hook, passages })
        });
        all.push(seen.with_context(|| format!("on {}", hook.name()))?);
    }
    for seen in &all {
        result.figures.extend(figures(seen));
        result.charts.push(timeline(seen));
    }
    result.tables.push(table(&all));
    Ok(result)
}

fn rounds(station: &mut Station<'_>, rounds: usize, at: &dyn Fn(f64, &str)) -> Result<Vec<Vec<Passage>>> {
    let mut passages = vec![vec![]; EVENTS.len()];
    let mut length = Duration::from_millis(500);
    let total = (rounds * EVENTS.len()) as f64;
    for round in 0..rounds {
        for position in 0..EVENTS.len() {
            let i = (position + round) % EVENTS.len();
            at((round * EVENTS.len() + position) as f64 / total, EVENTS[i].name());
            let passage = station.pass(EVENTS[i], length)?;
            if EVENTS[i] == Event::Restart {
                // Nothing lasts as long as a restart does here.
                length = passage.ended - passage.began;
            }
            passages[i].push(passage);
        }
    }
    Ok(passages)
}

/// The counters explain every packet, and the account can see an outage when there is one.
fn account_checks(station: &mut Station<'_>, hook: Hook) -> Result<Vec<Check>> {
    let hook = hook.name();
    let equations = stats::at_rest(&station.gateway)?.equations;
    let told = format!(
        "{} = {}, {} = {}",
        equations.ingress.left, equations.ingress.right, equations.egress.left, equations.egress.right
    );
    let outage = station.pass(Event::Outage, Duration::ZERO)?;
    let lost = lost(&outage);
    Ok(vec![
        Check::new(format!("both equations hold on {hook}"), equations.hold(), told),
        Check::new(
            format!("a planted outage on {hook} is found"),
            lost > 0
                && outage.arrivals.longest_gap > Duration::from_millis(50)
                && outage.account.arrived_denied == 0,
            format!(
                "100 ms without programs: {lost} lost, longest gap {:.0} ms, {} un-judged",
                outage.arrivals.longest_gap.as_secs_f64() * 1e3,
                outage.account.arrived_denied
            ),
        ),
    ])
}

fn lost(passage: &Passage) -> u64 {
    passage.account.sent - passage.account.arrived.min(passage.account.sent)
}

/// What is measured of a passage, its name and its unit.
type Measure = (&'static str, &'static str, fn(&Passage) -> f64);

const MEASURES: [Measure; 4] = [
    ("lost", "packets", |passage| lost(passage) as f64),
    ("un-judged", "packets", |passage| passage.account.arrived_denied as f64),
    ("blocked", "ms", |passage| passage.arrivals.blocked().as_secs_f64() * 1e3),
    ("longest gap", "ms", |passage| passage.arrivals.longest_gap.as_secs_f64() * 1e3),
];

fn figures(seen: &Seen) -> Vec<Figure> {
    let mut figures = vec![];
    for (i, event) in EVENTS.iter().enumerate().skip(1) {
        for (name, unit, measure) in MEASURES {
            let samples = |i: usize| -> Vec<f64> { seen.passages[i].iter().map(measure).collect() };
            let name = format!("{} {} {name}", event.name(), seen.hook.name());
            let mut figure =
                Figure::new(name, unit, Better::Lower, samples(i)).check(once(&seen.passages[i]));
            let control = samples(0);
            // A ratio to zero loss has no meaning.
            if control.iter().all(|value| *value > 0.0) {
                figure = figure.against("nothing done", &control);
            }
            // Counts of rare events do not settle around a middle.
            figure.unsteady = false;
            if unit == "packets" {
                figure = figure.worst().headline();
            }
            figures.push(figure);
        }
    }
    figures
}

fn once(passages: &[Passage]) -> Check {
    let wrong: u64 =
        passages.iter().map(|passage| passage.account.twice_or_late + passage.account.foreign).sum();
    let sent: u64 = passages.iter().map(|passage| passage.account.sent).sum();
    Check::new(
        "single pass",
        wrong == 0 && sent > 0,
        format!("{sent} sent, {wrong} arrived twice, late or unknown"),
    )
}

fn table(all: &[Seen]) -> Table {
    let mut rows = vec![];
    for seen in all {
        for (event, passages) in EVENTS.iter().zip(&seen.passages) {
            let worst = |measure: fn(&Passage) -> f64| passages.iter().map(measure).fold(0.0, f64::max);
            let seconds: Vec<f64> =
                passages.iter().map(|passage| (passage.ended - passage.began).as_secs_f64()).collect();
            let sent: u64 = passages.iter().map(|passage| passage.account.sent).sum();
            let gaps: Vec<f64> = passages.iter().map(MEASURES[3].2).collect();
            rows.push(vec![
                format!("{} {}", event.name(), seen.hook.name()),
                sent.to_string(),
                format!("{:.2}", median(&seconds)),
                format!("{:.0}", worst(MEASURES[0].2)),
                format!("{:.0}", worst(MEASURES[1].2)),
                format!("{:.0}", worst(MEASURES[2].2)),
                format!("{:.2}", estimate(&gaps).value),
                format!("{:.2}", worst(MEASURES[3].2)),
            ]);
        }
    }
    let header =
        ["event", "packets", "lasted s", "lost", "un-judged", "blocked ms", "gap ms", "worst gap ms"];
    Table {
        title: "Packets during events".to_owned(),
        header: header.map(str::to_owned).to_vec(),
        rows,
        note: "lost, un-judged and blocked: the worst round. gap: the longest of a round, median of the rounds. \
            control: nothing was done."
            .to_owned(),
    }
}

/// The last round of every event.
fn timeline(seen: &Seen) -> Chart {
    let lane = |passage: &Passage| TimeLane {
        name: passage.event.name().to_owned(),
        control: passage.event == Event::Nothing,
        events: match passage.event {
            Event::Nothing => vec![],
            event => vec![
                (passage.began.as_secs_f64(), event.name().to_owned()),
                (passage.ended.as_secs_f64(), "done".to_owned()),
            ],
        },
        gaps: gaps(&passage.arrivals.per_millisecond),
        rate: rate(&passage.arrivals.per_millisecond),
    };
    let lanes: Vec<TimeLane> =
        seen.passages.iter().filter_map(|passages| passages.last()).map(lane).collect();
    let seconds =
        lanes.iter().filter_map(|lane| lane.rate.last()).map(|(second, _)| *second).fold(0.0, f64::max);
    Chart::Timeline(Timeline {
        title: format!("Arrivals around events, {}", seen.hook.name()),
        seconds,
        lanes,
        note: "The last round. Gaps are whole milliseconds without a packet.".to_owned(),
    })
}

/// Runs of milliseconds without a packet.
fn gaps(per_millisecond: &[u64]) -> Vec<(f64, f64, String)> {
    let mut gaps = vec![];
    let mut start = None;
    for (ms, count) in per_millisecond.iter().chain([&1]).enumerate() {
        match (start, *count) {
            (None, 0) => start = Some(ms),
            (Some(from), count) if count > 0 => {
                gaps.push((from as f64 / 1e3, ms as f64 / 1e3, format!("{} ms without a packet", ms - from)));
                start = None;
            }
            _ => {}
        }
    }
    gaps
}

/// Packets a second in steps of 20 ms.
fn rate(per_millisecond: &[u64]) -> Vec<(f64, f64)> {
    const STEP: usize = 20;
    let whole = per_millisecond.chunks_exact(STEP).enumerate();
    whole
        .map(|(i, chunk)| ((i * STEP) as f64 / 1e3, chunk.iter().sum::<u64>() as f64 / STEP as f64 * 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_runs_of_empty_milliseconds() {
        let gaps = gaps(&[5, 0, 0, 3, 0, 1, 0]);
        let ranges: Vec<(f64, f64)> = gaps.iter().map(|(from, to, _)| (*from, *to)).collect();
        assert_eq!(ranges, [(0.001, 0.003), (0.004, 0.005), (0.006, 0.007)]);
        assert!(gaps[0].2.starts_with("2 ms"));
    }

    #[test]
    fn rates_are_packets_a_second() {
        assert_eq!(rate(&[10; 45]), [(0.0, 10_000.0), (0.02, 10_000.0)]);
    }
}
