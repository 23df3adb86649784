//! `services gate host-only` end to end: a host that is no gateway, with the gate alone before its only interface.

use crate::common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use common::{Site, accepted, bpftool, refused, wait_until};
use sluice_lab::gateway::Gateway;

const HOST: &str = "\
set interfaces left0 unit 0 family inet address 10.71.1.1/24
set interfaces left0 unit 0 family inet6 address fd71:1::1/64
set security zones security-zone lan interfaces left0.0
set security zones security-zone lan host-inbound-traffic system-services all
set security flow max-sessions 4096
set security flow max-sessions-v6 4096
set services gate zone lan
set services gate service admin destination-address 10.71.1.1
set services gate service admin destination-address fd71:1::1
set services gate service admin protocol tcp
set services gate service admin destination-port 22
";

fn configuration(mode: &str, more: &str) -> String {
    format!("{HOST}set interfaces left0 mode {mode}\n{more}")
}

/// Answers what comes with itself, on the ports of a shell of both families.
fn serve(site: &Site) {
    for address in ["10.71.1.1:22", "[fd71:1::1]:22"] {
        let listener = site.gateway.enter(|| TcpListener::bind(address)).unwrap().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (mut stream, mut buffer) = (stream, [0; 64]);
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        if stream.write_all(&buffer[..read]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
}

fn connect(site: &Site, address: &str) -> Option<TcpStream> {
    let address = address.parse().unwrap();
    site.left.enter(|| TcpStream::connect_timeout(&address, Duration::from_millis(700)).ok()).unwrap()
}

fn echoes(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let mut buffer = [0; 8];
    stream.write_all(b"ls\n").is_ok() && matches!(stream.read(&mut buffer), Ok(1..))
}

fn counted(gateway: &Gateway, reason: &str) -> u64 {
    let stats = gateway.json("/api/stats").unwrap();
    let drops = stats["drops"].as_array().unwrap();
    drops.iter().find(|d| d["reason"] == reason).map_or(0, |d| d["packets"].as_u64().unwrap())
}

/// Names of the programs on the device.
fn programs(site: &Site) -> Vec<String> {
    let name = |(_, link): (String, u64)| {
        let link = bpftool(&["link", "show", "id", &link.to_string()]);
        let program = bpftool(&["prog", "show", "id", &link["prog_id"].to_string()]);
        program["name"].as_str().unwrap().to_owned()
    };
    site.links().into_iter().map(name).collect()
}

fn host_only(label: &str, mode: &str) {
    let site = Site::new(label);
    site.left.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"]).unwrap();
    let with = site.write_all("with.conf", &configuration(mode, "set services gate host-only left0\n"));
    let without = site.write_all("without.conf", &configuration(mode, ""));
    let mut gateway = site.start(&with);
    serve(&site);
    let gate = format!("{mode}_gate");
    assert!(programs(&site).contains(&gate), "{:?}", programs(&site));

    assert!(connect(&site, "10.71.1.1:22").is_none() && connect(&site, "[fd71:1::1]:22").is_none(), "denied");
    assert!(counted(&gateway, "gate_no_grant") > 1);
    let denials = || accepted(&site.sluice(&["show", "log"])).contains("RT_GATE_DENY");
    wait_until("a denial is logged", Duration::from_secs(3), denials);
    for source in ["10.71.1.2", "fd71:1::2"] {
        let grant = ["gate", "grant", "--user", "alice", "--service", "admin", "--source", source];
        accepted(&site.sluice(&grant));
    }
    let mut four = connect(&site, "10.71.1.1:22").expect("granted");
    let mut six = connect(&site, "[fd71:1::1]:22").expect("granted");
    assert!(echoes(&mut four) && echoes(&mut six), "used");
    let sessions = gateway.json("/api/stats").unwrap()["sessions"].clone();
    assert!(site.silent(&site.left, "10.71.1.1"), "nothing else is open; sessions {sessions}");

    gateway.stop().unwrap();
    assert!(echoes(&mut four), "without a daemon");
    gateway.start().unwrap();
    assert!(echoes(&mut four) && echoes(&mut six), "after a restart");
    assert!(programs(&site).contains(&gate));
    gateway.kill().unwrap();
    gateway.start().unwrap();
    assert!(echoes(&mut four), "after a crash");

    accepted(&site.sluice(&["gate", "revoke", "--user", "alice"]));
    assert!(!echoes(&mut four) && !echoes(&mut six), "revoked live");
    assert!(connect(&site, "10.71.1.1:22").is_none());
    wait_until("every packet is accounted for", Duration::from_secs(3), || {
        gateway.json("/api/stats").unwrap()["equations"]["ingress"]["difference"] == 0
    });

    accepted(&site.commit(&without));
    assert!(!programs(&site).contains(&gate), "{:?}", programs(&site));
    assert!(connect(&site, "10.71.1.1:22").is_none(), "the gateway's own gate stands behind");
    accepted(&site.commit(&with));
    assert!(programs(&site).contains(&gate));
    let screened = configuration(mode, "set services gate host-only right0\n");
    let said = refused(&site.commit(&site.write_all("wrong.conf", &screened)), 2);
    assert!(said.contains("right0"), "{said}");
    gateway.finish().unwrap();
}

#[test]
fn a_host_behind_the_gate_alone_on_tc() {
    host_only("gatealtc", "tc");
}

#[test]
fn a_host_behind_the_gate_alone_on_xdp() {
    host_only("gatealxdp", "xdp");
}
