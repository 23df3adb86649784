//! The reference of the user plane: what becomes of a frame that may be a message of GTP-U, or for a subscriber. Written from
//! TS 29.281, TS 29.244 and TS 38.415 in plain Rust; zones, routes and flows are [`Model`]'s.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_wire::checksum::internet;
use sluice_wire::fields::{be16, be32, put_be16};
use sluice_wire::gtpu::{EXTENSION_PRESENT, G_PDU, LONG, SEQUENCE_PRESENT};
use sluice_wire::{Mac, ethertype, gtpu, ipv4, ipv6, udp};

use crate::forward;
use crate::model::{self, Facts, Model, Verdict};
use crate::tunnel::Message;

/// What rules say of a direction (TS 29.244 5.2.1, 5.4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gate {
    /// Packets pass.
    #[default]
    Open,
    /// QER: dropped.
    Closed,
    /// FAR: dropped.
    Discarding,
}

impl Gate {
    fn check(self) -> Result<(), &'static str> {
        match self {
            Gate::Open => Ok(()),
            Gate::Closed => Err("gtpu_gate"),
            Gate::Discarding => Err("gtpu_forwarding"),
        }
    }
}

/// A session; of what there are two of, uplink comes first.
#[derive(Debug, Clone, Default)]
pub struct Subscriber {
    /// If it has one.
    pub address: Option<Ipv4Addr>,
    /// The first of 64 bits of its addresses.
    pub prefix: Option<Ipv6Addr>,
    /// By which the peer knows it.
    pub peer_teid: u32,
    /// The peer speaks IPv4.
    pub outer4: bool,
    /// Messages go on through the peer's tunnel.
    pub relay: bool,
    /// By direction.
    pub gates: [Gate; 2],
    /// Bytes that may pass.
    pub quota: [Option<u64>; 2],
    /// Bytes that have passed.
    pub bytes: [u64; 2],
    /// Packets that have passed.
    pub packets: [u64; 2],
    /// Packets leave with it.
    pub dscp: [Option<u8>; 2],
    /// Of the PDU Session Container; none = there is none.
    pub qfi: Option<u8>,
    /// And its RQI.
    pub reflective: bool,
    /// TEIDs of the tunnels that copies of what passes go into, by direction.
    pub copies: [Option<u32>; 2],
    /// Datagrams of this remote port belong to a flow, whose copies go into these instead.
    pub copied_flow: Option<(u16, [Option<u32>; 2])>,
}

impl Subscriber {
    /// The TEID that a copy of a packet goes to (TS 29.244 5.2.1); the packet has neither options nor extension headers.
    fn copy(&self, direction: usize, packet: &[u8]) -> Option<u32> {
        let (protocol, ports) = if packet[0] >> 4 == 4 { (packet[9], 20) } else { (packet[6], 40) };
        let remote = ports + if direction == 0 { 2 } else { 0 };
        let flow = self.copied_flow.filter(|(port, _)| {
            protocol == 17 && packet.get(remote..remote + 2) == Some(&port.to_be_bytes()[..])
        });
        flow.and_then(|(_, copies)| copies[direction]).or(self.copies[direction])
    }

    fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.address == Some(address),
            IpAddr::V6(address) => {
                self.prefix.is_some_and(|own| own.to_bits() >> 64 == address.to_bits() >> 64)
            }
        }
    }

    /// TS 29.244 5.2.2.2: what passes is counted, and never more than the quota.
    fn account(&mut self, direction: usize, length: usize) -> Result<(), &'static str> {
        let after = self.bytes[direction] + length as u64;
        if self.quota[direction].is_some_and(|quota| after > quota) {
            return Err("gtpu_quota");
        }
        self.bytes[direction] = after;
        self.packets[direction] += 1;
        Ok(())
    }
}

/// A message of the gateway's own, to whom the one at hand came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its destination port.
    pub port: u16,
    /// Behind the UDP header.
    pub message: Vec<u8>,
}

