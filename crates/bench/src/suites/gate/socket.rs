//! 100,000 grants given and revoked by the command line, over the daemon's socket.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_lab::gateway::Gateway;
use sluice_lab::state::StateDirectory;

use crate::generator::site::Site;
use crate::method::result::{Better, Figure};
use crate::method::rounds::alone;
use crate::testbed::gateway::{Action, Mode, configuration};

const COUNT: u64 = 100_000;
pub const NAMES: [&str; 2] = ["grants over the socket 100000", "grants revoked over the socket 100000"];

const SERVICES: &str = "services { gate { zone inside; service database { \
    destination-address 10.128.0.1; protocol tcp; destination-port 5432; } } }\n";

pub fn figures(rounds: usize) -> Result<Vec<Figure>> {
    let directory = StateDirectory::new("gate-bench")?;
    let site = Site::create("gate")?;
    let text = configuration(Mode::Xdp, Action::Permit) + SERVICES;
    let file = directory.path().join("gate.conf");
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let list = directory.path().join("grants.json");
    write_list(&list)?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut gateway = Gateway::new(&program, &site.gateway, &file, directory.path())?;
    gateway.start()?;
    let mut revoked = vec![];
    // makes what the others find
    once(&gateway, &list)?;
    let given = alone(rounds, |_| {
        let (give_s, revoke_ms) = once(&gateway, &list)?;
        revoked.push(revoke_ms);
        Ok(give_s)
    })?;
    gateway.finish()?;
    Ok(vec![
        Figure::new(NAMES[0], "s", Better::Lower, given),
        Figure::new(NAMES[1], "ms", Better::Lower, revoked),
    ])
}

fn write_list(path: &Path) -> Result<()> {
    let one = |number: u64| {
        let source = Ipv4Addr::from(0x0a49_0000 + number as u32).to_string();
        json!({ "user": "crowd", "source": source, "service": "database", "idle_timeout_s": 3600 })
    };
    let all: Vec<Value> = (0..COUNT).map(one).collect();
    std::fs::write(path, serde_json::to_vec(&all)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Seconds that the command which gives them takes, and milliseconds until the last of them is revoked.
fn once(gateway: &Gateway, list: &Path) -> Result<(f64, f64)> {
    let begun = Instant::now();
    let said = gateway.sluice(&["gate", "grant", "--json", "--file", &list.display().to_string()])?;
    let took = begun.elapsed().as_secs_f64();
    let granted: Value = serde_json::from_str(&said)?;
    ensure!(granted["granted"] == COUNT, "{} grants were given", granted["granted"]);
    let revoked: Value = serde_json::from_str(&gateway.sluice(&["gate", "revoke", "--json", "--all"])?)?;
    ensure!(revoked["revoked"] == COUNT, "{} grants were revoked", revoked["revoked"]);
    let took_us = revoked["took_us"].as_u64().context("the daemon does not say how long it took")?;
    Ok((took, took_us as f64 / 1e3))
}
