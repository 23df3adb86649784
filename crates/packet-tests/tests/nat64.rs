//! Random packets of NAT64 sessions: the programs must make of them what the reference makes (RFC 7915), byte by byte.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use sluice_abi::stages::Reason;
use sluice_dataplane::Sizes;
use sluice_packet_tests::extent;
use sluice_packet_tests::gateway::{Gateway, Hook};
use sluice_packet_tests::judge::Judge;
use sluice_packet_tests::model::nat64::{Links, Session, embed, translate};
use sluice_packet_tests::netns::in_thread;
use sluice_packet_tests::random::Random;
use sluice_packet_tests::world::World;
use sluice_packet_tests::{counters, forward, table};
use sluice_wire::checksum::{Pseudo, internet};
use sluice_wire::text::{diff, dissect};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ECHO: u8 = 1;
const FRAGMENT: u8 = 44;
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 0x64);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 0x66);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 33);
/// The prefixes of tests/packet/nat64.conf.
const PREFIXES: [(&str, u8); 7] = [
    ("64:ff9b::", 96),
    ("2001:db9::", 32),
    ("2001:dba:100::", 40),
    ("2001:dbb:122::", 48),
    ("2001:dbc:122:300::", 56),
    ("2001:dbd:122:344::", 64),
    ("2001:dbe:122:344::", 96),
];
const PORT: u16 = 80;

/// One session, with what its packets need.
struct Talk {
    proto: u8,
    /// Every checksum is right.
    clean: bool,
    session: Session,
}

impl Talk {
    fn new(proto: u8, prefix: usize, port: u16) -> Talk {
        let (text, length) = PREFIXES[prefix];
        let prefix = (text.parse().expect("a prefix"), length);
        let session = Session {
            client: (CLIENT, port),
            seen: (embed(prefix, SERVER), PORT),
            prefix,
            outside: (OUTSIDE, port),
            server: SERVER,
        };
        Talk { proto, clean: false, session }
    }

    /// Transport header and payload of one direction, with a checksum for these addresses.
    fn segment(&self, random: &mut Random, to6: bool, pseudo: Pseudo) -> Vec<u8> {
        let payload: Vec<u8> =
            (0..*random.pick(&[0, 1, 5, 32, 600, 1199, 1240, 1400])).map(|n| n as u8).collect();
        let port = self.session.client.1;
        let ports = if to6 { [PORT, port] } else { [port, PORT] }.map(u16::to_be_bytes).concat();
        let (mut segment, place, number) = match self.proto {
            TCP => {
                ([ports, vec![0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]].concat(), 16, TCP)
            }
            UDP => {
                let length = (8 + payload.len() as u16).to_be_bytes();
                ([ports, length.to_vec(), vec![0, 0]].concat(), 6, UDP)
            }
            _ => {
                // answers come from IPv4, requests from IPv6
                let kind = if to6 { 0 } else { 128 };
                let id = port.to_be_bytes();
                (vec![kind, 0, 0, 0, id[0], id[1], 0, 1], 2, if to6 { 1 } else { 58 })
            }
        };
        segment.extend(payload);
        let pseudo = if number == 1 { Pseudo::None } else { pseudo };
        let mut check = pseudo.checksum(number, &segment);
        if !self.clean && random.percent(10) {
            check ^= 0x0101; // wrong checksums stay wrong
        }
        let none = self.proto == UDP && to6 && random.percent(20);
        let check = if none {
            0
        } else if check == 0 {
            0xffff
        } else {
            check
        };
        segment[place..place + 2].copy_from_slice(&check.to_be_bytes());
        segment
    }

    /// A packet from the client's side.
    fn packet6(&self, random: &mut Random) -> Vec<u8> {
        let pseudo = Pseudo::V6(CLIENT, self.session.seen.0);
        let segment = self.segment(random, false, pseudo);
        let next = if self.proto == ECHO { 58 } else { self.proto };
        ip6(random, CLIENT, self.session.seen.0, next, &segment)
    }

    /// A packet from the server's side.
    fn packet4(&self, random: &mut Random) -> Vec<u8> {
        let segment = self.segment(random, true, Pseudo::V4(SERVER, OUTSIDE));
        ip4(random, SERVER, OUTSIDE, self.proto, &segment)
    }

