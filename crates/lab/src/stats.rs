//! What the gateway counted, read when the traffic has settled.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::gateway::Gateway;
use crate::interrupt;

/// How long packets in flight get to arrive.
const SETTLE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(200);

/// The part of /api/stats that the report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Live ones.
    pub sessions: Sessions,
    /// Units, in the order of /api/stats.
    pub interfaces: Vec<Interface>,
    /// Reasons with at least one packet.
    pub drops: Vec<Drop>,
    /// Whether every packet is accounted for.
    pub equations: Equations,
}

/// Live sessions by family.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    /// IPv4.
    pub v4: u64,
    /// IPv6.
    pub v6: u64,
}

/// A unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// `NAME.UNIT`
    pub name: String,
    /// Where its programs run: `tc`, `xdp-native`, `xdp-generic`.
    pub mode: String,
    /// Since the unit was first configured.
    pub counters: Counters,
}

/// Some of the counters of a unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames that reached its programs.
    pub received: u64,
    /// Packets redirected to another device.
    pub redirected: u64,
    /// Packets that took the slow path.
    pub slow: u64,
    /// Sessions whose first packet it received.
    pub sessions: u64,
}

/// One drop reason, all units together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    /// Stage that dropped the packets.
    pub stage: String,
    /// As counters name it.
    pub reason: String,
    /// GSO packets count as their segments.
    pub packets: u64,
    /// What the reason means.
    pub help: String,
}

/// Those of /api/stats, which hold at rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Equations {
    /// Received = sent on + delivered + dropped.
    pub ingress: Equation,
    /// What was to leave = what left + what was dropped on its way out.
    pub egress: Equation,
}

/// Both sides of a conservation equation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equation {
    /// In packets.
    pub left: u64,
    /// In packets.
    pub right: u64,
}

impl Equation {
    /// Nothing is lost, and nothing counted twice.
    pub fn holds(&self) -> bool {
        self.left == self.right
    }
}

impl Equations {
    /// In both directions.
    pub fn hold(&self) -> bool {
        self.ingress.holds() && self.egress.holds()
    }
}

impl Stats {
    /// Sessions made by first packets, over all interfaces.
    pub fn sessions_created(&self) -> u64 {
        self.interfaces.iter().map(|interface| interface.counters.sessions).sum()
    }

    /// Interfaces whose mode is not that of `hook`.
    pub fn attached_otherwise(&self, hook: &str) -> Vec<&Interface> {
        self.interfaces.iter().filter(|interface| !interface.mode.starts_with(hook)).collect()
    }
}

/// Waits until two readings agree and both equations hold; what does not settle is returned as it is.
pub fn at_rest(gateway: &Gateway) -> Result<Stats> {
    let deadline = Instant::now() + SETTLE;
    let mut before = read(gateway)?;
    loop {
        thread::sleep(STEP);
        let now = read(gateway)?;
        if (now == before && now.equations.hold()) || Instant::now() > deadline || interrupt::requested() {
            return Ok(now);
        }
        before = now;
    }
}

fn read(gateway: &Gateway) -> Result<Stats> {
    serde_json::from_str(&gateway.get("/api/stats")?).context("/api/stats is not what the lab knows")
}
