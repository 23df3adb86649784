//! Random packets under random configurations: the programs must do what the reference model says.
//!
//! `SLUICE_PACKETS` sets how many packets a hook gets, `SLUICE_SEED` the first seed (a failure prints its own).

use std::net::IpAddr;

use sluice_abi::stages::Reason;
use sluice_dataplane::Sizes;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::model::{self, Verdict};
use sluice_packet_tests::random::{self, Random};
use sluice_packet_tests::scenario::{self, Scenario};
use sluice_packet_tests::{counters, forward, table};
use sluice_wire::text::{diff, dissect};

/// Packets under one configuration.
const PACKETS_PER_SEED: usize = 500;
const CAPACITY: usize = 100;
/// Characters of a packet's text in a complaint.
const TEXT: usize = 700;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn gateway(hook: Hook) -> Gateway {
    let sizes = Sizes { sessions4: CAPACITY as u32, sessions6: CAPACITY as u32 };
    let first = Scenario::random(&mut Random::new(0), CAPACITY);
    let gateway = Gateway::new(scenario::world(), &first.config, sizes, hook).expect("a gateway can be made");
    gateway.idle_near_ends().expect("devices take XDP");
    gateway
}

/// What the programs did, in the model's words; Err says what does not add up.
fn seen(gateway: &mut Gateway, device: &str, frame: &[u8]) -> Result<Option<Verdict>, String> {
    if never_arrives(gateway.hook, frame) {
        return Ok(None);
    }
    let text = |error: anyhow::Error| format!("{error:#}");
    let before = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let outcome = match table::prog_run(gateway, device, frame, false) {
        Ok(outcome) => outcome,
        // tc prog-run refuses what ends inside the IP header
        Err(_) if gateway.hook == Hook::Tc && ends_early(frame) => return Ok(None),
        Err(error) => return Err(text(error)),
    };
    let after = counters::snapshot(&gateway.dataplane, &gateway.plan).map_err(text)?;
    let delta = counters::delta(&before, &after);
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

/// The kernel drops a frame that ends inside its tag before tc sees it.
fn never_arrives(hook: Hook, frame: &[u8]) -> bool {
    hook == Hook::Tc && frame.len() < 18 && frame[12..14] == [0x81, 0x00]
}

/// The unit by the next hop's MAC address; the frame must be exactly what one hop makes of it.
fn redirected(gateway: &Gateway, frame: &[u8], out: &[u8]) -> Result<Verdict, String> {
    let to = &out[..6];
    let host =
        gateway.world.hosts.iter().find(|host| host.mac.0 == to).ok_or("sent to nobody's MAC address")?;
    let from = gateway.world.unit_mac(&host.unit).ok_or("unit without device")?;
    let vlan = gateway.port(&host.unit).map_err(|error| error.to_string())?.1;
    let mut expected = forward::forwarded(frame, host.mac, from, vlan);
    let mut out = out.to_vec();
    if gateway.hook == Hook::Tc {
        (expected, out) = (forward::untagged(&expected), forward::untagged(&out));
    }
    match diff(&expected, &out) {
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

/// Packets that were compared, and the verdicts that occurred.
fn run_seed(gateway: &mut Gateway, seed: u64, mutated: bool) -> Result<Vec<Verdict>, String> {
    let mut random = Random::new(seed);
    let mut scenario = Scenario::random(&mut random, CAPACITY);
    let text = |error: anyhow::Error| format!("{error:#}");
    gateway.clear_sessions().map_err(text)?;
    gateway.commit(&scenario.config).map_err(text)?;
    let mut verdicts = Vec::new();
    let mut past: Vec<(Option<(IpAddr, IpAddr)>, String)> = Vec::new();
    for number in 0..PACKETS_PER_SEED {
        let (device, mut frame) = random::frame(&mut random, &scenario.model, &scenario.stations);
        if mutated && random.percent(60) {
            random::mutate(&mut random, &mut frame);
        }
        let previous = scenario.model.clone();
        let expected = comparable(scenario.model.judge(&device, &frame));
        let what: String = dissect(&frame).to_string().chars().take(TEXT).collect();
        let place = format!("seed {seed}, packet {number} on {}, at {device}: {what}", gateway.hook.name());
        let ends = addresses(&frame);
        past.push((ends, format!("{number} at {device}: {what} -> {expected:?}")));
        match seen(gateway, &device, &frame).map_err(|error| format!("{place}\n{error}"))? {
            Some(seen) if seen == expected => verdicts.push(seen),
            Some(seen) => {
                let config = policies_from(&scenario, &device);
                let about = past.iter().filter(|(known, _)| ends.is_some() && *known == ends);
                let history: Vec<&str> = about.map(|(_, line)| line.as_str()).collect();
                return Err(format!(
                    "{place}\nmodel says {expected:?}, programs did {seen:?}\nunder\n{config}\nafter\n{}",
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
        Ok(verdicts)
    }
}

fn run(hook: Hook, mutated: bool, default_packets: u64) {
    let work = move || {
        let packets = number("SLUICE_PACKETS", default_packets);
        let first = number("SLUICE_SEED", 1);
        let mut gateway = gateway(hook);
        let mut verdicts = Vec::new();
        for seed in first..first + packets.div_ceil(PACKETS_PER_SEED as u64) {
            verdicts.extend(run_seed(&mut gateway, seed, mutated).unwrap_or_else(|error| panic!("{error}")));
        }
        verdicts
    };
    let verdicts = std::thread::spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    assert_variety(&verdicts);
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
    run(Hook::Tc, false, 7_000);
}

#[test]
fn sensible_packets_on_xdp() {
    run(Hook::Xdp, false, 7_000);
}

#[test]
fn broken_packets_on_tc() {
    run(Hook::Tc, true, 3_000);
}

#[test]
fn broken_packets_on_xdp() {
    run(Hook::Xdp, true, 3_000);
}
