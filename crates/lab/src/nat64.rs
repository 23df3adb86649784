//! `sluice lab run nat64`: an IPv6-only client uses IPv4-only servers, by address and by name.
//!
//! ```text
//!   client 2001:db8:6::64 ---- office0 gateway wan0 ---- 203.0.113.2 router 198.51.100.1 ---- 198.51.100.33 server
//!   and its resolver                                                       (MTU 1400)
//! ```
//!
//! No host has both families. The client's resolver (unbound) makes AAAA records of A records (DNS64, RFC 6147).

use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::{HOST_DEVICE, Hook};
use crate::capture;
use crate::netns::{self, Netns, VethEnd};
use crate::patience::until;
use crate::services::{self, Service};
use crate::state::{self, StateDirectory};
use crate::{hosts, interrupt, scene, stats};

/// The gateway's configuration when none is given.
pub const NAT64_CONF: &str = include_str!("../../../examples/nat64.conf");
const NAME: &str = "web.sluice.example";
const SERVER: &str = "198.51.100.33";
/// The same behind the Well-Known Prefix.
const SEEN: &str = "64:ff9b::198.51.100.33";
const ROUTER_SEEN: &str = "64:ff9b::cb00:7102";
const NARROW_MTU: u32 = 1400;

#[derive(Debug, Serialize)]
pub struct Row {
    pub what: &'static str,
    pub ok: bool,
    pub seen: String,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub lab: &'static str,
    pub ok: bool,
    pub gateways: Vec<GatewayReport>,
}

#[derive(Debug, Serialize)]
pub struct GatewayReport {
    pub gateway: &'static str,
    pub ok: bool,
    pub rows: Vec<Row>,
    /// Checksum errors counted by the hosts' stacks, which must be none.
    pub checksum_errors: Vec<String>,
}

