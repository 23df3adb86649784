//! The proof of a row: the bytes that leave against a plain model of forwarding, and what sessions, policies and drops
//! counted against an independent count. All of it comes after the timed part.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use sluice_dataplane::abi::stages::Reason;

use crate::bed::{Bed, flow_tuple};
use crate::gateway::{Side, Tally};
use crate::harness::{Harness, Hook, Single};
use crate::packets::{CLIENTS4, CLIENTS6, Tuple, sum};
use crate::result::Check;
use crate::ruleset::Rules;
use crate::stats::Rng;

/// Packets whose output is compared at most: three times the period of a fault that comes once in 10,007.
pub const COMPARED: usize = 30_021;
/// Sessions whose counters are compared, chosen once.
const SAMPLED: usize = 1000;
const SAMPLE_SEED: u64 = 0xacc0_0017;

const ETHERNET: usize = 14;

/// Comparisons made, and what the first wrong one was.
#[derive(Debug, Default)]
pub struct Findings {
    made: u64,
    wrong: u64,
    first: Option<String>,
}

impl Findings {
    pub fn note(&mut self, complaint: Result<(), String>) {
        self.made += 1;
        if let Err(complaint) = complaint {
            self.wrong += 1;
            self.first.get_or_insert(complaint);
        }
    }

    /// Nothing compared proves nothing.
    pub fn check(self, name: &str, what: &str) -> Check {
        let detail = match self.first {
            Some(first) => format!("{} of {} {what} are wrong; the first: {first}", self.wrong, self.made),
            None => format!("{} {what} compared", self.made),
        };
        Check::new(name, self.made > 0 && self.wrong == 0, detail)
    }
}

/// Where a packet comes from and where it goes, with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
}

/// Offsets of a frame without options, extension headers and tags.
struct Places {
    hops: usize,
    addresses: usize,
    address_len: usize,
    l4: usize,
    protocol: u8,
    end: usize,
}

fn places(frame: &[u8]) -> Places {
    let word = |at: usize| usize::from(u16::from_be_bytes([frame[at], frame[at + 1]]));
    match frame[12..14] {
        [0x08, 0x00] => Places {
            hops: 22,
            addresses: 26,
            address_len: 4,
            l4: 34,
            protocol: frame[23],
            end: ETHERNET + word(16),
        },
        _ => Places {
            hops: 21,
            addresses: 22,
            address_len: 16,
            l4: 54,
            protocol: frame[20],
            end: 54 + word(18),
        },
    }
}

