//! Sessions of a stateful NAT64, written from RFC 6146: bindings (BIB entries), sessions with their lifetimes, and the
//! state machine of TCP, in a clock that is told. Which port is given is not its business, only whether it may be.
//!
//! Where we differ from the RFC on purpose, the difference has a letter here and a row in docs/nat-compliance.md:
//! - A: a binding belongs to one session (3.5.1.1 shares it between all of an IPv6 endpoint): a port is taken toward one
//!   IPv4 endpoint, not toward all. Filtering is by address and port, so IPv4 opens nothing (3.5.1.2, 3.5.2.2).
//! - B: TCP is ESTABLISHED with the client's ACK, not with the server's SYN (3.5.2.2, V6 INIT): a SYN alone, forged or
//!   not, gives nobody two hours.
//! - C: the short lifetime of two FINs begins when both are acknowledged (3.5.2.2, V4 FIN + V6 FIN RCV).
//! - D: a reset counts where the receiver believes it (RFC 5961 3.2); a packet after it brings the session back to where it
//!   was (3.5.2.2, TRANS: to ESTABLISHED), and a client's SYN begins a new one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{ICMP, TCP, UDP};

/// Address and port, or identifier of an echo.
pub type Transport6 = (Ipv6Addr, u16);
/// Address and port, or identifier of an echo.
pub type Transport4 = (Ipv4Addr, u16);

/// What a TCP packet says, for the state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment {
    /// SYN alone.
    Syn,
    /// SYN and ACK.
    SynAck,
    /// With or without data; it acknowledges everything.
    Ack,
    /// FIN, whatever else.
    Fin,
    /// RST, whatever else.
    Rst,
}

/// States of 3.5.2.2; CLOSED is the absence of a session. `acked` says which FINs the other side has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The client's SYN was seen.
    V6Init,
    /// The server's SYN was seen: the RFC's ESTABLISHED already (B).
    V4Syn,
    /// Both SYNs were seen.
    Established,
    /// FINs of the IPv6 and the IPv4 side, and whether they were acknowledged.
    FinRcv {
        /// From the IPv6 side, from the IPv4 side.
        fin: [bool; 2],
        /// The FIN of the same index was acknowledged.
        acked: [bool; 2],
    },
    /// Closed by both sides, or reset, and not yet forgotten.
    Trans,
}

/// Seconds (section 4).
#[derive(Debug, Clone, Copy)]
pub struct Lifetimes {
    /// UDP_MIN or longer.
    pub udp: u64,
    /// Of ICMP queries.
    pub icmp: u64,
    /// TCP_EST
    pub tcp_established: u64,
    /// TCP_TRANS
    pub tcp_transitory: u64,
}

/// 3.1: a session, and its binding (A).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// What the client appears as.
    pub outside: Transport4,
    /// Of TCP; it means nothing for other protocols.
    pub state: State,
    expires: u64,
    /// A reset was seen, and nothing since.
    pub reset: bool,
}

/// Protocol, the client's transport address, the server's.
pub type Key = (u8, Transport6, Transport4);

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves with, or for, this outside transport address.
    As(Transport4),
    /// To the client.
    To(Transport6),
    /// A new session, with whatever transport address is free.
    New,
    /// A new session, but every port is taken toward this server.
    Full,
    /// No session, and none may be opened by it.
    Filtered,
}

/// Sessions by the state machine of section 3.5.
#[derive(Debug)]
pub struct Nat64 {
    /// The only outside address.
    pub address: Ipv4Addr,
    /// Inclusive.
    pub ports: (u16, u16),
    /// Of the state machine's timers.
    pub lifetimes: Lifetimes,
    sessions: BTreeMap<Key, Session>,
    now: u64,
}

impl Nat64 {
    /// `ports` inclusive.
    pub fn new(address: Ipv4Addr, ports: (u16, u16), lifetimes: Lifetimes) -> Nat64 {
        Nat64 { address, ports, lifetimes, sessions: BTreeMap::new(), now: 0 }
    }

