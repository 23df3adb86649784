//! MKA: the MACsec key agreement in EAPOL (IEEE 802.1X-2020 clauses 11.3 and 11.11).

use super::{Packet, be16, be32};
use crate::observation::{ChannelKey, Flags, Observation, Unknown};

/// 11.3.2: EAPOL packet type of an MKPDU.
const EAPOL_MKA: u8 = 5;
const EAPOL_HEADER: usize = 4;
/// 11.11: basic parameter set up to the CKN: version to body length 4, SCI 8, member identifier 12, message number 4,
/// algorithm agility 4.
const BASIC: usize = 32;

/// An MKPDU; its member's message number counts up by one a packet (9.4.2).
#[inline(always)]
pub(super) fn observe(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; EAPOL_HEADER] = packet.head("EAPOL header")?;
    if header[1] != EAPOL_MKA {
        return Err(Unknown::Ethertype(0x888e));
    }
    let body = packet.after(EAPOL_HEADER, "EAPOL header")?.ending(u32::from(be16(header, 2)));
    let basic: &[u8; BASIC] = body.head("MKA basic parameter set")?;
    // 11.11.1: twelve bits, without the first four octets and without padding.
    let length = usize::from(be16(basic, 2) & 0x0fff);
    let Some(ckn) = (length + 4).checked_sub(BASIC) else {
        return Err(Unknown::Malformed("MKA basic parameter set: body length"));
    };
    let ckn = body.data.get(BASIC..BASIC + ckn).ok_or(Unknown::Short("MKA key name"))?;
    let sci = u64::from(be32(basic, 4)) << 32 | u64::from(be32(basic, 8));
    Ok(Observation {
        key: ChannelKey::mka(sci, digest(&basic[12..24], ckn), packet.place()),
        sequence: be32(basic, 24).into(),
        fingerprint: body.fingerprint(),
        payload_len: body.payload_len(),
        bits: 32,
        flags: body.flags.with(Flags::CONTROL),
    })
}

/// Of member identifier and CKN: FNV-1a, 32 bits.
fn digest(member: &[u8], ckn: &[u8]) -> u32 {
    member
        .iter()
        .chain(ckn)
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