/// What becomes of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// As of any packet.
    Plain(Verdict),
    /// For this reason, and what its sender is told.
    Refused(&'static str, Option<Answer>),
    /// A message that is no user data, and what is answered.
    Signal(Option<Answer>),
    /// Out of its tunnel the packet is this one, and goes on as if it had come by the mobile unit.
    Inward(Vec<u8>, Box<Fate>),
    /// In a tunnel to a peer.
    Outward {
        /// Behind the UDP header.
        message: Vec<u8>,
        /// Traffic class of the outer header.
        class: u8,
        /// The outer header is an IPv4 one.
        outer4: bool,
        /// None = by the flow.
        sport: Option<u16>,
    },
}

/// Answers that name a reason.
enum Told {
    Nothing,
    Error,
    Version,
    Extensions,
}

/// A copy of a packet (FAR: DUPL, TS 29.244 5.2.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copied {
    /// 0 = from the subscriber.
    pub direction: usize,
    /// Of its tunnel.
    pub teid: u32,
    /// The packet as it is in the session's tunnel.
    pub packet: Vec<u8>,
}

/// A gateway with a user plane.
#[derive(Debug, Clone, Default)]
pub struct UserPlane {
    /// Its zones and routes; the mobile unit is `mif.0`.
    pub model: Model,
    /// MAC address of the mobile unit.
    pub mac: Mac,
    /// Sessions by the TEID that they are reached under.
    pub sessions: BTreeMap<u32, Subscriber>,
    /// Copies since somebody took them away.
    pub copied: Vec<Copied>,
}

/// TS 29.281 5.2.1: of extension headers that must be understood, the types that are; and PDCP PDU numbers concern whom a message is
/// passed on to, not who passes it on.
const CONTAINER: u8 = 0x85;
const PDCP: u8 = 0xc0;
const MUST: u8 = 0x80;
const EVERYBODY: u8 = 0xc0;
/// Headers of a chain that are looked at.
const CHAIN: usize = 8;

/// A message, taken apart.
struct Parsed {
    kind: u8,
    flags: u8,
    teid: u32,
    sequence: [u8; 2],
    /// Some extension header is not understood: by its end, by whoever passes it on.
    unknown: [bool; 2],
    /// Behind the mandatory part, as long as it says.
    rest: Vec<u8>,
    /// Where in it the body begins.
    body: usize,
}

impl Parsed {
    fn body(&self) -> &[u8] {
        &self.rest[self.body..]
    }
}

impl UserPlane {
    /// What must happen to a frame that arrives on a device.
    pub fn judge(&mut self, device: &str, frame: &[u8]) -> Fate {
        match self.model.judge(device, frame) {
            Verdict::Tunnel => self.message(frame),
            Verdict::Redirect(unit) | Verdict::Handoff(unit) if unit == "mif.0" => self.downlink(frame),
            other => Fate::Plain(other),
        }
    }

    fn message(&mut self, frame: &[u8]) -> Fate {
        let link = model::link(frame).expect("the model has read it");
        let class = match link.ethertype {
            ethertype::IPV4 => link.payload[ipv4::field::TOS],
            _ => (be16(link.payload, 0..2) >> 4) as u8,
        };
        let facts = model::parse(&link).ok().flatten().expect("the model has read it");
        match parse(&facts.payload) {
            Err((reason, told)) => refuse(&facts, reason, &told, None),
            Ok(message) if matches!(message.kind, G_PDU | END_MARKER) => {
                self.of_session(&facts, &message, class)
            }
            Ok(message) if message.unknown[0] => {
                refuse(&facts, "gtpu_extension", &Told::Extensions, Some(&message))
            }
            Ok(message) => signal(&facts, &message),
        }
    }

