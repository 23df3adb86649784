//! Random packets under random configurations: the programs must do what the reference model says.

use std::net::IpAddr;

use sluice_abi::stages::Reason;
use sluice_dataplane::Sizes;
use sluice_packet_tests::counters::Values;
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::model::{self, Unit, Verdict};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::{self, Random};
use sluice_packet_tests::scenario::{self, Scenario};
use sluice_packet_tests::{counters, forward, table};
use sluice_wire::text::{diff, dissect};

/// Packets under one configuration.
const PACKETS_PER_SEED: usize = 500;
const CAPACITY: usize = 100;
/// Broken frames of a family on a hook; `make soak` sends more.
const BROKEN: usize = 4_000;
/// Characters of a packet's text in a complaint.
const TEXT: usize = 700;

fn gateway(hook: Hook) -> Gateway {
    let sizes = Sizes { sessions4: CAPACITY as u32, sessions6: CAPACITY as u32, ..Sizes::default() };
    let first = Scenario::random(&mut Random::new(0), CAPACITY);
    let gateway = Gateway::new(scenario::world(), &first.config, sizes, hook).expect("a gateway can be made");
    gateway.idle_near_ends().expect("devices take XDP");
    gateway
}

/// What the programs did, in the model's words, judged by what was counted since `before`; Err says what does not add up.
fn seen(
    gateway: &mut Gateway,
    before: &mut Values,
    device: &str,
    frame: &[u8],
) -> Result<Option<Verdict>, String> {
    if never_arrives(gateway.hook, frame) {
        return Ok(None);
    }
    let text = |error: anyhow::Error| format!("{error:#}");
    let outcome = match table::prog_run(gateway, device, frame, false) {
        Ok(outcome) => outcome,
        // tc prog-run refuses what ends inside the IP header
        Err(_) if gateway.hook == Hook::Tc && ends_early(frame) => return Ok(None),
        Err(error) => return Err(text(error)),
    };
    let after = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let delta = counters::delta(before, &after);
    *before = after;
    counters::first_equation(&delta).map_err(text)?;
    let total = |name: &str| counters::total(&delta, name);
    if total("received") != 1 {
        return Err(format!("counted as received {} times", total("received")));
    }
    if total("redirected") == 1 {
        return redirected(gateway, frame, &outcome.frame).map(Some);
    }
    if total("handed_off") == 1 {
        return Ok(Some(Verdict::Handoff(String::new())));
    }
    if total("delivered_local") == 1 {
        return Ok(Some(Verdict::Local));
    }
    let reason = Reason::ALL.into_iter().find(|reason| total(reason.name()) == 1);
    let name = reason.ok_or("no verdict is counted")?.name();
    let told = total("replies") + total("replies_withheld") == 1;
    Ok(Some(if told { Verdict::Reply(name) } else { Verdict::Drop(name) }))
}

fn ends_early(frame: &[u8]) -> bool {
    frame.len() < 14 + 40
}

/// The kernel drops a frame that ends inside its tag before tc sees it, and so does what stands in for it here.
fn never_arrives(hook: Hook, frame: &[u8]) -> bool {
    let tag = |at: usize| {
        frame.get(at..at + 2).is_some_and(|tpid| [[0x81, 0x00], [0x88, 0xa8]].contains(&[tpid[0], tpid[1]]))
    };
    hook == Hook::Tc && (tag(12) && frame.len() < 18 || tag(12) && tag(16) && frame.len() < 22)
}

/// The unit by the next hop's MAC address; the frame must be exactly what one hop makes of it.
fn redirected(gateway: &Gateway, frame: &[u8], out: &[u8]) -> Result<Verdict, String> {
    let to = &out[..6];
    let host =
        gateway.world.hosts.iter().find(|host| host.mac.0 == to).ok_or("sent to nobody's MAC address")?;
    let from = gateway.world.unit_mac(&host.unit).ok_or("unit without device")?;
    let vlan = gateway.port(&host.unit).map_err(|error| error.to_string())?.1;
    let mut expected = forward::forwarded(frame, host.mac, from, vlan);
    if gateway.hook == Hook::Tc {
        expected = forward::without_outer(&expected);
    }
    match diff(&expected, out) {
        None => Ok(Verdict::Redirect(host.unit.clone())),
        Some(text) => Err(format!("wrong packet out\n{text}")),
    }
}

