//! MKA: the MACsec key agreement in EAPOL (IEEE 802.1X-2020 clauses 11.3 and 11.11).

use sluice_wire::eapol::{self, mka};
use sluice_wire::ethertype;
use sluice_wire::fields::{be16, be32, be64};

use super::Packet;
use crate::observation::{ChannelKey, Flags, Observation, Unknown};

/// An MKPDU; its member's message number counts up by one a packet (9.4.2).
#[inline(always)]
pub(super) fn observe(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use eapol::field;
    let header: &[u8; field::HEADER] = packet.head("EAPOL header")?;
    if header[field::PACKET_TYPE] != eapol::TYPE_MKA {
        return Err(Unknown::Ethertype(ethertype::EAPOL));
    }
    let body = packet.after(field::HEADER, "EAPOL header")?;
    let body = body.ending(u32::from(be16(header, field::BODY_LENGTH)));
    let basic: &[u8; mka::KEY_NAME] = body.head("MKA basic parameter set")?;
    // 11.11.1: without padding.
    let length = usize::from(be16(basic, mka::FLAGS_LENGTH) & mka::LENGTH_MASK);
    let Some(ckn) = (length + mka::UNCOUNTED).checked_sub(mka::KEY_NAME) else {
        return Err(Unknown::Malformed("MKA basic parameter set: body length"));
    };
    let ckn = body.data.get(mka::KEY_NAME..mka::KEY_NAME + ckn).ok_or(Unknown::Short("MKA key name"))?;
    let member = &basic[mka::MEMBER_IDENTIFIER];
    Ok(Observation {
        key: ChannelKey::mka(be64(basic, mka::SCI), digest(member, ckn), packet.location()),
        sequence: be32(basic, mka::MESSAGE_NUMBER).into(),
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
