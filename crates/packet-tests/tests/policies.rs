//! Many policies: the programs must find, for packets at the edges of everything that policies name, the one that a
//! linear search through the configuration finds. What they found is read from the policies' counters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_dataplane::Sizes;
use sluice_language::Config;
use sluice_language::config::{Action, AddressMatch, ApplicationMatch, Policy, Service};
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook, compile};
use sluice_packet_tests::model::Tuple;
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::world::World;
use sluice_packet_tests::{counters, scenario, table};
use sluice_wire::checksum::Pseudo;
use sluice_wire::{Mac, eth, ethertype, icmpv4, icmpv6, ipv4, ipv6, tcp, udp};

const BATCH: usize = 2_000;
const PORTS: [u16; 12] = [0, 1, 21, 22, 80, 443, 1023, 1024, 5000, 5001, 65_534, 65_535];
const PROTOCOLS: [u8; 7] = [1, 6, 6, 17, 17, 47, 58];

fn v4(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::from(0xac10_0000 + random.below(4096) as u32)
}

/// Few upper halves, and lower halves at their ends and in the middle.
fn v6(random: &mut Random) -> Ipv6Addr {
    let upper = 0x2001_0db8_0000_0000 + random.below(4) as u128;
    let lower = *random.pick(&[0, 1, 255, 1 << 63, u64::MAX - 1, u64::MAX]);
    Ipv6Addr::from(upper << 64 | u128::from(lower.wrapping_add(random.below(3) as u64)))
}

/// Statements of the address book: prefixes of many lengths that overlap, ranges, sets of them.
fn addresses(random: &mut Random, text: &mut String) -> Vec<String> {
    let book = "set security address-book global";
    let mut names = vec![];
    for n in 0..300 {
        let name = format!("a{n}");
        let (low4, low6) = (v4(random), v6(random));
        let value = match n % 4 {
            0 => format!("{low4}/{}", 20 + random.below(13)),
            1 => format!("{low6}/{}", *random.pick(&[0, 1, 32, 63, 64, 65, 96, 127, 128])),
            2 => {
                let high = Ipv4Addr::from(u32::from(low4).saturating_add(random.below(600) as u32));
                format!("range-address {low4} to {high}")
            }
            _ => {
                let high = Ipv6Addr::from(u128::from(low6).saturating_add(random.below(1 << 40) as u128));
                format!("range-address {low6} to {high}")
            }
        };
        let value = if n % 4 < 2 { masked(&value) } else { value };
        writeln!(text, "{book} address {name} {value}").unwrap();
        names.push(name);
    }
    for n in 0..60 {
        for _ in 0..2 + random.below(12) {
            writeln!(text, "{book} address-set s{n} address {}", random.pick(&names[..300])).unwrap();
        }
        names.push(format!("s{n}"));
    }
    names
}

/// A prefix without host bits.
fn masked(prefix: &str) -> String {
    let (address, length) = prefix.split_once('/').unwrap();
    let keep: u32 = length.parse().unwrap();
    match address.parse().unwrap() {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - keep).unwrap_or(0);
            format!("{}/{keep}", Ipv4Addr::from(u32::from(a) & mask))
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - keep).unwrap_or(0);
            format!("{}/{keep}", Ipv6Addr::from(u128::from(a) & mask))
        }
    }
}

/// Applications with ranges that overlap, some of source ports, ICMP types, and bare protocols.
fn applications(random: &mut Random, text: &mut String) -> Vec<String> {
    let range = |random: &mut Random| {
        let (a, b) = (*random.pick(&PORTS), *random.pick(&PORTS));
        format!("{}-{}", a.min(b), a.max(b))
    };
    (0..120)
        .map(|n| {
            let name = format!("app{n}");
            let set = format!("set applications application {name}");
            let protocol = *random.pick(&["tcp", "tcp", "udp", "udp", "icmp", "icmp6", "gre"]);
            writeln!(text, "{set} protocol {protocol}").unwrap();
            match protocol {
                "tcp" | "udp" => {
                    writeln!(text, "{set} destination-port {}", range(random)).unwrap();
                    if random.percent(20) {
                        writeln!(text, "{set} source-port {}", range(random)).unwrap();
                    }
                }
                "icmp" => writeln!(text, "{set} icmp-type {}", random.pick(&[8, 0, 13])).unwrap(),
                "icmp6" => writeln!(text, "{set} icmp6-type {}", random.pick(&[128, 129, 1])).unwrap(),
                _ => {}
            }
            name
        })
        .collect()
}

