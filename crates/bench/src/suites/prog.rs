//! Suite `prog`: nanoseconds a packet of Sluice's whole path, beside the floor, in the same rounds.

mod spec;
mod table;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use sluice_dataplane::abi::stages::Reason;

use crate::generator::harness::{Hook, Sample, Target, order};
use crate::generator::packets::{Direction, Family, Protocol, TCP_ACK, TCP_SYN};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::document::RunDocument;
use crate::method::progress::Progress;
use crate::method::result::{
    Axis, Better, Chart, Check, Figure, Forest, ForestRow, LineChart, Point, Profile, Role, STEADY, Series,
    SuiteResult,
};
use crate::method::rounds::interleave;
use crate::method::stats::{Estimate, dispersion, estimate, paired_ratio};
use crate::method::suite::{Context, Suite};
use crate::method::watch::{self, Load};
use crate::suites::options::CommonArgs;
use crate::suites::{mix, stages};
use crate::testbed::bed::{Bed, DEFAULT_CAPACITY};
use crate::testbed::gateway::{SCREENS, Tally, UDP_FLOOD, ruled_configuration, screened};
use crate::testbed::ledger::Ledger;
use crate::testbed::ruleset::{Rules, Then};
use crate::testbed::verify::{self, Accounts, COMPARED, Decided, Decisions, Fate};

pub use spec::{Kind, RowSpec, Screens};
pub use table::line;

pub(crate) const SUITE: Suite = Suite {
    name: "prog",
    help: "Nanoseconds a packet of the whole path, beside the floor, in interleaved rounds",
    says: "What a packet costs in Sluice's programs, from the root program to the verdict, for distinct packets of real \
        sessions, beside the least that a program with a hash table could do for the same packets in the same rounds.",
    silent: &[
        "The packet itself is always in the first-level cache; on a network card its first bytes come from memory.",
        "Redirect is the verdict, not the transmission: driver and device are not in it.",
        "Iterations are independent, so the CPU overlaps their cache misses; a lone packet waits longer.",
    ],
    run: suite,
};

/// Rows to measure instead of the profile's.
#[derive(Debug, Default, clap::Args)]
pub struct ProgArgs {
    /// Hooks to measure [default: xdp,tc]
    #[arg(long, value_delimiter = ',')]
    hook: Vec<Hook>,
    /// Address families [default: v4,v6; in quick v4]
    #[arg(long, value_delimiter = ',')]
    family: Vec<Family>,
    /// Protocols [default: udp,tcp; in quick udp]
    #[arg(long, value_delimiter = ',')]
    protocol: Vec<Protocol>,
    /// Established sessions in the tables; the packets are twice as many and all distinct [default:
    /// 1,10000,100000,1000000; in quick 1,10000,1000000]
    #[arg(long, value_delimiter = ',')]
    sessions: Vec<usize>,
    /// Packets of existing sessions, or first packets [default: established,new]
    #[arg(long, value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Policies of the zone pair, each hit as often as the others
    #[arg(long, default_value_t = 1, value_parser = parse_rules)]
    rules: usize,
    /// Packets a round and contestant
    #[arg(long, default_value_t = REPEAT, value_parser = clap::value_parser!(u32).range(10_000..))]
    repeat: u32,
    /// Sessions that the tables have room for [default: 65536, or the power of two that the row needs]
    #[arg(long)]
    capacity: Option<u32>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

const REPEAT: u32 = 400_000;

fn parse_rules(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rules) if (1..=50_000).contains(&rules) => Ok(rules),
        _ => Err("a number from 1 to 50000".to_owned()),
    }
}

impl ProgArgs {
    /// Rows of one's own: traffic and stages are left out.
    fn names_rows(&self) -> bool {
        let named =
            [self.hook.len(), self.family.len(), self.protocol.len(), self.sessions.len(), self.kind.len()];
        named.iter().any(|count| *count > 0) || self.capacity.is_some() || self.rules != 1
    }

