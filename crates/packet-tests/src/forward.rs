//! What a router makes of a frame it forwards, written from the RFCs and not from the programs under test.

use sluice_language::config::Vlan;
use sluice_wire::checksum::internet;
use sluice_wire::{Mac, eth, ipv4, ipv6};

/// A tag as it stands in a frame (IEEE 802.1Q section 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    pub tpid: u16,
    pub tci: u16,
}

impl Tag {
    const LENGTH: usize = sluice_wire::vlan::field::HEADER;

    fn bytes(self) -> [u8; Self::LENGTH] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// The tags of a unit's frames, outer first, with priority 0.
pub fn tags_of(vlan: Option<Vlan>) -> Vec<Tag> {
    let Some(vlan) = vlan else { return Vec::new() };
    let outer = if vlan.service { eth::TYPE_QINQ } else { eth::TYPE_VLAN };
    let inner = vlan.inner.map(|tci| Tag { tpid: eth::TYPE_VLAN, tci });
    [Tag { tpid: outer, tci: vlan.id }].into_iter().chain(inner).collect()
}

/// Which unit's frames have these tags; a priority tag is none.
pub fn vlan_of(tags: &[Tag]) -> Option<Vlan> {
    let service = tags.first()?.tpid == eth::TYPE_QINQ;
    let vlan = Vlan { id: tags[0].tci & 0x0fff, service, inner: tags.get(1).map(|tag| tag.tci & 0x0fff) };
    (vlan != Vlan::from(0)).then_some(vlan)
}

/// Offset of the network layer, the tags before it (an 802.1Q or 802.1ad one, and an 802.1Q one behind it) and the type.
pub fn network_layer(frame: &[u8]) -> Option<(usize, Vec<Tag>, u16)> {
    let mut ethertype = eth::View::new(frame).ok()?.ethertype();
    let mut tags = Vec::new();
    while ethertype == eth::TYPE_VLAN && tags.len() < 2 || ethertype == eth::TYPE_QINQ && tags.is_empty() {
        let tag =
            sluice_wire::vlan::View::new(&frame[eth::field::HEADER + tags.len() * Tag::LENGTH..]).ok()?;
        let tci = u16::from(tag.priority()) << 13 | u16::from(tag.drop_eligible()) << 12 | tag.id();
        tags.push(Tag { tpid: ethertype, tci });
        ethertype = tag.ethertype();
    }
    Some((eth::field::HEADER + tags.len() * Tag::LENGTH, tags, ethertype))
}

/// The frame without any VLAN tag.
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    match network_layer(frame) {
        Some((l3, ..)) => [&frame[..12], &frame[l3 - 2..]].concat(),
        None => frame.to_vec(),
    }
}

/// The frame as tc has it: the outer tag stands beside it.
pub fn without_outer(frame: &[u8]) -> Vec<u8> {
    match network_layer(frame) {
        Some((_, tags, _)) if !tags.is_empty() => [&frame[..12], &frame[12 + Tag::LENGTH..]].concat(),
        _ => frame.to_vec(),
    }
}

/// An untagged frame with tags.
pub fn tagged(frame: &[u8], tags: &[Tag]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|tag| tag.bytes()).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// One hop less (RFC 1812 section 5.3.1; RFC 8200 section 3), with the IPv4 checksum made anew.
pub fn one_hop(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    let Some((l3, _, ethertype)) = network_layer(frame) else { return out };
    match ethertype {
        eth::TYPE_IPV4 => {
            let header = l3 + usize::from(out[l3] & 0x0f) * 4;
            out[l3 + ipv4::field::TTL] -= 1;
            out[l3 + ipv4::field::CHECKSUM.start] = 0;
            out[l3 + ipv4::field::CHECKSUM.start + 1] = 0;
            let sum = internet(&out[l3..header]).to_be_bytes();
            out[l3 + ipv4::field::CHECKSUM.start..l3 + ipv4::field::CHECKSUM.end].copy_from_slice(&sum);
        }
        eth::TYPE_IPV6 => out[l3 + ipv6::field::HOP_LIMIT] -= 1,
        _ => {}
    }
    out
}

