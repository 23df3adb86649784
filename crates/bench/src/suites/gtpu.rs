//! Suite `gtpu`: what it costs to take packets out of GTP-U tunnels, and to put them into some.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result, anyhow, ensure};
use sluice_dataplane::abi::{
    FlowMatch, GTPU_CONTAINER, GtpuFilters, GtpuRules, cost_of_rate, tolerance_of_burst,
};
use sluice_dataplane::{GtpuSession, Peer, Sizes, Tunnel};

use crate::generator::harness::Hook;
use crate::generator::layouts::GTPU_INNER;
use crate::generator::site::{LAN, MOBILE, Site, WAN};
use crate::generator::tunnels::{
    Ends, FIRST_SUBSCRIBER, FIRST_TEID, QFI, SERVER_PORT, TEID_THERE, Tunnels, Way,
};
use crate::method::affinity::{bench_cpu, pin};
use crate::method::checks;
use crate::method::result::{Better, Check, Figure, SuiteResult};
use crate::method::rounds::interleave;
use crate::method::suite::{Context, Suite};
use crate::testbed::gateway::{Sluice, Tally};

pub const SUITE: Suite = Suite {
    name: "gtpu",
    help: "Nanoseconds a packet into and out of GTP-U tunnels, beside the floor, in interleaved rounds",
    says: "What a packet of a subscriber costs in Sluice's programs, from the root program to the redirect: uplink out of \
        its tunnel, downlink into it, each with session, usage, zones, policy and flow, one flow a subscriber. The floor \
        knows every session by one read of an array, changes the headers and redirects.",
    silent: &[
        "Driver and device are not in it, and the packet is always in the first-level cache.",
        "The floor looks at nothing but TEID or address: it finds no forged source and counts nothing.",
    ],
    run: suite,
};

const STATION: [u8; 4] = [192, 0, 2, 100];
const GATEWAY: [u8; 4] = [192, 0, 2, 1];
/// Address of the mobile interface, and all subscribers.
const SUBSCRIBERS: &str = "10.79.255.254/12";

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
}

impl Row {
    fn name(&self) -> String {
        let part = match self.part {
            None => "",
            Some(Part::Policer) => " policer",
            Some(Part::Filters) => " 16 filters",
        };
        format!("xdp {} {}{part}", self.way.word(), self.sessions)
    }
}

/// Sessions that parts are measured with.
const MIDDLE: u32 = 10_000;

fn rows() -> Vec<Row> {
    let plain = [1, MIDDLE, 1_000_000].map(|sessions| (sessions, None));
    let ways = [Way::Uplink, Way::Downlink];
    let parts = [Part::Policer, Part::Filters].map(|part| (MIDDLE, Some(part)));
    let all = plain.into_iter().chain(parts);
    all.flat_map(|(sessions, part)| ways.map(|way| Row { way, sessions, part })).collect()
}

fn configuration(sessions: u32) -> String {
    // so that there is room for flows, which takes 512 bytes a session
    let flows = if sessions > MIDDLE { "" } else { "rules flows { flow all { precedence 1; } }" };
    format!(
        "interfaces {{
             {LAN} {{ mode xdp; unit 0 {{ family inet {{ address 192.0.2.1/24; }} }} }}
             {WAN} {{ mode xdp; unit 0 {{ family inet {{ address 198.51.100.1/24; }} }} }}
             mif {{ unit 0 {{ family inet {{ address {SUBSCRIBERS}; }} }} }}
         }}
         security {{
             flow {{ max-unanswered 100; }}
             zones {{
                 security-zone ran {{ interfaces {{ {LAN}.0; }} }}
                 security-zone subscribers {{ interfaces {{ {MOBILE}; }} }}
                 security-zone internet {{ interfaces {{ {WAN}.0; }} }}
             }}
             policies {{ from-zone subscribers to-zone internet {{ policy all {{
                 match {{ source-address any; destination-address any; application any; }} then {{ permit; }} }} }} }}
         }}
         services {{ gtp-u {{
             sessions-maximum {sessions};
             interface {LAN}.0 {{ role n3; }}
             pool all {{ prefix 10.64.0.0/12; mobile-interface {MOBILE}; }}
             {flows}
         }} }}\n"
    )
}

/// The gateway, its sessions, and what sends their packets.
struct Scene {
    sluice: Sluice,
    tunnels: Tunnels,
    sessions: u32,
    mobile: u32,
    numbers: Vec<u32>,
    tunnel: Tunnel,
}

