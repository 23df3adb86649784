//! ICMP messages: RFC 7915 sections 4.2, 4.3, 5.2 and 5.3.

use super::super::{ICMP, TCP, UDP};
use super::{Links, Packet, Refused, Session, adjust};

const NONE: Refused = "nat64_icmp";

/// The message of `packet` becomes that of `out`, whose addresses are known.
pub fn translate(packet: &Packet, out: &mut Packet, session: &Session, links: Links) -> Result<(), Refused> {
    let to6 = packet.from.is_ipv4();
    let (kind, code) = (packet.data[0], packet.data[1]);
    let echo = if to6 { [(8, 128), (0, 129)] } else { [(128, 8), (129, 0)] };
    match echo.iter().find(|(from, _)| *from == kind) {
        Some((_, becomes)) => {
            let port = if to6 { session.client.1 } else { session.outside.1 };
            out.data[0] = *becomes;
            out.data[4..6].copy_from_slice(&port.to_be_bytes());
        }
        None if to6 => error6(packet, out, session, links, kind, code)?,
        None => error4(packet, out, session, links, kind, code)?,
    }
    let before = u16::from_be_bytes([packet.data[2], packet.data[3]]);
    out.length = out.data.len();
    let check = checksum(packet, out, before);
    out.data[2..4].copy_from_slice(&check.to_be_bytes());
    Ok(())
}

/// Only ICMPv6 sums a pseudo-header. A wrong checksum stays wrong.
fn checksum(packet: &Packet, out: &Packet, before: u16) -> u16 {
    let old = without_check(&packet.data);
    let new = without_check(&out.data);
    if packet.from.is_ipv4() {
        adjust(before, &[&old], &[&new, &out.pseudo(out.length)])
    } else {
        adjust(before, &[&old, &packet.pseudo(packet.length)], &[&new])
    }
}

fn without_check(message: &[u8]) -> Vec<u8> {
    [&message[..2], &[0, 0], &message[4..]].concat()
}

/// RFC 7915 section 4.2
fn error6(
    packet: &Packet,
    out: &mut Packet,
    session: &Session,
    links: Links,
    kind: u8,
    code: u8,
) -> Result<(), Refused> {
    let quoted = Packet::read(&packet.data[8..]).ok_or(NONE)?;
    let mtu = u32::from(u16::from_be_bytes([packet.data[6], packet.data[7]]));
    let (kind, code, rest) = match (kind, code) {
        (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => (1, 0, 0),
        (3, 9 | 10 | 13 | 15) => (1, 1, 0),
        (3, 2) => (4, 1, 6),
        (3, 3) => (1, 4, 0),
        (3, 4) => {
            let mtu = if mtu == 0 { plateau(quoted.total as u32) } else { mtu };
            (2, 0, (mtu + 20).min(links.mtu_out).min(links.mtu_in + 20).max(1280))
        }
        (11, code) => (3, code, 0),
        (12, 0 | 2) => (4, 0, pointer6(packet.data[4]).ok_or(NONE)?),
        _ => return Err(NONE),
    };
    // RFC 4884 section 5: the length of the quote, behind which further objects may follow
    let length = usize::from(packet.data[5]) * 4;
    let room = 1280 - 40 - 8;
    out.data = [vec![kind, code, 0, 0], rest.to_be_bytes().to_vec()].concat();
    let quoted = quote(&packet.data[8..], length, quoted, session)?;
    let objects = packet.data.get(8 + length..).filter(|rest| length != 0 && !rest.is_empty());
    match objects.filter(|_| matches!(kind, 1 | 3)) {
        Some(objects) if padded(&quoted, 8).len() + objects.len() <= room => {
            let quoted = padded(&quoted, 8);
            out.data[4] = (quoted.len() / 8) as u8;
            out.data.extend([&quoted, objects].concat());
        }
        _ => out.data.extend(&quoted[..quoted.len().min(room)]),
    }
    Ok(())
}

/// RFC 4884 section 4: in front of an extension, at least 128 bytes in whole words of the family's size.
fn padded(quoted: &[u8], word: usize) -> Vec<u8> {
    let mut out = quoted.to_vec();
    out.resize(quoted.len().next_multiple_of(word).max(128), 0);
    out
}

/// RFC 7915 section 5.2
fn error4(
    packet: &Packet,
    out: &mut Packet,
    session: &Session,
    links: Links,
    kind: u8,
    code: u8,
) -> Result<(), Refused> {
    let rest = u32::from_be_bytes([packet.data[4], packet.data[5], packet.data[6], packet.data[7]]);
    let extended = matches!(kind, 1 | 3);
    let (kind, code, rest) = match (kind, code) {
        (1, 0 | 2 | 3) => (3, 1, 0),
        (1, 1) => (3, 10, 0),
        (1, 4) => (3, 3, 0),
        (2, _) => (3, 4, rest.min(links.mtu_in).saturating_sub(20).min(links.mtu_out).max(68)),
        (3, code) => (11, code, 0),
        (4, 0) => (12, 0, pointer4(rest).ok_or(NONE)? << 24),
        (4, 1) => (3, 2, 0),
        _ => return Err(NONE),
    };
    let quoted = Packet::read(&packet.data[8..]).ok_or(NONE)?;
    let length = if extended { usize::from(packet.data[4]) * 8 } else { 0 };
    out.data = [vec![kind, code, 0, 0], rest.to_be_bytes().to_vec()].concat();
    let quoted = quote(&packet.data[8..], length, quoted, session)?;
    let objects = packet.data.get(8 + length..).filter(|rest| length != 0 && !rest.is_empty());
    match objects {
        Some(objects) => {
            let quoted = padded(&quoted, 4);
            out.data[5] = (quoted.len() / 4) as u8;
            out.data.extend([&quoted, objects].concat());
        }
        None => out.data.extend(quoted),
    }
    Ok(())
}

/// RFC 7915 section 4.2, figure 3
fn pointer6(pointer: u8) -> Option<u32> {
    Some(match pointer {
        0 | 1 => pointer.into(),
        2 | 3 => 4,
        8 => 7,
        9 => 6,
        12..=15 => 8,
        16..=19 => 24,
        _ => return None,
    })
}

/// RFC 7915 section 5.2, figure 6
fn pointer4(pointer: u32) -> Option<u32> {
    Some(match pointer {
        0 | 1 => pointer,
        4 | 5 => 2,
        6 => 9,
        7 => 8,
        8..=23 => 12,
        24..=39 => 16,
        _ => return None,
    })
}

/// RFC 1191 section 7.1: the largest one below the length of what did not fit.
fn plateau(length: u32) -> u32 {
    let plateaus = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296];
    plateaus.into_iter().find(|plateau| *plateau < length).unwrap_or(68)
}

