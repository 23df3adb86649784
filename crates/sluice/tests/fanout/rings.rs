//! Mode `af_xdp`: rings of the interfaces' queues.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_lab::netns::{VethEnd, veth};
use sluice_libbpf::{Link, Target};
use sluice_xsk::program;

use super::bed::{
    FanOut, LISTENER, MESSAGES, PATIENCE, Sink, assert_all_once, assert_by_turns, mac, receiver, send,
    sinks_at, site, total, yaml,
};
use super::modes::{Mode, RATE, fair_and_exact};
use crate::common::{Site, refused, wait_until};

/// Nothing was lost between the driver and the worker, and every queue has a socket.
pub fn assert_no_ring_refused(fanout: &FanOut) {
    for reason in ["rx_ring", "queue_unserved", "frame_too_large", "tx_ring_full", "device_refused"] {
        assert_eq!(fanout.dropped(reason), 0, "{reason}\n{}", fanout.metrics());
    }
}

#[test]
fn rings_are_fair_exact_and_keep_the_sender() {
    let site = site("fan-xsk");
    let sinks = sinks_at(&site, receiver);
    let fanout = fair_and_exact(Mode::Rings, &site, &sinks);
    assert_no_ring_refused(&fanout);
    let info = fanout.metrics();
    let info = info.lines().find(|line| line.starts_with("sluice_fanout_listener_info{")).unwrap();
    for label in ["mode=\"af-xdp\"", "attach=\"native\"", "queues=\"1\"", "zero_copy=\"false\""] {
        assert!(info.contains(label), "{info}");
    }
    for said in ["attached XDP program", "AF_XDP path initialized", "registered listener in XDP filter"] {
        assert!(fanout.words().contains(said), "{}", fanout.words());
    }
    fanout.end();
    let left = site.gateway.ip("link show dev left0").unwrap();
    assert!(!left.contains("xdp"), "{left}");
}

/// A pair of four queues in the place of left0 and its peer.
fn widen(site: &Site) {
    let gateway = &site.gateway;
    gateway.ip("link del left0").unwrap();
    gateway
        .ip("link add left0 numrxqueues 4 numtxqueues 4 type veth peer name wide0 numrxqueues 4 numtxqueues 4")
        .unwrap();
    gateway.ip(&format!("link set wide0 netns {}", site.left.path().display())).unwrap();
    site.left.ip("link set wide0 name eth0").unwrap();
    for (netns, device, own) in [(gateway, "left0", 1), (&site.left, "eth0", 2)] {
        netns.run("ethtool", ["-L", device, "rx", "4", "tx", "4"]).unwrap();
        netns.ip(&format!("addr add 10.71.1.{own}/24 dev {device}")).unwrap();
        netns.ip(&format!("link set {device} up")).unwrap();
    }
    site.left.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
}

#[test]
fn every_queue_is_served() {
    let site = site("fan-xsk-wide");
    widen(&site);
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("af_xdp", ""));
    send(&site.left, LISTENER, 0..MESSAGES, RATE, 64);
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(MESSAGES));
    assert_all_once(&sinks, MESSAGES);
    assert_by_turns(&sinks, 4, "queue");
    for queue in 0..4 {
        let of = |family: &str| fanout.sum(family, &format!("queue=\"{queue}\""));
        assert!(of("sluice_fanout_received_packets_total") > 0, "queue {queue}\n{}", fanout.metrics());
        for statistic in ["rx_dropped", "rx_invalid_descs", "rx_ring_full", "rx_fill_ring_empty_descs"] {
            let labels = format!("queue=\"{queue}\",statistic=\"{statistic}\"");
            assert_eq!(fanout.sum("sluice_fanout_xdp_statistics_total", &labels), 0, "{}", fanout.metrics());
        }
    }
    fanout.assert_balanced();
    assert_no_ring_refused(&fanout);
    let threads = format!("/proc/{}/task", fanout.pid());
    let cpus = std::thread::available_parallelism().unwrap().get();
    for queue in 0..4 {
        let is_it = |dir: &std::path::Path| {
            std::fs::read_to_string(dir.join("comm")).unwrap_or_default().trim()
                == format!("fan-left0-q{queue}")
        };
        let dirs = std::fs::read_dir(&threads).unwrap().map(|entry| entry.unwrap().path());
        let thread = dirs.into_iter().find(|dir| is_it(dir)).unwrap();
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        let list = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
        assert!(list.ends_with(&format!("\t{}", queue % cpus)), "{list}");
    }
}