    /// TS 29.281 4.3.0, 7.3.1, 7.3.2: a G-PDU or an End Marker.
    fn of_session(&mut self, facts: &Facts, message: &Parsed, class: u8) -> Fate {
        let (is_data, mtu) = (message.kind == G_PDU, self.mtu());
        let Some(session) = self.sessions.get_mut(&message.teid) else {
            let told = if is_data && message.teid != 0 { Told::Error } else { Told::Nothing };
            return refuse(facts, "gtpu_teid", &told, Some(message));
        };
        if message.unknown[usize::from(session.relay)] {
            return refuse(facts, "gtpu_extension", &Told::Extensions, Some(message));
        }
        if let Err(reason) = session.gates[0].check() {
            return Fate::Refused(reason, None);
        }
        if session.relay {
            return match onward(facts, message, session, class) {
                // RFC 1191 4, RFC 8201 4: of the message, whose sender is told
                fate if !fits(&fate, mtu) && is_one_host(facts) => Fate::Plain(Verdict::Reply("gtpu_mtu")),
                fate if !fits(&fate, mtu) => Fate::Refused("gtpu_mtu", None),
                fate => fate,
            };
        }
        if !is_data {
            return Fate::Signal(None);
        }
        match uplink(session, message.body(), class) {
            Err(reason) => Fate::Refused(reason, None),
            Ok(came) => {
                let inner = marked(session, &came);
                let teid = session.copy(0, &came);
                self.copied.extend(teid.map(|teid| Copied { direction: 0, teid, packet: came }));
                let kind = if inner[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
                let frame = [&self.mac.0[..], &self.mac.0, &kind.to_be_bytes(), &inner].concat();
                let then = self.judge("mif.0", &frame);
                Fate::Inward(inner, Box::new(then))
            }
        }
    }

    /// What is routed to the mobile unit goes into the tunnel of whom it is for, a hop later.
    fn downlink(&mut self, frame: &[u8]) -> Fate {
        let hop = forward::one_hop(frame);
        let link = model::link(&hop).expect("the model has read it");
        let facts = model::parse(&link).ok().flatten().expect("the model has read it");
        let packet = &link.payload[..facts.length];
        let mtu = self.mtu();
        let own = self.sessions.values_mut().find(|session| session.has(facts.destination));
        let Some(session) = own else { return Fate::Refused("gtpu_no_session", None) };
        if let Err(reason) = session.gates[1].check() {
            return Fate::Refused(reason, None);
        }
        let mut message = Message::data(session.peer_teid, packet);
        if let Some(qfi) = session.qfi {
            // TS 38.415 5.5.2.1: type 0, no paging policy
            message = message.with(&[(CONTAINER, &[0, u8::from(session.reflective) << 6 | qfi])]);
        }
        let class = session.dscp[1].map_or(class_of(packet) & 0xfc, |dscp| dscp << 2);
        let fate = Fate::Outward { message: message.bytes(), class, outer4: session.outer4, sport: None };
        // the mobile unit's own mtu leaves room: nothing here is answered for that
        assert!(fits(&fate, mtu), "{} bytes", packet.len());
        match session.account(1, packet.len()) {
            Ok(()) => {
                let packet = packet.to_vec();
                let teid = session.copy(1, &packet);
                self.copied.extend(teid.map(|teid| Copied { direction: 1, teid, packet }));
                fate
            }
            Err(reason) => Fate::Refused(reason, None),
        }
    }

    /// All peers are behind `n3.0`.
    fn mtu(&self) -> usize {
        self.model.units.iter().find(|unit| unit.name == "n3.0").map_or(0, |unit| unit.mtu)
    }
}

/// Outer packets have DF (RFC 6864 4.1), and IPv6 ones are cut by nobody.
fn fits(fate: &Fate, mtu: usize) -> bool {
    let Fate::Outward { message, outer4, .. } = fate else { return true };
    message.len() + if *outer4 { 28 } else { 48 } <= mtu
}

/// RFC 1122 3.2.2.
fn is_one_host(facts: &Facts) -> bool {
    !facts.source.is_unspecified()
}

fn class_of(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { (be16(packet, 0..2) >> 4) as u8 }
}

/// TS 29.281 6.1.
const ECHO_REQUEST: u8 = 1;
const ECHO_RESPONSE: u8 = 2;
const VERSION_NOT_SUPPORTED: u8 = 3;
const ERROR_INDICATION: u8 = 26;
const EXTENSIONS_NOTIFICATION: u8 = 31;
const TUNNEL_STATUS: u8 = 253;
const END_MARKER: u8 = 254;

/// A datagram: RFC 768 for its length, TS 29.281 5.1 for the rest.
fn parse(segment: &[u8]) -> Result<Parsed, (&'static str, Told)> {
    const MALFORMED: (&str, Told) = ("gtpu_malformed", Told::Nothing);
    let length = usize::from(be16(segment, udp::field::LENGTH));
    if length < udp::field::HEADER + gtpu::field::HEADER || length > segment.len() {
        return Err(MALFORMED);
    }
    let datagram = &segment[udp::field::HEADER..length];
    let (flags, kind) = (datagram[gtpu::field::FLAGS], datagram[gtpu::field::MESSAGE_TYPE]);
    if flags >> 5 != 1 {
        let is_answer = kind == VERSION_NOT_SUPPORTED;
        return Err(("gtpu_version", if is_answer { Told::Nothing } else { Told::Version }));
    }
    if flags & 0x10 == 0 {
        return Err(("gtpu_version", Told::Nothing));
    }
    let length = usize::from(be16(datagram, gtpu::field::LENGTH));
    let rest = datagram.get(gtpu::field::HEADER..gtpu::field::HEADER + length).ok_or(MALFORMED)?;
    let teid = be32(datagram, gtpu::field::TEID);
    let mut parsed =
        Parsed { kind, flags, teid, sequence: [0; 2], unknown: [false; 2], rest: rest.to_vec(), body: 0 };
    if flags & LONG == 0 {
        return Ok(parsed);
    }
    let options = rest.get(..4).ok_or(MALFORMED)?;
    if flags & SEQUENCE_PRESENT != 0 {
        parsed.sequence = [options[0], options[1]];
    }
    parsed.body = 4;
    let mut next = if flags & EXTENSION_PRESENT != 0 { options[3] } else { 0 };
    for _ in 0..CHAIN {
        if next == 0 {
            break;
        }
        let left = &rest[parsed.body..];
        let length = usize::from(*left.first().ok_or(MALFORMED)?) * 4;
        if length == 0 || length > left.len() {
            return Err(MALFORMED);
        }
        let must = next & MUST != 0 && next != CONTAINER;
        parsed.unknown[0] |= must;
        parsed.unknown[1] |= must && next & EVERYBODY == EVERYBODY && next != PDCP;
        next = left[length - 1];
        parsed.body += length;
    }
    if next != 0 { Err(("gtpu_extension", Told::Nothing)) } else { Ok(parsed) }
}

/// The packet as it came in its tunnel (TS 23.501 5.8.2.2: of its subscriber's address alone), and what that met of congestion.
fn uplink(session: &mut Subscriber, body: &[u8], class: u8) -> Result<Vec<u8>, &'static str> {
    let (length, source) = match body.first().map(|first| first >> 4) {
        Some(4) if body.len() >= ipv4::field::HEADER => {
            let header = usize::from(body[0] & 0x0f) * 4;
            let length = usize::from(be16(body, ipv4::field::LENGTH));
            if header < ipv4::field::HEADER || length < header {
                return Err("gtpu_inner");
            }
            (length, IpAddr::from(Ipv4Addr::from(be32(body, ipv4::field::SOURCE))))
        }
        Some(6) if body.len() >= ipv6::field::HEADER => {
            let source: [u8; 16] = body[ipv6::field::SOURCE].try_into().expect("16 octets");
            (usize::from(be16(body, 4..6)) + ipv6::field::HEADER, IpAddr::from(source))
        }
        _ => return Err("gtpu_inner"),
    };
    let mut packet = body.get(..length).ok_or("gtpu_inner")?.to_vec();
    if !session.has(source) {
        return Err("gtpu_spoofed");
    }
    let inner = class_of(&packet);
    let ecn = congestion(inner & 3, class & 3).ok_or("gtpu_congested")?;
    set_class(&mut packet, inner & 0xfc | ecn);
    session.account(0, length)?;
    Ok(packet)
}