    /// An error about the client's packet as it was translated.
    fn error4(&self, random: &mut Random) -> Vec<u8> {
        let port = self.session.client.1;
        let l4 = self.quoted(random, [port, PORT], 8, Pseudo::V4(OUTSIDE, SERVER));
        let mut quote = ip4(random, OUTSIDE, SERVER, self.proto, &l4);
        quote.truncate(usize::from(quote[0] & 15) * 4 + 8 + random.below(l4.len() - 7));
        let kind = *random.pick(&[3, 3, 3, 11, 12]);
        let code = if kind == 3 { random.below(17) } else { random.below(3) } as u8;
        let rest = *random.pick(&[0, 0, 0x0000_0578, 0x0000_0240, 0x0800_0000, 0x0900_0000, 0x1300_0000]);
        let message = message(random, kind, code, rest, 5, &quote);
        let check = internet(&message).to_be_bytes();
        let from = *random.pick(&[SERVER, Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(192, 0, 2, 77)]);
        ip4(random, from, OUTSIDE, 1, &[&message[..2], &check, &message[4..]].concat())
    }

    /// An error about the server's packet as it was translated.
    fn error6(&self, random: &mut Random) -> Vec<u8> {
        let port = self.session.client.1;
        let seen = self.session.seen.0;
        let l4 = self.quoted(random, [PORT, port], 129, Pseudo::V6(seen, CLIENT));
        let next = if self.proto == ECHO { 58 } else { self.proto };
        let mut quote = ip6(random, seen, CLIENT, next, &l4);
        let header = quote.len() - l4.len();
        quote.truncate(header + 8 + random.below(l4.len() - 7));
        let kind = *random.pick(&[1, 1, 2, 3, 4]);
        let code = random.below(6) as u8;
        let rest = *random.pick(&[0, 4, 6, 7, 30, 41, 1280, 1400, 0x0001_0000]);
        let message = message(random, kind, code, rest, 4, &quote);
        let from = *random.pick(&[CLIENT, ROUTER]);
        let check = Pseudo::V6(from, seen).checksum(58, &message).to_be_bytes();
        ip6(random, from, seen, 58, &[&message[..2], &check, &message[4..]].concat())
    }

    /// The transport part of a quoted packet; its checksum may be anything.
    fn quoted(&self, random: &mut Random, ports: [u16; 2], echo: u8, pseudo: Pseudo) -> Vec<u8> {
        let mut l4 = ports.map(u16::to_be_bytes).concat();
        l4.extend((0..4 + random.below(60)).map(|_| random.number() as u8));
        if self.proto == ECHO {
            let id = self.session.client.1.to_be_bytes();
            l4[..8].copy_from_slice(&[echo, 0, 0, 0, id[0], id[1], 0, 1]);
            let echo6 = echo == 129;
            let pseudo = if echo6 { pseudo } else { Pseudo::None };
            let check = pseudo.checksum(if echo6 { 58 } else { 1 }, &l4);
            l4[2..4].copy_from_slice(&check.to_be_bytes());
        }
        l4
    }
}

/// An error's header without its checksum, and what it quotes; sometimes with the extension of RFC 4884.
fn message(random: &mut Random, kind: u8, code: u8, rest: u32, place: usize, quote: &[u8]) -> Vec<u8> {
    let mut message = [vec![kind, code, 0, 0], rest.to_be_bytes().to_vec(), quote.to_vec()].concat();
    let extended = if place == 5 { matches!(kind, 3 | 11) && code != 4 } else { matches!(kind, 1 | 3) };
    if extended && random.percent(15) {
        let words = if place == 5 { 4 } else { 8 };
        let quoted = (message.len() - 8).max(128 + words * random.below(3)).next_multiple_of(words);
        message.resize(8 + quoted, 0);
        message[place] = (quoted / words) as u8;
        message.extend([0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4]);
    }
    message
}

fn ip6(random: &mut Random, from: Ipv6Addr, to: Ipv6Addr, next: u8, l4: &[u8]) -> Vec<u8> {
    let mut body = l4.to_vec();
    let mut next = next;
    for _ in 0..if random.percent(30) { 1 + random.below(3) } else { 0 } {
        let kind = *random.pick(&[60, 43, 60, 43, FRAGMENT]);
        let words = if kind == FRAGMENT { 0 } else { random.below(2) };
        // padding; a routing header that is used up; the header of an atomic fragment
        let mut header = vec![next, words as u8];
        header.extend(match kind {
            60 => [1, 4, 0, 0, 0, 0],
            43 => [0; 6],
            _ => [0, 0, 0x12, 0x34, 0x56, random.below(256) as u8],
        });
        header.extend(
            if kind == 60 { vec![1, 6, 0, 0, 0, 0, 0, 0] } else { vec![0; 8] }.into_iter().take(words * 8),
        );
        body.splice(0..0, header);
        next = kind;
    }
    header6(random, from, to, next, &body)
}

