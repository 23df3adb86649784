//! persistent-nat against a plain reference NAT with endpoint-independent mapping and filtering: random traces in virtual
//! time, with hairpin packets, a pool that is too small, and another rule that takes ports of it.

use std::mem::offset_of;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_abi::stages::Reason;
use sluice_abi::{NAT_BINDING_BUSY, NAT_BINDING_LIVE, NAT_BINDING_TAG, NatBinding};
use sluice_dataplane::{Sizes, Timeouts};
use sluice_packet_tests::binding_model::{Endpoint, Model, Rule, Wanted};
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::{scenario, table};
use sluice_wire::text::{Packet, diff};

const CONFIG: &str = "\
set security policies default-policy permit-all
set routing-options rib inet6.0 static route 2001:db8:1::/64 discard
set security nat source pool four address 198.51.100.1/32
set security nat source pool four port range 5000 to 5015
set security nat source pool six address 2001:db8:1::1/128
set security nat source pool six port range 5000 to 5015
";

/// The four rules of a family: whom each is for, and what it says.
fn rules(prefix: impl Fn(u8) -> String, pool: &str) -> String {
    let permits = ["any-remote-host", "target-host", "target-host-port"];
    let mut text = String::new();
    for (number, permit) in (1..).zip(permits) {
        let rule = format!("set security nat source rule-set out rule {pool}-{permit}");
        let persistent = format!("{rule} then source-nat pool persistent-nat");
        text += &format!("{rule} match source-address {}\n", prefix(number));
        text += &format!("{rule} then source-nat pool {pool}\n{persistent} permit {permit}\n");
        text += &format!("{persistent} inactivity-timeout 2500\n{persistent} max-session-number 8\n");
    }
    let rule = format!("set security nat source rule-set out rule {pool}-plain");
    text + &format!("{rule} match source-address {}\n{rule} then source-nat pool {pool}\n", prefix(4))
}

fn config() -> String {
    let four = rules(|number| format!("10.9.{number}.0/24"), "four");
    let six = rules(|number| format!("fd09:{number}::/32"), "six");
    format!("{}{CONFIG}{four}{six}", scenario::TWO_ZONES)
}

fn rule_of(address: IpAddr) -> Option<Rule> {
    let number = match address {
        IpAddr::V4(address) if address.octets()[..2] == [10, 9] => address.octets()[2].into(),
        IpAddr::V6(address) if address.segments()[0] == 0xfd09 => address.segments()[1],
        _ => return None,
    };
    [Rule::AnyHost, Rule::TargetHost, Rule::TargetPort, Rule::Plain].get(usize::from(number) - 1).copied()
}

fn gateway(hook: Hook, bindings: u32) -> Gateway {
    let sizes = Sizes { sessions4: 4096, sessions6: 4096, bindings, ..Sizes::default() };
    let gateway = Gateway::new(scenario::two_zones(), &config(), sizes, hook).expect("a gateway can be made");
    gateway.idle_near_ends().expect("devices take XDP");
    gateway
}

fn packet(from: Endpoint, to: Endpoint, hops: u8) -> Vec<u8> {
    let ip = match from.0 {
        IpAddr::V4(_) => format!("ip(src={}, dst={}, ttl={hops})", from.0, to.0),
        IpAddr::V6(_) => format!("ip6(src={}, dst={}, hop={hops})", from.0, to.0),
    };
    Packet::parse(&format!("{ip}/udp(sport={}, dport={})/\"data\"", from.1, to.1))
        .unwrap()
        .to_bytes()
        .unwrap()
}

fn ends_of(frame: &[u8]) -> (Endpoint, Endpoint) {
    let packet = &frame[14..];
    let (source, destination, above): (IpAddr, IpAddr, &[u8]) = if packet[0] >> 4 == 4 {
        let view = sluice_wire::ipv4::View::new(packet).unwrap();
        (view.source().into(), view.destination().into(), &packet[20..])
    } else {
        let view = sluice_wire::ipv6::View::new(packet).unwrap();
        (view.source().into(), view.destination().into(), &packet[40..])
    };
    let word = |at: usize| u16::from_be_bytes([above[at], above[at + 1]]);
    ((source, word(0)), (destination, word(2)))
}