    fn options(&self, context: &Context) -> Options {
        let usual: &[usize] = context.pick(&[1, 10_000, 1_000_000], &[1, 10_000, 100_000, 1_000_000]);
        let sessions = given(&self.sessions, usual);
        let families = given(&self.family, context.pick(&[Family::V4][..], &[Family::V4, Family::V6]));
        let protocols =
            given(&self.protocol, context.pick(&[Protocol::Udp][..], &[Protocol::Udp, Protocol::Tcp]));
        let hooks = given(&self.hook, &[Hook::Xdp, Hook::Tc]);
        let kinds = given(&self.kind, &[Kind::Established, Kind::New]);
        let mut rows = vec![];
        for family in families {
            for protocol in &protocols {
                for sessions in &sessions {
                    for hook in &hooks {
                        let row = |kind: &Kind| RowSpec {
                            hook: *hook,
                            family,
                            protocol: *protocol,
                            kind: *kind,
                            sessions: *sessions,
                            rules: self.rules,
                            screens: Screens::Off,
                        };
                        rows.extend(kinds.iter().map(row));
                    }
                }
            }
        }
        Options { rows, rounds: context.rounds, repeat: self.repeat, capacity: self.capacity }
    }
}

fn given<T: Copy>(given: &[T], usual: &[T]) -> Vec<T> {
    if given.is_empty() { usual.to_vec() } else { given.to_vec() }
}

/// `sluice bench prog`: unlike the other suites in full, unless told otherwise.
pub fn command(args: &ProgArgs) -> Result<RunDocument> {
    let context = args.common.context(Profile::Full, Progress::stderr());
    crate::method::run::one_document(&context, SUITE.name, || {
        if args.names_rows() { measure(&args.options(&context), &context) } else { suite(&context) }
    })
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result =
        measure(&ProgArgs { repeat: REPEAT, rules: 1, ..ProgArgs::default() }.options(context), context)?;
    context.progress.at(0.6, "by traffic");
    mix::extend(context, &mut result)?;
    context.progress.at(0.9, "by stage");
    stages::extend(context, &mut result)?;
    Ok(result)
}

fn measure(options: &Options, context: &Context) -> Result<SuiteResult> {
    let total = options.rows.len().max(1);
    let mut done = 0;
    let outcome = run(options, |row| {
        done += 1;
        context.progress.at(done as f64 / total as f64, &row.name);
        context.progress.say(&line(row));
    });
    result(&outcome)
}

/// The outcome in the form all suites share.
pub fn result(outcome: &Outcome) -> Result<SuiteResult> {
    let mut result = SuiteResult::new("prog");
    result.figures = outcome.rows.iter().map(figure).collect();
    result.tables.push(table::table(&outcome.rows));
    result.charts = charts(&outcome.rows);
    result.errors = outcome.errors.clone();
    result.rows = serde_json::to_value(&outcome.rows)?;
    Ok(result)
}

fn figure(row: &Row) -> Figure {
    let off = |raw: &[f64]| -> Vec<f64> {
        raw.iter().zip(&row.samples.wrapper).map(|(raw, wrapper)| raw - wrapper).collect()
    };
    let (target, floor) = (off(&row.samples.target), off(&row.samples.floor));
    let mut figure = Figure::new(&row.name, "ns/packet", Better::Lower, target)
        .against(row.floor, &floor)
        .same(&floor, &off(&row.samples.floor_again));
    figure.unsteady = row.unsteady;
    figure.load = row.load.clone();
    figure.headline = row.spec.hook == Hook::Xdp && row.spec.protocol == Protocol::Udp;
    let keys = match row.spec.kind {
        Kind::Established => 2 * row.spec.sessions,
        Kind::New | Kind::Denied | Kind::Miss => row.repeat as usize,
    };
    figure.checks.extend(row.checks.iter().cloned());
    figure.check(checks::distinct(u64::from(row.distinct_packets), keys as u64))
}

/// ns over sessions with hot and distinct packets, and all ratios beside each other.
fn charts(rows: &[Row]) -> Vec<Chart> {
    let ratios = rows.iter().flat_map(|row| {
        let same = ForestRow { name: format!("A/A {}", row.name), estimate: row.same_ratio, same: true };
        [ForestRow { name: row.name.clone(), estimate: row.ratio, same: false }, same]
    });
    let forest = Forest {
        title: "Sluice beside its floor".to_owned(),
        ratio: "sluice / floor".to_owned(),
        better: Better::Lower,
        rows: ratios.collect(),
        note: "Hollow: the floor against itself in the same rounds (A/A).".to_owned(),
    };
    let mut charts: Vec<Chart> =
        [Kind::Established, Kind::New].into_iter().filter_map(|kind| over_sessions(rows, kind)).collect();
    charts.push(Chart::Forest(forest));
    charts
}