/// The model names the unit that a next hop is missing on; counters do not.
fn comparable(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Handoff(_) => Verdict::Handoff(String::new()),
        other => other,
    }
}

/// Refused datagrams share two places of a bucket (`FRAGMENT_REFUSED_WAYS`), and the table's seed is another each time: a
/// later fragment of one that found none is dropped all the same, for want of its first.
fn was_forgotten(frame: &[u8], expected: &Verdict, seen: &Verdict) -> bool {
    let facts = model::link(frame).and_then(|link| model::parse(&link).ok().flatten());
    let is_later = facts.is_some_and(|facts| facts.fragment && facts.piece.offset != 0);
    is_later && matches!(expected, Verdict::Drop(_)) && *seen == Verdict::Drop("fragment_no_first")
}

/// The part of the configuration that a packet at a device may have met.
fn policies_from(scenario: &Scenario, device: &str) -> String {
    let zones = scenario.model.units.iter().filter(|unit| unit.device == device);
    let mut wanted: Vec<String> = zones.map(|unit| format!("from-zone {}", unit.zone)).collect();
    wanted.extend(["global".to_owned(), "default-policy".to_owned()]);
    let of_interest =
        |line: &&str| line.contains(" policies ") && wanted.iter().any(|word| line.contains(word));
    scenario.config.lines().filter(of_interest).collect::<Vec<_>>().join("\n")
}

/// Both addresses, the smaller first.
fn addresses(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let facts = model::parse(&model::link(frame)?).ok()??;
    Some((facts.source.min(facts.destination), facts.source.max(facts.destination)))
}

fn text_of(frame: &[u8]) -> String {
    dissect(frame).to_string().chars().take(TEXT).collect()
}

fn hex(frame: &[u8]) -> String {
    frame.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What came of the packets that were compared, and how many frames of each family were broken before.
#[derive(Default)]
struct Outcome {
    verdicts: Vec<Verdict>,
    broken: [usize; 2],
}

fn run_seed(gateway: &mut Gateway, seed: u64, mutated: bool, outcome: &mut Outcome) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut scenario = Scenario::random(&mut random, CAPACITY);
    let text = |error: anyhow::Error| format!("{error:#}");
    gateway.clear_sessions().map_err(text)?;
    gateway.commit(&scenario.config).map_err(text)?;
    let mut counted = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let mut past = Vec::new();
    for number in 0..PACKETS_PER_SEED {
        let (device, mut frame) = random::frame(&mut random, &scenario.model, &scenario.stations);
        if mutated && random.percent(60) {
            if let Some((one, _)) = addresses(&frame) {
                outcome.broken[usize::from(one.is_ipv6())] += 1;
            }
            random::mutate(&mut random, &mut frame);
        }
        let previous = scenario.model.clone();
        let expected = comparable(scenario.model.judge(&device, &frame));
        let hook = gateway.hook.name();
        let place = || {
            let what = text_of(&frame);
            format!(
                "seed {seed}, packet {number} on {hook}, at {device}: {what}\nkeep it: {device} {}",
                hex(&frame)
            )
        };
        let ends = addresses(&frame);
        past.push((ends, format!("{number} at {device}"), frame.clone(), expected.clone()));
        match seen(gateway, &mut counted, &device, &frame).map_err(|error| format!("{}\n{error}", place()))? {
            Some(seen) if seen == expected || was_forgotten(&frame, &expected, &seen) => {
                outcome.verdicts.push(seen)
            }
            Some(seen) => {
                let config = policies_from(&scenario, &device);
                let about = past.iter().filter(|(known, ..)| ends.is_some() && *known == ends);
                let tell = |(_, at, frame, verdict): &(_, String, Vec<u8>, Verdict)| {
                    format!("{at}: {} -> {verdict:?}", text_of(frame))
                };
                let history: Vec<String> = about.map(tell).collect();
                return Err(format!(
                    "{}\nmodel says {expected:?}, programs did {seen:?}\nunder\n{config}\nafter\n{}",
                    place(),
                    history.join("\n")
                ));
            }
            None => scenario.model = previous,
        }
    }
    let live = gateway.dataplane.sessions().count();
    let wanted = scenario.model.session_count();
    if live != wanted {
        Err(format!("seed {seed}: model has {wanted} sessions, table has {live}"))
    } else {
        Ok(())
    }
}

