//! TCP seen from the middle (RFC 9293): who has opened, who was heard, who has left.

use sluice_wire::tcp::{ACK, FIN, RST, SYN};

use super::Facts;

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Stage {
    #[default]
    Silent,
    SynSent,
    Established,
    FinSent,
    Closed,
}

#[derive(Debug, Clone, Copy, Default)]
struct Side {
    stage: Stage,
    /// Sequence number that comes after everything this side sent.
    end: u32,
    /// Sequence number that comes after its SYN, without data.
    syn_end: u32,
    /// Largest window it has advertised, before scaling.
    window: u32,
    /// What its SYN offered.
    scale: Option<u8>,
}

impl Side {
    fn sent_syn(facts: &Facts) -> Side {
        // the window of a SYN itself is not scaled (RFC 7323 section 2.2); it is kept in the units of those that follow
        let window = u32::from(facts.tcp_window);
        let window = facts.tcp_scale.map_or(window, |shift| (window >> shift) + u32::from(shift > 0));
        Side {
            stage: Stage::SynSent,
            end: facts.segment_end(),
            syn_end: facts.tcp_seq.wrapping_add(1),
            window,
            scale: facts.tcp_scale,
        }
    }

    /// In bytes; a closed one is probed with one (RFC 9293 section 3.8.6.1).
    fn window_bytes(&self) -> i64 {
        (i64::from(self.window) << self.scale.unwrap_or(0)).max(1)
    }

    /// RFC 9293 section 3.10.7.3; data in a SYN need not be acknowledged with it (RFC 7413 section 4.1.3).
    fn syn_is_acknowledged(&self, ack: u32) -> bool {
        ack.wrapping_sub(self.syn_end) as i32 >= 0 && self.end.wrapping_sub(ack) as i32 >= 0
    }
}

#[derive(Debug, Clone, Default)]
pub struct Tracker {
    sides: [Side; 2],
    /// A reset was seen that its receiver must believe, if it gets it, and nothing since.
    reset: bool,
}

impl Tracker {
    pub fn opened_by(facts: &Facts) -> Tracker {
        if facts.protocol != super::TCP {
            return Tracker::default();
        }
        Tracker { sides: [Side::sent_syn(facts), Side::default()], reset: false }
    }

    pub fn ends(&self) -> [u32; 2] {
        [self.sides[0].end, self.sides[1].end]
    }

    /// A SYN on a connection that both sides have left begins a new one (RFC 9293 section 3.6.1).
    pub fn reopened_by(&self, _side: usize, facts: &Facts) -> bool {
        facts.opens_tcp() && (self.reset || self.sides.iter().all(|side| side.stage == Stage::Closed))
    }

    /// What a later fragment carries comes after what was there.
    pub fn raise(&mut self, side: usize, end: u32) {
        let own = &mut self.sides[side];
        if (end.wrapping_sub(own.end) as i32) > 0 {
            own.end = end;
        }
    }

    /// RFC 9293 section 3.10.7.4 as the middle can tell: not more than the other's window away from what was sent, and an
    /// acknowledgement of what the other has sent (RFC 5961 section 5.2).
    pub fn fits(&self, side: usize, facts: &Facts) -> bool {
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let flag = |bit| facts.tcp_flags & bit != 0;
        if flag(SYN)
            || own.stage == Stage::Silent
            || peer.stage == Stage::Silent
            || self.refuses_call(side, facts)
        {
            return true;
        }
        let distance = i64::from(facts.segment_end().wrapping_sub(own.end) as i32);
        let unacknowledged = i64::from(peer.end.wrapping_sub(facts.tcp_ack) as i32);
        let acknowledges = flag(ACK) && !flag(RST);
        distance.abs() <= peer.window_bytes()
            && (!acknowledges || (0..=own.window_bytes().max(66_000)).contains(&unacknowledged))
    }

    /// A side that is long open has sent a SYN, and the other one acknowledges exactly this.
    fn answers_call(&self, side: usize, facts: &Facts) -> bool {
        let caller = &self.sides[1 - side];
        caller.stage > Stage::SynSent && facts.tcp_ack == caller.syn_end
    }

    /// Whoever knows nothing of the connection resets a SYN with number 0 (RFC 9293 section 3.10.7.1).
    fn refuses_call(&self, side: usize, facts: &Facts) -> bool {
        facts.tcp_flags & (SYN | ACK | RST | FIN) == RST | ACK
            && facts.tcp_seq == 0
            && self.answers_call(side, facts)
    }

    /// Or takes it, and the connection is over; a copy of the old handshake takes nothing.
    pub fn is_left_by(&mut self, side: usize, facts: &Facts) -> bool {
        let own = &self.sides[side];
        let leaves = facts.tcp_flags & (SYN | ACK | RST | FIN) == SYN | ACK
            && own.stage > Stage::SynSent
            && facts.tcp_seq.wrapping_add(1) != own.syn_end
            && self.answers_call(side, facts);
        self.reset |= leaves;
        leaves
    }

    pub fn follow(&mut self, side: usize, facts: &Facts) {
        let flag = |bit| facts.tcp_flags & bit != 0;
        let (mut own, mut peer) = (self.sides[side], self.sides[1 - side]);
        let end = facts.segment_end();
        if flag(RST) {
            // RFC 5961 section 3.2: exactly the next number; RFC 9293 section 3.5.2: in answer to a SYN, its number
            let answers_syn =
                own.stage == Stage::Silent && flag(ACK) && peer.syn_is_acknowledged(facts.tcp_ack);
            let next = own.stage != Stage::Silent && facts.tcp_seq == own.end;
            if answers_syn || next || self.refuses_call(side, facts) {
                self.reset = true;
            }
            return;
        }
        if !flag(SYN) || own.stage <= Stage::SynSent {
            self.reset = false;
        }
        if flag(SYN) {
            if own.stage > Stage::SynSent {
                if facts.opens_tcp() {
                    self.sides[side].syn_end = facts.tcp_seq.wrapping_add(1);
                }
                return; // the end hosts challenge it (RFC 5961 section 4.2)
            }
            if flag(ACK) && self.answers_call(side, facts) {
                peer.end = facts.tcp_ack;
            }
            own = Side::sent_syn(facts);
            // both or neither (RFC 7323 section 1.3)
            if peer.stage != Stage::Silent && (own.scale.is_none() || peer.scale.is_none()) {
                for one in [&mut own, &mut peer] {
                    one.window = (one.window << one.scale.take().unwrap_or(0)).min(65_535);
                }
            }
        } else if (end.wrapping_sub(own.end) as i32) > 0 {
            own.end = end;
        }
        if !flag(SYN) {
            own.window = own.window.max(facts.tcp_window.into());
        }
        if flag(ACK) && peer.stage == Stage::SynSent && peer.syn_is_acknowledged(facts.tcp_ack) {
            peer = Side { stage: Stage::Established, end: facts.tcp_ack, ..peer };
        } else if flag(ACK) && peer.stage == Stage::FinSent && facts.tcp_ack == peer.end {
            peer.stage = Stage::Closed;
        }
        if flag(FIN) && own.stage == Stage::Established && end == own.end {
            own.stage = Stage::FinSent;
        }
        (self.sides[side], self.sides[1 - side]) = (own, peer);
    }
}
