//! Screens that count: SYN cookies from the first SYN to the session, two CPUs at once, and random packets of one second
//! judged by the reference.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use sluice_abi::stages::Reason;
use sluice_dataplane::Sizes;
use sluice_dataplane::prog_run::{self, TcRun, XdpRun};
use sluice_packet_tests::case::{PacketStep, Verdict, Words};
use sluice_packet_tests::counters::{self, CounterId};
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::model::rates::{Limits, Rates};
use sluice_packet_tests::model::{ICMP, ICMPV6, TCP, Tuple, UDP};
use sluice_packet_tests::netns::ifindex;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::table::{self, Seen};
use sluice_packet_tests::world::World;
use sluice_wire::checksum::Pseudo;
use sluice_wire::text::{Packet, dissect};
use sluice_wire::{tcp, text};

const UNIT: &str = "untrust0.0";
const DEVICE: &str = "untrust0";
/// What a program returns for a packet it drops, on tc and XDP.
const DROPPED: [u32; 2] = [2, 1];

/// The gateway of the tables, with other thresholds.
fn gateway(hook: Hook, changes: &[(&str, &str)]) -> Result<Gateway> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet");
    let world = World::read(&directory.join("rates.world"))?;
    let mut config = std::fs::read_to_string(&world.config)?;
    for (old, new) in changes {
        ensure!(config.contains(old), "rates.conf has no `{old}`");
        config = config.replace(old, new);
    }
    let gateway =
        Gateway::new(world, &config, Sizes { sessions4: 1024, sessions6: 1024, ..Sizes::default() }, hook)?;
    gateway.idle_near_ends()?;
    Ok(gateway)
}

fn frame(gateway: &Gateway, unit: &str, packet: &str) -> Result<Vec<u8>> {
    let packet = Packet::parse(packet).map_err(|error| anyhow!("{packet}: {error}"))?;
    let (verdict, words) = (Verdict::Local { packet: None }, Words::default());
    let step = PacketStep { unit: unit.to_owned(), raw: false, egress: false, packet, verdict, words };
    table::frame_of(gateway, &step)
}

fn send(gateway: &mut Gateway, packet: &str) -> Result<Seen> {
    let frame = frame(gateway, UNIT, packet)?;
    table::prog_run(gateway, DEVICE, &frame, false)
}

fn hits(gateway: &Gateway, check: &str) -> Result<u64> {
    let reason = counters::screen(check).with_context(|| check.to_owned())?;
    let values = counters::snapshot(&gateway.dataplane, &gateway.plan)?;
    Ok(counters::value(&values, CounterId::Screen(gateway.zone_of(UNIT)?, reason as usize)))
}

fn in_namespace(test: impl FnOnce() -> Result<()> + Send + 'static) {
    let result = in_thread(test);
    result.unwrap_or_else(|error| panic!("{error:#}"));
}

/// From empty tables; a gateway whose zones count has long seconds.
fn within_a_second(gateway: &mut Gateway, test: impl Fn(&mut Gateway) -> Result<()>) -> Result<()> {
    gateway.clear_sessions()?;
    gateway.clear_counts()?;
    test(gateway)
}

// SYN cookies

struct Peer {
    ip: &'static str,
    client: &'static str,
    server: &'static str,
    /// Of the SYN-ACK and the reset, in the frame.
    tcp_at: usize,
}

const PEERS: [Peer; 2] = [
    Peer { ip: "ip", client: "10.0.2.100", server: "10.0.1.100", tcp_at: 34 },
    Peer { ip: "ip6", client: "fd00:2::100", server: "fd00:1::100", tcp_at: 54 },
];

impl Peer {
    fn packet(&self, client: &str, sport: u16, rest: &str) -> String {
        format!("{}(src={client}, dst={})/tcp(sport={sport}, dport=80, {rest})", self.ip, self.server)
    }