#[test]
fn reloads_keep_rings_and_lose_nothing() {
    let site = site("fan-xsk-re");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("af_xdp", ""));
    let reloads = || fanout.words().matches("reloaded").count();
    let sent = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while reloads() < 40 && sent.load(Ordering::Relaxed) < 4 * MESSAGES {
                let first = sent.fetch_add(10_000, Ordering::Relaxed);
                send(&site.left, LISTENER, first..first + 10_000, RATE / 2, 4);
            }
        });
        for round in 0.. {
            if sender.is_finished() {
                break;
            }
            let text = yaml("af_xdp", if round % 2 == 0 { "    settings: {balance: flow}\n" } else { "" });
            // another listener comes and goes, and receivers weigh otherwise
            let text = match round % 3 {
                0 => text.replace("5514\"}", "5514\", weight: 2}"),
                1 => text.replace(
                    "listeners:\n",
                    "listeners:\n  - {name: more, interface: left0, mode: af_xdp, bind: \"10.71.1.1:515\", \
                     downstream: [{name: r, address: \"10.71.2.11:5515\"}]}\n",
                ),
                _ => text,
            };
            fanout.rewrite(&text);
            kill(Pid::from_raw(fanout.pid()), Signal::SIGHUP).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let sent = sent.into_inner();
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(sent));
    assert_all_once(&sinks, sent);
    assert!(reloads() >= 20, "{}", fanout.words());
    assert_eq!(fanout.words().matches("rings closed").count(), 0);
    fanout.assert_balanced();
    assert_no_ring_refused(&fanout);
}

/// One receiver whose next hop nobody answers for: its packets are dropped by name, the others' arrive.
#[test]
fn an_unresolved_next_hop_costs_only_its_own_packets() {
    let site = site("fan-xsk-hop");
    let sinks: Vec<Sink> = (0..2).map(|n| Sink::udp(&site.right, &receiver(n))).collect();
    let text = yaml("af_xdp", "").replace("10.71.2.13:5514", "10.71.2.99:5514");
    let fanout = FanOut::start(&site, &text);
    send(&site.left, LISTENER, 0..3000, RATE, 1);
    wait_until("what can arrive", PATIENCE, || total(&sinks) == 2000);
    assert_eq!(fanout.dropped("no_next_hop"), 1000);
    fanout.assert_balanced();
    // somebody answers now
    site.right.ip("addr add 10.71.2.99/24 dev eth0").unwrap();
    let late = Sink::udp(&site.right, "10.71.2.99:5514");
    wait_until("it is found", PATIENCE, || {
        send(&site.left, LISTENER, 0..30, RATE, 1);
        late.got() > 0
    });
    fanout.assert_balanced();
}

/// What is not the listener's goes the kernel's way: another port, another address.
#[test]
fn everything_else_passes() {
    let site = site("fan-xsk-else");
    let sinks = sinks_at(&site, receiver);
    let other = Sink::udp(&site.gateway, "10.71.1.1:515");
    let fanout = FanOut::start(&site, &yaml("af_xdp", ""));
    send(&site.left, "10.71.1.1:515", 0..500, RATE, 1);
    wait_until("what is the kernel's", PATIENCE, || other.got() == 500);
    assert!(site.pings(&site.left, "10.71.1.1"));
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("what is the listener's", PATIENCE, || total(&sinks) == 300);
    assert_eq!((other.got(), fanout.sum("sluice_fanout_received_packets_total", "")), (500, 300));
}

