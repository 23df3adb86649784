//! Messages of GTP-U as TS 29.281 section 5 has them, and the frames around them, written from the specifications and not
//! from the programs under test.

use std::net::IpAddr;

use sluice_wire::Mac;
use sluice_wire::gtpu::{EXTENSION_PRESENT, G_PDU, LONG, PORT, SEQUENCE_PRESENT, VERSION_1};
use sluice_wire::text::bytes;

/// A message by its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// First octet: version, protocol type, E, S and PN.
    pub flags: u8,
    /// Section 6.1.
    pub kind: u8,
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// If one of the flags says so, with the type of the first extension header.
    pub options: [u8; 4],
    /// Extension headers.
    pub extensions: Vec<u8>,
    /// Information elements, or the packet in the tunnel.
    pub body: Vec<u8>,
    /// In the place of the right one.
    pub length: Option<u16>,
}

impl Message {
    /// A user's packet without optional fields.
    pub fn data(teid: u32, packet: &[u8]) -> Message {
        Message {
            flags: VERSION_1,
            kind: G_PDU,
            teid,
            options: [0; 4],
            extensions: Vec::new(),
            body: packet.to_vec(),
            length: None,
        }
    }

    /// A message with a sequence number.
    pub fn signal(kind: u8, teid: u32, sequence: u16, body: &[u8]) -> Message {
        let [high, low] = sequence.to_be_bytes();
        let flags = VERSION_1 | SEQUENCE_PRESENT;
        Message { flags, kind, options: [high, low, 0, 0], ..Message::data(teid, body) }
    }

    /// With extension headers, each a type and its content: two octets, or four more than that by and by.
    pub fn with(mut self, chain: &[(u8, &[u8])]) -> Message {
        self.flags |= EXTENSION_PRESENT;
        self.options[3] = chain.first().map_or(0, |(kind, _)| *kind);
        self.extensions.clear();
        for (number, (_, content)) in chain.iter().enumerate() {
            let next = chain.get(number + 1).map_or(0, |(kind, _)| *kind);
            self.extensions.push(((content.len() + 2) / 4) as u8);
            self.extensions.extend_from_slice(content);
            self.extensions.push(next);
        }
        self
    }

    /// As it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let options: &[u8] = if self.flags & LONG != 0 { &self.options } else { &[] };
        let rest = [options, &self.extensions, &self.body].concat();
        let length = self.length.unwrap_or(rest.len() as u16);
        let mut message = vec![self.flags, self.kind];
        message.extend(length.to_be_bytes());
        message.extend(self.teid.to_be_bytes());
        message.extend(rest);
        message
    }
}

/// The ends of an outer packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// MAC address, IP address and port of who sends it.
    pub from: (Mac, IpAddr, u16),
    /// And of whom it is for.
    pub to: (Mac, IpAddr, u16),
}

impl Ends {
    /// The other way.
    pub fn turned(self) -> Ends {
        Ends { from: self.to, to: self.from }
    }

    /// A message as base stations send it. `fields` are more ones of the IP header, `udp` of the UDP header.
    pub fn frame_with(self, message: &[u8], fields: &str, udp: &str) -> Vec<u8> {
        let ((smac, source, sport), (dmac, destination, dport)) = (self.from, self.to);
        let ip = if source.is_ipv4() { "ip" } else { "ip6" };
        let digits: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!(
            "eth(dst={dmac}, src={smac})/{ip}(src={source}, dst={destination}{fields})/udp(sport={sport}, dport={dport}{udp})/0x{digits}"
        );
        bytes(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A message without anything special about the headers before it.
    pub fn frame(self, message: &[u8]) -> Vec<u8> {
        self.frame_with(message, "", "")
    }

    /// A user's packet as it leaves this gateway: hops from 64 on, DF, no UDP checksum (RFC 6935), and this traffic class.
    pub fn tunnelled(self, message: &[u8], class: u8) -> Vec<u8> {
        let fields = match self.from.1 {
            IpAddr::V4(_) => format!(", ttl=64, df, id=0, tos=0x{class:x}"),
            IpAddr::V6(_) => format!(", hop=64, tc=0x{class:x}"),
        };
        self.frame_with(message, &fields, ", csum=0")
    }

    /// A message that this gateway itself sends.
    pub fn signalled(self, message: &[u8]) -> Vec<u8> {
        let fields = if self.from.1.is_ipv4() { ", ttl=64, id=0" } else { ", hop=64" };
        self.frame_with(message, fields, "")
    }
}

/// Any end of a tunnel sends to this port.
pub const TO_PORT: u16 = PORT;

/// An IP packet of the text form.
pub fn packet(text: &str) -> Vec<u8> {
    bytes(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
