//! Every pair of what may happen at once. Whatever overlaps, in the end the data plane serves those whom the last word of
//! each asks for, and the metrics say so.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::bed::{FanOut, LISTENER, send, site};
use super::dns::{Dns, Record};
use crate::common::{Site, is_soak};

const PATIENCE: Duration = Duration::from_secs(90);
const NAME: &str = "collectors.example";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A receiver comes into the file, or leaves it.
    Reload,
    Restart,
    /// A receiver dies, or comes back.
    Health,
    /// A name means another address.
    Name,
    /// The device towards the receivers goes down and up.
    Link,
}

const EVENTS: [Event; 5] = [Event::Reload, Event::Restart, Event::Health, Event::Name, Event::Link];

/// Addresses end in: 11, always there; 12, which dies; 13, which leaves the file; 21 or 22, which the name means.
struct Scene<'a> {
    fanout: FanOut<'a>,
    site: &'a Site,
    dns: Dns,
    mode: &'static str,
    is_alive: bool,
    is_named: bool,
    means: u8,
    next: u32,
}

fn text(mode: &str, with_last: bool) -> String {
    let last = if with_last { "      - {name: r2, address: \"10.71.2.13:5514\"}\n" } else { "" };
    format!(
        "listeners:\n  - name: test\n    interface: left0\n    mode: {mode}\n    bind: \"{LISTENER}\"\n    downstream:\n\
         \x20     - {{name: r0, address: \"10.71.2.11:5514\"}}\n\
         \x20     - {{name: r1, address: \"10.71.2.12:5514\"}}\n{last}\
         \x20     - {{name: n, address: \"{NAME}:5514\"}}\n\
         health: {{check: icmp, interval_ms: 100, timeout_ms: 500, rise: 1, fall: 2}}\n\
         metrics: {{bind: \"127.0.0.1:9090\"}}\n"
    )
}

fn address(last: u8) -> String {
    format!("10.71.2.{last}:5514")
}

impl Scene<'_> {
    fn happens(&mut self, event: Event) {
        match event {
            Event::Reload => {
                self.is_named = !self.is_named;
                self.fanout.rewrite(&text(self.mode, self.is_named));
            }
            Event::Restart => self.fanout.restart(),
            Event::Health => {
                self.is_alive = !self.is_alive;
                let what = if self.is_alive { "add" } else { "del" };
                self.site.right.ip(&format!("addr {what} 10.71.2.12/24 dev eth0")).unwrap();
            }
            Event::Name => {
                self.means = if self.means == 21 { 22 } else { 21 };
                self.dns.set(NAME, vec![Record::A([10, 71, 2, self.means].into())]);
            }
            Event::Link => {
                self.site.gateway.ip("link set right0 down").unwrap();
                self.site.gateway.ip("link set right0 up").unwrap();
            }
        }
    }

    fn wanted(&self) -> BTreeSet<u8> {
        let mut wanted = BTreeSet::from([11, self.means]);
        wanted.extend(self.is_alive.then_some(12));
        wanted.extend(self.is_named.then_some(13));
        wanted
    }

    /// Who is given something of a burst, and how many were dropped of it.
    fn served(&mut self) -> (BTreeSet<u8>, u64) {
        let all = [11, 12, 13, 21, 22];
        let sent = |metrics: &sluice_lab::metrics::Metrics, last: u8| {
            metrics.sum("sluice_fanout_sent_packets_total", &[&format!("\"{}\"", address(last))]).unwrap()
        };
        let dropped = |metrics: &sluice_lab::metrics::Metrics| {
            metrics.sum("sluice_fanout_dropped_packets_total", &[]).unwrap()
        };
        let before = self.fanout.read_metrics();
        send(&self.site.left, LISTENER, self.next..self.next + 60, 20_000, 6);
        self.next += 60;
        let after = self.fanout.read_metrics();
        let is_served = |last: &u8| sent(&after, *last) > sent(&before, *last);
        (all.into_iter().filter(is_served).collect(), dropped(&after) - dropped(&before))
    }

    /// Gauges of each receiver of the configuration, and none of others.
    fn gauges_agree(&self) -> Result<(), String> {
        let page = self.fanout.metrics();
        let gauge = |family: &str, last: u8| {
            let (family, address) =
                (format!("sluice_fanout_receiver_{family}{{"), format!("\"{}\"", address(last)));
            let mut lines = page.lines().filter(|l| l.starts_with(&family) && l.contains(&address));
            lines.next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        };
        let there = [11, 12, self.means].into_iter().chain(self.is_named.then_some(13));
        let there: BTreeSet<u8> = there.collect();
        for last in [11, 12, 13, 21, 22] {
            let is_up = there.contains(&last).then_some(last != 12 || self.is_alive);
            let (up, share) = (gauge("up", last), gauge("share", last));
            if (up, share) != (is_up.map(u64::from), is_up.map(|up| if up { 10 } else { 0 })) {
                return Err(format!("{last}: up {up:?}, share {share:?}"));
            }
        }
        Ok(())
    }

    fn settles(&mut self, pair: (Event, Event)) {
        let (begun, wanted) = (Instant::now(), self.wanted());
        let mut in_a_row = 0;
        while in_a_row < 3 {
            let (served, gauges) = (self.served(), self.gauges_agree());
            let is_right = served == (wanted.clone(), 0) && gauges.is_ok();
            in_a_row = if is_right { in_a_row + 1 } else { 0 };
            assert!(
                begun.elapsed() < PATIENCE,
                "{pair:?}: wanted {wanted:?}, served and dropped {served:?}, {gauges:?}\n{}\n{}",
                self.fanout.metrics(),
                self.fanout.words()
            );
        }
    }
}