const TAGGED: &str = r#"
import socket, struct, sys
gateway, own = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
def frame(tag, number):
    payload = b'<14>1 - host app - - - message %d x' % number
    udp = struct.pack('!HHHH', 4000, 514, 8 + len(payload), 0) + payload
    ip = struct.pack('!BBHHHBBH', 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    ip += socket.inet_aton('10.71.1.2') + socket.inet_aton('10.71.1.1')
    total = sum(struct.unpack('!10H', ip))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    ip = ip[:10] + struct.pack('!H', ~total & 0xffff) + ip[12:]
    return gateway + own + (struct.pack('!HH', 0x8100, tag) if tag else b'') + b'\x08\x00' + ip + udp
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(('eth0', 0))
for number in range(300):
    wire.send(frame(100, number))
    wire.send(frame(101, 1000 + number))
    wire.send(frame(0, 2000 + number))
"#;

/// A listener on a tagged unit gets what has its tag, and receivers get it without.
#[test]
fn tags_are_told_apart_and_taken_off() {
    let site = site("fan-xsk-vlan");
    let sinks = sinks_at(&site, receiver);
    let text = yaml("af_xdp", "").replace("interface: left0", "interface: left0.100");
    let fanout = FanOut::start(&site, &text);
    let (gateway, own) = (mac(&site.gateway, "left0"), mac(&site.left, "eth0"));
    site.left.run("python3", ["-c", TAGGED, &gateway, &own]).unwrap();
    wait_until("all messages with the tag", PATIENCE, || total(&sinks) >= 300);
    std::thread::sleep(Duration::from_millis(100));
    assert_all_once(&sinks, 300);
    fanout.assert_balanced();
    assert_eq!(fanout.sum("sluice_fanout_received_packets_total", ""), 300);
}

const FRAGMENTS: &str = r#"
import socket, struct
wire = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def send(fragment, data):
    ip = struct.pack('!BBHHHBBH', 0x45, 0, 0, 7, fragment, 64, 17, 0)
    ip += socket.inet_aton('10.71.1.2') + socket.inet_aton('10.71.1.1')
    wire.sendto(ip + data, ('10.71.1.1', 0))
for port in (514, 515):
    send(0x2000, struct.pack('!HHHH', 4000, port, 40, 0) + b'x' * 16)
send(3, b'y' * 16)
"#;

/// Identifications come again: the rest of a datagram is not the listener's because one before it was.
#[test]
fn fragments_of_another_datagram_with_the_same_identification_are_left_to_the_kernel() {
    let site = site("fan-xsk-id");
    let _sinks = sinks_at(&site, receiver);
    let other = Sink::udp(&site.gateway, "10.71.1.1:515");
    let _fanout = FanOut::start(&site, &yaml("af_xdp", ""));
    site.left.run("python3", ["-c", FRAGMENTS]).unwrap();
    wait_until("the whole of the other", Duration::from_secs(5), || other.got() == 1);
}

/// Listeners on both sides, whose receivers are behind the other's interface.
#[test]
fn a_listener_that_leaves_takes_no_way_from_another() {
    let site = site("fan-xsk-both");
    let sinks = sinks_at(&site, receiver);
    let one = yaml("af_xdp", "");
    let both = one.replace(
        "listeners:\n",
        "listeners:\n  - {name: back, interface: right0, mode: af_xdp, bind: \"10.71.2.1:514\", \
         downstream: [{name: r, address: \"10.71.1.2:5514\"}]}\n",
    );
    let fanout = FanOut::start(&site, &both);
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) == 300);
    fanout.rewrite(&one);
    wait_until("the reload", PATIENCE, || fanout.words().contains("rings closed"));
    for round in 1..=5 {
        // next hops are looked up every second, and a ring that is taken is waited for
        std::thread::sleep(Duration::from_millis(1100));
        send(&site.left, LISTENER, 300 * round..300 * (round + 1), RATE, 1);
    }
    wait_until("all messages without the other", PATIENCE, || total(&sinks) == 1800);
    assert!(!fanout.words().contains("no tx ring"), "{}", fanout.words());
    fanout.assert_balanced();
}

