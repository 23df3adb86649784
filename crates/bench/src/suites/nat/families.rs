//! What a packet of a NAT64 session costs, both directions in turn: established, or the first of each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::AsFd as _;

use anyhow::{Result, ensure};
use sluice_dataplane::Sizes;

use super::CAPACITY;
use crate::bed::{Bed, flow_tuple};
use crate::gateway::{Action, Side, Site, Sluice, Tally, configuration};
use crate::harness::{Harness, Hook, Target};
use crate::layouts::{RingEntry4, RingEntry6};
use crate::packets::{
    CLIENTS6, Direction, Family, Protocol, SERVERS4, Template, Tuple, address4, address6, sequence,
};
use crate::result::{Better, Check, Figure};
use crate::rounds::{bench_cpu, interleave, pin};
use crate::suites::Context;
use crate::verify::{self, Ends, Fate};

/// Both their directions are measured, which makes as many packets as the other rows have.
const SESSIONS: usize = super::SESSIONS / 2;
/// A prefix of one's own: behind the Well-Known Prefix there are no private addresses.
const PREFIX: u16 = 0x6464;
/// The first of the clients' ports, which translation keeps: the answers are then known beforehand.
const FIRST_PORT: u16 = 2048;
/// Of the gateway on the way to the servers.
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];

pub fn name(hook: Hook, new: bool) -> String {
    let kind = if new { "new" } else { "established" };
    format!("{hook:?} nat64 udp {kind} {}", 2 * SESSIONS).to_lowercase()
}

fn nat64_configuration(hook: Hook) -> String {
    configuration(hook.into(), Action::Permit)
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
    harness: Harness,
    hook: Hook,
    lan: Side,
    wan: Side,
    templates: (Template, Template),
}

