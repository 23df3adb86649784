//! GTP-U (3GPP TS 29.281 section 5).

use super::ip::Addresses;
use super::{Packet, be16, be32};
use crate::observation::{Flags, Observation, Protocol, Unknown};

/// 5.1: the mandatory part.
const HEADER: usize = 8;
/// 5.1: present as a whole when one of E, S and PN is set.
const OPTIONAL: usize = 4;
/// Version 1, protocol type GTP.
const VERSION: u8 = 0x30;
const SEQUENCE: u8 = 0x02;
const ANY_OPTION: u8 = 0x07;
/// 6.1
const G_PDU: u8 = 255;

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; HEADER] = packet.head("GTP-U header")?;
    if header[0] & 0xf0 != VERSION {
        return Err(Unknown::Malformed("GTP-U header: not version 1 of GTP"));
    }
    let mut flags = packet.flags;
    if u32::from(be16(header, 2)) + HEADER as u32 != packet.wire && !flags.has(Flags::FRAGMENT) {
        flags = flags.with(Flags::LENGTH_MISMATCH);
    }
    let mut seen = Observation {
        key: addresses.key(Protocol::GtpU, be32(header, 4), &packet),
        fingerprint: packet.fingerprint(),
        payload_len: packet.after(HEADER, "GTP-U header")?.payload_len(),
        ..Observation::default()
    };
    let is_data = header[1] == G_PDU;
    if header[0] & ANY_OPTION != 0 {
        let long: &[u8; HEADER + OPTIONAL] = packet.head("GTP-U optional fields")?;
        if is_data && header[0] & SEQUENCE != 0 {
            seen.sequence = be16(long, HEADER).into();
            seen.bits = 16;
        }
    }
    // Echoes, error indications and end markers have numbers of their own, or none (7.1).
    seen.flags = if is_data { flags } else { flags.with(Flags::CONTROL) };
    Ok(seen)
}
