//! `sluice lab run gate`: a database behind the gate. Denied, granted, used, revoked live, and what the audit says of it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::gateway::Gateway;
use crate::netns::{Netns, VethEnd, veth};
use crate::patience::until;
use crate::scene::{self, Row, print_rows};
use crate::services::{LISTEN, Service};
use crate::state::StateDirectory;

/// The gateway's configuration.
pub const GATE_CONF: &str = include_str!("../../../examples/gate.conf");

const DATABASE: &str = "10.0.2.10:6379";
const ALICE: &str = "10.0.1.2";

struct Gated {
    gateway: Netns,
    guest: Netns,
    server: Netns,
}

impl Gated {
    fn create(hook: Hook) -> Result<Gated> {
        let make = |label: &str| Netns::create(&format!("gate-{label}"));
        let lab = Gated { gateway: make("gw")?, guest: make("guest")?, server: make("db")? };
        for (host, device, addresses, via) in [
            (&lab.guest, "guest0", &["10.0.1.2/24", "fd00:1::2/64"], "10.0.1.1"),
            (&lab.server, "servers0", &["10.0.2.10/24", "fd00:2::10/64"], "10.0.2.1"),
        ] {
            let near = VethEnd { netns: &lab.gateway, name: device, mac: None, addresses: &[] };
            veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses })?;
            host.ip(&format!("route add default via {via}"))?;
            if hook == Hook::Xdp {
                host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"])?;
            }
        }
        Ok(lab)
    }

    fn start_database(&self) -> Result<Service> {
        let mut command = self.server.command("redis-server");
        command.args(["--bind", "10.0.2.10", "--port", "6379", "--save", "", "--appendonly", "no"]);
        command.args(["--protected-mode", "no", "--dir", "/tmp"]).stdout(Stdio::null()).stderr(Stdio::null());
        let service =
            Service(command.spawn().context("cannot start redis-server; scripts/setup.sh installs it")?);
        let listens = || Ok(self.server.enter(|| TcpStream::connect(DATABASE))?.is_ok());
        until(LISTEN, listens, || "the database does not listen".to_owned())?;
        Ok(service)
    }

    /// What the database's own client says, in one line.
    fn ask(&self, words: &[&str]) -> String {
        let mut command = self.guest.command("timeout");
        command.args(["2", "redis-cli", "-h", "10.0.2.10"]).args(words);
        let Ok(output) = command.output() else { return "redis-cli is missing".to_owned() };
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if said.is_empty() { "no answer".to_owned() } else { said }
    }

    fn connect(&self) -> Result<TcpStream> {
        let address = DATABASE.parse().context("an address")?;
        Ok(self.guest.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(2)))??)
    }
}

fn pings(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 64];
    stream.set_read_timeout(Some(Duration::from_millis(500))).is_ok()
        && stream.write_all(b"PING\r\n").is_ok()
        && matches!(stream.read(&mut answer), Ok(1..))
}

fn checks(lab: &Gated, gateway: &Gateway) -> Result<Vec<Row>> {
    let mut rows = vec![];
    let mut add = |check, ok: bool, saw: String| rows.push(Row { check, ok, saw });
    let saw = lab.ask(&["PING"]);
    add("without a grant the database does not answer", saw == "no answer", saw);
    let grant = ["gate", "grant", "--user", "alice", "--source", ALICE, "--service", "database"];
    let saw = gateway.sluice(&[&grant[..], &["--idle-timeout", "600"]].concat())?.trim().to_owned();
    add("alice is granted the database", saw.contains("given"), saw);
    let saw = lab.ask(&["SET", "stock", "42"]) + ", " + &lab.ask(&["GET", "stock"]);
    add("she writes and reads", saw == "OK, 42", saw);
    let mut live = lab.connect()?;
    add("a connection of hers lives", pings(&mut live), "PONG".to_owned());
    let begun = Instant::now();
    let saw = gateway.sluice(&["gate", "revoke", "--user", "alice"])?.trim().to_owned();
    let took = begun.elapsed();
    add(
        "her grant is revoked",
        saw == "1 grants revoked",
        format!("{saw}, {} ms with the command", took.as_millis()),
    );
    // live sessions ask for their grant once in so long (docs/GATE.md)
    std::thread::sleep(Duration::from_millis(40));
    let alive = pings(&mut live);
    add("that connection is dead 40 ms later", !alive, if alive { "PONG" } else { "no answer" }.to_owned());
    let saw = lab.ask(&["PING"]);
    add("and no new one opens", saw == "no answer", saw);
    // segments that are sent again may still be on their way
    let mut counts = (0, 0);
    let counted = || {
        let drops = gateway.json("/api/stats")?["drops"].as_array().cloned().unwrap_or_default();
        let of = |reason: &str| drops.iter().find(|d| d["reason"] == reason)?["packets"].as_u64();
        counts = (of("gate_no_grant").unwrap_or(0), of("grant_revoked").unwrap_or(0));
        Ok(counts.0 > 0 && counts.1 > 0)
    };
    // its row says what is missing
    let _ = until(Duration::from_secs(2), counted, String::new);
    add(
        "every refused packet is counted by its reason",
        counts.0 > 0 && counts.1 > 0,
        format!("gate_no_grant {}, grant_revoked {}", counts.0, counts.1),
    );
    Ok(rows)
}

#[derive(Debug, Serialize)]
struct HookReport {
    gateway: &'static str,
    ok: bool,
    rows: Vec<Row>,
    audit: Vec<String>,
}

impl scene::HookReport for HookReport {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn print(&self) {
        println!("a gated database, {} hook", self.gateway);
        print_rows(&self.rows, 52);
        self.audit.iter().for_each(|line| println!("  audit {line}"));
    }
}

/// `sluice lab run gate`
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, |hook| {
        let (rows, audit) = run_hook(hook)?;
        Ok(HookReport { gateway: hook.name(), ok: rows.iter().all(|row| row.ok), rows, audit })
    })
}

fn run_hook(hook: Hook) -> Result<(Vec<Row>, Vec<String>)> {
    let directory = StateDirectory::new(&format!("gate-{}", hook.name()))?;
    let lab = Gated::create(hook)?;
    let _database = lab.start_database()?;
    let text = format!("{GATE_CONF}set system services sluice mode {}\n", hook.name());
    let mut gateway = scene::gateway(&lab.gateway, directory.path(), "gate.conf", &text)?;
    gateway.start()?;
    let mut rows = checks(&lab, &gateway)?;
    let audit = fs::read_to_string(directory.path().join("gate-audit.jsonl"))?;
    let audit: Vec<String> = audit.lines().map(str::to_owned).collect();
    let hers = audit.iter().filter(|line| line.contains("\"alice\"")).count();
    rows.push(Row {
        check: "grant and revocation have their audit line",
        ok: hers == 2,
        saw: format!("{hers} lines"),
    });
    scene::finish(gateway, &mut rows)?;
    Ok((rows, audit))
}
