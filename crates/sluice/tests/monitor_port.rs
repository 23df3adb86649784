//! The monitor on a port of a running gateway: it gets copies of every frame that it follows, and the gateway goes on as if
//! it were not there.

use crate::common;

use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{BINARY, Running, Site, accepted, bpftool, wait_until};
use sluice_lab::netns::Netns;
use sluice_monitor::capture::{self, Source};
use sluice_monitor::frame::Batch;
use sluice_monitor::protocol;

const PATIENCE: Duration = Duration::from_secs(20);
/// Datagrams between two turns of the receiver: what its buffer holds.
const BURST: u32 = 64;

/// ESP in UDP (RFC 3948 2.1) from one host to the other.
struct Tunnel {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Tunnel {
    fn between(left: &Netns, right: &Netns) -> Tunnel {
        let bound = |netns: &Netns| netns.enter(|| UdpSocket::bind("0.0.0.0:4500").unwrap()).unwrap();
        let tunnel = Tunnel { sender: bound(left), receiver: bound(right) };
        tunnel.receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        tunnel
    }

    /// Sends packets of these numbers and waits until each has arrived.
    fn send(&self, spi: u32, numbers: impl IntoIterator<Item = u32>) {
        let mut buffer = [0; 2048];
        let mut receive = |count| {
            for _ in 0..count {
                self.receiver.recv(&mut buffer).expect("the gateway forwards every packet");
            }
        };
        let mut waiting = 0;
        for number in numbers {
            let packet = [&spi.to_be_bytes()[..], &number.to_be_bytes(), &[number as u8; 48]].concat();
            self.sender.send_to(&packet, "10.71.2.2:4500").unwrap();
            waiting += 1;
            if waiting == BURST {
                receive(std::mem::take(&mut waiting));
            }
        }
        receive(waiting);
    }
}

fn site(label: &str, mode: &str) -> (Site, std::path::PathBuf) {
    let site = Site::new(label);
    let modes = format!("set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n");
    let configuration = site.write("port.conf", &modes);
    if mode == "xdp" {
        // A redirected frame is taken by the other end's NAPI, and XDP takes none whose checksum is to be completed.
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "gro", "on", "tx", "off"]).unwrap();
        }
    }
    (site, configuration)
}

fn is_there(site: &Site) {
    wait_until("the way is there", PATIENCE, || site.pings(&site.left, "10.71.2.2"));
}

fn tap(site: &Site) -> Box<dyn Source> {
    site.gateway.enter(|| capture::open("left0")).unwrap().unwrap()
}

/// Numbers of a channel in the order of their copies, until so many came.
fn numbers(tap: &mut dyn Source, spi: u32, wanted: usize) -> Vec<u32> {
    let (mut batch, mut seen, begun) = (Batch::default(), vec![], Instant::now());
    while seen.len() < wanted && begun.elapsed() < PATIENCE {
        assert!(tap.next_batch(&mut batch).unwrap());
        let observed = batch.frames().filter_map(|frame| protocol::observe(&frame).ok());
        seen.extend(observed.filter(|one| one.key.id() == spi).map(|one| one.sequence as u32));
    }
    seen
}

/// Name of the XDP program that the port's frames meet first.
fn xdp_program(site: &Site) -> Option<String> {
    let pin = site.pins().join("links").join(format!("xdp_{}", site.gateway.ifindex("left0").unwrap()));
    let link = pin.exists().then(|| bpftool(&["link", "show", "pinned", &pin.display().to_string()]))?;
    let program = bpftool(&["prog", "show", "id", &link["prog_id"].to_string()]);
    program["name"].as_str().map(str::to_owned)
}

fn copies_are_complete(label: &str, mode: &str) {
    let (site, configuration) = site(label, mode);
    let gateway = site.start(&configuration);
    is_there(&site);
    let tunnel = Tunnel::between(&site.left, &site.right);
    let mut port = tap(&site);
    let promiscuous = || site.gateway.ip("-d link show left0").unwrap().contains("promiscuity 1");
    assert!(!promiscuous(), "a copy needs no promiscuous port");

    // From the second packet on the fast path forwards; XDP redirects then, which no packet socket sees.
    let planted: Vec<u32> = (1..4000).filter(|number| number % 97 != 0).collect();
    tunnel.send(0x1001, planted.iter().copied());
    assert_eq!(numbers(&mut *port, 0x1001, planted.len()), planted, "each once, in order");

    // What is not followed is not copied, and what the gateway itself sends is.
    assert!(site.pings(&site.left, "10.71.2.2"));
    let own = site.gateway.enter(|| UdpSocket::bind("0.0.0.0:4500").unwrap()).unwrap();
    own.send_to(&[0, 0, 0x20, 0x02, 0, 0, 0, 1, 0x5a, 0x5a], "10.71.1.2:4500").unwrap();
    assert_eq!(numbers(&mut *port, 0x2002, 1), [1]);
    assert_eq!(port.drops(), 0);

    // A commit renews the gateway's programs, and the copies go on behind it.
    accepted(&site.commit(&configuration));
    let mut batch = Batch::default();
    let begun = Instant::now();
    let mut spi = 0x3000;
    let found = loop {
        spi += 1;
        tunnel.send(spi, 1..=8);
        port.next_batch(&mut batch).unwrap();
        if batch.frames().filter_map(|frame| protocol::observe(&frame).ok()).any(|one| one.key.id() == spi) {
            break true;
        }
        if begun.elapsed() > PATIENCE {
            break false;
        }
    };
    assert!(found, "no copies after a commit");

    let second = site.gateway.enter(|| capture::open("left0").err().unwrap()).unwrap();
    assert!(second.to_string().contains("another monitor"), "{second}");
    drop(port);
    assert_ne!(xdp_program(&site).as_deref(), Some("copy_xdp"), "the root has its place again");
    tunnel.send(0x4004, 1..=64);
    drop(gateway);
}

#[test]
fn copies_are_complete_on_tc() {
    copies_are_complete("porttc", "tc");
}

#[test]
fn copies_are_complete_on_xdp() {
    copies_are_complete("portxdp", "xdp");
}

/// A monitor that is killed leaves its program on the port: frames go on through it, and the next monitor or commit clears up.
#[test]
fn a_killed_monitor_stops_no_traffic() {
    let (site, configuration) = site("portkill", "xdp");
    let _gateway = site.start(&configuration);
    is_there(&site);
    let tunnel = Tunnel::between(&site.left, &site.right);
    let mut command = site.gateway.command(BINARY);
    command
        .args(["monitor", "left0", "--quiet"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut monitor = Running::spawn(&mut command);
    wait_until("the monitor is on the port", PATIENCE, || xdp_program(&site).as_deref() == Some("copy_xdp"));
    tunnel.send(0x1001, 1..=500);
    monitor.kill().unwrap();
    monitor.wait().unwrap();
    assert_eq!(xdp_program(&site).as_deref(), Some("copy_xdp"));
    tunnel.send(0x1001, 501..=2000);

    let mut port = tap(&site);
    tunnel.send(0x1001, 2001..=2500);
    assert_eq!(numbers(&mut *port, 0x1001, 500), (2001..=2500).collect::<Vec<_>>());
    drop(port);
    assert_eq!(xdp_program(&site).as_deref(), Some("xdp_root"), "what was left behind is gone");
    tunnel.send(0x1001, 2501..=3000);
}