/// What a packet became; None = it was dropped.
fn send(
    gateway: &mut Gateway,
    from: Endpoint,
    to: Endpoint,
    outside: bool,
) -> Result<Option<(Endpoint, Endpoint)>, String> {
    let device = if outside { "b0" } else { "a0" };
    let unit = format!("{device}.0");
    let (own, peer) = (gateway.world.unit_mac(&unit).unwrap(), gateway.world.any_host_on(&unit).unwrap().mac);
    let ethertype: [u8; 2] = if from.0.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    let frame = [&own.0[..], &peer.0[..], &ethertype[..], &packet(from, to, 64)[..]].concat();
    let seen = table::prog_run_summed(gateway, device, &frame).map_err(|error| format!("{error:#}"))?;
    if seen.retval != if gateway.hook == Hook::Tc { 7 } else { 4 } {
        return Ok(None);
    }
    let became = ends_of(&seen.frame);
    match diff(&[&seen.frame[..14], &packet(became.0, became.1, 63)[..]].concat(), &seen.frame) {
        None => Ok(Some(became)),
        Some(text) => Err(format!("wrong packet out\n{text}")),
    }
}

/// Addresses of one family.
#[derive(Clone, Copy)]
struct Family {
    six: bool,
}

impl Family {
    fn address(self, four: String, six: String) -> IpAddr {
        if self.six { six.parse().unwrap() } else { four.parse().unwrap() }
    }

    fn outside(self) -> IpAddr {
        self.address("198.51.100.1".into(), "2001:db8:1::1".into())
    }

    fn inside(self, random: &mut Random) -> Endpoint {
        let (rule, host) = (1 + random.below(4), 1 + random.below(2));
        (
            self.address(format!("10.9.{rule}.{host}"), format!("fd09:{rule}::{host}")),
            7000 + random.below(3) as u16,
        )
    }

    fn remote(self, random: &mut Random) -> Endpoint {
        let host = 1 + random.below(3);
        (self.address(format!("198.18.0.{host}"), format!("2001:db9::{host}")), 50 + random.below(4) as u16)
    }
}

fn timeouts() -> Timeouts {
    Timeouts { udp_s: 1_500, ..Timeouts::default() }
}

#[derive(Debug, Default)]
struct Seen {
    exact: u64,
    given: u64,
    dropped: u64,
    full: u64,
    hairpins: u64,
    outsiders: u64,
}

struct Trace {
    gateway: Gateway,
    model: Model,
    family: Family,
    /// When the pool may last have been found full: it is not looked at again at once.
    exhausted: Option<Instant>,
    seen: Seen,
}

impl Trace {
    fn new(hook: Hook, six: bool) -> Trace {
        let family = Family { six };
        let model = Model::new(family.outside(), (5000, 5015), rule_of);
        Trace { gateway: gateway(hook, 1024), model, family, exhausted: None, seen: Seen::default() }
    }

    fn packet(&mut self, from: Endpoint, to: Endpoint, outside: bool) -> Result<(), String> {
        let wanted = self.model.wants(from, to, outside);
        let before = self.model.sessions();
        let became = send(&mut self.gateway, from, to, outside)?;
        match (became, &wanted) {
            (Some(became), _) => {
                self.model.seen(from, to, &wanted, became)?;
                let new = self.model.sessions() > before;
                self.seen.exact += u64::from(matches!(wanted, Wanted::Exactly(..)));
                self.seen.given += u64::from(matches!(wanted, Wanted::Free(_)));
                self.seen.outsiders += u64::from(new && outside);
                self.seen.hairpins += u64::from(!outside && to.0 == self.family.outside());
            }
            (None, Wanted::Dropped) => self.seen.dropped += 1,
            (None, Wanted::Full) => {
                self.exhausted = Some(Instant::now());
                self.seen.full += 1;
            }
            (None, Wanted::Free(_)) if self.was_full() => self.seen.full += 1,
            (None, wanted) => {
                return Err(format!("{from:?} to {to:?} was dropped, but wanted is {wanted:?}"));
            }
        }
        Ok(())
    }

