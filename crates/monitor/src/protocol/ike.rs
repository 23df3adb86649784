//! IKEv2 (RFC 7296 3.1): counted by SA, without a sequence, because requests are repeated with their number.

use sluice_wire::fields::{be32, be64};
use sluice_wire::ike::field;

use super::Packet;
use super::ip::Addresses;
use crate::observation::{Flags, Observation, Protocol, Unknown};

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; field::HEADER] = packet.head("IKE header")?;
    let version = header[field::VERSION] >> 4;
    if !(1..=2).contains(&version) {
        return Err(Unknown::Malformed("IKE header: major version neither 1 nor 2"));
    }
    let mut flags = packet.flags.with(Flags::CONTROL);
    // Over TCP-sized messages a first fragment of IP holds less.
    if be32(header, field::LENGTH) != packet.wire && !flags.has(Flags::FRAGMENT) {
        flags = flags.with(Flags::LENGTH_MISMATCH);
    }
    // The initiator's SPI names the SA from its first message on.
    let spi = be64(header, field::INITIATOR_SPI);
    let sa = (spi >> 32) as u32 ^ spi as u32;
    Ok(Observation {
        key: addresses.key(Protocol::Ike, sa, &packet),
        payload_len: packet.payload_len(),
        flags,
        ..Observation::default()
    })
}
