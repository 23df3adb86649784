//! Fragments go where the first of their datagram went.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::{Facts, Model, TCP, Tuple, Unit, Verdict, screens};

/// Zone, source, destination, IPv4 protocol, identification.
type Datagram = (String, IpAddr, IpAddr, u8, u32);

/// Datagrams whose first fragment was seen and whose last pieces were not.
pub type Pieces = HashMap<Datagram, First>;

#[derive(Debug, Clone)]
pub struct First {
    follow: Follow,
    end: usize,
    /// Where what has come ends or begins and nothing that has come goes on; the last fragment's end is none.
    open: BTreeSet<usize>,
    /// Sequence number of the datagram's first byte, if it had one.
    tcp_seq: u32,
}

#[derive(Debug, Clone)]
enum Follow {
    Refused(&'static str),
    /// Direction of the flow, or of the one an ICMP error is about; the session's number.
    Session {
        tuple: Tuple,
        number: usize,
        error: bool,
    },
    Local,
}

/// Why a fragment is dropped without a look at the others.
pub fn refusal(facts: &Facts) -> Option<&'static str> {
    if facts.piece.is_malformed() {
        return Some("fragment_malformed");
    }
    (facts.tiny || screens::rewrites_flags(facts)).then_some("fragment_tiny")
}

/// RFC 8200 section 4.5: IPv6 tells datagrams apart without the protocol.
fn datagram(unit: &Unit, facts: &Facts) -> Datagram {
    let protocol = if facts.source.is_ipv4() { facts.protocol } else { 0 };
    (unit.zone.clone(), facts.source, facts.destination, protocol, facts.piece.id)
}

impl Model {
    pub(super) fn remember_first(&mut self, unit: &Unit, facts: &Facts, verdict: &Result<Verdict, Verdict>) {
        let tuple = match facts.quote {
            Some(quote) if facts.icmp_error => quote.tuple.reversed(),
            _ => facts.tuple(),
        };
        let follow = match (verdict, self.sessions.get(&tuple)) {
            (Err(Verdict::Drop(reason) | Verdict::Reply(reason)), _) => Follow::Refused(reason),
            (_, Some(number)) if !facts.neighbour_discovery => {
                Follow::Session { tuple, number: *number, error: facts.icmp_error }
            }
            _ => Follow::Local,
        };
        let headers = (facts.piece.length as u32).wrapping_sub(facts.tcp_payload);
        let flags = [sluice_wire::tcp::SYN, sluice_wire::tcp::FIN];
        let counted = flags.iter().filter(|flag| facts.tcp_flags & **flag != 0).count() as u32;
        let first = First {
            follow,
            end: facts.piece.length,
            open: BTreeSet::from([facts.piece.length]),
            tcp_seq: facts.tcp_seq.wrapping_sub(headers).wrapping_add(counted),
        };
        self.pieces.insert(datagram(unit, facts), first);
    }

    pub(super) fn follow_first(&mut self, unit: &Unit, facts: &Facts) -> Result<Verdict, Verdict> {
        let key = datagram(unit, facts);
        let first = self.pieces.get_mut(&key).ok_or(Verdict::Drop("fragment_no_first"))?;
        if facts.piece.offset < first.end {
            return Err(Verdict::Drop("fragment_overlap"));
        }
        for end in std::iter::once(facts.piece.offset).chain(facts.piece.more.then(|| facts.piece.end())) {
            if !first.open.remove(&end) {
                first.open.insert(end);
            }
        }
        let first = first.clone();
        if first.open.is_empty() {
            self.pieces.remove(&key);
        }
        match first.follow {
            Follow::Refused(reason) => Err(Verdict::Drop(reason)),
            Follow::Local => Ok(Verdict::Local),
            Follow::Session { tuple, number, error } => {
                let end = first.tcp_seq.wrapping_add(facts.piece.end() as u32);
                self.follow_session(unit, facts, tuple, number, (!error).then_some(end))
            }
        }
    }

    /// `tcp_end` is where the sender's sequence numbers have come to; ICMP errors move none.
    fn follow_session(
        &mut self,
        unit: &Unit,
        facts: &Facts,
        tuple: Tuple,
        number: usize,
        tcp_end: Option<u32>,
    ) -> Result<Verdict, Verdict> {
        if self.sessions.get(&tuple) != Some(&number) {
            return Err(Verdict::Drop("fragment_no_first"));
        }
        let Some((opener, session)) = self.records.get_mut(&number) else {
            return Err(Verdict::Drop("fragment_no_first"));
        };
        let side = usize::from(*opener != tuple);
        if session.zones[side] != unit.zone {
            return Err(Verdict::Drop("session_zone"));
        }
        if let Some(end) = tcp_end.filter(|_| tuple.protocol == TCP) {
            session.tcp.raise(side, end);
        }
        if session.to_host && side == 0 {
            return Ok(Verdict::Local);
        }
        let later = Facts { protocol: tuple.protocol, ..facts.clone() };
        self.hop(&later)?;
        self.route(tuple.destination, &later)
    }
}
