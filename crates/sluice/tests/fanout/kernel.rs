//! Modes of the data plane: XDP and tc.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::bed::{
    FanOut, LISTENER, MESSAGES, PATIENCE, Sink, assert_all_once, receiver, send, sinks_at, site, total, yaml,
};
use super::modes::{Mode, RATE, fair_and_exact};
use crate::common::wait_until;

/// The data plane goes on without its daemon.
fn fair_without_a_daemon(mode: Mode) {
    let site = site(&format!("fan-{}", mode.name()));
    let sinks = sinks_at(&site, receiver);
    fair_and_exact(mode, &site, &sinks).end();
    send(&site.left, LISTENER, MESSAGES..MESSAGES + 300, RATE, 4);
    wait_until("messages without a daemon", PATIENCE, || total(&sinks) >= u64::from(MESSAGES) + 300);
}

#[test]
fn xdp_is_fair_exact_and_keeps_the_sender() {
    fair_without_a_daemon(Mode::Xdp);
}

#[test]
fn tc_is_fair_exact_and_keeps_the_sender() {
    fair_without_a_daemon(Mode::Tc);
}

fn reloads(mode: Mode) {
    let site = site(&format!("fan-re-{}", mode.name()));
    let sinks = sinks_at(&site, receiver);
    let fanout = FanOut::start(&site, &yaml(mode.name(), ""));
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
            let text = yaml(mode.name(), if round % 2 == 0 { "    settings: {balance: flow}\n" } else { "" });
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
    mode.assert_conserved(&fanout);
}

#[test]
fn reloads_of_xdp_lose_nothing() {
    reloads(Mode::Xdp);
}

#[test]
fn reloads_of_tc_lose_nothing() {
    reloads(Mode::Tc);
}

/// One receiver leaves the configuration, another drains on the operator's word: both get ever less, then nothing.
fn drains(mode: Mode) {
    let site = site(&format!("fan-drain-{}", mode.name()));
    let sinks = sinks_at(&site, receiver);
    let more = "    settings: {balance: flow}\n\
                health: {check: icmp, interval_ms: 200, timeout_ms: 1000, drain_ms: 10000}\n";
    let text = yaml(mode.name(), more);
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
    mode.assert_conserved(&fanout);
}

#[test]
fn receivers_drain_on_xdp() {
    drains(Mode::Xdp);
}

#[test]
fn receivers_drain_on_tc() {
    drains(Mode::Tc);
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
    let site = super::bed::site("fan-no-arp");
    let fanout = FanOut::start(&site, &yaml("xdp", "").replace(LISTENER, "10.71.1.50:514"));
    assert!(fanout.words().contains("answer-arp"), "{}", fanout.words());
}
