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
}

#[derive(Debug, Clone, Default)]
pub struct Tracker([Side; 2]);

impl Tracker {
    pub fn opened_by(facts: &Facts) -> Tracker {
        if facts.protocol != super::TCP {
            return Tracker::default();
        }
        Tracker([Side { stage: Stage::SynSent, end: facts.segment_end() }, Side::default()])
    }

    pub fn ends(&self) -> [u32; 2] {
        [self.0[0].end, self.0[1].end]
    }

    /// A SYN on a connection that both sides have left begins a new one (RFC 9293 section 3.6.1).
    pub fn reopened_by(&self, _side: usize, facts: &Facts) -> bool {
        facts.opens_tcp() && self.0.iter().all(|side| side.stage == Stage::Closed)
    }

    pub fn follow(&mut self, side: usize, facts: &Facts) {
        let flag = |bit| facts.tcp_flags & bit != 0;
        let (mut own, mut peer) = (self.0[side], self.0[1 - side]);
        let end = facts.segment_end();
        if flag(RST) {
            // RFC 5961 section 3.2: exactly the next number; RFC 9293 section 3.5.2: in answer to a SYN, its number
            let answers_syn = own.stage == Stage::Silent && flag(ACK) && facts.tcp_ack == peer.end;
            if answers_syn || own.stage != Stage::Silent && facts.tcp_seq == own.end {
                self.0.iter_mut().for_each(|side| side.stage = Stage::Closed);
            }
            return;
        }
        if flag(SYN) {
            if own.stage > Stage::SynSent {
                return; // the end hosts challenge it (RFC 5961 section 4.2)
            }
            own = Side { stage: Stage::SynSent, end };
        } else if (end.wrapping_sub(own.end) as i32) > 0 {
            own.end = end;
        }
        if flag(ACK) && facts.tcp_ack == peer.end {
            peer.stage = match peer.stage {
                Stage::SynSent => Stage::Established,
                Stage::FinSent => Stage::Closed,
                other => other,
            };
        }
        if flag(FIN) && own.stage == Stage::Established && end == own.end {
            own.stage = Stage::FinSent;
        }
        (self.0[side], self.0[1 - side]) = (own, peer);
    }
}
