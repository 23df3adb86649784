//! Copies of a subscriber's packets (FAR: DUPL, TS 29.244 5.2.1) end to end: what tcpdump sees of a TCP stream and of datagrams
//! in the session's tunnel it sees once more in the copies' tunnels, byte for byte, with a daemon and without.

use crate::common;
use crate::gtpu;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use common::{Running, Site, balances, refused, wait_until};
use gtpu::{ALICE, PLANE, radio};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::netns::Netns;
use sluice_lab::patience::patience;
use sluice_wire::fields::{be16, be32};
use sluice_wire::gtpu::{EXTENSION_PRESENT, G_PDU, LONG};

/// Uplink and downlink copies are told apart by their TEIDs.
const COPIES: &str = "\
set services gtp-u duplicate up peer address 10.71.1.99
set services gtp-u duplicate up peer teid 0x9001
set services gtp-u duplicate down peer address 10.71.1.99
set services gtp-u duplicate down peer teid 0x9002
set services gtp-u rules watched qfi 9
set services gtp-u rules watched uplink duplicate up
set services gtp-u rules watched downlink duplicate down
";

/// Datagrams have tunnels of their own, whose TEIDs are two higher.
const COPIES_OF_FLOW: &str = "\
set services gtp-u duplicate up-media peer address 10.71.1.99
set services gtp-u duplicate up-media peer teid 0x9003
set services gtp-u duplicate down-media peer address 10.71.1.99
set services gtp-u duplicate down-media peer teid 0x9004
set services gtp-u rules watched flow media precedence 1
set services gtp-u rules watched flow media match protocol udp
set services gtp-u rules watched flow media match remote-port 9000
set services gtp-u rules watched flow media uplink duplicate up-media
set services gtp-u rules watched flow media downlink duplicate down-media
set services gtp-u rules watched flow rest precedence 2
";

const STREAM: usize = 2_000_000;
const DATAGRAMS: usize = 200;

struct Capture {
    tcpdump: Running,
    file: PathBuf,
}

/// All of GTP-U on a host's device, from when this returns.
fn capture(host: &Netns, directory: &Path) -> Capture {
    let (file, said) = (directory.join("all.pcap"), directory.join("said"));
    let mut command = host.command("tcpdump");
    // at once: what waits in its buffer when it ends is not written; that has room for so many of the greatest length
    command
        .args(["-n", "-U", "--immediate-mode", "-s", "2048", "-B", "65536", "-Z", "root", "-i", "eth0", "-w"])
        .arg(&file);
    command.arg("udp port 2152").stderr(File::create(&said).unwrap());
    let tcpdump = Running::spawn(&mut command);
    wait_until("tcpdump listens", Duration::from_secs(10), || {
        fs::read_to_string(&said).unwrap().contains("listening on")
    });
    Capture { tcpdump, file }
}

/// Where a message goes to, its TEID, and the packet in it.
type Data = (IpAddr, u32, Vec<u8>);

impl Capture {
    /// User data in outer IPv4, once no more comes.
    fn data(self) -> Vec<Data> {
        let length = || fs::metadata(&self.file).map_or(0, |file| file.len());
        let mut before = length();
        wait_until("the last packet is written", patience(Duration::from_secs(10)), || {
            thread::sleep(Duration::from_millis(500));
            std::mem::replace(&mut before, length()) == length()
        });
        kill(Pid::from_raw(self.tcpdump.id() as i32), Signal::SIGINT).unwrap();
        assert!(self.tcpdump.ended("tcpdump", patience(Duration::from_secs(10))).status.success());
        let bytes = fs::read(&self.file).unwrap();
        let (mut left, mut data) = (&bytes[24..], vec![]);
        while left.len() >= 16 {
            let length = u32::from_le_bytes(left[8..12].try_into().unwrap()) as usize;
            data.extend(user_data(&left[16..16 + length]));
            left = &left[16 + length..];
        }
        data
    }
}