/// Runs it on every wanted hook. The exit code says whether everything was as expected.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    interrupt::install()?;
    state::remove_leftovers();
    let mut gateways = vec![];
    for hook in args.hook.list() {
        gateways.push(run_hook(*hook, args.config.as_deref())?);
    }
    let report = Report { lab: "nat64", ok: gateways.iter().all(|gateway| gateway.ok), gateways };
    let data_only = args.json.as_deref() == Some(Path::new("-"));
    if let Some(file) = args.json.as_deref().filter(|_| !data_only) {
        fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    if data_only {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(report: &Report) {
    for gateway in &report.gateways {
        println!("\nNAT64 on the {} hook: an IPv6-only client, IPv4-only servers", gateway.gateway);
        for row in &gateway.rows {
            println!("  {} {:<52} {}", if row.ok { "ok  " } else { "FAIL" }, row.what, row.seen);
        }
        match gateway.checksum_errors.as_slice() {
            [] => println!("  Checksum errors in the hosts' stacks: none"),
            errors => println!("  CHECKSUM ERRORS: {}", errors.join(", ")),
        }
    }
    let verdict = if report.ok { "everything as expected" } else { "SOMETHING DIFFERS, see above" };
    println!("\nsluice lab {}: {verdict}", report.lab);
}

/// The namespaces; dropping them removes them.
struct Hosts {
    gateway: Netns,
    client: Netns,
    router: Netns,
    server: Netns,
}

impl Hosts {
    fn create(hook: Hook) -> Result<Hosts> {
        let make = |label: &str| Netns::create(label);
        let hosts = Hosts {
            gateway: make("gw")?,
            client: make("client")?,
            router: make("router")?,
            server: make("server")?,
        };
        let end = |netns, name, addresses| VethEnd { netns, name, mac: None, addresses };
        netns::veth(
            end(&hosts.gateway, "office0", &[]),
            end(&hosts.client, HOST_DEVICE, &["2001:db8:6::64/64"]),
        )?;
        netns::veth(end(&hosts.gateway, "wan0", &[]), end(&hosts.router, HOST_DEVICE, &["203.0.113.2/24"]))?;
        netns::veth(
            end(&hosts.router, "inner0", &["198.51.100.1/24"]),
            end(&hosts.server, HOST_DEVICE, &["198.51.100.33/24"]),
        )?;
        hosts.client.ip("route add default via 2001:db8:6::1")?;
        hosts.server.ip("route add default via 198.51.100.1")?;
        hosts.router.enable_forwarding()?;
        for (netns, device) in [(&hosts.router, "inner0"), (&hosts.server, HOST_DEVICE)] {
            netns.ip(&format!("link set {device} mtu {NARROW_MTU}"))?;
        }
        for netns in [&hosts.client, &hosts.router, &hosts.server] {
            netns.sysctl("net.ipv4.icmp_ratelimit", "0")?;
            netns.sysctl("net.ipv6.icmp.ratelimit", "0")?;
        }
        if hook == Hook::Xdp {
            // XDP sees frames as the stack left them: checksums must be complete, and a peer that polls takes redirects
            for netns in [&hosts.client, &hosts.router] {
                netns.run("ethtool", ["-K", HOST_DEVICE, "tx", "off", "gro", "on"])?;
            }
            hosts.router.run("ethtool", ["-K", "inner0", "tx", "off"])?;
            hosts.server.run("ethtool", ["-K", HOST_DEVICE, "tx", "off"])?;
        }
        Ok(hosts)
    }
}

fn run_hook(hook: Hook, config: Option<&Path>) -> Result<GatewayReport> {
    let directory = StateDirectory::new(hook.name())?;
    let hosts = Hosts::create(hook)?;
    let _services = services::start(&[&hosts.server], directory.path())?;
    let _resolver = start_resolver(&hosts.client, directory.path())?;
    let text = match config {
        Some(file) => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => NAT64_CONF.to_owned(),
    };
    let mode = format!("system {{ services {{ sluice {{ mode {}; }} }} }}\n", hook.name());
    let mut gateway = scene::gateway(&hosts.gateway, directory.path(), "nat64.conf", &(text + &mode))?;
    gateway.start()?;
    let mut rows = vec![];
    for (what, check) in CHECKS {
        interrupt::check()?;
        let (ok, seen) =
            check(&hosts, directory.path()).unwrap_or_else(|error| (false, format!("{error:#}")));
        rows.push(Row { what, ok, seen });
    }
    let balance = stats::at_rest(&gateway)?;
    rows.push(Row { what: "received = sent + drops", ok: balance.equations.hold(), seen: String::new() });
    let checksum_errors = hosts::checksum_errors(&[&hosts.client, &hosts.router, &hosts.server])?;
    let ok = checksum_errors.is_empty() && rows.iter().all(|row| row.ok);
    if !ok {
        eprintln!("last words of the daemon:\n{}", gateway.last_words());
    }
    gateway.finish()?;
    Ok(GatewayReport { gateway: hook.name(), ok, rows, checksum_errors })
}

type Check = fn(&Hosts, &Path) -> Result<(bool, String)>;

const CHECKS: [(&str, Check); 9] = [
    ("ping by address", ping),
    ("curl by name, through DNS64", curl_by_name),
    ("curl by address", curl_by_address),
    ("traceroute names the IPv4 router behind the prefix", traceroute),
    ("an ICMPv6 Packet Too Big tells the narrow link's MTU", path_mtu),
    ("iperf3 up, through the narrow link", iperf_up),
    ("iperf3 down", iperf_down),
    ("tshark finds every checksum right", checksums),
    ("a server that nobody asked reaches nobody", unrelated),
];

fn output(netns: &Netns, program: &str, arguments: &[&str]) -> Result<(bool, String)> {
    let out =
        netns.command(program).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Ok((out.status.success(), text))
}

fn ping(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    let (ok, text) = output(&hosts.client, "ping", &["-n", "-c5", "-i0.05", "-W1", "-s200", SEEN])?;
    let summary = text.lines().find(|line| line.contains("transmitted")).unwrap_or_default().to_owned();
    Ok((ok && summary.contains(" 0% packet loss"), summary))
}

fn page(hosts: &Hosts, arguments: &[&str], program: &str) -> Result<(bool, String)> {
    let (ok, text) = output(&hosts.client, program, arguments)?;
    let size = text.trim().to_owned();
    Ok((ok && size == services::PAGE_BYTES.to_string(), format!("{size} bytes")))
}

fn curl_by_address(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    let url = format!("http://[{SEEN}]/");
    page(hosts, &["-s", "-m5", "-o", "/dev/null", "-w", "%{size_download}", &url], "curl")
}

/// The client's resolver is named in a file that only this command sees, in a mount namespace of its own.
fn curl_by_name(hosts: &Hosts, state: &Path) -> Result<(bool, String)> {
    let file = state.join("resolv.conf");
    fs::write(&file, "nameserver ::1\n")?;
    let script = format!(
        "mount --bind {} /etc/resolv.conf && exec curl -s -m5 -o /dev/null -w '%{{size_download}}' http://{NAME}/",
        file.display()
    );
    page(hosts, &["-m", "sh", "-c", &script], "unshare")
}

fn traceroute(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    let (ok, text) = output(&hosts.client, "traceroute", &["-6", "-n", "-q1", "-w1", "-m5", SEEN])?;
    let hops: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    let wanted = ["2001:db8:6::1", ROUTER_SEEN, "64:ff9b::c633:6421"];
    Ok((ok && hops == wanted, hops.join(" ")))
}

fn path_mtu(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    // 1,500 bytes of IPv6 are 1,480 of IPv4; the link behind the router takes 1,400
    output(&hosts.client, "ping", &["-n", "-c2", "-i0.2", "-W1", "-Mdo", "-s1452", SEEN])?;
    let (_, text) = output(&hosts.client, "ip", &["-6", "route", "get", SEEN])?;
    let learnt =
        text.split_whitespace().skip_while(|word| *word != "mtu").nth(1).unwrap_or("none").to_owned();
    let fits = output(&hosts.client, "ping", &["-n", "-c2", "-i0.2", "-W1", "-Mdo", "-s1372", SEEN])?.0;
    Ok((fits && learnt == (NARROW_MTU + 20).to_string(), format!("path MTU {learnt}")))
}

fn iperf(hosts: &Hosts, more: &[&str]) -> Result<(bool, String)> {
    let port = services::IPERF_PORT.to_string();
    let arguments = [&["-6", "-c", SEEN, "-p", &port, "-t", "2", "-J"], more].concat();
    let (ok, text) = output(&hosts.client, "iperf3", &arguments)?;
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let bits = value["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
    Ok((ok && bits > 1e7, format!("{:.2} Gb/s", bits / 1e9)))
}

fn iperf_up(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    iperf(hosts, &[])
}

fn iperf_down(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    iperf(hosts, &["-R", "-P2"])
}

/// The gateway's devices complete what the sender's stack left open, so every sum stands in the frame.
fn checksums(hosts: &Hosts, state: &Path) -> Result<(bool, String)> {
    capture::complete_checksums(&hosts.gateway, &["office0", "wan0"])?;
    capture::judged(&[&hosts.client, &hosts.router], state, || {
        let say = |program: &str, arguments: &[&str]| drop(output(&hosts.client, program, arguments));
        let url = format!("http://[{SEEN}]/");
        // an answer of one segment: where GRO must be on, longer ones are joined before anybody sees them
        say("curl", &["-s", "-m5", "-o", "/dev/null", "-I", &url]);
        say("ping", &["-n", "-c3", "-i0.1", "-W1", "-s200", SEEN]);
        say("ping", &["-n", "-c2", "-i0.1", "-W1", "-s1452", SEEN]);
        say("traceroute", &["-6", "-n", "-q1", "-w1", "-m5", SEEN]);
    })
}

/// RFC 6146 section 3.5: what belongs to no session is not translated.
fn unrelated(hosts: &Hosts, _: &Path) -> Result<(bool, String)> {
    let script = "echo hello > /dev/udp/203.0.113.1/20000; exec 3<>/dev/tcp/203.0.113.1/80";
    let ok = output(&hosts.server, "timeout", &["1", "bash", "-c", script])?.0;
    Ok((!ok, String::new()))
}

/// An authority for one name that has an IPv4 address, and DNS64 on top of it.
fn start_resolver(client: &Netns, state: &Path) -> Result<Service> {
    let home = state.join("unbound");
    fs::create_dir_all(&home)?;
    let (zone, configuration) = (home.join("example.zone"), home.join("unbound.conf"));
    fs::write(
        &zone,
        format!(
            "sluice.example. 60 IN SOA ns.sluice.example. admin.sluice.example. 1 60 60 60 60\n\
             sluice.example. 60 IN NS ns.sluice.example.\n{NAME}. 60 IN A {SERVER}\n"
        ),
    )?;
    fs::write(&configuration, resolver_configuration(&home, &zone))?;
    let mut command = client.command("unbound");
    command.arg("-d").arg("-c").arg(&configuration).stdout(Stdio::null());
    command.stderr(fs::File::create(home.join("log"))?);
    let service = Service(command.spawn().context("cannot start unbound; scripts/setup.sh installs it")?);
    let listens = || Ok(client.enter(|| std::net::UdpSocket::bind("[::1]:53").is_err())?);
    let log = || fs::read_to_string(home.join("log")).unwrap_or_default();
    until(services::LISTEN, listens, || format!("unbound does not listen, and says {:?}", log()))?;
    Ok(service)
}

fn resolver_configuration(home: &Path, zone: &Path) -> String {
    let (home, zone) = (home.display(), zone.display());
    format!(
        "server:\n  directory: \"{home}\"\n  pidfile: \"{home}/pid\"\n  chroot: \"\"\n  username: \"\"\n  \
         use-syslog: no\n  do-daemonize: no\n  interface: ::1\n  access-control: ::1/128 allow\n  \
         module-config: \"dns64 iterator\"\n  dns64-prefix: 64:ff9b::/96\n\
         remote-control:\n  control-enable: no\n\
         auth-zone:\n  name: \"sluice.example\"\n  zonefile: \"{zone}\"\n  for-downstream: no\n  for-upstream: yes\n"
    )
}
