//! Random traces of NAT64 sessions against a reference written from RFC 6146: bindings, filtering, the states of TCP,
//! and lifetimes in virtual time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_dataplane::{Sizes, Timeouts};
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::model::nat64::{embed, extract};
use sluice_packet_tests::model::rfc6146::{Key, Lifetimes, Nat64, PROTOCOLS, Segment, State, Verdict};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::table;
use sluice_packet_tests::world::World;
use sluice_wire::checksum::{Pseudo, internet};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

const PREFIX: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const PORTS: (u16, u16) = (20_000, 20_007);
/// The hosts of tests/packet/nat64.world.
const CLIENTS: [u16; 3] = [0x64, 0x65, 0x66];
const SERVERS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 33), Ipv4Addr::new(198, 51, 100, 2)];

/// The values of RFC 6146 section 4, a hundredfold, and a little more, so that the machine's own time does not count:
/// what passes is a multiple of 1,000 seconds.
const LIFETIMES: Lifetimes =
    Lifetimes { udp: 30_500, icmp: 6_500, tcp_established: 744_500, tcp_transitory: 24_500 };

fn timeouts() -> Timeouts {
    Timeouts {
        tcp_initial_s: LIFETIMES.tcp_transitory as u32,
        tcp_established_s: LIFETIMES.tcp_established as u32,
        tcp_closing_s: LIFETIMES.tcp_established as u32,
        tcp_closed_s: LIFETIMES.tcp_transitory as u32,
        tcp_reset_s: LIFETIMES.tcp_transitory as u32,
        udp_s: LIFETIMES.udp as u32,
        icmp_s: LIFETIMES.icmp as u32,
        ..Timeouts::default()
    }
}

fn gateway(hook: Hook) -> Gateway {
    let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet/nat64.world");
    let world = World::read(&world).expect("a world");
    let config = std::fs::read_to_string(&world.config).expect("a configuration");
    let range = format!("range {} to {};", PORTS.0, PORTS.1);
    assert!(config.contains("range 20000 to 29999; preserve-source;"));
    let config = config.replacen("range 20000 to 29999; preserve-source;", &range, 1);
    let config = config.replacen("security {", "security {\n    flow { max-unanswered 100; }", 1);
    let sizes = Sizes { sessions4: 64, sessions6: 1024, ..Sizes::default() };
    let gateway = Gateway::new(world, &config, sizes, hook).expect("a gateway");
    gateway.idle_near_ends().expect("devices take XDP");
    gateway
}

/// Next sequence numbers of the client and the server.
type Numbers = [u32; 2];

/// Transport header of a packet; identifiers stand in the port of who asks.
fn segment(key: &Key, from6: bool, outside: u16, tcp: Option<Segment>, next: Numbers) -> Vec<u8> {
    let (protocol, client, server) = *key;
    let ports = if from6 { [client.1, server.1] } else { [server.1, outside] };
    let ports = ports.map(u16::to_be_bytes).concat();
    match (protocol, tcp) {
        (TCP, Some(kind)) => {
            let own = usize::from(!from6);
            let flags = match kind {
                Segment::Syn => 2,
                Segment::SynAck => 18,
                Segment::Ack => 16,
                Segment::Fin => 17,
                Segment::Rst => 20,
            };
            let ack = if kind == Segment::Syn { 0 } else { next[1 - own] };
            [ports, [next[own], ack].map(u32::to_be_bytes).concat(), vec![0x50, flags, 0x20, 0, 0, 0, 0, 0]]
                .concat()
        }
        (UDP, _) => [&ports[..], &[0, 12, 0, 0], b"data"].concat(),
        _ => {
            let kind = if from6 { 128 } else { 0 };
            let id = if from6 { client.1 } else { outside };
            [&[kind, 0, 0, 0], &id.to_be_bytes()[..], &[0, 1]].concat()
        }
    }
}

fn with_sum(protocol: u8, pseudo: Pseudo, mut segment: Vec<u8>) -> Vec<u8> {
    let at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    let sum = match pseudo.checksum(protocol, &segment) {
        0 => 0xffff,
        sum => sum,
    };
    segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    segment
}

