//! Translation against a plain reference NAT: random traces, full pools, two CPUs at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sluice_abi::stages::Reason;
use sluice_dataplane::{Sizes, Timeouts, prog_run};
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::nat_model::{Nat, Source, Tuple, Wanted};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::scenario::{self, nat_of_two_zones};
use sluice_packet_tests::world::World;
use sluice_packet_tests::{netns, table};
use sluice_wire::text::{Packet, diff};

/// What each of these adds to the gateway of the two zones.
const CONFIG: &str = "
set security address-book global address published 10.9.0.0/16
set security address-book global address published6 fd09::/16
set security nat source pool tiny address 198.51.100.1/32 to 198.51.100.2/32
set security nat source pool tiny port range 5000 to 5007
set security nat source pool whole address 198.51.100.16/30
set security nat source pool whole port no-translation
set security nat source pool paired address 198.51.100.32/29
set security nat source pool paired address-pooling paired
set security nat source pool six address 2001:db8::1:0/126
set security nat source rule-set out rule off match destination-address 198.18.0.0/24
set security nat source rule-set out rule off then source-nat off
set security nat source rule-set out rule tiny match destination-address 198.18.1.0/24
set security nat source rule-set out rule tiny then source-nat pool tiny
set security nat source rule-set out rule whole match destination-address 198.18.2.0/24
set security nat source rule-set out rule whole then source-nat pool whole
set security nat source rule-set out rule paired match destination-address 198.18.3.0/24
set security nat source rule-set out rule paired then source-nat pool paired
set security nat source rule-set out rule six match destination-address ::/0
set security nat source rule-set out rule six then source-nat pool six
set security nat source rule-set out rule rest match destination-address 0.0.0.0/0
set security nat source rule-set out rule rest then source-nat interface
set security nat destination rule-set in rule web match protocol udp
set security nat static rule-set one rule block match destination-address 198.51.100.128/28
set security nat static rule-set one rule block then static-nat prefix 10.9.1.0/28
set security nat static rule-set one rule six match destination-address 2001:db8:5::/112
set security nat static rule-set one rule six then static-nat prefix fd09:5::/112
";

fn gateway(hook: Hook, sessions: u32) -> Gateway {
    let sizes = Sizes { sessions4: sessions, sessions6: sessions.min(4096), ..Sizes::default() };
    let gateway = Gateway::new(scenario::two_zones(), &(nat_of_two_zones() + CONFIG), sizes, hook)
        .expect("a gateway can be made");
    gateway.idle_near_ends().expect("devices take XDP");
    gateway
}

fn v4(text: &str, n: u32) -> IpAddr {
    Ipv4Addr::from(u32::from(text.parse::<Ipv4Addr>().unwrap()) + n).into()
}

fn v6(text: &str, n: u128) -> IpAddr {
    Ipv6Addr::from(u128::from(text.parse::<Ipv6Addr>().unwrap()) + n).into()
}

fn model() -> Nat {
    let all = |list: &mut dyn Iterator<Item = IpAddr>| list.collect::<Vec<_>>();
    let block = |n: u32| vec![(v4("198.18.0.0", n << 8), v4("198.18.0.255", n << 8))];
    let pool = |addresses, ports, paired| Source::Pool { addresses, ports, paired };
    let high = (1024, 65_535);
    let mut nat = Nat::default();
    nat.sources = vec![
        (block(0), Source::Off),
        (block(1), pool(all(&mut (1..3).map(|n| v4("198.51.100.0", n))), (5000, 5007), false)),
        (block(2), Source::Whole { addresses: all(&mut (16..20).map(|n| v4("198.51.100.0", n))) }),
        (block(3), pool(all(&mut (32..40).map(|n| v4("198.51.100.0", n))), high, true)),
        (
            vec![(v6("::", 0), v6("::", u128::MAX))],
            pool(all(&mut (0..4).map(|n| v6("2001:db8::1:0", n))), high, false),
        ),
        (vec![(v4("0.0.0.0", 0), v4("255.255.255.255", 0))], pool(vec![v4("10.2.0.1", 0)], high, false)),
    ];
    nat.published.insert((v4("198.51.100.200", 0), 80, 17), (v4("10.9.0.80", 0), 8080));
    nat.statics = (0..16).map(|n| (v4("198.51.100.128", n), v4("10.9.1.0", n))).collect();
    nat.statics.extend((0..16).map(|n| (v6("2001:db8:5::", n), v6("fd09:5::", n))));
    nat
}

/// ICMP identifiers stand where keys have them: with the side that asks, and the type with the other.
const ECHO: u16 = 0x0800;

