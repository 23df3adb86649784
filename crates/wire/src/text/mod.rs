//! Packets as readable layers:
//!
//! ```text
//! eth(dst=02:00:00:00:00:01, src=02:00:00:00:00:02)/ip(src=10.0.1.100, dst=10.0.2.100, ttl=64)/udp(sport=1000, dport=53)/"payload"
//! ```
//!
//! Types, lengths and checksums are right unless given (`csum=0xbad`). [`dissect`] is the way back and prints only
//! what is not the default, so that a dissected packet parses to the same bytes, whatever the bytes are.
//!
//! Layers: `eth vlan arp ip ip6 hbh dstopts routing fragment udp tcp icmp icmp6`, then payload as `"text"`, `0xbytes`
//! or `fill(n=1400, byte=0x61)`; `trailer(bytes=0x0000)` is Ethernet padding that no length counts; a final
//! `cut(n=20)` keeps only the first bytes of the frame; `quote=28` of an ICMP error keeps only so much of the
//! quoted packet.

mod diff;
mod dissect;
mod encode;
mod parse;
mod spec;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

pub use diff::diff;
pub use dissect::{dissect, dissect_ip};
pub use spec::Kind;

use crate::Mac;

/// Where and why a packet's text is not a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// Byte offset into the text.
    pub at: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "packet text, at character {}: {}", self.at + 1, self.message)
    }
}

impl std::error::Error for TextError {}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number of any width.
    Number(u64),
    /// A hardware address.
    Mac(Mac),
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address.
    V6(Ipv6Addr),
    /// Bytes of any number.
    Bytes(Vec<u8>),
}

/// One layer with the fields that were stated; the rest has defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// What it is a header of.
    pub kind: Kind,
    /// Fields by name, in the order in which they were stated.
    pub values: Vec<(&'static str, Value)>,
}

impl Layer {
    /// A layer without any field.
    pub fn new(kind: Kind) -> Layer {
        Layer { kind, values: Vec::new() }
    }

    /// Payload without any structure.
    pub fn raw(bytes: &[u8]) -> Layer {
        Layer::new(Kind::Raw).with("bytes", Value::Bytes(bytes.to_vec()))
    }

    /// States a field.
    pub fn with(mut self, name: &'static str, value: Value) -> Layer {
        self.set(name, value);
        self
    }

    /// States a field that is a number.
    pub fn number(self, name: &'static str, value: impl Into<u64>) -> Layer {
        self.with(name, Value::Number(value.into()))
    }

    /// States a field, replacing what was stated before.
    pub fn set(&mut self, name: &'static str, value: Value) {
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some(slot) => slot.1 = value,
            None => self.values.push((name, value)),
        }
    }

    /// What was stated of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// A packet as its list of layers, outermost first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packet {
    /// Outermost first.
    pub layers: Vec<Layer>,
}

impl Packet {
    /// Reads a packet's text.
    pub fn parse(text: &str) -> Result<Packet, TextError> {
        parse::packet(text)
    }

    /// The packet as it stands on the wire.
    pub fn to_bytes(&self) -> Result<Vec<u8>, TextError> {
        encode::packet(&self.layers)
    }

    /// The first layer of a kind.
    pub fn find(&self, kind: Kind) -> Option<&Layer> {
        self.layers.iter().find(|layer| layer.kind == kind)
    }
}

/// Text straight to bytes.
pub fn bytes(text: &str) -> Result<Vec<u8>, TextError> {
    Packet::parse(text)?.to_bytes()
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, layer) in self.layers.iter().enumerate() {
            if index != 0 {
                f.write_str("/")?;
            }
            layer.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Kind::Raw, Some(Value::Bytes(bytes))) = (self.kind, self.get("bytes")) {
            return write_payload(f, bytes);
        }
        write!(f, "{}(", self.kind.name())?;
        let stated = self.kind.fields().iter().filter_map(|field| Some((field, self.get(field.name)?)));
        for (index, (field, value)) in stated.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}={}", field.name, field.print(value))?;
        }
        f.write_str(")")
    }
}

/// Readable text in quotes, a long run of one byte as `fill`, all else in hex.
fn write_payload(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let plain = |b: &u8| (b' '..=b'~').contains(b) && *b != b'"';
    if bytes.len() > 32 && bytes.iter().all(|byte| *byte == bytes[0]) {
        write!(f, "fill(n={}, byte=0x{:02x})", bytes.len(), bytes[0])
    } else if bytes.iter().all(plain) {
        write!(f, "\"{}\"", String::from_utf8_lossy(bytes))
    } else {
        f.write_str(&spec::hex(bytes))
    }
}

#[cfg(test)]
mod tests;
