//! Frames of every protocol, complete with lengths and checksums.
//!
//! A frame is a pure function of flow, key and number, so that a copy can be made at any later time without keeping the
//! original.

use sluice_wire::checksum::Pseudo;
use sluice_wire::ike::{self, NAT_TRAVERSAL_PORT};
use sluice_wire::udp::DISCARD_PORT;
use sluice_wire::{
    Mac, ah, arp, esp, eth, ethertype, gtpu, icmpv4, ipv4, ipv6, macsec, protocol, tcp, udp, vlan,
};

use super::Size;
use super::flow::{Carrier, Flow};
use super::random::{Random, mix};
use crate::observation::Vlans;

/// Shortest frame without FCS.
const MIN_FRAME: usize = eth::SHORTEST - eth::FCS;
const IPV4: usize = ipv4::field::HEADER;
const IPV6: usize = ipv6::field::HEADER;
const UDP: usize = udp::field::HEADER;
const ESP: usize = esp::field::HEADER;
/// Of MACsec and ESP.
const ICV: usize = macsec::ICV;
/// Of a client.
const SOME_PORT: u16 = 40_000;

/// Longest frame that can be asked for.
pub const MAX_SIZE: usize = 9216;

/// Builds frames.
#[derive(Clone, Debug)]
pub struct Builder {
    seed: u64,
    size: Size,
    /// Random bytes that payloads are cut from.
    body: Vec<u8>,
}

/// The packet to be built.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub flow: Flow,
    pub key: u32,
    pub number: u64,
}

impl Packet {
    /// Header between the flow's stations; the numbers of packets are their identifications, too.
    fn ipv4(&self, protocol: u8, payload: usize, out: &mut Vec<u8>) {
        let (from, to) = (self.flow.ipv4(true), self.flow.ipv4(false));
        ipv4_header((from, to), protocol, payload, self.number as u16, out);
    }

    fn ipv6(&self, next_header: u8, payload: usize, out: &mut Vec<u8>) {
        let (source, destination) = (self.flow.ipv6(true).into(), self.flow.ipv6(false).into());
        ipv6::Builder { source, destination, next_header, ..ipv6::Builder::default() }.append(payload, out);
    }
}

impl Builder {
    pub fn new(seed: u64, size: Size) -> Self {
        let mut random = Random::new(seed ^ 0x626f_6479);
        let words = (MAX_SIZE + 1024) / 8;
        let body = (0..words).flat_map(|_| random.next().to_ne_bytes()).collect();
        Builder { seed, size, body }
    }

    /// Appends the packet's frame.
    #[inline]
    pub fn build(&self, packet: &Packet, out: &mut Vec<u8>) {
        let flow = packet.flow;
        let salt = mix(self.seed ^ (u64::from(flow.number) << 32) ^ u64::from(packet.key));
        let content = mix(salt ^ packet.number);
        let size = self.size_of(content);
        let start = out.len();
        link(flow, out);
        // What is left for everything behind the tags and the ethertype.
        let room = size.saturating_sub(out.len() - start);
        let id = flow.key_id(packet.key, self.seed);
        match flow.carrier {
            Carrier::MacsecSci => self.macsec(packet, id as u8, content, room, true, out),
            Carrier::MacsecImplied => self.macsec(packet, id as u8, content, room, false, out),
            Carrier::Esp4 => {
                let length = esp_len(room.saturating_sub(IPV4));
                packet.ipv4(protocol::ESP, length, out);
                self.esp(id, packet.number, content, length, out);
            }
            Carrier::Esp6 => {
                let length = esp_len(room.saturating_sub(IPV6));
                packet.ipv6(protocol::ESP, length, out);
                self.esp(id, packet.number, content, length, out);
            }
            Carrier::EspUdp => {
                let length = esp_len(room.saturating_sub(IPV4 + UDP));
                packet.ipv4(protocol::UDP, UDP + length, out);
                udp_header(flow.ports(), length, out);
                self.esp(id, packet.number, content, length, out);
            }
            Carrier::Ah => self.ah(packet, id, content, room, out),
            Carrier::GtpU => self.gtpu(packet, id, content, room, out),
        }
    }

    fn size_of(&self, content: u64) -> usize {
        match self.size {
            Size::Fixed(size) => size,
            // Seven small, four middle, one large of twelve.
            Size::Imix => match (content >> 40) % 12 {
                0..7 => 64,
                7..11 => 594,
                _ => 1518,
            },
        }
    }

    fn fill(&self, content: u64, length: usize, out: &mut Vec<u8>) {
        let from = content as usize & 1023;
        out.extend_from_slice(&self.body[from..from + length]);
    }

