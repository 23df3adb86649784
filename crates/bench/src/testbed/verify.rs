//! The proof of a row: the bytes that leave against a plain model of forwarding, and what sessions, policies and drops
//! counted against an independent count. All of it comes after the timed part.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::abi::stages::Reason;

use crate::generator::endpoints::Endpoints;
use crate::generator::harness::{Harness, Hook, Single};
use crate::generator::packets::{CLIENTS4, CLIENTS6, Tuple};
use crate::generator::site::Side;
use crate::method::findings::Findings;
use crate::method::result::Check;
use crate::method::stats::Rng;
use crate::testbed::bed::{Bed, flow_tuple};
use crate::testbed::forwarding::{between_families, forwarded, octets, same_bytes};
use crate::testbed::gateway::Tally;
use crate::testbed::ruleset::Rules;

/// Packets whose output is compared at most: three times the period of a fault that comes once in 10,007.
pub const COMPARED: usize = 30_021;
/// Sessions whose counters are compared, chosen once.
const SAMPLED: usize = 1000;
const SAMPLE_SEED: u64 = 0xacc0_0017;

/// What must become of the packets.
pub enum Fate {
    Forwarded,
    /// With the source translated to this address.
    Translated(Masquerade),
    /// With these ends, of the other family perhaps, for those that they come with.
    Known(HashMap<Endpoints, Endpoints>),
    Refused,
}

/// Which port a session was given is the program's to choose, once a session and never twice towards one server.
pub struct Masquerade {
    outside: IpAddr,
    ports: HashMap<Endpoints, u16>,
    taken: HashSet<Endpoints>,
}

/// RFC 4787 REQ-3, RFC 6056 3.2: what is given out begins behind the well-known ports.
const FIRST_PORT: u16 = 1024;

impl Masquerade {
    pub fn behind(outside: IpAddr) -> Masquerade {
        Masquerade { outside, ports: HashMap::new(), taken: HashSet::new() }
    }

    /// The ends with which a packet of a session must leave, given the port it left with.
    fn ends(&mut self, came: Endpoints, port: u16) -> Result<Endpoints, String> {
        if port < FIRST_PORT {
            return Err(format!("port {port} is not one to give out"));
        }
        if let Some(known) = self.ports.get(&came) {
            return Ok(Endpoints { from: (self.outside, *known), ..came });
        }
        let ends = Endpoints { from: (self.outside, port), ..came };
        if !self.taken.insert(ends) {
            return Err(format!("two sessions leave as {ends:?}"));
        }
        self.ports.insert(came, port);
        Ok(ends)
    }

    /// The port that a session was seen to have.
    pub fn port(&self, came: &Endpoints) -> Option<u16> {
        self.ports.get(came).copied()
    }
}

impl Fate {
    fn judge(&mut self, hook: Hook, sides: [&Side; 2], came: &[u8], single: &Single) -> Result<(), String> {
        let wanted = if matches!(self, Fate::Refused) { hook.dropped() } else { hook.redirected() };
        if single.returned != wanted {
            return Err(format!("the program returned {}, not {wanted}", single.returned));
        }
        let came_endpoints = Endpoints::of(came);
        let ends = match self {
            Fate::Refused => return Ok(()),
            Fate::Forwarded => came_endpoints,
            Fate::Translated(masquerade) => {
                masquerade.ends(came_endpoints, Endpoints::of(&single.frame).from.1)?
            }
            Fate::Known(known) => {
                *known.get(&came_endpoints).ok_or_else(|| format!("nobody sends {came_endpoints:?}"))?
            }
        };
        let side = towards(sides, ends.to.0);
        if ends.from.0.is_ipv4() == came_endpoints.from.0.is_ipv4() {
            return same_bytes(&single.frame, &forwarded(came, side, ends));
        }
        let wanted = between_families(came, &single.frame, side, ends);
        // behind the packet stands what the longer family left there
        same_bytes(&single.frame[..single.frame.len().min(wanted.len())], &wanted)
    }
}

