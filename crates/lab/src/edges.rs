//! `sluice lab run edges`: a branch office whose address, prefix and routes come from its provider, and what of that it survives
//! the loss of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;

use crate::args::RunArgs;
use crate::bird::{BIRD, Bird};
use crate::branch::Hook;
use crate::frr::{DAEMONS, Frr};
use crate::gateway::Gateway;
use crate::netns::{Netns, VethEnd, veth};
use crate::patience::until;
use crate::scene::{self, Row, print_rows};
use crate::services::Service;
use crate::state::StateDirectory;

/// The gateway's configuration.
pub const EDGES_CONF: &str = include_str!("../../../examples/edges.conf");

const KEA4: &str = "/usr/sbin/kea-dhcp4";
const KEA6: &str = "/usr/sbin/kea-dhcp6";

/// Behind the provider; only BGP tells the way to the first.
const FAR: &str = "203.0.113.80";
const FAR6: &str = "2001:db8:ffff::80";

/// How long protocols may take to come to terms.
const SETTLED: Duration = Duration::from_secs(30);

const BIRD_CONF: &str = r#"router id 198.51.100.1;
protocol device { scan time 1; }
protocol static { ipv4; route 203.0.113.0/24 unreachable; route 192.0.2.0/24 unreachable; }
protocol radv { interface "eth0" { min ra interval 3; max ra interval 4; managed yes; default lifetime 1800; }; }
protocol bgp branch {
    local 198.51.100.1 as 65002;
    neighbor 198.51.100.50 as 65001;
    connect delay time 1; connect retry time 1; error wait time 1,2;
    ipv4 { import none; export where source = RTS_STATIC; };
}
"#;

struct Edges {
    gateway: Netns,
    host: Netns,
    provider: Netns,
    directory: PathBuf,
}

impl Edges {
    fn create(hook: Hook, directory: &Path) -> Result<Edges> {
        let make = |label: &str| Netns::create(&format!("edges-{label}"));
        let (gateway, host, provider) = (make("gw")?, make("host")?, make("isp")?);
        let lab = Edges { gateway, host, provider, directory: directory.to_owned() };
        for (host, device, addresses) in [
            (&lab.host, "lan0", &["192.168.9.2/24"][..]),
            (&lab.provider, "wan0", &["198.51.100.1/24", "2001:db8:100::1/64"][..]),
        ] {
            let near = VethEnd { netns: &lab.gateway, name: device, mac: None, addresses: &[] };
            veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses })?;
            if hook == Hook::Xdp {
                host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"])?;
                lab.gateway.run("ethtool", ["-K", device, "gro", "on", "tx", "off"])?;
            }
        }
        lab.host.ip("route add default via 192.168.9.1")?;
        lab.host.sysctl("net/ipv6/conf/eth0/accept_ra", "1")?;
        lab.provider.ip(&format!("address add {FAR}/32 dev lo"))?;
        lab.provider.ip(&format!("address add {FAR6}/128 dev lo"))?;
        lab.provider.sysctl("net/ipv6/conf/all/forwarding", "1")?;
        Ok(lab)
    }

    fn spawn(&self, netns: &Netns, program: &str, arguments: &[&str]) -> Result<Service> {
        let mut command = netns.command(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("KEA_PIDFILE_DIR", &self.directory).env("KEA_LOCKFILE_DIR", "none");
        Ok(Service(command.spawn().with_context(|| format!("cannot start {program}"))?))
    }

    fn kea(&self, program: &str, configuration: &serde_json::Value) -> Result<Service> {
        let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
        let file = self.directory.join(format!("{name}.conf"));
        fs::write(&file, configuration.to_string())?;
        self.spawn(&self.provider, program, &["-c", &file.display().to_string()])
    }

    fn dhcp(&self) -> Result<Service> {
        self.kea(
            KEA4,
            &json!({"Dhcp4": {
            "interfaces-config": {"interfaces": ["eth0/198.51.100.1"], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": false},
            "valid-lifetime": 600,
            "subnet4": [{"id": 1, "subnet": "198.51.100.0/24", "interface": "eth0",
                "pools": [{"pool": "198.51.100.50 - 198.51.100.50"}],
                "option-data": [{"name": "routers", "data": "198.51.100.1"}]}]}}),
        )
    }

    fn dhcpv6(&self) -> Result<Service> {
        self.kea(
            KEA6,
            &json!({"Dhcp6": {
            "interfaces-config": {"interfaces": ["eth0"]},
            "lease-database": {"type": "memfile", "persist": false},
            "server-id": {"type": "LL", "identifier": "020000000072", "persist": false},
            "preferred-lifetime": 300, "valid-lifetime": 400,
            "subnet6": [{"id": 1, "subnet": "2001:db8:100::/64", "interface": "eth0",
                "pools": [{"pool": "2001:db8:100::1000 - 2001:db8:100::1000"}],
                "pd-pools": [{"prefix": "2001:db8:200::", "prefix-len": 48, "delegated-len": 56}]}]}}),
        )
    }

    fn bird(&self) -> Result<Bird<'_>> {
        Bird::start(&self.provider, &self.directory.join("bird"), BIRD_CONF)
    }

    /// Of so many pings, the answers.
    fn answers(&self, to: &str, count: u32) -> u32 {
        let (count, deadline) = (count.to_string(), "10");
        let mut command = self.host.command("ping");
        let output = command.args(["-n", "-q", "-i", "0.1", "-c", &count, "-w", deadline, to]).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "received,");
        at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
    }

    fn addresses(&self, netns: &Netns, device: &str) -> String {
        netns.ip(&format!("-br address show dev {device}")).unwrap_or_default()
    }

    fn route(&self, to: &str) -> String {
        self.gateway
            .ip(&format!("route get {to}"))
            .unwrap_or_default()
            .replace("    cache", "")
            .trim()
            .to_owned()
    }

    fn has_learnt(&self) -> bool {
        self.gateway.ip("route show proto bgp").is_ok_and(|routes| routes.contains("203.0.113.0/24"))
    }
}

