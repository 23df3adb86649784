//! Suite `concurrent`: how many sessions stand at one time, what they weigh, and what happens to one too many.

use anyhow::{Context as _, Result, ensure};

use crate::generator::harness::{Hook, Target};
use crate::generator::packets::{Direction, Family, Protocol};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::memory;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, LineChart, Point, Role, Series, SuiteResult, Table,
};
use crate::method::suite::{Context, Suite};
use crate::testbed::bed::Bed;
use crate::testbed::gateway::Tally;
use std::os::fd::AsFd;

pub const SUITE: Suite = Suite {
    name: "concurrent",
    help: "Fill the session table to its last place: every session answers, one too many is refused, none is evicted",
    says: "The table is filled with real sessions to the number it was made for; then every packet of all of them is \
        replayed, in random order, and timed. More first packets must all be refused and counted as \
        `session_table_full`, and every session must still be there afterwards.",
    silent: &[
        "Packets come by prog-run: no device is in it.",
        "All sessions are of one kind (IPv4, UDP) and none ends meanwhile.",
    ],
    run: suite,
};

/// What a table of one size did.
#[derive(Debug, Clone)]
struct Seen {
    sessions: usize,
    /// ns a packet of the full table, a value a round; the wrapper taken off.
    replay_ns: Vec<f64>,
    /// First packets a second while it was filled.
    fill_pps: f64,
    bytes: f64,
    checks: Vec<Check>,
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let sizes: &[usize] =
        context.pick(&[10_000, 100_000, 1_000_000][..], &[1000, 10_000, 100_000, 1_000_000, 4_000_000][..]);
    let mut result = SuiteResult::new(SUITE.name);
    let mut seen = vec![];
    for (i, sessions) in sizes.iter().enumerate() {
        context.progress.at(i as f64 / sizes.len() as f64, &format!("{sessions} sessions"));
        let site = Site::create("many")?;
        let one = site.gateway.enter(|| fill(&site, *sessions, context.rounds))?;
        seen.push(one.with_context(|| format!("at {sessions} sessions"))?);
    }
    for one in &seen {
        result.figures.extend(figures(one));
    }
    result.tables.push(table(&seen));
    result.charts.push(chart(&seen));
    Ok(result)
}

/// Packets a timed run; small tables are met several times.
const REPEAT: u32 = 400_000;

fn fill(site: &Site, sessions: usize, rounds: usize) -> Result<Seen> {
    pin(bench_cpu())?;
    let hook = Hook::Xdp;
    let mut bed = Bed::new(site, &[hook], Family::V4, Protocol::Udp, sessions as u32)?;
    let began = std::time::Instant::now();
    bed.open(hook, 0, sessions).context("the table did not take what it was made for")?;
    // One first packet and one answer a session.
    let fill_pps = sessions as f64 / began.elapsed().as_secs_f64();
    bed.filled = sessions;
    let mut checks = vec![replay(&mut bed, hook, "every session answers")?];
    let replay_ns = timed(&mut bed, hook, rounds)?;
    checks.push(refuse(&mut bed, hook, sessions)?);
    checks.push(replay(&mut bed, hook, "nobody was evicted")?);
    let distinct = bed.harness(hook).distinct_packets();
    checks.push(checks::distinct(distinct.into(), 2 * sessions as u64));
    let bytes: u64 = memory::of_sessions4(bed.sluice.pin())?.iter().map(|(_, bytes)| bytes).sum();
    Ok(Seen { sessions, replay_ns, fill_pps, bytes: bytes as f64 / sessions as f64, checks })
}

/// One packet of each direction of every session, none of which may open another.
fn replay(bed: &mut Bed, hook: Hook, name: &str) -> Result<Check> {
    let sessions = bed.filled;
    let packets = 2 * sessions as u64;
    let before = Tally::read(&bed.sluice.dataplane)?;
    bed.pass(hook, 0, 0, sessions, Direction::Both)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    let passed = tally.redirected == packets && tally.sessions == 0 && tally.dropped == 0;
    Ok(Check::new(name, passed, format!("{packets} packets of {sessions} sessions: {tally:?}")))
}