/// The IP packet of a tuple.
fn packet(tuple: Tuple, hops: u8, asks: bool) -> Vec<u8> {
    let Tuple { source, sport, destination, dport, protocol } = tuple;
    let ip = match source {
        IpAddr::V4(_) => format!("ip(src={source}, dst={destination}, ttl={hops})"),
        IpAddr::V6(_) => format!("ip6(src={source}, dst={destination}, hop={hops})"),
    };
    let above = match protocol {
        17 => format!("udp(sport={sport}, dport={dport})/\"data\""),
        _ => {
            let name = if protocol == 1 { "icmp" } else { "icmp6" };
            let (kind, id) = if asks { ("echo-request", sport) } else { ("echo-reply", dport) };
            format!("{name}(type={kind}, id={id}, seq=1)/\"data\"")
        }
    };
    Packet::parse(&format!("{ip}/{above}")).unwrap().to_bytes().unwrap()
}

/// As it arrives on a unit.
fn framed(world: &World, packet: &[u8], unit: &str) -> Vec<u8> {
    let (to, from) = (world.unit_mac(unit).unwrap(), world.any_host_on(unit).unwrap().mac);
    let ethertype: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&to.0[..], &from.0[..], &ethertype[..], packet].concat()
}

/// Another source of an IPv4 UDP frame, without a UDP checksum (RFC 768).
fn set_udp_source(frame: &mut [u8], source: IpAddr, port: u16) {
    let IpAddr::V4(source) = source else { panic!("{source} is no IPv4 address") };
    frame[26..30].copy_from_slice(&source.octets());
    frame[24..26].fill(0);
    let sum = sluice_wire::checksum::internet(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[40..42].fill(0);
}

/// Addresses and ports of what came out.
fn tuple_of(frame: &[u8]) -> Tuple {
    let packet = &frame[14..];
    let (source, destination, protocol, above): (IpAddr, IpAddr, u8, &[u8]) = if packet[0] >> 4 == 4 {
        let view = sluice_wire::ipv4::View::new(packet).unwrap();
        (view.source().into(), view.destination().into(), view.protocol(), &packet[20..])
    } else {
        let view = sluice_wire::ipv6::View::new(packet).unwrap();
        (view.source().into(), view.destination().into(), view.next_header(), &packet[40..])
    };
    let word = |at: usize| u16::from_be_bytes([above[at], above[at + 1]]);
    let (sport, dport) = match (protocol, above[0]) {
        (17, _) => (word(0), word(2)),
        (_, 8 | 128) => (word(4), ECHO),
        _ => (ECHO, word(4)),
    };
    Tuple { source, sport, destination, dport, protocol }
}

/// What a packet became; None = it was dropped. Everything but addresses and ports must be as one hop leaves it, and
/// every checksum right.
fn send(gateway: &mut Gateway, tuple: Tuple, outside: bool) -> Result<Option<Tuple>, String> {
    let device = if outside { "b0" } else { "a0" };
    let frame = framed(&gateway.world, &packet(tuple, 64, !outside), &format!("{device}.0"));
    let seen = table::prog_run_summed(gateway, device, &frame).map_err(|error| format!("{error:#}"))?;
    let redirect = if gateway.hook == Hook::Tc { 7 } else { 4 };
    if seen.retval != redirect {
        return Ok(None);
    }
    let became = tuple_of(&seen.frame);
    match diff(&[&seen.frame[..14], &packet(became, 63, !outside)[..]].concat(), &seen.frame) {
        None => Ok(Some(became)),
        Some(text) => Err(format!("wrong packet out\n{text}")),
    }
}

fn inside_tuple(random: &mut Random) -> Tuple {
    let protocol = *random.pick(&[17, 17, 1]);
    let six = random.percent(25);
    let port = if protocol == 17 { 20_000 + random.below(12) as u16 } else { random.below(12) as u16 };
    let dport = if protocol == 17 { *random.pick(&[53, 80]) } else { ECHO };
    let host = random.below(40) as u32;
    if six {
        let source =
            if random.percent(20) { v6("fd09:5::", host as u128 % 16) } else { v6("fd09::", host.into()) };
        let protocol = if protocol == 1 { 58 } else { 17 };
        return Tuple {
            source,
            sport: port,
            destination: v6("2001:db9::", random.below(3) as u128),
            dport,
            protocol,
        };
    }
    let source = if random.percent(20) { v4("10.9.1.0", host % 16) } else { v4("10.9.0.0", 1 + host) };
    let block = random.below(5) as u32;
    let destination = v4("198.18.0.0", block << 8 | random.below(2) as u32);
    Tuple { source, sport: port, destination, dport, protocol }
}

fn outside_tuple(random: &mut Random) -> Tuple {
    let destination = match random.below(4) {
        0 => v4("198.51.100.200", 0),
        1 => v4("198.51.100.128", random.below(17) as u32),
        2 => v4("198.51.100.0", random.below(64) as u32),
        _ => v4("10.2.0.1", 0),
    };
    let any = 1024 + random.below(64_000) as u16;
    let dport = *random.pick(&[80, 5003, any]);
    let source = v4("198.18.0.0", random.below(5 << 8) as u32);
    Tuple { source, sport: 20_000 + random.below(12) as u16, destination, dport, protocol: 17 }
}

/// What passes is a multiple of 1,000 seconds, so the machine's own time does not count.
fn timeouts() -> Timeouts {
    Timeouts { udp_s: 100_500, icmp_s: 50_500, ..Timeouts::default() }
}

struct Trace {
    gateway: Gateway,
    nat: Nat,
    /// When an address may last have been found full: it is not looked at again at once, though its ports be free.
    exhausted: Option<Instant>,
    refused: u64,
    full: u64,
}

impl Trace {
    fn packet(&mut self, tuple: Tuple, outside: bool) -> Result<(), String> {
        let wanted = self.nat.wants(tuple, outside);
        match (send(&mut self.gateway, tuple, outside)?, &wanted) {
            (Some(became), _) => self.nat.seen(tuple, outside, &wanted, became),
            (None, Wanted::Refused) => {
                self.refused += 1;
                Ok(())
            }
            (None, Wanted::Exhausted) => {
                self.exhausted = Some(Instant::now());
                self.full += 1;
                Ok(())
            }
            (None, Wanted::OneOf(..))
                if self.exhausted.is_some_and(|at| at.elapsed() < Duration::from_millis(250)) =>
            {
                self.full += 1;
                Ok(())
            }
            (None, wanted) => Err(format!("dropped, but wanted is {wanted:?}")),
        }
    }

    fn time_passes(&mut self, random: &mut Random) -> Result<(), String> {
        let seconds = *random.pick(&[1_000, 20_000, 45_000, 60_000]);
        let limits = timeouts();
        let lifetime = |protocol| u64::from(if protocol == 17 { limits.udp_s } else { limits.icmp_s });
        let ended = self.nat.sleep(seconds, lifetime);
        self.gateway.let_pass(seconds).map_err(|error| format!("{error:#}"))?;
        let dataplane = &self.gateway.dataplane;
        let report = dataplane.sweep(dataplane.now_jiffies().unwrap(), &limits).unwrap();
        let seen = report.expired4 + report.expired6;
        self.exhausted = Some(Instant::now());
        if seen as usize != ended { Err(format!("{seen} sessions ended, not {ended}")) } else { Ok(()) }
    }
}

fn trace(hook: Hook) {
    let (steps, seed) = (extent::steps(20_000), extent::first_seed());
    let mut random = Random::new(seed);
    let mut trace =
        Trace { gateway: gateway(hook, 4096), nat: model(), exhausted: None, refused: 0, full: 0 };
    for step in 0..steps {
        let done = match random.below(2000) {
            0 => trace.time_passes(&mut random),
            1 => {
                trace.gateway.clear_sessions().unwrap();
                trace.nat.clear();
                trace.exhausted = Some(Instant::now());
                Ok(())
            }
            n if n % 2 == 0 => {
                let tuple = inside_tuple(&mut random);
                trace.packet(tuple, false)
            }
            n if n % 10 < 7 && trace.nat.sessions() > 0 => {
                let (tuple, outside) = trace.nat.answer(random.below(trace.nat.sessions())).unwrap();
                trace.packet(tuple, outside)
            }
            _ => trace.packet(outside_tuple(&mut random), true),
        };
        if let Err(error) = done {
            let drops = trace.gateway.dataplane.counters().unwrap();
            let drops: Vec<_> = drops.total_drops().named().collect();
            let (refused, full, hook) = (trace.refused, trace.full, hook.name());
            panic!("seed {seed}, step {step} on {hook}: {error}; {refused} refused, {full} full, {drops:?}");
        }
    }
    println!("{steps} steps on {}: {} refused, {} full", hook.name(), trace.refused, trace.full);
    let counters = trace.gateway.dataplane.counters().unwrap();
    assert_eq!(counters.drops(Reason::NatPortsExhausted), trace.full);
    assert!(trace.full > steps / 200 && trace.refused > steps / 200, "{} {}", trace.full, trace.refused);
    assert_eq!(trace.gateway.dataplane.sessions().count(), trace.nat.sessions());
}

#[test]
fn a_random_trace_on_tc() {
    in_thread(|| trace(Hook::Tc));
}

#[test]
fn a_random_trace_on_xdp() {
    in_thread(|| trace(Hook::Xdp));
}

/// Ports from 1024 on.
const PORTS: u32 = 64_512;

fn source_of(n: u32) -> Tuple {
    Tuple {
        source: v4("10.9.64.0", n / 60_000),
        sport: (1024 + n % 60_000) as u16,
        destination: v4("203.0.113.7", 0),
        dport: 53,
        protocol: 17,
    }
}

/// Runs first packets without looking at what they become; the number that were let through.
fn fill(gateway: &mut Gateway, numbers: impl Iterator<Item = u32>) -> u32 {
    let index = netns::ifindex("a0").unwrap();
    let program = gateway.root("a0").unwrap().try_clone().unwrap();
    let mut frame = framed(&gateway.world, &packet(source_of(0), 64, true), "a0.0");
    let mut passed = 0;
    for number in numbers {
        let tuple = source_of(number);
        set_udp_source(&mut frame, tuple.source, tuple.sport);
        let outcome = prog_run::xdp(program.as_fd(), &prog_run::XdpRun::new(&frame, index)).unwrap();
        passed += u32::from(outcome.retval == 4);
    }
    passed
}

/// RFC 4787 REQ-1 needs ports; all there are serve one destination, then the drop has a name, and ending sessions gives
/// every one of them back.
#[test]
fn all_ports_toward_one_destination_ten_times() {
    in_thread(|| {
        let mut gateway = gateway(Hook::Xdp, 70_000);
        for round in 1..=10 {
            assert_eq!(fill(&mut gateway, 0..PORTS), PORTS, "round {round}");
            assert_eq!(fill(&mut gateway, PORTS..PORTS + 100), 0, "round {round}");
            let full = gateway.dataplane.counters().unwrap().drops(Reason::NatPortsExhausted);
            assert_eq!(full, 100 * round);
            let ports: std::collections::BTreeSet<u16> = gateway
                .dataplane
                .sessions()
                .map(|session| session.responder.tuple.destination_port)
                .collect();
            assert_eq!((ports.len() as u32, *ports.first().unwrap()), (PORTS, 1024));
            gateway.clear_sessions().unwrap();
            assert_eq!(gateway.dataplane.sessions().count(), 0);
            std::thread::sleep(Duration::from_millis(u64::from(sluice_abi::NAT_FULL_MS) + 20));
        }
    });
}

fn on_cpu(cpu: usize) {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu).unwrap();
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).unwrap();
}

