//! Suite `gtpu`: what it costs to take packets out of GTP-U tunnels, and to put them into some.

mod joined;

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::Sizes;
use sluice_dataplane::abi::GtpuRules;

use crate::generator::harness::Hook;
use crate::generator::layouts::{GTPU_INNER, GTPU_UPLINK_LEN};
use crate::generator::site::{LAN, Site, WAN};
use crate::generator::tunnels::{Ends, SERVER_PORT, Tunnels, Way};
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::forwarder::Forwarder;
use crate::testbed::gateway::{Sluice, Tally};
use crate::testbed::trial::{Device, Sink, Stand};
use crate::testbed::user_plane::{FLOWS, MOST_WITH_FLOWS, Subscribers, Surroundings, configuration, prepare};

/// What `sluice bench gtpu` runs.
pub const SUITE: Suite = Suite {
    name: "gtpu",
    help: "Nanoseconds a packet into and out of GTP-U tunnels, beside the floor, in interleaved rounds",
    says: "What a packet of a subscriber costs in Sluice's programs, from the root program to the redirect: uplink out of \
        its tunnel, downlink into it, each with session, usage, zones, policy and flow, one flow a subscriber. The floor \
        knows every session by one read of an array, changes the headers and redirects. Usage: the floor with \
        the gateway's statements that count, less itself without. Joined: uplink through a thousand \
        policies and source NAT, beside what the floor may be exceeded by alone and one established flow, which passes the \
        same gateway in no tunnel. On veth, live frames out of 10,000 tunnels beside a program that changes the addresses of \
        the link and redirects. Spread: the same with flows shared out to all CPUs, beside all on the one where they arrive.",
    silent: &[
        "But for the row on veth, driver and device are not in it, and the packet is always in the first-level cache.",
        "On veth generator, gateway and sink share one core: a ratio of the gateways alone is lower.",
        "Spread on a machine with two CPUs: the one that takes all packets makes them, too.",
        "The floor looks at nothing but TEID or address: it finds no forged source and counts nothing.",
    ],
    run: suite,
};

#[derive(Debug, Clone, Copy)]
struct Row {
    way: Way,
    sessions: u32,
    /// What of its sessions' rules is measured; else all of a packet.
    part: Option<Part>,
}

/// What is measured alone, as the difference to rules without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A maximum bit rate that no packet exceeds, besides reading the clock.
    Policer,
    /// 16 flows, of which every packet belongs to one: protocol, prefix and ports are looked at, and its usage is counted.
    Filters,
    /// Counting usage, which the gateway never leaves out: the floor does it by the gateway's statements, or does not.
    Usage,
}

impl Row {
    fn name(&self) -> String {
        let part = match self.part {
            None => "",
            Some(Part::Policer) => " policer",
            Some(Part::Filters) => " 16 filters",
            Some(Part::Usage) => " usage",
        };
        format!("xdp {} {}{part}", self.way.word(), self.sessions)
    }
}

/// Sessions that parts are measured with.
const MIDDLE: u32 = MOST_WITH_FLOWS;

fn rows() -> Vec<Row> {
    let plain = [1, MIDDLE, 1_000_000].map(|sessions| (sessions, None));
    let ways = [Way::Uplink, Way::Downlink];
    let parts = [Part::Policer, Part::Filters].map(|part| (MIDDLE, Some(part)));
    let both = plain.into_iter().chain(parts);
    let both = both.flat_map(|(sessions, part)| ways.map(|way| Row { way, sessions, part }));
    both.chain([Row { way: Way::Uplink, sessions: MIDDLE, part: Some(Part::Usage) }]).collect()
}

/// The gateway, its sessions, and what sends their packets.
struct Scene {
    sluice: Sluice,
    tunnels: Tunnels,
    sessions: u32,
    subscribers: Subscribers,
}

