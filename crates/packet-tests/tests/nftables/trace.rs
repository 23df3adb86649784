//! Both gateways side by side, and a random trace of sessions through them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use sluice_packet_tests::nft::NftGateway;
use sluice_packet_tests::onwire::Wire;
use sluice_packet_tests::random::Random;
use sluice_wire::text::dissect;

use super::packets::{
    Above, ERRORS, Ends, ICMP, TCP, UDP, check_sums, error, packet, source_port, split, unchosen, whole,
};

/// How many kinds of packets a long trace has.
pub const KINDS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(5);

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

type Sides<T> = [T; 2];
/// Packets that came out, and on which devices.
type Came = Vec<(String, Vec<u8>)>;

/// Ours and theirs.
pub struct Both {
    ours: Wire,
    theirs: NftGateway,
    marks: u32,
}

impl Both {
    pub fn new(ours: Wire, theirs: NftGateway) -> anyhow::Result<Both> {
        let mut both = Both { ours, theirs, marks: 0 };
        // the marks' session, opened from inside
        both.run("a0", &[vec![], vec![]]).map_err(anyhow::Error::msg)?;
        Ok(both)
    }

    /// Packets arrive on a device of either gateway; what came out, and where. A mark behind them, which both let
    /// through, tells that everything before it is through.
    fn run(&mut self, device: &str, packets: &Sides<Vec<Vec<u8>>>) -> Result<Sides<Came>, String> {
        let text = |error: anyhow::Error| format!("{error:#}");
        self.marks += 1;
        let inside: (IpAddr, u16) = ([10, 1, 0, 101].into(), 9);
        let outside: (IpAddr, u16) = ([10, 2, 0, 101].into(), 9);
        let (source, destination) = if device == "a0" { (inside, outside) } else { (outside, inside) };
        let number = self.marks.to_be_bytes();
        let mark = packet(&Ends { source, destination, protocol: UDP }, Above::Udp { sum: true }, 0, &number);
        let mut out = [vec![], vec![]];
        for side in 0..2 {
            for one in packets[side].iter().chain([&mark]) {
                let frame = self.framed(device, one);
                match side {
                    0 => self.ours.inject(device, &frame),
                    _ => self.theirs.inject(device, &frame),
                }
                .map_err(text)?;
            }
            let deadline = Instant::now() + PATIENCE;
            loop {
                let came =
                    if side == 0 { self.ours.receive() } else { self.theirs.receive() }.map_err(text)?;
                let (marks, others): (Vec<_>, Vec<_>) =
                    came.into_iter().partition(|(_, frame)| frame.ends_with(&number) && is_mark(frame));
                out[side].extend(others.into_iter().map(|(at, frame)| (at, frame[14..].to_vec())));
                if !marks.is_empty() {
                    break;
                }
                if Instant::now() > deadline {
                    return Err(format!("the mark did not come through gateway {side}"));
                }
            }
        }
        Ok(out)
    }

    fn framed(&self, device: &str, packet: &[u8]) -> Vec<u8> {
        let world = &self.ours.gateway.world;
        let unit = format!("{device}.0");
        let (to, from) =
            (world.unit_mac(&unit).expect("a device"), world.any_host_on(&unit).expect("a host").mac);
        let kind: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        [&to.0[..], &from.0[..], &kind.to_be_bytes(), packet].concat()
    }
}

/// Between the two hosts whose addresses end in 101.
fn is_mark(frame: &[u8]) -> bool {
    frame.len() == 14 + 32 && frame[29] == 101 && frame[33] == 101
}

/// A session, as each side of the gateways knows it.
struct Flow {
    inside: (IpAddr, u16),
    outside: (IpAddr, u16),
    /// What the outside knows the inside as, by gateway.
    public: Sides<(IpAddr, u16)>,
    protocol: u8,
    opened_outside: bool,
    /// Of TCP, the next sequence numbers of inside and outside.
    next: [u32; 2],
    /// The last whole packets as they came out, by gateway: outside, inside.
    last: Sides<[Vec<u8>; 2]>,
}

pub struct Trace {
    both: Both,
    flows: Vec<Flow>,
    used: BTreeSet<Ends>,
    seen: BTreeMap<&'static str, usize>,
    chosen_apart: usize,
    number: u16,
    secret: Random,
}

impl Trace {
    pub fn new(both: Both, seed: u64) -> Trace {
        let secret = Random::new(seed ^ 0x5eed);
        Trace {
            both,
            flows: vec![],
            used: BTreeSet::new(),
            seen: BTreeMap::new(),
            chosen_apart: 0,
            number: 0,
            secret,
        }
    }