/// Two zones, `count` policies between them and a few global ones.
fn configuration(random: &mut Random, count: usize) -> String {
    let mut text = String::from(
        "set interfaces a0 unit 0 family inet address 10.1.0.1/24\n\
         set interfaces a0 unit 0 family inet6 address fd00:1::1/64\n\
         set interfaces b0 unit 0 family inet address 10.2.0.1/24\n\
         set interfaces b0 unit 0 family inet6 address fd00:2::1/64\n\
         set security zones security-zone alpha interfaces a0.0\n\
         set security zones security-zone beta interfaces b0.0\n",
    );
    let (addresses, applications) = (addresses(random, &mut text), applications(random, &mut text));
    let list = |random: &mut Random, names: &[String], any: usize| match random.percent(any) {
        true => vec!["any".to_owned()],
        false => (0..1 + random.below(3)).map(|_| random.pick(names).clone()).collect(),
    };
    let global = count / 10;
    for n in 0..count + global {
        let place = if n < count { "from-zone alpha to-zone beta" } else { "global" };
        let policy = format!("set security policies {place} policy p{n}");
        // the wide ones stand at the end, or nothing else would ever match
        let any = if n + 20 > count { 15 } else { 1 };
        for side in ["source", "destination"] {
            let names = list(random, &addresses, any);
            for name in &names {
                writeln!(text, "{policy} match {side}-address {name}").unwrap();
            }
            if names[0] != "any" && any == 15 && random.percent(5) {
                writeln!(text, "{policy} match {side}-address-excluded").unwrap();
            }
        }
        for name in list(random, &applications, any) {
            writeln!(text, "{policy} match application {name}").unwrap();
        }
        writeln!(text, "{policy} then {}", random.pick(&["permit", "permit", "deny", "reject"])).unwrap();
    }
    text
}

fn world() -> World {
    let mut world = scenario::two_zones();
    world.commands =
        ["route add default via 10.2.0.100", "route add default via fd00:2::64"].map(str::to_owned).to_vec();
    world
}

fn includes(wanted: &AddressMatch, address: IpAddr) -> bool {
    let AddressMatch::Ranges { v4, v6, excluded } = wanted else { return true };
    let inside = match address {
        IpAddr::V4(a) => v4.iter().any(|(low, high)| *low <= a && a <= *high),
        IpAddr::V6(a) => v6.iter().any(|(low, high)| *low <= a && a <= *high),
    };
    inside != *excluded
}

fn serves(wanted: &ApplicationMatch, packet: &Tuple, icmp_type: u8) -> bool {
    let ApplicationMatch::Services(terms) = wanted else { return true };
    let within = |(low, high): (u16, u16), port: u16| low <= port && port <= high;
    let term = |term: &Service| match term.protocol {
        None => true,
        Some(protocol) if protocol != packet.protocol => false,
        Some(1 | 58) => term.icmp_type.is_none_or(|(low, high)| low <= icmp_type && icmp_type <= high),
        Some(_) => within(term.source_port, packet.sport) && within(term.destination_port, packet.dport),
    };
    terms.iter().any(term)
}

/// The first policy that matches, by a search through all.
fn search<'c>(config: &'c Config, packet: &Tuple) -> Option<&'c Policy> {
    let icmp_type = if packet.protocol == 58 { 128 } else { 8 };
    let matches = |policy: &&Policy| {
        includes(&policy.source, packet.source)
            && includes(&policy.destination, packet.destination)
            && serves(&policy.application, packet, icmp_type)
    };
    let own = config.policies.iter().flat_map(|set| &set.policies);
    own.chain(&config.global_policies).find(matches)
}