    fn was_full(&self) -> bool {
        self.exhausted.is_some_and(|at| at.elapsed() < Duration::from_millis(250))
    }

    fn time_passes(&mut self, random: &mut Random) -> Result<(), String> {
        let seconds = *random.pick(&[1_000, 1_000, 2_000, 3_000]);
        let ended = self.model.sleep(seconds);
        self.gateway.let_pass(seconds).map_err(|error| format!("{error:#}"))?;
        let dataplane = &self.gateway.dataplane;
        let report = dataplane.sweep(dataplane.now_jiffies().unwrap(), &timeouts()).unwrap();
        let (sessions, bindings) = ((report.expired4 + report.expired6) as usize, dataplane.binding_count());
        if sessions != ended || bindings as usize != self.model.bindings() {
            let wanted = self.model.bindings();
            return Err(format!(
                "{sessions} sessions ended, not {ended}; {bindings} bindings stay, not {wanted}"
            ));
        }
        Ok(())
    }

    fn step(&mut self, random: &mut Random) -> Result<(), String> {
        let family = self.family;
        match random.below(1000) {
            0..10 => self.time_passes(random),
            10..450 => self.packet(family.inside(random), family.remote(random), false),
            450..700 => {
                let from = family.inside(random);
                let to = (family.outside(), 5000 + random.below(16) as u16);
                // nobody calls itself
                if matches!(self.model.wants(from, to, true), Wanted::Exactly(_, really) if really == from) {
                    return Ok(());
                }
                self.packet(from, to, false)
            }
            _ => {
                let to = (family.outside(), 5000 + random.below(16) as u16);
                self.packet(family.remote(random), to, true)
            }
        }
    }
}

fn trace(hook: Hook, six: bool) {
    let (steps, seed) = (extent::steps(10_000), extent::first_seed());
    let mut random = Random::new(seed);
    let mut trace = Trace::new(hook, six);
    for step in 0..steps {
        if let Err(error) = trace.step(&mut random) {
            let drops = trace.gateway.dataplane.counters().unwrap();
            let drops: Vec<_> = drops.total_drops().named().collect();
            panic!("seed {seed}, step {step} on {}: {error}; {:?}, {drops:?}", hook.name(), trace.seen);
        }
    }
    let seen = &trace.seen;
    println!("{steps} steps on {}: {seen:?}", hook.name());
    for count in [seen.exact, seen.given, seen.dropped, seen.full, seen.hairpins, seen.outsiders] {
        assert!(count > steps / 500, "{seen:?}");
    }
    assert_eq!(trace.gateway.dataplane.sessions().count(), trace.model.sessions());
}

#[test]
fn a_random_trace_on_tc() {
    in_thread(|| trace(Hook::Tc, false));
}

#[test]
fn a_random_trace_on_xdp() {
    in_thread(|| trace(Hook::Xdp, false));
}

#[test]
fn a_random_trace_of_ipv6() {
    in_thread(|| trace(Hook::Tc, true));
}

