//! GTP-U (3GPP TS 29.281 section 5).

use sluice_wire::fields::{be16, be32};
use sluice_wire::gtpu::{G_PDU, LONG, SEQUENCE_PRESENT, VERSION_1, VERSION_MASK, field};

use super::Packet;
use super::ip::Addresses;
use crate::observation::{Flags, Observation, Protocol, Unknown};

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; field::HEADER] = packet.head("GTP-U header")?;
    if header[field::FLAGS] & VERSION_MASK != VERSION_1 {
        return Err(Unknown::Malformed("GTP-U header: not version 1 of GTP"));
    }
    let mut flags = packet.flags;
    if u32::from(be16(header, field::LENGTH)) + field::HEADER as u32 != packet.wire
        && !flags.has(Flags::FRAGMENT)
    {
        flags = flags.with(Flags::LENGTH_MISMATCH);
    }
    let mut seen = Observation {
        key: addresses.key(Protocol::GtpU, be32(header, field::TEID), &packet),
        fingerprint: packet.fingerprint(),
        payload_len: packet.after(field::HEADER, "GTP-U header")?.payload_len(),
        ..Observation::default()
    };
    let is_data = header[field::MESSAGE_TYPE] == G_PDU;
    if header[field::FLAGS] & LONG != 0 {
        let long: &[u8; field::LONG_HEADER] = packet.head("GTP-U optional fields")?;
        if is_data && header[field::FLAGS] & SEQUENCE_PRESENT != 0 {
            seen.sequence = be16(long, field::SEQUENCE).into();
            seen.bits = 16;
        }
    }
    // Echoes, error indications and end markers have numbers of their own, or none (7.1).
    seen.flags = if is_data { flags } else { flags.with(Flags::CONTROL) };
    Ok(seen)
}
