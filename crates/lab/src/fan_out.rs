//! `sluice lab run fanout`: one address, three receivers. Round robin, by weight, by flow; one of them dies and comes back.
//!
//! ```text
//!                                              / down0  10.0.11.2  rsyslogd
//!   sender 192.0.2.2 ---- up0 gateway (fan-out) -- down1  10.0.12.2  sink
//!                        192.0.2.50:514-516    \ down2  10.0.13.2  sink
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::args::RunArgs;
use crate::branch::Hook;
use crate::gateway::Gateway;
use crate::interrupt;
use crate::metrics::Metrics;
use crate::netns::{Netns, VethEnd, veth};
use crate::patience::patience;
use crate::receivers::{Arrival, Receiver, Rsyslog, Sent, Sink, send};
use crate::scene::{self, Row, print_rows};
use crate::state::StateDirectory;
use crate::stats;

/// The listeners.
pub const FANOUT_YAML: &str = include_str!("../../../examples/fanout.yaml");

const METRICS: &str = "127.0.0.1:9090";
const LISTENER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 50);
const BY_TURNS: u16 = 514;
const BY_WEIGHT: u16 = 515;
const BY_FLOW: u16 = 516;
const WEIGHTS: [u32; 3] = [1, 2, 3];

const MESSAGES: u32 = 90_000;
const RATE: u32 = 50_000;
const FLOWS: usize = 300;
/// How late a message may be, and a table of positions, which is rewritten every 20 ms, where others use the CPUs too.
const SLACK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(20);

fn address(receiver: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 11 + receiver as u8, 2)
}

struct Spread {
    gateway: Netns,
    sender: Netns,
    hosts: Vec<Netns>,
}

impl Spread {
    fn create(hook: Hook) -> Result<Spread> {
        let make = |label: &str| Netns::create(&format!("fan-{label}"));
        let hosts = ["a", "b", "c"].map(make).into_iter().collect::<Result<Vec<_>, _>>()?;
        let lab = Spread { gateway: make("gw")?, sender: make("up")?, hosts };
        lab.connect(&lab.sender, "up0", "192.0.2.2/24", "192.0.2.1", hook)?;
        for (number, host) in lab.hosts.iter().enumerate() {
            let net = 11 + number;
            let (own, gateway) = (format!("10.0.{net}.2/24"), format!("10.0.{net}.1"));
            lab.connect(host, &format!("down{number}"), &own, &gateway, hook)?;
        }
        Ok(lab)
    }

    fn connect(&self, host: &Netns, device: &str, own: &str, gateway: &str, hook: Hook) -> Result<()> {
        let near =
            VethEnd { netns: &self.gateway, name: device, mac: None, addresses: &[&format!("{gateway}/24")] };
        veth(near, VethEnd { netns: host, name: "eth0", mac: None, addresses: &[own] })?;
        host.ip(&format!("route add default via {gateway}"))?;
        if hook == Hook::Xdp {
            // as physical devices have it: complete checksums, and NAPI for what XDP redirects
            host.run("ethtool", ["-K", "eth0", "tx", "off", "gro", "on"])?;
        }
        Ok(())
    }

    /// Sum of a family's samples that have all of these labels.
    fn metric(&self, family: &str, labels: &[&str]) -> Result<u64> {
        Metrics::read(&self.gateway, METRICS)?.sum(&format!("sluice_fanout_{family}"), labels)
    }

    /// Whether the data plane's tables have the third receiver of the first listener.
    fn third_is_up(&self) -> Result<bool> {
        Ok(self.metric("receiver_up", &["listener=\"by-turns\"", "receiver=\"c\""])? == 1)
    }
}

/// What each receiver has of one listener's messages.
struct Shares {
    /// By receiver.
    packets: Vec<u32>,
    flows: Vec<usize>,
    /// How often each message came.
    times: BTreeMap<u32, u32>,
    /// Messages that came under another address than their sender's.
    strange: usize,
    /// Flows that more than one receiver has packets of.
    split: usize,
}