fn over_sessions(rows: &[Row], kind: Kind) -> Option<Chart> {
    let of_kind: Vec<&Row> = rows.iter().filter(|row| row.spec.kind == kind).collect();
    let mut series: Vec<Series> = vec![];
    let mut add =
        |name: String, role: Role, point: Point| match series.iter_mut().find(|one| one.name == name) {
            Some(one) => one.points.push(point),
            None => series.push(Series { name, role, points: vec![point] }),
        };
    for row in &of_kind {
        let RowSpec { hook, family, protocol, sessions, .. } = row.spec;
        let name = format!("{hook:?} {family:?} {protocol:?}").to_lowercase();
        add(name.clone(), Role::Subject, Point::of(sessions as f64, &row.target_ns));
        add(format!("floor {name}"), Role::Peer, Point::of(sessions as f64, &row.floor_ns));
    }
    (!of_kind.is_empty()).then(|| {
        Chart::Line(LineChart {
            title: format!("Nanoseconds a packet over sessions, {kind:?}").to_lowercase().replacen('n', "N", 1),
            x: Axis::log("sessions in the tables"),
            y: Axis::log("ns a packet"),
            series,
            note: "One session is the hot case: everything stays in the first-level cache. All others are distinct packets \
                in random order, two a session."
                .to_owned(),
        })
    })
}

/// Which rows, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// In this order.
    pub rows: Vec<RowSpec>,
    /// Interleaved rounds.
    pub rounds: usize,
    /// Packets of one round.
    pub repeat: u32,
    /// Sessions that the tables of Sluice and of the floors have room for; None = as a user would size them.
    pub capacity: Option<u32>,
}

/// One row: what it measured and what was checked.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// As [`RowSpec`] prints.
    pub name: String,
    /// What it measured.
    #[serde(flatten)]
    pub spec: RowSpec,
    /// Sessions that the tables have room for.
    pub capacity: u32,
    /// What the floor does, in words.
    pub floor: &'static str,
    /// Packets in the ring.
    pub distinct_packets: u32,
    /// Packets of one round.
    pub repeat: u32,
    /// ns a packet, the wrapper included.
    pub wrapper_ns: Estimate,
    /// ns a packet of the floor, the wrapper included.
    pub floor_raw_ns: Estimate,
    /// ns a packet of Sluice, the wrapper included.
    pub target_raw_ns: Estimate,
    /// ns a packet, the round's wrapper taken off.
    pub floor_ns: Estimate,
    /// ns a packet of Sluice, the round's wrapper taken off.
    pub target_ns: Estimate,
    /// `target_ns` over `floor_ns`, paired by round.
    pub ratio: Estimate,
    /// The same with the wrapper in both.
    pub ratio_raw: Estimate,
    /// The floor against itself in a table of its own: how far equal contestants differ here.
    pub same_ratio: Estimate,
    /// Sluice's packets of all rounds that took the slow path.
    pub slow_packets: u64,
    /// The rounds were too unsteady to be quoted alone.
    pub unsteady: bool,
    /// What others did meanwhile.
    pub load: Option<Load>,
    /// What was proven about the row's packets.
    pub checks: Vec<Check>,
    /// What these were computed from.
    pub samples: Samples,
}

/// Every round's figure, for whoever wants to compute anew.
#[derive(Debug, Clone, Serialize)]
pub struct Samples {
    /// ns a packet, one value a round.
    pub wrapper: Vec<f64>,
    /// ns a packet, one value a round.
    pub floor: Vec<f64>,
    /// ns a packet, one value a round.
    pub floor_again: Vec<f64>,
    /// ns a packet, one value a round.
    pub target: Vec<f64>,
}

const WRAPPER: usize = 0;
const FLOOR: usize = 1;
const TARGET: usize = 2;
const FLOOR_AGAIN: usize = 3;
const CONTESTANTS: usize = 4;

