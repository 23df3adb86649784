//! Suite `nat`: what translation costs a packet, and the same job done by nftables.

mod families;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::bed::Bed;
use crate::gateway::{Action, Mode, Site, Tally, configuration, translating_configuration};
use crate::harness::{Hook, Target};
use crate::iperf::{Bulk, Transfer};
use crate::packets::{Direction, Family, Protocol};
use crate::result::{Better, Check, Figure, SuiteResult};
use crate::rounds::{bench_cpu, interleave, pin};
use crate::suites::{Context, Suite};
use crate::trial::{Device, Sink, Stand};
use crate::way::Way;

pub const SUITE: Suite = Suite {
    name: "nat",
    help: "Source NAT: a packet with it over one without, live frames and iperf3 beside nftables masquerade",
    says: "What source NAT to the interface's address adds to a packet of 10,000 sessions and to a first packet, with \
        the same packets and the same rounds as without it; then the same job beside nftables masquerade: 64-byte frames \
        of 10,000 flows through native XDP into an XDP sink, and iperf3 through tc. For NAT64 both directions take turns, \
        beside the mean of IPv4 and IPv6 without translation.",
    silent: &[
        "By prog-run only the initiator's direction is measured; the other does the same to the destination.",
        "Generator, gateway and XDP sink share one core: ratios of the gateways alone are larger.",
        "With iperf3 the end hosts share the CPUs with the gateway and are the bottleneck.",
    ],
    run: suite,
};

const SESSIONS: usize = 10_000;
const CAPACITY: u32 = 1 << 16;
const FRAME_BYTES: usize = 60;
const MASQUERADE: &str = "nftables stateful and masquerade";

const WRAPPER: usize = 0;
const PLAIN: usize = 1;
/// The same once more, with tables of its own (A/A).
const PLAIN_AGAIN: usize = 3;
const CONTESTANTS: usize = 4;

/// Packets by prog-run.
struct Row {
    hook: Hook,
    family: Family,
    new: bool,
}

impl Row {
    fn name(&self) -> String {
        let kind = if self.new { "new" } else { "established" };
        format!("{:?} {:?} udp {kind} {SESSIONS}", self.hook, self.family).to_lowercase()
    }
}

const ROWS: [Row; 6] = [
    Row { hook: Hook::Xdp, family: Family::V4, new: false },
    Row { hook: Hook::Xdp, family: Family::V6, new: false },
    Row { hook: Hook::Tc, family: Family::V4, new: false },
    Row { hook: Hook::Tc, family: Family::V6, new: false },
    Row { hook: Hook::Xdp, family: Family::V4, new: true },
    Row { hook: Hook::Tc, family: Family::V4, new: true },
];

/// All gateways have the same sessions; on a thread inside their namespace.
fn packets(site: &Site, row: &Row, context: &Context) -> Result<Figure> {
    pin(bench_cpu())?;
    let mode: Mode = row.hook.into();
    let plain = configuration(mode, Action::Permit);
    let texts = [plain.clone(), translating_configuration(mode), plain];
    let bed = |text: &String| Bed::with(site, text, &[row.hook], row.family, Protocol::Udp, CAPACITY);
    let mut beds = texts.iter().map(bed).collect::<Result<Vec<_>>>()?;
    if !row.new {
        for bed in &mut beds {
            bed.pass(row.hook, None, 0, 0, SESSIONS, Direction::Initiator)?;
        }
    }
    let repeat = if row.new { SESSIONS as u32 } else { context.pick(200_000, 400_000) };
    let samples = interleave(CONTESTANTS, context.rounds, |contestant, _| {
        let bed = &mut beds[contestant.max(PLAIN) - 1];
        let ns = one(bed, row, contestant, repeat)?;
        if row.new && contestant != WRAPPER {
            bed.close(0, SESSIONS)?;
        }
        Ok(ns)
    })?;
    let off =
        |raw: &[f64]| raw.iter().zip(&samples[WRAPPER]).map(|(raw, empty)| raw - empty).collect::<Vec<f64>>();
    let figure = Figure::new(row.name(), "ns/packet", Better::Lower, off(&samples[PLAIN + 1]));
    let floor = off(&samples[PLAIN]);
    Ok(figure.against("the same without translation", &floor).same(&floor, &off(&samples[PLAIN_AGAIN])))
}