impl Shares {
    fn of(sent: &Sent, seen: &[Vec<Arrival>]) -> Shares {
        let mut shares =
            Shares { packets: vec![], flows: vec![], times: BTreeMap::new(), strange: 0, split: 0 };
        let mut all: BTreeMap<SocketAddr, usize> = BTreeMap::new();
        for arrivals in seen {
            let own: Vec<&Arrival> = arrivals.iter().filter(|a| sent.numbers.contains(&a.number)).collect();
            own.iter().for_each(|a| *shares.times.entry(a.number).or_default() += 1);
            shares.strange += own.iter().filter(|a| !a.is_from(sent.sender(a.number))).count();
            let flows: BTreeSet<SocketAddr> = own.iter().map(|a| sent.sender(a.number)).collect();
            shares.packets.push(own.len() as u32);
            shares.flows.push(flows.len());
            flows.into_iter().for_each(|flow| *all.entry(flow).or_default() += 1);
        }
        shares.split = all.values().filter(|receivers| **receivers > 1).count();
        shares
    }

    /// Every message once, from who sent it.
    fn exact(&self, sent: &Sent) -> bool {
        self.times.len() == sent.numbers.len() && self.once() && self.strange == 0
    }

    fn once(&self) -> bool {
        self.times.values().all(|times| *times == 1)
    }

    fn line(&self, what: &str) -> Line {
        let total = self.packets.iter().sum::<u32>().max(1);
        let percent = |packets: &u32| 100.0 * f64::from(*packets) / f64::from(total);
        Line {
            listener: what.to_owned(),
            packets: self.packets.clone(),
            percent: self.packets.iter().map(percent).collect(),
            flows: self.flows.clone(),
        }
    }
}

/// A line of the fairness table: one column a receiver.
#[derive(Debug, Serialize)]
struct Line {
    listener: String,
    packets: Vec<u32>,
    percent: Vec<f64>,
    flows: Vec<usize>,
}

struct Scene<'a> {
    lab: &'a Spread,
    receivers: Vec<Box<dyn Receiver>>,
    mortal: Option<Sink>,
    /// What receivers had that died.
    past: Vec<Arrival>,
    rows: Vec<Row>,
    lines: Vec<Line>,
}