fn header6(random: &mut Random, from: Ipv6Addr, to: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
    let word = 6 << 28 | (random.below(256) as u32) << 20 | random.below(1 << 20) as u32;
    let mut out = word.to_be_bytes().to_vec();
    out.extend((body.len() as u16).to_be_bytes());
    out.extend([next, 2 + random.below(250) as u8]);
    out.extend(from.octets());
    out.extend(to.octets());
    out.extend(body);
    out
}

fn ip4(random: &mut Random, from: Ipv4Addr, to: Ipv4Addr, proto: u8, l4: &[u8]) -> Vec<u8> {
    let options = if random.percent(20) { vec![1; 4 * (1 + random.below(10))] } else { vec![] };
    let header = 20 + options.len();
    let mut out = vec![0x40 | (header / 4) as u8, random.below(256) as u8];
    out.extend(((header + l4.len()) as u16).to_be_bytes());
    out.extend((random.number() as u16).to_be_bytes());
    out.extend([if random.percent(50) { 0x40 } else { 0 }, 0, 2 + random.below(250) as u8, proto, 0, 0]);
    out.extend(from.octets());
    out.extend(to.octets());
    out.extend(options);
    let check = internet(&out).to_be_bytes();
    out[10..12].copy_from_slice(&check);
    out.extend(l4);
    out
}

/// The packet in two pieces, and the second one's place among them.
fn split(packet: &[u8], id: u32) -> Option<[Vec<u8>; 2]> {
    let at = 48;
    if packet[0] >> 4 == 6 {
        if !matches!(packet[6], TCP | UDP) || packet.len() < 40 + at + 8 {
            return None;
        }
        let piece = |offset: u16, body: &[u8]| {
            let mut out = packet[..40].to_vec();
            out[4..6].copy_from_slice(&(body.len() as u16 + 8).to_be_bytes());
            out[6] = 44;
            let more = u16::from(offset == 0);
            out.extend([packet[6], 0]);
            out.extend((offset | more).to_be_bytes());
            out.extend(id.to_be_bytes());
            out.extend(body);
            out
        };
        return Some([piece(0, &packet[40..40 + at]), piece(at as u16, &packet[40 + at..])]);
    }
    if packet[0] != 0x45 || !matches!(packet[9], TCP | UDP) || packet.len() < 20 + at + 8 {
        return None;
    }
    let piece = |offset: u16, body: &[u8]| {
        let mut out = packet[..20].to_vec();
        out[2..4].copy_from_slice(&(body.len() as u16 + 20).to_be_bytes());
        out[4..6].copy_from_slice(&(id as u16).to_be_bytes());
        out[6..8].copy_from_slice(&((offset / 8) | if offset == 0 { 0x2000 } else { 0 }).to_be_bytes());
        out[10..12].fill(0);
        let check = internet(&out).to_be_bytes();
        out[10..12].copy_from_slice(&check);
        out.extend(body);
        out
    };
    Some([piece(0, &packet[20..20 + at]), piece(at as u16, &packet[20 + at..])])
}

/// An ICMP message that is no echo.
fn is_error(packet: &[u8]) -> bool {
    match packet[0] >> 4 {
        4 => packet[9] == 1 && !matches!(packet[20], 0 | 8),
        _ => packet[6] == 58 && !matches!(packet[40], 128 | 129),
    }
}

struct Bench {
    gateway: Gateway,
    compared: usize,
    refused: Vec<&'static str>,
    /// Translated packets whose checksums must be right.
    captured: Vec<Vec<u8>>,
}

impl Bench {
    fn new(hook: Hook) -> Bench {
        let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet/nat64.world");
        let world = World::read(&world).expect("a world");
        let config = std::fs::read_to_string(&world.config).expect("a configuration");
        let config =
            config.replacen("security {", "security {\n    flow { tcp-session { no-sequence-check; } }", 1);
        let sizes = Sizes { sessions4: 64, sessions6: 256, ..Sizes::default() };
        let gateway = Gateway::new(world, &config, sizes, hook).expect("a gateway");
        gateway.idle_near_ends().expect("devices take XDP");
        Bench { gateway, compared: 0, refused: Vec::new(), captured: Vec::new() }
    }

    fn framed(&self, packet: &[u8]) -> (&'static str, Vec<u8>) {
        let (unit, host, kind) =
            if packet[0] >> 4 == 6 { ("six0", "client", 0x86dd) } else { ("four0", "server", 0x0800u16) };
        let to = self.gateway.world.unit_mac(unit).expect("a device");
        let from = self.gateway.world.host(host).expect("a host").mac;
        (unit, [&to.0[..], &from.0, &kind.to_be_bytes(), packet].concat())
    }