impl Scene {
    fn start(site: &Site, sessions: u32, surroundings: Surroundings) -> Result<Scene> {
        let ends = Ends { ran: site.lan, internet: site.wan };
        let flows = (2 * sessions).next_power_of_two().max(65_536);
        let sizes = Sizes { sessions4: flows, sessions6: 1024, ..Sizes::default() };
        let text = configuration(sessions.max(1000), surroundings);
        let sluice = Sluice::start_with(site, &text, sizes, false)?;
        let subscribers = Subscribers::add(&sluice, site, sessions)?;
        Ok(Scene { sluice, tunnels: Tunnels::load(ends, sessions)?, sessions, subscribers })
    }

    fn rules(&self, part: Option<Part>) -> Result<GtpuRules> {
        let plain = self.subscribers.plain();
        Ok(match part {
            None | Some(Part::Usage) => plain,
            Some(Part::Policer) => self.subscribers.policed(),
            Some(Part::Filters) => {
                self.subscribers.with_flows(&self.sluice, plain, SERVER_PORT..=SERVER_PORT)?
            }
        })
    }

    /// Every session has these rules from now on.
    fn give(&self, part: Option<Part>) -> Result<()> {
        self.subscribers.give(&self.sluice, &self.rules(part)?, None)
    }

    fn aim_at_sluice(&self, way: Way) -> Result<()> {
        let device = if way == Way::Downlink { WAN } else { LAN };
        let attachment = self.sluice.plan.attachments.iter().find(|one| one.device == device);
        let variant = attachment.context("a device is not attached")?.variant;
        let root = self.sluice.dataplane.root_program(sluice_dataplane::ObjectKind::Xdp, variant)?;
        self.tunnels.aim_at(root.as_fd())
    }

    /// Packets of every flow, so that none of these ways has a first one afterwards.
    fn open(&mut self, ways: &[Way]) -> Result<()> {
        for way in ways.iter().copied() {
            self.tunnels.set_packets(way, self.sessions)?;
            self.aim_at_sluice(way)?;
            let before = Tally::read(&self.sluice.dataplane)?;
            self.tunnels.run(self.sessions)?;
            let tally = Tally::read(&self.sluice.dataplane)?.since(before);
            ensure!(
                tally.redirected == u64::from(self.sessions),
                "of {} first packets {} the data plane counted {tally:?}",
                self.sessions,
                way.word()
            );
        }
        Ok(())
    }

    /// Nanoseconds a packet; every one of them must have passed by the short path.
    fn measure(&mut self, way: Way, repeat: u32) -> Result<f64> {
        self.aim_at_sluice(way)?;
        let before = Tally::read(&self.sluice.dataplane)?;
        let (ns, returned) = self.tunnels.run(repeat)?;
        let tally = Tally::read(&self.sluice.dataplane)?.since(before);
        let all = tally.redirected == u64::from(repeat) && tally.slow <= u64::from(repeat) / 1000;
        ensure!(all && tally.dropped == 0, "of {repeat} packets the data plane counted {tally:?}");
        ensure!(returned == Hook::Xdp.redirected(), "the last packet returned {returned}");
        Ok(ns)
    }

    fn own(&mut self, name: &str, repeat: u32) -> Result<f64> {
        self.tunnels.aim(name)?;
        Ok(self.tunnels.run(repeat)?.0)
    }

    fn figure(&mut self, row: &Row, context: &Context) -> Result<Figure> {
        self.tunnels.set_packets(row.way, self.sessions)?;
        let repeat = context.pick(200_000, 400_000);
        let figure = match row.part {
            Some(Part::Policer) => self.policer(row, repeat, context)?,
            Some(Part::Filters) => self.filters(row, repeat, context)?,
            Some(Part::Usage) => return self.counting(row, repeat, context),
            None => self.tunnel(row, repeat, context)?,
        };
        self.aim_at_sluice(row.way)?;
        let proven = 100.min(self.sessions);
        self.tunnels.prove(proven, None)?;
        let usage = self.usage(row, proven + repeat * context.rounds as u32)?;
        Ok(figure
            .check(Check::new("packets as they must be", true, format!("{proven} looked at byte by byte")))
            .check(usage)
            .check(checks::distinct(self.tunnels.distinct_packets().into(), self.sessions.into())))
    }

