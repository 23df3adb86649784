//! ESP (RFC 4303): SPI and sequence number are in clear text, everything behind them is not.

use sluice_wire::esp::field;
use sluice_wire::fields::{be16, be32};
use sluice_wire::{checksum, ipv4, ipv6, protocol, udp};

use super::Packet;
use crate::observation::{Flags, Observation, Unknown};

/// Between the inner packet and the end of ESP: padding, pad length and next header (RFC 4303 2.4 to 2.6) and an ICV of
/// up to 32 bytes.
const TRAILER: std::ops::RangeInclusive<u32> = 2..=64;

/// SPI and observation without its key.
#[inline(always)]
pub(super) fn observe(packet: Packet<'_>) -> Result<(u32, Observation), Unknown> {
    let header: &[u8; field::HEADER] = packet.head("ESP header")?;
    let spi = be32(header, field::SPI);
    if spi == 0 {
        return Err(Unknown::Malformed("ESP header: SPI 0 must not be sent (RFC 4303 2.1)"));
    }
    let fingerprint = packet.fingerprint();
    let body = packet.after(field::HEADER, "ESP header")?;
    let protection = if is_readable(&body) { Flags::INTEGRITY_ONLY } else { Flags::ENCRYPTED };
    let seen = Observation {
        sequence: be32(header, field::SEQUENCE).into(),
        fingerprint,
        payload_len: body.payload_len(),
        bits: 32,
        flags: packet.flags.with(protection),
        ..Observation::default()
    };
    Ok((spi, seen))
}

/// Lengths of the ICVs that NULL encryption is used with (RFC 8221 section 6).
const ICVS: [u32; 4] = [12, 16, 24, 32];

/// Whether the payload lies open: NULL encryption (RFC 2410). It must show an IPv4 packet with a right header checksum
/// (encrypted bytes do once in 10^11 packets), or an IPv6 packet or UDP datagram whose length leads to padding, pad
/// length and next header as they must be (once in 10^9).
#[inline(always)]
fn is_readable(body: &Packet<'_>) -> bool {
    let Some(inner) = body.data.first_chunk::<{ ipv4::field::HEADER }>() else { return false };
    let of_ipv6 = || ipv6::field::HEADER as u32 + u32::from(be16(inner, ipv6::field::PAYLOAD_LENGTH));
    match inner[0] {
        ipv4::VERSION_IHL_PLAIN if is_ipv4(body, inner) => true,
        // The next header in tunnel mode, and in transport mode (RFC 4303 2.6).
        first if ipv4::version(first) == 6 && ends_behind(body, of_ipv6(), protocol::IPV6) => true,
        _ => ends_behind(body, u32::from(be16(inner, udp::field::LENGTH)), protocol::UDP),
    }
}

#[inline(always)]
fn is_ipv4(body: &Packet<'_>, inner: &[u8; ipv4::field::HEADER]) -> bool {
    let length = u32::from(be16(inner, ipv4::field::LENGTH));
    body.wire.checked_sub(length).is_some_and(|rest| TRAILER.contains(&rest))
        && checksum::internet(inner) == 0
}

/// Whether a trailer (RFC 4303 2.4 to 2.6) begins after `length` bytes: padding 1, 2, 3 ..., its length, `next`, and an
/// ICV up to the end.
#[inline(always)]
fn ends_behind(body: &Packet<'_>, length: u32, next: u8) -> bool {
    match body.wire.checked_sub(length) {
        // No known implementation pads by more than 15 bytes.
        Some(rest) if length >= udp::field::HEADER as u32 && (14..=49).contains(&rest) => {
            has_trailer(body.data, length, rest, next)
        }
        _ => false,
    }
}

fn has_trailer(body: &[u8], length: u32, rest: u32, next: u8) -> bool {
    let Some(trailer) = body.get(length as usize..(length + rest) as usize) else { return false };
    ICVS.iter().filter_map(|icv| rest.checked_sub(icv + 2)).any(|padding| {
        let (pad, behind) = trailer.split_at(padding as usize);
        behind[0] == padding as u8
            && behind[1] == next
            && pad.iter().zip(1..).all(|(byte, number)| *byte == number)
    })
}