fn packet6(client: Ipv6Addr, server: Ipv4Addr, protocol: u8, segment: Vec<u8>) -> Vec<u8> {
    let protocol = if protocol == ICMP { ICMP6 } else { protocol };
    let seen = embed(PREFIX, server);
    let segment = with_sum(protocol, Pseudo::V6(client, seen), segment);
    let length = (segment.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0], &length[..], &[protocol, 64], &client.octets(), &seen.octets(), &segment].concat()
}

fn packet4(server: Ipv4Addr, outside: Ipv4Addr, protocol: u8, segment: Vec<u8>) -> Vec<u8> {
    let pseudo = if protocol == ICMP { Pseudo::None } else { Pseudo::V4(server, outside) };
    let segment = with_sum(protocol, pseudo, segment);
    let length = (segment.len() as u16 + 20).to_be_bytes();
    let mut out =
        [&[0x45, 0], &length[..], &[0, 7, 0, 0, 64, protocol, 0, 0], &server.octets(), &outside.octets()]
            .concat();
    let sum = internet(&out).to_be_bytes();
    out[10..12].copy_from_slice(&sum);
    [out, segment].concat()
}

struct Trace {
    gateway: Gateway,
    nat: Nat64,
    numbers: BTreeMap<Key, Numbers>,
    /// When an address may last have been found full: it is not looked at again at once (NAT_FULL_MS).
    full_at: Option<Instant>,
    /// How often each thing was seen.
    seen: BTreeMap<String, u64>,
}

impl Trace {
    fn new(hook: Hook) -> Trace {
        let nat = Nat64::new(POOL, PORTS, LIFETIMES);
        Trace { gateway: gateway(hook), nat, numbers: BTreeMap::new(), full_at: None, seen: BTreeMap::new() }
    }

