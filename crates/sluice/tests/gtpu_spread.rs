//! `services gtp-u spread`: all that a base station sends is one outer flow, which a device hands to one CPU. What is in it goes on
//! at the CPU of its own flow, in order; what that CPU's queue does not take is a named drop. That nothing else is lost, and usage is
//! exact, while the daemon is killed and the CPUs change, is in gtpu_count.rs.

use crate::{common, gtpu_count};

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Site, accepted, balances, refused, wait_until};
use gtpu_count::{PLANE, SUBSCRIBERS, address4, bound, inner, pin, send_message, sessions, site};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use sluice_lab::gateway::Gateway;
use sluice_wire::checksum::Pseudo;
use sluice_wire::{ipv4, protocol, udp};

/// Whose queue takes what CPU 0 has from the device.
const OTHER: usize = 1;
const FLOWS: u16 = 64;
const PATIENCE: Duration = Duration::from_secs(5);

fn configuration(more: &str) -> String {
    format!("{PLANE}set system services sluice mode xdp\n{more}\n")
}

/// A packet of a flow, with its number behind the headers.
fn send(station: &UdpSocket, flow: u16, number: u32) {
    let subscriber = usize::from(flow) % SUBSCRIBERS;
    let mut packet = inner(subscriber, true, 2000 + flow, 100);
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    // without a checksum (RFC 768), since the number is not in it
    packet[26..28].fill(0);
    send_message(station, subscriber, &packet);
}

/// What arrived at the server until nothing more comes: flow and number of each, in their order.
fn arrived(server: &UdpSocket) -> Vec<(u16, u32)> {
    let mut buffer = [0; 2048];
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut all = vec![];
    while let Ok((_, from)) = server.recv_from(&mut buffer) {
        all.push((from.port() - 2000, u32::from_be_bytes(buffer[..4].try_into().unwrap())));
    }
    all
}

/// Packets that CPUs had from others, and those that wait.
fn spread(gateway: &Gateway) -> Vec<(u64, u64, u64)> {
    let view = gateway.json("/api/gtp-u").unwrap();
    let cpus = view["counts"]["spread"].as_array().unwrap().iter();
    let number = |own: &Value, field: &str| own[field].as_u64().unwrap();
    cpus.map(|own| (number(own, "cpu"), number(own, "packets"), number(own, "waiting"))).collect()
}

fn drops(gateway: &Gateway, reason: &str) -> u64 {
    let view = gateway.json("/api/gtp-u").unwrap();
    let mut drops = view["drops"].as_array().unwrap().iter();
    drops.find(|drop| drop["reason"] == reason).map_or(0, |drop| drop["packets"].as_u64().unwrap())
}

struct Stand {
    site: Site,
    station: UdpSocket,
    server: UdpSocket,
}

impl Stand {
    fn new(label: &str) -> Stand {
        let site = site(label);
        let (station, server) = (bound(&site.left, "10.71.1.2:2152"), bound(&site.right, "10.71.2.2:9000"));
        // what is lost here would be taken for lost in the gateway
        setsockopt(&server, sockopt::RcvBufForce, &(64 << 20)).unwrap();
        Stand { site, station, server }
    }

    fn start(&self, more: &str) -> Gateway<'_> {
        let gateway = self.site.start(&self.site.write("a.conf", &configuration(more)));
        sessions(&self.site);
        gateway
    }
}

#[test]
fn flows_go_on_at_their_cpus_in_order() {
    let stand = Stand::new("gtpu-s-order");
    let gateway = stand.start("set services gtp-u spread");
    const ROUNDS: u32 = 200;
    let all = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrived(&stand.server));
        pin(0);
        for number in 0..ROUNDS {
            (0..FLOWS).for_each(|flow| send(&stand.station, flow, number));
            thread::sleep(Duration::from_millis(1));
        }
        receiver.join().unwrap()
    });
    assert_eq!(
        all.len(),
        usize::from(FLOWS) * ROUNDS as usize,
        "drops {}",
        gateway.json("/api/gtp-u").unwrap()["drops"]
    );
    for flow in 0..FLOWS {
        let numbers: Vec<u32> = all.iter().filter(|(of, _)| *of == flow).map(|(_, number)| *number).collect();
        assert!(numbers.is_sorted(), "flow {flow}: {numbers:?}");
    }
    let [(0, back, 0), (1, there, 0)] = spread(&gateway)[..] else { panic!("{:?}", spread(&gateway)) };
    let sent = all.len() as u64;
    assert!((sent / 5..sent * 4 / 5).contains(&there), "{there} of {sent}");
    assert_eq!(back, 0, "the softirq of whoever sends into a veth pair has its own packets");
    let text = accepted(&stand.site.sluice(&["cli", "-c", "show services gtp-u statistics"]));
    assert!(text.contains("Spread to CPU") && text.contains(&format!("{there}")), "{text}");
    let metrics = gateway.get("/metrics").unwrap();
    assert!(metrics.contains(&format!("sluice_gtpu_spread_packets_total{{cpu=\"1\"}} {there}")), "{metrics}");
    balances(&gateway);
}