    fn run(&mut self, packet: &[u8]) -> Result<table::Seen, String> {
        let (device, frame) = self.framed(packet);
        table::prog_run(&mut self.gateway, device, &frame, false).map_err(|error| format!("{error:#}"))
    }

    /// The same, and on tc the sum of its bytes must be right behind a program that forwards it.
    fn run_summed(&mut self, packet: &[u8]) -> Result<table::Seen, String> {
        let (device, frame) = self.framed(packet);
        table::prog_run_summed(&mut self.gateway, device, &frame).map_err(|error| format!("{error:#}"))
    }

    /// Opens the session, so that both directions may be replayed.
    fn open(&mut self, talk: &Talk) -> Result<(), String> {
        let mut random = Random::new(1);
        let pseudo = Pseudo::V6(CLIENT, talk.session.seen.0);
        let mut segment = talk.segment(&mut random, false, pseudo);
        if talk.proto == TCP {
            segment[13] = 2;
        }
        let next = if talk.proto == ECHO { 58 } else { talk.proto };
        let first = header6(&mut Random::new(2), CLIENT, talk.session.seen.0, next, &segment);
        self.run(&first)?;
        if talk.proto == TCP {
            let mut answer = talk.segment(&mut random, true, Pseudo::V4(SERVER, OUTSIDE));
            answer[13] = 0x12;
            answer[8..12].copy_from_slice(&[0, 0, 0, 8]);
            self.run(&ip4(&mut Random::new(2), SERVER, OUTSIDE, TCP, &answer))?;
        }
        Ok(())
    }

