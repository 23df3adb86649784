//! The sweep: ends sessions that were idle for too long, keeps epochs and packet counters from wrapping unseen, and
//! finds next hops that nobody uses.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use serde::Serialize;
use sluice_abi::{
    FLOW_LIVE, FlowShared, FlowState, MAX_NEXTHOPS, ReapEntry, TCP_DIR_CLOSED, TCP_DIR_ESTABLISHED,
    TCP_DIR_FIN, TIMEOUT_NEVER_S,
};

use crate::Dataplane;
use crate::error::Result;
use crate::reaper::{Reap, Reaper};
use crate::records::{FlowTable, Line};
use crate::sessions::{Session, age};

/// Epochs farther back than this are brought near the current one, so that the 16 bits never come round to it.
const OLDEST_EPOCH: u16 = 0x4000;

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Idle times after which sessions end, in seconds. Defaults are those of Junos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub tcp_initial_s: u32,
    pub tcp_established_s: u32,
    /// One side has said FIN.
    pub tcp_closing_s: u32,
    /// Both sides have, or a reset was seen.
    pub tcp_closed_s: u32,
    pub udp_s: u32,
    pub icmp_s: u32,
    pub other_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_initial_s: 20,
            tcp_established_s: 1800,
            tcp_closing_s: 150,
            tcp_closed_s: 2,
            udp_s: 60,
            icmp_s: 60,
            other_s: 60,
        }
    }
}

impl Timeouts {
    /// `own_s` is the application's inactivity-timeout (0 = none, `TIMEOUT_NEVER_S` = the session stays); it never
    /// prolongs opening or closing of TCP.
    pub fn of(&self, protocol: u8, tcp_states: [u8; 2], own_s: u32) -> u32 {
        let or_own = |default: u32| match own_s {
            0 => default,
            never if never == u32::from(TIMEOUT_NEVER_S) => u32::MAX,
            own_s => own_s,
        };
        match protocol {
            TCP if tcp_states == [TCP_DIR_CLOSED; 2] => self.tcp_closed_s,
            TCP if tcp_states.iter().any(|state| *state >= TCP_DIR_FIN) => self.tcp_closing_s,
            TCP if tcp_states == [TCP_DIR_ESTABLISHED; 2] => or_own(self.tcp_established_s),
            TCP => self.tcp_initial_s,
            UDP => or_own(self.udp_s),
            ICMP | ICMP6 => or_own(self.icmp_s),
            _ => or_own(self.other_s),
        }
    }

    /// Of a session as it is now.
    pub fn of_session(&self, session: &Session) -> u32 {
        let states = [session.initiator.tcp_state, session.responder.tcp_state];
        self.of(session.protocol(), states, session.timeout_s)
    }
}

/// What one sweep found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SweepReport {
    /// Sessions that remain.
    pub live4: u32,
    pub live6: u32,
    pub expired4: u32,
    pub expired6: u32,
    /// Lines whose epoch was brought near the current one.
    pub aged: u32,
}

#[derive(Debug, Default)]
struct Counts {
    live: u32,
    expired: u32,
    aged: u32,
}

struct Sweep<'a> {
    now: u64,
    hz: u64,
    epoch: u16,
    timeouts: &'a Timeouts,
    reaper: &'a Reaper,
}

impl Dataplane {
    /// Ends every session that was idle for longer than its timeout at `now` ([`Dataplane::now_jiffies`]). Call it at
    /// least once a minute, and before 2^31 packets of one flow: it carries the packet counters.
    pub fn sweep(&self, now: u64, timeouts: &Timeouts) -> Result<SweepReport> {
        let (hz, epoch) = (self.hz().into(), self.epoch());
        let sweep = Sweep { now, hz, epoch, timeouts, reaper: &self.reaper };
        let (four, six) = (sweep.run(&self.flows4)?, sweep.run(&self.flows6)?);
        Ok(SweepReport {
            live4: four.live,
            live6: six.live,
            expired4: four.expired,
            expired6: six.expired,
            aged: four.aged + six.aged,
        })
    }

    /// One bit a next hop: whether a live flow refers to it.
    pub(crate) fn nexthops_in_use(&self) -> Vec<bool> {
        let mut used = vec![false; MAX_NEXTHOPS];
        mark_nexthops(&self.flows4, &mut used);
        mark_nexthops(&self.flows6, &mut used);
        used
    }
}