    /// How many packets of each kind both gateways agreed on.
    pub fn seen(&self) -> &BTreeMap<&'static str, usize> {
        &self.seen
    }

    /// Sessions for which the gateways chose different ports.
    pub fn chosen_apart(&self) -> usize {
        self.chosen_apart
    }

    pub fn step(&mut self, random: &mut Random) -> Result<(), String> {
        self.number = self.number.wrapping_add(1).max(1);
        if self.flows.len() < 8 || random.percent(20) {
            return self.open(random);
        }
        let at = random.below(self.flows.len());
        match random.below(10) {
            0 | 1 => self.data(at, true, random),
            2 | 3 => self.data(at, false, random),
            4 => self.error_from_outside(at, random),
            5 => self.error_from_inside(at, random),
            6 => self.pieces(at, random),
            7 | 8 => self.unsolicited(at, random),
            _ => self.close(at, random),
        }
    }

    /// Sends a session's packets and compares. `outward` has them come from inside.
    fn exchange(
        &mut self,
        kind: &'static str,
        flow: &mut Flow,
        outward: bool,
        packets: Sides<Vec<Vec<u8>>>,
    ) -> Result<(), String> {
        let pieces = packets[0].len() > 1;
        let out = self.both.run(if outward { "a0" } else { "b0" }, &packets)?;
        let to = if outward { "b0" } else { "a0" };
        let mut alike = vec![];
        for (side, frames) in out.into_iter().enumerate() {
            if let Some((at, frame)) = frames.iter().find(|(at, _)| at != to) {
                let (came, out) = (describe(&packets[side]), describe(std::slice::from_ref(frame)));
                return Err(format!("{kind}: gateway {side} sent {out} to {at} of {came}"));
            }
            let came = whole(frames.into_iter().map(|(_, frame)| frame).collect());
            let first = came.first().ok_or_else(|| {
                format!("{kind}: gateway {side} let nothing through of {}", describe(&packets[side]))
            })?;
            if outward && flow.public[side].1 == 0 {
                flow.public[side].1 = source_port(first);
            }
            if !pieces && !kind.contains("error") {
                flow.last[side][usize::from(!outward)] = first.clone();
            }
            let port = if flow.opened_outside { flow.public[side].1 } else { flow.inside.1 };
            let plain = came.iter().map(|packet| match outward {
                true => unchosen(packet, flow.public[side].1, port),
                false => check_sums(packet).map(|()| packet.clone()),
            });
            alike.push(
                plain
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|error| format!("{kind}, gateway {side}: {error}"))?,
            );
        }
        if alike[0] != alike[1] {
            let [ours, theirs] = [0, 1].map(|side| describe(&alike[side]));
            let came = describe(&packets[0]);
            return Err(format!(
                "{kind}: of {came}\nours   {ours}\ntheirs {theirs}\n{:02x?}\n{:02x?}",
                alike[0], alike[1]
            ));
        }
        *self.seen.entry(kind).or_default() += 1;
        Ok(())
    }

    /// One packet of a session.
    fn say(
        &mut self,
        kind: &'static str,
        flow: &mut Flow,
        outward: bool,
        above: Above,
        payload: &[u8],
    ) -> Result<(), String> {
        let id = self.number;
        let of = |side: usize| vec![packet(&flow.ends(side, outward), above, id, payload)];
        let packets = [of(0), of(1)];
        if let Above::Tcp { flags, .. } = above {
            flow.next[usize::from(!outward)] += payload.len() as u32 + u32::from(flags & (SYN | FIN) != 0);
        }
        self.exchange(kind, flow, outward, packets)
    }

    fn open(&mut self, random: &mut Random) -> Result<(), String> {
        let Some(mut flow) = self.new_flow(random) else { return Ok(()) };
        let first = !flow.opened_outside;
        match flow.protocol {
            TCP => {
                flow.next = [self.secret.number() as u32 >> 1, self.secret.number() as u32 >> 1];
                for (outward, flags) in [(first, SYN), (!first, SYN | ACK), (first, ACK)] {
                    let above = flow.tcp(outward, flags);
                    self.say("TCP handshake", &mut flow, outward, above, b"")?;
                }
            }
            UDP => self.say("UDP", &mut flow, first, Above::Udp { sum: true }, b"first")?,
            _ => self.say("echo", &mut flow, first, Above::Echo { asks: first }, b"first")?,
        }
        self.chosen_apart += usize::from(flow.public[0].1 != flow.public[1].1);
        self.flows.push(flow);
        Ok(())
    }

    fn new_flow(&mut self, random: &mut Random) -> Option<Flow> {
        let six = random.percent(40);
        let v4 = |a, b, c, d: usize| IpAddr::from(Ipv4Addr::new(a, b, c, d as u8));
        let v6 = |a, d: usize| {
            IpAddr::from(Ipv6Addr::new(a, if a == 0x2001 { 0xdb9 } else { 0 }, 0, 0, 0, 0, 0, d as u16))
        };
        let host = 1 + random.below(30);
        let far = 1 + random.below(4);
        let (mut inside, outside) =
            if six { (v6(0xfd09, host), v6(0x2001, far)) } else { (v4(10, 9, 0, host), v4(198, 18, 0, far)) };
        let protocol = *random.pick(&[TCP, UDP, UDP, ICMP]);
        let mut port = 20_000 + random.below(12) as u16;
        let mut dport = if protocol == ICMP { port } else { *random.pick(&[53, 80]) };
        let gateway = if six { "fd00:2::1" } else { "10.2.0.1" }.parse().expect("an address");
        let mut public = (gateway, 0);
        let kind = random.below(10);
        let opened_outside = kind < 3 && protocol != ICMP;
        if kind < 2 && opened_outside {
            // published, with another port
            public = (if six { "2001:db8::200" } else { "198.51.100.200" }.parse().expect("an address"), 80);
            inside = if six { v6(0xfd09, 0x80) } else { v4(10, 9, 0, 80) };
            dport = 30_000 + random.below(1000) as u16;
            port = 8080;
        } else if (kind < 4 && !six) || opened_outside {
            if six {
                return None;
            }
            // one to one, opened from either side
            inside = v4(10, 9, 0, 81);
            public = (v4(198, 51, 100, 201), port);
        }
        let ends = Ends { source: (inside, port), destination: (outside, dport), protocol };
        let flow = Flow {
            inside: (inside, port),
            outside: (outside, dport),
            public: [public; 2],
            protocol,
            opened_outside,
            next: [0; 2],
            last: Default::default(),
        };
        self.used.insert(ends).then_some(flow)
    }

    fn data(&mut self, at: usize, outward: bool, random: &mut Random) -> Result<(), String> {
        let mut flow = self.flows.swap_remove(at);
        let payload: Vec<u8> = (0..*random.pick(&[0, 1, 2, 33, 600, 1200])).map(|n| n as u8).collect();
        let asks = outward != flow.opened_outside;
        let done = match flow.protocol {
            TCP => {
                let above = flow.tcp(outward, ACK);
                self.say("TCP data", &mut flow, outward, above, &payload)
            }
            UDP if flow.inside.0.is_ipv4() && random.percent(30) => {
                self.say("UDP without a sum", &mut flow, outward, Above::Udp { sum: false }, &payload)
            }
            UDP => self.say("UDP", &mut flow, outward, Above::Udp { sum: true }, &payload),
            _ => self.say("echo", &mut flow, outward, Above::Echo { asks }, &payload),
        };
        self.flows.push(flow);
        done
    }

    /// About the last packet that left: from its receiver, or from a router on the way.
    fn error_from_outside(&mut self, at: usize, random: &mut Random) -> Result<(), String> {
        let mut flow = self.flows.swap_remove(at);
        let six = flow.inside.0.is_ipv6();
        let router: IpAddr = if six { "fd00:2::64" } else { "10.2.0.100" }.parse().expect("an address");
        let from = *random.pick(&[router, flow.outside.0]);
        let (which, short) = (random.below(ERRORS.len()), random.percent(40));
        let id = self.number;
        let of = |side: usize| {
            let quote = quoted(&flow.last[side][0], short);
            vec![error(from, flow.public[side].0, which, id, &quote)]
        };
        let packets = [of(0), of(1)];
        let kind = if short { "short error from outside" } else { "error from outside" };
        let done =
            if flow.last[0][0].is_empty() { Ok(()) } else { self.exchange(kind, &mut flow, false, packets) };
        self.flows.push(flow);
        done
    }

    /// About the last packet that came in: it tells neither the inside address nor the router's.
    fn error_from_inside(&mut self, at: usize, random: &mut Random) -> Result<(), String> {
        let mut flow = self.flows.swap_remove(at);
        let six = flow.inside.0.is_ipv6();
        let router: IpAddr = if six { "fd00:1::64" } else { "10.1.0.100" }.parse().expect("an address");
        let from = *random.pick(&[router, flow.inside.0]);
        let (which, short) = (random.below(ERRORS.len()), random.percent(40));
        let id = self.number;
        let of =
            |side: usize| vec![error(from, flow.outside.0, which, id, &quoted(&flow.last[side][1], short))];
        let packets = [of(0), of(1)];
        let kind = if short { "short error from inside" } else { "error from inside" };
        let done =
            if flow.last[0][1].is_empty() { Ok(()) } else { self.exchange(kind, &mut flow, true, packets) };
        self.flows.push(flow);
        done
    }

    /// A datagram in two pieces.
    fn pieces(&mut self, at: usize, random: &mut Random) -> Result<(), String> {
        let mut flow = self.flows.swap_remove(at);
        let outward = random.percent(50);
        let above = Above::Udp { sum: flow.inside.0.is_ipv6() || random.percent(70) };
        let payload: Vec<u8> = (0..40 + random.below(900)).map(|n| n as u8).collect();
        let (id, first) = (self.number, 8 * (2 + random.below(4)));
        let of =
            |side: usize| split(&packet(&flow.ends(side, outward), above, id, &payload), first, id.into());
        let done = if flow.protocol == UDP {
            let packets = [of(0), of(1)];
            self.exchange("pieces", &mut flow, outward, packets)
        } else {
            Ok(())
        };
        self.flows.push(flow);
        done
    }

    /// What nobody asked for reaches nobody: to the port of a session from somebody else, to no session, of no session.
    fn unsolicited(&mut self, at: usize, random: &mut Random) -> Result<(), String> {
        let flow = &self.flows[at];
        let six = flow.inside.0.is_ipv6();
        let unrelated: IpAddr = if six { "2001:db9::99" } else { "198.18.9.9" }.parse().expect("an address");
        let (id, which) = (self.number, random.below(5));
        let of = |side: usize| {
            let (to, port) = flow.public[side];
            let ends = |source, port| Ends { source, destination: (to, port), protocol: flow.protocol };
            let bare = Above::Tcp { flags: ACK, seq: 7, ack: 9 };
            match which {
                0 => packet(&ends((unrelated, flow.outside.1), port), Above::Udp { sum: true }, id, b"x"),
                1 => packet(&ends((flow.outside.0, 7), port ^ 0x4000), Above::Udp { sum: true }, id, b"x"),
                2 => packet(&ends((unrelated, 40_000), port), bare, id, b"x"),
                3 => packet(&ends((unrelated, 77), 77), Above::Echo { asks: false }, id, b"x"),
                _ => {
                    let away = Ends { source: (to, 9), destination: (unrelated, 9), protocol: UDP };
                    let quote = packet(&away, Above::Udp { sum: true }, id, b"x");
                    error(unrelated, to, 1, id, &quote)
                }
            }
        };
        // whoever wants may open sessions to published servers
        if flow.public[0].0
            != if six { "fd00:2::1" } else { "10.2.0.1" }.parse::<IpAddr>().expect("an address")
        {
            return Ok(());
        }
        let packets = [vec![of(0)], vec![of(1)]];
        let out = self.both.run("b0", &packets)?;
        for (side, frames) in out.iter().enumerate() {
            if let Some((at, frame)) = frames.first() {
                let (came, out) = (describe(&packets[side]), describe(std::slice::from_ref(frame)));
                return Err(format!("gateway {side} made {out} at {at} of {came}, which nobody asked for"));
            }
        }
        *self.seen.entry("unsolicited").or_default() += 1;
        Ok(())
    }

    /// FIN from both sides, or a reset; nothing follows.
    fn close(&mut self, at: usize, random: &mut Random) -> Result<(), String> {
        if self.flows[at].protocol != TCP {
            return Ok(());
        }
        let mut flow = self.flows.swap_remove(at);
        let first = random.percent(50);
        let steps: &[(bool, u8)] = if random.percent(40) {
            &[(first, RST | ACK)]
        } else {
            &[(first, FIN | ACK), (!first, FIN | ACK), (first, ACK)]
        };
        for (outward, flags) in steps {
            let above = flow.tcp(*outward, *flags);
            self.say("TCP end", &mut flow, *outward, above, b"")?;
        }
        Ok(())
    }
}