impl Scene<'_> {
    fn add(&mut self, check: &'static str, ok: bool, saw: String) {
        self.rows.push(Row { check, ok, saw });
    }

    fn seen(&self) -> Vec<Vec<Arrival>> {
        let mut seen: Vec<Vec<Arrival>> = self.receivers.iter().map(|receiver| receiver.arrivals()).collect();
        let mut third = self.past.clone();
        third.extend(self.mortal.iter().flat_map(Receiver::arrivals));
        seen.push(third);
        seen
    }

    /// Waits until every message is there, or nothing more comes.
    fn settled(&self, sent: &Sent) -> Shares {
        let (begun, mut before) = (Instant::now(), 0);
        loop {
            let shares = Shares::of(sent, &self.seen());
            let arrived = shares.packets.iter().sum::<u32>();
            if arrived as usize >= sent.numbers.len()
                || begun.elapsed() > patience(PATIENCE)
                || arrived == before
            {
                return shares;
            }
            before = arrived;
            thread::sleep(Duration::from_millis(300));
        }
    }

    fn play(&mut self) -> Result<()> {
        self.by_turns()?;
        self.by_weight()?;
        self.by_flow()?;
        interrupt::check()?;
        self.death()
    }

    fn by_turns(&mut self) -> Result<()> {
        let sent = send(&self.lab.sender, (LISTENER, BY_TURNS), 0..MESSAGES, RATE, 8)?;
        let shares = self.settled(&sent);
        self.lines.push(shares.line("by turns"));
        let (least, most) = (shares.packets.iter().min(), shares.packets.iter().max());
        let apart = most.zip(least).map_or(u32::MAX, |(most, least)| most - least);
        let cpus = thread::available_parallelism()?.get() as u32;
        let saw = format!("{apart} apart, {cpus} CPUs");
        self.add("by turns, two receivers are at most one packet a CPU apart", apart <= cpus, saw);
        let saw = format!("{} messages, {} under a strange address", shares.times.len(), shares.strange);
        self.add("every message arrived once, under its sender's address and port", shares.exact(&sent), saw);
        Ok(())
    }

    fn by_weight(&mut self) -> Result<()> {
        let numbers = MESSAGES..MESSAGES + 12_000;
        let sent = send(&self.lab.sender, (LISTENER, BY_WEIGHT), numbers, RATE, 8)?;
        let shares = self.settled(&sent);
        self.lines.push(shares.line("by weight 1:2:3"));
        let turns =
            shares.packets.iter().zip(WEIGHTS).map(|(packets, weight)| packets.abs_diff(2000 * weight));
        let (apart, cpus) = (turns.max().unwrap_or(u32::MAX), thread::available_parallelism()?.get() as u32);
        let ok = shares.exact(&sent) && apart <= WEIGHTS[2] * cpus;
        self.add(
            "weights are kept but for one round of turns a CPU",
            ok,
            format!("at most {apart} packets off"),
        );
        Ok(())
    }

    fn by_flow(&mut self) -> Result<()> {
        let numbers = MESSAGES + 12_000..MESSAGES + 24_000;
        let sent = send(&self.lab.sender, (LISTENER, BY_FLOW), numbers, RATE, FLOWS)?;
        let shares = self.settled(&sent);
        self.lines.push(shares.line("by flow"));
        let ok =
            shares.exact(&sent) && shares.split == 0 && shares.flows.iter().all(|flows| *flows >= FLOWS / 5);
        let saw = format!("{FLOWS} flows, {} of them split", shares.split);
        self.add("each flow has one receiver, and each receiver its part of them", ok, saw);
        Ok(())
    }

    /// The third receiver dies under load and comes back.
    fn death(&mut self) -> Result<()> {
        let numbers = MESSAGES + 24_000..MESSAGES + 84_000;
        let lab = self.lab;
        let (sent, times) = thread::scope(|scope| -> Result<_> {
            let sender = scope.spawn(|| send(&lab.sender, (LISTENER, BY_TURNS), numbers, RATE / 2, 8));
            let times = self.kill_and_revive(&|| sender.is_finished());
            let sent = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
            Ok((sent, times?))
        })?;
        let shares = self.settled(&sent);
        self.lines.push(shares.line("c dies and comes back"));
        let lost: Vec<u32> = sent.numbers.clone().filter(|n| !shares.times.contains_key(n)).collect();
        let window = times.killed - SLACK..times.noticed + SLACK;
        let outside = lost.iter().filter(|number| !window.contains(&sent.when(**number))).count();
        let took = (times.noticed - times.killed).as_millis();
        let saw =
            format!("left out after {took} ms, {} lost until then, {outside} outside of that", lost.len());
        self.add("a receiver that dies costs nothing beyond the time to notice", outside == 0, saw);
        let revived = self.mortal.as_ref().map_or(0, |sink| sink.arrivals().len());
        self.add(
            "it takes part again once it is back",
            shares.once() && revived > 0,
            format!("{revived} packets"),
        );
        Ok(())
    }

    fn kill_and_revive(&mut self, over: &dyn Fn() -> bool) -> Result<Times> {
        let lab = self.lab;
        let wait = |up: bool| -> Result<Instant> {
            while lab.third_is_up()? != up {
                if over() {
                    bail!(
                        "the load was over before the fan-out noticed that receiver c is {}",
                        if up { "back" } else { "gone" }
                    );
                }
                thread::sleep(Duration::from_millis(5));
            }
            Ok(Instant::now())
        };
        thread::sleep(Duration::from_millis(400));
        let killed = Instant::now();
        let had = self.mortal.take().map(Sink::end).unwrap_or_default();
        self.past.extend(had);
        let noticed = wait(false)?;
        thread::sleep(Duration::from_millis(300));
        self.mortal = Some(Sink::start(&lab.hosts[2], address(2))?);
        wait(true)?;
        Ok(Times { killed, noticed })
    }

    /// The fan-out's own account, and the data plane's.
    fn accounts(&mut self, gateway: &Gateway) -> Result<()> {
        let balance = stats::at_rest(gateway)?.equations;
        let saw = |equation: stats::Equation| format!("{} = {}", equation.left, equation.right);
        self.add(
            "received = redirected + handed off + local + drops",
            balance.ingress.holds(),
            saw(balance.ingress),
        );
        self.add(
            "redirected + handed off + resolved + replies = sent + queued + drops",
            balance.egress.holds(),
            saw(balance.egress),
        );
        let sum = |family| self.lab.metric(family, &[]);
        let (received, sent) = (sum("received_packets_total")?, sum("sent_packets_total")?);
        let dropped = sum("dropped_packets_total")?;
        let all = u64::from(MESSAGES + 84_000);
        let saw = format!("{received} = {sent} + {dropped}");
        self.add("of listeners: received = sent + drops", received == sent + dropped && received == all, saw);
        Ok(())
    }
}

