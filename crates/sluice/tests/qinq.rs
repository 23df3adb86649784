//! A unit with two tags on a real device: hosts behind it, the gateway's own traffic, MTU, in both directions.

use crate::common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use common::{BASE, Site};
use sluice_lab::helpers::{Tags, tag_with};
use sluice_lab::netns::Netns;

const BULK: usize = 1 << 20;

/// Everything that `client` sends to `to` comes back through the gateway.
fn echoes(server: &Netns, client: &Netns, to: &str) -> usize {
    let listener = server.enter(|| TcpListener::bind((to, 7777)).unwrap()).unwrap();
    let echo = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut data = Vec::new();
        stream.read_to_end(&mut data).unwrap();
        stream.write_all(&data).unwrap();
    });
    let mut stream = client.enter(|| TcpStream::connect((to, 7777)).unwrap()).unwrap();
    stream.write_all(&vec![0x5a; BULK]).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut data = Vec::new();
    stream.read_to_end(&mut data).unwrap();
    echo.join().unwrap();
    data.iter().filter(|byte| **byte == 0x5a).count()
}

fn pings_with(from: &Netns, to: &str, size: &str) -> bool {
    let arguments = ["-c", "1", "-W", "1", "-n", "-M", "do", "-s", size, to];
    from.command("ping").args(arguments).output().unwrap().status.success()
}

fn carries(label: &str, outer: &str, service: bool, mode: &str) {
    let site = Site::new(label);
    let trunk = BASE
        .replace("set interfaces right0 unit 0", "set interfaces right0 unit 3")
        .replace("right0.0", "right0.3")
        + &format!(
            "set interfaces right0 flexible-vlan-tagging\nset interfaces right0 unit 3 vlan-tags outer {outer} inner 7\n\
             set security zones security-zone right host-inbound-traffic system-services ping\n\
             set interfaces left0 mode {mode}\nset interfaces right0 mode {mode}\n"
        );
    // native XDP sees only what stands in the frame, and sends what the far end need not complete
    for host in [&site.left, &site.right] {
        let off = ["-K", "eth0", "tx", "off", "gro", "on", "txvlan", "off", "tx-vlan-stag-hw-insert", "off"];
        host.run("ethtool", off).unwrap();
    }
    let _gateway = site.start(&site.write_all("a.conf", &trunk));
    tag_with(&site.right, "eth0", Tags { outer: 100, service, inner: Some(7) }).unwrap();
    // a smaller MTU of the device would have veth refuse what XDP sends it with both tags
    site.right.ip("route replace default via 10.71.2.1 mtu 1496").unwrap();
    site.right.ip("-6 route replace default via fd71:2::1 mtu 1496").unwrap();
    assert!(site.pings(&site.left, "10.71.2.2"), "the neighbour is asked with two tags");
    assert!(site.pings(&site.left, "fd71:2::2"));
    assert!(site.pings(&site.gateway, "10.71.2.2"), "the gateway's own leave with two tags");
    assert!(site.pings(&site.right, "10.71.2.1"), "and what is for it reaches it");
    assert!(site.silent(&site.right, "10.71.1.2"), "no policy permits that");
    assert!(pings_with(&site.left, "10.71.2.2", "1468"), "1496 bytes pass");
    assert!(!pings_with(&site.left, "10.71.2.2", "1469"), "the second tag takes 4 bytes");
    assert_eq!(echoes(&site.right, &site.left, "10.71.2.2"), BULK);
    assert_eq!(echoes(&site.right, &site.left, "fd71:2::2"), BULK);
}

#[test]
fn two_tags_on_tc() {
    carries("qinqtc", "100", false, "tc");
}

#[test]
fn two_tags_on_xdp() {
    carries("qinqxdp", "100", false, "xdp");
}

#[test]
fn a_service_tag_on_tc() {
    carries("stagtc", "0x88a8.100", true, "tc");
}

#[test]
fn a_service_tag_on_xdp() {
    carries("stagxdp", "0x88a8.100", true, "xdp");
}
