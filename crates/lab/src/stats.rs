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
    pub sessions: Sessions,
    pub interfaces: Vec<Interface>,
    pub drops: Vec<Drop>,
    pub equations: Equations,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    pub v4: u64,
    pub v6: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    pub name: String,
    pub mode: String,
    pub counters: Counters,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    pub received: u64,
    pub redirected: u64,
    pub slow: u64,
    pub sessions: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Drop {
    pub stage: String,
    pub reason: String,
    pub packets: u64,
    pub help: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Equations {
    pub ingress: Equation,
    pub egress: Equation,
}

/// Both sides of a conservation equation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equation {
    pub left: u64,
    pub right: u64,
}

impl Equation {
    pub fn holds(&self) -> bool {
        self.left == self.right
    }
}

impl Equations {
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