impl Scene {
    fn start(site: &Site, sessions: u32) -> Result<Scene> {
        let ends = Ends { ran: site.lan, internet: site.wan, station: STATION, gateway: GATEWAY };
        let flows = (2 * sessions).next_power_of_two().max(65_536);
        let sizes = Sizes { sessions4: flows, sessions6: 1024, ..Sizes::default() };
        let sluice = Sluice::start_with(site, &configuration(sessions.max(1000)), sizes, false)?;
        let mobile = site.mobile.first().context("the site has no mobile interface")?.1;
        let peer = Peer {
            local: Ipv4Addr::from(GATEWAY).into(),
            remote: Ipv4Addr::from(STATION).into(),
            ifindex: site.lan.ifindex,
        };
        let tunnel = Tunnel { peer, teid: TEID_THERE };
        let mut scene = Scene {
            sluice,
            tunnels: Tunnels::load(ends, sessions)?,
            sessions,
            mobile,
            numbers: vec![],
            tunnel,
        };
        let gtpu = scene.sluice.dataplane.gtpu()?;
        let rules = scene.rules(None)?;
        scene.numbers = (0..sessions)
            .map(|n| {
                gtpu.add(&GtpuSession {
                    teid: FIRST_TEID + n,
                    address: Some((FIRST_SUBSCRIBER + n).into()),
                    prefix: None,
                    tunnel: Tunnel { teid: TEID_THERE + n, ..tunnel },
                    rules,
                    quota: [None; 2],
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(scene)
    }

    fn rules(&self, part: Option<Part>) -> Result<GtpuRules> {
        let plain =
            GtpuRules { ifindex: self.mobile, flags: GTPU_CONTAINER as u16, qfi: QFI, ..Default::default() };
        Ok(match part {
            None => plain,
            Some(Part::Policer) => {
                let cost = cost_of_rate(40_000_000_000);
                let burst = tolerance_of_burst(1 << 20, cost);
                GtpuRules { cost: [cost; 2], tolerance: [burst; 2], ..plain }
            }
            Some(Part::Filters) => {
                let filters = self.sluice.dataplane.gtpu()?.keep_filters([&*filters(plain)?])?;
                GtpuRules { filters: filters[0], ..plain }
            }
        })
    }

    /// Every session has these rules from now on.
    fn give(&self, part: Option<Part>) -> Result<()> {
        let (gtpu, rules) = (self.sluice.dataplane.gtpu()?, self.rules(part)?);
        for (number, n) in self.numbers.iter().zip(0..) {
            gtpu.change(*number, &Tunnel { teid: TEID_THERE + n, ..self.tunnel }, &rules, [None; 2])?;
        }
        Ok(())
    }

    fn aim_at_sluice(&self, way: Way) -> Result<()> {
        let device = if way == Way::Uplink { LAN } else { WAN };
        let attachment = self.sluice.plan.attachments.iter().find(|one| one.device == device);
        let variant = attachment.context("a device is not attached")?.variant;
        let root = self.sluice.dataplane.root_program(sluice_dataplane::ObjectKind::Xdp, variant)?;
        self.tunnels.aim_at(root.as_fd())
    }

    /// Both packets of every flow, so that neither is a first one afterwards.
    fn open(&mut self) -> Result<()> {
        for way in [Way::Uplink, Way::Downlink, Way::Uplink] {
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
            None => self.tunnel(row, repeat, context)?,
        };
        self.aim_at_sluice(row.way)?;
        let proven = 100.min(self.sessions);
        self.tunnels.prove(proven)?;
        let usage = self.usage(row, proven + repeat * context.rounds as u32)?;
        Ok(figure
            .check(Check::new("packets as they must be", true, format!("{proven} looked at byte by byte")))
            .check(usage)
            .check(checks::distinct(self.sessions.into(), self.sessions.into())))
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

    /// Every packet since its session has flows was one of them.
    fn all_are_of_flows(&self) -> Result<()> {
        let records = self.sluice.dataplane.gtpu()?.list(0, self.sessions as usize);
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
        let records = self.sluice.dataplane.gtpu()?.list(0, self.sessions as usize);
        let counted: u64 = records.iter().map(|record| record.usage.packets[row.way as usize]).sum();
        let told = format!(
            "{counted} packets counted by {} sessions, {sent} and those that opened flows sent",
            records.len()
        );
        Ok(Check::new("usage counted", counted >= sent.into(), told))
    }
}

const FLOWS: u8 = 16;

/// Flows of a sixteenth of the servers each.
fn filters(rules: GtpuRules) -> Result<Box<GtpuFilters>> {
    let flow = |n: u8| {
        let ends = [0, 255].map(|host| Ipv4Addr::new(10, 128, n, host).into());
        let last = SERVER_PORT + u16::from(n);
        let asked = FlowMatch {
            protocol: Some(17),
            remote: vec![(ends[0], ends[1])],
            remote_ports: vec![(SERVER_PORT, last)],
            ..FlowMatch::default()
        };
        (asked, rules)
    };
    let flows: Vec<_> = (0..FLOWS).map(flow).collect();
    GtpuFilters::new(&flows).map_err(|error| anyhow!("no room for so many {}", error.what))
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
    Ok(result)
}

/// Rows of one number of sessions.
fn on_site(
    rows: &[Row],
    figures: &mut Vec<Figure>,
    mut begins: impl FnMut(&Row) + Send,
    context: &Context,
) -> Result<()> {
    let mut site = Site::create("gtpu")?;
    site.add_mobile(SUBSCRIBERS)?;
    // which are elsewhere for other suites
    site.gateway.ip("route del 10.64.0.0/16")?;
    site.gateway.enter(|| {
        pin(bench_cpu())?;
        let mut scene = Scene::start(&site, rows[0].sessions)?;
        scene.open()?;
        for row in rows {
            begins(row);
            figures.push(scene.figure(row, context).with_context(|| format!("row `{}`", row.name()))?);
        }
        Ok(())
    })?
}
