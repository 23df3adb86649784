//! What is counted of a unit, generated from `bpf/counters.def`, and its drops.

use crate::stages::Reason;
use crate::{DropCounters, UnitCounters};

/// A counter's part in the equations of conservation:
///
/// - arrived = passed + stayed + drops of ingress stages
/// - passed + made = left + drops of egress stages + drops of devices
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Packets that came from outside.
    Arrived,
    /// Packets that ingress let go on to a device.
    Passed,
    /// Packets that ended here as they should.
    Stayed,
    /// Packets that began here.
    Made,
    /// Packets that a device was given.
    Left,
    /// It stands in neither.
    None,
}

/// One counter of [`UnitCounters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitCounter {
    /// As the field, and in /api/stats.
    pub name: &'static str,
    /// Its part in the equations.
    pub role: Role,
    /// Its name in /metrics.
    pub metric: &'static str,
    /// What it counts, in a line.
    pub help: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/counters.rs"));

impl UnitCounters {
    /// In the order of [`UnitCounter::ALL`].
    pub fn values(&self) -> [u64; UnitCounter::ALL.len()] {
        zerocopy::transmute!(*self)
    }
}

impl DropCounters {
    /// Packets dropped for a reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.packets[reason as usize]
    }

    /// Those that are not zero, in the order packets meet them.
    pub fn named(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, count)| *count > 0)
    }
}