/// Until so many packets were compared, and of each family so many of them were broken.
fn run(hook: Hook, packets: usize, broken: usize) {
    let work = move || {
        let packets = extent::steps(packets as u64) as usize;
        let broken_wanted = extent::steps(broken as u64) as usize;
        let mut gateway = gateway(hook);
        let mut outcome = Outcome::default();
        for seed in extent::first_seed().. {
            let enough = outcome.broken.iter().all(|count| *count >= broken_wanted);
            if enough && outcome.verdicts.len() >= packets {
                break;
            }
            run_seed(&mut gateway, seed, broken > 0, &mut outcome).unwrap_or_else(|error| panic!("{error}"));
        }
        outcome
    };
    let outcome = in_thread(work);
    println!("{:?} frames of IPv4 and of IPv6 were broken", outcome.broken);
    assert_variety(&outcome.verdicts);
}

/// A test in which everything is dropped for one reason proves nothing.
fn assert_variety(verdicts: &[Verdict]) {
    let mut counts = std::collections::BTreeMap::new();
    for verdict in verdicts {
        *counts.entry(format!("{verdict:?}")).or_insert(0) += 1;
    }
    println!("{} packets: {counts:#?}", verdicts.len());
    let share =
        |wanted: fn(&Verdict) -> bool| verdicts.iter().filter(|v| wanted(v)).count() * 100 / verdicts.len();
    assert!(share(|v| matches!(v, Verdict::Redirect(_))) >= 5, "too few packets pass");
    assert!(counts.len() >= 15, "too few kinds of verdicts");
}

#[test]
fn sensible_packets_on_tc() {
    run(Hook::Tc, 4_000, 0);
}

#[test]
fn sensible_packets_on_xdp() {
    run(Hook::Xdp, 4_000, 0);
}

#[test]
fn broken_packets_on_tc() {
    run(Hook::Tc, 2_000, BROKEN);
}

#[test]
fn broken_packets_on_xdp() {
    run(Hook::Xdp, 2_000, BROKEN);
}

/// Frames whose every length is tried: headers end anywhere.
const WHOLE: [&str; 6] = [
    "ip(src=10.1.0.100, dst=10.2.0.100)/udp(sport=1000, dport=2000)/\"payload\"",
    "ip(src=10.1.0.100, dst=10.2.0.100, opts=0x0101010101010101)/tcp(sport=1, dport=80, flags=S, opts=0x020405b4)/\"x\"",
    "ip(src=10.1.0.100, dst=10.2.0.100)/icmp(type=unreachable)/ip(src=10.2.0.100, dst=10.1.0.100)/udp(sport=1, dport=2)",
    "ip6(src=fd00:1::64, dst=fd00:2::64)/hbh/dstopts/routing(type=253, left=0)/udp(sport=1000, dport=2000)/\"payload\"",
    "ip6(src=fd00:1::64, dst=fd00:2::64)/tcp(sport=1, dport=80, flags=S, opts=0x020405b4)/\"x\"",
    "ip6(src=fd00:1::64, dst=fd00:2::64)/dstopts/fragment(frag=0, mf=1, id=7)/icmp6(type=echo-request, id=1)",
];

