//! Suite `nat`: what translation costs a packet, and the same job done by nftables.

mod families;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::generator::endpoints::Endpoints;
use crate::generator::harness::{Hook, Target, order};
use crate::generator::packets::{Direction, Family, Protocol, Template, Tuple};
use crate::generator::site::Site;
use crate::method::affinity::{bench_cpu, pin};
use crate::method::findings::Findings;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::bed::{Bed, flow_tuple};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::gateway::{Action, Mode, Tally, configuration, translating_configuration};
use crate::testbed::iperf::{Bulk, Length, Transfer};
use crate::testbed::ledger::Ledger;
use crate::testbed::trial::{Device, Sink, Stand};
use crate::testbed::verify::{self, Accounts, Fate, Masquerade};

/// What `sluice bench nat` runs.
pub const SUITE: Suite = Suite {
    name: "nat",
    help: "Source NAT: a packet with it over one without, live frames and iperf3 beside nftables masquerade",
    says: "What source NAT to the interface's address adds to a packet of 10,000 sessions and to a first packet, with \
        the same packets and the same rounds as without it; then the same job beside nftables masquerade: 64-byte frames \
        of 10,000 flows through native XDP into an XDP sink, and iperf3 through tc. Rows `answers` are the way back. For \
        NAT64 both directions take turns, beside the mean of IPv4 and IPv6 without translation; its new sessions are a first \
        packet and its answer.",
    silent: &[
        "Generator, gateway and XDP sink share one core: ratios of the gateways alone are larger.",
        "With iperf3 the end hosts share the CPUs with the gateway and are the bottleneck.",
    ],
    run: suite,
};

const HOOKS: [Hook; 2] = [Hook::Xdp, Hook::Tc];
const SESSIONS: usize = 10_000;
const CAPACITY: u32 = 1 << 16;
const FRAME_BYTES: usize = 60;
const MASQUERADE: &str = "nftables stateful and masquerade";

const WRAPPER: usize = 0;
const PLAIN: usize = 1;
/// The same once more, with tables of its own (A/A).
const PLAIN_AGAIN: usize = 3;
const CONTESTANTS: usize = 4;

/// Which packets of the sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Requests,
    Answers,
    First,
}

/// Packets by prog-run.
struct Row {
    hook: Hook,
    family: Family,
    which: Which,
}

impl Row {
    fn name(&self) -> String {
        let (kind, back) = match self.which {
            Which::Requests => ("established", ""),
            Which::Answers => ("established", " answers"),
            Which::First => ("new", ""),
        };
        format!("{:?} {:?} udp {kind} {SESSIONS}{back}", self.hook, self.family).to_lowercase()
    }
}

/// Of one family, in the order in which they are measured.
fn rows(family: Family) -> Vec<Row> {
    let kinds = [Which::First, Which::Requests, Which::Answers];
    let of_hook = |hook| kinds.map(|which| Row { hook, family, which });
    HOOKS.into_iter().flat_map(of_hook).collect()
}

/// A gateway without translation, one with it, and the first once more. All their rows have the same sessions.
fn gateways(site: &Site, family: Family) -> Result<Vec<Bed>> {
    let mode: Mode = HOOKS[0].into();
    let plain = configuration(mode, Action::Permit);
    let texts = [plain.clone(), translating_configuration(mode), plain];
    texts.iter().map(|text| Bed::with(site, text, &HOOKS, family, Protocol::Udp, CAPACITY)).collect()
}

/// One family's rows, each with a figure or what went wrong; on a thread inside the gateways' namespace.
fn packets(site: &Site, family: Family, rows: &[Row], context: &Context) -> Result<Figures> {
    pin(bench_cpu())?;
    let mut beds = gateways(site, family)?;
    let one = |row: &Row| {
        context.progress.at(if family == Family::V4 { 0.0 } else { 0.2 }, &row.name());
        (row.name(), figure(&mut beds, row, context))
    };
    Ok(rows.iter().map(one).collect())
}

fn figure(beds: &mut [Bed], row: &Row, context: &Context) -> Result<Figure> {
    for bed in &mut *beds {
        prepare(bed, row)?;
    }
    let repeat = if row.which == Which::First { SESSIONS as u32 } else { context.pick(200_000, 400_000) };
    let samples = interleave(CONTESTANTS, context.rounds, |contestant, _| {
        let bed = &mut beds[contestant.max(PLAIN) - 1];
        let ns = one(bed, row, contestant, repeat)?;
        if row.which == Which::First && contestant != WRAPPER {
            bed.close(0, SESSIONS)?;
        }
        Ok(ns)
    })?;
    let off =
        |raw: &[f64]| raw.iter().zip(&samples[WRAPPER]).map(|(raw, empty)| raw - empty).collect::<Vec<f64>>();
    let figure = Figure::new(row.name(), "ns/packet", Better::Lower, off(&samples[PLAIN + 1]));
    let floor = off(&samples[PLAIN]);
    let figure = figure.against("the same without translation", &floor);
    let mut figure = figure.same(&floor, &off(&samples[PLAIN_AGAIN]));
    let outside = outside(row.family);
    for (bed, outside) in beds.iter_mut().zip([None, Some(outside), None]) {
        figure.checks.extend(prove(bed, row, outside)?);
    }
    Ok(figure)
}