/// A network card that was reset, a VLAN device made by a script.
#[test]
fn an_interface_that_is_made_anew_is_served_again() {
    for mode in ["af_xdp", "userspace"] {
        let site = site(&format!("fan-anew-{mode}"));
        let sinks = sinks_at(&site, receiver);
        let fanout = FanOut::start(&site, &yaml(mode, ""));
        send(&site.left, LISTENER, 0..300, RATE, 1);
        wait_until("all messages", PATIENCE, || total(&sinks) == 300);
        widen(&site);
        wait_until("it is served again", PATIENCE, || {
            send(&site.left, LISTENER, 0..30, RATE, 1);
            total(&sinks) > 300
        });
        fanout.end();
    }
}

/// Rings on XDP and the data plane on tc, on one interface and in one process.
#[test]
fn rings_run_beside_the_data_plane() {
    let site = site("fan-xsk-tc");
    let sinks = sinks_at(&site, receiver);
    let tc = "listeners:\n  - {name: plane, interface: left0, mode: tc_ebpf, bind: \"10.71.1.1:515\", \
              downstream: [{name: p, address: \"10.71.2.11:5514\"}]}\n";
    let fanout = FanOut::start(&site, &yaml("af_xdp", "").replace("listeners:\n", tc));
    send(&site.left, LISTENER, 0..3000, RATE, 4);
    send(&site.left, "10.71.1.1:515", 3000..4000, RATE, 4);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 4000);
    assert_all_once(&sinks, 4000);
    let received =
        |name: &str| fanout.sum("sluice_fanout_received_packets_total", &format!("listener=\"{name}\""));
    assert_eq!((received("test"), received("plane")), (3000, 1000));
    fanout.assert_balanced();
    fanout.end();
}

/// The same listener as a statement of the gateway's configuration, in both spellings.
#[test]
fn the_tree_has_the_mode_too() {
    for mode in ["af-xdp", "af_xdp"] {
        let site = Site::new("fan-xsk-tree");
        for host in [&site.left, &site.right] {
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"]).unwrap();
        }
        let sink = Sink::udp(&site.right, "10.71.2.2:5514");
        let more = format!(
            "set interfaces left0 mode tc\nset interfaces right0 mode tc\n\
             set services fan-out listener l interface left0\nset services fan-out listener l mode {mode}\n\
             set services fan-out listener l address 10.71.1.1\nset services fan-out listener l port 514\n\
             set services fan-out listener l receiver r address 10.71.2.2\n\
             set services fan-out listener l receiver r port 5514\n"
        );
        let gateway = site.start(&site.write("gateway.conf", &more));
        send(&site.left, LISTENER, 0..300, RATE, 1);
        wait_until("all messages", PATIENCE, || sink.got() == 300);
        drop(gateway);
    }
}

#[test]
fn an_address_of_nobody_is_answered_for_when_asked() {
    let site = site("fan-xsk-arp");
    let sinks = sinks_at(&site, receiver);
    let text = yaml("af_xdp", "    settings: {answer_arp: true}\n").replace(LISTENER, "10.71.1.50:514");
    let fanout = FanOut::start(&site, &text);
    send(&site.left, "10.71.1.50:514", 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 300);
    fanout.assert_balanced();
    fanout.end();
    assert!(!site.addresses("left0").contains("10.71.1.50"), "it is taken away again");
    let fanout = FanOut::start(&site, &yaml("af_xdp", "").replace(LISTENER, "10.71.1.50:514"));
    assert!(fanout.words().contains("answer-arp"), "{}", fanout.words());
}

