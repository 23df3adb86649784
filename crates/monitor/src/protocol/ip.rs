//! IPv4 (RFC 791) and IPv6 (RFC 8200) as carriers: options, extension headers and fragments are passed over.

use super::{Packet, ah, be16, esp, udp};
use crate::observation::{ChannelKey, Flags, Observation, Protocol, Unknown};

const UDP: u8 = 17;
const ESP: u8 = 50;
const AH: u8 = 51;

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
                ChannelKey::ipv4(protocol, source, destination, id, packet.place())
            }
            Addresses::V6(source, destination) => {
                ChannelKey::ipv6(protocol, source, destination, id, packet.place())
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
    match packet.data.first().map(|byte| byte >> 4) {
        Some(4) => v4(packet),
        Some(6) => v6(packet),
        Some(_) => Err(Unknown::Malformed("IP header: neither version 4 nor 6")),
        None => Err(Unknown::Short("IP header")),
    }
}

#[inline(always)]
pub(super) fn v4(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; 20] = packet.head("IPv4 header")?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < 20 {
        return Err(Unknown::Malformed("IPv4 header: version or header length"));
    }
    let total = u32::from(be16(header, 2));
    // 0: left to the network card by segmentation offload, where the machine captured its own sending.
    let mut packet = if total == 0 { packet } else { packet.ending(total) };
    if total != 0 && (total as usize) < header_len {
        return Err(Unknown::Malformed("IPv4 header: total length below header length"));
    }
    let fragment = be16(header, 6);
    if fragment & 0x1fff != 0 {
        return Err(Unknown::Fragment);
    }
    if fragment & 0x2000 != 0 {
        packet.flags = packet.flags.with(Flags::FRAGMENT);
    }
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let addresses = Addresses::V4(address(12), address(16));
    payload(header[9], addresses, packet.after(header_len, "IPv4 options")?)
}

#[inline(always)]
pub(super) fn v6(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; 40] = packet.head("IPv6 header")?;
    if header[0] >> 4 != 6 {
        return Err(Unknown::Malformed("IPv6 header: version"));
    }
    let length = u32::from(be16(header, 4));
    let mut source = [0; 16];
    let mut destination = [0; 16];
    source.copy_from_slice(&header[8..24]);
    destination.copy_from_slice(&header[24..40]);
    let packet = packet.after(40, "IPv6 header")?;
    // 0: a jumbogram (RFC 2675), or offload as in IPv4.
    let packet = if length == 0 { packet } else { packet.ending(length) };
    extensions(header[6], Addresses::V6(source, destination), packet)
}

/// RFC 8200 section 4: hop-by-hop (0), routing (43), fragment (44), destination (60); RFC 6275: mobility (135).
#[inline(always)]
fn extensions(mut next: u8, addresses: Addresses, mut packet: Packet<'_>) -> Result<Observation, Unknown> {
    for _ in 0..=MOST_EXTENSIONS {
        match next {
            44 => {
                let fragment: &[u8; 8] = packet.head("IPv6 fragment header")?;
                if be16(fragment, 2) & 0xfff8 != 0 {
                    return Err(Unknown::Fragment);
                }
                if fragment[3] & 1 != 0 {
                    packet.flags = packet.flags.with(Flags::FRAGMENT);
                }
                next = fragment[0];
                packet = packet.after(8, "IPv6 fragment header")?;
            }
            0 | 43 | 60 | 135 => {
                let extension: &[u8; 2] = packet.head("IPv6 extension header")?;
                next = extension[0];
                packet = packet.after((usize::from(extension[1]) + 1) * 8, "IPv6 extension header")?;
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