/// TS 29.281 5.1, 5.2.1.
fn user_data(frame: &[u8]) -> Option<Data> {
    let to: [u8; 4] = frame.get(30..34)?.try_into().ok()?;
    let end = 34 + usize::from(be16(frame, 38..40));
    let message = frame.get(42..end)?;
    if message[1] != G_PDU {
        return None;
    }
    let mut at = 8;
    if message[0] & LONG != 0 {
        let mut next = if message[0] & EXTENSION_PRESENT != 0 { message[11] } else { 0 };
        at += 4;
        while next != 0 {
            at += usize::from(message[at]) * 4;
            next = message[at - 1];
        }
    }
    Some((to.into(), be32(message, 4..8), message[at..].to_vec()))
}

/// A stream that comes back, and datagrams both ways.
fn traffic(site: &Site, subscribers: &Netns) {
    let listener = site.right.enter(|| TcpListener::bind("10.71.2.2:9000").unwrap()).unwrap();
    let server = site.right.enter(|| UdpSocket::bind("10.71.2.2:9000").unwrap()).unwrap();
    let client = subscribers.enter(|| UdpSocket::bind("10.45.0.2:0").unwrap()).unwrap();
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(patience(Duration::from_secs(5)))).unwrap();
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sender = stream.try_clone().unwrap();
            std::io::copy(&mut stream, &mut sender).unwrap();
        });
        let mut stream = subscribers.enter(|| TcpStream::connect("10.71.2.2:9000").unwrap()).unwrap();
        let mut sender = stream.try_clone().unwrap();
        let sent: Vec<u8> = (0..STREAM).map(|at| (at * 31 % 251) as u8).collect();
        let mut received = vec![];
        scope.spawn({
            let sent = sent.clone();
            move || {
                sender.write_all(&sent).unwrap();
                sender.shutdown(std::net::Shutdown::Write).unwrap();
            }
        });
        stream.read_to_end(&mut received).unwrap();
        assert!(received == sent, "{} bytes came back", received.len());
    });
    let mut buffer = [0; 2048];
    for length in 0..DATAGRAMS {
        client.send_to(&vec![0x5a; length * 6], "10.71.2.2:9000").unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer[..length], from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), length);
    }
}

fn is_copy(teid: u32) -> bool {
    teid & 0xf000 == 0x9000
}

fn every_packet_comes_twice(mode: &str, more: &str) {
    let label = format!("gtpu-copy-{mode}{}", more.len());
    let site = Site::new(&label);
    let alice = ALICE.replace("rules plain", "rules watched");
    let text = format!("{PLANE}{COPIES}{alice}{more}set system services sluice mode {mode}\n");
    let mut gateway = site.start(&site.write("a.conf", &text));
    let (subscribers, _gnb) = radio(&site, &format!("{label}-ue"));
    for host in [&subscribers, &site.right] {
        // more at one time would be lost in queues that are not the gateway's
        host.run("sysctl", ["-w", "net.ipv4.tcp_rmem=4096 65536 65536"]).unwrap();
    }
    site.left.ip("addr add 10.71.1.99/24 dev eth0").unwrap();
    // else the kernel says that nobody is there
    let _recorder = site.left.enter(|| UdpSocket::bind("10.71.1.99:2152").unwrap()).unwrap();
    let capture = capture(&site.left, site.dir());
    traffic(&site, &subscribers);
    gateway.kill().unwrap();
    traffic(&site, &subscribers);
    gateway.start().unwrap();
    traffic(&site, &subscribers);
    let data = capture.data();
    let beyond = if more.contains("flow media") { 2 } else { 0 };
    let of = |to: &str, wanted: u32| {
        let to: IpAddr = to.parse().unwrap();
        let is_media = |packet: &[u8]| packet[9] == 17;
        let teid = |packet: &[u8]| wanted + if is_copy(wanted) && is_media(packet) { beyond } else { 0 };
        let chosen = data.iter().filter(|(at, found, packet)| *at == to && *found == teid(packet));
        let mut packets: Vec<&[u8]> = chosen.map(|(_, _, packet)| &packet[..]).collect();
        packets.sort_unstable();
        packets
    };
    let passed = [of("10.71.1.1", 0x1001), of("10.71.1.2", 0x2001)];
    let copies = [of("10.71.1.99", 0x9001), of("10.71.1.99", 0x9002)];
    let usage = &gateway.json("/api/gtp-u/usage?name=alice").unwrap()["sessions"][0];
    let used =
        [&usage["uplink_packets"], &usage["downlink_packets"]].map(|packets| packets.as_u64().unwrap());
    let drops = gateway.json("/api/gtp-u").unwrap()["drops"].clone();
    for (passed, copies) in passed.iter().zip(&copies) {
        assert!(passed.len() > 3 * DATAGRAMS + 3 * STREAM / 1400, "{mode}: {} packets", passed.len());
        assert_eq!(
            passed.len(),
            copies.len(),
            "{mode}: of so many packets there are copies: {usage} {drops}"
        );
        assert!(passed == copies, "{mode}: copies are the packets");
    }
    assert_eq!(used, passed.each_ref().map(|packets| packets.len() as u64), "{mode}: counted once");
    let metrics = gateway.get("/metrics").unwrap();
    let counter = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    assert_eq!(counter("sluice_duplicated_packets_total"), used[0] + used[1], "{mode}");
    let returned = counter("sluice_gtpu_returned_packets_total");
    assert_eq!(returned, if mode == "xdp" { used[0] } else { 0 }, "{mode}");
    balances(&gateway);
}