/// The frame as it is, cut to every length, and with the IP length cut along: what is left then seems whole.
fn every_length(hook: Hook) -> Result<usize, String> {
    let text = |error: anyhow::Error| format!("{error:#}");
    let mut scenario = Scenario::random(&mut Random::new(7), CAPACITY);
    let mut gateway = gateway(hook);
    gateway.commit(&scenario.config).map_err(text)?;
    let mut counted = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let mut compared = 0;
    let mut frames = kept()?;
    for whole in WHOLE {
        let header = "eth(dst=02:00:00:00:00:61, src=02:00:00:01:01:64)";
        let whole =
            sluice_wire::text::bytes(&format!("{header}/{whole}")).map_err(|error| error.to_string())?;
        for length in 14..=whole.len() {
            let cut = whole[..length].to_vec();
            frames.extend([shortened(&cut), cut].map(|frame| ("a0".to_owned(), frame)));
        }
    }
    for (device, frame) in frames {
        let previous = scenario.model.clone();
        let expected = comparable(scenario.model.judge(&device, &frame));
        match seen(&mut gateway, &mut counted, &device, &frame)? {
            Some(seen) if seen == expected => compared += 1,
            None => scenario.model = previous,
            Some(seen) => {
                let what = dissect(&frame);
                return Err(format!("{what}: model says {expected:?}, programs did {seen:?}"));
            }
        }
    }
    Ok(compared)
}

/// Frames of tests/packet/odd.frames: device and bytes.
fn kept() -> Result<Vec<(String, Vec<u8>)>, String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/packet/odd.frames");
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let frame = |line: &str| {
        let (device, digits) = line.split_once(' ')?;
        let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        Some((device.to_owned(), (0..digits.len()).step_by(2).map(byte).collect::<Option<Vec<u8>>>()?))
    };
    let frames = lines.filter(|line| !line.is_empty());
    frames.map(|line| frame(line).ok_or_else(|| format!("{path}: `{line}` is no frame"))).collect()
}

