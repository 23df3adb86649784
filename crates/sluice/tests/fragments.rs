//! Datagrams larger than a link, with real hosts that take them apart and put them together, on both hooks.

use crate::common;

use std::net::UdpSocket;
use std::time::Duration;

use common::{Running, Site, balances, wait_until};
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_lab::netns::Netns;

const DATAGRAM: usize = 8000;
const DATAGRAMS: usize = 2000;

fn drops(stats: &Value, prefix: &str) -> u64 {
    let interfaces = stats["interfaces"].as_array().unwrap().iter();
    let all = interfaces.flat_map(|interface| interface["drops"].as_object().unwrap());
    all.filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count.as_u64().unwrap()).sum()
}

/// Nothing is dropped for being a fragment, and both equations hold.
fn check(gateway: &Gateway) {
    let stats = gateway.json("/api/stats").unwrap();
    assert_eq!(drops(&stats, "fragment"), 0, "{stats:#}");
    balances(gateway);
}

fn pings(from: &Netns, to: &str) -> bool {
    let output = from
        .command("ping")
        .args(["-q", "-n", "-s", "4000", "-c", "20", "-i", "0.01", "-W", "2", to])
        .output();
    let output = output.unwrap();
    common::stdout(&output).contains(" 0% packet loss")
}

/// Sends datagrams one after the other, each answered; how many came back whole.
fn echoes(site: &Site, server: &str, client: &str) -> usize {
    let listener = site.right.enter(|| UdpSocket::bind(format!("{server}:7007"))).unwrap().unwrap();
    let socket = site.left.enter(|| UdpSocket::bind(format!("{client}:0"))).unwrap().unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.connect(format!("{server}:7007")).unwrap();
    let mut buffer = vec![0; 65536];
    let mut whole = 0;
    for number in 0..DATAGRAMS {
        let datagram = vec![number as u8; DATAGRAM];
        socket.send(&datagram).unwrap();
        let Ok((length, from)) = listener.recv_from(&mut buffer) else { continue };
        listener.send_to(&buffer[..length], from).unwrap();
        whole += usize::from(socket.recv(&mut buffer).is_ok_and(|length| buffer[..length] == datagram));
    }
    whole
}

fn large_datagrams_cross(mode: &str, gro: &str) {
    let site = Site::new(&format!("frag-{mode}-{gro}"));
    // native XDP takes no frames whose checksum is still to be completed
    for (host, device) in
        [(&site.left, "eth0"), (&site.right, "eth0"), (&site.gateway, "left0"), (&site.gateway, "right0")]
    {
        host.run("ethtool", ["-K", device, "gro", gro, "tx", "off"]).unwrap();
    }
    if mode == "xdp" {
        // frames redirected to a veth are taken by its other end's NAPI
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "gro", "on"]).unwrap();
        }
    }
    let gateway = site.start(&site.write("a.conf", &format!("set system services sluice mode {mode}\n")));
    wait_until("the way is there", Duration::from_secs(5), || site.pings(&site.left, "10.71.2.2"));
    wait_until("the way is there", Duration::from_secs(5), || site.pings(&site.left, "fd71:2::2"));
    assert!(pings(&site.left, "10.71.2.2") && pings(&site.left, "fd71:2::2"), "through the gateway");
    assert!(pings(&site.left, "10.71.1.1") && pings(&site.left, "fd71:1::1"), "to the gateway");
    assert!(pings(&site.gateway, "10.71.2.2") && pings(&site.gateway, "fd71:2::2"), "from the gateway");
    assert!(!pings(&site.right, "10.71.1.2"), "what is denied stays denied in pieces");
    let before = gateway.json("/api/sessions").unwrap()["sessions"].as_array().unwrap().len();
    for (server, client) in [("10.71.2.2", "10.71.1.2"), ("[fd71:2::2]", "[fd71:1::2]")] {
        assert_eq!(echoes(&site, server, client), DATAGRAMS, "{server} with {mode}");
    }
    let sessions = gateway.json("/api/sessions").unwrap();
    let sessions = sessions["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), before + 2, "one session a flow");
    check(&gateway);
}

#[test]
fn large_datagrams_cross_on_tc() {
    large_datagrams_cross("tc", "on");
}

#[test]
fn large_datagrams_cross_on_tc_without_gro() {
    large_datagrams_cross("tc", "off");
}

#[test]
fn large_datagrams_cross_on_xdp() {
    large_datagrams_cross("xdp", "on");
}

/// left reaches right's IPv4 behind a prefix of its own.
pub const NAT64: &str = "
set security nat static rule-set six from zone left
set security nat static rule-set six rule servers match destination-address fd64::/96
set security nat static rule-set six rule servers then static-nat inet
set security nat source rule-set six from zone left
set security nat source rule-set six to zone right
set security nat source rule-set six rule clients match source-address fd71:1::/64 destination-address 0.0.0.0/0
set security nat source rule-set six rule clients then source-nat interface
";
const SERVER64: &str = "fd64::a47:202";