/// Clients are behind the first side, everybody else behind the second.
fn towards([lan, wan]: [&Side; 2], to: IpAddr) -> &Side {
    let bytes = octets(to);
    let client = match to {
        IpAddr::V4(_) => bytes[..2] == CLIENTS4,
        IpAddr::V6(_) => bytes[2..4] == CLIENTS6.to_be_bytes(),
    };
    if client { lan } else { wan }
}

/// Sends the next `count` packets of the ring one by one through the program under test and compares what is left of
/// each. What was counted meanwhile must satisfy `tally`.
pub fn output(
    bed: &mut Bed,
    hook: Hook,
    count: usize,
    fate: &mut Fate,
    tally: impl Fn(Tally) -> Result<()>,
) -> Result<Check> {
    let (lan, wan, ingress) = (bed.lan, bed.wan, bed.ingress);
    bed.aim_at_root(hook)?;
    let before = Tally::read(&bed.sluice.dataplane)?;
    let position = bed.harness(hook).position();
    bed.ledger.record(position, count as u64);
    let check = compare(bed.harness(hook), ingress, [&lan, &wan], count, fate)?;
    tally(Tally::read(&bed.sluice.dataplane)?.since(before)).context("packets one by one")?;
    Ok(check)
}

/// The same for a harness whose target is set.
pub fn compare(
    harness: &mut Harness,
    ingress: u32,
    sides: [&Side; 2],
    count: usize,
    fate: &mut Fate,
) -> Result<Check> {
    let mut findings = Findings::default();
    for _ in 0..count {
        let came = harness.upcoming(0);
        let single = harness.single(ingress)?;
        findings.note(fate.judge(harness.hook, sides, &came, &single));
    }
    Ok(findings.check("output byte by byte", "packets"))
}

/// Sampled sessions' own counters before a run.
pub struct Accounts {
    sample: Vec<Account>,
}

struct Account {
    index: usize,
    session: usize,
    reply: bool,
    before: (u64, u64),
}

/// Packets and bytes of one direction.
fn counted(bed: &Bed, session: usize, reply: bool) -> Result<(u64, u64)> {
    let tuple = flow_tuple(Tuple::of_session(session), bed.family, bed.protocol);
    let found = bed.sluice.dataplane.find_session(&tuple)?;
    let found = found.with_context(|| format!("session {session} has vanished"))?;
    let side = if reply { found.responder } else { found.initiator };
    Ok((side.packets, side.bytes))
}

impl Accounts {
    /// `order` is what the ring holds: (session, reply) of every entry.
    pub fn open(bed: &Bed, order: &[(usize, bool)]) -> Result<Accounts> {
        let mut rng = Rng::new(SAMPLE_SEED);
        let account = |_| {
            let index = rng.below(order.len());
            let (session, reply) = order[index];
            Ok(Account { index, session, reply, before: counted(bed, session, reply)? })
        };
        Ok(Accounts { sample: (0..SAMPLED.min(order.len())).map(account).collect::<Result<_>>()? })
    }

    /// Every packet of the ledger, and no other, must stand in its session's counters, with `ip_len` bytes each.
    pub fn check(&self, bed: &Bed, ip_len: usize) -> Result<Check> {
        let mut findings = Findings::default();
        for Account { index, session, reply, before } in &self.sample {
            let sent = bed.ledger.of(*index);
            let wanted = (before.0 + sent, before.1 + sent * ip_len as u64);
            let seen = counted(bed, *session, *reply)?;
            let complain = || {
                format!(
                    "session {session}{} counts {seen:?}, not {wanted:?}",
                    if *reply { ", answers" } else { "" }
                )
            };
            findings.note(if seen == wanted { Ok(()) } else { Err(complain()) });
        }
        Ok(findings.check("sessions count their packets and bytes", "sessions"))
    }
}