    /// One packet, and what the reference says of it.
    fn compare(&mut self, talk: &Talk, packet: &[u8]) -> Result<(), String> {
        let text = |error: anyhow::Error| format!("{error:#}");
        let links = Links { mtu_in: 1500, mtu_out: 1500 };
        let expected = translate(packet, &talk.session, links);
        let before = counters::snapshot(&self.gateway.dataplane, &self.gateway.plan).map_err(text)?;
        // errors are cut, and the kernel forgets the sum of what it cuts
        let summed = expected.as_ref().is_ok_and(|out| !is_error(out));
        let seen = if summed { self.run_summed(packet)? } else { self.run(packet)? };
        let after = counters::snapshot(&self.gateway.dataplane, &self.gateway.plan).map_err(text)?;
        let delta = counters::delta(&before, &after);
        counters::first_equation(&delta).map_err(text)?;
        let dropped = Reason::ALL.into_iter().find(|reason| counters::total(&delta, reason.name()) == 1);
        let (_, came) = self.framed(packet);
        self.compared += 1;
        match (expected, dropped) {
            (Err(reason), Some(drop)) if drop.name() == reason => {
                self.refused.push(reason);
                Ok(())
            }
            (Ok(out), None) => {
                let (to, from) = if packet[0] >> 4 == 6 { ("server", "four0") } else { ("client", "six0") };
                let to = self.gateway.world.host(to).expect("a host").mac;
                let from = self.gateway.world.unit_mac(from).expect("a device");
                let kind: u16 = if out[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
                let frame = [&to.0[..], &from.0, &kind.to_be_bytes(), &out].concat();
                if talk.clean {
                    self.captured.push(seen.frame.clone());
                }
                let (wanted, seen) = forward::comparable(&came, forward::one_hop(&frame), seen.frame);
                diff(&wanted, &seen).map_or(Ok(()), |text| Err(format!("{}\n{text}", dissect(&came))))
            }
            (expected, dropped) => Err(format!(
                "{}\nexpected {expected:02x?}\ndropped for {:?}",
                dissect(&came),
                dropped.map(Reason::name)
            )),
        }
    }
}

fn run_seed(bench: &mut Bench, seed: u64, packets: usize) -> Result<(), String> {
    bench.gateway.clear_sessions().map_err(|error| format!("{error:#}"))?;
    let mut random = Random::new(seed);
    let mut talks: Vec<Talk> = (0..12)
        .map(|n| Talk::new([TCP, UDP, ECHO][n % 3], random.below(PREFIXES.len()), 20_000 + n as u16))
        .collect();
    for talk in &mut talks {
        talk.clean = seed % 2 == 1;
        bench.open(talk)?;
    }
    for number in 0..packets {
        let talk = random.pick(&talks);
        let packet = match random.below(6) {
            0 | 1 => talk.packet6(&mut random),
            2 | 3 => talk.packet4(&mut random),
            4 => talk.error4(&mut random),
            _ => talk.error6(&mut random),
        };
        let at = |error| format!("packet {number}: {error}");
        match split(&packet, seed as u32 ^ number as u32).filter(|_| random.percent(25)) {
            // the first one of an answer without a checksum is refused, and the other follows it
            Some([first, second]) => {
                let refused =
                    translate(&first, &talk.session, Links { mtu_in: 1500, mtu_out: 1500 }).is_err();
                bench.compare(talk, &first).map_err(at)?;
                if !refused {
                    bench.compare(talk, &second).map_err(at)?;
                }
            }
            None => bench.compare(talk, &packet).map_err(at)?,
        }
    }
    Ok(())
}

/// Another program's word on the checksums of translated packets.
fn judge_by_tshark(frames: &[Vec<u8>]) {
    let mut judge = Judge::default();
    frames.iter().for_each(|frame| judge.add(dissect(frame).to_string(), frame));
    assert_eq!(judge.wrong().expect("tshark judges"), BTreeMap::new(), "wrong checksums");
}

/// In a thread of its own: the namespace goes with it.
fn run_hook(hook: Hook) {
    let (packets, seed) = (extent::steps(1200) as usize, extent::first_seed());
    let run = move || {
        let mut bench = Bench::new(hook);
        let per_seed = 200;
        for seed in seed..seed + packets.div_ceil(per_seed) as u64 {
            run_seed(&mut bench, seed, per_seed)
                .unwrap_or_else(|error| panic!("{} seed {seed}: {error}", hook.name()));
        }
        println!("{} packets compared on {}", bench.compared, hook.name());
        assert!(bench.compared >= packets);
        judge_by_tshark(&bench.captured);
        for reason in ["nat64_icmp", "nat64_udp_checksum", "nat64_extension"] {
            assert!(bench.refused.contains(&reason), "nothing was refused for {reason}");
        }
    };
    in_thread(run);
}

#[test]
fn random_packets_on_tc() {
    run_hook(Hook::Tc);
}

#[test]
fn random_packets_on_xdp() {
    run_hook(Hook::Xdp);
}

/// Ports toward one destination are all given out, once; whatever ends a session gives its port back.
fn fill_clear_refill(hook: Hook) {
    const PORTS: u16 = 40;
    let world = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/packet/nat64.world");
    let world = World::read(&world).expect("a world");
    let config = std::fs::read_to_string(&world.config).expect("a configuration");
    let config = config.replacen("range 20000 to 29999; preserve-source;", "range 20000 to 20039;", 1);
    let sizes = Sizes { sessions4: 64, sessions6: 256, ..Sizes::default() };
    let gateway = Gateway::new(world, &config, sizes, hook).expect("a gateway");
    gateway.idle_near_ends().expect("devices take XDP");
    let mut bench = Bench { gateway, compared: 0, refused: Vec::new(), captured: Vec::new() };
    let open = |bench: &mut Bench, port: u16| -> Option<u16> {
        let talk = Talk::new(UDP, 0, port);
        let segment = talk.segment(&mut Random::new(3), false, Pseudo::V6(CLIENT, talk.session.seen.0));
        let packet = header6(&mut Random::new(2), CLIENT, talk.session.seen.0, UDP, &segment);
        let out = bench.run(&packet).expect("a run").frame;
        (out[12..14] == [8, 0]).then(|| u16::from_be_bytes([out[34], out[35]]))
    };
    for round in 0..10 {
        let mut taken: Vec<u16> = (0..PORTS).filter_map(|n| open(&mut bench, 1000 + n)).collect();
        taken.sort_unstable();
        assert_eq!(taken, (20_000..20_000 + PORTS).collect::<Vec<_>>(), "round {round}: every port once");
        assert_eq!(open(&mut bench, 5000), None, "round {round}: none is left");
        assert_eq!(bench.gateway.dataplane.sessions().count(), usize::from(PORTS));
        bench.gateway.clear_sessions().expect("sessions are cleared");
        assert_eq!(bench.gateway.dataplane.sessions().count(), 0);
        // a full pool is not searched again at once (NAT_FULL_MS)
        std::thread::sleep(std::time::Duration::from_millis(120));
    }
}

#[test]
fn ports_come_back_ten_times() {
    for hook in Hook::BOTH {
        in_thread(move || fill_clear_refill(hook));
    }
}

/// The table of addresses of this test is that of the configuration.
#[test]
fn prefixes_hold_the_server() {
    for (prefix, length) in PREFIXES {
        let seen = embed((prefix.parse().expect("a prefix"), length), SERVER);
        assert!(!IpAddr::V6(seen).is_multicast());
        assert_eq!(sluice_packet_tests::model::nat64::extract(length, seen), SERVER, "{prefix}/{length}");
    }
}
