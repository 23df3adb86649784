//! Receivers by name: long answers, and a DNS that says nothing.

use std::time::{Duration, Instant};

use super::bed::{FanOut, LISTENER, PATIENCE, send, site, yaml};
use super::dns::{Dns, Record};
use crate::common::{Site, wait_until};

/// Far below what a resolver waits for a silent server (5 s and more), far above what else there is to do.
const SOON: Duration = Duration::from_secs(4);

/// One receiver by name beside the first two by address.
fn with_name(mode: &str, name: &str) -> String {
    let health = "health: {check: icmp, interval_ms: 50, timeout_ms: 300, rise: 1, fall: 1}\n";
    yaml(mode, health).replace("10.71.2.13:5514", &format!("{name}:5514"))
}

fn up(fanout: &FanOut, receiver: &str) -> u64 {
    fanout.sum("sluice_fanout_receiver_up", &format!("receiver=\"{receiver}"))
}

fn within<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    assert!(begun.elapsed() < SOON, "{what} took {:?} beside a silent DNS", begun.elapsed());
    done
}

/// Nothing but the name itself waits for it: not the metrics, not failover, not a reload.
fn silent(mode: &str) {
    let site = site(&format!("fan-dumb-{mode}"));
    let dns = Dns::start(&site);
    dns.be_silent(true);
    let begun = Instant::now();
    let fanout = FanOut::start_asking(&site, &with_name(mode, "silent.example"), &dns.resolv);
    if mode == "userspace" {
        assert!(begun.elapsed() < SOON, "the start took {:?} beside a silent DNS", begun.elapsed());
    }
    for _ in 0..10 {
        within("reading the metrics", || fanout.metrics());
        // a look-up is under way for most of this time
        std::thread::sleep(Duration::from_millis(200));
    }
    site.right.ip("addr del 10.71.2.12/24 dev eth0").unwrap();
    within("failover", || wait_until("it is seen to be gone", PATIENCE, || up(&fanout, "r1") == 0));
    let sent = || fanout.sum("sluice_fanout_sent_packets_total", "receiver=\"r1\"");
    let is_left_out = || {
        let before = sent();
        send(&site.left, LISTENER, 0..60, 20_000, 4);
        sent() == before
    };
    within("leaving it out", || wait_until("nothing goes to it", PATIENCE, is_left_out));
    if mode == "userspace" {
        fanout.rewrite(&with_name(mode, "other.example").replace("r0, ", "renamed, "));
        within("a reload", || wait_until("the reload", PATIENCE, || up(&fanout, "renamed") == 1));
    }
    let name = if mode == "userspace" { "other.example" } else { "silent.example" };
    dns.set(name, vec![Record::A([10, 71, 2, 13].into())]);
    dns.be_silent(false);
    wait_until("it is answered at last", PATIENCE, || up(&fanout, "r2/10.71.2.13") == 1);
    let sent = || fanout.sum("sluice_fanout_sent_packets_total", "receiver=\"r2/10.71.2.13\"");
    wait_until("and served", PATIENCE, || {
        send(&site.left, LISTENER, 0..60, 20_000, 4);
        sent() > 0
    });
}

#[test]
fn a_silent_dns_holds_up_nothing_in_userspace() {
    silent("userspace");
}

#[test]
fn a_silent_dns_holds_up_nothing_on_tc() {
    silent("tc_ebpf");
}

/// No receiver of a kernel listener is known at the start, so neither is the device that leads there.
#[test]
fn the_way_to_a_name_is_found_when_it_is_answered() {
    let site = site("fan-late");
    let dns = Dns::start(&site);
    dns.be_silent(true);
    let text = yaml("tc_ebpf", "");
    let kept = text.lines().filter(|line| !line.contains("name: r0") && !line.contains("name: r1"));
    let text: String = kept.map(|line| format!("{line}\n")).collect();
    let text = text.replace("10.71.2.13:5514", "late.example:5514");
    let fanout = FanOut::start_asking(&site, &text, &dns.resolv);
    dns.set("late.example", vec![Record::A([10, 71, 2, 13].into())]);
    dns.be_silent(false);
    let sink = super::bed::Sink::udp(&site.right, "10.71.2.13:5514");
    wait_until("it is served", PATIENCE, || {
        send(&site.left, LISTENER, 0..20, 20_000, 1);
        sink.got() > 0
    });
    drop(fanout);
}

fn forty(site: &Site, dns: &Dns) -> Vec<String> {
    let hosts: Vec<String> =
        (0..40).map(|n| format!("collector-{n}.of-a-rather-long-name.pods.example")).collect();
    for (n, host) in hosts.iter().enumerate() {
        dns.set(host, vec![Record::A([10, 71, 2, 100 + n as u8].into())]);
        site.right.ip(&format!("addr add 10.71.2.{}/24 dev eth0", 100 + n)).unwrap();
    }
    hosts
}

/// 40 records of a service do not fit into 512 bytes, nor into many a server's EDNS size: the rest comes over TCP.
#[test]
fn all_forty_receivers_of_a_service_are_found() {
    let site = site("fan-srv");
    let dns = Dns::start(&site);
    let hosts = forty(&site, &dns);
    let records = |hosts: &[String]| hosts.iter().map(|host| Record::Srv(5514, host.clone())).collect();
    dns.set("_syslog._udp.pods.example", records(&hosts));
    let text = yaml("userspace", "").replace(
        "{name: r2, address: \"10.71.2.13:5514\"}",
        "{name: pods, service: _syslog._udp.pods.example}",
    );
    let fanout = FanOut::start_asking(&site, &text, &dns.resolv);
    let pods = || up(&fanout, "pods/");
    wait_until("forty receivers", PATIENCE, || pods() == 40);
    assert!(dns.asked_by_tcp() > 0);
    // scaled down: those who left are expected by nobody any more, what they got stays in the account
    send(&site.left, LISTENER, 0..420, 20_000, 4);
    fanout.assert_balanced();
    dns.set("_syslog._udp.pods.example", records(&hosts[..3]));
    wait_until("three receivers", PATIENCE, || pods() == 3);
    let page = fanout.metrics();
    let gauges = |family: &str| {
        page.lines().filter(|l| l.starts_with(family) && l.contains("receiver=\"pods/")).count()
    };
    assert_eq!(
        (gauges("sluice_fanout_receiver_up{"), gauges("sluice_fanout_receiver_share{")),
        (3, 3),
        "{page}"
    );
    assert_eq!(gauges("sluice_fanout_sent_packets_total{"), 40);
    fanout.assert_balanced();
    // one host is not answered for: its service still means it
    let asked = dns.asked();
    dns.set(&hosts[1], vec![]);
    wait_until("two more rounds", PATIENCE, || dns.asked() > asked + 16);
    assert_eq!(pods(), 3, "{}", fanout.words());
}