    /// Readable payload that ends with bytes of its own; the zeros in front keep it from looking like any protocol.
    fn fill_unique(&self, content: u64, length: usize, out: &mut Vec<u8>) {
        let zeros = (length - 8).min(16);
        out.extend_from_slice(&[0; 16][..zeros]);
        self.fill(content, length - 8 - zeros, out);
        out.extend_from_slice(&(content >> 8).to_be_bytes());
    }

    /// An ICV.
    fn icv(content: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&content.to_be_bytes());
        out.extend_from_slice(&mix(content).to_be_bytes());
    }

    fn macsec(&self, packet: &Packet, an: u8, content: u64, room: usize, sci: bool, out: &mut Vec<u8>) {
        use macsec::{CHANGED, ENCRYPTED, END_STATION};
        let tag = macsec::Builder {
            // The source MAC stands for the SCI unless that is there.
            tci: ENCRYPTED | CHANGED | if sci { 0 } else { END_STATION },
            an,
            packet_number: packet.number as u32,
            sci: sci.then(|| packet.flow.sci()),
        };
        let data = room.saturating_sub(tag.header_length() + ICV).max(18);
        tag.append(data, out);
        self.fill(content, data, out);
        Self::icv(content, out);
    }

    /// With the implicit IV of RFC 8750.
    fn esp(&self, spi: u32, number: u64, content: u64, length: usize, out: &mut Vec<u8>) {
        esp::Builder { spi, sequence: number as u32 }.append(out);
        self.fill(content, length - ESP - ICV, out);
        Self::icv(content, out);
    }

    /// Around a UDP datagram.
    fn ah(&self, packet: &Packet, spi: u32, content: u64, room: usize, out: &mut Vec<u8>) {
        // 96 bits (RFC 4302 2.2).
        let mut icv = [0; 12];
        icv[..8].copy_from_slice(&content.to_be_bytes());
        icv[8..].copy_from_slice(&(mix(content) as u32).to_be_bytes());
        let header = ah::field::HEADER + icv.len();
        let data = room.saturating_sub(IPV4 + header + UDP).max(8);
        packet.ipv4(protocol::AH, header + UDP + data, out);
        let (next_header, sequence) = (protocol::UDP, packet.number as u32);
        ah::Builder { next_header, spi, sequence }.append(&icv, out);
        udp_header((DISCARD_PORT, DISCARD_PORT), data, out);
        self.fill_unique(content, data, out);
    }

    /// A G-PDU with sequence number around a small IP packet.
    fn gtpu(&self, packet: &Packet, teid: u32, content: u64, room: usize, out: &mut Vec<u8>) {
        let (flow, number) = (packet.flow, packet.number as u16);
        let header = gtpu::Builder { teid, sequence: Some(number) };
        let data = room.saturating_sub(2 * (IPV4 + UDP) + header.header_length()).max(8);
        let inner = IPV4 + UDP + data;
        packet.ipv4(protocol::UDP, UDP + header.header_length() + inner, out);
        udp_header((gtpu::PORT, gtpu::PORT), header.header_length() + inner, out);
        header.append(inner, out);
        let [_, a, b, c] = flow.number.to_be_bytes();
        let (user, server) = ([10, 200 | (a & 31), b, c], [198, 18, b, c]);
        let ends = if flow.number & 1 == 0 { (user, server) } else { (server, user) };
        ipv4_header(ends, protocol::UDP, UDP + data, number, out);
        udp_header((SOME_PORT, DISCARD_PORT), data, out);
        self.fill_unique(content, data, out);
    }
}

/// Length of an ESP packet that fits into `room`: header, ciphertext in whole words, ICV.
fn esp_len(room: usize) -> usize {
    let words = room.saturating_sub(ESP + ICV) / esp::ALIGNMENT;
    ESP + ICV + words.max(1) * esp::ALIGNMENT
}

/// Ethernet header and tags of a flow's frames.
fn link(flow: Flow, out: &mut Vec<u8>) {
    let kind = match flow.carrier {
        Carrier::MacsecSci | Carrier::MacsecImplied => ethertype::MACSEC,
        Carrier::Esp6 => ethertype::IPV6,
        Carrier::Esp4 | Carrier::EspUdp | Carrier::Ah | Carrier::GtpU => ethertype::IPV4,
    };
    let Vlans { outer, inner } = flow.vlans;
    let behind_outer = if inner != 0 { ethertype::VLAN } else { kind };
    let first = if outer != 0 { ethertype::SERVICE_VLAN } else { behind_outer };
    let (destination, source) = (Mac(flow.mac(false)), Mac(flow.mac(true)));
    eth::Builder { destination, source, ethertype: first }.append(out);
    for (id, ethertype) in [(outer, behind_outer), (inner, kind)].into_iter().filter(|(id, _)| *id != 0) {
        vlan::Builder { id, ethertype, ..vlan::Builder::default() }.append(out);
    }
}

