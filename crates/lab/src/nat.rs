//! `sluice lab run nat`: real applications through translation.
//!
//! ```text
//!   office  10.0.1.2   fd00:1::2  ---- lan0 \                                  / far 198.51.100.2
//!                                            gateway ---- wan0 ---- provider --
//!   server  10.0.30.80  .90       ---- dmz0 /   203.0.113.1      203.0.113.2   \ link of 1,300 bytes
//! ```
//!
//! Neither the provider nor the far host knows a way to 10.0.0.0/8: whatever is answered was translated.

use std::path::Path;
use std::process::{ExitCode, Output, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::capture;
use crate::gateway::Gateway;
use crate::hosts;
use crate::netns::{Netns, VethEnd, veth};
use crate::scene::{self, Row, print_rows};
use crate::services::{self, Service};
use crate::state::StateDirectory;

/// The gateway's configuration.
pub const NAT_CONF: &str = include_str!("../../../examples/nat.conf");

/// Hosts of the lab; dropped, they are gone.
#[derive(Debug)]
pub struct Translation {
    pub gateway: Netns,
    pub office: Netns,
    pub server: Netns,
    pub provider: Netns,
    pub far: Netns,
}

impl Translation {
    pub fn create() -> Result<Translation> {
        let make = |label: &str| Netns::create(&format!("nat-{label}"));
        let lab = Translation {
            gateway: make("gw")?,
            office: make("office")?,
            server: make("server")?,
            provider: make("isp")?,
            far: make("far")?,
        };
        lab.connect(&lab.office, "lan0", &["10.0.1.2/24", "fd00:1::2/64"])?;
        lab.connect(&lab.server, "dmz0", &["10.0.30.80/24", "10.0.30.90/24"])?;
        lab.connect(&lab.provider, "wan0", &["203.0.113.2/24"])?;
        let near = VethEnd { netns: &lab.provider, name: "far0", mac: None, addresses: &["198.51.100.1/24"] };
        let addresses = &["198.51.100.2/24", "198.51.100.3/24"];
        veth(near, VethEnd { netns: &lab.far, name: "eth0", mac: None, addresses })?;
        lab.provider.ip("link set far0 mtu 1300")?;
        lab.far.ip("link set eth0 mtu 1300")?;
        lab.provider.enable_forwarding()?;
        lab.office.ip("route add default via 10.0.1.1")?;
        lab.office.ip("-6 route add default via fd00:1::1")?;
        lab.server.ip("route add default via 10.0.30.1")?;
        lab.far.ip("route add default via 198.51.100.1")?;
        Ok(lab)
    }

    /// veth peers of an XDP gateway must compute checksums themselves.
    fn connect(&self, host: &Netns, device: &str, addresses: &[&str]) -> Result<()> {
        let near = VethEnd { netns: &self.gateway, name: device, mac: None, addresses: &[] };
        veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses })?;
        Ok(())
    }

    /// What XDP on veth needs of the other end.
    pub fn prepare(&self, hook: Hook) -> Result<()> {
        if hook == Hook::Xdp {
            for host in [&self.office, &self.server, &self.provider] {
                host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"])?;
            }
        }
        Ok(())
    }

    /// Web and iperf3 servers.
    pub fn serve(&self, directory: &Path) -> Result<Vec<Service>> {
        services::start(&[&self.server, &self.far], directory)
    }

    pub fn hosts(&self) -> [&Netns; 4] {
        [&self.office, &self.server, &self.provider, &self.far]
    }

    fn checks(&self, gateway: &Gateway, directory: &Path) -> Result<Vec<Row>> {
        let mut rows = vec![];
        let mut add = |check, ok: bool, saw: String| rows.push(Row { check, ok, saw });
        let page = |from: &Netns, more: &[&str], url: &str| fetch(from, more, url);
        let out = page(&self.office, &[], "http://198.51.100.2/");
        let seen = translated(gateway, "10.0.1.2")?;
        add(
            "office to the internet, source NAT",
            out.0 && seen == "203.0.113.1",
            format!("{}, as {seen}", out.1),
        );
        let (ok, saw) = page(&self.far, &[], "http://203.0.113.80/");
        add("internet to the web server, destination NAT", ok, saw);
        let (ok, saw) = page(&self.office, &[], "http://203.0.113.80/");
        add("office to the web server by its public address", ok, saw);
        let (ok, saw) = page(&self.server, &["--interface", "10.0.30.90"], "http://203.0.113.80/");
        add("server to itself by its public address (hairpin)", ok, saw);
        let (ok, saw) = page(&self.far, &[], "http://203.0.113.90/");
        add("internet to a server with static NAT", ok, saw);
        let (ok, saw) = page(&self.server, &["--interface", "10.0.30.90"], "http://198.51.100.2/");
        let seen = translated(gateway, "10.0.30.90")?;
        add("that server to the internet", ok && seen == "203.0.113.90", format!("{saw}, as {seen}"));
        let ping = run(&self.office, "ping", &["-c", "3", "-i", "0.2", "-W", "1", "-n", "198.51.100.2"]);
        add("office pings the internet", ping.contains(" 0% packet loss"), last_line(&ping, "packet"));
        let path = run(&self.office, "traceroute", &["-n", "-w", "1", "-q", "1", "198.51.100.2"]);
        let hops = ["10.0.1.1", "203.0.113.2", "198.51.100.2"];
        let found: Vec<&str> =
            hops.into_iter().filter(|hop| path.lines().skip(1).any(|l| l.contains(hop))).collect();
        add("traceroute sees every hop", found == hops, found.join(" "));
        let large = run(
            &self.office,
            "ping",
            &["-c", "2", "-i", "0.2", "-W", "1", "-n", "-M", "do", "-s", "1400", "198.51.100.2"],
        );
        let told = large.contains("mtu = 1300") || large.contains("mtu=1300");
        add("the path MTU behind translation is learned", told, last_line(&large, "mtu"));
        for (check, more) in [("iperf3 upload", &[][..]), ("iperf3 download", &["-R"][..])] {
            let (ok, saw) = self.iperf(more);
            add(check, ok, saw);
        }
        let (ok, saw) = self.judged(directory)?;
        add("tshark finds every checksum right", ok, saw);
        let errors = hosts::checksum_errors(&self.hosts())?;
        add("no host saw a wrong checksum", errors.is_empty(), errors.join(", "));
        Ok(rows)
    }

    /// The gateway's devices complete what the sender's stack left open, so every sum stands in the frame.
    fn judged(&self, directory: &Path) -> Result<(bool, String)> {
        capture::complete_checksums(&self.gateway, &["lan0", "dmz0", "wan0"])?;
        capture::judged(&[&self.office, &self.server, &self.provider], directory, || {
            // answers of one segment: where GRO must be on, longer ones are joined before anybody sees them
            let head = ["-s", "-m", "5", "-o", "/dev/null", "-I"];
            for (from, more, to) in [
                (&self.office, &[][..], "198.51.100.2"),
                (&self.far, &[], "203.0.113.80"),
                (&self.office, &[], "203.0.113.80"),
                (&self.server, &["--interface", "10.0.30.90"], "203.0.113.80"),
                (&self.far, &[], "203.0.113.90"),
                (&self.server, &["--interface", "10.0.30.90"], "198.51.100.2"),
            ] {
                run(from, "curl", &[&head[..], more, &[&format!("http://{to}/")]].concat());
            }
            run(&self.office, "ping", &["-c", "3", "-i", "0.2", "-W", "1", "-n", "198.51.100.2"]);
            run(
                &self.office,
                "ping",
                &["-c", "2", "-i", "0.2", "-W", "1", "-n", "-s", "3000", "198.51.100.2"],
            );
            run(&self.office, "traceroute", &["-n", "-w", "1", "-q", "1", "198.51.100.3"]);
        })
    }

    fn iperf(&self, more: &[&str]) -> (bool, String) {
        let arguments = [&["-c", "198.51.100.2", "-t", "2", "-J"][..], more].concat();
        let text = run(&self.office, "iperf3", &arguments);
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let bits = parsed["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
        (bits > 1e6, format!("{:.2} Gb/s", bits / 1e9))
    }
}