    /// What came out behind the link header, if anything did.
    fn run(&mut self, packet: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let (unit, host, kind) =
            if packet[0] >> 4 == 6 { ("six0", "client", 0x86ddu16) } else { ("four0", "server", 0x0800) };
        let to = self.gateway.world.unit_mac(unit).expect("a device");
        let from = self.gateway.world.host(host).expect("a host").mac;
        let frame = [&to.0[..], &from.0, &kind.to_be_bytes(), packet].concat();
        let seen = table::prog_run(&mut self.gateway, unit, &frame, false);
        let seen = seen.map_err(|error| format!("{error:#}"))?;
        let redirect = if self.gateway.hook == Hook::Tc { 7 } else { 4 };
        Ok((seen.retval == redirect).then(|| seen.frame[14..].to_vec()))
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    fn from6(&mut self, key: Key, tcp: Option<Segment>) -> Result<(), String> {
        let wanted = self.nat.from6(key, tcp);
        if matches!(wanted, Verdict::New | Verdict::Full) {
            self.numbers.insert(key, [u32::from(key.1.1) << 16, u32::from(key.2.1) << 16]);
        }
        let next = self.numbers.get(&key).copied().unwrap_or_default();
        let segment = segment(&key, true, 0, tcp, next);
        let out = self.run(&packet6(key.1.0, key.2.0, key.0, segment))?;
        self.count(format!("{wanted:?}").split('(').next().unwrap_or_default());
        let patience = Duration::from_millis(250);
        match (out, wanted) {
            (None, Verdict::Filtered) => return Ok(()),
            (None, Verdict::Full) => self.full_at = Some(Instant::now()),
            (None, Verdict::New) if self.full_at.is_some_and(|at| at.elapsed() < patience) => {}
            (Some(out), Verdict::As(outside)) if sender4(&out, key)? == outside => {
                self.nat.passed(key, true, tcp);
                self.advance(key, 0, tcp);
                return Ok(());
            }
            (Some(out), Verdict::New) => {
                self.nat.opened(key, sender4(&out, key)?)?;
                self.advance(key, 0, tcp);
                return Ok(());
            }
            (out, wanted) => {
                return Err(format!("{key:?} {tcp:?}: became {out:02x?}, but {wanted:?} is wanted"));
            }
        }
        self.nat.not_opened(key);
        Ok(())
    }

    fn from4(&mut self, key: Key, outside: (Ipv4Addr, u16), tcp: Option<Segment>) -> Result<(), String> {
        let wanted = self.nat.from4(key.0, key.2, outside);
        let next = self.numbers.get(&key).copied().unwrap_or_default();
        let segment = segment(&key, false, outside.1, tcp, next);
        let out = self.run(&packet4(key.2.0, outside.0, key.0, segment))?;
        self.count(format!("{wanted:?}").split('(').next().unwrap_or_default());
        match (out, wanted) {
            (None, Verdict::Filtered) => Ok(()),
            (Some(out), Verdict::To(client)) if receiver6(&out, key)? == client => {
                self.nat.passed(key, false, tcp);
                self.advance(key, 1, tcp);
                Ok(())
            }
            (out, wanted) => Err(format!("{key:?} {tcp:?}: became {out:02x?}, but {wanted:?} is wanted")),
        }
    }

    /// Sequence numbers behind a packet that was let through.
    fn advance(&mut self, key: Key, side: usize, tcp: Option<Segment>) {
        let again = matches!(
            (tcp, self.nat.sessions().get(&key).map(|session| session.state)),
            (Some(Segment::Syn | Segment::SynAck), Some(State::V6Init | State::V4Syn))
        );
        let takes_one = matches!(tcp, Some(Segment::Syn | Segment::SynAck | Segment::Fin));
        if let Some(next) = self.numbers.get_mut(&key) {
            let first = [u32::from(key.1.1) << 16, u32::from(key.2.1) << 16][side];
            // a SYN that comes again has the number it had
            next[side] = if again { first + 1 } else { next[side] + u32::from(takes_one) };
        }
    }

    /// A packet of a session, as its state allows: what a host would not send is not sent.
    fn of_session(&mut self, random: &mut Random) -> Result<(), String> {
        let at = random.below(self.nat.sessions().len());
        let (key, session) =
            self.nat.sessions().iter().nth(at).map(|(key, one)| (*key, one.clone())).expect("one");
        // who refused a connection has nothing more to say in it
        let refused = session.state == State::Trans
            && self.numbers.get(&key).is_some_and(|next| next[1] == u32::from(key.2.1) << 16);
        let from6 = random.percent(50) || (key.0 == TCP && refused);
        let segment = match (key.0, session.state) {
            (UDP | ICMP, _) => None,
            _ if refused => Some(Segment::Syn),
            (_, state) => Some(may_say(state, from6, random)),
        };
        if let Some(segment) = segment {
            self.count(format!("{:?} {segment:?}", session.state).replace("FinRcv", "Fin"));
            if matches!(segment, Segment::Syn) && session.state == State::V6Init {
                self.numbers.insert(key, [u32::from(key.1.1) << 16, u32::from(key.2.1) << 16]);
            }
            if matches!(segment, Segment::SynAck) && session.state == State::V4Syn {
                self.numbers.entry(key).and_modify(|next| next[1] = u32::from(key.2.1) << 16);
            }
        }
        if from6 { self.from6(key, segment) } else { self.from4(key, session.outside, segment) }
    }

    /// To a transport address of the pool, from somebody who was never asked there (RFC 6146 3.5, filtering).
    fn unrelated(&mut self, random: &mut Random) -> Result<(), String> {
        let key = random_key(random);
        let outside = (POOL, PORTS.0 + random.below(9) as u16);
        let tcp = (key.0 == TCP).then(|| *random.pick(&[Segment::Syn, Segment::SynAck, Segment::Ack]));
        match self.nat.from4(key.0, key.2, outside) {
            Verdict::Filtered => self.from4(key, outside, tcp),
            _ => Ok(()),
        }
    }

    fn time_passes(&mut self, random: &mut Random) -> Result<(), String> {
        let seconds = *random.pick(&[1_000, 3_000, 7_000, 20_000, 60_000]);
        let ended = self.nat.sleep(seconds);
        self.gateway.let_pass(seconds).map_err(|error| format!("{error:#}"))?;
        let dataplane = &self.gateway.dataplane;
        let report =
            dataplane.sweep(dataplane.now_jiffies().expect("a clock"), &timeouts()).expect("a sweep");
        let seen = (report.expired4 + report.expired6) as usize;
        self.full_at = Some(Instant::now());
        self.count(if ended > 0 { "expiry" } else { "no expiry" });
        if seen != ended { Err(format!("{seen} sessions ended, not {ended}")) } else { Ok(()) }
    }

    fn step(&mut self, random: &mut Random) -> Result<(), String> {
        match random.below(1000) {
            0 => {
                self.gateway.clear_sessions().map_err(|error| format!("{error:#}"))?;
                self.nat.clear();
                self.full_at = Some(Instant::now());
                Ok(())
            }
            1..=8 => self.time_passes(random),
            9..=150 => {
                let key = random_key(random);
                // a client that knows of its session goes on with it
                let is_new = !self.nat.sessions().contains_key(&key);
                let first = if random.percent(90) { Segment::Syn } else { Segment::Ack };
                if is_new { self.from6(key, (key.0 == TCP).then_some(first)) } else { Ok(()) }
            }
            151..=300 => self.unrelated(random),
            _ if self.nat.sessions().is_empty() => Ok(()),
            _ => self.of_session(random),
        }
    }
}

fn random_key(random: &mut Random) -> Key {
    let client = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, *random.pick(&CLIENTS));
    let protocol = *random.pick(&PROTOCOLS);
    let port = 1000 + random.below(5) as u16;
    // the place of the port on the side that is asked has nothing in an echo
    let dport = if protocol == ICMP { 0 } else { *random.pick(&[53, 80]) };
    (protocol, (client, port), (*random.pick(&SERVERS), dport))
}