/// States the length that is there, where there is a whole IP header.
fn shortened(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let length = frame.len() as u16 - 14;
    if frame[12..14] == [0x86, 0xdd] && frame.len() >= 54 {
        frame[18..20].copy_from_slice(&(length - 40).to_be_bytes());
    } else if frame[12..14] == [0x08, 0x00] && frame.len() >= 34 {
        let header = usize::from(frame[14] & 0x0f) * 4;
        frame[16..18].copy_from_slice(&length.to_be_bytes());
        frame[24..26].copy_from_slice(&[0, 0]);
        let sum = sluice_wire::checksum::internet(&frame[14..(14 + header).min(frame.len())]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// And frames that were odd once.
#[test]
fn every_length_of_every_header() {
    for hook in Hook::BOTH {
        let run = move || every_length(hook).unwrap_or_else(|error| panic!("on {}: {error}", hook.name()));
        let compared = in_thread(run);
        assert!(compared > 300, "only {compared} frames on {}", hook.name());
    }
}

/// Whom a frame of a host at `unit` may be for, of this family: itself, everybody there and elsewhere, groups, transit.
fn destinations(units: &[Unit], v4: bool) -> Vec<IpAddr> {
    let own = units.iter().flat_map(|unit| &unit.addresses).filter(|(address, _)| address.is_ipv4() == v4);
    let mut all = Vec::new();
    for (address, length) in own {
        all.push(*address);
        match *address {
            IpAddr::V4(own) => {
                let (network, hosts) = (u32::from(own), u32::MAX >> length);
                all.extend([network | hosts, network & !hosts | 100].map(|x| IpAddr::V4(x.into())));
            }
            IpAddr::V6(own) => {
                let (network, hosts) = (u128::from(own), u128::MAX >> length);
                all.extend([network & !hosts, network & !hosts | 0x64].map(|x| IpAddr::V6(x.into())));
            }
        }
    }
    let groups4 = ["255.255.255.255", "224.0.0.1", "224.0.0.5", "239.1.2.3"];
    let groups6 = ["ff01::1", "ff02::1", "ff02::5", "ff02::1:2", "ff05::1:3"];
    let groups: &[&str] = if v4 { &groups4 } else { &groups6 };
    all.extend(groups.iter().map(|group| group.parse::<IpAddr>().unwrap()));
    all
}

/// What groups hear, and what they must not.
const TO_GROUPS: [&str; 12] = [
    "udp(sport=68, dport=67)",
    "udp(sport=67, dport=68)",
    "udp(sport=546, dport=547)",
    "udp(sport=547, dport=546)",
    "udp(sport=40000, dport=53)",
    "udp(sport=520, dport=520)",
    "tcp(sport=40000, dport=22, flags=S, seq=1)",
    "ECHO",
    "SOLICITATION",
    "REPORT",
    "proto 89",
    "proto 2",
];

fn to_group(unit: &Unit, mac: &str, destination: IpAddr, what: &str) -> Option<Vec<u8>> {
    let v4 = destination.is_ipv4();
    let source =
        unit.addresses.iter().map(|(address, _)| *address).find(|address| address.is_ipv4() == v4)?;
    let source = match source {
        IpAddr::V4(own) => IpAddr::V4((u32::from(own) & !0xff | 100).into()),
        IpAddr::V6(own) => IpAddr::V6((u128::from(own) & !0xff | 0x64).into()),
    };
    let (l3, field) = if v4 { ("ip", "proto") } else { ("ip6", "next") };
    let (proto, l4) = match what {
        "ECHO" => (String::new(), format!("/{}(type=echo-request, id=1)", if v4 { "icmp" } else { "icmp6" })),
        "SOLICITATION" if v4 => (String::new(), "/icmp(type=10)".to_owned()),
        "SOLICITATION" => (String::new(), "/icmp6(type=neighbour-solicitation)/fill(n=16)".to_owned()),
        "REPORT" if v4 => (format!(", {field}=2"), "/fill(n=8)".to_owned()),
        "REPORT" => (String::new(), "/icmp6(type=143)/fill(n=8)".to_owned()),
        "proto 89" => (format!(", {field}=89"), "/fill(n=24)".to_owned()),
        "proto 2" => (format!(", {field}=2"), "/fill(n=8)".to_owned()),
        udp_or_tcp => (String::new(), format!("/{udp_or_tcp}")),
    };
    let tags: String = unit.tags.iter().map(|(_, id)| format!("/vlan(id={id})")).collect();
    let hops = if v4 { "ttl=255" } else { "hop=255" };
    let text = format!(
        "eth(dst={mac}, src=02:00:00:01:09:64){tags}/{l3}(src={source}, dst={destination}, {hops}{proto}){l4}"
    );
    Some(sluice_wire::text::bytes(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// RFC 1122 3.3.6, RFC 1812 5.3.4 and 5.3.5, RFC 2644: every destination in every kind of frame from every zone.
fn every_group(hook: Hook) -> Result<Vec<Verdict>, String> {
    let text = |error: anyhow::Error| format!("{error:#}");
    let mut gateway = gateway(hook);
    let mut verdicts = Vec::new();
    let seed = 11;
    let mut scenario = Scenario::random(&mut Random::new(seed), CAPACITY);
    gateway.clear_sessions().map_err(text)?;
    gateway.commit(&scenario.config).map_err(text)?;
    let mut counted = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let units = scenario.model.units.clone();
    for unit in units.iter().filter(|unit| unit.tags.iter().all(|(tpid, _)| *tpid == 0x8100)) {
        let macs = [unit.mac.to_string(), "ff:ff:ff:ff:ff:ff".to_owned(), "01:00:5e:00:00:05".to_owned()];
        let all = destinations(&units, true).into_iter().chain(destinations(&units, false));
        for destination in all {
            for (mac, what) in macs.iter().flat_map(|mac| TO_GROUPS.map(|what| (mac, what))) {
                let Some(frame) = to_group(unit, mac, destination, what) else { continue };
                let expected = comparable(scenario.model.judge(&unit.device, &frame));
                let seen = seen(&mut gateway, &mut counted, &unit.device, &frame)?;
                if seen.as_ref() != Some(&expected) {
                    let what = dissect(&frame);
                    return Err(format!(
                        "seed {seed} at {}: {what}: model says {expected:?}, programs did {seen:?}",
                        unit.name
                    ));
                }
                verdicts.push(expected);
            }
        }
    }
    Ok(verdicts)
}

#[test]
fn groups_reach_the_host_only_where_they_are_admitted() {
    for hook in Hook::BOTH {
        let verdicts =
            in_thread(move || every_group(hook)).unwrap_or_else(|error| panic!("{}: {error}", hook.name()));
        for reason in ["host_inbound", "link_broadcast", "directed_broadcast"] {
            assert!(verdicts.contains(&Verdict::Drop(reason)), "{reason} among {}", verdicts.len());
        }
        assert!(verdicts.contains(&Verdict::Local));
    }
}