/// The gateway's own address towards the servers.
fn outside(family: Family) -> IpAddr {
    match family {
        Family::V4 => [198, 51, 100, 1].into(),
        Family::V6 => [0xfd00, 2, 0, 0, 0, 0, 0, 1].into(),
    }
}

/// Only the sessions that the row needs, and its packets in the ring, whatever the row before left.
fn prepare(bed: &mut Bed, row: &Row) -> Result<()> {
    bed.sluice.close_all()?;
    bed.ingress = bed.lan.ifindex;
    if row.which != Which::First {
        bed.pass(row.hook, 0, 0, SESSIONS, Direction::Initiator)?;
    }
    if row.which == Which::Answers {
        bed.ingress = bed.wan.ifindex;
    }
    aim(bed, row)?;
    bed.aim_at_root(row.hook)?;
    let ingress = bed.ingress;
    if row.which == Which::Answers {
        // the first packet of a direction takes the slow path
        bed.harness(row.hook).run(SESSIONS as u32, ingress)?;
    }
    bed.ledger = Ledger::of_ring(SESSIONS as u32);
    Ok(())
}

/// The ring begins anew with the packets of the row.
fn aim(bed: &mut Bed, row: &Row) -> Result<()> {
    if row.which != Which::Answers {
        return bed.harness(row.hook).set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Initiator);
    }
    let answers = order(0, SESSIONS, Direction::Responder)
        .iter()
        .map(|(session, _)| answer(bed, *session))
        .collect::<Result<Vec<_>>>()?;
    let template = Template::new(row.family, Protocol::Udp, bed.wan.mac, bed.wan.host_mac, 0);
    bed.harness(row.hook).set_endpoints(template, &answers)
}

/// Whom a session's answer comes from and whom it is for, seen from outside.
fn answer(bed: &Bed, session: usize) -> Result<Endpoints> {
    let tuple = flow_tuple(Tuple::of_session(session), bed.family, bed.protocol);
    let found = bed.sluice.dataplane.find_session(&tuple)?;
    let back = found.with_context(|| format!("session {session} has vanished"))?.responder.tuple;
    Ok(Endpoints { from: (back.source, back.source_port), to: (back.destination, back.destination_port) })
}

fn one(bed: &mut Bed, row: &Row, contestant: usize, repeat: u32) -> Result<f64> {
    let ingress = bed.ingress;
    aim(bed, row)?;
    if contestant == WRAPPER {
        let harness = bed.harness(row.hook);
        harness.set_target(Target::Own("empty"))?;
        return Ok(harness.run(repeat, ingress)?.ns);
    }
    let before = Tally::read(&bed.sluice.dataplane)?;
    bed.aim_at_root(row.hook)?;
    bed.ledger.record(0, repeat.into());
    let sample = bed.harness(row.hook).run(repeat, ingress)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    expected(tally, row, repeat.into()).with_context(|| bed.reasons().unwrap_or_default())?;
    Ok(sample.ns)
}

fn expected(tally: Tally, row: &Row, packets: u64) -> Result<()> {
    let slow = if row.which == Which::First { packets } else { 0 };
    let right = tally.redirected == packets && tally.slow == slow && tally.sessions == slow;
    ensure!(right, "{packets} packets gave {tally:?}");
    Ok(())
}

/// Every session's packet once more, one by one, and what the sessions have counted.
fn prove(bed: &mut Bed, row: &Row, outside: Option<IpAddr>) -> Result<Vec<Check>> {
    aim(bed, row)?;
    let mut fate = match (outside, row.which) {
        (None, _) => Fate::Forwarded,
        (Some(_), Which::Answers) => Fate::Known(home(bed)?),
        (Some(outside), _) => Fate::Translated(Masquerade::behind(outside)),
    };
    let reply = row.which == Which::Answers;
    let entries: Vec<_> = order(0, SESSIONS, Direction::Initiator).iter().map(|(n, _)| (*n, reply)).collect();
    let accounts = match row.which {
        Which::First => None,
        _ => Some(Accounts::open(bed, &entries)?),
    };
    let fits = |tally: Tally| expected(tally, row, SESSIONS as u64);
    bed.ledger = Ledger::of_ring(SESSIONS as u32);
    let mut checks = vec![verify::output(bed, row.hook, SESSIONS, &mut fate, fits)?];
    if let Some(accounts) = accounts {
        let ip_len = bed.harness(row.hook).ip_len();
        checks.push(accounts.check(bed, ip_len)?);
    }
    if let Fate::Translated(masquerade) = &fate {
        checks.push(recorded(bed, masquerade)?);
    }
    Ok(checks)
}