struct Times {
    killed: Instant,
    noticed: Instant,
}

#[derive(Debug, Serialize)]
struct HookReport {
    gateway: &'static str,
    ok: bool,
    seconds: f64,
    receivers: Vec<&'static str>,
    fairness: Vec<Line>,
    rows: Vec<Row>,
}

impl scene::HookReport for HookReport {
    fn is_ok(&self) -> bool {
        self.ok
    }

    fn print(&self) {
        println!("fan-out on the {} hook: one address, three receivers, {:.0} s", self.gateway, self.seconds);
        print!("  {:<24}", "packets (share; flows)");
        for (name, kind) in ["a", "b", "c"].iter().zip(&self.receivers) {
            print!("{:>26}", format!("{name}, {kind}"));
        }
        println!();
        for line in &self.fairness {
            print!("  {:<24}", line.listener);
            for ((packets, percent), flows) in line.packets.iter().zip(&line.percent).zip(&line.flows) {
                print!("{:>26}", format!("{packets} ({percent:.2} %; {flows})"));
            }
            println!();
        }
        print_rows(&self.rows, 66);
    }
}

/// `sluice lab run fanout`
pub fn run_lab(args: &RunArgs) -> Result<ExitCode> {
    scene::on_hooks(args, run_hook)
}

/// The example with the mode of a hook.
fn yaml(hook: Hook) -> String {
    let mode = if hook == Hook::Xdp { "xdp" } else { "tc_ebpf" };
    FANOUT_YAML.replace("mode: auto", &format!("mode: {mode}"))
}

fn run_hook(hook: Hook) -> Result<HookReport> {
    let begun = Instant::now();
    let directory = StateDirectory::new(&format!("fanout-{}", hook.name()))?;
    let lab = Spread::create(hook)?;
    let receivers: Vec<Box<dyn Receiver>> = vec![
        Box::new(Rsyslog::start(&lab.hosts[0], address(0), directory.path())?),
        Box::new(Sink::start(&lab.hosts[1], address(1))?),
    ];
    let mortal = Sink::start(&lab.hosts[2], address(2))?;
    let kinds = receivers.iter().map(|receiver| receiver.kind()).chain([mortal.kind()]).collect();
    let gateway = scene::gateway(&lab.gateway, directory.path(), "fanout.yaml", &yaml(hook))?;
    let mut gateway = gateway.with_command("fanout");
    gateway.start()?;
    let mut scene =
        Scene { lab: &lab, receivers, mortal: Some(mortal), past: vec![], rows: vec![], lines: vec![] };
    scene.play()?;
    scene.accounts(&gateway)?;
    let ok = scene.rows.iter().all(|row| row.ok);
    if !ok {
        eprintln!("last words of the daemon:\n{}", gateway.last_words());
    }
    let (rows, fairness) = (scene.rows, scene.lines);
    gateway.finish()?;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(HookReport { gateway: hook.name(), ok, seconds, receivers: kinds, fairness, rows })
}
