//! What stands in front of everything: Ethernet with VLAN tags, or what stands in for it in a capture.

use super::{Packet, be16, ip, macsec, mka};
use crate::observation::{Observation, Unknown, Vlans};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// IEEE 802.1AE-2018 9.3
const MACSEC: u16 = 0x88e5;
/// IEEE 802.1X-2020 11.1.4
const EAPOL: u16 = 0x888e;
/// Customer tag (IEEE 802.1Q-2022 9.5), service tag, and what was used for it before there was a standard.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// At most two: nobody agrees what a third one would mean.
const MOST_TAGS: usize = 2;

#[inline(always)]
pub(super) fn ethernet(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; 14] = packet.head("Ethernet header")?;
    let source: [u8; 6] = [header[6], header[7], header[8], header[9], header[10], header[11]];
    by_type(be16(header, 12), source, packet.after(14, "Ethernet header")?)
}

/// The packet begins behind the ethertype.
#[inline(always)]
fn by_type(kind: u16, source: [u8; 6], packet: Packet<'_>) -> Result<Observation, Unknown> {
    let (kind, packet) = if TAGS.contains(&kind) { untagged(packet)? } else { (kind, packet) };
    untagged_type(kind, source, packet)
}

#[inline(always)]
fn untagged_type(kind: u16, source: [u8; 6], packet: Packet<'_>) -> Result<Observation, Unknown> {
    match kind {
        MACSEC => macsec::observe(source, packet),
        IPV4 => ip::v4(packet),
        IPV6 => ip::v6(packet),
        EAPOL => mka::observe(packet),
        _ => Err(Unknown::Ethertype(kind)),
    }
}

/// Takes VLAN tags off; returns the ethertype behind them.
#[inline(always)]
fn untagged(mut packet: Packet<'_>) -> Result<(u16, Packet<'_>), Unknown> {
    for _ in 0..MOST_TAGS {
        let tag: &[u8; 4] = packet.head("VLAN tag")?;
        packet.vlans = Vlans { outer: packet.vlans.inner, inner: be16(tag, 0) & 0x0fff };
        packet = packet.after(4, "VLAN tag")?;
        let kind = be16(tag, 2);
        if !TAGS.contains(&kind) {
            return Ok((kind, packet));
        }
    }
    Err(Unknown::Malformed("VLAN tags: more than two"))
}

/// LINKTYPE_LINUX_SLL: the ethertype is in its last two bytes, the sender's address begins at byte 6.
pub(super) fn cooked(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; 16] = packet.head("Linux cooked header")?;
    let source = [header[6], header[7], header[8], header[9], header[10], header[11]];
    by_type(be16(header, 14), source, packet.after(16, "Linux cooked header")?)
}

/// LINKTYPE_LINUX_SLL2: the ethertype is in its first two bytes, the sender's address begins at byte 12.
pub(super) fn cooked2(packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; 20] = packet.head("Linux cooked header")?;
    let source = [header[12], header[13], header[14], header[15], header[16], header[17]];
    by_type(be16(header, 0), source, packet.after(20, "Linux cooked header")?)
}

/// LINKTYPE_NULL: four bytes of address family in the byte order of the machine that captured. The IP version tells.
pub(super) fn null(packet: Packet<'_>) -> Result<Observation, Unknown> {
    ip::any(packet.after(4, "address family")?)
}
