//! What a NAT64 makes of one packet, written from RFC 7915 and RFC 6052: a packet is read into what both families have
//! in common, and written anew. No step of it resembles the programs under test, which change packets in place.

mod icmp;
mod packet;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use packet::{Fragment, Packet};
use sluice_wire::fields::{be16, put_be16};
use sluice_wire::{tcp, udp};

use super::{ICMP, TCP, UDP};

/// One session, as its two sides see it. ICMP echo has its identifier in the client's port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    /// Address and port of the IPv6 host.
    pub client: (Ipv6Addr, u16),
    /// The server behind the prefix.
    pub seen: (Ipv6Addr, u16),
    /// NAT64 prefix and its length.
    pub prefix: (Ipv6Addr, u8),
    /// What the client appears as.
    pub outside: (Ipv4Addr, u16),
    /// The server's own address.
    pub server: Ipv4Addr,
}

/// Largest IP packets of the links it arrives by and leaves by.
#[derive(Debug, Clone, Copy)]
pub struct Links {
    /// In bytes, of the link it arrives by.
    pub mtu_in: u32,
    /// In bytes, of the link it leaves by.
    pub mtu_out: u32,
}

/// Why a packet has no translation; the names of drops in `stages.def`.
pub type Refused = &'static str;

/// RFC 6052 section 2.2: the address that stands for an IPv4 address behind a prefix.
pub fn embed(prefix: (Ipv6Addr, u8), address: Ipv4Addr) -> Ipv6Addr {
    let mut octets = prefix.0.octets();
    octets[usize::from(prefix.1 / 8)..].fill(0);
    let octet_indexes = (usize::from(prefix.1 / 8)..16).filter(|index| prefix.1 == 96 || *index != 8);
    for (index, octet) in octet_indexes.zip(address.octets()) {
        octets[index] = octet;
    }
    Ipv6Addr::from(octets)
}

/// RFC 6052 section 2.3.
pub fn extract(length: u8, address: Ipv6Addr) -> Ipv4Addr {
    let octets = address.octets();
    let octet_indexes = (usize::from(length / 8)..16).filter(|index| length == 96 || *index != 8);
    let mut found = [0; 4];
    for (octet, index) in found.iter_mut().zip(octet_indexes) {
        *octet = octets[index];
    }
    Ipv4Addr::from(found)
}

/// An IP packet of the session in the other family, before anybody takes a hop off.
pub fn translate(bytes: &[u8], session: &Session, links: Links) -> Result<Vec<u8>, Refused> {
    let packet = Packet::read(bytes).ok_or("nat64_icmp")?;
    let to6 = packet.from.is_ipv4();
    // RFC 7915 section 5.1.1
    if packet.extended_fragment {
        return Err("nat64_extension");
    }
    let mut out = packet.clone();
    (out.from, out.to) = addresses(&packet, session);
    if packet.proto == ICMP {
        if packet.is_piece() {
            return Err("nat64_icmp_fragment");
        }
        icmp::translate(&packet, &mut out, session, links)?;
    } else if packet.fragment.is_none_or(|fragment| fragment.offset == 0) {
        transport(&packet, &mut out, session, to6)?;
    }
    Ok(out.write(out.data.len()))
}

/// RFC 6146 section 3.5: by the session. A router on the way that speaks IPv4 is seen behind the prefix.
fn addresses(packet: &Packet, session: &Session) -> (IpAddr, IpAddr) {
    match packet.from {
        IpAddr::V6(_) => (session.outside.0.into(), session.server.into()),
        IpAddr::V4(from) if from == session.server => (session.seen.0.into(), session.client.0.into()),
        IpAddr::V4(from) => (embed(session.prefix, from).into(), session.client.0.into()),
    }
}

/// Ports and checksum of TCP and UDP, in place.
fn transport(packet: &Packet, out: &mut Packet, session: &Session, to6: bool) -> Result<(), Refused> {
    let field = match packet.proto {
        TCP => tcp::field::CHECKSUM,
        UDP => udp::field::CHECKSUM,
        _ => return Err("nat64_protocol"),
    };
    // towards the client its own port is the destination's
    let (offset, port) = match to6 {
        true => (udp::field::DESTINATION_PORT, session.client.1),
        false => (udp::field::SOURCE_PORT, session.outside.1),
    };
    put_be16(&mut out.data, offset, port);
    let before = be16(&packet.data, field.clone());
    let check = if packet.proto == UDP && before == 0 && to6 {
        if packet.is_piece() {
            return Err("nat64_udp_checksum");
        }
        // of what UDP says is its own (RFC 8200 8.1)
        let length = usize::from(be16(&packet.data, udp::field::LENGTH));
        let own = out.data.get(..length).filter(|own| own.len() >= udp::field::HEADER);
        let own = own.ok_or("nat64_udp_checksum")?;
        sum(&[&out.pseudo(length), own])
    } else {
        adjust(before, &[&packet.pseudo(0), &packet.data[..4]], &[&out.pseudo(0), &out.data[..4]])
    };
    let check = if packet.proto == UDP { udp::sent(check) } else { check };
    put_be16(&mut out.data, field, check);
    Ok(())
}

/// One's complement sum of pieces of even length (the last may be odd), as the field that makes it right.
fn sum(pieces: &[&[u8]]) -> u16 {
    complement(pieces.iter().map(|piece| modulo(piece)).sum())
}

/// Of a number modulo 65,535, the value of a checksum field; nothing is summed up to zero here.
fn complement(total: u64) -> u16 {
    match total % 0xffff {
        0 => 0,
        rest => !(rest as u16),
    }
}

fn modulo(piece: &[u8]) -> u64 {
    let words = piece.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    words.sum::<u64>() % 0xffff
}

/// The checksum once some bytes that it covers are replaced.
fn adjust(check: u16, before: &[&[u8]], after: &[&[u8]]) -> u16 {
    let rest = u64::from(!check) + before.iter().map(|piece| 0xffff - modulo(piece)).sum::<u64>();
    complement(rest + after.iter().map(|piece| modulo(piece)).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6052 section 2.4, table 1, and the Well-Known Prefix of table 2.
    #[test]
    fn addresses_of_every_prefix_length() {
        let address = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, length, wanted) in [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::", 96, "64:ff9b::192.0.2.33"),
        ] {
            let prefix = (prefix.parse().unwrap(), length);
            let embedded = embed(prefix, address);
            assert_eq!(embedded, wanted.parse::<Ipv6Addr>().unwrap(), "/{length}");
            assert_eq!(extract(length, embedded), address, "/{length}");
        }
    }

    #[test]
    fn sums_follow_replaced_bytes() {
        let whole = sum(&[&[1, 2, 3, 4, 5, 6]]);
        let changed = sum(&[&[1, 2, 0xff, 0xfe, 5, 6]]);
        assert_eq!(adjust(whole, &[&[3, 4]], &[&[0xff, 0xfe]]), changed);
    }
}