/// Tables have room for the fill, the first packets of a round and, as the product's, for 65,536 sessions at least.
fn capacity(spec: &RowSpec, options: &Options) -> u32 {
    let needed = (spec.sessions + fresh_sessions(options.repeat)) as u32;
    options.capacity.unwrap_or(needed.next_power_of_two().max(DEFAULT_CAPACITY)).max(needed)
}

/// What became of the rows.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Those that were measured.
    pub rows: Vec<Row>,
    /// Why the others were not.
    pub errors: Vec<String>,
}

/// Runs the rows, reporting each as soon as it is there. Rows that can share tables do; one that fails leaves the
/// others running.
pub fn run(options: &Options, mut report: impl FnMut(&Row) + Send) -> Outcome {
    let mut left = options.rows.clone();
    left.sort_by_key(|row| row.sessions);
    let mut outcome = Outcome::default();
    while let Some(first) = left.first().copied() {
        let shared = |row: &RowSpec| {
            let capacity = |row: &RowSpec| capacity(row, options);
            let tables = |row: &RowSpec| (row.family, row.protocol, row.rules, row.screens, capacity(row));
            // a row that denies leaves tables behind in which no session can be opened any more
            let denied = row.kind == Kind::Denied || first.kind == Kind::Denied;
            tables(row) == tables(&first) && (!denied || *row == first)
        };
        let (now, later): (Vec<RowSpec>, Vec<RowSpec>) = left.iter().partition(|row| shared(row));
        left = later;
        let mut report = |row: &Row| report(row);
        if let Err(error) = on_site(&now, options, &mut outcome, &mut report) {
            outcome.errors.push(format!("rows that share tables with `{first}`: {error:#}"));
        }
    }
    outcome
}

fn on_site(
    specs: &[RowSpec],
    options: &Options,
    outcome: &mut Outcome,
    report: &mut (dyn FnMut(&Row) + Send),
) -> Result<()> {
    let site = Site::create("prog")?;
    site.gateway.enter(|| bed_rows(&site, specs, options, outcome, report))?
}

/// Rows of one family, protocol and capacity, by rising fill. Runs inside the gateway's namespace.
fn bed_rows(
    site: &Site,
    specs: &[RowSpec],
    options: &Options,
    outcome: &mut Outcome,
    report: &mut dyn FnMut(&Row),
) -> Result<()> {
    pin(bench_cpu())?;
    let mut hooks: Vec<Hook> = vec![];
    for spec in specs {
        if !hooks.contains(&spec.hook) {
            hooks.push(spec.hook);
        }
    }
    let Some(first) = specs.first() else { return Ok(()) };
    let text = configuration_of(first, hooks[0], Then::Permit);
    let mut bed = Bed::with(site, &text, &hooks, first.family, first.protocol, capacity(first, options))?;
    for spec in specs {
        bed.fill(spec.sessions).with_context(|| format!("cannot establish {} sessions", spec.sessions))?;
        let row = match spec.kind {
            Kind::Established => established(&mut bed, *spec, options),
            Kind::New => new_sessions(&mut bed, *spec, options),
            Kind::Denied => {
                bed.sluice.commit(site, &configuration_of(spec, spec.hook, Then::Deny))?;
                refused(&mut bed, *spec, options)
            }
            Kind::Miss => refused(&mut bed, *spec, options),
        };
        match row.and_then(|row| verify::all_passed(&row.checks).map(|()| row)) {
            Ok(row) => {
                report(&row);
                outcome.rows.push(row);
            }
            Err(error) => outcome.errors.push(format!("row `{spec}`: {error:#}")),
        }
    }
    Ok(())
}

fn configuration_of(spec: &RowSpec, hook: Hook, then: Then) -> String {
    let text = ruled_configuration(hook.into(), spec.rules, then);
    match spec.screens {
        Screens::Off => text,
        Screens::On => screened(&text, SCREENS),
        Screens::UdpFlood => screened(&text, UDP_FLOOD),
    }
}