fn one(bed: &mut Bed, row: &Row, contestant: usize, repeat: u32) -> Result<f64> {
    let ingress = bed.ingress;
    let root = bed.root(row.hook).try_clone()?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let harness = bed.harness(row.hook);
    harness.set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Initiator)?;
    if contestant == WRAPPER {
        harness.set_target(Target::Own("empty"))?;
        return Ok(harness.run(repeat, ingress)?.ns);
    }
    use std::os::fd::AsFd as _;
    harness.set_target(Target::Foreign(root.as_fd()))?;
    let sample = harness.run(repeat, ingress)?;
    let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
    let slow = if row.new { u64::from(repeat) } else { 0 };
    ensure!(
        tally.redirected == u64::from(repeat) && tally.slow == slow && tally.sessions == slow,
        "{repeat} packets gave {tally:?}; {}",
        bed.reasons()?
    );
    Ok(sample.ns)
}

fn live(context: &Context) -> Result<Figure> {
    let length = context.pick(Duration::from_millis(400), Duration::from_secs(2));
    let stand = |way| Stand::new(Device::Through(way, Sink::Xdp), FRAME_BYTES);
    let mut stands = [stand(Way::XdpNat)?, stand(Way::Masquerade)?, stand(Way::Masquerade)?];
    let samples = interleave(stands.len(), context.rounds, |i, _| {
        let outcome = stands[i].trial(None, length)?;
        Ok(outcome.received as f64 / outcome.seconds / 1e6)
    })?;
    let figure = Figure::new(LIVE, "Mpps", Better::Higher, samples[0].clone());
    Ok(figure.against(MASQUERADE, &samples[1]).same(&samples[1], &samples[2]).headline())
}

const LIVE: &str = "64-byte frames into an XDP sink";

fn bulk(context: &Context, streams: u32) -> Result<Figure> {
    let lanes = [Bulk::new(Way::TcNat)?, Bulk::new(Way::Masquerade)?, Bulk::new(Way::Masquerade)?];
    let transfer = Transfer { streams, seconds: context.pick(1.0, 2.0), reverse: true };
    let samples = interleave(lanes.len(), context.rounds, |i, _| Ok(lanes[i].measure(transfer)?.gbps))?;
    let errors = lanes[0].lane.checksum_errors()?;
    let figure = Figure::new(bulk_name(streams), "Gb/s", Better::Higher, samples[0].clone());
    let check = Check::new("checksums hold", errors == 0, format!("TcpInCsumErrors {errors}"));
    Ok(figure.against(MASQUERADE, &samples[1]).same(&samples[1], &samples[2]).check(check))
}

fn bulk_name(streams: u32) -> String {
    format!("iperf3 through tc, {streams} {}", if streams == 1 { "stream" } else { "streams" })
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let mut take = |name: &str, figure: Result<Figure>| match figure.with_context(|| name.to_owned()) {
        Ok(figure) => result.figures.push(figure),
        Err(error) => result.errors.push(format!("{error:#}")),
    };
    let rows: Vec<&Row> = ROWS.iter().filter(|row| context.wants(&row.name())).collect();
    for (done, row) in rows.iter().enumerate() {
        context.progress.at(0.5 * done as f64 / rows.len() as f64, &row.name());
        let figure =
            Site::create("nat").and_then(|site| site.gateway.enter(|| packets(&site, row, context))?);
        take(&row.name(), figure);
    }
    for hook in [Hook::Xdp, Hook::Tc] {
        let name = families::name(hook);
        if context.wants(&name) {
            context.progress.at(0.45, &name);
            let figure = Site::create("nat64")
                .and_then(|site| site.gateway.enter(|| families::established(&site, hook, context))?);
            take(&name, figure);
        }
    }
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