/// Header of a packet that must not be fragmented.
fn ipv4_header((from, to): ([u8; 4], [u8; 4]), protocol: u8, payload: usize, id: u16, out: &mut Vec<u8>) {
    let (source, destination, flags_offset) = (from.into(), to.into(), ipv4::FLAG_DONT_FRAGMENT);
    let header = ipv4::Builder { source, destination, protocol, id, flags_offset, ..Default::default() };
    header.append(payload, out);
}

/// A UDP header without checksum, which over IPv4 is allowed everywhere and for ESP demanded (RFC 3948 2.1).
fn udp_header((source_port, destination_port): (u16, u16), payload: usize, out: &mut Vec<u8>) {
    udp::Builder { source_port, destination_port, ..udp::Builder::default() }.append(payload, out);
}

/// Frames beside the flows in a mixed capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    Arp,
    Icmp,
    Tcp,
    Udp,
    Ike,
    IkeNatT,
    Keepalive,
}

impl Other {
    pub const ALL: [Other; 7] =
        [Other::Arp, Other::Icmp, Other::Tcp, Other::Udp, Other::Ike, Other::IkeNatT, Other::Keepalive];

    /// Appends a frame of this kind.
    pub fn build(self, random: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let (source, destination) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        let ethertype = if self == Other::Arp { ethertype::ARP } else { ethertype::IPV4 };
        eth::Builder { destination, source, ethertype }.append(out);
        let ends = ([192, 0, 2, 1 + (random & 63) as u8], [192, 0, 2, 129]);
        let ip = |protocol: u8, payload: usize, out: &mut Vec<u8>| {
            ipv4_header(ends, protocol, payload, random as u16, out);
        };
        let datagram = |ports: (u16, u16), payload: &[u8], out: &mut Vec<u8>| {
            ip(protocol::UDP, UDP + payload.len(), out);
            udp_header(ports, payload.len(), out);
            out.extend_from_slice(payload);
        };
        match self {
            Other::Arp => question(source, ends).append(out),
            Other::Icmp => {
                let message = icmpv4::Builder::echo_request(1, random as u16).build(&[random as u8; 48]);
                ip(protocol::ICMP, message.len(), out);
                out.extend(message);
            }
            Other::Tcp => {
                let segment = syn(random).build(&[], Pseudo::V4(ends.0.into(), ends.1.into()));
                ip(protocol::TCP, segment.len(), out);
                out.extend(segment);
            }
            Other::Udp => datagram((SOME_PORT, DISCARD_PORT), &[random as u8; 32], out),
            Other::Ike => datagram((ike::PORT, ike::PORT), &informational(random), out),
            Other::IkeNatT => {
                let message = [&ike::NON_ESP_MARKER[..], &informational(random)].concat();
                datagram((NAT_TRAVERSAL_PORT, NAT_TRAVERSAL_PORT), &message, out);
            }
            Other::Keepalive => {
                datagram((NAT_TRAVERSAL_PORT, NAT_TRAVERSAL_PORT), &[ike::KEEPALIVE], out);
            }
        }
        let length = out.len() - start;
        out.resize(start + length.max(MIN_FRAME), 0);
    }
}

/// Who has the other's address.
fn question(sender_mac: Mac, (from, to): ([u8; 4], [u8; 4])) -> arp::Builder {
    arp::Builder {
        operation: arp::REQUEST,
        sender_mac,
        sender_ip: from.into(),
        target_mac: Mac::default(),
        target_ip: to.into(),
    }
}

fn syn(random: u64) -> tcp::Builder {
    tcp::Builder {
        source_port: 32_768 | (random >> 40) as u16,
        destination_port: 80,
        sequence: random as u32,
        flags: tcp::SYN,
        window: u16::MAX,
        ..tcp::Builder::default()
    }
}

/// An IKEv2 INFORMATIONAL request with an empty encrypted payload (RFC 7296 3.1, 3.14).
fn informational(random: u64) -> Vec<u8> {
    // The payload's header, and content that is too short to be real.
    const PAYLOAD: usize = ike::PAYLOAD_HEADER + 4;
    // One IKE SA a station.
    let station = random & 63;
    let header = ike::Builder {
        initiator_spi: mix(station) | 1,
        responder_spi: mix(!station) | 1,
        next_payload: ike::PAYLOAD_SK,
        exchange: ike::INFORMATIONAL,
        flags: ike::INITIATOR,
        message_id: 2,
    };
    let mut out = Vec::with_capacity(ike::field::HEADER + PAYLOAD);
    header.append(PAYLOAD, &mut out);
    out.extend_from_slice(&[0, 0, 0, PAYLOAD as u8]);
    out.extend_from_slice(&(random as u32).to_be_bytes());
    out
}
