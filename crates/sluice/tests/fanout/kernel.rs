//! Modes of the data plane: XDP and tc.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bed::{FanOut, LISTENER, PATIENCE, Rsyslog, Sink, receiver, send, site, yaml};
use crate::common::{Site, wait_until};
use crate::user::assert_all_once;

pub const MESSAGES: u32 = 90_000;
pub const RATE: u32 = 40_000;

pub fn sinks_at(site: &Site, address: impl Fn(usize) -> String) -> Vec<Sink> {
    (0..3).map(|n| Sink::udp(&site.right, &address(n))).collect()
}

pub fn total(sinks: &[Sink]) -> u64 {
    sinks.iter().map(Sink::got).sum()
}

/// What the daemon says of itself holds after each test: both equations of the data plane, too.
fn assert_conserved(fanout: &FanOut) {
    fanout.assert_balanced();
    let drops = crate::common::stdout(&fanout.site.sluice(&["show", "drops"]));
    assert!(!drops.is_empty());
}

/// Each CPU takes the receivers by turns.
pub fn assert_by_turns(sinks: &[Sink]) {
    let shares: Vec<u64> = sinks.iter().map(Sink::got).collect();
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(most - least <= cpus, "{shares:?}: at most one a CPU");
}

fn fair(mode: &str) {
    let site = site(&format!("fan-{mode}"));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml(mode, ""));
    let senders = send(&site.left, LISTENER, 0..MESSAGES, RATE, 4);
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(MESSAGES));
    assert_all_once(&sinks, MESSAGES);
    assert_by_turns(&sinks);
    for sink in &sinks {
        let sources = sink.sources.lock().unwrap().clone();
        assert!(
            sources.iter().all(|source| senders.iter().any(|s| s.port() == source.port())),
            "the sender is kept"
        );
        assert!(
            sources.iter().all(|source| source.ip() == std::net::Ipv4Addr::new(10, 71, 1, 2)),
            "{sources:?}"
        );
    }
    assert_conserved(&fanout);
    assert_eq!(fanout.sum("sluice_fanout_received_packets_total", ""), u64::from(MESSAGES));
    assert_eq!(fanout.sum("sluice_fanout_dropped_packets_total", ""), 0);
    fanout.end();
    // the data plane goes on without its daemon
    send(&site.left, LISTENER, MESSAGES..MESSAGES + 300, RATE, 4);
    wait_until("messages without a daemon", PATIENCE, || total(&sinks) >= u64::from(MESSAGES) + 300);
}

#[test]
fn xdp_is_fair_exact_and_keeps_the_sender() {
    fair("xdp");
}

#[test]
fn tc_is_fair_exact_and_keeps_the_sender() {
    fair("tc_ebpf");
}

fn with_rsyslog(mode: &str) {
    let site = site(&format!("fan-sys-{mode}"));
    let receivers: Vec<Rsyslog> =
        (0..3).map(|n| Rsyslog::start(&site.right, site.dir(), n, "imudp")).collect();
    let fanout = FanOut::start(&site, &yaml(mode, ""));
    send(&site.left, LISTENER, 0..MESSAGES, RATE / 2, 4);
    let count = || receivers.iter().map(|r| r.numbers().len()).sum::<usize>();
    wait_until("rsyslogd has written all", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        count() >= MESSAGES as usize
    });
    assert_conserved(&fanout);
}

#[test]
fn rsyslog_receives_from_xdp() {
    with_rsyslog("xdp");
}

#[test]
fn rsyslog_receives_from_tc() {
    with_rsyslog("tc_ebpf");
}