/// Established packets pass, each through the slow path where a screen counts it.
fn passed(tally: Tally, spec: &RowSpec, packets: u64) -> Result<()> {
    if spec.screens != Screens::UdpFlood || spec.protocol != Protocol::Udp {
        return tally.all_replayed(packets);
    }
    let wanted = Tally { received: packets, redirected: packets, slow: tally.slow, ..Tally::default() };
    ensure!(tally == wanted, "of {packets} established packets the data plane counted {tally:?}");
    Ok(())
}

/// The rules of a row's configuration.
fn rules(spec: &RowSpec, then: Then) -> Option<Rules> {
    (spec.rules > 1).then(|| Rules::new(spec.rules, then))
}

/// Both floors' tables for so many sessions.
fn size_floors(bed: &mut Bed, room: usize) -> Result<()> {
    bed.size_floor(room)?;
    bed.size_again(room)
}

/// What a contestant does, with the floors in another place where they are what differs.
fn in_turn(bed: &mut Bed, contestant: usize, work: impl FnOnce(&mut Bed) -> Result<f64>) -> Result<f64> {
    if contestant == FLOOR_AGAIN { bed.instead(work) } else { work(bed) }
}

fn established(bed: &mut Bed, spec: RowSpec, options: &Options) -> Result<Row> {
    let RowSpec { hook, protocol, sessions: fill, .. } = spec;
    size_floors(bed, fill)?;
    bed.harness(hook).set_established(protocol, fill)?;
    let floor = bed.harness(hook).floor("lookup");
    let distinct = bed.harness(hook).distinct_packets();
    // A round untimed, for caches and clocks; filling the tables has sent a packet of every session both ways already.
    let lap = distinct.clamp(options.repeat.min(100_000), options.repeat);
    bed.instead(|bed| bed.harness(hook).set_established(protocol, fill))?;
    for contestant in [FLOOR, TARGET, FLOOR_AGAIN] {
        in_turn(bed, contestant, |bed| run_one(bed, &spec, contestant, &floor, lap))?;
    }
    (bed.slow, bed.ledger) = (0, Ledger::of_ring(distinct));
    let accounts = Accounts::open(bed, &order(0, fill, Direction::Both))?;
    let decisions = Decisions::open(bed, rules(&spec, Then::Permit))?;
    let samples = interleave(CONTESTANTS, options.rounds, |contestant, _| {
        in_turn(bed, contestant, |bed| run_one(bed, &spec, contestant, &floor, options.repeat))
    })?;
    let compared = COMPARED.min(options.repeat as usize);
    let all = |tally: Tally| passed(tally, &spec, compared as u64);
    let output = verify::output(bed, hook, compared, &mut Fate::Forwarded, all)?;
    let ip_len = bed.harness(hook).ip_len();
    let nothing = Decided { first: 0, count: 0, times: 0, reason: None };
    let mut checks = vec![output, accounts.check(bed, ip_len)?];
    checks.extend(decisions.check(bed, &nothing)?);
    Ok(make_row(bed, spec, options.repeat, samples, checks))
}

/// Runs a contestant of an established row and proves what its packets did.
fn run_one(bed: &mut Bed, spec: &RowSpec, contestant: usize, floor: &str, repeat: u32) -> Result<f64> {
    let (ingress, hook) = (bed.ingress, spec.hook);
    if contestant == TARGET {
        let check = |tally: Tally| passed(tally, spec, u64::from(repeat));
        return run_target(bed, hook, repeat, hook.redirected(), check);
    }
    let harness = bed.harness(hook);
    harness.set_target(Target::Own(if contestant == WRAPPER { "empty" } else { floor }))?;
    let sample = harness.run(repeat, ingress)?;
    if contestant != WRAPPER {
        all_hit(&sample, repeat)?;
    }
    Ok(sample.ns)
}

fn all_hit(sample: &Sample, repeat: u32) -> Result<()> {
    ensure!(
        sample.hits == u64::from(repeat) && sample.misses == 0,
        "hit rate of the floor is {} of {repeat}, not 1.000",
        sample.hits
    );
    Ok(())
}