/// First packets `first..first + count` have opened sessions: of a sample, whose they are, who permitted them, and that
/// one packet is counted.
pub fn opened(bed: &Bed, first: usize, count: usize, ip_len: usize, deciders: &Deciders) -> Result<Check> {
    let mut rng = Rng::new(SAMPLE_SEED);
    let mut findings = Findings::default();
    for _ in 0..SAMPLED.min(count) {
        let session = first + rng.below(count);
        let tuple = Tuple::of_session(session);
        let wanted = flow_tuple(tuple, bed.family, bed.protocol);
        let found = bed.sluice.dataplane.find_session(&wanted)?;
        let found = found.with_context(|| format!("session {session} was not recorded"))?;
        let seen =
            (found.initiator.tuple, found.initiator.packets, found.initiator.bytes, found.responder.packets);
        let right = seen == (wanted, 1, ip_len as u64, 0) && deciders.of(tuple) == Some(found.policy);
        let complain = || format!("session {session} by policy {}: {seen:?}", found.policy);
        findings.note(if right { Ok(()) } else { Err(complain()) });
    }
    Ok(findings.check("sessions as their first packets say", "sessions"))
}

/// Which policy decides about a first packet, by going through the list.
pub struct Deciders {
    rules: Option<Rules>,
    /// Id of every policy, by its number in the list.
    ids: Vec<u32>,
}

impl Deciders {
    /// `rules` are those that the bed's configuration was made of; None: the one policy there is, if any.
    pub fn of_bed(bed: &Bed, rules: Option<Rules>) -> Deciders {
        let mut named: Vec<(usize, u32)> = vec![];
        for (id, policy) in &bed.sluice.plan.policies {
            let number = policy.name.strip_prefix('p').and_then(|number| number.parse().ok());
            named.push((number.unwrap_or(0), *id));
        }
        named.sort_unstable();
        Deciders { rules, ids: named.into_iter().map(|(_, id)| id).collect() }
    }

    /// Id of the policy; None where the default decides.
    pub fn of(&self, tuple: Tuple) -> Option<u32> {
        let number = match &self.rules {
            Some(rules) => rules.first_match(tuple)?,
            None => 0,
        };
        self.ids.get(number).copied()
    }
}

/// Counters of policies and of drops before a run.
pub struct Decisions {
    deciders: Deciders,
    policies: Vec<(u64, u64)>,
    drops: BTreeMap<&'static str, u64>,
}

fn policies(bed: &Bed, ids: &[u32]) -> Result<Vec<(u64, u64)>> {
    let counters = bed.sluice.dataplane.policy_counters(ids)?;
    Ok(counters.iter().map(|counters| (counters.sessions, counters.denied)).collect())
}

fn drops(bed: &Bed) -> Result<BTreeMap<&'static str, u64>> {
    let drops = bed.sluice.dataplane.counters()?.total_drops();
    Ok(drops.named().map(|(reason, count)| (reason.name(), count)).collect())
}

/// What a row's first packets must have come to.
pub struct Decided {
    /// Sessions `first..first + count`, each so often.
    pub first: usize,
    pub count: usize,
    pub times: u64,
    pub reason: Option<Reason>,
}

impl Decisions {
    pub fn open(bed: &Bed, rules: Option<Rules>) -> Result<Decisions> {
        let deciders = Deciders::of_bed(bed, rules);
        Ok(Decisions { policies: policies(bed, &deciders.ids)?, drops: drops(bed)?, deciders })
    }

    pub fn deciders(&self) -> &Deciders {
        &self.deciders
    }

