//! MACsec: the SecTAG of IEEE 802.1AE-2018 clause 9.
//!
//! An extended packet number (XPN, 10.7) cannot be told from a plain one by a frame: 32 bits are on the wire either
//! way, and the upper half is inferred when the number wraps under one key.

use sluice_wire::fields::{be32, be64};
use sluice_wire::macsec::{
    AN, CHANGED, ENCRYPTED, END_STATION, END_STATION_PORT, SCI_PRESENT, SHORT_LENGTH_UNUSED, SINGLE_COPY,
    VERSION, field,
};
use sluice_wire::{eth, macsec, vlan};

use super::Packet;
use crate::observation::{ChannelKey, Flags, Observation, Unknown};

const ICV: u32 = macsec::ICV as u32;
const SHORT: u32 = macsec::SHORT as u32;
/// What is shorter is padded behind the ICV.
const SHORTEST: u32 = eth::SHORTEST as u32;
/// Addresses and ethertype in front of the tag.
const ETHERNET: u32 = eth::field::HEADER as u32;
const VLAN: u32 = vlan::field::HEADER as u32;

/// The checks of 9.12, as Linux makes them (macsec_validate_skb), but for PN 0: that is invalid with 32 bits and usual,
/// once in 2^32 packets, with 64. A wrong length is told, not refused: padding and capture offloads make some.
#[inline(always)]
pub(super) fn observe(source: [u8; 6], packet: Packet<'_>) -> Result<Observation, Unknown> {
    let tag: &[u8; field::TAG] = packet.head("MACsec SecTAG")?;
    let (tci, sl) = (tag[field::TCI_AN], tag[field::SHORT_LENGTH]);
    if tci & VERSION != 0 {
        return Err(Unknown::Malformed("MACsec SecTAG: version bit set (802.1AE 9.12 c)"));
    }
    if tci & SCI_PRESENT != 0 && tci & (END_STATION | SINGLE_COPY) != 0 {
        return Err(Unknown::Malformed("MACsec SecTAG: SCI with ES or SCB (802.1AE 9.12 d)"));
    }
    if sl & SHORT_LENGTH_UNUSED != 0 {
        return Err(Unknown::Malformed("MACsec SecTAG: short length of 64 or more (802.1AE 9.12 e)"));
    }
    let (sci, length, flags) = if tci & SCI_PRESENT != 0 {
        let explicit: &[u8; field::LONG_TAG] = packet.head("MACsec SCI")?;
        (be64(explicit, field::SCI), field::LONG_TAG, packet.flags)
    } else {
        (implied_sci(source, tci), field::TAG, packet.flags.with(Flags::IMPLIED_SCI))
    };
    let body = packet.after(length, "MACsec SecTAG")?;
    let (body, is_right) = secured(body, u32::from(sl), length as u32)?;
    let flags = if is_right { flags } else { flags.with(Flags::LENGTH_MISMATCH) };
    Ok(Observation {
        key: ChannelKey::macsec(sci, tci & AN, packet.location()),
        sequence: be32(tag, field::PACKET_NUMBER).into(),
        fingerprint: body.fingerprint(),
        payload_len: body.wire.saturating_sub(ICV).min(u32::from(u16::MAX)) as u16,
        bits: 32,
        flags: flags.with(protection(tci)),
    })
}

/// Secure data and ICV without padding, and whether their length is as SL says (9.7).
#[inline(always)]
fn secured(body: Packet<'_>, sl: u32, tag: u32) -> Result<(Packet<'_>, bool), Unknown> {
    let Some(length) = body.wire.checked_sub(ICV) else {
        return Err(Unknown::Malformed("MACsec: no room for the ICV (802.1AE 9.12)"));
    };
    if sl == 0 {
        return Ok((body, length >= SHORT));
    }
    let tags = u32::from(body.vlans.inner != 0) + u32::from(body.vlans.outer != 0);
    let is_padded = length > sl && body.wire + tag + ETHERNET + VLAN * tags <= SHORTEST;
    let is_right = sl < SHORT && (length == sl || is_padded);
    Ok((if length > sl { body.ending(sl + ICV) } else { body }, is_right))
}

/// 9.9: the source address and port 00-01; a single copy broadcast of an EPON has port 00-00.
fn implied_sci(source: [u8; 6], tci: u8) -> u64 {
    macsec::sci(source, if tci & SINGLE_COPY == 0 { END_STATION_PORT } else { 0 })
}

/// 9.5 and 9.6: E and C together say that data is confidential; E alone marks frames for the key agreement entity.
fn protection(tci: u8) -> Flags {
    match tci & (ENCRYPTED | CHANGED) {
        0 | CHANGED => Flags::INTEGRITY_ONLY,
        ENCRYPTED => Flags::ENCRYPTED.with(Flags::CONTROL),
        _ => Flags::ENCRYPTED,
    }
}
