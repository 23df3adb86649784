//! `sluice lab run gtpu`: a base station, the user plane, a data network. Sessions by configuration and over the API, what passes
//! of them, a quota, and a daemon that is killed.

use std::net::IpAddr;
use std::process::{ExitCode, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::gateway::Gateway;
use crate::gnb::{self, Counts, Gnb, Tunnel};
use crate::netns::{Netns, VethEnd, veth};
use crate::patience::until;
use crate::scene::{self, Row, print_rows};
use crate::services;
use crate::state::StateDirectory;

/// The gateway's configuration.
pub const GTPU_CONF: &str = include_str!("../../../examples/gtp-u.conf");

const SERVER: &str = "10.6.0.2";
const SERVER6: &str = "2001:db8:6::2";
const ALICE: &str = "10.45.0.2";
const ALICE6: &str = "2001:db8:45:2::2";
const BOB: &str = "10.45.0.3";

/// Bytes that Bob may send in the end.
const QUOTA: u64 = 20_000;

struct Mobile {
    gateway: Netns,
    radio: Netns,
    subscribers: Netns,
    network: Netns,
}

impl Mobile {
    fn create(hook: Hook) -> Result<Mobile> {
        let make = |label: &str| Netns::create(&format!("gtpu-{label}"));
        let lab = Mobile {
            gateway: make("gw")?,
            radio: make("gnb")?,
            subscribers: make("ue")?,
            network: make("dn")?,
        };
        for (host, device, addresses) in [
            (&lab.radio, "n3", &["10.3.0.2/24"][..]),
            (&lab.network, "n6", &["10.6.0.2/24", "2001:db8:6::2/64"]),
        ] {
            let near = VethEnd { netns: &lab.gateway, name: device, mac: None, addresses: &[] };
            veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses })?;
            // as a network card sends: packet by packet, with their checksums
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gso", "off", "tso", "off"])?;
            if hook == Hook::Xdp {
                host.run("ethtool", ["-K", "eth0", "gro", "on"])?;
            }
        }
        lab.network.ip("route add 10.45.0.0/16 via 10.6.0.1")?;
        lab.network.ip("-6 route add 2001:db8:45::/48 via 2001:db8:6::1")?;
        Ok(lab)
    }

    fn start_radio(&self) -> Result<Gnb> {
        let address = |text: &str| text.parse::<IpAddr>().context("an address");
        let gnb = Gnb::start(&self.radio, &self.subscribers, address("10.3.0.2")?, address("10.3.0.1")?)?;
        let device = gnb::DEVICE;
        self.subscribers.ip(&format!("link set {device} mtu 1400 up"))?;
        for own in [ALICE, BOB] {
            self.subscribers.ip(&format!("addr add {own}/32 dev {device}"))?;
        }
        self.subscribers.ip(&format!("-6 addr add {ALICE6}/128 dev {device}"))?;
        self.subscribers.ip(&format!("route add default dev {device} src {ALICE}"))?;
        self.subscribers.ip(&format!("-6 route add default dev {device}"))?;
        for subscriber in [ALICE, ALICE6] {
            gnb.set(Tunnel { subscriber: address(subscriber)?, uplink: 0x1001, downlink: 0x2001 });
        }
        Ok(gnb)
    }

    /// How many of so many echo requests are answered.
    fn pings(&self, from: &str, to: &str, count: u32, more: &[&str]) -> u64 {
        let count = count.to_string();
        let words = [&["-n", "-c", &count, "-i", "0.02", "-W", "1", "-I", from], more, &[to]].concat();
        let output = self.subscribers.command("ping").args(words).output();
        let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let said = said.unwrap_or_default();
        let received = said.split(" received").next().and_then(|text| text.rsplit(' ').next());
        received.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The server takes one after the other, and may not be done with the one before.
    fn iperf(&self, more: &[&str]) -> (bool, String) {
        let mut saw = self.iperf_once(more);
        for _ in 0..3 {
            if saw.0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(500));
            saw = self.iperf_once(more);
        }
        saw
    }

    fn iperf_once(&self, more: &[&str]) -> (bool, String) {
        let words = [&["-c", SERVER, "-B", ALICE, "-t", "2", "-J"][..], more].concat();
        let output = self.subscribers.command("iperf3").args(words).stdin(Stdio::null()).output();
        let text = output.map(|Output { stdout, .. }| String::from_utf8_lossy(&stdout).into_owned());
        let parsed: Value = serde_json::from_str(&text.unwrap_or_default()).unwrap_or_default();
        let bits = parsed["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
        (bits > 1e6, format!("{:.0} Mb/s", bits / 1e6))
    }
}

