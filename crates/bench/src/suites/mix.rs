//! Rows of `prog` by kind of traffic: one packet again and again, all alike, a few favourites, unknown flows, half and half.

use std::os::fd::AsFd;

use anyhow::{Context as _, Result, ensure};

use crate::generator::harness::{Harness, Hook, Target};
use crate::generator::layouts::RingEntry4;
use crate::generator::packets::{Family, Protocol, Tuple};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role, Series, SuiteResult, Table,
};
use crate::method::rounds::interleave;
use crate::method::stats::Rng;
use crate::method::suite::Context;
use crate::testbed::bed::Bed;
use crate::testbed::gateway::{DENIED_PORT, Tally, denying_configuration};

/// What the packets of a ring are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mix {
    /// One packet: what the first-level cache makes of any table.
    Hot,
    /// Both directions of every session, each once, shuffled.
    Uniform,
    /// The k-th most wanted session gets a share of 1/k.
    Zipf,
    /// First packets that a policy denies, each of another tuple.
    Miss,
    /// One of uniform, one of miss.
    Half,
}

const MIXES: [Mix; 5] = [Mix::Hot, Mix::Uniform, Mix::Zipf, Mix::Miss, Mix::Half];
const CAPACITY: u32 = 1 << 20;
const HOOK: Hook = Hook::Xdp;
/// Contestants of a row: empty target, floor, Sluice, floor again.
const CONTESTANTS: usize = 4;
/// A ring of fewer packets would repeat itself within a run.
const LEAST_RING: usize = 20_000;

impl Mix {
    fn name(self) -> &'static str {
        match self {
            Mix::Hot => "hot",
            Mix::Uniform => "uniform",
            Mix::Zipf => "zipf",
            Mix::Miss => "miss",
            Mix::Half => "50:50",
        }
    }

    fn row(self, sessions: usize) -> String {
        format!("xdp v4 udp {} {sessions}", self.name())
    }

    /// Whose packet each entry of the ring holds: (session, reply), None for one of no session.
    fn packets(self, sessions: usize) -> Vec<Option<(usize, bool)>> {
        let mut rng = Rng::new(0x317 ^ sessions as u64);
        let length = (2 * sessions).max(LEAST_RING);
        let mut uniform: Vec<_> = (0..length).map(|i| Some((i / 2 % sessions, i % 2 == 1))).collect();
        rng.shuffle(&mut uniform);
        match self {
            Mix::Hot => vec![Some((sessions / 2, false))],
            Mix::Uniform => uniform,
            Mix::Miss => vec![None; length],
            Mix::Half => {
                let mut half: Vec<_> = uniform
                    .into_iter()
                    .enumerate()
                    .map(|(i, packet)| packet.filter(|_| i % 2 == 0))
                    .collect();
                rng.shuffle(&mut half);
                half
            }
            Mix::Zipf => {
                let ranks = Zipf::new(sessions);
                let mut order: Vec<usize> = (0..sessions).collect();
                rng.shuffle(&mut order);
                (0..length).map(|_| Some((order[ranks.draw(&mut rng)], rng.below(2) == 1))).collect()
            }
        }
    }
}

/// Zipf's law with exponent 1 over ranks 0..n.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (1..=n)
                .map(|rank| {
                    sum += 1.0 / rank as f64;
                    sum
                })
                .collect(),
        )
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let whole = self.0.last().copied().unwrap_or(1.0);
        let at = rng.below(1 << 53) as f64 / (1u64 << 53) as f64 * whole;
        self.0.partition_point(|sum| *sum <= at).min(self.0.len() - 1)
    }
}

/// A ring as it was made.
struct Ring {
    entries: Vec<RingEntry4>,
    unknown: u64,
    distinct: u64,
}

fn ring(harness: &Harness, mix: Mix, sessions: usize) -> Ring {
    let template = harness.template(Protocol::Udp, 0);
    let packets = mix.packets(sessions);
    let mut unknown = 0;
    let entry = |packet: &Option<(usize, bool)>| match packet {
        Some((session, reply)) => template.entry4(Tuple::of_session(*session), *reply),
        None => {
            unknown += 1;
            // Tuples that no session has, to the port that is denied.
            let tuple = Tuple::of_session(CAPACITY as usize + unknown as usize);
            template.entry4(Tuple { server_port: DENIED_PORT, ..tuple }, false)
        }
    };
    let entries: Vec<RingEntry4> = packets.iter().map(entry).collect();
    let known: std::collections::HashSet<_> = packets.iter().flatten().collect();
    Ring { entries, unknown, distinct: known.len() as u64 + unknown }
}

