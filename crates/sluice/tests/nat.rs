//! Translation end to end: what neighbours find, what reports say, and real applications.

use crate::common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Stdio;
use std::time::Duration;

use common::{Running, Site, accepted, stdout, wait_until};
use sluice_lab::capture;
use sluice_lab::netns::Netns;

/// Left goes out by a pool of right's network.
pub const POOL: &str = "
set security nat proxy-arp interface right0.0 address 10.71.2.10/32 to 10.71.2.12/32
set security nat proxy-ndp interface right0.0 address fd71:2::10
set security nat source pool p address 10.71.2.10/32
set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule r match source-address 10.71.1.0/24
set security nat source rule-set out rule r then source-nat pool p
";

const PERSISTENT: &str = "set security nat source rule-set out rule r then source-nat pool persistent-nat";

/// What persistent-nat lets in, policies must permit too.
pub const COME_IN: &str = "
set security policies from-zone right to-zone left policy in match source-address any destination-address any application any
set security policies from-zone right to-zone left policy in then permit
";

fn arping(from: &Netns, address: &str) -> bool {
    let arguments = ["-c", "1", "-w", "1", "-i", "eth0", address];
    from.command("arping").args(arguments).output().unwrap().status.success()
}

fn shown(site: &Site, arguments: &[&str]) -> String {
    accepted(&site.sluice(&[&["show"], arguments].concat()))
}

#[test]
fn neighbours_find_proxied_addresses_until_they_are_removed() {
    let site = Site::new("proxy");
    let _gateway = site.start(&site.write("a.conf", POOL));
    for address in ["10.71.2.10", "10.71.2.12"] {
        assert!(
            arping(&site.right, address),
            "{address}: {}",
            site.gateway.ip("neighbour show proxy").unwrap()
        );
    }
    assert!(!arping(&site.right, "10.71.2.13"), "nobody has it");
    assert!(!arping(&site.left, "10.71.2.10"), "asked on another interface");
    site.pings(&site.right, "fd71:2::10");
    let known = site.right.ip("-6 neighbour show fd71:2::10").unwrap();
    assert!(known.contains("lladdr"), "{known}");
    assert!(shown(&site, &["nat", "proxy"]).contains("10.71.2.10-10.71.2.12"));

    accepted(&site.commit(&site.write("b.conf", "")));
    assert!(!arping(&site.right, "10.71.2.10"), "it is gone with the commit");
    let left = site.gateway.ip("neighbour show proxy").unwrap();
    assert_eq!(left, "");
    assert!(!site.gateway.ip("route show").unwrap().contains("dev lo"));
    accepted(&site.commit(&site.write("a.conf", POOL)));
    assert!(arping(&site.right, "10.71.2.11"));
}

#[test]
fn reports_show_rules_pools_and_both_sides_of_sessions() {
    let site = Site::new("report");
    let gateway = site.start(&site.write("a.conf", POOL));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let session = &gateway.json("/api/sessions?nat=true").unwrap()["sessions"][0];
    assert_eq!(
        (&session["source"], &session["out_destination"]),
        (&"10.71.1.2".into(), &"10.71.2.10".into())
    );
    assert_eq!(session["nat_source_rule"], "out r");
    let sessions = shown(&site, &["sessions"]);
    let out = sessions.lines().find(|line| line.trim_start().starts_with("Out")).unwrap();
    assert!(out.contains("10.71.2.2 ") && out.contains("10.71.2.10:"), "{sessions}");

    let rule = shown(&site, &["nat", "source", "rule", "r"]);
    assert!(rule.contains("Translation hits      : 1"), "{rule}");
    assert!(rule.contains("1 live, 1 in all"), "{rule}");
    let pool = shown(&site, &["nat", "source", "pool", "p"]);
    assert!(pool.contains("Ports in use          : 1") && pool.contains("1024 to 65535"), "{pool}");
    assert!(shown(&site, &["nat", "source", "summary"]).contains("10.71.2.10"));
    let metrics = gateway.get("/metrics").unwrap();
    assert!(
        metrics.contains("sluice_nat_rule_hits_total{kind=\"source\",rule_set=\"out\",rule=\"r\"} 1\n"),
        "{metrics}"
    );

    let clear = |prefix| stdout(&site.sluice(&["clear", "sessions", "--nat-prefix", prefix]));
    assert_eq!(clear("10.71.2.11"), "0 sessions cleared\n");
    assert_eq!(clear("10.71.2.10"), "1 sessions cleared\n");
    assert!(shown(&site, &["nat", "source", "pool", "p"]).contains("Ports in use          : 0"));
}

