//! AH (RFC 4302): authenticated, in clear text.

use sluice_wire::ah::{self, field};
use sluice_wire::fields::be32;

use super::Packet;
use super::ip::Addresses;
use crate::observation::{Flags, Observation, Protocol, Unknown};

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; field::HEADER] = packet.head("AH header")?;
    let length = ah::length(header[field::PAYLOAD_LENGTH]);
    if length < field::HEADER {
        return Err(Unknown::Malformed("AH header: payload length"));
    }
    let spi = be32(header, field::SPI);
    if spi == 0 {
        return Err(Unknown::Malformed("AH header: SPI 0 must not be sent (RFC 4302 2.4)"));
    }
    // Behind the fixed part stands the ICV, which tells packets apart; the payload's end may not.
    let icv = Packet { data: &packet.data[..packet.data.len().min(length)], ..packet };
    Ok(Observation {
        key: addresses.key(Protocol::Ah, spi, &packet),
        sequence: be32(header, field::SEQUENCE).into(),
        fingerprint: icv.fingerprint(),
        payload_len: packet.after(length, "AH integrity check value")?.payload_len(),
        bits: 32,
        flags: packet.flags.with(Flags::INTEGRITY_ONLY),
    })
}
