//! What a packet of a NAT64 session costs, both directions in turn: established, or the first of each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use anyhow::{Result, ensure};
use sluice_dataplane::Sizes;

use super::{CAPACITY, Figures, HOOKS};
use crate::generator::endpoints::Endpoints;
use crate::generator::harness::{Harness, Hook, Target};
use crate::generator::layouts::{RingEntry4, RingEntry6};
use crate::generator::packets::{
    CLIENTS6, Direction, Family, Protocol, SERVERS4, Template, Tuple, address4, address6, sequence,
};
use crate::generator::site::{Side, Site};
use crate::method::affinity::{bench_cpu, pin};
use crate::method::result::{Better, Check, Figure};
use crate::method::rounds::interleave;
use crate::method::suite::Context;
use crate::testbed::bed::{Bed, flow_tuple};
use crate::testbed::gateway::{Action, Sluice, Tally, configuration};
use crate::testbed::verify::{self, Fate};

/// Both their directions are measured, which makes as many packets as the other rows have.
const SESSIONS: usize = super::SESSIONS / 2;
/// A prefix of one's own: behind the Well-Known Prefix there are no private addresses.
const PREFIX: u16 = 0x6464;
/// The first of the clients' ports, which translation keeps: the answers are then known beforehand.
const FIRST_PORT: u16 = 2048;
/// Of the gateway on the way to the servers.
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];

pub struct Row {
    hook: Hook,
    /// Sessions that open, not those that are there
    new: bool,
}

/// In the order in which they are measured.
pub const ROWS: [Row; 4] = [
    Row { hook: Hook::Xdp, new: false },
    Row { hook: Hook::Xdp, new: true },
    Row { hook: Hook::Tc, new: false },
    Row { hook: Hook::Tc, new: true },
];

impl Row {
    pub fn name(&self) -> String {
        let kind = if self.new { "new" } else { "established" };
        format!("{:?} nat64 udp {kind} {}", self.hook, 2 * SESSIONS).to_lowercase()
    }
}

fn nat64_configuration() -> String {
    plain_configuration()
        + &format!(
            "security {{ nat {{\n\
             static {{ rule-set six {{ from interface lan0.0;\n\
             rule all {{ match {{ destination-address fd00:{PREFIX:x}::/96; }} then {{ static-nat inet; }} }} }} }}\n\
             source {{ interface {{ port {{ preserve-source; }} }}\n\
             rule-set out {{ from interface lan0.0; to interface wan0.0;\n\
             rule all {{ match {{ source-address ::/0; destination-address 0.0.0.0/0; }} \
             then {{ source-nat interface; }} }} }} }} }} }}\n"
        )
}

/// Sluice with sessions between the families, and the packets of both their directions.
struct Translated {
    sluice: Sluice,
    harnesses: Vec<Harness>,
    lan: Side,
    wan: Side,
    templates: (Template, Template),
}

impl Translated {
    fn start(site: &Site) -> Result<Translated> {
        let sizes = Sizes { sessions4: 1024, sessions6: CAPACITY, ..Sizes::default() };
        let macs = (site.lan.mac, site.lan.host_mac);
        let template = |family| Template::new(family, Protocol::Udp, macs.0, macs.1, 0);
        let harness = |hook| Harness::between_families(hook, SESSIONS as u32, macs);
        Ok(Translated {
            sluice: Sluice::start_with(site, &nat64_configuration(), sizes, false)?,
            harnesses: HOOKS.into_iter().map(harness).collect::<Result<_>>()?,
            lan: site.lan,
            wan: site.wan,
            templates: (template(Family::V6), template(Family::V4)),
        })
    }

    /// Every session anew, its request and answer twice: the second time neither is a first packet.
    fn open(&mut self, hook: Hook) -> Result<()> {
        self.sluice.close_all()?;
        for slow in [2, 0] {
            let before = Tally::read(&self.sluice.dataplane)?;
            self.pass(hook, 0, 2 * SESSIONS as u32)?;
            let tally = Tally::read(&self.sluice.dataplane)?.since(before);
            ensure!(
                tally.redirected == 2 * SESSIONS as u64 && tally.slow == slow * SESSIONS as u64,
                "{SESSIONS} sessions between the families gave {tally:?}"
            );
        }
        Ok(())
    }

