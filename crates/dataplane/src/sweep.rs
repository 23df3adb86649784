//! The sweep ends sessions that were idle for too long. The walk is the data plane's own (`bpf/sweep.h`), from a kernel
//! timer; here it is told when sessions end, started, and asked what it did. Unused next hops are found here.

use std::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sluice_abi::{
    FLOW_LIVE, MAX_NEXTHOPS, SWEEP_OF_RUN, SWEEP_OF_TIMER, Sweep, SweepLimits, TCP_DIR_CLOSED,
    TCP_DIR_ESTABLISHED, TCP_DIR_FIN, TCP_DIR_RESET, TIMEOUT_FOREVER, TIMEOUT_ICMP, TIMEOUT_NEVER_S,
    TIMEOUT_OTHER, TIMEOUT_TCP, TIMEOUT_TCP_CLOSED, TIMEOUT_TCP_HALF, TIMEOUT_TCP_INITIAL, TIMEOUT_TCP_RESET,
    TIMEOUT_UDP, Unanswered,
};
use sluice_wire::protocol::{ICMP, ICMPV6, TCP, UDP};

use crate::error::{Error, Result};
use crate::mmap::Array;
use crate::objects::{self, Frozen, ObjectKind, Recipe};
use crate::prog_run::{self, XdpRun};
use crate::records::{self, FlowTable, Line};
use crate::sessions::Session;
use crate::state::State;
use crate::{Dataplane, Sizes};

const _: () = assert!(TIMEOUT_FOREVER == TIMEOUT_NEVER_S as usize);

/// What test runs of XDP programs return when all went well.
const XDP_PASS: u32 = 2;
/// How often starting the timer is tried, 10 ms apart.
const START_TRIES: u32 = 20;

/// Idle times after which sessions end, in seconds. Defaults are those of Junos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the handshake is complete.
    pub tcp_initial_s: u32,
    /// Handshake complete, nothing closed.
    pub tcp_established_s: u32,
    /// One side has said FIN.
    pub tcp_closing_s: u32,
    /// Both sides have.
    pub tcp_closed_s: u32,
    /// A reset was seen, and nothing since.
    pub tcp_reset_s: u32,
    /// UDP, whatever was answered.
    pub udp_s: u32,
    /// ICMP and ICMPv6.
    pub icmp_s: u32,
    /// Every other protocol.
    pub other_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            tcp_initial_s: 20,
            tcp_established_s: 1800,
            tcp_closing_s: 150,
            tcp_closed_s: 2,
            tcp_reset_s: 10,
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
            TCP if tcp_states.iter().all(|state| state & TCP_DIR_RESET != 0) => self.tcp_reset_s,
            TCP if tcp_states == [TCP_DIR_CLOSED; 2] => self.tcp_closed_s,
            TCP if tcp_states.iter().any(|state| *state >= TCP_DIR_FIN) => self.tcp_closing_s,
            TCP if tcp_states == [TCP_DIR_ESTABLISHED; 2] => or_own(self.tcp_established_s),
            TCP => self.tcp_initial_s,
            UDP => or_own(self.udp_s),
            ICMP | ICMPV6 => or_own(self.icmp_s),
            _ => or_own(self.other_s),
        }
    }

    /// Of a session as it is now.
    pub fn of_session(&self, session: &Session) -> u32 {
        let states = [session.initiator.tcp_state, session.responder.tcp_state];
        self.of(session.protocol(), states, session.timeout_s)
    }
}

/// While a table is too full, its sessions end after this idle time at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyAgeout {
    /// Seconds.
    pub after_s: u32,
    /// Percent of the table from which on it is in force ...
    pub high_percent: u32,
    /// ... until it falls below this.
    pub low_percent: u32,
}

fn limits(timeouts: &Timeouts, early: Option<EarlyAgeout>, sizes: Sizes) -> SweepLimits {
    let mut timeout_s = [0; 8];
    timeout_s[TIMEOUT_TCP_INITIAL] = timeouts.tcp_initial_s;
    timeout_s[TIMEOUT_TCP] = timeouts.tcp_established_s;
    timeout_s[TIMEOUT_TCP_HALF] = timeouts.tcp_closing_s;
    timeout_s[TIMEOUT_TCP_CLOSED] = timeouts.tcp_closed_s;
    timeout_s[TIMEOUT_TCP_RESET] = timeouts.tcp_reset_s;
    timeout_s[TIMEOUT_UDP] = timeouts.udp_s;
    timeout_s[TIMEOUT_ICMP] = timeouts.icmp_s;
    timeout_s[TIMEOUT_OTHER] = timeouts.other_s;
    let mut limits = SweepLimits { timeout_s, ..Default::default() };
    if let Some(early) = early {
        let share = |sessions: u32, percent: u32| (u64::from(sessions) * u64::from(percent) / 100) as u32;
        limits.early_ageout_s = early.after_s;
        limits.high_watermark4 = share(sizes.sessions4, early.high_percent);
        limits.high_watermark6 = share(sizes.sessions6, early.high_percent);
        limits.low_watermark4 = share(sizes.sessions4, early.low_percent);
        limits.low_watermark6 = share(sizes.sessions6, early.low_percent);
    }
    limits
}

/// What one sweep found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SweepReport {
    /// Sessions that remain.
    pub live4: u32,
    /// IPv6 sessions that remain.
    pub live6: u32,
    /// IPv4 sessions that it ended.
    pub expired4: u32,
    /// IPv6 sessions that it ended.
    pub expired6: u32,
    /// Lines whose stamp was brought near the current one.
    pub aged: u32,
    /// From start to end.
    pub took: Duration,
}