/// Fetches a page; whether all of it came, and what curl said.
fn fetch(from: &Netns, more: &[&str], url: &str) -> (bool, String) {
    let form = "%{http_code} %{size_download}";
    let arguments = [&["-s", "-m", "5", "-o", "/dev/null", "-w", form][..], more, &[url]].concat();
    let said = run(from, "curl", &arguments);
    (said == format!("200 {}", services::PAGE_BYTES), said)
}

/// Standard output and error of a program, whatever its exit code.
fn run(host: &Netns, program: &str, arguments: &[&str]) -> String {
    let output = host.command(program).args(arguments).stdin(Stdio::null()).output();
    output.map_or_else(
        |error| error.to_string(),
        |Output { stdout, stderr, .. }| {
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr)
        },
    )
}

fn last_line(text: &str, with: &str) -> String {
    text.lines().rev().find(|line| line.contains(with)).unwrap_or_default().trim().to_owned()
}

/// The address by which the far host knows a source.
fn translated(gateway: &Gateway, source: &str) -> Result<String> {
    let list =
        gateway.json(&format!("/api/sessions?source_prefix={source}&destination_prefix=198.51.100.2"))?;
    let sessions = list["sessions"].as_array().context("the daemon lists no sessions")?;
    let seen = sessions.first().and_then(|session| session["out_destination"].as_str());
    Ok(seen.unwrap_or("nobody").to_owned())
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
        println!("translation, {} hook", self.gateway);
        print_rows(&self.rows, 52);
    }
}

/// `sluice lab run nat`
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, |hook| {
        let rows = run_hook(hook)?;
        Ok(HookReport { gateway: hook.name(), ok: rows.iter().all(|row| row.ok), rows })
    })
}

/// All checks on one hook.
pub fn run_hook(hook: Hook) -> Result<Vec<Row>> {
    let directory = StateDirectory::new(&format!("nat-{}", hook.name()))?;
    let lab = Translation::create()?;
    lab.prepare(hook)?;
    let _services = lab.serve(directory.path())?;
    let text = format!("{NAT_CONF}set system services sluice mode {}\n", hook.name());
    let mut gateway = scene::gateway(&lab.gateway, directory.path(), "nat.conf", &text)?;
    gateway.start()?;
    let mut rows = lab.checks(&gateway, directory.path())?;
    scene::finish(gateway, &mut rows)?;
    Ok(rows)
}