/// RFC 7915 4: what an IPv4 server sends without DF arrives whole at the IPv6 client, whatever its size: the gateway cuts
/// it, the client's kernel puts it together. The very first answer is cut already, toward a neighbour nobody knows yet.
fn long_answers_cross_nat64(mode: &str, statement: &str) {
    let site = Site::new(&format!("frag64-{mode}-{}", statement.len()));
    for (host, device) in
        [(&site.left, "eth0"), (&site.right, "eth0"), (&site.gateway, "left0"), (&site.gateway, "right0")]
    {
        host.run("ethtool", ["-K", device, "gro", "on", "tx", if mode == "xdp" { "off" } else { "on" }])
            .unwrap();
    }
    let gateway = site
        .start(&site.write("a.conf", &format!("{NAT64}{statement}set system services sluice mode {mode}\n")));
    // no socket sets DF
    site.right.run("sysctl", ["-qw", "net.ipv4.ip_no_pmtu_disc=1"]).unwrap();
    let listener = site.right.enter(|| UdpSocket::bind("10.71.2.2:7007")).unwrap().unwrap();
    let client = site.left.enter(|| UdpSocket::bind("[fd71:1::2]:0")).unwrap().unwrap();
    for socket in [&listener, &client] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    client.connect(format!("[{SERVER64}]:7007")).unwrap();
    let mut buffer = vec![0; 65536];
    for size in [3000, 1, 1212, 1213, 1452, 1453, 1472, 1473, 2952, 2953, 8000, 30_000] {
        client.send(b"how long?").unwrap();
        let (_, from) = listener.recv_from(&mut buffer).unwrap();
        let answer: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        listener.send_to(&answer, from).unwrap();
        let length = client.recv(&mut buffer).unwrap_or_else(|error| panic!("{size} bytes, {mode}: {error}"));
        assert!(buffer[..length] == answer, "{length} of {size} bytes with {mode}");
    }
    // answers to pings have no DF
    let long = ["-c", "3", "-i", "0.1", "-W", "2", "-n", "-s", "1400", SERVER64];
    assert!(site.left.command("ping").args(long).output().unwrap().status.success(), "{mode}");
    let stats = gateway.json("/api/stats").unwrap();
    let counted = |name: &str| {
        let units = stats["interfaces"].as_array().unwrap().iter();
        units.map(|unit| unit["counters"][name].as_u64().unwrap()).sum::<u64>()
    };
    assert!(counted("oversize") > 20 && counted("pieces") > counted("oversize"));
    check(&gateway);
}

#[test]
fn long_answers_cross_nat64_on_tc() {
    long_answers_cross_nat64("tc", "");
}

#[test]
fn long_answers_cross_nat64_on_xdp() {
    long_answers_cross_nat64("xdp", "set security nat static lowest-ipv6-mtu 1500\n");
}

/// A counter of a host's /proc/net/snmp.
fn counter(host: &Netns, protocol: &str, name: &str) -> u64 {
    let text = host.run("cat", ["/proc/net/snmp"]).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with(protocol));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let place = names.split_whitespace().position(|word| word == name).unwrap();
    values.split_whitespace().nth(place).unwrap().parse().unwrap()
}

#[test]
fn iperf3_sends_large_datagrams_without_loss_to_fragments() {
    let site = Site::new("frag-iperf");
    let gateway = site.start(&site.write("a.conf", ""));
    assert!(site.pings(&site.left, "10.71.2.2"));
    let server = Running::spawn(site.right.command("iperf3").args(["-s", "-1"]));
    std::thread::sleep(Duration::from_millis(300));
    let text = site
        .left
        .run("iperf3", ["-c", "10.71.2.2", "-u", "-l", "4000", "-b", "50M", "-t", "2", "-J"])
        .unwrap();
    server.ended("the server", Duration::from_secs(10));
    let report: Value = serde_json::from_str(&text).unwrap();
    let (sent, lost) = (&report["end"]["sum"]["packets"], &report["end"]["sum"]["lost_packets"]);
    let (sent, lost) = (sent.as_u64().unwrap(), lost.as_u64().unwrap());
    // a busy machine's receiver may lose some itself, which it counts
    let own = counter(&site.right, "Udp:", "RcvbufErrors") + counter(&site.right, "Ip:", "InDiscards");
    println!("{sent} datagrams of 4000 bytes, {lost} lost, {own} of them by the receiver's buffer");
    let failed = counter(&site.right, "Ip:", "ReasmFails");
    assert!(
        sent > 2000 && failed == 0 && lost <= own + sent / 100,
        "{lost} of {sent} lost, {own} by the receiver"
    );
    check(&gateway);
}