/// An address that a policy names the edge of, or the one beside it, or any.
fn address(random: &mut Random, config: &Config, destination: bool, family: usize) -> IpAddr {
    let policies = &config.policies[0].policies;
    let policy = &policies[random.below(policies.len())];
    let side = if destination { &policy.destination } else { &policy.source };
    let step = random.below(3) as u32;
    match (side, family) {
        (AddressMatch::Ranges { v4, .. }, 4) if !v4.is_empty() && random.percent(90) => {
            let (low, high) = *random.pick(v4);
            let edge = u32::from(if random.percent(50) { low } else { high });
            Ipv4Addr::from(edge.wrapping_add(step).wrapping_sub(1)).into()
        }
        (AddressMatch::Ranges { v6, .. }, 6) if !v6.is_empty() && random.percent(90) => {
            let (low, high) = *random.pick(v6);
            let edge = u128::from(if random.percent(50) { low } else { high });
            Ipv6Addr::from(edge.wrapping_add(step.into()).wrapping_sub(1)).into()
        }
        (_, 4) => v4(random).into(),
        _ => v6(random).into(),
    }
}

/// Addresses that may be forwarded and are neither the gateway's nor on its links.
fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.octets()[0] == 172,
        IpAddr::V6(a) => a.segments()[0] == 0x2001,
    }
}

fn packet(random: &mut Random, config: &Config) -> Option<Tuple> {
    let family = *random.pick(&[4, 6]);
    let (source, destination) =
        (address(random, config, false, family), address(random, config, true, family));
    let protocol = match *random.pick(&PROTOCOLS) {
        1 | 58 => [1, 58][usize::from(family == 6)],
        other => other,
    };
    let (sport, dport) = match protocol {
        6 | 17 => (*random.pick(&PORTS), *random.pick(&PORTS)),
        1 | 58 => (random.number() as u16, 0),
        _ => (0, 0),
    };
    (usable(source) && usable(destination) && source != destination).then_some(Tuple {
        source,
        destination,
        sport,
        dport,
        protocol,
    })
}

fn frame(packet: &Tuple) -> Vec<u8> {
    let pseudo = match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Pseudo::V4(source, destination),
        (IpAddr::V6(source), IpAddr::V6(destination)) => Pseudo::V6(source, destination),
        _ => unreachable!("both ends are of one family"),
    };
    let (source_port, destination_port) = (packet.sport, packet.dport);
    let rest = u32::from(packet.sport) << 16;
    let l4 = match packet.protocol {
        6 => tcp::Builder { source_port, destination_port, flags: tcp::SYN, ..Default::default() }
            .build(&[], pseudo),
        17 => udp::Builder { source_port, destination_port, ..Default::default() }.build(&[0; 4], pseudo),
        1 => icmpv4::Builder { kind: icmpv4::ECHO_REQUEST, rest, ..Default::default() }.build(&[]),
        58 => icmpv6::Builder { kind: icmpv6::ECHO_REQUEST, rest, ..Default::default() }.build(&[], pseudo),
        _ => vec![0; 8],
    };
    let protocol = packet.protocol;
    let (ethertype, ip) = match pseudo {
        Pseudo::V4(source, destination) => (
            ethertype::IPV4,
            ipv4::Builder { source, destination, protocol, ttl: 64, ..Default::default() }.build(&l4),
        ),
        Pseudo::V6(source, destination) => {
            let builder = ipv6::Builder {
                source,
                destination,
                next_header: protocol,
                hop_limit: 64,
                ..Default::default()
            };
            (ethertype::IPV6, builder.build(&l4))
        }
        Pseudo::None => unreachable!("both ends are of one family"),
    };
    let (destination, source) = (Mac([2, 0, 0, 0, 0, b'a']), Mac([2, 0, 0, 1, 1, 100]));
    eth::Builder { destination, source, ethertype }.build(&ip)
}

