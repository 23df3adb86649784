//! A plain NAT: a list of rules, a map of sessions, a clock that is told. Which port is given is not its business, only
//! whether it may be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// A direction of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tuple {
    /// As in the IP header.
    pub source: IpAddr,
    /// Source port.
    pub sport: u16,
    /// As in the IP header.
    pub destination: IpAddr,
    /// Destination port.
    pub dport: u16,
    /// IP protocol number.
    pub protocol: u8,
}

impl Tuple {
    /// What the other side sends.
    pub fn reversed(self) -> Tuple {
        Tuple {
            source: self.destination,
            sport: self.dport,
            destination: self.source,
            dport: self.sport,
            protocol: self.protocol,
        }
    }
}

/// What a rule makes of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It stays as it is.
    Off,
    /// Addresses and ports, inclusive; a source has one of the addresses where `paired`.
    Pool {
        /// Any of them.
        addresses: Vec<IpAddr>,
        /// First and last.
        ports: (u16, u16),
        /// A source keeps its address.
        paired: bool,
    },
    /// Addresses; the port stays.
    Whole {
        /// Any of them.
        addresses: Vec<IpAddr>,
    },
}

/// What a packet may become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Exactly this.
    Exactly(Tuple),
    /// A new session: destination as here, the source one of those that are free.
    OneOf(Tuple, Source),
    /// Nothing is free.
    Exhausted,
    /// No session, and the policies permit none.
    Refused,
}

#[derive(Debug, Clone)]
struct Session {
    translated: Tuple,
    touched: u64,
    /// Opened from outside.
    outside: bool,
}

/// The sessions that should be there, and what made them.
#[derive(Debug, Default)]
pub struct Nat {
    /// First match by destination.
    pub sources: Vec<(Vec<(IpAddr, IpAddr)>, Source)>,
    /// Outside address and port to an inside one.
    pub published: BTreeMap<(IpAddr, u16, u8), (IpAddr, u16)>,
    /// Outside to inside, one to one.
    pub statics: BTreeMap<IpAddr, IpAddr>,
    sessions: BTreeMap<Tuple, Session>,
    /// By what the responder sends.
    answers: BTreeMap<Tuple, Tuple>,
    pairs: BTreeMap<IpAddr, IpAddr>,
    /// Seconds; virtual.
    pub now: u64,
}

impl Nat {
    /// Live ones.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// A packet of a side: `outside` has it arrive from the responders' side.
    pub fn wants(&self, packet: Tuple, outside: bool) -> Wanted {
        if let Some(session) = self.sessions.get(&packet) {
            return Wanted::Exactly(session.translated);
        }
        if let Some(original) = self.answers.get(&packet) {
            return Wanted::Exactly(original.reversed());
        }
        if outside { self.opened_outside(packet) } else { self.opened_inside(packet) }
    }

    fn opened_outside(&self, packet: Tuple) -> Wanted {
        let published = self.published.get(&(packet.destination, packet.dport, packet.protocol));
        let inside = self.statics.get(&packet.destination).map(|inside| (*inside, packet.dport));
        match inside.or(published.copied()) {
            Some((destination, dport)) => Wanted::Exactly(Tuple { destination, dport, ..packet }),
            None => Wanted::Refused,
        }
    }

    fn opened_inside(&self, packet: Tuple) -> Wanted {
        let fixed = self.statics.iter().find(|(_, inside)| **inside == packet.source);
        if let Some((outside, _)) = fixed {
            return Wanted::Exactly(Tuple { source: *outside, ..packet });
        }
        let within = |ranges: &[(IpAddr, IpAddr)]| {
            ranges.iter().any(|(low, high)| (low..=high).contains(&&packet.destination))
        };
        let rule = self.sources.iter().find(|(ranges, _)| within(ranges));
        match rule.map(|(_, source)| source) {
            None | Some(Source::Off) => Wanted::Exactly(packet),
            Some(source) => match self.free(packet, source) {
                0 => Wanted::Exhausted,
                _ => Wanted::OneOf(packet, source.clone()),
            },
        }
    }

