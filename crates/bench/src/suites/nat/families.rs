//! What a packet of an established NAT64 session costs, both directions in turn.

use std::os::fd::AsFd as _;

use anyhow::{Result, ensure};
use sluice_dataplane::Sizes;

use super::CAPACITY;
use crate::bed::Bed;
use crate::gateway::{Action, Site, Sluice, Tally, configuration};
use crate::harness::{Harness, Hook, Target};
use crate::layouts::{RingEntry4, RingEntry6};
use crate::packets::{
    CLIENTS6, Direction, Family, Protocol, SERVERS4, Template, Tuple, address4, address6, sequence,
};
use crate::result::{Better, Figure};
use crate::rounds::{bench_cpu, interleave, pin};
use crate::suites::Context;

/// Both their directions are measured, which makes as many packets as the other rows have.
const SESSIONS: usize = super::SESSIONS / 2;
/// A prefix of one's own: behind the Well-Known Prefix there are no private addresses.
const PREFIX: u16 = 0x6464;
/// The first of the clients' ports, which translation keeps: the answers are then known beforehand.
const FIRST_PORT: u16 = 2048;
/// Of the gateway on the way to the servers.
const OUTSIDE: [u8; 4] = [198, 51, 100, 1];

pub fn name(hook: Hook) -> String {
    format!("{hook:?} nat64 udp established {}", 2 * SESSIONS).to_lowercase()
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
    ingress: u32,
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
            ingress: site.lan.ifindex,
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
        let (mut seen, inner) = (address6(PREFIX, 0), address4(SERVERS4, server));
        seen[12..].copy_from_slice(&inner);
        self.templates.0.entry6_between(
            address6(CLIENTS6, client),
            seen,
            FIRST_PORT + session as u16,
            server_port,
        )
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
        Ok(self.harness.run(repeat, self.ingress)?.ns)
    }

    /// What is left is the wrapper.
    fn empty(&mut self, repeat: u32) -> Result<f64> {
        self.pass(SESSIONS / 2, 2)?;
        self.harness.set_target(Target::Own("empty"))?;
        Ok(self.harness.run(repeat, self.ingress)?.ns)
    }

    fn measured(&mut self, repeat: u32) -> Result<f64> {
        let before = Tally::read(&self.sluice.dataplane)?;
        let ns = self.pass(SESSIONS / 2, repeat)?;
        let tally = Tally::read(&self.sluice.dataplane)?.since(before);
        ensure!(
            tally.redirected == u64::from(repeat) && tally.slow == 0,
            "{repeat} packets between the families gave {tally:?}"
        );
        Ok(ns)
    }
}

/// One family without translation, both directions.
fn plain(bed: &mut Bed, hook: Hook, target: Option<&str>, repeat: u32) -> Result<f64> {
    let (ingress, root) = (bed.ingress, bed.root(hook).try_clone()?);
    let harness = bed.harness(hook);
    harness.set_packets(Protocol::Udp, 0, 0, SESSIONS, Direction::Both)?;
    harness.set_target(target.map_or(Target::Foreign(root.as_fd()), Target::Own))?;
    Ok(harness.run(repeat, ingress)?.ns)
}

/// Half of a session's packets arrive as IPv6 and half as IPv4, so the floor is the mean of both without translation.
pub fn established(site: &Site, hook: Hook, context: &Context) -> Result<Figure> {
    pin(bench_cpu())?;
    let text = configuration(hook.into(), Action::Permit);
    let mut beds = Vec::new();
    // both once more, with tables of their own (A/A)
    for family in [Family::V4, Family::V6, Family::V4, Family::V6] {
        let mut bed = Bed::with(site, &text, &[hook], family, Protocol::Udp, CAPACITY)?;
        bed.open(hook, 0, SESSIONS)?;
        bed.pass(hook, None, 0, 0, SESSIONS, Direction::Both)?;
        beds.push(bed);
    }
    let mut translated = Translated::open(site, hook)?;
    let repeat = context.pick(200_000, 400_000);
    let samples = interleave(2 + 2 * beds.len(), context.rounds, |contestant, _| match contestant {
        0 => translated.empty(repeat),
        1 => translated.measured(repeat),
        n if n % 2 == 0 => plain(&mut beds[n / 2 - 1], hook, Some("empty"), repeat),
        n => plain(&mut beds[n / 2 - 1], hook, None, repeat),
    })?;
    let net = |at: usize| samples[at + 1].iter().zip(&samples[at]).map(|(raw, empty)| raw - empty);
    let mean =
        |at: usize| net(at).zip(net(at + 2)).map(|(four, six)| (four + six) / 2.0).collect::<Vec<f64>>();
    let floor = mean(2);
    let figure = Figure::new(name(hook), "ns/packet", Better::Lower, net(0).collect());
    Ok(figure.against("the same without translation", &floor).same(&floor, &mean(6)))
}
