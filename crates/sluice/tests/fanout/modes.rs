//! What every mode does alike that sends on the packets themselves: XDP, tc and rings.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::bed::{
    FanOut, LISTENER, MESSAGES, PATIENCE, Rsyslog, Sink, assert_all_once, assert_by_turns, mac, message,
    receiver, send, sinks_at, site, total, yaml,
};
use super::rings::assert_no_ring_refused;
use crate::common::{Site, wait_until};

pub const RATE: u32 = 40_000;
const LISTENER6: &str = "[fd71:1::1]:514";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Xdp,
    Tc,
    Rings,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Xdp => "xdp",
            Mode::Tc => "tc_ebpf",
            Mode::Rings => "af_xdp",
        }
    }

    fn no_receiver(self) -> &'static str {
        match self {
            Mode::Xdp | Mode::Tc => "fanout_no_receiver",
            Mode::Rings => "no_receiver",
        }
    }

    /// Each CPU takes the receivers by turns, of rings each queue.
    fn assert_by_turns(self, sinks: &[Sink]) {
        let cpus = std::thread::available_parallelism().unwrap().get() as u64;
        match self {
            Mode::Xdp | Mode::Tc => assert_by_turns(sinks, cpus, "CPU"),
            Mode::Rings => assert_by_turns(sinks, 1, "queue"),
        }
    }

    /// What the daemon says of itself holds after each test: of the data plane both equations, too.
    pub fn assert_conserved(self, fanout: &FanOut) {
        fanout.assert_balanced();
        if self != Mode::Rings {
            let drops = crate::common::stdout(&fanout.site.sluice(&["show", "drops"]));
            assert!(!drops.is_empty());
        }
    }
}

/// Starts it; every message arrives once, by turns and under its sender's address.
pub fn fair_and_exact<'a>(mode: Mode, site: &'a Site, sinks: &[Sink]) -> FanOut<'a> {
    let fanout = FanOut::start(site, &yaml(mode.name(), ""));
    let senders = send(&site.left, LISTENER, 0..MESSAGES, RATE, 4);
    wait_until("all messages", PATIENCE, || total(sinks) >= u64::from(MESSAGES));
    assert_all_once(sinks, MESSAGES);
    mode.assert_by_turns(sinks);
    for sink in sinks {
        let sources = sink.sources.lock().unwrap().clone();
        let is_sender = |port| senders.iter().any(|sender| sender.port() == port);
        assert!(sources.iter().all(|source| is_sender(source.port())), "the sender is kept: {sources:?}");
        let own = Ipv4Addr::new(10, 71, 1, 2);
        assert!(sources.iter().all(|source| source.ip() == own), "{sources:?}");
    }
    mode.assert_conserved(&fanout);
    assert_eq!(fanout.sum("sluice_fanout_received_packets_total", ""), u64::from(MESSAGES));
    assert_eq!(fanout.sum("sluice_fanout_dropped_packets_total", ""), 0);
    fanout
}

fn with_rsyslog(mode: Mode) {
    let site = site(&format!("fan-sys-{}", mode.name()));
    let receivers: Vec<Rsyslog> =
        (0..3).map(|n| Rsyslog::start(&site.right, site.dir(), n, "imudp")).collect();
    let fanout = FanOut::start(&site, &yaml(mode.name(), ""));
    send(&site.left, LISTENER, 0..MESSAGES, RATE / 2, 4);
    let count = || receivers.iter().map(|r| r.numbers().len()).sum::<usize>();
    wait_until("rsyslogd has written all", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        count() >= MESSAGES as usize
    });
    mode.assert_conserved(&fanout);
}

fn health(mode: Mode) {
    let site = site(&format!("fan-up-{}", mode.name()));
    let mut sinks: Vec<Option<Sink>> = sinks_at(&site, receiver).into_iter().map(Some).collect();
    let health = "health: {check: icmp, interval_ms: 50, timeout_ms: 50, rise: 1, fall: 1}\n";
    let fanout = FanOut::start(&site, &yaml(mode.name(), health));
    let up = |number: usize| fanout.sum("sluice_fanout_receiver_up", &format!("receiver=\"r{number}\""));
    let sent =
        |number: usize| fanout.sum("sluice_fanout_sent_packets_total", &format!("receiver=\"r{number}\""));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&site.left, LISTENER, 0..MESSAGES, RATE / 2, 4));
        std::thread::sleep(Duration::from_millis(500));
        site.right.ip("addr del 10.71.2.12/24 dev eth0").unwrap();
        sinks[1] = None;
        wait_until("it is seen to be gone", PATIENCE, || up(1) == 0);
        std::thread::sleep(Duration::from_millis(100));
        let before = sent(1);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(sent(1), before, "nothing is sent to it any more");
        site.right.ip("addr add 10.71.2.12/24 dev eth0").unwrap();
        sinks[1] = Some(Sink::udp(&site.right, &receiver(1)));
        wait_until("it takes part again", PATIENCE, || up(1) == 1 && sent(1) > before);
        sender.join().unwrap();
    });
    mode.assert_conserved(&fanout);
    // nobody is left: counted by name
    site.right.ip("link set eth0 down").unwrap();
    wait_until("nobody is left", PATIENCE, || (0..3).all(|n| up(n) == 0));
    std::thread::sleep(Duration::from_millis(100));
    let before = fanout.dropped(mode.no_receiver());
    assert!(mode == Mode::Rings || before == 0, "{before} while two were up");
    send(&site.left, LISTENER, 0..100, RATE, 1);
    wait_until("the named drop", PATIENCE, || fanout.dropped(mode.no_receiver()) == before + 100);
    fanout.assert_balanced();
}

