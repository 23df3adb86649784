//! What the gateway counted, read when the traffic has settled.

use std::thread;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::demo::SETTLE;
use crate::gateway::Gateway;

#[derive(Debug, Serialize)]
pub struct Stats {
    pub attach: Vec<Attach>,
    pub sessions: Sessions,
    pub drops: Vec<Drop>,
    pub equations: Vec<Equation>,
}

/// How one interface's ingress is handled.
#[derive(Debug, Serialize, Deserialize)]
pub struct Attach {
    pub interface: String,
    pub mode: String,
}

#[derive(Debug, Serialize)]
pub struct Sessions {
    pub created: u64,
    pub active_ipv4: u64,
    pub active_ipv6: u64,
}

#[derive(Debug, Serialize)]
pub struct Drop {
    pub stage: String,
    pub reason: String,
    pub packets: u64,
}

/// Both sides of a conservation equation.
#[derive(Debug, Serialize)]
pub struct Equation {
    pub name: String,
    pub left: u64,
    pub right: u64,
}

impl Equation {
    pub fn holds(&self) -> bool {
        self.left == self.right
    }
}

/// Waits for packets in flight, then reads.
pub fn at_rest(gateway: &mut Gateway) -> Result<Stats> {
    thread::sleep(SETTLE);
    read(&gateway.json("/api/stats")?)
}

fn read(_stats: &Value) -> Result<Stats> {
    None.context("not read yet")
}