/// What a host may send in a state. An answer acknowledges all that came.
fn may_say(state: State, from6: bool, random: &mut Random) -> Segment {
    use Segment::{Ack, Fin, Rst, Syn, SynAck};
    let side = usize::from(!from6);
    let rest = if random.percent(8) { Rst } else { Ack };
    match state {
        State::V6Init if from6 => *random.pick(&[Syn, Syn, Rst]),
        State::V6Init => *random.pick(&[SynAck, SynAck, SynAck, Rst]),
        State::V4Syn if from6 => rest,
        State::V4Syn => SynAck,
        State::Established if random.percent(15) => Fin,
        State::FinRcv { fin, .. } if !fin[side] && random.percent(40) => Fin,
        State::Trans if from6 && random.percent(20) => Syn,
        _ => rest,
    }
}

/// Whom the server sees, if the packet is for it.
fn sender4(packet: &[u8], key: Key) -> Result<(Ipv4Addr, u16), String> {
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
    let at = if key.0 == ICMP { 24 } else { 20 };
    if packet[0] != 0x45
        || packet[9] != key.0
        || address(16) != key.2.0
        || (key.0 != ICMP && word(22) != key.2.1)
    {
        return Err(format!("{packet:02x?} is not for {:?}", key.2));
    }
    Ok((address(12), word(at)))
}

/// Whom an answer is for, if it comes from the server behind the prefix.
fn receiver6(packet: &[u8], key: Key) -> Result<(Ipv6Addr, u16), String> {
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 bytes"));
    let wrong_port = key.0 != ICMP && word(40) != key.2.1;
    if packet[0] >> 4 != 6
        || extract(96, address(8)) != key.2.0
        || address(8) != embed(PREFIX, key.2.0)
        || wrong_port
    {
        return Err(format!("{packet:02x?} is not from {:?}", key.2));
    }
    Ok((address(24), word(if key.0 == ICMP { 44 } else { 42 })))
}

fn trace(hook: Hook) {
    let (steps, seed) = (extent::steps(20_000), extent::first_seed());
    let run = move || {
        let mut random = Random::new(seed);
        let mut trace = Trace::new(hook);
        for step in 0..steps {
            if let Err(error) = trace.step(&mut random) {
                let counters = trace.gateway.dataplane.counters().expect("counters");
                let drops: Vec<_> = counters.total_drops().named().collect();
                panic!("seed {seed}, step {step} on {}: {error}\n{drops:?}", hook.name());
            }
        }
        println!("{steps} steps on {}: {:?}", hook.name(), trace.seen);
        assert_eq!(trace.gateway.dataplane.sessions().count(), trace.nat.sessions().len());
        for what in [
            "As",
            "To",
            "New",
            "Full",
            "Filtered",
            "expiry",
            "no expiry",
            "Trans Ack",
            "Trans Syn",
            "V6Init Syn",
        ] {
            let count = trace.seen.get(what).copied().unwrap_or(0);
            assert!(count > steps / 10_000, "only {count} of {what}: {:#?}", trace.seen);
        }
    };
    in_thread(run);
}

#[test]
fn rfc_6146_sessions_on_tc() {
    trace(Hook::Tc);
}

#[test]
fn rfc_6146_sessions_on_xdp() {
    trace(Hook::Xdp);
}