fn mark_nexthops<L: Line>(table: &FlowTable<L>, used: &mut [bool]) {
    for line in table.numbers().flat_map(|number| [2 * number, 2 * number + 1]) {
        let state = table.state(line);
        if state.flags & FLOW_LIVE != 0 {
            used[usize::from(state.nexthop)] = true;
        }
    }
}

impl Sweep<'_> {
    fn run<L: Line>(&self, table: &FlowTable<L>) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut idle = Vec::new();
        for number in table.numbers() {
            let states = [table.state(2 * number), table.state(2 * number + 1)];
            if states.iter().any(|state| state.flags & FLOW_LIVE == 0) {
                continue;
            }
            counts.live += 1;
            if self.is_expired(table, number, &states) {
                idle.push(ReapEntry {
                    line: 2 * number,
                    tag: states[0].tag,
                    last_seen: states.map(|state| state.last_seen),
                });
                continue;
            }
            counts.aged += self.age_epochs(table, number, &states);
            carry_packets(table, number, &states);
        }
        counts.expired = self.reaper.reap(L::FAMILY, &idle, Reap::WhileIdle)?;
        counts.live -= counts.expired;
        Ok(counts)
    }

    fn is_expired<L: Line>(&self, table: &FlowTable<L>, number: u32, states: &[FlowState; 2]) -> bool {
        let idle = age(self.now, states[0].last_seen).min(age(self.now, states[1].last_seen));
        let protocol = L::protocol(&table.key(2 * number));
        let own_s = table.shared.read_field(number, offset_of!(FlowShared, timeout_s));
        let limit_s = self.timeouts.of(protocol, [states[0].tcp_state, states[1].tcp_state], own_s);
        u64::from(idle) > u64::from(limit_s) * self.hz
    }

    fn age_epochs<L: Line>(&self, table: &FlowTable<L>, number: u32, states: &[FlowState; 2]) -> u32 {
        let old =
            |epoch: u16| self.epoch.wrapping_sub(epoch) > OLDEST_EPOCH && self.epoch != epoch.wrapping_sub(1);
        let near = self.epoch.wrapping_sub(1);
        let mut aged = 0;
        for (line, state) in (2 * number..).zip(states) {
            if old(state.epoch) {
                table.replace_epoch(line, state.epoch, near);
                aged += 1;
            }
        }
        let shared = table.shared.half(number, offset_of!(FlowShared, epoch));
        let epoch = shared.load(Ordering::Relaxed);
        if old(epoch) {
            let _ = shared.compare_exchange(epoch, near, Ordering::Relaxed, Ordering::Relaxed);
        }
        aged
    }
}

/// Counts a change of the counter's top bit.
fn carry_packets<L: Line>(table: &FlowTable<L>, number: u32, states: &[FlowState; 2]) {
    for (side, state) in states.iter().enumerate() {
        let offset = offset_of!(FlowShared, packets_high) + side * size_of::<u32>();
        let high = table.shared.word(number, offset);
        let count = high.load(Ordering::Relaxed);
        if (count ^ (state.packets >> 31)) & 1 != 0 {
            high.store(count.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_sets_idle_times_but_not_those_of_opening_and_closing() {
        let timeouts = Timeouts::default();
        let (established, opening, closed) = ([TCP_DIR_ESTABLISHED; 2], [0; 2], [TCP_DIR_CLOSED; 2]);
        assert_eq!((timeouts.of(TCP, established, 0), timeouts.of(TCP, established, 600)), (1800, 600));
        for own_s in [600, u32::from(TIMEOUT_NEVER_S)] {
            assert_eq!((timeouts.of(TCP, opening, own_s), timeouts.of(TCP, closed, own_s)), (20, 2));
        }
        // 2^32 - 1 seconds are more jiffies than the age of a session can count.
        assert_eq!(timeouts.of(TCP, established, TIMEOUT_NEVER_S.into()), u32::MAX);
        assert_eq!(timeouts.of(UDP, [0; 2], TIMEOUT_NEVER_S.into()), u32::MAX);
    }
}