#[test]
fn a_question_is_answered_from_a_file() {
    let site = Site::new("ask");
    let file = site.write("a.conf", POOL).display().to_string();
    let ask = |source: &str| {
        let packet = ["--source-ip", source, "--destination-ip", "10.71.2.2", "--protocol", "udp"];
        let units = ["--from-interface", "left0.0", "--to-interface", "right0.0"];
        let arguments = [&["test", "nat", &file][..], &packet, &units].concat();
        accepted(&site.gateway.command(common::BINARY).args(arguments).output().unwrap())
    };
    assert_eq!(ask("10.71.1.7"), "destination: 10.71.2.2 port 0 (no rule)\nsource: pool p (rule out r)\n");
    assert!(ask("10.72.1.7").ends_with("source: 10.72.1.7 port 0 (no rule)\n"));
}

/// Sends from a socket of its own, and says who the receiver saw.
fn source_seen(site: &Site, receiver: &UdpSocket) -> Option<String> {
    let sender = site.left.enter(|| UdpSocket::bind("10.71.1.2:0")).unwrap().unwrap();
    sender.send_to(b"x", "10.71.2.2:4000").unwrap();
    let (_, from) = receiver.recv_from(&mut [0; 8]).ok()?;
    Some(from.to_string())
}

#[test]
fn an_exhausted_pool_is_a_named_drop_a_log_line_and_a_counter() {
    let site = Site::new("full");
    let two = "set security nat source pool p port range 2000 to 2001\n";
    let gateway = site.start(&site.write("a.conf", &format!("{POOL}{two}")));
    let receiver = site.right.enter(|| UdpSocket::bind("10.71.2.2:4000")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    for _ in 0..3 {
        let mut seen = [source_seen(&site, &receiver).unwrap(), source_seen(&site, &receiver).unwrap()];
        seen.sort();
        assert_eq!(seen, ["10.71.2.10:2000", "10.71.2.10:2001"]);
        assert_eq!(source_seen(&site, &receiver), None, "both ports are taken");
        accepted(&site.sluice(&["clear", "sessions"]));
        // A full pool is not searched again at once.
        std::thread::sleep(Duration::from_millis(150));
    }
    wait_until("the log line", Duration::from_secs(5), || {
        let log = shown(&site, &["log"]);
        log.contains("RT_SRC_NAT_OUTOF_PORTS nat-pool-name=\"p\" nat-rule-name=\"out r\"")
    });
    let pool = &gateway.json("/api/nat").unwrap()["pools"];
    let pool = pool.as_array().unwrap().iter().find(|pool| pool["name"] == "p").unwrap();
    assert_eq!((&pool["exhausted"], &pool["allocated"]), (&3.into(), &6.into()), "{pool}");
    assert!(shown(&site, &["drops"]).contains("nat_ports_exhausted"));
}

fn serve(host: &Netns, program: &str, arguments: &[&str]) -> Running {
    let mut command = host.command(program);
    Running::spawn(command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
}

/// RFC 959: in passive mode the client opens both connections, so translation needs to know nothing of FTP.
#[test]
fn passive_ftp_passes_source_translation() {
    let site = Site::new("ftp");
    let _gateway = site.start(&site.write("a.conf", POOL));
    let file = "x".repeat(300_000);
    std::fs::write(site.dir().join("file"), &file).unwrap();
    let directory = site.dir().display().to_string();
    let _server = serve(
        &site.right,
        "/usr/bin/python3",
        &["-m", "pyftpdlib", "-i", "10.71.2.2", "-p", "21", "-d", &directory],
    );
    let arguments = [
        "-s",
        "--retry",
        "20",
        "--retry-connrefused",
        "--retry-delay",
        "1",
        "-m",
        "30",
        "ftp://10.71.2.2/file",
    ];
    let fetched = site.left.command("curl").args(arguments).output().unwrap();
    assert_eq!(fetched.stdout.len(), file.len(), "{fetched:?}");
}

/// A STUN server with two addresses tells its client what kind of translation lies between (RFC 5780 4.3, 4.4).
#[test]
fn a_stun_client_finds_the_translation_that_is_configured() {
    if std::process::Command::new("turnserver").arg("--version").output().is_err() {
        eprintln!("no turnserver here: setup.sh says why");
        return;
    }
    let site = Site::new("stun");
    site.right.ip("address add 10.71.2.3/24 dev eth0").unwrap();
    let _gateway = site.start(&site.write("a.conf", POOL));
    let data = site.dir().join("turn").display().to_string();
    let _server = serve(
        &site.right,
        "turnserver",
        &[
            "-n",
            "--stun-only",
            "-L",
            "10.71.2.2",
            "-L",
            "10.71.2.3",
            "--no-cli",
            "--no-tls",
            "--no-dtls",
            "--log-file",
            "/dev/null",
            "--userdb",
            &data,
            "--pidfile",
            &format!("{data}.pid"),
        ],
    );
    let discover = |what: &str| {
        let arguments = ["30", "turnutils_natdiscovery", what, "10.71.2.2"];
        stdout(&site.left.command("timeout").args(arguments).output().unwrap())
    };
    let finds = |mapping: &str, filtering: &str| {
        let mut said = String::new();
        wait_until("an answer of the STUN server", Duration::from_secs(60), || {
            said = discover("-m");
            said.contains("Mapping!")
        });
        said += &discover("-f");
        assert!(said.contains("UDP reflexive addr: 10.71.2.10:"), "{said}");
        for (what, kind) in [("Mapping", mapping), ("Filtering", filtering)] {
            assert!(said.contains(&format!("NAT with {kind} {what}!")), "{said}");
        }
    };
    finds("Address and Port Dependent", "Address and Port Dependent");
    // RFC 4787 REQ-1 and REQ-8: the same with persistent-nat, as far as it permits
    let table = || shown(&site, &["nat", "source", "persistent-nat-table", "all"]);
    assert!(table().starts_with("Persistent NAT bindings: 0 of"), "{}", table());
    for (permit, filtering) in [
        ("any-remote-host", "Endpoint Independent"),
        ("target-host", "Address Dependent"),
        ("target-host-port", "Address and Port Dependent"),
    ] {
        let persistent = format!("{POOL}{COME_IN}{PERSISTENT} permit {permit}\n");
        accepted(&site.commit(&site.write("b.conf", &persistent)));
        assert!(table().starts_with("Persistent NAT bindings: 0 of"), "another kind: {}", table());
        finds("Endpoint Independent", filtering);
        let shows = table();
        assert!(shows.contains(permit) && shows.contains("10.71.2.10") && shows.contains("out r"), "{shows}");
    }
    let cleared = accepted(&site.sluice(&["clear", "nat", "persistent-nat-table"]));
    assert!(cleared.ends_with("bindings cleared\n") && !cleared.starts_with("0 "), "{cleared}");
    assert!(table().starts_with("Persistent NAT bindings: 0 of"), "{}", table());
}

/// The kernel's own address of the device, which no statement gives it.
#[test]
fn bindings_of_an_interface_with_a_learned_address_outlive_a_commit() {
    let site = Site::new("learned");
    site.gateway.ip("address add 10.71.2.1/24 dev right0").unwrap();
    let base = common::BASE.replace("set interfaces right0 unit 0 family inet address 10.71.2.1/24\n", "");
    let conf = |name: &str| {
        let text = format!(
            "{base}set system host-name {name}
set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule r match source-address 10.71.1.0/24
set security nat source rule-set out rule r then source-nat interface persistent-nat permit any-remote-host
"
        );
        site.write_all("a.conf", &text)
    };
    let gateway = site.start(&conf("first"));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let bindings = || gateway.json("/api/nat/bindings").unwrap()["bindings"].clone();
    assert_eq!(bindings()[0]["reflexive_address"], "10.71.2.1");
    accepted(&site.commit(&conf("second")));
    assert_eq!(bindings().as_array().unwrap().len(), 1);
}

#[test]
fn sessions_of_static_nat_are_of_no_pool() {
    let site = Site::new("static");
    let text = "set security nat source rule-set out from zone left
set security nat source rule-set out to zone right
set security nat source rule-set out rule r match source-address 10.71.1.128/25
set security nat source rule-set out rule r then source-nat interface
set security nat static rule-set in from zone right
set security nat static rule-set in rule s match destination-address 10.71.2.20/32
set security nat static rule-set in rule s then static-nat prefix 10.71.1.2/32
set security nat proxy-arp interface right0.0 address 10.71.2.20/32
";
    let gateway = site.start(&site.write("a.conf", text));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let nat = gateway.json("/api/nat").unwrap();
    let of = |list: &str, name: &str| {
        let found = nat[list].as_array().unwrap().iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {nat}"))["live_sessions"].clone()
    };
    assert_eq!((of("rules", "s"), of("pools", "(interface)")), (1.into(), 0.into()), "{nat}");
}

/// Real traffic of three protocols and two families, as the receivers get it: every checksum is right, says tshark.
fn receivers_get_right_checksums(mode: &str) {
    let site = Site::new("sums");
    let six = "set security nat source pool s address fd71:2::10/128
set security nat source rule-set out rule s match source-address fd71:1::/64
set security nat source rule-set out rule s then source-nat pool s\n";
    let mode = format!("set system services sluice mode {mode}\n");
    if mode.contains("xdp") {
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"]).unwrap();
        }
    }
    let _gateway = site.start(&site.write("a.conf", &format!("{POOL}{six}{mode}")));
    // What the senders' stacks left open is completed where frames leave the gateway.
    capture::complete_checksums(&site.gateway, &["left0", "right0"]).unwrap();
    let traffic = || {
        for (ours, theirs) in [("10.71.1.2:0", "10.71.2.2:4000"), ("[fd71:1::2]:0", "[fd71:2::2]:4000")] {
            exchange(&site, ours, theirs);
        }
        for address in ["10.71.2.2", "fd71:2::2"] {
            let long = ["-c", "2", "-i", "0.1", "-W", "1", "-n", "-s", "3000", address];
            assert!(site.left.command("ping").args(long).output().unwrap().status.success(), "{address}");
            // nobody listens: an ICMP error comes back
            let unheard = format!("echo unheard > /dev/udp/{address}/9");
            site.left.run("bash", ["-c", &unheard]).unwrap();
        }
    };
    let (ok, seen) = capture::judged(&[&site.left, &site.right], site.dir(), traffic).unwrap();
    assert!(ok, "{seen}");
    let frames: usize = seen.split(' ').next().unwrap().parse().unwrap();
    assert!(frames > 30, "{seen}");
}

/// A datagram and a connection, with answers.
fn exchange(site: &Site, ours: &str, theirs: &str) {
    let receiver = site.right.enter(|| UdpSocket::bind(theirs)).unwrap().unwrap();
    let listener = site.right.enter(|| TcpListener::bind(theirs)).unwrap().unwrap();
    let sender = site.left.enter(|| UdpSocket::bind(ours)).unwrap().unwrap();
    for length in [1, 2, 1400] {
        let mut buffer = [0; 2000];
        sender.send_to(&buffer[..length], theirs).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        sender.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let (got, from) = receiver.recv_from(&mut buffer).unwrap();
        receiver.send_to(&buffer[..got], from).unwrap();
        assert_eq!(sender.recv(&mut buffer).unwrap(), length);
    }
    let mut near = site.left.enter(|| TcpStream::connect(theirs)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    for length in [1, 333, 1000] {
        near.write_all(&vec![7; length]).unwrap();
        far.read_exact(&mut vec![0; length]).unwrap();
        far.write_all(&vec![8; length]).unwrap();
        near.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[test]
fn tshark_finds_no_wrong_checksum_behind_tc() {
    receivers_get_right_checksums("tc");
}

#[test]
fn tshark_finds_no_wrong_checksum_behind_xdp() {
    receivers_get_right_checksums("xdp");
}