#[test]
fn a_full_table_refuses_and_counts_and_nothing_is_evicted() {
    in_thread(|| {
        let mut gateway = gateway(Hook::Xdp, 3);
        let ends = |host: u8| -> (Endpoint, Endpoint) {
            ((format!("10.9.1.{host}").parse().unwrap(), 7000), ("198.18.0.1".parse().unwrap(), 53))
        };
        let mut reach = |host: u8| send(&mut gateway, ends(host).0, ends(host).1, false).unwrap().is_some();
        assert_eq!([1, 2, 3, 4].map(&mut reach), [true, true, true, false]);
        assert_eq!([1, 2, 3].map(&mut reach), [true; 3]);
        let drops = gateway.dataplane.counters().unwrap();
        assert_eq!(drops.drops(Reason::NatBindingsFull), 1);
        let list = gateway.dataplane.bindings().unwrap();
        assert_eq!((list.len(), list[0].timeout_s, list[0].most_sessions), (3, 2500, 8));
        let first: Vec<_> = list.iter().filter(|binding| binding.inside == ends(1).0).copied().collect();
        assert_eq!(gateway.dataplane.end_bindings(&first).unwrap(), 1);
        assert_eq!(gateway.dataplane.end_bindings(&first).unwrap(), 0, "it ended before");
        assert!(send(&mut gateway, ends(4).0, ends(4).1, false).unwrap().is_some());
        assert_eq!(gateway.dataplane.binding_count(), 3);
    });
}

/// A process that ends a binding takes its record first. Whoever starts next finishes what it did not live to end.
#[test]
fn a_binding_that_was_ended_in_part_is_ended_by_the_next_process() {
    in_thread(|| {
        let mut gateway = gateway(Hook::Xdp, 64);
        let (from, to): (Endpoint, Endpoint) =
            (("10.9.1.1".parse().unwrap(), 7000), ("198.18.0.1".parse().unwrap(), 53));
        assert!(send(&mut gateway, from, to, false).unwrap().is_some());
        assert_eq!(gateway.dataplane.finish_bindings().unwrap(), 0);

        let ids: Vec<_> = gateway.dataplane.sessions().map(|session| session.id).collect();
        gateway.dataplane.delete_sessions(&ids).unwrap();
        let map = MapHandle::from_pinned_path(gateway.dataplane.pin().join("nat_bindings")).unwrap();
        let mut record = map.lookup(&1u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let at = offset_of!(NatBinding, state);
        let state = u32::from_ne_bytes(record[at..at + 4].try_into().unwrap());
        assert_ne!(state & NAT_BINDING_LIVE, 0);
        let state = state & NAT_BINDING_TAG | NAT_BINDING_BUSY;
        record[at..at + 4].copy_from_slice(&state.to_ne_bytes());
        map.update(&1u32.to_ne_bytes(), &record, MapFlags::ANY).unwrap();
        assert_eq!(send(&mut gateway, from, to, false).unwrap(), None, "its key leads to nothing");

        assert_eq!(gateway.dataplane.finish_bindings().unwrap(), 1);
        assert_eq!(gateway.dataplane.finish_bindings().unwrap(), 0);
        assert_eq!(gateway.dataplane.binding_count(), 0);
        assert!(send(&mut gateway, from, to, false).unwrap().is_some());
        assert_eq!(gateway.dataplane.binding_count(), 1);
    });
}

/// As many endpoints as the table has room for get a binding, each by its first packet.
fn every_binding_is_had(hook: Hook, bindings: u32) {
    let sizes = Sizes { sessions4: 1 << 15, bindings, ..Sizes::default() };
    let config = config().replace("range 5000 to 5015", "range 1024 to 65535");
    let mut gateway = Gateway::new(scenario::two_zones(), &config, sizes, hook).unwrap();
    gateway.idle_near_ends().unwrap();
    let server: Endpoint = ("10.2.0.100".parse().unwrap(), 53);
    for n in 0..bindings {
        let client: Endpoint = (format!("10.9.1.{}", 1 + n % 200).parse().unwrap(), 1000 + (n / 200) as u16);
        let became = send(&mut gateway, client, server, false).unwrap();
        assert!(became.is_some(), "binding {n} of {bindings} on {}", hook.name());
    }
    assert_eq!(gateway.dataplane.binding_count(), bindings);
}

#[test]
fn a_table_of_bindings_fills_to_its_end() {
    for (hook, bindings) in [(Hook::Xdp, 3000), (Hook::Tc, 500)] {
        in_thread(move || every_binding_is_had(hook, bindings));
    }
}
