//! ESP (RFC 4303): SPI and sequence number are in clear text, everything behind them is not.

use super::{Packet, be16, be32};
use crate::observation::{Flags, Observation, Unknown};

/// RFC 4303 2.1 and 2.2
const HEADER: usize = 8;
/// Between the inner packet and the end of ESP: padding, pad length and next header (RFC 4303 2.4 to 2.6) and an ICV of
/// up to 32 bytes.
const TRAILER: std::ops::RangeInclusive<u32> = 2..=64;

/// SPI and observation without its key.
#[inline(always)]
pub(super) fn observe(packet: Packet<'_>) -> Result<(u32, Observation), Unknown> {
    let header: &[u8; HEADER] = packet.head("ESP header")?;
    let spi = be32(header, 0);
    if spi == 0 {
        return Err(Unknown::Malformed("ESP header: SPI 0 must not be sent (RFC 4303 2.1)"));
    }
    let fingerprint = packet.fingerprint();
    let body = packet.after(HEADER, "ESP header")?;
    let protection = if is_readable(&body) { Flags::INTEGRITY_ONLY } else { Flags::ENCRYPTED };
    let seen = Observation {
        sequence: be32(header, 4).into(),
        fingerprint,
        payload_len: body.payload_len(),
        bits: 32,
        flags: packet.flags.with(protection),
        ..Observation::default()
    };
    Ok((spi, seen))
}

/// Whether an IPv4 packet lies open behind the header: NULL encryption (RFC 2410) in tunnel mode. Its length must fit
/// and its checksum be right, which encrypted bytes are once in 10^11 packets.
#[inline(always)]
fn is_readable(body: &Packet<'_>) -> bool {
    let Some(inner) = body.data.first_chunk::<20>() else { return false };
    inner[0] == 0x45
        && body.wire.checked_sub(u32::from(be16(inner, 2))).is_some_and(|rest| TRAILER.contains(&rest))
        && {
            let sum: u32 = inner.chunks_exact(2).map(|pair| u32::from(be16(pair, 0))).sum();
            (sum & 0xffff) + (sum >> 16) == 0xffff
        }
}