    fn tunnel(&mut self, row: &Row, repeat: u32, context: &Context) -> Result<Figure> {
        let samples = interleave(5, context.rounds, |contestant, _| match contestant {
            0 => self.own("empty", repeat),
            1 => self.own("resize", repeat),
            2 | 4 => self.own("floor", repeat),
            _ => self.measure(row.way, repeat),
        })?;
        // half of what `resize` costs more is what the wrapper does to restore the frame
        let both = samples[0].iter().zip(&samples[1]);
        let wrapper: Vec<f64> = both.map(|(empty, twice)| (empty + twice) / 2.0).collect();
        let net = |at: usize| differences(&samples[at], &wrapper);
        let figure = Figure::new(row.name(), "ns/packet", Better::Lower, net(3));
        Ok(figure.against("adjust-head + one ARRAY lookup + redirect", &net(2)).same(&net(2), &net(4)))
    }

    fn policer(&mut self, row: &Row, repeat: u32, context: &Context) -> Result<Figure> {
        let samples = interleave(4, context.rounds, |contestant, _| match contestant {
            0 => self.own("empty", repeat),
            1 => self.own("clock", repeat),
            _ => {
                self.give((contestant == 3).then_some(Part::Policer))?;
                // the lines are another CPU's until a packet has read them
                self.measure(row.way, self.sessions)?;
                self.measure(row.way, repeat)
            }
        })?;
        self.give(None)?;
        let clock = differences(&samples[1], &samples[0]);
        let policed = differences(&samples[3], &samples[2]);
        Ok(Figure::new(row.name(), "ns/packet", Better::Lower, differences(&policed, &clock)))
    }

    fn filters(&mut self, row: &Row, repeat: u32, context: &Context) -> Result<Figure> {
        let samples = interleave(2, context.rounds, |contestant, _| {
            self.give((contestant == 1).then_some(Part::Filters))?;
            self.measure(row.way, self.sessions)?;
            let ns = self.measure(row.way, repeat)?;
            if contestant == 1 {
                self.all_are_of_flows()?;
            }
            Ok(ns)
        })?;
        self.give(None)?;
        let cost = differences(&samples[1], &samples[0]);
        Ok(Figure::new(row.name(), "ns/packet", Better::Lower, cost))
    }

    fn counting(&mut self, row: &Row, repeat: u32, context: &Context) -> Result<Figure> {
        let before = self.tunnels.counted();
        let names = ["uncounted", "counted"];
        let samples = interleave(2, context.rounds, |contestant, _| self.own(names[contestant], repeat))?;
        let (counted, sent) = (self.tunnels.counted() - before, u64::from(repeat) * context.rounds as u64);
        let told = format!("{counted} packets counted, {sent} sent");
        Ok(Figure::new(row.name(), "ns/packet", Better::Lower, differences(&samples[1], &samples[0]))
            .check(Check::new("usage counted", counted == sent, told))
            .check(checks::distinct(self.tunnels.distinct_packets().into(), self.sessions.into())))
    }

    /// Every packet since its session has flows was one of them.
    fn all_are_of_flows(&self) -> Result<()> {
        let records = self.subscribers.records(&self.sluice)?;
        let bytes = records.iter().flat_map(|record| &record.flows).flat_map(|flow| flow.bytes);
        let met: HashSet<usize> = records
            .iter()
            .filter_map(|record| record.flows.iter().position(|flow| flow.bytes != [0; 2]))
            .collect();
        ensure!(
            bytes.sum::<u64>() >= u64::from(self.sessions) * u64::from(GTPU_INNER)
                && met.len() == FLOWS as usize,
            "packets are of {} flows, not of {FLOWS}",
            met.len()
        );
        Ok(())
    }