#[test]
fn every_packet_comes_twice_on_tc() {
    every_packet_comes_twice("tc", "");
}

#[test]
fn every_packet_comes_twice_on_xdp() {
    every_packet_comes_twice("xdp", "");
}

#[test]
fn a_flows_packets_go_into_its_own_tunnels_on_tc() {
    every_packet_comes_twice("tc", COPIES_OF_FLOW);
}

#[test]
fn a_flows_packets_go_into_its_own_tunnels_on_xdp() {
    every_packet_comes_twice("xdp", COPIES_OF_FLOW);
}

#[test]
fn every_packet_comes_twice_where_flows_are_spread() {
    every_packet_comes_twice("xdp", "set services gtp-u spread processors 1\n");
}

/// A session made over the API is copied by its rules; a commit begins it and ends it.
#[test]
fn commits_begin_and_end_copies() {
    let site = Site::new("gtpu-copy-commit");
    let alice = ALICE.replace("rules plain", "rules watched");
    let plain = site.write("plain.conf", &format!("{PLANE}set services gtp-u rules watched qfi 9\n{alice}"));
    let copied = site.write("copied.conf", &format!("{PLANE}{COPIES}{alice}"));
    let gateway = site.start(&plain);
    let (subscribers, _gnb) = radio(&site, "gtpu-copy-commit-ue");
    site.left.ip("addr add 10.71.1.99/24 dev eth0").unwrap();
    let recorder = site.left.enter(|| UdpSocket::bind("10.71.1.99:2152").unwrap()).unwrap();
    recorder.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let heard = || {
        let mut buffer = [0; 2048];
        std::iter::from_fn(|| recorder.recv(&mut buffer).ok()).count()
    };
    let ping =
        || subscribers.command("ping").args(["-c", "3", "-i", "0.05", "-n", "10.71.2.2"]).output().unwrap();
    assert!(ping().status.success());
    assert_eq!(heard(), 0);
    common::accepted(&site.commit(&copied));
    assert!(ping().status.success());
    assert_eq!(heard(), 6);
    let peers = gateway.json("/api/gtp-u/peers").unwrap();
    assert!(peers.to_string().contains("10.71.1.99"), "{peers}");
    let relay = serde_json::json!({ "name": "onward", "relay": true, "peer": "10.71.1.3", "peer_teid": 1,
                                    "rules": "watched" });
    let body = site.dir().join("relay.json");
    fs::write(&body, relay.to_string()).unwrap();
    let said = site.sluice(&["api", "add-gtp-u-sessions", "--body", body.to_str().unwrap()]);
    let said = common::stderr(&said);
    assert!(said.contains("rules `watched` have `duplicate`, and it is a relay"), "{said}");
    let itself = COPIES.replace("up peer address 10.71.1.99", "up peer address 10.71.1.1");
    let wrong = site.write("wrong.conf", &format!("{PLANE}{itself}{alice}"));
    assert!(
        refused(&site.commit(&wrong), 2).contains("duplicate `up`: peer 10.71.1.1 is this gateway itself")
    );
    common::accepted(&site.commit(&plain));
    assert!(ping().status.success());
    assert_eq!(heard(), 0);
    let peers = gateway.json("/api/gtp-u/peers").unwrap();
    assert!(!peers.to_string().contains("10.71.1.99"), "{peers}");
    balances(&gateway);
}