fn timed(bed: &mut Bed, hook: Hook, rounds: usize) -> Result<Vec<f64>> {
    let (ingress, root) = (bed.ingress, bed.root(hook).try_clone()?);
    let sessions = bed.filled;
    bed.harness(hook).set_established(Protocol::Udp, sessions)?;
    let run = |bed: &mut Bed, target: Target<'_>| -> Result<f64> {
        bed.harness(hook).set_target(target)?;
        Ok(bed.harness(hook).run(REPEAT, ingress)?.ns)
    };
    (0..rounds)
        .map(|_| {
            let wrapper = run(bed, Target::Own("empty"))?;
            Ok(run(bed, Target::Foreign(root.as_fd()))? - wrapper)
        })
        .collect()
}

/// A tenth more than there is room for, and at least a hundred.
fn refuse(bed: &mut Bed, hook: Hook, sessions: usize) -> Result<Check> {
    let more = (sessions / 10).max(100);
    let full = |bed: &Bed| -> Result<u64> {
        use sluice_dataplane::abi::stages::Reason;
        Ok(bed.sluice.dataplane.counters()?.drops(Reason::SessionTableFull))
    };
    let (before, counted) = (Tally::read(&bed.sluice.dataplane)?, full(bed)?);
    bed.pass(hook, 0, sessions, more, Direction::Initiator)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    let counted = full(bed)? - counted;
    ensure!(tally.received == more as u64, "of {more} first packets {} were received", tally.received);
    Ok(Check::new(
        "one too many is refused and counted",
        tally.sessions == 0 && counted == more as u64 && tally.redirected == 0,
        format!(
            "{more} first packets at a full table: {counted} session_table_full, {} sessions made",
            tally.sessions
        ),
    ))
}

fn figures(seen: &Seen) -> Vec<Figure> {
    let name = |what: &str| format!("{} sessions {what}", seen.sessions);
    let mut figures = vec![
        Figure::new(name("ns/packet"), "ns/packet", Better::Lower, seen.replay_ns.clone()),
        Figure::new(name("bytes"), "bytes/session", Better::Lower, vec![seen.bytes]),
        Figure::new(name("opened"), "sessions/s", Better::Higher, vec![seen.fill_pps]),
    ];
    for figure in &mut figures {
        figure.checks = seen.checks.clone();
    }
    figures[0].headline = seen.sessions == 1_000_000;
    figures
}

fn table(seen: &[Seen]) -> Table {
    let row = |one: &Seen| {
        vec![
            one.sessions.to_string(),
            format!("{:.0}", crate::method::stats::median(&one.replay_ns)),
            format!("{:.0}", one.bytes),
            format!("{:.0}", one.fill_pps),
            if one.checks.iter().all(|check| check.passed) { "yes" } else { "NO" }.to_owned(),
        ]
    };
    Table {
        title: "A full session table".to_owned(),
        header: ["sessions", "ns/packet", "bytes/session", "opened/s", "all answer, excess refused, none evicted"]
            .map(str::to_owned)
            .to_vec(),
        rows: seen.iter().map(row).collect(),
        note: "opened/s: first packet and answer of every session, one CPU, preparation of the packets included."
            .to_owned(),
    }
}

fn chart(seen: &[Seen]) -> Chart {
    let point = |one: &Seen| Point::of(one.sessions as f64, &crate::method::stats::estimate(&one.replay_ns));
    Chart::Line(LineChart {
        title: "A packet in a full table".to_owned(),
        x: Axis::log("sessions"),
        y: Axis::log("ns/packet"),
        series: vec![Series {
            name: "sluice xdp, distinct packets".to_owned(),
            role: Role::Subject,
            points: seen.iter().map(point).collect(),
        }],
        note: "The table has as many places as sessions: the fullest it can be.".to_owned(),
    })
}