/// The quoted packet as its sender would have quoted it: its addresses and ports are the session's, turned around.
fn quote(bytes: &[u8], stated: usize, mut quoted: Packet, session: &Session) -> Result<Vec<u8>, Refused> {
    let before = quoted.clone();
    let to6 = quoted.from.is_ipv4();
    if to6 {
        (quoted.from, quoted.to) = (session.client.0.into(), session.seen.0.into());
    } else {
        (quoted.from, quoted.to) = (session.server.into(), session.outside.0.into());
    }
    // what stands behind the quoted packet is part of the message all the same
    let header = bytes.len().min(before.total) - before.data.len();
    quoted.data = bytes[header..].to_vec();
    if stated != 0 && stated < bytes.len() {
        quoted.data.truncate(stated - header);
    }
    inner(&before, &mut quoted, session, to6);
    Ok(quoted.write(quoted.length))
}

/// Ports, and the checksum as far as it is quoted.
fn inner(before: &Packet, quoted: &mut Packet, session: &Session, to6: bool) {
    let offset = match before.proto {
        TCP => 16,
        UDP => 6,
        _ => 2,
    };
    let port = if to6 { session.client.1 } else { session.outside.1 };
    let covered = if before.proto == ICMP { 8 } else { 4 };
    if before.proto == ICMP {
        quoted.data[0] = match before.data[0] {
            8 => 128,
            0 => 129,
            128 => 8,
            _ => 0,
        };
        quoted.data[4..6].copy_from_slice(&port.to_be_bytes());
    } else {
        // the quoted packet travelled the other direction: it came from the client when the error goes there
        let at = if to6 { 0 } else { 2 };
        quoted.data[at..at + 2].copy_from_slice(&port.to_be_bytes());
    }
    // only a whole header is corrected; of less, nobody can check the sum anyway
    if before.data.len() < if before.proto == TCP { 20 } else { 8 } {
        return;
    }
    let check = u16::from_be_bytes([before.data[offset], before.data[offset + 1]]);
    if before.proto == UDP && check == 0 {
        return;
    }
    let (old, new) = (changed(before, covered, to6), changed(quoted, covered, !to6));
    let check = adjust(check, &[&old], &[&new]);
    let check = if before.proto == UDP && check == 0 { 0xffff } else { check };
    quoted.data[offset..offset + 2].copy_from_slice(&check.to_be_bytes());
}

/// What a quoted packet's checksum covers and the translation changes; ICMP of IPv4 has no pseudo-header.
fn changed(packet: &Packet, covered: usize, v4: bool) -> Vec<u8> {
    let mut bytes = packet.data[..covered].to_vec();
    if packet.proto != ICMP {
        return [bytes, packet.pseudo(0)].concat();
    }
    bytes[2..4].fill(0);
    if v4 { bytes } else { [bytes, packet.pseudo(packet.length)].concat() }
}
