//! The user plane as others see it: scapy as base station and judge, and captures of one subscriber as tshark reads them.

use crate::common;
use crate::gtpu;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{BINARY, Running, Site, accepted, balances, stderr, stdout, wait_until};
use gtpu::{ALICE, PLANE, bob, changed, radio};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::gnb::{DEVICE, Tunnel};
use sluice_lab::patience::patience;

/// scapy makes messages and reads those of the gateway.
#[test]
fn scapy_agrees_with_what_is_sent() {
    let site = Site::new("gtpu-scapy");
    let own = "set services gtp-u session alice prefix 2001:db8:45:2::/64\n";
    let gateway = site.start(&site.write("a.conf", &format!("{PLANE}{ALICE}{own}")));
    for host in [&site.left, &site.right] {
        host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off", "gso", "off", "tso", "off"]).unwrap();
    }
    let servers = ["10.71.2.2:9000", "[fd71:2::2]:9000"];
    let servers = servers.map(|own| site.right.enter(|| std::net::UdpSocket::bind(own).unwrap()).unwrap());
    let is_over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        for server in &servers {
            server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            scope.spawn(|| {
                let mut buffer = [0; 2048];
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((length, from)) = server.recv_from(&mut buffer) else { continue };
                    server.send_to(&buffer[..length], from).unwrap();
                }
            });
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gtpu_scapy.py");
        let words = [script, "10.71.1.2", "10.71.1.1", "10.71.2.2", "fd71:2::2"];
        // the system's Python: that is where the package puts scapy
        let output = site.left.command("/usr/bin/python3").args(words).output();
        is_over.store(true, Ordering::Relaxed);
        output.expect("python3 is installed (scripts/setup.sh)")
    });
    assert!(accepted(&output).contains("scapy agrees"), "{}", stderr(&output));
    balances(&gateway);
}

/// Linux's own GTP device as a base station, with alice's address on it.
#[test]
#[ignore = "wants a kernel with `gtp`, which many hosts of containers lack: `make kernels`"]
fn the_kernels_device_is_a_peer() {
    for mode in ["tc", "xdp"] {
        let site = Site::new(&format!("gtpu-dev-{mode}"));
        // that device knows no containers on every kernel
        let own = ALICE.replace("set services gtp-u session alice rules plain\n", "");
        let text = format!("{PLANE}{own}set system services sluice mode {mode}\n");
        let gateway = site.start(&site.write("a.conf", &text));
        let (left, right) = (&site.left, &site.right);
        for host in [left, right] {
            host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off", "gso", "off", "tso", "off"])
                .unwrap();
        }
        left.ip("link add gtp0 type gtp role sgsn").unwrap();
        left.ip("link set gtp0 mtu 1400 up").unwrap();
        left.ip("addr add 10.45.0.2/32 dev gtp0").unwrap();
        left.ip("route add 10.71.2.2/32 dev gtp0 src 10.45.0.2").unwrap();
        let context = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vm");
        let script = format!(
            "import sys; sys.path.insert(0, '{context}'); import gtp_context; \
             gtp_context.add('gtp0', '10.71.1.1', '10.45.0.2', 0x2001, 0x1001)"
        );
        left.run("/usr/bin/python3", ["-c", &script]).unwrap();
        let words = ["-c", "20", "-i", "0.1", "-W", "5", "-n", "-s", "1000", "-I", "10.45.0.2", "10.71.2.2"];
        let output = left.command("ping").args(words).output().unwrap();
        assert!(
            stdout(&output).contains(" 0% packet loss"),
            "{mode}: {}{}",
            stdout(&output),
            stderr(&output)
        );
        let usage = &gateway.json("/api/gtp-u/usage?name=alice").unwrap()["sessions"][0];
        let bytes = [&usage["uplink_bytes"], &usage["downlink_bytes"]];
        assert_eq!(bytes, [20 * 1028; 2].map(serde_json::Value::from).each_ref(), "{mode}: {usage}");
        balances(&gateway);
    }
}

/// Every packet that a subscriber's address is the filter of, and nobody else's.
fn a_capture_has_one_subscriber(mode: &str) {
    let site = Site::new(&format!("gtpu-cap-{mode}"));
    let text = format!("{PLANE}{ALICE}set system services sluice mode {mode}\n");
    let _gateway = site.start(&site.write("a.conf", &text));
    let (subscribers, gnb) = radio(&site, &format!("gtpu-cap-{mode}-ue"));
    changed(&site, "add-gtp-u-sessions", &bob(Some(0x1002)));
    subscribers.ip(&format!("addr add 10.45.0.3/32 dev {DEVICE}")).unwrap();
    gnb.set(Tunnel { subscriber: [10, 45, 0, 3].into(), uplink: 0x1002, downlink: 0x2002 });
    let ping = |from: &str| {
        let words = ["-c", "3", "-i", "0.05", "-W", "1", "-n", "-I", from, "10.71.2.2"];
        subscribers.command("ping").args(words).output().unwrap().status.success()
    };
    wait_until("both go through", Duration::from_secs(10), || ping("10.45.0.2") && ping("10.45.0.3"));
    let file = site.dir().join("alice.pcapng");
    let mut capture = site.gateway.command(BINARY);
    capture.args(["capture", "--prefix", "10.45.0.2/32", "--duration", "60", "-w"]).arg(&file);
    capture.arg("--state-dir").arg(site.state()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let capture = Running::spawn(&mut capture);
    let rows = || {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=a"]);
        command.args(["-e", "ip.src", "-e", "ip.dst", "-e", "frame.comment"]);
        stdout(&command.output().unwrap()).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let ways = || {
        let ways = ["10.45.0.2|10.71.2.2", "10.71.2.2|10.45.0.2"];
        ways.map(|way| rows().iter().filter(|row| row.contains(way)).count())
    };
    wait_until("packets of both ways", patience(Duration::from_secs(20)), || {
        ping("10.45.0.3");
        ping("10.45.0.2") && ways().iter().all(|count| *count >= 3)
    });
    kill(Pid::from_raw(capture.id() as i32), Signal::SIGINT).unwrap();
    let output = capture.ended("the capture", patience(Duration::from_secs(10)));
    assert!(output.status.success(), "{}", stderr(&output));
    let rows = rows();
    let has = |address: &str| rows.iter().filter(|row| row.contains(address)).count();
    assert_eq!(has("10.45.0.3"), 0, "{mode}: {rows:#?}");
    assert_eq!(has("10.45.0.2"), rows.len(), "{mode}: {rows:#?}");
}

#[test]
fn a_capture_has_one_subscriber_on_tc() {
    a_capture_has_one_subscriber("tc");
}

#[test]
fn a_capture_has_one_subscriber_on_xdp() {
    a_capture_has_one_subscriber("xdp");
}