fn reloads(mode: &str) {
    let site = site(&format!("fan-re-{mode}"));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml(mode, ""));
    let commits = || fanout.words().matches("commit complete").count();
    let sent = AtomicU32::new(0);
    std::thread::scope(|scope| {
        // until a few have come into force, however long the verifier takes beside others at work
        let sender = scope.spawn(|| {
            while commits() < 5 && sent.load(Ordering::Relaxed) < 20 * MESSAGES {
                let first = sent.fetch_add(10_000, Ordering::Relaxed);
                send(&site.left, LISTENER, first..first + 10_000, RATE / 2, 4);
            }
        });
        for round in 0.. {
            if sender.is_finished() {
                break;
            }
            let text = yaml(mode, if round % 2 == 0 { "    settings: {balance: flow}\n" } else { "" });
            fanout.rewrite(&if round % 3 == 0 {
                text.replace("5514\"}", "5514\", weight: 2}")
            } else {
                text
            });
            kill(Pid::from_raw(fanout.pid()), Signal::SIGHUP).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let sent = sent.into_inner();
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(sent));
    assert_all_once(&sinks, sent);
    assert!(commits() >= 5, "{}", fanout.words());
    assert_conserved(&fanout);
}

#[test]
fn reloads_of_xdp_lose_nothing() {
    reloads("xdp");
}

#[test]
fn reloads_of_tc_lose_nothing() {
    reloads("tc_ebpf");
}

/// One receiver leaves the configuration, another drains on the operator's word: both get ever less, then nothing.
fn drains(mode: &str) {
    let site = site(&format!("fan-drain-{mode}"));
    let sinks = sinks_at(&site, receiver);
    let more = "    settings: {balance: flow}\n\
                health: {check: icmp, interval_ms: 200, timeout_ms: 1000, drain_ms: 10000}\n";
    let text = yaml(mode, more);
    let fanout = FanOut::start(&site, &text);
    let commits = || fanout.words().matches("commit complete").count();
    let (sent, done) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let first = sent.fetch_add(1000, Ordering::Relaxed);
                send(&site.left, LISTENER, first..first + 1000, 4000, 100);
            }
        });
        wait_until("all have some", PATIENCE, || sinks.iter().all(|sink| sink.got() > 0));
        let kept = text.lines().filter(|line| !line.contains("name: r2")).map(|line| line.to_owned() + "\n");
        let fewer: String = kept.collect();
        fanout.rewrite(&fewer.replace("5514\"}", "5514\", drain: true}").replacen(", drain: true", "", 1));
        wait_until("the commit", PATIENCE, || commits() >= 2);
        let before = sinks[2].got();
        wait_until("it is still served", PATIENCE, || sinks[2].got() > before);
        wait_until("it is taken out", PATIENCE, || commits() >= 3);
        std::thread::sleep(Duration::from_millis(100));
        let before: Vec<u64> = sinks.iter().map(Sink::got).collect();
        wait_until("the first one gets all", PATIENCE, || sinks[0].got() > before[0] + 2000);
        assert_eq!([sinks[1].got(), sinks[2].got()], before[1..], "nothing goes to those who have drained");
        done.store(true, Ordering::Relaxed);
    });
    let sent = sent.into_inner();
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(sent));
    assert_all_once(&sinks, sent);
    assert_conserved(&fanout);
}

#[test]
fn receivers_drain_on_xdp() {
    drains("xdp");
}

#[test]
fn receivers_drain_on_tc() {
    drains("tc_ebpf");
}

fn health(mode: &str) {
    let site = site(&format!("fan-up-{mode}"));
    let mut sinks: Vec<Option<Sink>> = sinks_at(&site, receiver).into_iter().map(Some).collect();
    let health = "health: {check: icmp, interval_ms: 50, timeout_ms: 50, rise: 1, fall: 1}\n";
    let fanout = FanOut::start(&site, &yaml(mode, health));
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
    assert_conserved(&fanout);
    // nobody is left: counted by name
    site.right.ip("link set eth0 down").unwrap();
    wait_until("nobody is left", PATIENCE, || (0..3).all(|n| up(n) == 0));
    std::thread::sleep(Duration::from_millis(100));
    send(&site.left, LISTENER, 0..100, RATE, 1);
    wait_until("the named drop", PATIENCE, || {
        fanout.sum("sluice_fanout_dropped_packets_total", "reason=\"fanout_no_receiver\"") == 100
    });
    fanout.assert_balanced();
}

