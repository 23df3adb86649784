//! Builds frames layer by layer, from the inside out.

#![allow(dead_code, reason = "each test file uses some of it")]

use sluice_monitor::frame::{Frame, LinkType};
use sluice_monitor::observation::{Observation, Unknown};

pub const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];

/// Joins headers and payload.
pub fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

pub fn eth(kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[2, 0, 0, 0, 0, 0x0b], &SOURCE, &kind.to_be_bytes(), payload])
}

/// A VLAN tag of this type with what follows it, to be put into [`eth`] under the type of the tag.
pub fn tag(vlan: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&vlan.to_be_bytes(), &kind.to_be_bytes(), payload])
}

/// IPv4 10.0.0.1 > 10.0.0.2; `fragment` are flags and offset.
pub fn ipv4(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut bytes = vec![0x40 | (header_len / 4) as u8, 0];
    bytes.extend(((header_len + payload.len()) as u16).to_be_bytes());
    bytes.extend([0, 7]);
    bytes.extend(fragment.to_be_bytes());
    bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend(options);
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub fn ip4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4(protocol, 0, &[], payload)
}

/// IPv6 2001:db8::1 > 2001:db8::2.
pub fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
    let address = |last| [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let length = (payload.len() as u16).to_be_bytes();
    join(&[&[0x60, 0, 0, 0], &length, &[next, 64], &address(1), &address(2), payload])
}

pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len() as u16).to_be_bytes();
    join(&[&source.to_be_bytes(), &destination.to_be_bytes(), &length, &[0, 0], payload])
}

pub fn esp(spi: u32, sequence: u32, payload: &[u8]) -> Vec<u8> {
    join(&[&spi.to_be_bytes(), &sequence.to_be_bytes(), payload])
}

pub fn ah(next: u8, spi: u32, sequence: u32, icv: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (12 + icv.len()) / 4 - 2;
    join(&[&[next, words as u8, 0, 0], &spi.to_be_bytes(), &sequence.to_be_bytes(), icv, payload])
}

/// What follows the MACsec ethertype: tag, secure data, ICV.
pub fn sectag(tci_an: u8, sl: u8, number: u32, sci: Option<u64>, secured: &[u8]) -> Vec<u8> {
    let sci = sci.map_or(vec![], |sci| sci.to_be_bytes().to_vec());
    join(&[&[tci_an, sl], &number.to_be_bytes(), &sci, secured, &[0xcc; 16]])
}

/// GTP-U with a payload and, if given, the four optional bytes.
pub fn gtpu(flags: u8, message: u8, teid: u32, optional: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let optional = optional.map_or(vec![], |bytes| bytes.to_vec());
    let length = ((optional.len() + payload.len()) as u16).to_be_bytes();
    join(&[&[flags, message], &length, &teid.to_be_bytes(), &optional, payload])
}

/// EAPOL with an MKPDU: basic parameter set, then `rest`.
pub fn mka(sci: u64, member: [u8; 12], number: u32, ckn: &[u8], rest: &[u8]) -> Vec<u8> {
    let body = (28 + ckn.len()) as u16 | 0xe000;
    let mut set = join(&[&[3, 16], &body.to_be_bytes(), &sci.to_be_bytes(), &member, &number.to_be_bytes()]);
    set.extend([0x00, 0x80, 0xc2, 0x01]);
    set.extend(ckn);
    set.resize(set.len().next_multiple_of(4), 0);
    set.extend(rest);
    set.extend([0xee; 16]);
    join(&[&[3, 5], &(set.len() as u16).to_be_bytes(), &set])
}

pub fn ike(initiator: u64, responder: u64, version: u8, payload: &[u8]) -> Vec<u8> {
    let length = (28 + payload.len() as u32).to_be_bytes();
    let kind = [33, version, 35, 0x08, 0, 0, 0, 0];
    join(&[&initiator.to_be_bytes(), &responder.to_be_bytes(), &kind, &length, payload])
}

pub fn observe_as(link: LinkType, data: &[u8], wire_len: usize) -> Result<Observation, Unknown> {
    let wire_len = wire_len as u32;
    sluice_monitor::protocol::observe(&Frame { time_ns: 1, interface: 0, wire_len, link, data, number: 1 })
}

/// An Ethernet frame, complete.
pub fn observe(data: &[u8]) -> Result<Observation, Unknown> {
    observe_as(LinkType::Ethernet, data, data.len())
}