/// The frame as it leaves: one hop less, new addresses, the egress unit's tags. Tags that stay keep their priority
/// bits; new ones have none.
pub fn forwarded(frame: &[u8], to: Mac, from: Mac, vlan: Option<Vlan>) -> Vec<u8> {
    let arrived = network_layer(frame).map(|(_, tags, _)| tags).unwrap_or_default();
    let tags = if vlan.is_some() && vlan_of(&arrived) == vlan { arrived } else { tags_of(vlan) };
    let hop = untagged(&one_hop(frame));
    tagged(&[&to.0[..], &from.0[..], &hop[12..]].concat(), &tags)
}

/// Expected and seen, without what nobody can foretell: the identification of an IPv4 packet that was an IPv6 one and
/// may be fragmented (RFC 7915 section 5.1). One with a Fragment header keeps what that says (5.1.1).
pub fn comparable(came: &[u8], expected: Vec<u8>, seen: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let family = |frame: &[u8]| network_layer(frame).map(|(_, _, ethertype)| ethertype);
    let translated = family(came) == Some(eth::TYPE_IPV6) && family(&seen) == Some(eth::TYPE_IPV4);
    if translated && !has_fragment_header(came) {
        return (unidentified(expected), unidentified(seen));
    }
    (expected, seen)
}

fn has_fragment_header(frame: &[u8]) -> bool {
    let Some((l3, ..)) = network_layer(frame) else { return false };
    let (mut next, mut at) = (frame[l3 + 6], l3 + ipv6::field::HEADER);
    while [ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::DESTINATION_OPTIONS].contains(&next)
        && at + 8 <= frame.len()
    {
        (next, at) = (frame[at], at + (usize::from(frame[at + 1]) + 1) * 8);
    }
    next == ipv6::FRAGMENT
}

fn unidentified(mut frame: Vec<u8>) -> Vec<u8> {
    let Some((l3, _, eth::TYPE_IPV4)) = network_layer(&frame) else { return frame };
    if frame.len() < l3 + 20 || frame[l3 + 6] & 0x7f != 0 || frame[l3 + 7] != 0 {
        return frame;
    }
    // a header that was right stays so, and a wrong one stays wrong
    let right = internet(&frame[l3..l3 + 20]) == 0;
    frame[l3 + 4..l3 + 6].fill(0);
    if right {
        frame[l3 + 10..l3 + 12].fill(0);
        let sum = internet(&frame[l3..l3 + 20]).to_be_bytes();
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum);
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::text::bytes;

    #[test]
    fn a_hop_changes_ttl_checksum_macs_and_tag() {
        let before =
            bytes("eth(dst=02:00:00:00:00:01, src=02:00:00:00:00:02)/ip(src=10.0.1.1, dst=10.0.2.2)/udp");
        let after = bytes(
            "eth(dst=02:00:00:00:00:03, src=02:00:00:00:00:04)/vlan(id=7)\
             /ip(src=10.0.1.1, dst=10.0.2.2, ttl=63)/udp",
        );
        let (before, after) = (before.unwrap(), after.unwrap());
        let to = Mac([2, 0, 0, 0, 0, 3]);
        let from = Mac([2, 0, 0, 0, 0, 4]);
        assert_eq!(forwarded(&before, to, from, Some(7.into())), after);
        let back = forwarded(&after, to, from, None);
        assert_eq!(&back[14..], &one_hop(&one_hop(&before))[14..]);
        let pair = Vlan { id: 9, service: true, inner: Some(7) };
        let two = forwarded(&after, to, from, Some(pair));
        assert_eq!(two[12..22], [0x88, 0xa8, 0, 9, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!(network_layer(&two).map(|(l3, tags, _)| (l3, vlan_of(&tags))), Some((22, Some(pair))));
        assert_eq!(without_outer(&two)[12..18], [0x81, 0, 0, 7, 8, 0]);
        assert_eq!(untagged(&two)[14..], back[14..]);
    }
}