/// Runs Sluice's root on the ring's packets and checks its counters and what it returned at last.
fn run_target(
    bed: &mut Bed,
    hook: Hook,
    repeat: u32,
    wanted: u32,
    check: impl Fn(Tally) -> Result<()>,
) -> Result<f64> {
    let ingress = bed.ingress;
    bed.aim_at_root(hook)?;
    let position = bed.harness(hook).position();
    bed.ledger.record(position, repeat.into());
    let before = Tally::read(&bed.sluice.dataplane)?;
    let sample = bed.harness(hook).run(repeat, ingress)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    check(tally).with_context(|| bed.reasons().unwrap_or_default())?;
    bed.slow += tally.slow;
    ensure!(sample.returned == wanted, "the last packet returned {}, not {wanted}", sample.returned);
    Ok(sample.ns)
}

/// First packets a round: enough to time, few enough to leave the fill as it is.
fn fresh_sessions(repeat: u32) -> usize {
    (repeat as usize / 10).clamp(1000, 40_000)
}

/// `[first packet through the slow path]` against `[two HASH inserts at the same fill]`; undone after every round.
fn new_sessions(bed: &mut Bed, spec: RowSpec, options: &Options) -> Result<Row> {
    let RowSpec { hook, protocol, sessions: fill, .. } = spec;
    let count = fresh_sessions(options.repeat);
    size_floors(bed, fill + count)?;
    bed.slow = 0;
    let decisions = Decisions::open(bed, rules(&spec, Then::Permit))?;
    let samples = interleave(CONTESTANTS, options.rounds, |contestant, _| {
        in_turn(bed, contestant, |bed| {
            bed.harness(hook).set_packets(protocol, TCP_SYN, fill, count, Direction::Initiator)?;
            run_new(bed, hook, contestant, fill, count)
        })
    })?;
    bed.harness(hook).set_packets(protocol, TCP_SYN, fill, count, Direction::Initiator)?;
    let made = |tally: Tally| all_made(tally, count);
    let mut checks = vec![verify::output(bed, hook, count, &mut Fate::Forwarded, made)?];
    let ip_len = bed.harness(hook).ip_len();
    checks.push(verify::opened(bed, fill, count, ip_len, decisions.deciders())?);
    bed.close(fill, count)?;
    let decided = Decided { first: fill, count, times: options.rounds as u64 + 1, reason: None };
    checks.extend(decisions.check(bed, &decided)?);
    Ok(make_row(bed, spec, count as u32, samples, checks))
}

fn all_made(tally: Tally, count: usize) -> Result<()> {
    let all = count as u64;
    let made = Tally { received: all, redirected: all, slow: all, sessions: all, ..Tally::default() };
    ensure!(tally == made, "{count} first packets gave {tally:?}");
    Ok(())
}

fn run_new(bed: &mut Bed, hook: Hook, contestant: usize, first: usize, count: usize) -> Result<f64> {
    let (ingress, packets) = (bed.ingress, count as u32);
    if contestant == TARGET {
        let ns = run_target(bed, hook, packets, hook.redirected(), |tally| all_made(tally, count))?;
        bed.close(first, count)?;
        return Ok(ns);
    }
    let harness = bed.harness(hook);
    if contestant == WRAPPER {
        harness.set_target(Target::Own("empty"))?;
        return Ok(harness.run(packets, ingress)?.ns);
    }
    let (insert, delete) = (harness.floor("insert"), harness.floor("delete"));
    harness.set_target(Target::Own(&insert))?;
    let sample = harness.run(packets, ingress)?;
    all_hit(&sample, packets)?;
    harness.set_target(Target::Own(&delete))?;
    let undone = harness.run(packets, ingress)?;
    all_hit(&undone, packets)?;
    Ok(sample.ns)
}

