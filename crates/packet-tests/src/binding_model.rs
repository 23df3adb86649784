//! A plain NAT with endpoint-independent mapping and filtering (RFC 4787 4.1, 5; RFC 6146 3.1): a map of bindings, a map
//! of sessions, a clock that is told. One outside address; which of its ports is given is not its business, only
//! whether it may be.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Address and port.
pub type Endpoint = (IpAddr, u16);

/// What the rule of a host inside says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `any-remote-host`: whoever sends to the outside endpoint reaches it.
    AnyHost,
    /// `target-host`: hosts it has sent to.
    TargetHost,
    /// `target-host-port`: hosts and ports it has sent to.
    TargetPort,
    /// No persistent-nat: a port for each session, free toward its destination.
    Plain,
}

/// Whom a binding remembers to have sent to.
const PEERS: usize = sluice_abi::NAT_BINDING_PEERS as usize;

#[derive(Debug, Clone)]
struct Binding {
    port: u16,
    last_used: u64,
    peers: Vec<Endpoint>,
}

/// Both ends as the hosts themselves know them.
type Session = (Endpoint, Endpoint);

#[derive(Debug, Clone, Copy)]
struct Live {
    touched: u64,
    /// Outside port, of sessions without a binding.
    port: Option<u16>,
}

/// What must become of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Source and destination.
    Exactly(Endpoint, Endpoint),
    /// This destination, and as source the outside address with any port that may be given.
    Free(Endpoint),
    /// It may not pass.
    Dropped,
    /// No port may be given.
    Full,
}

/// The bindings and sessions that should be there.
pub struct Model {
    /// The only outside address.
    pub outside: IpAddr,
    /// Ports that may be given, first and last.
    pub ports: (u16, u16),
    /// The rule for a host inside; None = no rule is for it.
    pub rule: fn(IpAddr) -> Option<Rule>,
    /// `max-session-number`, of one binding.
    pub most_sessions: usize,
    /// Seconds after which a binding without a session ends.
    pub binding_s: u64,
    /// Seconds after which an idle session ends.
    pub session_s: u64,
    bindings: BTreeMap<Endpoint, Binding>,
    sessions: BTreeMap<Session, Live>,
    now: u64,
}

impl Model {
    /// With the limits that most tests use.
    pub fn new(outside: IpAddr, ports: (u16, u16), rule: fn(IpAddr) -> Option<Rule>) -> Model {
        Model {
            outside,
            ports,
            rule,
            most_sessions: 8,
            binding_s: 2_500,
            session_s: 1_500,
            bindings: BTreeMap::new(),
            sessions: BTreeMap::new(),
            now: 0,
        }
    }

    /// Live ones.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Live ones.
    pub fn bindings(&self) -> usize {
        self.bindings.len()
    }

    fn bound_to(&self, port: u16) -> Option<Endpoint> {
        self.bindings.iter().find(|(_, binding)| binding.port == port).map(|(inside, _)| *inside)
    }

    fn live(&self, a: Endpoint, b: Endpoint) -> Option<Session> {
        [(a, b), (b, a)].into_iter().find(|key| self.sessions.contains_key(key))
    }

    /// Sessions that a binding has.
    fn count(&self, inside: Endpoint) -> usize {
        let of =
            |(key, live): &(&Session, &Live)| live.port.is_none() && (key.0 == inside || key.1 == inside);
        self.sessions.iter().filter(of).count()
    }

    /// The endpoint by which others know this one.
    fn known_as(&self, inside: Endpoint) -> Endpoint {
        self.bindings.get(&inside).map_or(inside, |binding| (self.outside, binding.port))
    }

    /// Ports that a session toward `to` has which has no binding.
    fn plain_has(&self, port: u16, to: Endpoint) -> bool {
        self.sessions.iter().any(|(key, live)| live.port == Some(port) && key.1 == to)
    }

    fn may_have(&self, port: u16, to: Endpoint) -> bool {
        let range = port >= self.ports.0 && port <= self.ports.1;
        range && self.bound_to(port).is_none() && !self.plain_has(port, to)
    }