    /// Those that have not expired.
    pub fn sessions(&self) -> &BTreeMap<Key, Session> {
        &self.sessions
    }

    fn by_outside(&self, protocol: u8, outside: Transport4, server: Transport4) -> Option<Key> {
        let found = self
            .sessions
            .iter()
            .find(|((p, _, peer), session)| *p == protocol && *peer == server && session.outside == outside);
        found.map(|(key, _)| *key)
    }

    /// A packet from IPv6 (3.5.1.1, 3.5.2.2, 3.5.3.1).
    pub fn from6(&self, key: Key, segment: Option<Segment>) -> Verdict {
        match self.sessions.get(&key) {
            // D: what was over begins anew
            Some(session)
                if (session.reset || session.state == State::Trans) && segment == Some(Segment::Syn) => {}
            Some(session) => return Verdict::As(session.outside),
            None => {}
        }
        // 3.5.2.2, CLOSED: only a SYN opens; of the other protocols, every packet does
        if segment.is_some_and(|segment| segment != Segment::Syn) {
            return Verdict::Filtered;
        }
        let own = self.sessions.get(&key).map(|session| session.outside);
        let free = |port: u16| {
            let outside = (self.address, port);
            own == Some(outside) || self.by_outside(key.0, outside, key.2).is_none()
        };
        if (self.ports.0..=self.ports.1).any(free) { Verdict::New } else { Verdict::Full }
    }

    /// A packet from IPv4 (3.5.1.2, 3.5.2.2, 3.5.3.2).
    pub fn from4(&self, protocol: u8, server: Transport4, outside: Transport4) -> Verdict {
        match self.by_outside(protocol, outside, server) {
            Some((_, client, _)) => Verdict::To(client),
            None => Verdict::Filtered,
        }
    }

    /// A session was opened with a transport address; an error says why it may not have that.
    pub fn opened(&mut self, key: Key, outside: Transport4) -> Result<(), String> {
        self.sessions.remove(&key);
        if outside.0 != self.address || !(self.ports.0..=self.ports.1).contains(&outside.1) {
            return Err(format!("{outside:?} is none of the pool's"));
        }
        if let Some(other) = self.by_outside(key.0, outside, key.2) {
            return Err(format!("{outside:?} belongs to {other:?} toward that server"));
        }
        let session = Session { outside, state: State::V6Init, expires: 0, reset: false };
        self.sessions.insert(key, session);
        self.refresh(key);
        Ok(())
    }

    /// An opening packet found nothing free; a session that was over is gone all the same (D).
    pub fn not_opened(&mut self, key: Key) {
        self.sessions.remove(&key);
    }

    /// A packet of a session was translated.
    pub fn passed(&mut self, key: Key, from6: bool, segment: Option<Segment>) {
        if let (Some(session), Some(segment)) = (self.sessions.get_mut(&key), segment) {
            session.follow(usize::from(!from6), segment);
        }
        self.refresh(key);
    }

    /// 3.5.1, 3.5.3: every packet of a session renews its lifetime; 3.5.2.2: with TCP as its state says.
    fn refresh(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(&key) else { return };
        let lifetime = match (key.0, session.state) {
            (TCP, _) if session.reset => self.lifetimes.tcp_transitory,
            (UDP, _) => self.lifetimes.udp,
            (ICMP, _) => self.lifetimes.icmp,
            (_, State::Established) => self.lifetimes.tcp_established,
            // one FIN, or two that wait for their acknowledgements (C)
            (_, State::FinRcv { .. }) => self.lifetimes.tcp_established,
            (_, State::V6Init | State::V4Syn | State::Trans) => self.lifetimes.tcp_transitory,
        };
        session.expires = self.now + lifetime;
    }

    /// Time passes; sessions whose lifetime is over end, and their bindings with them. How many.
    pub fn sleep(&mut self, seconds: u64) -> usize {
        self.now += seconds;
        let (before, now) = (self.sessions.len(), self.now);
        self.sessions.retain(|_, session| session.expires >= now);
        before - self.sessions.len()
    }