/// A measured row.
struct Row {
    name: String,
    mix: Mix,
    sessions: usize,
    samples: Vec<Vec<f64>>,
    checks: Vec<Check>,
}

/// Adds the rows of all mixes to the result of `prog`.
pub fn extend(context: &Context, result: &mut SuiteResult) -> Result<()> {
    let sizes: &[usize] =
        context.pick(&[100, 10_000, 1_000_000][..], &[100, 1000, 10_000, 100_000, 1_000_000][..]);
    let repeat = context.pick(100_000, 400_000);
    let site = Site::create("mix")?;
    let rows = site.gateway.enter(|| measure(&site, sizes, repeat, context))??;
    result.figures.extend(rows.iter().map(figure));
    result.tables.push(table(&rows, sizes));
    result.charts.push(chart(&rows));
    Ok(())
}

fn measure(site: &Site, sizes: &[usize], repeat: u32, context: &Context) -> Result<Vec<Row>> {
    pin(bench_cpu())?;
    let text = denying_configuration(HOOK.into());
    let mut bed = Bed::with(site, &text, &[HOOK], Family::V4, Protocol::Udp, CAPACITY)?;
    let mut rows = vec![];
    for sessions in sizes {
        bed.fill(*sessions).with_context(|| format!("cannot establish {sessions} sessions"))?;
        for mix in MIXES {
            let name = mix.row(*sessions);
            context.progress.at(0.7, &name);
            let row = measure_row(&mut bed, mix, *sessions, repeat, context.rounds);
            rows.push(row.with_context(|| format!("row `{name}`"))?);
        }
    }
    Ok(rows)
}

fn measure_row(bed: &mut Bed, mix: Mix, sessions: usize, repeat: u32, rounds: usize) -> Result<Row> {
    let ring = ring(bed.harness(HOOK), mix, sessions);
    let template = bed.harness(HOOK).template(Protocol::Udp, 0);
    bed.harness(HOOK).set_entries4(template, &ring.entries)?;
    // A whole lap untimed: nothing is met for the first time in round one.
    let lap = ring.entries.len() as u32;
    for contestant in 1..3 {
        run_one(bed, contestant, lap.max(2))?;
    }
    let mut counted = Counted::default();
    let samples = interleave(CONTESTANTS, rounds, |contestant, _| {
        let (ns, one) = run_one(bed, contestant, repeat)?;
        counted.add(one);
        Ok(ns)
    })?;
    Ok(Row {
        name: mix.row(sessions),
        mix,
        sessions,
        samples,
        checks: checks(mix, sessions, &ring, &counted),
    })
}

/// Packets of Sluice's rounds, by what became of them.
#[derive(Debug, Default, Clone, Copy)]
struct Counted {
    packets: u64,
    redirected: u64,
    denied: u64,
}

impl Counted {
    fn add(&mut self, other: Counted) {
        self.packets += other.packets;
        self.redirected += other.redirected;
        self.denied += other.denied;
    }
}

fn run_one(bed: &mut Bed, contestant: usize, repeat: u32) -> Result<(f64, Counted)> {
    let (ingress, root, floor) =
        (bed.ingress, bed.root(HOOK).try_clone()?, bed.harness(HOOK).floor("lookup"));
    let sluice = contestant == 2;
    bed.harness(HOOK).set_target(match contestant {
        0 => Target::Own("empty"),
        2 => Target::Foreign(root.as_fd()),
        _ => Target::Own(&floor),
    })?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let sample = bed.harness(HOOK).run(repeat, ingress)?;
    if !sluice {
        return Ok((sample.ns, Counted::default()));
    }
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    let counted = Counted { packets: repeat.into(), redirected: tally.redirected, denied: tally.dropped };
    ensure!(
        tally.received == counted.packets
            && tally.redirected + tally.dropped == counted.packets
            && tally.sessions == 0,
        "of {repeat} packets the data plane counted {tally:?}; {}",
        bed.reasons()?
    );
    Ok((sample.ns, counted))
}