/// The same as it leaves its tunnel.
fn marked(session: &Subscriber, came: &[u8]) -> Vec<u8> {
    let mut packet = came.to_vec();
    if let Some(dscp) = session.dscp[0] {
        let class = dscp << 2 | class_of(&packet) & 3;
        set_class(&mut packet, class);
    }
    packet
}

/// RFC 6040 4.2, figure 4; None = it is dropped.
fn congestion(inner: u8, outer: u8) -> Option<u8> {
    const FIGURE: [[Option<u8>; 4]; 4] = [
        // outer: Not-ECT, ECT(1), ECT(0), CE
        [Some(0), Some(0), Some(0), None],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(2), Some(1), Some(2), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    FIGURE[usize::from(inner)][usize::from(outer)]
}

fn set_class(packet: &mut [u8], class: u8) {
    if packet[0] >> 4 == 6 {
        let word = be16(packet, 0..2) & 0xf00f | u16::from(class) << 4;
        put_be16(packet, 0..2, word);
        return;
    }
    let header = usize::from(packet[0] & 0x0f) * 4;
    let was_right = internet(&packet[..header]) == 0;
    packet[1] = class;
    if was_right {
        put_be16(packet, ipv4::field::CHECKSUM, 0);
        let checksum = internet(&packet[..header]);
        put_be16(packet, ipv4::field::CHECKSUM, checksum);
    }
}

/// TS 23.501 5.8.2.3: the message as it is, but for its TEID.
fn onward(facts: &Facts, message: &Parsed, session: &mut Subscriber, class: u8) -> Fate {
    if message.kind == G_PDU
        && let Err(reason) = session.account(0, message.body().len())
    {
        return Fate::Refused(reason, None);
    }
    let mut bytes = vec![message.flags, message.kind];
    bytes.extend((message.rest.len() as u16).to_be_bytes());
    bytes.extend(session.peer_teid.to_be_bytes());
    bytes.extend(&message.rest);
    let class = session.dscp[0].map_or(class, |dscp| dscp << 2 | class & 3);
    Fate::Outward { message: bytes, class, outer4: session.outer4, sport: Some(facts.sport) }
}

/// TS 29.281 7.2, 7.3.
fn signal(facts: &Facts, message: &Parsed) -> Fate {
    match message.kind {
        ECHO_REQUEST => {
            // 7.2.2, 8.2: Recovery, whose restart counter is 0
            let [high, low] = message.sequence;
            let sequence = u16::from_be_bytes([high, low]);
            let answer = Message::signal(ECHO_RESPONSE, 0, sequence, &[14, 0]);
            Fate::Signal(to(facts, facts.sport, &answer))
        }
        ERROR_INDICATION if !names_a_tunnel(message.body()) => Fate::Refused("gtpu_malformed", None),
        ECHO_RESPONSE
        | VERSION_NOT_SUPPORTED
        | ERROR_INDICATION
        | EXTENSIONS_NOTIFICATION
        | TUNNEL_STATUS => Fate::Signal(None),
        _ => Fate::Refused("gtpu_message", None),
    }
}

/// 7.3.1: both mandatory elements (8.3, 8.4), in the order of their types.
fn names_a_tunnel(body: &[u8]) -> bool {
    let is_there = |body: &[u8]| {
        let length = usize::from(be16(body, 6..8));
        body[0] == 16 && body[5] == 133 && [4, 16].contains(&length) && body.len() >= 8 + length
    };
    body.len() >= 8 && is_there(body)
}

/// An answer, unless there is nobody to answer: its source is not one host (RFC 1122 3.2.1.3).
fn to(facts: &Facts, port: u16, message: &Message) -> Option<Answer> {
    let is_one = !facts.source.is_unspecified() && facts.source != facts.destination;
    is_one.then(|| Answer { port, message: message.bytes() })
}

fn refuse(facts: &Facts, reason: &'static str, told: &Told, message: Option<&Parsed>) -> Fate {
    let answer = match told {
        Told::Nothing => None,
        // TS 29.060 7.2.3, 11.1.1
        Told::Version => to(facts, facts.sport, &Message::signal(VERSION_NOT_SUPPORTED, 0, 0, &[])),
        // 7.2.3: the types that are understood
        Told::Extensions => {
            let known = [141, 2, 0x40, CONTAINER];
            to(facts, gtpu::PORT, &Message::signal(EXTENSIONS_NOTIFICATION, 0, 0, &known))
        }
        Told::Error => {
            to(facts, gtpu::PORT, &error_indication(facts, message.map_or(0, |message| message.teid)))
        }
    };
    Fate::Refused(reason, answer)
}

/// 7.3.1: TEID and address of what was sent, and its source port in a UDP Port header (5.2.2.1).
fn error_indication(facts: &Facts, teid: u32) -> Message {
    let own = match facts.destination {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let elements = [&[16][..], &teid.to_be_bytes(), &[133, 0, own.len() as u8], &own].concat();
    Message::signal(ERROR_INDICATION, 0, 0, &elements).with(&[(0x40, &facts.sport.to_be_bytes())])
}