/// `make soak` tries each pair on both hooks; else each is tried on one of them, so that all are.
fn every_pair(mode: &'static str) {
    let site = site(&format!("fan-pair-{mode}"));
    with_scene(mode, &site, |scene| {
        for (number, first) in EVENTS.into_iter().enumerate() {
            for (pause, second) in EVENTS.into_iter().enumerate() {
                if !is_soak() && ((number + pause) % 2 == 0) == (mode == "xdp") {
                    continue;
                }
                scene.happens(first);
                // nothing waits for it: the second comes early in one pair and late in another
                std::thread::sleep(Duration::from_millis((number * 5 + pause) as u64 * 17));
                scene.happens(second);
                scene.settles((first, second));
            }
        }
    });
}

/// Commits one behind the other while something else happens: whenever it comes, one is under way.
fn among_commits(mode: &'static str) {
    let site = site(&format!("fan-storm-{mode}"));
    with_scene(mode, &site, |scene| {
        for event in
            [Event::Health, Event::Name, Event::Link, Event::Health].repeat(if is_soak() { 3 } else { 1 })
        {
            scene.happens(event);
            let begun = Instant::now();
            for commit in 0.. {
                // another text, the same meaning
                let text = format!("{}# {commit}\n", text(mode, true));
                scene.fanout.rewrite(&text);
                std::thread::sleep(Duration::from_millis(60));
                if commit >= 10 && (scene.gauges_agree().is_ok() || begun.elapsed() > PATIENCE) {
                    break;
                }
            }
            scene.settles((Event::Reload, event));
        }
    });
}

fn with_scene(mode: &'static str, site: &Site, work: impl FnOnce(&mut Scene)) {
    for last in [21, 22] {
        site.right.ip(&format!("addr add 10.71.2.{last}/24 dev eth0")).unwrap();
    }
    let dns = Dns::start(site);
    dns.set(NAME, vec![Record::A([10, 71, 2, 21].into())]);
    let fanout = FanOut::start_asking(site, &text(mode, true), &dns.resolv);
    work(&mut Scene { fanout, site, dns, mode, is_alive: true, is_named: true, means: 21, next: 0 });
}

#[test]
fn every_pair_of_events_ends_as_the_last_of_both_asks_on_tc() {
    every_pair("tc_ebpf");
}

#[test]
fn every_pair_of_events_ends_as_the_last_of_both_asks_on_xdp() {
    every_pair("xdp");
}

#[test]
fn what_happens_among_commits_is_in_force_behind_them_on_tc() {
    among_commits("tc_ebpf");
}

#[test]
fn what_happens_among_commits_is_in_force_behind_them_on_xdp() {
    among_commits("xdp");
}