/// Tells the gateway something over its API.
fn tell(gateway: &Gateway, operation: &str, body: &Value, directory: &StateDirectory) -> String {
    let file = directory.path().join("body.json");
    let said = std::fs::write(&file, body.to_string()).map_err(anyhow::Error::from);
    let said = said.and_then(|()| gateway.sluice(&["api", operation, "--body", &file.display().to_string()]));
    said.unwrap_or_else(|error| format!("{error:#}"))
}

fn usage(gateway: &Gateway, name: &str) -> Value {
    let list: Option<Value> = gateway
        .sluice(&["api", "gtp-u-usage", "--name", name])
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok());
    list.map(|list| list["sessions"][0].clone()).unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn dropped(gateway: &Gateway, reason: &str) -> Result<u64> {
    let stats = gateway.json("/api/stats")?;
    let drops = stats["drops"].as_array().cloned().unwrap_or_default();
    Ok(drops.iter().find(|drop| drop["reason"] == reason).map_or(0, |drop| number(&drop["packets"])))
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// What is to be counted may still be on its way.
fn comes(counter: &AtomicU64) -> bool {
    until(Duration::from_secs(2), || Ok(read(counter) > 0), String::new).is_ok()
}

struct Checks<'a> {
    lab: &'a Mobile,
    gnb: &'a Gnb,
    directory: &'a StateDirectory,
    rows: Vec<Row>,
}