    /// What the sessions have counted must be what was sent, at least.
    fn usage(&self, row: &Row, sent: u32) -> Result<Check> {
        let counted = self.subscribers.counted(&self.sluice, row.way)?;
        let told = format!(
            "{counted} packets counted by {} sessions, {sent} and those that opened flows sent",
            self.sessions
        );
        Ok(Check::new("usage counted", counted >= sent.into(), told))
    }
}

fn differences(from: &[f64], less: &[f64]) -> Vec<f64> {
    from.iter().zip(less).map(|(from, less)| from - less).collect()
}

fn suite(context: &Context) -> Result<SuiteResult> {
    let mut result = SuiteResult::new(SUITE.name);
    let rows: Vec<Row> = rows().into_iter().filter(|row| context.wants(&row.name())).collect();
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.sessions).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut done = 0.0;
    for sessions in sizes {
        let of_this: Vec<Row> = rows.iter().copied().filter(|row| row.sessions == sessions).collect();
        let mut figures = vec![];
        let measured = on_site(
            &of_this,
            &mut figures,
            |row| {
                context.progress.at(done / rows.len() as f64, &row.name());
                done += 1.0;
            },
            context,
        );
        if let Err(error) = measured {
            result.errors.push(format!("{sessions} sessions: {error:#}"));
        }
        result.figures.extend(figures);
    }
    let alone: [(&str, Measure); 3] = [(joined::NAME, joined::figure), (VETH, on_veth), (SPREAD, spread)];
    for (name, measure) in alone.into_iter().filter(|(name, _)| context.wants(name)) {
        context.progress.at(0.95, name);
        match measure(context) {
            Ok(figure) => result.figures.push(figure),
            Err(error) => result.errors.push(format!("{name}: {error:#}")),
        }
    }
    Ok(result)
}

/// A row with gateways of its own.
type Measure = fn(&Context) -> Result<Figure>;

const VETH: &str = "veth uplink 10000";
const SPREAD: &str = "veth uplink 10000 spread";

fn on_veth(context: &Context) -> Result<Figure> {
    on_stands(context, VETH, (Forwarder::Gtpu, Forwarder::Redirect, "minimal redirect"))
}

fn spread(context: &Context) -> Result<Figure> {
    on_stands(context, SPREAD, (Forwarder::GtpuSpread, Forwarder::Gtpu, "all on the CPU where they arrive"))
}

/// Live frames of the same length as the rows', each stand with a site of its own.
fn on_stands(
    context: &Context,
    name: &str,
    (own, floor, what): (Forwarder, Forwarder, &str),
) -> Result<Figure> {
    let length = context.pick(Duration::from_millis(400), Duration::from_secs(1));
    let stand = |forwarder| Stand::new(Device::Through(forwarder, Sink::Xdp), GTPU_UPLINK_LEN as usize);
    let mut stands = [stand(own)?, stand(floor)?, stand(floor)?];
    let samples = interleave(stands.len(), context.rounds, |i, _| {
        let outcome = stands[i].trial_counted(length)?;
        Ok(outcome.received as f64 / outcome.seconds / 1e6)
    })?;
    let mode = stands[0].mode_check()?;
    let figure = Figure::new(name, "Mpps", Better::Higher, samples[0].clone());
    Ok(figure.against(what, &samples[1]).same(&samples[1], &samples[2]).check(mode))
}

/// Rows of one number of sessions.
fn on_site(
    rows: &[Row],
    figures: &mut Vec<Figure>,
    mut begins: impl FnMut(&Row) + Send,
    context: &Context,
) -> Result<()> {
    let mut site = Site::create("gtpu")?;
    prepare(&mut site)?;
    site.gateway.enter(|| {
        pin(bench_cpu())?;
        let mut scene = Scene::start(&site, rows[0].sessions, Surroundings::Bare)?;
        scene.open(&[Way::Uplink, Way::Downlink, Way::Uplink])?;
        for row in rows {
            begins(row);
            figures.push(scene.figure(row, context).with_context(|| format!("row `{}`", row.name()))?);
        }
        Ok(())
    })?
}
