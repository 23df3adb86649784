//! Test packets: the template every frame is made from, and the ring entries with what differs.

use clap::ValueEnum;
use serde::Serialize;

use crate::generator::layouts::{
    FRAME_ROOM, FRAME_TTL, FRAME4_LEN, FRAME6_LEN, RingEntry4, RingEntry6, SINK_MAGIC,
};
use crate::method::stats::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "clap would take them for help")]
pub enum Family {
    V4,
    V6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "clap would take them for help")]
pub enum Protocol {
    Udp,
    Tcp,
}

/// Which packets of its sessions a ring holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Those of the client.
    Initiator,
    /// Those of the server.
    Responder,
    /// Both, shuffled: two distinct packets a session.
    Both,
}

/// Flag of the TCP header (RFC 9293 3.1).
pub const TCP_SYN: u8 = 0x02;
/// Flag of the TCP header (RFC 9293 3.1).
pub const TCP_ACK: u8 = 0x10;

/// First sequence number of both sides, so that one template serves both directions.
pub const TCP_START: u32 = 1_000_000;
const TCP_PAYLOAD_V4: u32 = 6;
const TCP_PAYLOAD_V6: u32 = 4;

const ETHERNET: usize = 14;

/// Clients 10.64.0.0/16 and servers 10.128.0.0/20, or fd00:64::/64 and fd00:128::/64. A client's address and source
/// port name the session, so that sessions never collide; the server varies as it would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuple {
    /// Low 16 bits of the client's address.
    pub client: u16,
    /// From 1024 on.
    pub client_port: u16,
    /// Low 16 bits of the server's address.
    pub server: u16,
    /// From [`SERVER_PORTS`] on.
    pub server_port: u16,
}

/// First 16 bits of IPv4 clients' addresses.
pub const CLIENTS4: [u8; 2] = [10, 64];
/// First 16 bits of IPv4 servers' addresses.
pub const SERVERS4: [u8; 2] = [10, 128];
/// Second word of IPv6 clients' addresses, as its digits are written.
pub const CLIENTS6: u16 = 0x64;
/// Second word of IPv6 servers' addresses, as its digits are written.
pub const SERVERS6: u16 = 0x128;
/// How many servers there are, and how many ports they listen on, as powers of two.
pub const SERVER_BITS: u32 = 12;
/// See [`SERVER_BITS`].
pub const SERVER_PORT_BITS: u32 = 9;
/// The first port they listen on.
pub const SERVER_PORTS: u16 = 1024;
/// More would need client ports below 1024.
pub const MAX_SESSION: usize = 65_536 * 60_000;

impl Tuple {
    /// Panics from [`MAX_SESSION`] on.
    pub fn of_session(session: usize) -> Tuple {
        assert!(session < MAX_SESSION);
        let mix = Rng::new(session as u64).next_u64();
        Tuple {
            client: (session & 0xffff) as u16,
            client_port: 1024 + (session >> 16) as u16,
            server: mix as u16 & ((1 << SERVER_BITS) - 1),
            server_port: SERVER_PORTS + ((mix >> 32) as u16 & ((1 << SERVER_PORT_BITS) - 1)),
        }
    }

    /// Address and port that a packet comes from, and those that it goes to.
    fn ends<A>(&self, client: A, server: A, reply: bool) -> ((A, u16), (A, u16)) {
        let (client, server) = ((client, self.client_port), (server, self.server_port));
        if reply { (server, client) } else { (client, server) }
    }
}

/// Headers and payload of a whole frame; addresses, ports and checksums come from a ring entry.
#[derive(Debug, Clone)]
pub struct Template {
    /// Of the addresses.
    pub family: Family,
    /// Of the headers behind them.
    pub protocol: Protocol,
    /// A SYN carries no data; what follows it is padding.
    syn: bool,
    /// The first [`Template::frame_len`] are the frame.
    pub bytes: [u8; FRAME_ROOM as usize],
}