/// Two CPUs take ports toward one destination at once: none is given twice, and none is left over.
#[test]
fn two_cpus_share_the_ports() {
    in_thread(|| {
        let mut gateway = gateway(Hook::Xdp, 70_000);
        let index = netns::ifindex("a0").unwrap();
        let program = gateway.root("a0").unwrap().try_clone().unwrap();
        let frame = framed(&gateway.world, &packet(source_of(0), 64, true), "a0.0");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(2) as u32;
        let passed: u32 = std::thread::scope(|scope| {
            let work = |cpu: u32| {
                let (program, mut frame) = (&program, frame.clone());
                scope.spawn(move || {
                    on_cpu(cpu as usize);
                    let own = (0..PORTS).filter(|number| number % cpus == cpu);
                    own.filter(|number| {
                        let tuple = source_of(*number);
                        set_udp_source(&mut frame, tuple.source, tuple.sport);
                        let run = prog_run::XdpRun::new(&frame, index);
                        prog_run::xdp(program.as_fd(), &run).unwrap().retval == 4
                    })
                    .count() as u32
                })
            };
            let workers: Vec<_> = (0..cpus).map(work).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        // who finds 4096 taken ones in a row gives up for that packet: only the last few can meet that
        let late = fill(&mut gateway, (0..PORTS).cycle().take(2 * PORTS as usize));
        assert!(passed > PORTS - 64 && late >= PORTS, "{passed} and {late}");
        let ports: std::collections::BTreeSet<u16> =
            gateway.dataplane.sessions().map(|session| session.responder.tuple.destination_port).collect();
        assert_eq!(ports.len() as u32, PORTS);
        assert_eq!(gateway.dataplane.sessions().count() as u32, PORTS);
    });
}