    /// Every policy's sessions and refusals, and every reason's drops, against an independent count.
    pub fn check(&self, bed: &Bed, decided: &Decided) -> Result<[Check; 2]> {
        let Decided { first, count, times, reason } = decided;
        let mut wanted: HashMap<u32, u64> = HashMap::new();
        // what belongs to no session is refused before any policy is asked
        if *reason != Some(Reason::TcpNotSyn) {
            let ids =
                (*first..first + count).filter_map(|session| self.deciders.of(Tuple::of_session(session)));
            ids.for_each(|id| *wanted.entry(id).or_default() += times);
        }
        let mut findings = Findings::default();
        let after = policies(bed, &self.deciders.ids)?;
        for ((id, before), after) in self.deciders.ids.iter().zip(&self.policies).zip(after) {
            let asked = wanted.get(id).copied().unwrap_or(0);
            let wanted = if reason.is_none() { (asked, 0) } else { (0, asked) };
            let seen = (after.0 - before.0, after.1 - before.1);
            let complain = || format!("policy {id} counts {seen:?} permitted and denied, not {wanted:?}");
            findings.note(if seen == wanted { Ok(()) } else { Err(complain()) });
        }
        if self.deciders.ids.is_empty() {
            findings.note(if wanted.is_empty() { Ok(()) } else { Err("no policies".to_owned()) });
        }
        Ok([findings.check("policies count what they decide", "policies"), self.refusals(bed, decided)?])
    }

    fn refusals(&self, bed: &Bed, decided: &Decided) -> Result<Check> {
        let mut wanted = self.drops.clone();
        if let Some(reason) = decided.reason {
            *wanted.entry(reason.name()).or_default() += decided.times * decided.count as u64;
        }
        let seen = drops(bed)?;
        let mut findings = Findings::default();
        findings.note(if seen == wanted { Ok(()) } else { Err(format!("dropped {seen:?}, not {wanted:?}")) });
        Ok(findings.check("refused for the right reason", "counts of reasons"))
    }
}

/// A row whose proof fails is no measurement.
pub fn all_passed(checks: &[Check]) -> Result<()> {
    ensure!(!checks.is_empty(), "nothing was proven");
    match checks.iter().find(|check| !check.passed) {
        Some(check) => Err(anyhow::anyhow!("{}: {}", check.name, check.detail)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::packets::{Family, Protocol, Template};

    fn side() -> Side {
        Side { device: "wan0", mac: [2; 6], host_mac: [4; 6], ifindex: 1, host_ifindex: 2 }
    }

    #[test]
    fn any_other_byte_is_found() {
        let template = Template::new(Family::V4, Protocol::Udp, [1; 6], [3; 6], 0);
        let came = template.frame4(&template.entry4(Tuple::of_session(0), false), 5);
        let (lan, wan) = (Side { mac: [9; 6], ..side() }, side());
        let single = |frame| Single { returned: Hook::Xdp.redirected(), frame };
        let right = forwarded(&came, &wan, Endpoints::of(&came));
        let judge = |single: &Single| Fate::Forwarded.judge(Hook::Xdp, [&lan, &wan], &came, single);
        assert_eq!(judge(&single(right.clone())), Ok(()));
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            assert!(judge(&single(wrong)).is_err(), "byte {at}");
        }
        assert!(judge(&single(right[..59].to_vec())).is_err());
        assert!(judge(&Single { returned: 1, frame: right }).is_err());
    }

    #[test]
    fn a_session_keeps_its_port_and_no_two_share_one_towards_a_server() {
        let mut masquerade = Masquerade::behind([198, 51, 100, 1].into());
        let ends = |port| Endpoints { from: ([10, 64, 0, 1].into(), port), to: ([10, 128, 0, 1].into(), 80) };
        let elsewhere = |port| Endpoints { to: ([10, 128, 0, 2].into(), 80), ..ends(port) };
        assert_eq!(masquerade.ends(ends(1), 5000).unwrap().from, (masquerade.outside, 5000));
        assert_eq!(masquerade.ends(ends(1), 5001).unwrap().from.1, 5000, "it leaves as it left before");
        assert!(masquerade.ends(ends(2), 5000).is_err());
        assert!(masquerade.ends(ends(2), 80).is_err());
        assert_eq!(masquerade.ends(ends(2), 5001).unwrap().from.1, 5001);
        assert!(masquerade.ends(elsewhere(3), 5001).is_ok(), "answers tell them apart by the server");
    }
}