impl Template {
    /// `tcp_flags` mean nothing for UDP.
    pub fn new(family: Family, protocol: Protocol, dmac: [u8; 6], smac: [u8; 6], tcp_flags: u8) -> Template {
        let syn = protocol == Protocol::Tcp && tcp_flags & TCP_SYN != 0;
        let mut template = Template { family, protocol, syn, bytes: [0; FRAME_ROOM as usize] };
        template.put(0, &dmac);
        template.put(6, &smac);
        match family {
            Family::V4 => template.ipv4(),
            Family::V6 => template.ipv6(),
        }
        match protocol {
            Protocol::Udp => template.udp(),
            Protocol::Tcp => template.tcp(tcp_flags),
        }
        template
    }

    /// In bytes, without FCS.
    pub fn frame_len(&self) -> usize {
        match self.family {
            Family::V4 => FRAME4_LEN as usize,
            Family::V6 => FRAME6_LEN as usize,
        }
    }

    /// TCP payload bytes of a frame.
    pub fn tcp_payload(&self) -> u32 {
        match (self.protocol, self.family) {
            (Protocol::Udp, _) => 0,
            _ if self.syn => 0,
            (Protocol::Tcp, Family::V4) => TCP_PAYLOAD_V4,
            (Protocol::Tcp, Family::V6) => TCP_PAYLOAD_V6,
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn proto(&self) -> u8 {
        match self.protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
        }
    }

    /// Offset of the UDP or TCP header.
    fn l4(&self) -> usize {
        match self.family {
            Family::V4 => ETHERNET + 20,
            Family::V6 => ETHERNET + 40,
        }
    }

    /// End of the IP packet in the frame.
    fn ip_end(&self) -> usize {
        if self.syn { self.l4() + 20 } else { self.frame_len() }
    }

    fn ipv4(&mut self) {
        let length = (self.ip_end() - ETHERNET) as u16;
        self.put(12, &[0x08, 0x00]);
        self.put(ETHERNET, &[0x45, 0]);
        self.put(ETHERNET + 2, &length.to_be_bytes());
        self.put(ETHERNET + 6, &[0x40, 0]); // don't fragment
        self.put(ETHERNET + 8, &[FRAME_TTL as u8, self.proto()]);
    }

    fn ipv6(&mut self) {
        let length = (self.ip_end() - self.l4()) as u16;
        self.put(12, &[0x86, 0xdd, 0x60]);
        self.put(ETHERNET + 4, &length.to_be_bytes());
        self.put(ETHERNET + 6, &[self.proto(), FRAME_TTL as u8]);
    }

    fn udp(&mut self) {
        let l4 = self.l4();
        let length = (self.frame_len() - l4) as u16;
        self.put(l4 + 4, &length.to_be_bytes());
        self.put(l4 + 8, &SINK_MAGIC.to_be_bytes());
    }

    /// The complement of the sequence number fills the payload, so that neither changes the checksum.
    fn tcp(&mut self, flags: u8) {
        let l4 = self.l4();
        let sequence = if flags & TCP_SYN != 0 { TCP_START } else { TCP_START + 1 };
        let acknowledged = if flags & TCP_ACK != 0 { TCP_START + 1 } else { 0 };
        self.put(l4 + 4, &sequence.to_be_bytes());
        self.put(l4 + 8, &acknowledged.to_be_bytes());
        self.put(l4 + 12, &[0x50, flags, 0xff, 0xff]);
        self.put(l4 + 20, &(!sequence).to_be_bytes());
    }

    /// The entry of one packet, checksums included.
    pub fn entry4(&self, tuple: Tuple, reply: bool) -> RingEntry4 {
        let (client, server) = (address4(CLIENTS4, tuple.client), address4(SERVERS4, tuple.server));
        let (from, to) = tuple.ends(client, server, reply);
        self.entry4_between(from.0, to.0, from.1, to.1)
    }

    /// The same for any addresses and ports.
    pub fn entry4_between(&self, saddr: [u8; 4], daddr: [u8; 4], sport: u16, dport: u16) -> RingEntry4 {
        let mut frame = self.bytes;
        frame[ETHERNET + 12..ETHERNET + 16].copy_from_slice(&saddr);
        frame[ETHERNET + 16..ETHERNET + 20].copy_from_slice(&daddr);
        let check = !sum(&frame[ETHERNET..ETHERNET + 20]);
        RingEntry4 {
            be_saddr: u32::from_ne_bytes(saddr),
            be_daddr: u32::from_ne_bytes(daddr),
            be_sport: sport.to_be(),
            be_dport: dport.to_be(),
            be_ip_check: check.to_be(),
            be_l4_check: self.l4_check(&[saddr, daddr].concat(), sport, dport).to_be(),
        }
    }

    /// As `entry4`, for IPv6.
    pub fn entry6(&self, tuple: Tuple, reply: bool) -> RingEntry6 {
        let (client, server) = (address6(CLIENTS6, tuple.client), address6(SERVERS6, tuple.server));
        let (from, to) = tuple.ends(client, server, reply);
        self.entry6_between(from.0, to.0, from.1, to.1)
    }

    /// The same for any addresses and ports.
    pub fn entry6_between(&self, saddr: [u8; 16], daddr: [u8; 16], sport: u16, dport: u16) -> RingEntry6 {
        let words = |address: [u8; 16]| {
            let word = |i: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| address[4 * i + byte]));
            [0, 1, 2, 3].map(word)
        };
        RingEntry6 {
            be_saddr: words(saddr),
            be_daddr: words(daddr),
            be_sport: sport.to_be(),
            be_dport: dport.to_be(),
            be_l4_check: self.l4_check(&[saddr, daddr].concat(), sport, dport).to_be(),
            zero: 0,
        }
    }

    /// The frame that the wrapper makes of this template and an entry; `sequence` is TCP's.
    pub fn frame4(&self, entry: &RingEntry4, sequence: u32) -> Vec<u8> {
        let mut frame = self.bytes[..self.frame_len()].to_vec();
        frame[24..26].copy_from_slice(&entry.be_ip_check.to_ne_bytes());
        frame[26..30].copy_from_slice(&entry.be_saddr.to_ne_bytes());
        frame[30..34].copy_from_slice(&entry.be_daddr.to_ne_bytes());
        self.finish(&mut frame, [entry.be_sport, entry.be_dport, entry.be_l4_check], sequence);
        frame
    }

    /// As `frame4`, for IPv6.
    pub fn frame6(&self, entry: &RingEntry6, sequence: u32) -> Vec<u8> {
        let mut frame = self.bytes[..self.frame_len()].to_vec();
        for (i, word) in entry.be_saddr.iter().chain(&entry.be_daddr).enumerate() {
            frame[22 + 4 * i..26 + 4 * i].copy_from_slice(&word.to_ne_bytes());
        }
        self.finish(&mut frame, [entry.be_sport, entry.be_dport, entry.be_l4_check], sequence);
        frame
    }

    /// Ports and checksum as they stand in memory, and TCP's sequence number with its complement.
    fn finish(&self, frame: &mut [u8], be: [u16; 3], sequence: u32) {
        let l4 = self.l4();
        let check = l4 + if self.protocol == Protocol::Tcp { 16 } else { 6 };
        for (at, word) in [l4, l4 + 2, check].into_iter().zip(be) {
            frame[at..at + 2].copy_from_slice(&word.to_ne_bytes());
        }
        if self.protocol == Protocol::Tcp {
            frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
            frame[l4 + 20..l4 + 24].copy_from_slice(&(!sequence).to_be_bytes());
        }
    }

    /// Bytes of the IP packet in a frame.
    pub fn ip_len(&self) -> usize {
        self.ip_end() - ETHERNET
    }

    /// RFC 768 and RFC 9293 section 3.1: over the pseudo header, the header and the payload.
    fn l4_check(&self, addresses: &[u8], sport: u16, dport: u16) -> u16 {
        let body = &self.bytes[self.l4() + 4..self.ip_end()];
        let length = (body.len() + 4) as u16;
        let mut covered = addresses.to_vec();
        covered.extend([0, self.proto()]);
        covered.extend([length, sport, dport].map(u16::to_be_bytes).concat());
        covered.extend(body);
        match !sum(&covered) {
            0 => 0xffff,
            check => check,
        }
    }
}