    fn taken(&self, packet: Tuple, address: IpAddr, port: u16) -> bool {
        let answer = Tuple { source: address, sport: port, ..packet }.reversed();
        self.answers.contains_key(&answer) || self.sessions.contains_key(&answer)
    }

    /// How many translations are free toward a destination.
    fn free(&self, packet: Tuple, source: &Source) -> usize {
        let (addresses, ports) = match source {
            Source::Off => return 1,
            Source::Pool { addresses, ports, .. } => (addresses, *ports),
            Source::Whole { addresses } => (addresses, (packet.sport, packet.sport)),
        };
        let paired = matches!(source, Source::Pool { paired: true, .. });
        let own = self.pairs.get(&packet.source).filter(|own| paired && addresses.contains(own));
        let addresses = own.map_or(addresses.as_slice(), std::slice::from_ref);
        // large ranges are never full here
        if ports.1 - ports.0 > 1000 {
            return 1;
        }
        let all = addresses.iter().flat_map(|address| (ports.0..=ports.1).map(move |port| (*address, port)));
        all.filter(|(address, port)| !self.taken(packet, *address, *port)).count()
    }

    /// Takes note of what became of a packet; an error says why that may not be.
    pub fn seen(
        &mut self,
        packet: Tuple,
        outside: bool,
        wanted: &Wanted,
        became: Tuple,
    ) -> Result<(), String> {
        match wanted {
            Wanted::Exhausted | Wanted::Refused => return Err(format!("{became:?} was let through")),
            Wanted::Exactly(exactly) if became != *exactly => {
                return Err(format!("became {became:?}, not {exactly:?}"));
            }
            Wanted::Exactly(_) => {}
            Wanted::OneOf(shape, source) => self.is_legal(*shape, source, became)?,
        }
        let key = self.answers.get(&packet).copied().unwrap_or(packet);
        let now = self.now;
        let session =
            self.sessions.entry(key).or_insert(Session { translated: became, touched: now, outside });
        session.touched = now;
        let answer = session.translated.reversed();
        self.answers.insert(answer, key);
        Ok(())
    }

    fn is_legal(&mut self, shape: Tuple, source: &Source, became: Tuple) -> Result<(), String> {
        let rest = Tuple { source: became.source, sport: became.sport, ..shape };
        if became != rest {
            return Err(format!("{became:?} changed more than its source"));
        }
        if self.taken(shape, became.source, became.sport) {
            return Err(format!("{became:?} belongs to another session already"));
        }
        let (addresses, ports, paired) = match source {
            Source::Off => return Ok(()),
            Source::Whole { addresses } => (addresses, (shape.sport, shape.sport), false),
            Source::Pool { addresses, ports, paired } => (addresses, *ports, *paired),
        };
        if !addresses.contains(&became.source) || became.sport < ports.0 || became.sport > ports.1 {
            return Err(format!("{became:?} is none of the pool's"));
        }
        if paired && *self.pairs.entry(shape.source).or_insert(became.source) != became.source {
            return Err(format!("{became:?} has another address than its source had before"));
        }
        Ok(())
    }

    /// Time passes; what was idle for longer than its protocol may be ends.
    pub fn sleep(&mut self, seconds: u64, timeout: impl Fn(u8) -> u64) -> usize {
        self.now += seconds;
        let now = self.now;
        let idle = |(key, session): (&Tuple, &Session)| {
            (now - session.touched > timeout(key.protocol)).then_some(*key)
        };
        let over: BTreeSet<Tuple> = self.sessions.iter().filter_map(idle).collect();
        for key in &over {
            self.sessions.remove(key);
        }
        self.answers.retain(|_, key| !over.contains(key));
        over.len()
    }

    /// Every session ends.
    pub fn clear(&mut self) {
        self.sessions.clear();
        self.answers.clear();
    }

    /// What the responder of a session sends, and whether that comes from outside.
    pub fn answer(&self, number: usize) -> Option<(Tuple, bool)> {
        let (answer, key) = self.answers.iter().nth(number)?;
        Some((*answer, !self.sessions[key].outside))
    }
}