/// What cannot be finished on the other CPU alone: hosts whose neighbours are not known, and this one's own address.
#[test]
fn what_the_kernel_finishes_is_finished() {
    let stand = Stand::new("gtpu-s-kernel");
    let gateway = stand.start(
        "set services gtp-u spread processors 1\n\
         set security zones security-zone mobile host-inbound-traffic system-services any-service",
    );
    pin(0);
    stand.site.gateway.ip("neigh flush all").unwrap();
    (0..16).for_each(|flow| send(&stand.station, flow, 0));
    let mut all = arrived(&stand.server);
    all.sort_unstable();
    assert_eq!(all, (0..16).map(|flow| (flow, 0)).collect::<Vec<_>>());
    // a datagram for the gateway itself, of which a socket there has the whole
    let own = stand.site.gateway.enter(|| UdpSocket::bind("10.45.0.1:9000").unwrap()).unwrap();
    own.set_read_timeout(Some(PATIENCE)).unwrap();
    let (source, destination) = (address4(3), "10.45.0.1".parse().unwrap());
    let header = udp::Builder { source_port: 2500, destination_port: 9000, ..Default::default() };
    let datagram = header.build(&[0; 72], Pseudo::V4(source, destination));
    let packet =
        ipv4::Builder { source, destination, protocol: protocol::UDP, ..Default::default() }.build(&datagram);
    send_message(&stand.station, 3, &packet);
    assert_eq!(own.recv(&mut [0; 2048]).unwrap(), 72);
    assert!(matches!(spread(&gateway)[..], [(1, 17.., 0)]), "{:?}", spread(&gateway));
    balances(&gateway);
}

#[test]
fn what_a_queue_does_not_take_is_a_named_drop() {
    let stand = Stand::new("gtpu-s-full");
    let gateway =
        stand.start("set services gtp-u spread processors 1\nset services gtp-u spread queue-size 64");
    let done = AtomicBool::new(false);
    let (arrived, sent) = thread::scope(|scope| {
        let receiver = scope.spawn(|| arrived(&stand.server).len() as u64);
        // the other CPU has something else to do as well
        scope.spawn(|| {
            pin(OTHER);
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        pin(0);
        let mut sent = 0;
        while drops(&gateway, "gtpu_queue") == 0 && sent < 1_000_000 {
            (0..1000).for_each(|number| send(&stand.station, (number % 64) as u16, number));
            sent += 1000;
        }
        done.store(true, Ordering::Relaxed);
        (receiver.join().unwrap(), sent)
    });
    let dropped = drops(&gateway, "gtpu_queue");
    assert!(dropped > 0 && arrived < sent, "{dropped} of {sent} dropped, {arrived} arrived");
    let [(1, taken, 0)] = spread(&gateway)[..] else { panic!("{:?}", spread(&gateway)) };
    assert_eq!(taken + dropped, sent, "what was not dropped by name was taken");
    balances(&gateway);
}

#[test]
fn a_trace_follows_packets_to_their_cpu() {
    let stand = Stand::new("gtpu-s-trace");
    let _gateway = stand.start("set services gtp-u spread processors 1");
    let text = thread::scope(|scope| {
        let trace = scope.spawn(|| {
            accepted(&stand.site.sluice(&["trace", "--count", "3", "--port", "2001", "--duration", "20"]))
        });
        // the trace is left where it runs
        pin(0);
        let mut number = 0;
        while !trace.is_finished() {
            send(&stand.station, 1, number);
            number += 1;
            thread::sleep(Duration::from_millis(20));
        }
        trace.join().unwrap()
    });
    assert_eq!(text.matches("10.45.1.1:2001 > 10.71.2.2:9000").count(), 3, "{text}");
    assert!(!text.contains("dropped"), "{text}");
}

#[test]
fn wrong_cpus_and_hooks_are_said() {
    let stand = Stand::new("gtpu-s-wrong");
    let gateway = stand.start("");
    let commit = |more: &str| stand.site.commit(&stand.site.write("b.conf", &configuration(more)));
    let text = refused(&commit("set services gtp-u spread processors 4095"), 1);
    assert!(text.contains("CPU 4095") && text.contains("online"), "{text}");
    assert!(spread(&gateway).is_empty(), "the configuration before is in force");
    accepted(&commit("set services gtp-u spread"));
    wait_until("CPUs are listed", PATIENCE, || spread(&gateway).len() >= 2);
    for mode in ["tc", "generic"] {
        let text = configuration("set services gtp-u spread").replace("mode xdp", &format!("mode {mode}"));
        let output = stand.site.commit(&stand.site.write("c.conf", &text));
        let text = format!("{}{}", accepted(&output), common::stderr(&output));
        assert!(text.contains("`services gtp-u spread` has no effect"), "{mode}: {text}");
    }
    // generic XDP leaves the first packets to a neighbour to the daemon, which asks for it
    stand.site.gateway.run("ping", ["-c1", "10.71.2.2"]).unwrap();
    pin(0);
    (0..8).for_each(|flow| send(&stand.station, flow, 0));
    assert_eq!(arrived(&stand.server).len(), 8, "{}", gateway.get("/api/stats").unwrap());
    assert!(spread(&gateway).iter().all(|(_, packets, _)| *packets == 0), "{:?}", spread(&gateway));
    let file = configuration("set services gtp-u spread processors 5000");
    let text = refused(&stand.site.commit(&stand.site.write("d.conf", &file)), 2);
    assert!(text.contains("0 to 4095"), "{text}");
}