impl Translated {
    fn open(site: &Site, hook: Hook) -> Result<Translated> {
        let sizes = Sizes { sessions4: 1024, sessions6: CAPACITY, ..Sizes::default() };
        let macs = (site.lan.mac, site.lan.host_mac);
        let template = |family| Template::new(family, Protocol::Udp, macs.0, macs.1, 0);
        let mut bed = Translated {
            sluice: Sluice::start_with(site, &nat64_configuration(hook), sizes, false)?,
            harness: Harness::between_families(hook, SESSIONS as u32, macs)?,
            hook,
            lan: site.lan,
            wan: site.wan,
            templates: (template(Family::V6), template(Family::V4)),
        };
        // each request and its answer; the second time neither is a first packet
        for slow in [2, 0] {
            let before = Tally::read(&bed.sluice.dataplane)?;
            bed.pass(0, 2 * SESSIONS as u32)?;
            let tally = Tally::read(&bed.sluice.dataplane)?.since(before);
            ensure!(
                tally.redirected == 2 * SESSIONS as u64 && tally.slow == slow * SESSIONS as u64,
                "{SESSIONS} sessions between the families gave {tally:?}"
            );
        }
        Ok(bed)
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
    fn pass(&mut self, behind: usize, repeat: u32) -> Result<f64> {
        let order = sequence(0, SESSIONS, Direction::Initiator, 0x5eed);
        let requests: Vec<_> = order.iter().map(|(session, _)| self.request(*session)).collect();
        let mut answers: Vec<_> = order.iter().map(|(session, _)| self.answer(*session)).collect();
        answers.rotate_right(behind);
        let (six, four) = self.templates.clone();
        self.harness.set_turns(six, &requests, &four, &answers)?;
        let root = self.sluice.root(self.hook)?;
        self.harness.set_target(Target::Foreign(root.as_fd()))?;
        Ok(self.harness.run(repeat, self.lan.ifindex)?.ns)
    }

    /// What is left is the wrapper.
    fn empty(&mut self, repeat: u32) -> Result<f64> {
        self.harness.set_target(Target::Own("empty"))?;
        Ok(self.harness.run(repeat, self.lan.ifindex)?.ns)
    }

    fn measured(&mut self, repeat: u32) -> Result<f64> {
        let before = Tally::read(&self.sluice.dataplane)?;
        let ns = self.pass(SESSIONS / 2, repeat)?;
        all(Tally::read(&self.sluice.dataplane)?.since(before), repeat.into(), 0)?;
        Ok(ns)
    }

    /// Every session anew: its first packet and the first answer.
    fn opened(&mut self) -> Result<f64> {
        let ids: Vec<_> = self.sluice.dataplane.sessions().map(|session| session.id).collect();
        self.sluice.dataplane.delete_sessions(&ids)?;
        let before = Tally::read(&self.sluice.dataplane)?;
        let ns = self.pass(0, FIRST)?;
        all(Tally::read(&self.sluice.dataplane)?.since(before), FIRST.into(), FIRST.into())?;
        Ok(ns)
    }

    /// A request and an answer of every session, one by one, against what must become of them.
    fn prove(&mut self) -> Result<Check> {
        self.pass(SESSIONS / 2, FIRST)?;
        let mut known = HashMap::new();
        for session in 0..SESSIONS {
            let Tuple { client, server, server_port, .. } = Tuple::of_session(session);
            let port = FIRST_PORT + session as u16;
            let inside: (IpAddr, u16) = (address6(CLIENTS6, client).into(), port);
            let (six, four) = (seen_inside(server).into(), address4(SERVERS4, server).into());
            let outside = (OUTSIDE.into(), port);
            known.insert(
                Ends { from: inside, to: (six, server_port) },
                Ends { from: outside, to: (four, server_port) },
            );
            known.insert(
                Ends { from: (four, server_port), to: outside },
                Ends { from: (six, server_port), to: inside },
            );
        }
        let (sides, ingress) = ([&self.lan, &self.wan], self.lan.ifindex);
        verify::compare(&mut self.harness, ingress, sides, 2 * SESSIONS, &mut Fate::Known(known))
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
        ends.extend([Ends { from: client, to: server }, Ends { from: server, to: client }]);
    }
    let (ingress, template) = (bed.ingress, bed.harness(hook).template(Protocol::Udp, 0));
    bed.harness(hook).set_ends(template, &ends)?;
    bed.aim_at_root(hook)?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let ns = bed.harness(hook).run(FIRST, ingress)?.ns;
    all(Tally::read(&bed.sluice.dataplane)?.since(before), FIRST.into(), FIRST.into())?;
    bed.close(0, SESSIONS)?;
    Ok(ns)
}

/// Half of a session's packets arrive as IPv6 and half as IPv4, so the floor is the mean of both without translation.
pub fn row(site: &Site, hook: Hook, new: bool, context: &Context) -> Result<Figure> {
    pin(bench_cpu())?;
    let text = configuration(hook.into(), Action::Permit);
    let mut beds = Vec::new();
    // both once more, with tables of their own (A/A)
    for family in [Family::V4, Family::V6, Family::V4, Family::V6] {
        let mut bed = Bed::with(site, &text, &[hook], family, Protocol::Udp, CAPACITY)?;
        if !new {
            bed.open(hook, 0, SESSIONS)?;
            bed.pass(hook, None, 0, 0, SESSIONS, Direction::Both)?;
        }
        beds.push(bed);
    }
    let mut translated = Translated::open(site, hook)?;
    let repeat = if new { FIRST } else { context.pick(200_000, 400_000) };
    let samples = interleave(2 + 2 * beds.len(), context.rounds, |contestant, _| match contestant {
        0 => translated.empty(repeat),
        1 if new => translated.opened(),
        1 => translated.measured(repeat),
        n if n % 2 == 0 => plain(&mut beds[n / 2 - 1], hook, Some("empty"), repeat),
        n if new => plain_opened(&mut beds[n / 2 - 1], hook),
        n => plain(&mut beds[n / 2 - 1], hook, None, repeat),
    })?;
    let net = |at: usize| samples[at + 1].iter().zip(&samples[at]).map(|(raw, empty)| raw - empty);
    let mean =
        |at: usize| net(at).zip(net(at + 2)).map(|(four, six)| (four + six) / 2.0).collect::<Vec<f64>>();
    let floor = mean(2);
    let figure = Figure::new(name(hook, new), "ns/packet", Better::Lower, net(0).collect());
    let figure = figure.against("the same without translation", &floor).same(&floor, &mean(6));
    Ok(figure.check(translated.prove()?))
}
