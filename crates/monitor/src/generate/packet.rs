//! Frames of every protocol, complete with lengths and checksums.
//!
//! A frame is a pure function of flow, key and number, so that a copy can be made at any later time without keeping the
//! original.

use super::Size;
use super::flow::{Carrier, Flow, NAT_T};
use super::random::{Random, mix};

/// Shortest frame without FCS (802.3).
const MIN_FRAME: usize = 60;
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
const ICV: usize = 16;
const GTPU_PORT: u16 = 2152;
/// The discard service: its payload means nothing to anybody.
const DISCARD: u16 = 9;

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
        out.extend_from_slice(&flow.mac(false));
        out.extend_from_slice(&flow.mac(true));
        let vlans = flow.vlans;
        if vlans.outer != 0 {
            out.extend_from_slice(&[0x88, 0xa8, (vlans.outer >> 8) as u8, vlans.outer as u8]);
        }
        if vlans.inner != 0 {
            out.extend_from_slice(&[0x81, 0x00, (vlans.inner >> 8) as u8, vlans.inner as u8]);
        }
        // What is left for everything behind the tags and the ethertype.
        let room = size.saturating_sub(out.len() - start + 2);
        let id = flow.key_id(packet.key, self.seed);
        match flow.carrier {
            Carrier::MacsecSci => self.macsec(packet, id as u8, content, room, true, out),
            Carrier::MacsecImplied => self.macsec(packet, id as u8, content, room, false, out),
            Carrier::Esp4 => {
                let length = esp_len(room.saturating_sub(IPV4));
                ipv4(flow.ipv4(true), flow.ipv4(false), 50, length, packet.number as u16, out);
                self.esp(id, packet.number, content, length, out);
            }
            Carrier::Esp6 => {
                let length = esp_len(room.saturating_sub(IPV6));
                ipv6(flow, 50, length, out);
                self.esp(id, packet.number, content, length, out);
            }
            Carrier::EspUdp => {
                let length = esp_len(room.saturating_sub(IPV4 + UDP));
                ipv4(flow.ipv4(true), flow.ipv4(false), 17, UDP + length, packet.number as u16, out);
                udp(flow.ports(), length, out);
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

    /// 802.1AE 9.3: TCI and AN, SL, PN, SCI.
    fn macsec(&self, packet: &Packet, an: u8, content: u64, room: usize, sci: bool, out: &mut Vec<u8>) {
        let tag = if sci { 14 } else { 6 };
        let data = room.saturating_sub(tag + ICV).max(18);
        // Encrypted, so E and C; ES tells that the source MAC stands for the SCI.
        let tci = if sci { 0b0010_1100 } else { 0b0100_1100 };
        // SL is the length of secure data below 48 bytes, else 0 (9.7).
        let short = if data < 48 { data as u8 } else { 0 };
        out.extend_from_slice(&[0x88, 0xe5, tci | an, short]);
        out.extend_from_slice(&(packet.number as u32).to_be_bytes());
        if sci {
            out.extend_from_slice(&packet.flow.sci().to_be_bytes());
        }
        self.fill(content, data, out);
        Self::icv(content, out);
    }

    /// RFC 4303 2, with the implicit IV of RFC 8750.
    fn esp(&self, spi: u32, number: u64, content: u64, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&spi.to_be_bytes());
        out.extend_from_slice(&(number as u32).to_be_bytes());
        self.fill(content, length - 8 - ICV, out);
        Self::icv(content, out);
    }

    /// RFC 4302 2, around a UDP datagram.
    fn ah(&self, packet: &Packet, spi: u32, content: u64, room: usize, out: &mut Vec<u8>) {
        let (flow, header) = (packet.flow, 24);
        let data = room.saturating_sub(IPV4 + header + UDP).max(8);
        ipv4(flow.ipv4(true), flow.ipv4(false), 51, header + UDP + data, packet.number as u16, out);
        // Length in words of 32 bits minus two (2.2); 96 bits of ICV.
        out.extend_from_slice(&[17, (header / 4 - 2) as u8, 0, 0]);
        out.extend_from_slice(&spi.to_be_bytes());
        out.extend_from_slice(&(packet.number as u32).to_be_bytes());
        out.extend_from_slice(&content.to_be_bytes());
        out.extend_from_slice(&(mix(content) as u32).to_be_bytes());
        udp((DISCARD, DISCARD), data, out);
        self.fill_unique(content, data, out);
    }

    /// TS 29.281 5.1: a G-PDU with sequence number around a small IP packet.
    fn gtpu(&self, packet: &Packet, teid: u32, content: u64, room: usize, out: &mut Vec<u8>) {
        let (flow, header) = (packet.flow, 12);
        let data = room.saturating_sub(2 * (IPV4 + UDP) + header).max(8);
        let inner = IPV4 + UDP + data;
        ipv4(flow.ipv4(true), flow.ipv4(false), 17, UDP + header + inner, packet.number as u16, out);
        udp((GTPU_PORT, GTPU_PORT), header + inner, out);
        let length = (inner + 4) as u16;
        out.extend_from_slice(&[0x32, 0xff, (length >> 8) as u8, length as u8]);
        out.extend_from_slice(&teid.to_be_bytes());
        let [high, low] = (packet.number as u16).to_be_bytes();
        out.extend_from_slice(&[high, low, 0, 0]);
        let [_, a, b, c] = flow.number.to_be_bytes();
        let (user, server) = ([10, 200 | (a & 31), b, c], [198, 18, b, c]);
        let (from, to) = if flow.number & 1 == 0 { (user, server) } else { (server, user) };
        bare_ipv4(from, to, 17, UDP + data, packet.number as u16, out);
        udp((40_000, DISCARD), data, out);
        self.fill_unique(content, data, out);
    }
}