/// Packets that open nothing and leave nothing behind, against a lookup that finds nothing.
fn refused(bed: &mut Bed, spec: RowSpec, options: &Options) -> Result<Row> {
    let RowSpec { hook, protocol, sessions: fill, kind, .. } = spec;
    ensure!(kind == Kind::Denied || protocol == Protocol::Tcp, "only TCP refuses what belongs to no session");
    let count = fresh_sessions(options.repeat);
    let flags = if kind == Kind::Denied { TCP_SYN } else { TCP_ACK };
    size_floors(bed, fill)?;
    bed.instead(|bed| bed.harness(hook).set_packets(protocol, flags, fill, count, Direction::Initiator))?;
    bed.harness(hook).set_packets(protocol, flags, fill, count, Direction::Initiator)?;
    bed.slow = 0;
    let then = if kind == Kind::Denied { Then::Deny } else { Then::Permit };
    let decisions = Decisions::open(bed, rules(&spec, then))?;
    let samples = interleave(CONTESTANTS, options.rounds, |contestant, _| {
        in_turn(bed, contestant, |bed| run_refused(bed, hook, contestant, count))
    })?;
    let all = |tally: Tally| all_refused(tally, count);
    let mut checks = vec![verify::output(bed, hook, count, &mut Fate::Refused, all)?];
    let reason = match (kind, spec.rules) {
        (Kind::Miss, _) => Reason::TcpNotSyn,
        (_, 1) => Reason::PolicyDefault,
        _ => Reason::PolicyDeny,
    };
    let times = options.rounds as u64 + 1;
    checks.extend(decisions.check(bed, &Decided { first: fill, count, times, reason: Some(reason) })?);
    Ok(make_row(bed, spec, count as u32, samples, checks))
}

fn all_refused(tally: Tally, count: usize) -> Result<()> {
    let all = count as u64;
    let refused = Tally { received: all, slow: all, dropped: all, ..Tally::default() };
    ensure!(tally == refused, "{count} packets to refuse gave {tally:?}");
    Ok(())
}

fn run_refused(bed: &mut Bed, hook: Hook, contestant: usize, count: usize) -> Result<f64> {
    let (ingress, packets) = (bed.ingress, count as u32);
    if contestant == TARGET {
        return run_target(bed, hook, packets, hook.dropped(), |tally| all_refused(tally, count));
    }
    let harness = bed.harness(hook);
    let floor = harness.floor("lookup");
    harness.set_target(Target::Own(if contestant == WRAPPER { "empty" } else { &floor }))?;
    let sample = harness.run(packets, ingress)?;
    ensure!(contestant == WRAPPER || sample.misses == u64::from(packets), "the floor knows what it must not");
    Ok(sample.ns)
}

fn make_row(bed: &mut Bed, spec: RowSpec, repeat: u32, samples: Vec<Vec<f64>>, checks: Vec<Check>) -> Row {
    let off = |contestant: usize| -> Vec<f64> {
        samples[contestant].iter().zip(&samples[WRAPPER]).map(|(raw, wrapper)| raw - wrapper).collect()
    };
    let (floor, target) = (off(FLOOR), off(TARGET));
    Row {
        name: spec.to_string(),
        spec,
        capacity: bed.capacity,
        floor: match spec.kind {
            Kind::Established => "parse + one HASH lookup + drop",
            Kind::Denied | Kind::Miss => "parse + one HASH lookup that finds nothing + drop",
            Kind::New => "parse + two HASH inserts + drop",
        },
        distinct_packets: bed.harness(spec.hook).distinct_packets(),
        repeat,
        wrapper_ns: estimate(&samples[WRAPPER]),
        floor_raw_ns: estimate(&samples[FLOOR]),
        target_raw_ns: estimate(&samples[TARGET]),
        floor_ns: estimate(&floor),
        target_ns: estimate(&target),
        ratio: paired_ratio(&target, &floor),
        ratio_raw: paired_ratio(&samples[TARGET], &samples[FLOOR]),
        same_ratio: paired_ratio(&off(FLOOR_AGAIN), &floor),
        slow_packets: bed.slow,
        unsteady: dispersion(&floor).max(dispersion(&target)) > STEADY,
        load: watch::take(),
        checks,
        samples: Samples {
            wrapper: samples[WRAPPER].clone(),
            floor: samples[FLOOR].clone(),
            floor_again: samples[FLOOR_AGAIN].clone(),
            target: samples[TARGET].clone(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sized_as_a_user_would() {
        let options = Options { rows: vec![], rounds: 9, repeat: 400_000, capacity: None };
        let capacity = |sessions| {
            let spec = RowSpec { sessions, .."xdp v4 udp established 1".parse().unwrap() };
            super::capacity(&spec, &options)
        };
        assert_eq!([1, 10_000, 100_000, 1_000_000].map(capacity), [65_536, 65_536, 262_144, 1_048_576]);
    }
}