    fn syn(&self, sport: u16) -> String {
        self.packet(self.client, sport, "flags=S, seq=7000")
    }

    fn ack(&self, sport: u16, ack: u32) -> String {
        self.packet(self.client, sport, &format!("flags=A, seq=7001, ack={ack}"))
    }

    /// Flags, sequence number and acknowledgment of an answer to the client, whose checksum must be right.
    fn answer(&self, seen: &Seen) -> Result<(u8, u32, u32)> {
        let text = dissect(&seen.frame).to_string();
        let bytes = &seen.frame[self.tcp_at..];
        let view = tcp::View::new(bytes).map_err(|error| anyhow!("{text}: {error}"))?;
        let (from, to): (IpAddr, IpAddr) = (self.server.parse()?, self.client.parse()?);
        ensure!(view.checksum_ok(pseudo(from, to)), "wrong checksum: {text}");
        ensure!(text.contains(&format!("src={}", self.server)), "{text}");
        ensure!(view.source_port() == 80 && bytes.len() == 20, "{text}");
        Ok((view.flags(), view.sequence(), view.acknowledgment()))
    }
}

fn cookies(hook: Hook) -> Result<()> {
    let mut gateway =
        gateway(hook, &[("attack-threshold 100", "attack-threshold 2"), ("destination-threshold 4", "")])?;
    PEERS.iter().try_for_each(|peer| within_a_second(&mut gateway, |gateway| handshake(gateway, peer)))
}

fn handshake(gateway: &mut Gateway, peer: &Peer) -> Result<()> {
    let before = ["syn_flood", "syn_cookie"].map(|check| hits(gateway, check).unwrap_or(0));
    // two are the threshold
    for sport in [1, 2] {
        let seen = send(gateway, &peer.syn(sport))?;
        ensure!(!DROPPED.contains(&seen.retval) && seen.frame[peer.tcp_at + 13] == tcp::SYN, "SYN {sport}");
    }
    let (flags, cookie, acked) = peer.answer(&send(gateway, &peer.syn(3))?)?;
    ensure!(flags == tcp::SYN | tcp::ACK && acked == 7001, "SYN-ACK {flags:#x}, {acked}");
    let (_, again, _) = peer.answer(&send(gateway, &peer.syn(3))?)?;
    let (_, other, _) = peer.answer(&send(gateway, &peer.syn(4))?)?;
    ensure!(cookie == again && cookie != other, "cookies {cookie} {again} {other}");
    ensure!(gateway.dataplane.sessions().count() == 2, "no session for a SYN that a cookie answered");

    // what does not acknowledge this connection's cookie proves nothing
    for (sport, ack) in [(3, cookie), (3, cookie.wrapping_add(2)), (5, cookie.wrapping_add(1))] {
        let seen = send(gateway, &peer.ack(sport, ack))?;
        ensure!(DROPPED.contains(&seen.retval), "ACK of {ack} from port {sport}");
    }
    let (flags, ..) = peer.answer(&send(gateway, &peer.syn(6))?)?;
    ensure!(flags == tcp::SYN | tcp::ACK, "its source is still unknown");

    let (flags, sequence, _) = peer.answer(&send(gateway, &peer.ack(3, cookie.wrapping_add(1)))?)?;
    ensure!(flags == tcp::RST && sequence == cookie.wrapping_add(1), "reset {flags:#x} {sequence}");
    ensure!(gateway.dataplane.sessions().count() == 2, "nothing is recorded for the proof");
    // the next SYN goes to the server as it is
    let seen = send(gateway, &peer.syn(3))?;
    ensure!(!DROPPED.contains(&seen.retval) && seen.frame[peer.tcp_at + 13] == tcp::SYN, "known source");
    ensure!(gateway.dataplane.sessions().count() == 3, "the session of a known source");
    // others are still unknown
    let unknown = if peer.ip == "ip" { "10.0.2.60" } else { "fd00:2::77" };
    let seen = send(gateway, &peer.packet(unknown, 1, "flags=S"))?;
    ensure!(seen.frame[peer.tcp_at + 13] == tcp::SYN | tcp::ACK, "{}", text::dissect(&seen.frame));
    let after = ["syn_flood", "syn_cookie"].map(|check| hits(gateway, check).unwrap_or(0));
    ensure!([after[0] - before[0], after[1] - before[1]] == [5, 1], "{before:?} {after:?}");
    Ok(())
}