/// `prefix` is its first half, `host` its second.
pub fn address4(prefix: [u8; 2], host: u16) -> [u8; 4] {
    let [high, low] = host.to_be_bytes();
    [prefix[0], prefix[1], high, low]
}

/// fd00:`subnet`::`host`
pub fn address6(subnet: u16, host: u16) -> [u8; 16] {
    let mut address = [0; 16];
    address[..2].copy_from_slice(&[0xfd, 0x00]);
    address[2..4].copy_from_slice(&subnet.to_be_bytes());
    address[14..].copy_from_slice(&host.to_be_bytes());
    address
}

/// One's complement sum of 16-bit words, an odd last byte padded with zero (RFC 1071).
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut total: u32 = words.sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Sessions `first..first + count` in the order their packets shall come: (session, reply).
pub fn sequence(first: usize, count: usize, direction: Direction, seed: u64) -> Vec<(usize, bool)> {
    let sessions = first..first + count;
    let mut packets: Vec<(usize, bool)> = match direction {
        Direction::Initiator => sessions.map(|session| (session, false)).collect(),
        Direction::Responder => sessions.map(|session| (session, true)).collect(),
        Direction::Both => sessions.flat_map(|session| [(session, false), (session, true)]).collect(),
    };
    Rng::new(seed).shuffle(&mut packets);
    packets
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const DMAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SMAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

    #[test]
    fn checksums_hold_in_both_directions() {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            let template = Template::new(Family::V4, protocol, DMAC, SMAC, TCP_ACK);
            for session in [0, 1, 77_777, 999_999] {
                for reply in [false, true] {
                    let entry = template.entry4(Tuple::of_session(session), reply);
                    let frame = template.frame4(&entry, TCP_START + 1);
                    assert_eq!(sum(&frame[14..34]), 0xffff);
                    let mut pseudo = frame[26..34].to_vec();
                    pseudo.extend([0, frame[23], 0, (frame.len() - 34) as u8]);
                    pseudo.extend(&frame[34..]);
                    assert_eq!(sum(&pseudo), 0xffff, "{protocol:?} {session} {reply}");
                }
            }
        }
    }

    #[test]
    fn a_tcp_sequence_number_does_not_change_the_checksum() {
        let checks = [0, TCP_ACK].map(|flags| {
            let mut template = Template::new(Family::V6, Protocol::Tcp, DMAC, SMAC, flags);
            let before = template.entry6(Tuple::of_session(5), false).be_l4_check;
            template.put(template.l4() + 4, &[9, 8, 7, 6]);
            template.put(template.l4() + 20, &[!9, !8, !7, !6]);
            (before, template.entry6(Tuple::of_session(5), false).be_l4_check)
        });
        assert!(checks.iter().all(|(before, after)| before == after), "{checks:x?}");
    }

    #[test]
    fn sessions_never_share_a_tuple() {
        let tuples: HashSet<_> = (0..200_000)
            .map(Tuple::of_session)
            .map(|tuple| (tuple.client, tuple.client_port, tuple.server, tuple.server_port))
            .collect();
        assert_eq!(tuples.len(), 200_000);
    }

    #[test]
    fn a_ring_of_both_directions_holds_every_packet_once_in_random_order() {
        let packets = sequence(10, 1000, Direction::Both, 1);
        assert_eq!(packets.len(), 2000);
        assert_eq!(packets.iter().collect::<HashSet<_>>().len(), 2000);
        assert!(packets.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() < 20);
        assert!(packets.iter().all(|(session, _)| (10..1010).contains(session)));
    }

    #[test]
    fn frames_have_the_lengths_they_claim() {
        let v4 = Template::new(Family::V4, Protocol::Udp, DMAC, SMAC, 0);
        assert_eq!(v4.bytes[16..18], 46u16.to_be_bytes());
        assert_eq!(v4.bytes[38..40], 26u16.to_be_bytes());
        let v6 = Template::new(Family::V6, Protocol::Tcp, DMAC, SMAC, TCP_ACK);
        assert_eq!(v6.bytes[18..20], 24u16.to_be_bytes());
        let syn = Template::new(Family::V4, Protocol::Tcp, DMAC, SMAC, TCP_SYN);
        assert_eq!((&syn.bytes[16..18], syn.tcp_payload()), (&40u16.to_be_bytes()[..], 0));
    }
}