/// Programs of the distribution that this machine does not have.
fn missing() -> Vec<String> {
    let daemons = ["zebra", "bgpd"].map(|daemon| format!("{DAEMONS}/{daemon}"));
    let programs = [KEA4, KEA6, BIRD].map(str::to_owned).into_iter().chain(daemons);
    programs.filter(|program| !Path::new(program).exists()).collect()
}

fn come_up(lab: &Edges, rows: &mut Vec<Row>) {
    let settles = |done: &dyn Fn() -> bool| until(SETTLED, || Ok(done()), String::new).is_ok();
    let mut add = |check, ok: bool, saw: String| rows.push(Row { check, ok, saw });
    let wan = || lab.addresses(&lab.gateway, "wan0");
    let ok = settles(&|| wan().contains("198.51.100.50/24"));
    add("DHCP gives wan0 an address", ok, "198.51.100.50/24".to_owned());
    let prefix = || lab.addresses(&lab.gateway, "lan0");
    let ok = settles(&|| prefix().contains("2001:db8:200:"));
    add("DHCPv6 delegates a prefix, of which lan0 has a part", ok, of_prefix(&prefix(), "2001:db8:200:"));
    let host = || lab.addresses(&lab.host, "eth0");
    let ok = settles(&|| host().contains("2001:db8:200:"));
    add("it is advertised: the host makes an address of it", ok, of_prefix(&host(), "2001:db8:200:"));
    let ok = settles(&|| lab.has_learnt());
    add("BGP tells the way to 203.0.113.0/24", ok, lab.route(FAR));
    let rejected =
        !lab.gateway.ip("route show 192.0.2.0/24").is_ok_and(|routes| routes.contains("192.0.2.0"));
    add("and the policy has refused 192.0.2.0/24", rejected, String::new());
    // the provider's own routing, which its server would do
    let via = "-6 route replace 2001:db8:200::/48 via 2001:db8:100::1000";
    let ok = lab.provider.ip(via).is_ok();
    let answers = (lab.answers(FAR, 5), lab.answers(FAR6, 5));
    add(
        "the host reaches the far end, IPv4 by NAT, IPv6 as itself",
        ok && answers == (5, 5),
        format!("{answers:?} of 5"),
    );
}