impl Ends {
    pub fn of(frame: &[u8]) -> Ends {
        let Places { addresses, address_len, l4, .. } = places(frame);
        let address = |at: usize| -> IpAddr {
            match <[u8; 4]>::try_from(&frame[at..at + address_len]) {
                Ok(four) => four.into(),
                Err(_) => <[u8; 16]>::try_from(&frame[at..at + address_len]).expect("sixteen bytes").into(),
            }
        };
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        Ends { from: (address(addresses), port(l4)), to: (address(addresses + address_len), port(l4 + 2)) }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// What must leave towards `side`: one hop less to live (RFC 1812 5.3.1, RFC 8200 3), the addresses of the link, the ends
/// it is given, sums computed anew from what then stands there, and nothing else.
pub fn forwarded(came: &[u8], side: &Side, ends: Ends) -> Vec<u8> {
    let mut frame = came.to_vec();
    let Places { hops, addresses, l4, protocol, end, .. } = places(came);
    frame[..6].copy_from_slice(&side.host_mac);
    frame[6..12].copy_from_slice(&side.mac);
    frame[hops] -= 1;
    let pair = [octets(ends.from.0), octets(ends.to.0)].concat();
    frame[addresses..addresses + pair.len()].copy_from_slice(&pair);
    frame[l4..l4 + 2].copy_from_slice(&ends.from.1.to_be_bytes());
    frame[l4 + 2..l4 + 4].copy_from_slice(&ends.to.1.to_be_bytes());
    if l4 == ETHERNET + 20 {
        frame[24..26].fill(0);
        let check = !sum(&frame[ETHERNET..l4]);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
    }
    if Ends::of(came) != ends {
        let at = l4 + if protocol == 6 { 16 } else { 6 };
        frame[at..at + 2].fill(0);
        let check = transport_check(&frame[l4..end], &pair, protocol);
        frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
    }
    frame
}

/// What must leave as the other family (RFC 7915 4.1, 5.1): a header made anew, one hop less to live, the transport's sum
/// computed anew. The identification is the program's to choose, and is taken from what left.
pub fn between_families(came: &[u8], left: &[u8], side: &Side, ends: Ends) -> Vec<u8> {
    let Places { hops, l4, protocol, end, .. } = places(came);
    let pair = [octets(ends.from.0), octets(ends.to.0)].concat();
    let mut segment = came[l4..end].to_vec();
    let length = segment.len() as u16;
    segment[..2].copy_from_slice(&ends.from.1.to_be_bytes());
    segment[2..4].copy_from_slice(&ends.to.1.to_be_bytes());
    let at = if protocol == 6 { 16 } else { 6 };
    segment[at..at + 2].fill(0);
    let check = transport_check(&segment, &pair, protocol);
    segment[at..at + 2].copy_from_slice(&check.to_be_bytes());
    let mut header = match ends.from.0 {
        IpAddr::V4(_) => [
            &[0x45, 0][..],
            &(20 + length).to_be_bytes(),
            &left[18..20],
            &[0, 0, came[hops] - 1, protocol, 0, 0],
        ]
        .concat(),
        IpAddr::V6(_) => [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[protocol, came[hops] - 1]].concat(),
    };
    header.extend(&pair);
    if ends.from.0.is_ipv4() {
        let check = !sum(&header);
        header[10..12].copy_from_slice(&check.to_be_bytes());
    }
    let ethertype = if ends.from.0.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&side.host_mac[..], &side.mac, &ethertype, &header, &segment].concat()
}

/// RFC 768, RFC 9293 3.1, RFC 8200 8.1. A datagram's sum of zero is sent as all ones.
fn transport_check(segment: &[u8], addresses: &[u8], protocol: u8) -> u16 {
    let mut covered = addresses.to_vec();
    covered.extend([0, protocol]);
    covered.extend((segment.len() as u16).to_be_bytes());
    covered.extend(segment);
    match (!sum(&covered), protocol) {
        (0, 17) => 0xffff,
        (check, _) => check,
    }
}

/// Two frames byte by byte.
pub fn same_bytes(seen: &[u8], wanted: &[u8]) -> Result<(), String> {
    if seen == wanted {
        return Ok(());
    }
    let at = seen.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(seen.len().min(wanted.len()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Err(format!("from byte {at} on: left as {}, must be {}", hex(seen), hex(wanted)))
}

/// What must become of the packets.
pub enum Fate {
    Forwarded,
    /// With the source translated to this address.
    Translated(Masquerade),
    /// With these ends, of the other family perhaps, for those that they come with.
    Known(HashMap<Ends, Ends>),
    Refused,
}

/// Which port a session was given is the program's to choose, once a session and never twice towards one server.
pub struct Masquerade {
    outside: IpAddr,
    ports: HashMap<Ends, u16>,
    taken: HashSet<Ends>,
}

/// RFC 4787 REQ-3, RFC 6056 3.2: what is given out begins behind the well-known ports.
const FIRST_PORT: u16 = 1024;

impl Masquerade {
    pub fn behind(outside: IpAddr) -> Masquerade {
        Masquerade { outside, ports: HashMap::new(), taken: HashSet::new() }
    }

    /// The ends with which a packet of a session must leave, given the port it left with.
    fn ends(&mut self, came: Ends, port: u16) -> Result<Ends, String> {
        if port < FIRST_PORT {
            return Err(format!("port {port} is not one to give out"));
        }
        if let Some(known) = self.ports.get(&came) {
            return Ok(Ends { from: (self.outside, *known), ..came });
        }
        let ends = Ends { from: (self.outside, port), ..came };
        if !self.taken.insert(ends) {
            return Err(format!("two sessions leave as {ends:?}"));
        }
        self.ports.insert(came, port);
        Ok(ends)
    }

    /// The port that a session was seen to have.
    pub fn port(&self, came: &Ends) -> Option<u16> {
        self.ports.get(came).copied()
    }
}

impl Fate {
    fn judge(&mut self, hook: Hook, sides: [&Side; 2], came: &[u8], single: &Single) -> Result<(), String> {
        let wanted = if matches!(self, Fate::Refused) { hook.dropped() } else { hook.redirected() };
        if single.returned != wanted {
            return Err(format!("the program returned {}, not {wanted}", single.returned));
        }
        let came_ends = Ends::of(came);
        let ends = match self {
            Fate::Refused => return Ok(()),
            Fate::Forwarded => came_ends,
            Fate::Translated(masquerade) => masquerade.ends(came_ends, Ends::of(&single.frame).from.1)?,
            Fate::Known(known) => {
                *known.get(&came_ends).ok_or_else(|| format!("nobody sends {came_ends:?}"))?
            }
        };
        let side = towards(sides, ends.to.0);
        if ends.from.0.is_ipv4() == came_ends.from.0.is_ipv4() {
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

/// What the program under test was given, by place in the ring: kept by whoever sends.
#[derive(Debug, Default, Clone)]
pub struct Ledger {
    ring: u64,
    /// First place and number of packets of every run.
    runs: Vec<(u64, u64)>,
}

impl Ledger {
    pub fn of_ring(places: u32) -> Ledger {
        Ledger { ring: places.into(), runs: vec![] }
    }

    pub fn record(&mut self, position: u32, packets: u64) {
        self.runs.push((position.into(), packets));
    }

    /// How often the packet at a place was sent.
    pub fn of(&self, place: usize) -> u64 {
        let once = |(start, packets): &(u64, u64)| {
            let behind = (place as u64 + self.ring - start) % self.ring;
            packets / self.ring + u64::from(behind < packets % self.ring)
        };
        self.runs.iter().map(once).sum()
    }
}

/// Sampled sessions' own counters before a run.
pub struct Accounts {
    sample: Vec<Account>,
}

struct Account {
    place: usize,
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
    /// `order` is what the ring holds: (session, reply) of every place.
    pub fn open(bed: &Bed, order: &[(usize, bool)]) -> Result<Accounts> {
        let mut rng = Rng::new(SAMPLE_SEED);
        let account = |_| {
            let place = rng.below(order.len());
            let (session, reply) = order[place];
            Ok(Account { place, session, reply, before: counted(bed, session, reply)? })
        };
        Ok(Accounts { sample: (0..SAMPLED.min(order.len())).map(account).collect::<Result<_>>()? })
    }

    /// Every packet of the ledger, and no other, must stand in its session's counters, with `ip_len` bytes each.
    pub fn check(&self, bed: &Bed, ip_len: usize) -> Result<Check> {
        let mut findings = Findings::default();
        for Account { place, session, reply, before } in &self.sample {
            let sent = bed.ledger.of(*place);
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
    use crate::packets::{Family, Protocol, TCP_ACK, Template};

    fn side() -> Side {
        Side { device: "wan0", mac: [2; 6], host_mac: [4; 6], ifindex: 1, host_ifindex: 2 }
    }

    fn frames() -> Vec<Vec<u8>> {
        let mut frames = vec![];
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            for session in 0..300 {
                let tuple = Tuple::of_session(session);
                let four = Template::new(Family::V4, protocol, [1; 6], [3; 6], TCP_ACK);
                let six = Template::new(Family::V6, protocol, [1; 6], [3; 6], TCP_ACK);
                frames.push(four.frame4(&four.entry4(tuple, session % 2 == 1), 5));
                frames.push(six.frame6(&six.entry6(tuple, session % 2 == 1), 5));
            }
        }
        frames
    }

    /// What the model makes has right sums in the eyes of another reader, and only what must change has changed.
    #[test]
    fn a_forwarded_frame_has_right_sums_and_no_other_changes() {
        for came in frames() {
            let mut ends = Ends::of(&came);
            let plain = forwarded(&came, &side(), ends);
            let changed: Vec<usize> = (12..came.len()).filter(|at| plain[*at] != came[*at]).collect();
            assert!(changed.iter().all(|at| [21, 22, 24, 25].contains(at)), "{changed:?}");
            ends.from.1 = ends.from.1.wrapping_add(77);
            let left = forwarded(&came, &side(), ends);
            assert_eq!(Ends::of(&left), ends);
            let Places { l4, end, protocol, addresses, address_len, .. } = places(&left);
            let mut covered = left[addresses..addresses + 2 * address_len].to_vec();
            covered.extend([0, protocol, 0, (end - l4) as u8]);
            covered.extend(&left[l4..end]);
            assert_eq!(sum(&covered), 0xffff);
            assert!(l4 != 34 || sum(&left[14..34]) == 0xffff);
        }
    }

    #[test]
    fn any_other_byte_is_found() {
        let came = frames().remove(0);
        let (lan, wan) = (Side { mac: [9; 6], ..side() }, side());
        let single = |frame| Single { returned: Hook::Xdp.redirected(), frame };
        let right = forwarded(&came, &wan, Ends::of(&came));
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
        let ends = |port| Ends { from: ([10, 64, 0, 1].into(), port), to: ([10, 128, 0, 1].into(), 80) };
        let elsewhere = |port| Ends { to: ([10, 128, 0, 2].into(), 80), ..ends(port) };
        assert_eq!(masquerade.ends(ends(1), 5000).unwrap().from, (masquerade.outside, 5000));
        assert_eq!(masquerade.ends(ends(1), 5001).unwrap().from.1, 5000, "it leaves as it left before");
        assert!(masquerade.ends(ends(2), 5000).is_err());
        assert!(masquerade.ends(ends(2), 80).is_err());
        assert_eq!(masquerade.ends(ends(2), 5001).unwrap().from.1, 5001);
        assert!(masquerade.ends(elsewhere(3), 5001).is_ok(), "answers tell them apart by the server");
    }

    #[test]
    fn the_ledger_counts_every_place_of_every_run() {
        let mut ledger = Ledger::of_ring(7);
        let mut counted = [0; 7];
        let mut at = 0;
        for packets in [3, 20, 1, 7, 12] {
            ledger.record(at, packets);
            for _ in 0..packets {
                counted[at as usize] += 1;
                at = (at + 1) % 7;
            }
        }
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(|place| ledger.of(place)), counted);
    }
}