fn pseudo(from: IpAddr, to: IpAddr) -> Pseudo {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Pseudo::V4(from, to),
        (IpAddr::V6(from), IpAddr::V6(to)) => Pseudo::V6(from, to),
        _ => unreachable!("both are of one family"),
    }
}

#[test]
fn a_returned_cookie_makes_its_source_known_on_tc() {
    in_namespace(|| cookies(Hook::Tc));
}

#[test]
fn a_returned_cookie_makes_its_source_known_on_xdp() {
    in_namespace(|| cookies(Hook::Xdp));
}

// Two CPUs

const THRESHOLD: u64 = 1000;
const EACH: u32 = 20_000;

fn flood_from_two_cpus(hook: Hook) -> Result<()> {
    let mut gateway =
        gateway(hook, &[("flood { threshold 3; } ip-sweep", "flood { threshold 1000; } ip-sweep")])?;
    within_a_second(&mut gateway, |gateway| {
        let before = hits(gateway, "icmp_flood")?;
        // to this host itself: what is delivered stays as it is, however often it runs
        let frame = frame(gateway, UNIT, "ip(src=10.0.2.100, dst=10.0.2.1)/icmp(type=echo-request, id=1)")?;
        let index = ifindex(DEVICE)?;
        let root = gateway.root(DEVICE)?.as_fd();
        std::thread::scope(|scope| -> Result<()> {
            let run = |cpu: usize| -> Result<()> {
                let mut set = CpuSet::new();
                set.set(cpu)?;
                sched_setaffinity(Pid::from_raw(0), &set)?;
                if hook == Hook::Tc {
                    prog_run::tc(root, &TcRun { repeat: EACH, ..TcRun::new(&frame, index) })?;
                } else {
                    prog_run::xdp(root, &XdpRun { repeat: EACH, ..XdpRun::new(&frame, index) })?;
                }
                Ok(())
            };
            let cpus = [0, 1].map(|cpu| scope.spawn(move || run(cpu)));
            cpus.into_iter().try_for_each(|cpu| cpu.join().expect("no panic"))
        })?;
        let dropped = hits(gateway, "icmp_flood")? - before;
        ensure!(dropped == 2 * u64::from(EACH) - THRESHOLD, "dropped {dropped} of {}", 2 * EACH);
        Ok(())
    })
}

#[test]
fn two_cpus_share_one_count_on_tc() {
    in_namespace(|| flood_from_two_cpus(Hook::Tc));
}

#[test]
fn two_cpus_share_one_count_on_xdp() {
    in_namespace(|| flood_from_two_cpus(Hook::Xdp));
}

// The reference

const PACKETS: usize = 400;
const ROUNDS: u64 = 12;

fn one_packet(random: &mut Random) -> Tuple {
    let six = random.percent(40);
    let address = |net: usize, host: usize| -> IpAddr {
        let text = if six { format!("fd00:{net}::{host}") } else { format!("10.0.{net}.{host}") };
        text.parse().expect("written above")
    };
    let icmp = if six { ICMPV6 } else { ICMP };
    let protocol = *random.pick(&[icmp, TCP, UDP, UDP]);
    // few of each, so that counts grow; now and then one of many, so that sweeps and scans come to ten
    let few = random.percent(60);
    let host = if few { 100 } else { 111 + random.below(9) };
    let dport = if few { 1 + random.below(14) as u16 } else { 53 };
    Tuple {
        source: address(2, 100 + random.below(3)),
        destination: address(1, host),
        sport: 1000 + random.below(3) as u16,
        dport: if protocol == icmp { 0x0800 } else { dport },
        protocol,
    }
}