/// What the timer's sweep has done since the state was made, and found in its last pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Swept {
    /// IPv4 sessions that the last pass met.
    pub live4: u32,
    /// IPv6 sessions that the last pass met.
    pub live6: u32,
    /// Sessions that it has ended.
    pub expired: u64,
    /// How often it has walked all of the tables.
    pub passes: u64,
    /// Sessions without an answer, at the moment.
    pub unanswered4: u32,
    /// Of IPv6 alone.
    pub unanswered6: u32,
}

#[derive(Debug)]
pub(crate) struct Sweeper {
    limits: Array<SweepLimits>,
    sweeps: Array<Sweep>,
    unanswered: Array<Unanswered>,
    /// Loaded when it is first needed: who only reads needs no sweep.
    program: Mutex<Option<Arc<OwnedFd>>>,
    busy: Mutex<()>,
}

impl Sweeper {
    pub fn new(state: &State, created: bool, sizes: Sizes) -> Result<Sweeper> {
        let sweeper = Sweeper {
            limits: records::mapped(state, "sweep_limits")?,
            sweeps: records::mapped(state, "sweeps")?,
            unanswered: records::mapped(state, "unanswered_sessions")?,
            program: Mutex::default(),
            busy: Mutex::default(),
        };
        if created {
            sweeper.limits.write(0, limits(&Timeouts::default(), None, sizes));
        }
        Ok(sweeper)
    }

    fn of(&self, which: u32) -> Sweep {
        self.sweeps.read(which)
    }
}

impl Dataplane {
    /// From the next pass of the sweep on, sessions end after these idle times; without a daemon as well.
    pub fn set_timeouts(&self, timeouts: &Timeouts, early: Option<EarlyAgeout>) {
        self.sweeper.limits.write(0, limits(timeouts, early, self.sizes));
    }

    /// Has the kernel's timer sweep from now on, about once a second, with this program's code. It goes on until the
    /// pinned state is removed.
    pub fn start_sweeping(&self) -> Result<()> {
        // A timer whose tick runs at this moment, perhaps for an earlier daemon, may refuse.
        for _ in 0..START_TRIES {
            if self.run_sweep(SWEEP_OF_TIMER)?.retval == XDP_PASS {
                self.sweeping.store(true, Ordering::Relaxed);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(Error::Timer)
    }

    fn run_sweep(&self, which: u32) -> Result<prog_run::Outcome<prog_run::XdpContext>> {
        prog_run::xdp(self.sweep_program()?.as_fd(), &XdpRun::new(&[which as u8; 64], 0))
    }

    fn sweep_program(&self) -> Result<Arc<OwnedFd>> {
        let mut loaded = self.sweeper.program.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = &*loaded {
            return Ok(program.clone());
        }
        let object = objects::load(&Recipe {
            kind: ObjectKind::Xdp,
            programs: &["xdp_sweep"],
            reuse: &|name| self.state.descriptor(ObjectKind::Xdp, name),
            create: &|name| name == objects::CONFIG_SECTION,
            frozen: Frozen { config: self.fixed_config(), ..Default::default() },
            entries: &|name| self.sizes.entries(name),
        })?;
        let program = Arc::new(objects::program(&object, "xdp_sweep")?);
        *loaded = Some(program.clone());
        Ok(program)
    }

    /// The state has other maps than it had: who sweeps goes on with a program that has them too.
    pub(crate) fn renew_sweep(&self) -> Result<()> {
        *self.sweeper.program.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if self.sweeping.load(Ordering::Relaxed) { self.start_sweeping() } else { Ok(()) }
    }

    /// What the timer's sweep did.
    pub fn swept(&self) -> Swept {
        let sweep = self.sweeper.of(SWEEP_OF_TIMER);
        let unanswered = self.sweeper.unanswered.read(0);
        Swept {
            live4: sweep.live4,
            live6: sweep.live6,
            expired: sweep.expired4 + sweep.expired6,
            passes: sweep.passes,
            unanswered4: unanswered.count4,
            unanswered6: unanswered.count6,
        }
    }

    /// One whole pass at once, as if it were `now` ([`Dataplane::now_jiffies`]), with these timeouts from now on.
    pub fn sweep(&self, now: u64, timeouts: &Timeouts) -> Result<SweepReport> {
        self.set_timeouts(timeouts, None);
        self.sweep_once(now)
    }

    /// One whole pass at once, with the timeouts that are set.
    pub fn sweep_once(&self, now: u64) -> Result<SweepReport> {
        let sweeper = &self.sweeper;
        let _busy = sweeper.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let before = sweeper.of(SWEEP_OF_RUN);
        sweeper.sweeps.word(SWEEP_OF_RUN, offset_of!(Sweep, now)).store(now as u32, Ordering::Relaxed);
        let outcome = self.run_sweep(SWEEP_OF_RUN)?;
        if outcome.retval != XDP_PASS {
            return Err(Error::Timer);
        }
        let after = sweeper.of(SWEEP_OF_RUN);
        Ok(SweepReport {
            live4: after.live4,
            live6: after.live6,
            expired4: (after.expired4 - before.expired4) as u32,
            expired6: (after.expired6 - before.expired6) as u32,
            aged: (after.aged - before.aged) as u32,
            took: outcome.duration,
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
        assert_eq!(timeouts.of(TCP, established, TIMEOUT_NEVER_S.into()), u32::MAX);
        assert_eq!(timeouts.of(UDP, [0; 2], TIMEOUT_NEVER_S.into()), u32::MAX);
    }
}