/// Length of an ESP packet that fits into `room`: header, ciphertext in words of 32 bits (RFC 4303 2.4), ICV.
fn esp_len(room: usize) -> usize {
    8 + ICV + (room.saturating_sub(8 + ICV) / 4 * 4).max(4)
}

/// Ethertype and header of an IPv4 packet.
fn ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: usize, id: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x08, 0x00]);
    bare_ipv4(from, to, protocol, payload, id, out);
}

fn bare_ipv4(from: [u8; 4], to: [u8; 4], protocol: u8, payload: usize, id: u16, out: &mut Vec<u8>) {
    let length = ((IPV4 + payload) as u16).to_be_bytes();
    let id = id.to_be_bytes();
    let mut header = [0; IPV4];
    // Do not fragment, TTL 64.
    header[..10].copy_from_slice(&[0x45, 0, length[0], length[1], id[0], id[1], 0x40, 0, 64, protocol]);
    header[12..16].copy_from_slice(&from);
    header[16..].copy_from_slice(&to);
    let sum = checksum(&header, 0).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    out.extend_from_slice(&header);
}

fn ipv6(flow: Flow, next: u8, payload: usize, out: &mut Vec<u8>) {
    let length = (payload as u16).to_be_bytes();
    out.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], next, 64]);
    out.extend_from_slice(&flow.ipv6(true));
    out.extend_from_slice(&flow.ipv6(false));
}

/// A UDP header without checksum, which over IPv4 is allowed everywhere and for ESP demanded (RFC 3948 2.1).
fn udp((from, to): (u16, u16), payload: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&from.to_be_bytes());
    out.extend_from_slice(&to.to_be_bytes());
    out.extend_from_slice(&((UDP + payload) as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
}

/// The Internet checksum (RFC 1071) of bytes and what was summed before.
fn checksum(bytes: &[u8], before: u32) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = before + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
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
        out.extend_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        let (from, to) = ([192, 0, 2, 1 + (random & 63) as u8], [192, 0, 2, 129]);
        match self {
            Other::Arp => {
                out.extend_from_slice(&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
                out.extend_from_slice(&from);
                out.extend_from_slice(&[0; 6]);
                out.extend_from_slice(&to);
            }
            Other::Icmp => echo(from, to, random, out),
            Other::Tcp => segment(from, to, random, out),
            Other::Udp => {
                ipv4(from, to, 17, UDP + 32, random as u16, out);
                udp((40_000, DISCARD), 32, out);
                out.extend_from_slice(&[random as u8; 32]);
            }
            Other::Ike => {
                ipv4(from, to, 17, UDP + 36, random as u16, out);
                udp((500, 500), 36, out);
                ike(random, out);
            }
            Other::IkeNatT => {
                ipv4(from, to, 17, UDP + 4 + 36, random as u16, out);
                udp((NAT_T, NAT_T), 4 + 36, out);
                // The non-ESP marker (RFC 3948 2.2).
                out.extend_from_slice(&[0; 4]);
                ike(random, out);
            }
            Other::Keepalive => {
                ipv4(from, to, 17, UDP + 1, random as u16, out);
                udp((NAT_T, NAT_T), 1, out);
                out.push(0xff);
            }
        }
        let length = out.len() - start;
        out.resize(start + length.max(MIN_FRAME), 0);
    }
}

/// ICMP echo request (RFC 792).
fn echo(from: [u8; 4], to: [u8; 4], random: u64, out: &mut Vec<u8>) {
    ipv4(from, to, 1, 8 + 48, random as u16, out);
    let mut message = [random as u8; 56];
    message[..8].copy_from_slice(&[8, 0, 0, 0, 0, 1, (random >> 8) as u8, random as u8]);
    let sum = checksum(&message, 0).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    out.extend_from_slice(&message);
}

/// A TCP SYN (RFC 9293 3.1).
fn segment(from: [u8; 4], to: [u8; 4], random: u64, out: &mut Vec<u8>) {
    ipv4(from, to, 6, 20, random as u16, out);
    let mut header = [0; 20];
    let port = (32_768 | (random >> 40) as u16).to_be_bytes();
    header[..4].copy_from_slice(&[port[0], port[1], 0, 80]);
    header[4..8].copy_from_slice(&(random as u32).to_be_bytes());
    header[12..16].copy_from_slice(&[0x50, 0x02, 0xff, 0xff]);
    let word = |bytes: [u8; 4]| {
        u32::from(u16::from_be_bytes([bytes[0], bytes[1]]))
            + u32::from(u16::from_be_bytes([bytes[2], bytes[3]]))
    };
    let sum = checksum(&header, word(from) + word(to) + 6 + 20).to_be_bytes();
    header[16..18].copy_from_slice(&sum);
    out.extend_from_slice(&header);
}

/// An IKEv2 INFORMATIONAL request with an empty encrypted payload (RFC 7296 3.1, 3.14).
fn ike(random: u64, out: &mut Vec<u8>) {
    // One IKE SA a station.
    let station = random & 63;
    out.extend_from_slice(&(mix(station) | 1).to_be_bytes());
    out.extend_from_slice(&(mix(!station) | 1).to_be_bytes());
    // Next payload SK, version 2.0, exchange 37, flag I; message identifier, length.
    out.extend_from_slice(&[46, 0x20, 37, 0x08, 0, 0, 0, 2, 0, 0, 0, 36]);
    // SK: no next payload, length 8, then its (too short to be real) content.
    out.extend_from_slice(&[0, 0, 0, 8]);
    out.extend_from_slice(&(random as u32).to_be_bytes());
}