impl Flow {
    /// As a packet has them that comes from inside, or from outside.
    fn ends(&self, side: usize, outward: bool) -> Ends {
        let protocol = self.protocol;
        match outward {
            true => Ends { source: self.inside, destination: self.outside, protocol },
            false if protocol == ICMP => {
                // the identifier is the asker's
                let public = self.public[side];
                Ends { source: (self.outside.0, public.1), destination: public, protocol }
            }
            false => Ends { source: self.outside, destination: self.public[side], protocol },
        }
    }

    fn tcp(&self, outward: bool, flags: u8) -> Above {
        let own = usize::from(!outward);
        let ack = if flags & ACK != 0 { self.next[1 - own] } else { 0 };
        Above::Tcp { flags, seq: self.next[own], ack }
    }
}

/// What an error quotes: eight bytes behind the header, which every error has (RFC 792), or all that is there.
fn quoted(packet: &[u8], short: bool) -> Vec<u8> {
    let header = if packet.first().is_some_and(|byte| byte >> 4 == 4) { 20 } else { 40 };
    let most = if short { header + 8 } else { 500 };
    packet[..packet.len().min(most)].to_vec()
}

fn describe(packets: &[Vec<u8>]) -> String {
    let one = |packet: &Vec<u8>| {
        let kind: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        dissect(&[&[0; 12][..], &kind.to_be_bytes(), packet].concat()).to_string()
    };
    packets.iter().map(one).collect::<Vec<_>>().join(" and ")
}
