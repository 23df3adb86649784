//! Modes of user space.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bed::{
    FanOut, LISTENER, MESSAGES, PATIENCE, Rsyslog, Sink, assert_all_once, assert_by_turns, assert_each_once,
    receiver, send, sinks_at, site, total, yaml,
};
use crate::common::{Running, accepted, wait_until};

/// Packets a second that the slowest machine bears beside five others at work.
const RATE: u32 = 30_000;

#[test]
fn userspace_is_fair_and_exact() {
    let site = site("fan-user");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("userspace", ""));
    send(&site.left, LISTENER, 0..MESSAGES, RATE, 4);
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(MESSAGES));
    assert_all_once(&sinks, MESSAGES);
    assert_by_turns(&sinks, std::thread::available_parallelism().unwrap().get() as u64, "worker");
    fanout.assert_balanced();
    assert_eq!(fanout.sum("sluice_fanout_received_packets_total", ""), u64::from(MESSAGES));
    assert_eq!(fanout.sum("sluice_fanout_socket_overflow_total", ""), 0);
    fanout.end();
}

#[test]
fn rsyslog_receives_over_udp() {
    let site = site("fan-rsyslog");
    let receivers: Vec<Rsyslog> =
        (0..3).map(|n| Rsyslog::start(&site.right, site.dir(), n, "imudp")).collect();
    let fanout = FanOut::start(&site, &yaml("userspace", ""));
    send(&site.left, LISTENER, 0..MESSAGES, RATE, 4);
    assert_rsyslog_has_all(&receivers);
    fanout.assert_balanced();
}

fn assert_rsyslog_has_all(receivers: &[Rsyslog]) {
    let count = || receivers.iter().map(|r| r.numbers().len()).sum::<usize>();
    wait_until("rsyslogd has written all", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        count() >= MESSAGES as usize
    });
    assert_each_once(receivers.iter().flat_map(Rsyslog::numbers).collect(), MESSAGES);
}

#[test]
fn rsyslog_receives_over_tcp_in_both_framings_of_rfc_6587() {
    for framing in ["newline", "octet_counting"] {
        let site = site("fan-rsyslog-tcp");
        // not imtcp, which at times sleeps on data that came with the connection (8.2302)
        let receivers: Vec<Rsyslog> =
            (0..3).map(|n| Rsyslog::start(&site.right, site.dir(), n, "imptcp")).collect();
        let settings = format!("    settings: {{framing: {framing}, queue_bytes: 67108864}}\n");
        let fanout = FanOut::start(&site, &yaml("tcp_forward", &settings));
        send(&site.left, LISTENER, 0..MESSAGES, RATE, 4);
        assert_rsyslog_has_all(&receivers);
        fanout.assert_balanced();
        fanout.end();
    }
}

#[test]
fn the_sender_is_kept_where_that_is_asked_for() {
    let site = site("fan-keep");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("userspace", "    settings: {keep_source: true}\n"));
    let senders = send(&site.left, LISTENER, 0..300, RATE, 4);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 300);
    for sink in &sinks {
        let sources: Vec<_> = sink.sources.lock().unwrap().iter().copied().collect();
        let mut wanted: Vec<_> = senders.iter().map(|s| ([10, 71, 1, 2], s.port()).into()).collect();
        wanted.sort();
        assert_eq!(sources, wanted);
    }
    fanout.assert_balanced();
}

/// Each sender wants a descriptor for each receiver; there are far fewer.
#[test]
fn senders_that_are_kept_leave_descriptors_for_the_rest() {
    let site = site("fan-keep-many");
    let sinks = sinks_at(&site, receiver);
    let more = "    settings: {keep_source: true, workers: 2}\n\
                health: {check: icmp, interval_ms: 20, timeout_ms: 5000, rise: 1, fall: 1}\n";
    let few = "ulimit -S -n 60 && ulimit -H -n 100";
    let fanout = FanOut::start_after(&site, &yaml("userspace", more), Some(few.to_owned()));
    send(&site.left, LISTENER, 0..6000, 3000, 200);
    wait_until("all messages", PATIENCE, || {
        assert_eq!(fanout.sum("sluice_fanout_dropped_packets_total", ""), 0, "{}", fanout.words());
        total(&sinks) >= 6000
    });
    assert_all_once(&sinks, 6000);
    assert!(!fanout.words().contains("receiver is down"), "{}", fanout.words());
    fanout.assert_balanced();
    fanout.end();
}