#[test]
fn health_is_effective_on_xdp() {
    health("xdp");
}

#[test]
fn health_is_effective_on_tc() {
    health("tc_ebpf");
}

/// IPv6, and datagrams in pieces: all of them to one receiver, and whole.
fn six_and_fragments(mode: &str) {
    let site = site(&format!("fan-frag-{mode}"));
    let mut text = format!(
        "listeners:\n  - name: six\n    interface: left0\n    mode: {mode}\n    bind: \"[fd71:1::1]:514\"\n    downstream:\n"
    );
    for n in 0..3 {
        text += &format!("      - {{name: r{n}, address: \"[fd71:2::{}]:5514\"}}\n", 11 + n);
    }
    let four = yaml(mode, "");
    let text = four.replace("listeners:\n", &text);
    let six = sinks_at(&site, |n| format!("[fd71:2::{}]:5514", 11 + n));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &text);
    send(&site.left, "[fd71:1::1]:514", 0..3000, RATE, 4);
    wait_until("messages over IPv6", PATIENCE, || total(&six) >= 3000);
    assert_all_once(&six, 3000);
    assert_by_turns(&six);
    for (to, sinks) in [(LISTENER, &sinks), ("[fd71:1::1]:514", &six)] {
        let before = total(sinks);
        let work = || {
            let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = std::net::UdpSocket::bind(any).unwrap();
            for n in 0..200u32 {
                socket.send_to(&crate::bed::message(10_000 + n, 4000), to).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        site.left.enter(work).unwrap();
        wait_until("whole datagrams that came in pieces", PATIENCE, || total(sinks) == before + 200);
        assert!(sinks.iter().filter(|sink| sink.got() > 0).count() == 3, "spread over all");
    }
    assert_conserved(&fanout);
}

#[test]
fn ipv6_and_fragments_on_xdp() {
    six_and_fragments("xdp");
}

#[test]
fn ipv6_and_fragments_on_tc() {
    six_and_fragments("tc_ebpf");
}

pub const MALFORMED: &str = r#"
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
fn malformed(mode: &str) {
    let site = site(&format!("fan-bad-{mode}"));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml(mode, ""));
    let mac = |netns: &sluice_lab::netns::Netns, device: &str| {
        let text = netns.ip(&format!("-o link show dev {device}")).unwrap();
        text.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().replace(':', "")
    };
    let (gateway, own) = (mac(&site.gateway, "left0"), mac(&site.left, "eth0"));
    site.left.run("python3", ["-c", MALFORMED, &gateway, &own]).unwrap();
    wait_until("what is well formed", PATIENCE, || total(&sinks) >= 3);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(total(&sinks), 3, "the receivers' kernels drop the wrong checksum");
    assert_eq!(fanout.sum("sluice_fanout_dropped_packets_total", "fanout_length"), 3);
    assert_eq!(fanout.sum("sluice_fanout_sent_packets_total", ""), 4);
    assert_conserved(&fanout);
}

#[test]
fn malformed_frames_on_xdp() {
    malformed("xdp");
}

#[test]
fn malformed_frames_on_tc() {
    malformed("tc_ebpf");
}

#[test]
fn an_address_of_nobody_is_answered_for_when_asked() {
    let site = site("fan-arp");
    let sinks = sinks_at(&site, receiver);
    let text = yaml("xdp", "    settings: {answer_arp: true}\n").replace(LISTENER, "10.71.1.50:514");
    let fanout = FanOut::start(&site, &text);
    send(&site.left, "10.71.1.50:514", 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 300);
    fanout.assert_balanced();
    drop(fanout);
    let site = crate::bed::site("fan-no-arp");
    let fanout = FanOut::start(&site, &yaml("xdp", "").replace(LISTENER, "10.71.1.50:514"));
    assert!(fanout.words().contains("answer-arp"), "{}", fanout.words());
}