    fn harness(&mut self, hook: Hook) -> &mut Harness {
        let found = self.harnesses.iter_mut().find(|harness| harness.hook == hook);
        found.expect("one for each hook")
    }

    fn request(&self, session: usize) -> RingEntry6 {
        let Tuple { client, server, server_port, .. } = Tuple::of_session(session);
        let port = FIRST_PORT + session as u16;
        self.templates.0.entry6_between(address6(CLIENTS6, client), seen_inside(server), port, server_port)
    }

    fn answer(&self, session: usize) -> RingEntry4 {
        let Tuple { server, server_port, .. } = Tuple::of_session(session);
        let port = FIRST_PORT + session as u16;
        self.templates.1.entry4_between(address4(SERVERS4, server), OUTSIDE, server_port, port)
    }

    /// Answers come `behind` sessions after their requests. Nanoseconds a packet.
    fn pass(&mut self, hook: Hook, behind: usize, repeat: u32) -> Result<f64> {
        let order = sequence(0, SESSIONS, Direction::Initiator, 0x5eed);
        let requests: Vec<_> = order.iter().map(|(session, _)| self.request(*session)).collect();
        let mut answers: Vec<_> = order.iter().map(|(session, _)| self.answer(*session)).collect();
        answers.rotate_right(behind);
        let (six, four) = self.templates.clone();
        let (root, ingress) = (self.sluice.root(hook)?, self.lan.ifindex);
        let harness = self.harness(hook);
        harness.set_turns(six, &requests, &four, &answers)?;
        harness.set_target(Target::Foreign(root.as_fd()))?;
        Ok(harness.run(repeat, ingress)?.ns)
    }

    /// What is left is the wrapper.
    fn empty(&mut self, hook: Hook, repeat: u32) -> Result<f64> {
        let ingress = self.lan.ifindex;
        let harness = self.harness(hook);
        harness.set_target(Target::Own("empty"))?;
        Ok(harness.run(repeat, ingress)?.ns)
    }

    fn measured(&mut self, hook: Hook, repeat: u32) -> Result<f64> {
        let before = Tally::read(&self.sluice.dataplane)?;
        let ns = self.pass(hook, SESSIONS / 2, repeat)?;
        all(Tally::read(&self.sluice.dataplane)?.since(before), repeat.into(), 0)?;
        Ok(ns)
    }

    /// Every session anew: its first packet and the first answer.
    fn opened(&mut self, hook: Hook) -> Result<f64> {
        self.sluice.close_all()?;
        let before = Tally::read(&self.sluice.dataplane)?;
        let ns = self.pass(hook, 0, FIRST)?;
        all(Tally::read(&self.sluice.dataplane)?.since(before), FIRST.into(), FIRST.into())?;
        Ok(ns)
    }

    /// A request and an answer of every session, one by one, against what must become of them.
    fn prove(&mut self, hook: Hook) -> Result<Check> {
        self.pass(hook, SESSIONS / 2, FIRST)?;
        let mut known = HashMap::new();
        for session in 0..SESSIONS {
            let Tuple { client, server, server_port, .. } = Tuple::of_session(session);
            let port = FIRST_PORT + session as u16;
            let inside: (IpAddr, u16) = (address6(CLIENTS6, client).into(), port);
            let (six, four) = (seen_inside(server).into(), address4(SERVERS4, server).into());
            let outside = (OUTSIDE.into(), port);
            known.insert(
                Endpoints { from: inside, to: (six, server_port) },
                Endpoints { from: outside, to: (four, server_port) },
            );
            known.insert(
                Endpoints { from: (four, server_port), to: outside },
                Endpoints { from: (six, server_port), to: inside },
            );
        }
        let (lan, wan) = (self.lan, self.wan);
        let mut fate = Fate::Known(known);
        verify::compare(self.harness(hook), lan.ifindex, [&lan, &wan], 2 * SESSIONS, &mut fate)
    }
}

/// A server's address as the clients know it.
fn seen_inside(server: u16) -> [u8; 16] {
    let mut seen = address6(PREFIX, 0);
    seen[12..].copy_from_slice(&address4(SERVERS4, server));
    seen
}

fn all(tally: Tally, packets: u64, slow: u64) -> Result<()> {
    ensure!(
        tally.redirected == packets && tally.slow == slow,
        "{packets} packets between the families gave {tally:?}"
    );
    Ok(())
}

