//! What stands in front of everything: Ethernet with VLAN tags, or what stands in for it in a capture.

use sluice_wire::ethertype::{EAPOL, IPV4, IPV6, MACSEC, TAGS};
use sluice_wire::fields::{be16, octets};
use sluice_wire::{cooked, eth, vlan};

use super::{Packet, ip, macsec, mka};
use crate::observation::{Observation, Unknown, Vlans};

/// At most two: nobody agrees what a third one would mean.
const MOST_TAGS: usize = 2;

#[inline(always)]
pub(super) fn ethernet(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use eth::field;
    let header: &[u8; field::HEADER] = packet.head("Ethernet header")?;
    let behind = packet.after(field::HEADER, "Ethernet header")?;
    by_type(be16(header, field::TYPE), octets(header, field::SOURCE), behind)
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
    use vlan::field;
    for _ in 0..MOST_TAGS {
        let tag: &[u8; field::HEADER] = packet.head("VLAN tag")?;
        packet.vlans = Vlans { outer: packet.vlans.inner, inner: be16(tag, field::TCI) & vlan::ID_MASK };
        packet = packet.after(field::HEADER, "VLAN tag")?;
        let kind = be16(tag, field::TYPE);
        if !TAGS.contains(&kind) {
            return Ok((kind, packet));
        }
    }
    Err(Unknown::Malformed("VLAN tags: more than two"))
}

/// LINKTYPE_LINUX_SLL.
pub(super) fn cooked(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use cooked::v1 as field;
    let header: &[u8; field::HEADER] = packet.head("Linux cooked header")?;
    let behind = packet.after(field::HEADER, "Linux cooked header")?;
    by_type(be16(header, field::TYPE), octets(header, field::SOURCE), behind)
}

/// LINKTYPE_LINUX_SLL2.
pub(super) fn cooked2(packet: Packet<'_>) -> Result<Observation, Unknown> {
    use cooked::v2 as field;
    let header: &[u8; field::HEADER] = packet.head("Linux cooked header")?;
    let behind = packet.after(field::HEADER, "Linux cooked header")?;
    by_type(be16(header, field::TYPE), octets(header, field::SOURCE), behind)
}

/// LINKTYPE_NULL: four bytes of address family in the byte order of the machine that captured. The IP version tells.
pub(super) fn null(packet: Packet<'_>) -> Result<Observation, Unknown> {
    ip::any(packet.after(4, "address family")?)
}