fn of_prefix(addresses: &str, prefix: &str) -> String {
    addresses.split_whitespace().find(|address| address.starts_with(prefix)).unwrap_or("none").to_owned()
}

struct Servers<'a> {
    dhcp: Option<Service>,
    dhcpv6: Option<Service>,
    bird: Option<Bird<'a>>,
    frr: Frr<'a>,
}

fn losses<'a>(
    lab: &'a Edges,
    gateway: &mut Gateway<'_>,
    servers: &mut Servers<'a>,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let settles = |done: &dyn Fn() -> bool| until(SETTLED, || Ok(done()), String::new).is_ok();
    let mut add = |check, ok: bool, saw: String| rows.push(Row { check, ok, saw });
    let both = || (lab.answers(FAR, 10), lab.answers(FAR6, 10));
    (servers.dhcp, servers.dhcpv6) = (None, None);
    let saw = both();
    add("both DHCP servers die: nothing is lost", saw == (10, 10), format!("{saw:?} of 10"));
    gateway.kill()?;
    let saw = both();
    add("the daemon is killed: nothing is lost", saw == (10, 10), format!("{saw:?} of 10"));
    gateway.start()?;
    let saw = both();
    let kept = lab.addresses(&lab.gateway, "wan0").contains("198.51.100.50/24") && lab.has_learnt();
    add("the next one goes on with lease and routes", kept && saw == (10, 10), format!("{saw:?} of 10"));
    servers.frr.kill("bgpd");
    servers.frr.start(&["bgpd"])?;
    sleep(Duration::from_millis(500));
    let ok = settles(&|| lab.has_learnt()) && lab.answers(FAR, 5) == 5;
    add("bgpd dies: the next one is told, and learns the route", ok, lab.route(FAR));
    servers.bird = None;
    let ok = settles(&|| !lab.has_learnt());
    let saw = lab.answers(FAR, 5);
    add("the neighbour dies: the default route of DHCP stands in", ok && saw == 5, lab.route(FAR));
    servers.bird = Some(lab.bird()?);
    let ok = settles(&|| lab.has_learnt());
    add("and comes back", ok, lab.route(FAR));
    Ok(())
}

#[derive(Debug, Serialize)]
struct HookReport {
    gateway: &'static str,
    ok: bool,
    missing: Vec<String>,
    rows: Vec<Row>,
}

impl scene::HookReport for HookReport {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn print(&self) {
        println!("a branch office at its provider's edge, {} hook", self.gateway);
        if !self.missing.is_empty() {
            println!("  not shown: {} not installed; scripts/setup.sh does it", self.missing.join(", "));
        }
        print_rows(&self.rows, 62);
    }
}

/// `sluice lab run edges`
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, |hook| {
        let missing = missing();
        let rows = if missing.is_empty() { run_hook(hook)? } else { vec![] };
        Ok(HookReport { gateway: hook.name(), ok: rows.iter().all(|row| row.ok), missing, rows })
    })
}

fn run_hook(hook: Hook) -> Result<Vec<Row>> {
    let directory = StateDirectory::new(&format!("edges-{}", hook.name()))?;
    let lab = Edges::create(hook, directory.path())?;
    let mut frr = Frr::create(&lab.gateway, &format!("sluice-lab-{}", std::process::id()))?;
    frr.start(&["zebra", "bgpd"])?;
    let text = format!("{EDGES_CONF}set system services sluice mode {}\n", hook.name());
    let gateway = scene::gateway(&lab.gateway, directory.path(), "edges.conf", &text)?;
    let mut gateway = gateway.with_options(&["--frr-pathspace", frr.name()]);
    let (dhcp, dhcpv6, bird) = (Some(lab.dhcp()?), Some(lab.dhcpv6()?), Some(lab.bird()?));
    let mut servers = Servers { dhcp, dhcpv6, bird, frr };
    gateway.start()?;
    let mut rows = vec![];
    come_up(&lab, &mut rows);
    losses(&lab, &mut gateway, &mut servers, &mut rows)?;
    scene::finish(gateway, &mut rows)?;
    Ok(rows)
}