#[test]
fn reloads_lose_nothing() {
    let site = site("fan-reload");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("userspace", ""));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&site.left, LISTENER, 0..MESSAGES, RATE, 4));
        for round in 0.. {
            if sender.is_finished() {
                break;
            }
            // weights and balancing change, by the file and by SIGHUP
            let text = yaml("userspace", if round % 2 == 0 { "    settings: {balance: flow}\n" } else { "" });
            let text = if round % 3 == 0 { text.replace("5514\"}", "5514\", weight: 2}") } else { text };
            fanout.rewrite(&text);
            kill(Pid::from_raw(fanout.pid()), Signal::SIGHUP).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    wait_until("all messages", PATIENCE, || total(&sinks) >= u64::from(MESSAGES));
    assert_all_once(&sinks, MESSAGES);
    assert!(fanout.words().matches("reloaded").count() >= 10, "{}", fanout.words());
    fanout.assert_balanced();
    let broken = fanout.words().matches("refused").count();
    fanout.rewrite("listeners: 7\n");
    wait_until("the refusal", PATIENCE, || fanout.words().matches("refused").count() > broken);
    send(&site.left, LISTENER, MESSAGES..MESSAGES + 30, RATE, 1);
    wait_until("messages after it", PATIENCE, || total(&sinks) >= u64::from(MESSAGES) + 30);
}

#[test]
fn a_receiver_that_dies_costs_no_more_than_the_time_to_see_it() {
    let site = site("fan-health");
    let mut sinks: Vec<Option<Sink>> = sinks_at(&site, receiver).into_iter().map(Some).collect();
    let health = "health: {check: icmp, interval_ms: 50, timeout_ms: 50, rise: 1, fall: 1}\n";
    let fanout = FanOut::start(&site, &yaml("userspace", health));
    let up = |number: usize| fanout.sum("sluice_fanout_receiver_up", &format!("receiver=\"r{number}\""));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&site.left, LISTENER, 0..MESSAGES, RATE, 4));
        std::thread::sleep(Duration::from_millis(500));
        site.right.ip("addr del 10.71.2.12/24 dev eth0").unwrap();
        sinks[1] = None;
        wait_until("it is seen to be gone", PATIENCE, || up(1) == 0);
        std::thread::sleep(Duration::from_millis(500));
        site.right.ip("addr add 10.71.2.12/24 dev eth0").unwrap();
        sinks[1] = Some(Sink::udp(&site.right, &receiver(1)));
        wait_until("it is seen to be back", PATIENCE, || up(1) == 1);
        sender.join().unwrap();
    });
    std::thread::sleep(Duration::from_millis(500));
    let got: u64 = sinks.iter().flatten().map(Sink::got).sum();
    // a third of what was sent in the time that a machine with others at work takes to notice, and what the first sink
    // of r1 had before it went
    assert!(got > u64::from(MESSAGES) / 2, "{got}");
    assert!(sinks[1].as_ref().unwrap().got() > 0, "it takes part again");
    let (one, other) = (sinks[0].as_ref().unwrap().got(), sinks[2].as_ref().unwrap().got());
    assert!(one.abs_diff(other) <= 8, "{one} and {other}: the others share alike");
    fanout.assert_balanced();
}