fn checks(mix: Mix, sessions: usize, ring: &Ring, counted: &Counted) -> Vec<Check> {
    let meant = ring.unknown as f64 / ring.entries.len() as f64;
    let mut checks = vec![
        checks::mix(&[("established", 1.0 - meant, counted.redirected), ("denied", meant, counted.denied)]),
        checks::conserved(counted.packets, counted.redirected, counted.denied),
    ];
    match mix {
        // What these rows are for.
        Mix::Hot | Mix::Zipf => {
            let (distinct, all) = (ring.distinct, ring.entries.len() as u64);
            let repeats = if mix == Mix::Hot { distinct == 1 } else { distinct < all };
            let told = format!("{distinct} distinct packets of {all} in turn");
            checks.push(Check::new("repetition as declared", repeats, told));
        }
        _ => checks.push(checks::distinct(ring.distinct, sessions as u64)),
    }
    checks
}

fn without_wrapper(row: &Row, contestant: usize) -> Vec<f64> {
    row.samples[contestant].iter().zip(&row.samples[0]).map(|(raw, wrapper)| raw - wrapper).collect()
}

fn figure(row: &Row) -> Figure {
    let floor = without_wrapper(row, 1);
    let mut figure = Figure::new(&row.name, "ns/packet", Better::Lower, without_wrapper(row, 2))
        .against("parse + one HASH lookup + drop", &floor)
        .same(&floor, &without_wrapper(row, 3));
    figure.checks = row.checks.clone();
    // Hot rows flatter, whatever they measure.
    figure.headline = row.mix == Mix::Uniform && row.sessions == 1_000_000;
    figure
}

fn table(rows: &[Row], sizes: &[usize]) -> Table {
    let cell = |mix: Mix, sessions: usize| {
        let row = rows.iter().find(|row| row.mix == mix && row.sessions == sessions);
        row.map_or(String::new(), |row| {
            let median = |contestant| crate::method::stats::median(&without_wrapper(row, contestant));
            format!("{:.0} / {:.0}", median(2), median(1))
        })
    };
    let mut header = vec!["packets".to_owned()];
    header.extend(sizes.iter().map(usize::to_string));
    Table {
        title: "Nanoseconds a packet, Sluice / floor, by traffic and sessions".to_owned(),
        header,
        rows: MIXES
            .iter()
            .map(|mix| {
                let mut cells = vec![mix.name().to_owned()];
                cells.extend(sizes.iter().map(|sessions| cell(*mix, *sessions)));
                cells
            })
            .collect(),
        note: "hot: one packet again and again. zipf: the k-th most wanted session gets a share of 1/k. miss: first \
            packets that a policy denies. Tables with 1,048,576 places."
            .to_owned(),
    }
}

fn chart(rows: &[Row]) -> Chart {
    let series = |mix: &Mix| {
        let own = rows.iter().filter(|row| row.mix == *mix);
        let point = |row: &Row| Point::of(row.sessions as f64, &figure(row).estimate);
        let role = if *mix == Mix::Uniform { Role::Subject } else { Role::Peer };
        Series { name: mix.name().to_owned(), role, points: own.map(point).collect() }
    };
    Chart::Line(LineChart {
        title: "A packet by traffic and sessions".to_owned(),
        x: Axis::log("sessions"),
        y: Axis::log("ns/packet"),
        series: MIXES.iter().map(series).collect(),
        note: "The gap between hot and uniform is what a benchmark with one packet hides.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_hold_what_their_names_say() {
        let unknown = |mix: Mix| mix.packets(10_000).iter().filter(|packet| packet.is_none()).count();
        assert_eq!(MIXES.map(unknown), [0, 0, 0, 20_000, 10_000]);
        assert_eq!(Mix::Hot.packets(500).len(), 1);
        let uniform: std::collections::HashSet<_> = Mix::Uniform.packets(10_000).into_iter().collect();
        assert_eq!(uniform.len(), 20_000);
    }

    #[test]
    fn zipf_favours_the_first_ranks_as_the_law_says() {
        let (ranks, mut rng) = (Zipf::new(1000), Rng::new(9));
        let mut counts = vec![0u32; 1000];
        (0..200_000).for_each(|_| counts[ranks.draw(&mut rng)] += 1);
        // H(1000) = 7.485: the first gets 13.4 %, the tenth a tenth of that.
        let share = |rank: usize| f64::from(counts[rank]) / 200_000.0;
        assert!((share(0) - 0.1336).abs() < 0.005, "{}", share(0));
        assert!((share(9) - 0.01336).abs() < 0.002, "{}", share(9));
    }
}