/// IPv6, and datagrams in pieces: all of them to one receiver, and whole.
fn six_and_fragments(mode: Mode) {
    let site = site(&format!("fan-frag-{}", mode.name()));
    let receiver6 = |number: usize| format!("[fd71:2::{}]:5514", 11 + number);
    let mut text = format!(
        "listeners:\n  - name: six\n    interface: left0\n    mode: {}\n    bind: \"{LISTENER6}\"\n    downstream:\n",
        mode.name()
    );
    for n in 0..3 {
        text += &format!("      - {{name: r{n}, address: \"{}\"}}\n", receiver6(n));
    }
    let text = yaml(mode.name(), "").replace("listeners:\n", &text);
    let six = sinks_at(&site, receiver6);
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &text);
    send(&site.left, LISTENER6, 0..3000, RATE, 4);
    wait_until("messages over IPv6", PATIENCE, || total(&six) >= 3000);
    assert_all_once(&six, 3000);
    mode.assert_by_turns(&six);
    for (to, sinks) in [(LISTENER, &sinks), (LISTENER6, &six)] {
        let before = total(sinks);
        let work = || {
            let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).unwrap();
            for n in 0..200u32 {
                socket.send_to(&message(10_000 + n, 4000), to).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        site.left.enter(work).unwrap();
        wait_until("whole datagrams that came in pieces", PATIENCE, || total(sinks) == before + 200);
        assert!(sinks.iter().all(|sink| sink.got() > 0), "spread over all");
    }
    mode.assert_conserved(&fanout);
    if mode == Mode::Rings {
        assert_no_ring_refused(&fanout);
    }
}

const MALFORMED: &str = r#"
import socket, struct, sys
gateway, own = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
def checksum(data):
    if len(data) % 2: data += b'\0'
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16: total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
def frame(length=None, check=None, options=b'', payload=b'<14>1 - host app - - - message 7 x'):
    source, target = socket.inet_aton('10.71.1.2'), socket.inet_aton('10.71.1.1')
    udp = struct.pack('!HHHH', 4000, 514, 8 + len(payload) if length is None else length, 0) + payload
    right = checksum(source + target + struct.pack('!BBH', 0, 17, len(udp)) + udp)
    udp = udp[:6] + struct.pack('!H', right if check is None else check(right)) + udp[8:]
    ip = struct.pack('!BBHHHBBH', 0x45 + len(options) // 4, 0, 20 + len(options) + len(udp), 1, 0, 64, 17, 0) + source + target + options
    ip = ip[:10] + struct.pack('!H', checksum(ip)) + ip[12:]
    return gateway + own + b'\x08\x00' + ip + udp
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(('eth0', 0))
for one in [frame(length=7), frame(length=0), frame(length=999), frame(check=lambda c: c ^ 0x1111),
            frame(options=b'\x01\x01\x01\x00'), frame(check=lambda c: 0), frame()]:
    wire.send(one)
"#;

/// Wrong lengths are named drops; a wrong checksum stays wrong; options and missing checksums pass.
fn malformed(mode: Mode) {
    let site = site(&format!("fan-bad-{}", mode.name()));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml(mode.name(), ""));
    let (gateway, own) = (mac(&site.gateway, "left0"), mac(&site.left, "eth0"));
    site.left.run("python3", ["-c", MALFORMED, &gateway, &own]).unwrap();
    wait_until("what is well formed", PATIENCE, || total(&sinks) >= 3);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(total(&sinks), 3, "the receivers' kernels drop the wrong checksum");
    assert_eq!(fanout.dropped("fanout_length"), 3);
    assert_eq!(fanout.sum("sluice_fanout_sent_packets_total", ""), 4);
    mode.assert_conserved(&fanout);
}

#[test]
fn rsyslog_receives_from_xdp() {
    with_rsyslog(Mode::Xdp);
}

#[test]
fn rsyslog_receives_from_tc() {
    with_rsyslog(Mode::Tc);
}

#[test]
fn rsyslog_receives_from_rings() {
    with_rsyslog(Mode::Rings);
}

#[test]
fn health_is_effective_on_xdp() {
    health(Mode::Xdp);
}

#[test]
fn health_is_effective_on_tc() {
    health(Mode::Tc);
}

#[test]
fn health_is_effective_on_rings() {
    health(Mode::Rings);
}

#[test]
fn ipv6_and_fragments_on_xdp() {
    six_and_fragments(Mode::Xdp);
}

#[test]
fn ipv6_and_fragments_on_tc() {
    six_and_fragments(Mode::Tc);
}

#[test]
fn ipv6_and_fragments_on_rings() {
    six_and_fragments(Mode::Rings);
}

#[test]
fn malformed_frames_on_xdp() {
    malformed(Mode::Xdp);
}

#[test]
fn malformed_frames_on_tc() {
    malformed(Mode::Tc);
}

#[test]
fn malformed_frames_on_rings() {
    malformed(Mode::Rings);
}