/// Where answers must go: to the clients' own addresses and ports.
fn home(bed: &Bed) -> Result<HashMap<Endpoints, Endpoints>> {
    let pair = |session: usize| {
        let came = answer(bed, session)?;
        let tuple = flow_tuple(Tuple::of_session(session), bed.family, bed.protocol);
        Ok((came, Endpoints { to: (tuple.source, tuple.source_port), ..came }))
    };
    (0..SESSIONS).map(pair).collect()
}

/// What left is what the sessions say: their answers are for the port that their requests came from.
fn recorded(bed: &Bed, masquerade: &Masquerade) -> Result<Check> {
    let mut findings = Findings::default();
    for session in 0..SESSIONS {
        let tuple = flow_tuple(Tuple::of_session(session), bed.family, bed.protocol);
        let came = Endpoints {
            from: (tuple.source, tuple.source_port),
            to: (tuple.destination, tuple.destination_port),
        };
        let (seen, wanted) = (answer(bed, session)?.to.1, masquerade.port(&came));
        let complain =
            || format!("session {session} expects answers at {seen}, and was sent from {wanted:?}");
        findings.note(if Some(seen) == wanted { Ok(()) } else { Err(complain()) });
    }
    Ok(findings.check("answers are expected where requests left", "sessions"))
}

fn live(context: &Context) -> Result<Figure> {
    let length = context.pick(Duration::from_millis(400), Duration::from_secs(1));
    let stand = |forwarder| Stand::new(Device::Through(forwarder, Sink::Xdp), FRAME_BYTES);
    let mut stands =
        [stand(Forwarder::XdpNat)?, stand(Forwarder::Masquerade)?, stand(Forwarder::Masquerade)?];
    let samples = interleave(stands.len(), context.rounds, |i, _| {
        let outcome = stands[i].trial(None, length)?;
        Ok(outcome.received as f64 / outcome.seconds / 1e6)
    })?;
    let figure = Figure::new(LIVE, "Mpps", Better::Higher, samples[0].clone());
    Ok(figure.against(MASQUERADE, &samples[1]).same(&samples[1], &samples[2]).headline())
}

const LIVE: &str = "64-byte frames into an XDP sink";

fn bulk(context: &Context, streams: u32) -> Result<Figure> {
    let lanes =
        [Bulk::new(Forwarder::TcNat)?, Bulk::new(Forwarder::Masquerade)?, Bulk::new(Forwarder::Masquerade)?];
    let transfer = Transfer { streams, length: Length::Seconds(1.0), reverse: true };
    let samples = interleave(lanes.len(), context.rounds, |i, _| Ok(lanes[i].measure(transfer)?.gbps))?;
    let errors = lanes[0].lane.checksum_errors()?;
    let figure = Figure::new(bulk_name(streams), "Gb/s", Better::Higher, samples[0].clone());
    let check = Check::new("checksums hold", errors == 0, format!("TcpInCsumErrors {errors}"));
    Ok(figure.against(MASQUERADE, &samples[1]).same(&samples[1], &samples[2]).check(check))
}

fn bulk_name(streams: u32) -> String {
    format!("iperf3 through tc, {streams} {}", if streams == 1 { "stream" } else { "streams" })
}

type Figures = Vec<(String, Result<Figure>)>;

/// Takes what rows give that share gateways, on a thread inside these gateways' namespace.
fn on_site<Row>(
    rows: &[Row],
    take: &mut impl FnMut(&str, Result<Figure>),
    measure: impl FnOnce(&Site) -> Result<Figures> + Send,
) {
    if rows.is_empty() {
        return;
    }
    let figures = Site::create("nat").and_then(|site| site.gateway.enter(|| measure(&site))?);
    match figures {
        Ok(figures) => figures.into_iter().for_each(|(name, figure)| take(&name, figure)),
        Err(error) => take("gateways with NAT", Err(error)),
    }
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let mut take = |name: &str, figure: Result<Figure>| match figure.with_context(|| name.to_owned()) {
        Ok(figure) => result.figures.push(figure),
        Err(error) => result.errors.push(format!("{error:#}")),
    };
    for family in [Family::V4, Family::V6] {
        let rows: Vec<Row> = rows(family).into_iter().filter(|row| context.wants(&row.name())).collect();
        on_site(&rows, &mut take, |site| packets(site, family, &rows, context));
    }
    let rows: Vec<families::Row> =
        families::ROWS.into_iter().filter(|row| context.wants(&row.name())).collect();
    on_site(&rows, &mut take, |site| families::packets(site, &rows, context));
    if context.wants(LIVE) {
        context.progress.at(0.5, LIVE);
        take(LIVE, live(context));
    }
    for (streams, done) in [(1, 0.7), (4, 0.85)] {
        if context.wants(&bulk_name(streams)) {
            context.progress.at(done, &bulk_name(streams));
            take(&bulk_name(streams), bulk(context, streams));
        }
    }
    Ok(result)
}