    /// What a packet shall become; `from` is a host inside or, with `outside`, one outside.
    pub fn wants(&self, from: Endpoint, to: Endpoint, outside: bool) -> Wanted {
        if to.0 != self.outside {
            return self.leaves(from, to, to);
        }
        // the answer to a session that has a port of its own
        let plain = self.sessions.iter().find(|(key, live)| live.port == Some(to.1) && key.1 == from);
        if let Some(((inside, _), _)) = plain {
            return Wanted::Exactly(from, *inside);
        }
        let Some(inside) = self.bound_to(to.1) else { return Wanted::Dropped };
        if self.live(from, inside).is_none() {
            let seen = self.known_as(from);
            let peers = &self.bindings[&inside].peers;
            let permitted = match (self.rule)(inside.0) {
                Some(Rule::AnyHost) => true,
                Some(Rule::TargetHost) => peers.iter().any(|peer| peer.0 == seen.0),
                _ => peers.contains(&seen),
            };
            if !permitted || self.count(inside) >= self.most_sessions {
                return Wanted::Dropped;
            }
        }
        if outside { Wanted::Exactly(from, inside) } else { self.leaves(from, to, inside) }
    }

    /// Toward `to` as it is asked for, which is `really`.
    fn leaves(&self, from: Endpoint, to: Endpoint, really: Endpoint) -> Wanted {
        if let Some(live) = self.live(from, really).map(|key| self.sessions[&key]) {
            let source = live.port.map_or_else(|| self.known_as(from), |port| (self.outside, port));
            return Wanted::Exactly(source, really);
        }
        let free = (self.ports.0..=self.ports.1).any(|port| self.may_have(port, to));
        let bound = self.bindings.get(&from);
        match bound {
            // somebody else's session has the port toward this one destination
            Some(binding) if self.plain_has(binding.port, to) => Wanted::Dropped,
            Some(_) if self.count(from) >= self.most_sessions => Wanted::Dropped,
            Some(binding) => Wanted::Exactly((self.outside, binding.port), really),
            // a rule without persistent-nat does not speak of hairpin packets
            None if really != to && (self.rule)(from.0) == Some(Rule::Plain) => Wanted::Exactly(from, really),
            None if free => Wanted::Free(really),
            None => Wanted::Full,
        }
    }

    /// Takes note of what became of a packet; an error says why that may not be.
    pub fn seen(
        &mut self,
        from: Endpoint,
        to: Endpoint,
        wanted: &Wanted,
        became: (Endpoint, Endpoint),
    ) -> Result<(), String> {
        match wanted {
            Wanted::Dropped | Wanted::Full => return Err(format!("became {became:?}, not dropped")),
            Wanted::Exactly(source, really) if became != (*source, *really) => {
                return Err(format!("became {became:?}, not {source:?} to {really:?}"));
            }
            Wanted::Free(really)
                if became.1 != *really || became.0.0 != self.outside || !self.may_have(became.0.1, to) =>
            {
                return Err(format!("became {became:?}, which may not be given toward {really:?}"));
            }
            _ => {}
        }
        let (source, really) = became;
        let key = self.live(from, really).unwrap_or((from, really));
        let new = !self.sessions.contains_key(&key);
        let plain = (self.rule)(from.0) == Some(Rule::Plain);
        let port = (plain && source.0 == self.outside).then_some(source.1);
        let now = self.now;
        self.sessions.entry(key).or_insert(Live { touched: now, port }).touched = now;
        if !new {
            return Ok(());
        }
        if let Some(other) = self.bindings.get_mut(&really) {
            other.last_used = now;
        }
        if source.0 == self.outside && !plain {
            let fresh = Binding { port: source.1, last_used: now, peers: vec![] };
            let binding = self.bindings.entry(from).or_insert(fresh);
            binding.last_used = now;
            // a port matters where the rule says so
            let peer = if (self.rule)(from.0) == Some(Rule::TargetPort) { to } else { (to.0, 0) };
            if !binding.peers.contains(&peer) {
                binding.peers.push(peer);
            }
            if binding.peers.len() > PEERS {
                binding.peers.remove(0);
            }
        }
        Ok(())
    }

    /// Time passes, then idle sessions end, then bindings that had none for too long. Says how many sessions ended.
    pub fn sleep(&mut self, seconds: u64) -> usize {
        self.now += seconds;
        let (now, limit) = (self.now, self.session_s);
        for (a, b) in self.sessions.keys() {
            for end in [a, b] {
                if let Some(binding) = self.bindings.get_mut(end) {
                    binding.last_used = now;
                }
            }
        }
        let before = self.sessions.len();
        self.sessions.retain(|_, live| now - live.touched <= limit);
        let busy: Vec<bool> = self.bindings.keys().map(|inside| self.count(*inside) > 0).collect();
        let mut busy = busy.into_iter();
        let limit = self.binding_s;
        self.bindings
            .retain(|_, binding| busy.next().unwrap_or_default() || now - binding.last_used <= limit);
        before - self.sessions.len()
    }
}