/// Packets of flows that no other packet of the batch belongs to.
fn batch(random: &mut Random, config: &Config) -> Vec<Tuple> {
    let mut known = BTreeSet::new();
    let mut packets = vec![];
    while packets.len() < BATCH {
        let Some(packet) = packet(random, config) else { continue };
        let key = |p: &Tuple| (p.source, p.destination, p.sport, p.dport, p.protocol);
        if known.contains(&key(&packet.reversed())) || !known.insert(key(&packet)) {
            continue;
        }
        packets.push(packet);
    }
    packets
}

/// How often each policy permitted and denied; `default` is nobody's.
type Found = BTreeMap<String, (u64, u64)>;

fn expected(config: &Config, packets: &[Tuple]) -> Found {
    let mut found = Found::new();
    for packet in packets {
        match search(config, packet) {
            None => found.entry("default".to_owned()).or_default().1 += 1,
            Some(policy) => {
                let entry = found.entry(policy.name.clone()).or_default();
                if policy.action == Action::Permit { entry.0 += 1 } else { entry.1 += 1 }
            }
        }
    }
    found
}

fn seen(gateway: &mut Gateway, packets: &[Tuple]) -> Found {
    let count = |gateway: &Gateway| counters::snapshot(&gateway.dataplane, &gateway.plan).unwrap();
    let before = count(gateway);
    for packet in packets {
        table::prog_run(gateway, "a0", &frame(packet), false).unwrap();
    }
    let delta = counters::delta(&before, &count(gateway));
    counters::first_equation(&delta).unwrap();
    let name = |id: u32| gateway.plan.policies[&id].name.clone();
    let mut found = Found::new();
    for (place, value) in &delta {
        match place {
            counters::CounterId::PolicySessions(id) => {
                found.entry(name(*id)).or_default().0 += value;
            }
            counters::CounterId::PolicyDenied(id) => {
                found.entry(name(*id)).or_default().1 += value;
            }
            _ => {}
        }
    }
    let by_default = counters::total(&delta, "policy_default");
    if by_default > 0 {
        found.entry("default".to_owned()).or_default().1 += by_default;
    }
    gateway.clear_sessions().unwrap();
    found
}

fn run(hook: Hook, policies: usize, default_packets: u64) {
    let work = move || {
        let mut random = Random::new(extent::first_seed() + policies as u64);
        let text = configuration(&mut random, policies);
        let config = compile(&text, hook).unwrap();
        let sizes = Sizes { sessions4: 1 << 13, sessions6: 1 << 13, ..Sizes::default() };
        let mut gateway = Gateway::new(world(), &text, sizes, hook).expect("a gateway can be made");
        gateway.idle_near_ends().expect("devices take XDP");
        let mut matched = BTreeSet::new();
        for number in 0..extent::steps(default_packets).div_ceil(BATCH as u64) {
            let packets = batch(&mut random, &config);
            let (expected, seen) = (expected(&config, &packets), seen(&mut gateway, &packets));
            for name in expected.keys().chain(seen.keys()) {
                let (model, programs) = (expected.get(name), seen.get(name));
                assert_eq!(
                    model,
                    programs,
                    "{policies} policies on {}, batch {number}: policy {name}",
                    hook.name()
                );
            }
            matched.extend(expected.into_keys());
        }
        println!("{policies} policies on {}: {} of them matched", hook.name(), matched.len());
        assert!(matched.len() >= policies.min(100) / 4, "only {} policies matched", matched.len());
    };
    in_thread(work);
}

#[test]
fn some_policies_on_tc() {
    run(Hook::Tc, 30, 10_000);
}

#[test]
fn some_policies_on_xdp() {
    run(Hook::Xdp, 30, 10_000);
}

/// Two chunks of 512 and a bit.
#[test]
fn many_policies_on_tc() {
    run(Hook::Tc, 1_030, 20_000);
}

#[test]
fn many_policies_on_xdp() {
    run(Hook::Xdp, 1_030, 20_000);
}

#[test]
fn ten_thousand_policies_on_tc() {
    run(Hook::Tc, 10_000, 20_000);
}

#[test]
fn ten_thousand_policies_on_xdp() {
    run(Hook::Xdp, 10_000, 20_000);
}