impl Checks<'_> {
    fn add(&mut self, check: &'static str, ok: bool, saw: String) {
        self.rows.push(Row { check, ok, saw });
    }

    fn traffic(&mut self) -> Result<()> {
        self.gnb.send_echo()?;
        let ok = comes(&self.gnb.counts().echoes);
        self.add("the base station's Echo Request is answered", ok, String::new());
        for (check, from, to) in [
            ("alice reaches the data network", ALICE, SERVER),
            ("alice reaches it over IPv6", ALICE6, SERVER6),
            ("the gateway itself answers alice", ALICE, "10.45.0.1"),
        ] {
            let answered = self.lab.pings(from, to, 5, &[]);
            self.add(check, answered == 5, format!("{answered} of 5"));
        }
        for (check, more) in [("iperf3 upload", &[][..]), ("iperf3 download", &["-R"][..])] {
            let (ok, saw) = self.lab.iperf(more);
            self.add(check, ok, saw);
        }
        Ok(())
    }

    /// The base station counts what it sends for subscribers, and what comes for them.
    fn account(&mut self, gateway: &Gateway) {
        let Counts { up_bytes, up_packets, down_bytes, down_packets, .. } = self.gnb.counts();
        let mut saw = (Value::Null, [0; 4]);
        let equal = || {
            let usage = usage(gateway, "alice");
            let counted = [up_bytes, up_packets, down_bytes, down_packets].map(read);
            let told = ["uplink_bytes", "uplink_packets", "downlink_bytes", "downlink_packets"];
            let is_equal = told.map(|name| number(&usage[name])) == counted;
            saw = (usage, counted);
            Ok(is_equal)
        };
        let ok = until(Duration::from_secs(3), equal, String::new).is_ok();
        let (usage, counted) = saw;
        let text = format!(
            "{} up, {} down; {} up, {} down outside",
            usage["uplink_bytes"], usage["downlink_bytes"], counted[0], counted[2]
        );
        self.add("usage is what the base station counted, to the byte", ok, text);
    }

    fn refusals(&mut self, gateway: &Gateway) -> Result<()> {
        let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
        packet.extend([10, 45, 0, 99, 10, 6, 0, 2]);
        self.gnb.send(0x1001, &packet)?;
        let spoofed = || Ok(dropped(gateway, "gtpu_spoofed")? > 0);
        let ok = until(Duration::from_secs(2), spoofed, String::new).is_ok();
        self.add("a source that is not alice's is dropped", ok, "gtpu_spoofed".to_owned());
        self.gnb.send(0x7777, &packet)?;
        let ok = comes(&self.gnb.counts().errors);
        self.add("an unknown TEID is answered by an Error Indication", ok, String::new());
        Ok(())
    }

    fn sessions(&mut self, gateway: &Gateway) -> Result<()> {
        let bob = json!({ "name": "bob", "teid": 0x1002, "address": BOB, "peer": "10.3.0.2", "peer_teid": 0x2002,
                          "rules": "best-effort" });
        let said = tell(gateway, "add-gtp-u-sessions", &bob, self.directory);
        self.add("bob's session is made over the API", said.contains("\"added\": 1"), one_line(&said));
        self.gnb.set(Tunnel { subscriber: BOB.parse()?, uplink: 0x1002, downlink: 0x2002 });
        let answered = self.lab.pings(BOB, SERVER, 5, &[]);
        self.add("he reaches the data network", answered == 5, format!("{answered} of 5"));
        let closed = json!({ "name": "bob", "rules": "closed" });
        tell(gateway, "change-gtp-u-session", &closed, self.directory);
        let answered = self.lab.pings(BOB, SERVER, 3, &[]);
        self.add("his gate is closed", answered == 0, format!("{answered} of 3"));
        let used = number(&usage(gateway, "bob")["uplink_bytes"]);
        let quota = json!({ "name": "bob", "rules": "best-effort", "uplink_quota": used + QUOTA });
        tell(gateway, "change-gtp-u-session", &quota, self.directory);
        let answered = self.lab.pings(BOB, SERVER, 30, &["-s", "1000"]);
        let fitting = QUOTA / 1028;
        let text = format!("{answered} of 30 packets of 1028 bytes, {fitting} fit");
        self.add("opened anew, a quota ends his session", answered == fitting, text);
        let said = tell(gateway, "remove-gtp-u-sessions", &json!({ "name": "bob" }), self.directory);
        let told: Value = serde_json::from_str(&said).unwrap_or_default();
        let bytes = number(&told["usage"][0]["uplink_bytes"]);
        let ok = bytes == used + fitting * 1028;
        self.add("it is removed, with all that he has sent", ok, format!("{bytes} bytes"));
        Ok(())
    }

    fn killed(&mut self, gateway: &mut Gateway) -> Result<()> {
        let before = number(&usage(gateway, "alice")["uplink_bytes"]);
        let carol =
            json!({ "name": "carol", "address": "10.45.0.4", "peer": "10.3.0.2", "peer_teid": 0x2003 });
        tell(gateway, "add-gtp-u-sessions", &carol, self.directory);
        gateway.kill()?;
        let answered = self.lab.pings(ALICE, SERVER, 20, &[]);
        self.add("tunnels go on while the daemon is killed", answered == 20, format!("{answered} of 20"));
        gateway.start()?;
        let after = number(&usage(gateway, "alice")["uplink_bytes"]);
        let text = format!("{before} bytes before, {after} after");
        self.add("usage goes on when it is back", after == before + 20 * 84, text);
        let kept = usage(gateway, "carol")["name"] == "carol";
        self.add("a session made over the API is there again", kept, String::new());
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Debug, Serialize)]
struct HookReport {
    gateway: &'static str,
    ok: bool,
    rows: Vec<Row>,
}

impl scene::HookReport for HookReport {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn print(&self) {
        println!("the user plane of a mobile network, {} hook", self.gateway);
        print_rows(&self.rows, 52);
    }
}

/// `sluice lab run gtpu`
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, |hook| {
        let rows = run_hook(hook)?;
        Ok(HookReport { gateway: hook.name(), ok: rows.iter().all(|row| row.ok), rows })
    })
}

fn run_hook(hook: Hook) -> Result<Vec<Row>> {
    let directory = StateDirectory::new(&format!("gtpu-{}", hook.name()))?;
    let lab = Mobile::create(hook)?;
    let _services = services::start(&[&lab.network], directory.path())?;
    let text = format!("{GTPU_CONF}set system services sluice mode {}\n", hook.name());
    let mut gateway = scene::gateway(&lab.gateway, directory.path(), "gtp-u.conf", &text)?;
    gateway.start()?;
    let gnb = lab.start_radio()?;
    let mut checks = Checks { lab: &lab, gnb: &gnb, directory: &directory, rows: vec![] };
    checks.traffic()?;
    checks.account(&gateway);
    checks.refusals(&gateway)?;
    checks.sessions(&gateway)?;
    checks.killed(&mut gateway)?;
    let mut rows = checks.rows;
    scene::finish(gateway, &mut rows)?;
    Ok(rows)
}
