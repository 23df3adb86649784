//! IKEv2 (RFC 7296 3.1): counted by SA, without a sequence, because requests are repeated with their number.

use super::ip::Addresses;
use super::{Packet, be32};
use crate::observation::{Flags, Observation, Protocol, Unknown};

const HEADER: usize = 28;

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; HEADER] = packet.head("IKE header")?;
    let version = header[17] >> 4;
    if !(1..=2).contains(&version) {
        return Err(Unknown::Malformed("IKE header: major version neither 1 nor 2"));
    }
    let mut flags = packet.flags.with(Flags::CONTROL);
    // Over TCP-sized messages a first fragment of IP holds less.
    if be32(header, 24) != packet.wire && !flags.has(Flags::FRAGMENT) {
        flags = flags.with(Flags::LENGTH_MISMATCH);
    }
    // The initiator's SPI names the SA from its first message on.
    let sa = be32(header, 0) ^ be32(header, 4);
    Ok(Observation {
        key: addresses.key(Protocol::Ike, sa, &packet),
        payload_len: packet.payload_len(),
        flags,
        ..Observation::default()
    })
}