    /// Every session ends.
    pub fn clear(&mut self) {
        self.sessions.clear();
    }
}

impl Session {
    fn follow(&mut self, side: usize, segment: Segment) {
        let opening = matches!(self.state, State::V6Init | State::V4Syn);
        match segment {
            Segment::Rst => self.reset = true,
            Segment::SynAck if !opening => {}
            _ => {
                self.reset = false;
                self.state = self.state.after(side, segment);
            }
        }
    }
}

impl State {
    /// 3.5.2.2, of a packet of side 0 (IPv6) or 1 (IPv4).
    pub fn after(self, side: usize, segment: Segment) -> State {
        use State::{Established, FinRcv, Trans, V4Syn, V6Init};
        match (self, segment) {
            (Trans, _) => Trans,
            (V6Init, Segment::SynAck) if side == 1 => V4Syn,
            (V4Syn, Segment::Ack) if side == 0 => Established,
            (V6Init | V4Syn, _) => self,
            (Established, Segment::Fin) => FinRcv { fin: [side == 0, side == 1], acked: [false; 2] },
            (Established, _) => Established,
            (FinRcv { mut fin, mut acked }, _) => {
                acked[1 - side] |= fin[1 - side];
                fin[side] |= segment == Segment::Fin;
                if acked == [true; 2] { Trans } else { FinRcv { fin, acked } }
            }
        }
    }
}

/// Names of protocols in keys are those of IPv4.
pub const PROTOCOLS: [u8; 3] = [TCP, UDP, ICMP];

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIMES: Lifetimes = Lifetimes { udp: 300, icmp: 60, tcp_established: 7440, tcp_transitory: 240 };
    const CLIENT: Transport6 = (Ipv6Addr::LOCALHOST, 5);
    const SERVER: Transport4 = (Ipv4Addr::new(192, 0, 2, 1), 80);
    const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

    /// 3.5.2.2: a connection from its first SYN to the last ACK, with the lifetime of each state.
    #[test]
    fn a_connection_walks_through_its_states() {
        use Segment::{Ack, Fin, Syn, SynAck};
        let mut nat = Nat64::new(OUTSIDE, (7, 7), LIFETIMES);
        let key = (TCP, CLIENT, SERVER);
        assert_eq!(nat.from6(key, Some(Ack)), Verdict::Filtered);
        assert_eq!(nat.from6(key, Some(Syn)), Verdict::New);
        nat.opened(key, (OUTSIDE, 7)).unwrap();
        let steps = [
            (false, SynAck, 240),
            (true, Ack, 7440),
            (false, Ack, 7440),
            (true, Fin, 7440),
            (false, Fin, 7440),
            (true, Ack, 240),
        ];
        for (from6, segment, lifetime) in steps {
            nat.passed(key, from6, Some(segment));
            assert_eq!(nat.sessions()[&key].expires, lifetime, "{segment:?}");
        }
        assert_eq!((nat.sleep(240), nat.sleep(1)), (0, 1));
        assert_eq!(nat.from4(TCP, SERVER, (OUTSIDE, 7)), Verdict::Filtered);
    }

    #[test]
    fn a_port_serves_one_session_a_server() {
        let mut nat = Nat64::new(OUTSIDE, (7, 7), LIFETIMES);
        let (first, second) = ((UDP, CLIENT, SERVER), (UDP, (CLIENT.0, 6), SERVER));
        nat.opened(first, (OUTSIDE, 7)).unwrap();
        assert_eq!(nat.from6(second, None), Verdict::Full);
        assert!(nat.opened(second, (OUTSIDE, 7)).is_err() && nat.opened(second, (OUTSIDE, 8)).is_err());
        assert_eq!(nat.from6((UDP, CLIENT, (SERVER.0, 81)), None), Verdict::New);
        assert_eq!(nat.from4(UDP, SERVER, (OUTSIDE, 7)), Verdict::To(CLIENT));
        assert_eq!(nat.from4(UDP, (SERVER.0, 81), (OUTSIDE, 7)), Verdict::Filtered);
    }
}
