//! IPv4 (RFC 791) and IPv6 (RFC 8200) as carriers: options, extension headers and fragments are passed over.

use sluice_wire::fields::{be16, octets};
use sluice_wire::protocol::{AH, DESTINATION_OPTIONS, ESP, FRAGMENT, HOP_BY_HOP, MOBILITY, ROUTING, UDP};
use sluice_wire::{ipv4, ipv6, ipv6_ext};

use super::{Packet, ah, esp, udp};
use crate::observation::{ChannelKey, Flags, Observation, Protocol, Unknown};

/// Extension headers that are passed over before a packet is given up: RFC 8200 4.1 has seven kinds.
const MOST_EXTENSIONS: usize = 8;

/// Source and destination, from which every key is made.
#[derive(Clone, Copy)]
pub(super) enum Addresses {
    V4([u8; 4], [u8; 4]),
    V6([u8; 16], [u8; 16]),
}

impl Addresses {
    #[inline(always)]
    pub fn key(&self, protocol: Protocol, id: u32, packet: &Packet<'_>) -> ChannelKey {
        match *self {
            Addresses::V4(source, destination) => {
                ChannelKey::ipv4(protocol, source, destination, id, packet.location())
            }
            Addresses::V6(source, destination) => {
                ChannelKey::ipv6(protocol, source, destination, id, packet.location())
            }
        }
    }

    /// IPv6 keys have no room for ports, and IPv6 addresses are not shared by a NAT.
    #[inline(always)]
    pub fn key_with_ports(
        &self,
        protocol: Protocol,
        id: u32,
        ports: (u16, u16),
        packet: &Packet<'_>,
    ) -> ChannelKey {
        let key = self.key(protocol, id, packet);
        match self {
            Addresses::V4(..) => key.with_ports(ports.0, ports.1),
            Addresses::V6(..) => key,
        }
    }
}

/// Whichever version the first four bits name.
pub(super) fn any(packet: Packet<'_>) -> Result<Observation, Unknown> {
    match packet.data.first().map(|byte| ipv4::version(*byte)) {
        Some(4) => v4(packet),
        Some(6) => v6(packet),
        Some(_) => Err(Unknown::Malformed("IP header: neither version 4 nor 6")),
        None => Err(Unknown::Short("IP header")),
    }
}

#[inline(always)]
pub(super) fn v4(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use ipv4::field;
    let header: &[u8; field::HEADER] = packet.head("IPv4 header")?;
    let version_ihl = header[field::VERSION_IHL];
    let header_len = ipv4::header_length(version_ihl);
    if ipv4::version(version_ihl) != 4 || header_len < field::HEADER {
        return Err(Unknown::Malformed("IPv4 header: version or header length"));
    }
    let total = u32::from(be16(header, field::LENGTH));
    // 0: left to the network card by segmentation offload, where the machine captured its own sending.
    let mut packet = if total == 0 { packet } else { packet.ending(total) };
    if total != 0 && (total as usize) < header_len {
        return Err(Unknown::Malformed("IPv4 header: total length below header length"));
    }
    let fragment = be16(header, field::FLAGS_OFFSET);
    if fragment & ipv4::OFFSET_MASK != 0 {
        return Err(Unknown::Fragment);
    }
    if fragment & ipv4::FLAG_MORE_FRAGMENTS != 0 {
        packet.flags = packet.flags.with(Flags::FRAGMENT);
    }
    let addresses = Addresses::V4(octets(header, field::SOURCE), octets(header, field::DESTINATION));
    payload(header[field::PROTOCOL], addresses, packet.after(header_len, "IPv4 options")?)
}

#[inline(always)]
pub(super) fn v6(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use ipv6::field;
    let header: &[u8; field::HEADER] = packet.head("IPv6 header")?;
    if ipv4::version(header[field::VERSION_CLASS_FLOW.start]) != 6 {
        return Err(Unknown::Malformed("IPv6 header: version"));
    }
    let length = u32::from(be16(header, field::PAYLOAD_LENGTH));
    let addresses = Addresses::V6(octets(header, field::SOURCE), octets(header, field::DESTINATION));
    let packet = packet.after(field::HEADER, "IPv6 header")?;
    // 0: a jumbogram (RFC 2675), or offload as in IPv4.
    let packet = if length == 0 { packet } else { packet.ending(length) };
    extensions(header[field::NEXT_HEADER], addresses, packet)
}

/// RFC 8200 section 4, RFC 6275 section 6.1 (mobility).
#[inline(always)]
fn extensions(mut next: u8, addresses: Addresses, mut packet: Packet<'_>) -> Result<Observation, Unknown> {
    use ipv6_ext::field;
    for _ in 0..=MOST_EXTENSIONS {
        match next {
            FRAGMENT => {
                let fragment: &[u8; field::UNIT] = packet.head("IPv6 fragment header")?;
                let offset_more = be16(fragment, field::OFFSET_MORE);
                if offset_more & ipv6_ext::OFFSET_MASK != 0 {
                    return Err(Unknown::Fragment);
                }
                if offset_more & ipv6_ext::MORE != 0 {
                    packet.flags = packet.flags.with(Flags::FRAGMENT);
                }
                next = fragment[field::NEXT_HEADER];
                packet = packet.after(field::UNIT, "IPv6 fragment header")?;
            }
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY => {
                let extension: &[u8; 2] = packet.head("IPv6 extension header")?;
                next = extension[field::NEXT_HEADER];
                let length = ipv6_ext::length(extension[field::LENGTH]);
                packet = packet.after(length, "IPv6 extension header")?;
            }
            _ => return payload(next, addresses, packet),
        }
    }
    Err(Unknown::Malformed("IPv6 header: more than 8 extension headers"))
}

#[inline(always)]
fn payload(protocol: u8, addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    match protocol {
        ESP => {
            let (id, seen) = esp::observe(packet)?;
            Ok(Observation { key: addresses.key(Protocol::Esp, id, &packet), ..seen })
        }
        UDP => udp::observe(addresses, packet),
        AH => ah::observe(addresses, packet),
        _ => Err(Unknown::IpProtocol(protocol)),
    }
}