/// First packets of a round: a request and an answer a session.
const FIRST: u32 = 2 * SESSIONS as u32;

/// One family without translation, both directions.
fn plain(bed: &mut Bed, hook: Hook, target: Option<&str>, repeat: u32) -> Result<f64> {
    let (ingress, root) = (bed.ingress, bed.root(hook).try_clone()?);
    let harness = bed.harness(hook);
    harness.set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Both)?;
    harness.set_target(target.map_or(Target::Foreign(root.as_fd()), Target::Own))?;
    Ok(harness.run(repeat, ingress)?.ns)
}

/// The same for sessions that open: each one's first packet and then its answer.
fn plain_opened(bed: &mut Bed, hook: Hook) -> Result<f64> {
    let mut ends = vec![];
    for (session, _) in sequence(0, SESSIONS, Direction::Initiator, 0x5eed) {
        let tuple = flow_tuple(Tuple::of_session(session), bed.family, bed.protocol);
        let (client, server) =
            ((tuple.source, tuple.source_port), (tuple.destination, tuple.destination_port));
        ends.extend([Endpoints { from: client, to: server }, Endpoints { from: server, to: client }]);
    }
    let (ingress, template) = (bed.ingress, bed.harness(hook).template(Protocol::Udp, 0));
    bed.harness(hook).set_endpoints(template, &ends)?;
    bed.aim_at_root(hook)?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let ns = bed.harness(hook).run(FIRST, ingress)?.ns;
    all(Tally::read(&bed.sluice.dataplane)?.since(before), FIRST.into(), FIRST.into())?;
    bed.close(0, SESSIONS)?;
    Ok(ns)
}

fn plain_configuration() -> String {
    configuration(HOOKS[0].into(), Action::Permit)
}

/// All rows, each with a figure or what went wrong; on a thread inside the gateways' namespace.
pub fn packets(site: &Site, rows: &[Row], context: &Context) -> Result<Figures> {
    pin(bench_cpu())?;
    // both once more, with tables of their own (A/A)
    let families = [Family::V4, Family::V6, Family::V4, Family::V6];
    let bed = |family| Bed::with(site, &plain_configuration(), &HOOKS, family, Protocol::Udp, CAPACITY);
    let mut beds = families.into_iter().map(bed).collect::<Result<Vec<_>>>()?;
    let mut translated = Translated::start(site)?;
    let one = |row: &Row| {
        context.progress.at(0.4, &row.name());
        (row.name(), figure(&mut beds, &mut translated, row, context))
    };
    Ok(rows.iter().map(one).collect())
}

/// Half of a session's packets arrive as IPv6 and half as IPv4, so the floor is the mean of both without translation.
fn figure(beds: &mut [Bed], translated: &mut Translated, row: &Row, context: &Context) -> Result<Figure> {
    let Row { hook, new } = *row;
    for bed in &mut *beds {
        bed.sluice.close_all()?;
        if !new {
            bed.open(hook, 0, SESSIONS)?;
            bed.pass(hook, 0, 0, SESSIONS, Direction::Both)?;
        }
    }
    translated.open(hook)?;
    let repeat = if new { FIRST } else { context.pick(200_000, 400_000) };
    let samples = interleave(2 + 2 * beds.len(), context.rounds, |contestant, _| match contestant {
        0 => translated.empty(hook, repeat),
        1 if new => translated.opened(hook),
        1 => translated.measured(hook, repeat),
        n if n % 2 == 0 => plain(&mut beds[n / 2 - 1], hook, Some("empty"), repeat),
        n if new => plain_opened(&mut beds[n / 2 - 1], hook),
        n => plain(&mut beds[n / 2 - 1], hook, None, repeat),
    })?;
    let net = |at: usize| samples[at + 1].iter().zip(&samples[at]).map(|(raw, empty)| raw - empty);
    let mean =
        |at: usize| net(at).zip(net(at + 2)).map(|(four, six)| (four + six) / 2.0).collect::<Vec<f64>>();
    let floor = mean(2);
    let figure = Figure::new(row.name(), "ns/packet", Better::Lower, net(0).collect());
    let figure = figure.against("the same without translation", &floor).same(&floor, &mean(6));
    Ok(figure.check(translated.prove(hook)?))
}