#[test]
fn a_dead_tcp_receiver_stalls_nobody() {
    let site = site("fan-tcp-dead");
    let mut sinks: Vec<Option<Sink>> = (0..3).map(|n| Some(Sink::tcp(&site.right, &receiver(n)))).collect();
    let settings = "    settings: {queue_bytes: 67108864}\n";
    let fanout = FanOut::start(&site, &yaml("tcp_forward", settings));
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&site.left, LISTENER, 0..MESSAGES, RATE, 4));
        std::thread::sleep(Duration::from_millis(500));
        sinks[1] = None;
        let before = sinks[0].as_ref().unwrap().got();
        std::thread::sleep(Duration::from_millis(300));
        assert!(sinks[0].as_ref().unwrap().got() > before + 1000, "the others go on");
        std::thread::sleep(Duration::from_millis(200));
        sinks[1] = Some(Sink::tcp(&site.right, &receiver(1)));
        sender.join().unwrap();
    });
    let count = || sinks.iter().flatten().map(Sink::got).sum::<u64>();
    wait_until("it takes part again", PATIENCE, || sinks[1].as_ref().unwrap().got() > 0);
    fanout.assert_balanced();
    assert_eq!(fanout.sum("sluice_fanout_dropped_packets_total", ""), 0);
    // nothing is dropped here; what a dead receiver's kernel had taken died with it
    assert!(count() > u64::from(MESSAGES) * 3 / 4, "{}", count());
}

/// What comes to a listener's address by another interface is not the listener's.
#[test]
fn an_interface_keeps_others_out() {
    let site = site("fan-user-if");
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml("userspace", ""));
    assert!(site.pings(&site.right, "10.71.1.1"));
    send(&site.right, LISTENER, 1000..1300, RATE, 1);
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 300);
    std::thread::sleep(Duration::from_millis(100));
    assert_all_once(&sinks, 300);
    assert_eq!(fanout.sum("sluice_fanout_received_packets_total", ""), 300);
}

/// Also inside the gateway daemon.
#[test]
fn messages_that_wait_at_the_end_have_a_moment() {
    let site = site("fan-tcp-end");
    let plane = "listeners:\n  - {name: plane, interface: left0, mode: tc_ebpf, bind: \"10.71.1.1:515\", \
                 downstream: [{name: p, address: \"10.71.2.12:5514\"}]}\n";
    let text = format!(
        "{plane}  - {{name: test, mode: tcp_forward, bind: \"{LISTENER}\", settings: {{none_left: all}}, \
         downstream: [{{name: r, address: \"{}\"}}]}}\nmetrics: {{bind: \"127.0.0.1:9090\"}}\n",
        receiver(0)
    );
    let fanout = FanOut::start(&site, &text);
    send(&site.left, LISTENER, 0..300, RATE, 1);
    wait_until("they wait", PATIENCE, || fanout.sum("sluice_fanout_waiting_messages", "") == 300);
    kill(Pid::from_raw(fanout.pid()), Signal::SIGTERM).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let sink = Sink::tcp(&site.right, &receiver(0));
    fanout.end();
    wait_until("they arrive", PATIENCE, || sink.got() == 300);
}

#[test]
fn it_runs_without_privileges() {
    let site = site("fan-nobody");
    let sinks = sinks_at(&site, receiver);
    let text = yaml("userspace", "").replace(":514\"", ":5140\"");
    let config = site.write_all("nobody.yaml", &text);
    let mut command = site.gateway.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set=-all"]);
    command.args([crate::common::BINARY, "fanout", "--config", &config.display().to_string()]);
    let log = std::fs::File::create(site.dir().join("nobody.log")).unwrap();
    let mut child = Running::spawn(command.stderr(log));
    let words = || std::fs::read_to_string(site.dir().join("nobody.log")).unwrap();
    wait_until("ready", PATIENCE, || {
        assert!(child.try_wait().unwrap().is_none(), "{}", words());
        words().contains("ready")
    });
    send(&site.left, "10.71.1.1:5140", 0..300, RATE, 1);
    wait_until("all messages", PATIENCE, || total(&sinks) >= 300);
}

#[test]
fn the_file_alone_can_be_checked() {
    let site = site("fan-check");
    let config = site.write_all("config.yaml", &yaml("xdp", ""));
    let said = accepted(&site.sluice(&["fanout", "--check", "--config", &config.display().to_string()]));
    assert!(said.contains("1 listeners"), "{said}");
}
