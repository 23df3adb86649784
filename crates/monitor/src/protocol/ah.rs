//! AH (RFC 4302): authenticated, in clear text.

use super::ip::Addresses;
use super::{Packet, be32};
use crate::observation::{Flags, Observation, Protocol, Unknown};

/// RFC 4302 2: next header, payload length, reserved, SPI, sequence number.
const HEADER: usize = 12;

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; HEADER] = packet.head("AH header")?;
    // RFC 4302 2.2: in words of four bytes, less two; the ICV is part of it.
    let length = (usize::from(header[1]) + 2) * 4;
    if length < HEADER {
        return Err(Unknown::Malformed("AH header: payload length"));
    }
    let spi = be32(header, 4);
    if spi == 0 {
        return Err(Unknown::Malformed("AH header: SPI 0 must not be sent (RFC 4302 2.4)"));
    }
    // Behind the fixed part stands the ICV, which tells packets apart; the payload's end may not.
    let icv = Packet { data: &packet.data[..packet.data.len().min(length)], ..packet };
    Ok(Observation {
        key: addresses.key(Protocol::Ah, spi, &packet),
        sequence: be32(header, 8).into(),
        fingerprint: icv.fingerprint(),
        payload_len: packet.after(length, "AH integrity check value")?.payload_len(),
        bits: 32,
        flags: packet.flags.with(Flags::INTEGRITY_ONLY),
    })
}