fn text_of(packet: Tuple) -> String {
    let Tuple { source, destination, sport, dport, protocol } = packet;
    let ip = if source.is_ipv4() { "ip" } else { "ip6" };
    let inner = match protocol {
        TCP => format!("tcp(sport={sport}, dport={dport}, flags=S)"),
        UDP => format!("udp(sport={sport}, dport={dport})"),
        ICMP => format!("icmp(type=echo-request, id={sport})"),
        _ => format!("icmp6(type=echo-request, id={sport})"),
    };
    format!("{ip}(src={source}, dst={destination})/{inner}")
}

fn against_the_reference(hook: Hook) -> Result<()> {
    let limits = Limits { icmp: 9, udp: 7, syn_source: 25, syn_destination: 15 };
    let mut gateway = gateway(
        hook,
        &[
            ("flood { threshold 3; } ip-sweep", "flood { threshold 9; } ip-sweep"),
            ("flood { threshold 3; } port-scan", "flood { threshold 7; } port-scan"),
            ("attack-threshold 100", "attack-threshold 1000"),
            ("alarm-threshold 100", "alarm-threshold 1000"),
            ("source-threshold 50", "source-threshold 25"),
            ("destination-threshold 4", "destination-threshold 15"),
        ],
    )?;
    // every XDP run costs 20 ms
    let packets = if hook == Hook::Tc { PACKETS } else { PACKETS / 16 };
    for seed in 0..ROUNDS {
        let mut random = Random::new(seed);
        let texts: Vec<Tuple> = (0..packets).map(|_| one_packet(&mut random)).collect();
        let frames: Vec<Vec<u8>> =
            texts.iter().map(|packet| frame(&gateway, UNIT, &text_of(*packet))).collect::<Result<_>>()?;
        within_a_second(&mut gateway, |gateway| {
            let mut model = Rates::new(limits);
            let before = tally(gateway)?;
            let mut expected = before.clone();
            for (packet, frame) in texts.iter().zip(&frames) {
                let verdict = model.judge(*packet);
                let seen = table::prog_run(gateway, DEVICE, frame, false)?;
                let dropped = seen.retval == DROPPED[usize::from(hook != Hook::Tc)];
                ensure!(
                    dropped == verdict.is_some(),
                    "seed {seed}: {}: expected {verdict:?}, returned {}",
                    text_of(*packet),
                    seen.retval
                );
                if let Some(check) = verdict {
                    *expected
                        .iter_mut()
                        .find(|(name, _)| *name == check)
                        .map(|(_, n)| n)
                        .context(check)? += 1;
                }
            }
            let after = tally(gateway)?;
            ensure!(after == expected, "seed {seed}: expected {expected:?}\nseen {after:?}");
            ensure!(hook != Hook::Tc || after != before, "seed {seed}: nothing was dropped");
            Ok(())
        })?;
    }
    Ok(())
}

/// Hits of every check of the zone.
fn tally(gateway: &Gateway) -> Result<Vec<(&'static str, u64)>> {
    let values = counters::snapshot(&gateway.dataplane, &gateway.plan)?;
    let zone = gateway.zone_of(UNIT)?;
    let screens = Reason::ALL.into_iter().filter(|reason| counters::screen(reason.name()).is_some());
    Ok(screens.map(|r| (r.name(), counters::value(&values, CounterId::Screen(zone, r as usize)))).collect())
}

#[test]
fn random_packets_of_one_second_are_judged_as_the_reference_does_on_tc() {
    in_namespace(|| against_the_reference(Hook::Tc));
}

#[test]
fn random_packets_of_one_second_are_judged_as_the_reference_does_on_xdp() {
    in_namespace(|| against_the_reference(Hook::Xdp));
}