/// A reload that cannot be is refused as a whole; listeners may come and go to the last.
#[test]
fn a_refused_reload_changes_nothing() {
    let site = site("fan-xsk-keep");
    let sinks = sinks_at(&site, receiver);
    let text = yaml("af_xdp", "");
    let fanout = FanOut::start(&site, &text);
    fanout.rewrite(&text.replace("interface: left0", "interface: right0"));
    wait_until("the refusal", PATIENCE, || fanout.words().contains("reload refused"));
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) == 300);
    // sockets take the place of rings, and rings that of sockets
    for (mode, first) in [("userspace", 300), ("af_xdp", 600)] {
        let reloads = fanout.words().matches("reloaded").count();
        fanout.rewrite(&yaml(mode, ""));
        wait_until("the reload", PATIENCE, || fanout.words().matches("reloaded").count() > reloads);
        let has_program = site.gateway.ip("link show dev left0").unwrap().contains("xdp");
        assert_eq!(has_program, mode == "af_xdp");
        send(&site.left, LISTENER, first..first + 300, RATE, 1);
        wait_until("all messages", PATIENCE, || total(&sinks) == u64::from(first) + 300);
    }
    fanout.assert_balanced();
}

/// A device that goes down costs its own receivers' packets, and comes back.
#[test]
fn an_egress_that_is_down_costs_only_its_own_packets() {
    let site = site("fan-xsk-down");
    let near = VethEnd { netns: &site.gateway, name: "third0", mac: None, addresses: &["10.71.3.1/24"] };
    let far = VethEnd { netns: &site.right, name: "eth1", mac: None, addresses: &["10.71.3.13/24"] };
    veth(near, far).unwrap();
    site.right.run("ethtool", ["-K", "eth1", "tx", "off", "gro", "on"]).unwrap();
    site.right
        .run("sysctl", ["-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth1.rp_filter=0"])
        .unwrap();
    let sinks = sinks_at(&site, |n| if n == 2 { "10.71.3.13:5514".to_owned() } else { receiver(n) });
    let text = yaml("af_xdp", "").replace("10.71.2.13:5514", "10.71.3.13:5514");
    let fanout = FanOut::start(&site, &text);
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) == 300);
    site.gateway.ip("link set third0 down").unwrap();
    send(&site.left, LISTENER, 300..3300, RATE, 1);
    wait_until("those of the others", PATIENCE, || sinks[0].got() + sinks[1].got() == 200 + 2000);
    let sum = |family: &str| fanout.sum(&format!("sluice_fanout_{family}"), "receiver=\"r2\"");
    let all = || sum("sent_packets_total") + sum("dropped_packets_total") + sum("waiting_messages");
    wait_until("all are accounted for", PATIENCE, || all() == 100 + 1000);
    site.gateway.ip("link set third0 up").unwrap();
    let before = sinks[2].got();
    wait_until("it is used again", PATIENCE, || {
        send(&site.left, LISTENER, 0..30, RATE, 1);
        sinks[2].got() > before
    });
    fanout.assert_balanced();
}

#[test]
fn what_cannot_be_is_refused() {
    let site = site("fan-xsk-wrong");
    let refusal = |text: &str| {
        let config = site.write_all("config.yaml", text);
        let said = refused(&site.sluice(&["fanout", "--config", &config.display().to_string()]), 2);
        said.lines().filter(|line| line.starts_with("sluice: ")).collect::<Vec<_>>().join("\n")
    };
    let text = yaml("af_xdp", "");
    let said = refusal(&text.replace("left0", "left9"));
    assert!(said.contains("config.yaml:5:") && said.contains("left9"), "{said}");
    let said = refusal(&text.replace("10.71.2.12:5514", "10.71.2.1:5514"));
    assert!(said.contains("this host"), "{said}");
    let other = site.gateway.enter(|| {
        let map = program::socket_map(1).unwrap();
        let program = program::redirect_to(&map).unwrap();
        let index = nix::net::if_::if_nametoindex("left0").unwrap();
        (Link::attach(&program, index, Target::XdpNative).unwrap(), map)
    });
    let said = refusal(&text);
    assert!(said.contains("config.yaml:5:") && said.contains("left0"), "{said}");
    assert!(said.contains("XDP program") && said.contains("somebody else"), "{said}");
    drop(other);
    // and once it has gone
    let fanout = FanOut::start(&site, &text);
    fanout.end();
}
