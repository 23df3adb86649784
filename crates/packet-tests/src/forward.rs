//! What a router makes of a frame it forwards, written from the RFCs and not from the programs under test.

use sluice_language::config::Vlan;
use sluice_wire::checksum::internet;
use sluice_wire::fields::{at, be16, put_be16};
use sluice_wire::{Mac, eth, ethertype, ipv4, ipv6, ipv6_ext, protocol, vlan};

/// A tag as it stands in a frame (IEEE 802.1Q section 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// What kind of tag: 0x8100 or 0x88a8.
    pub tpid: u16,
    /// Priority, DEI and VLAN.
    pub tci: u16,
}

impl Tag {
    const LENGTH: usize = vlan::field::HEADER;

    fn bytes(self) -> [u8; Self::LENGTH] {
        let ([a, b], [c, d]) = (self.tpid.to_be_bytes(), self.tci.to_be_bytes());
        [a, b, c, d]
    }
}

/// The tags of a unit's frames, outer first, with priority 0.
pub fn tags_of(vlan: Option<Vlan>) -> Vec<Tag> {
    let Some(vlan) = vlan else { return Vec::new() };
    let outer = if vlan.service { ethertype::SERVICE_VLAN } else { ethertype::VLAN };
    let inner = vlan.inner.map(|tci| Tag { tpid: ethertype::VLAN, tci });
    [Tag { tpid: outer, tci: vlan.id }].into_iter().chain(inner).collect()
}

/// Which unit's frames have these tags; a priority tag is none.
pub fn vlan_of(tags: &[Tag]) -> Option<Vlan> {
    let service = tags.first()?.tpid == ethertype::SERVICE_VLAN;
    let vlan = Vlan {
        id: tags[0].tci & vlan::ID_MASK,
        service,
        inner: tags.get(1).map(|tag| tag.tci & vlan::ID_MASK),
    };
    (vlan != Vlan::from(0)).then_some(vlan)
}

/// Offset of the network layer, the tags before it (an 802.1Q or 802.1ad one, and an 802.1Q one behind it) and the type.
pub fn network_layer(frame: &[u8]) -> Option<(usize, Vec<Tag>, u16)> {
    let mut ethertype = eth::View::new(frame).ok()?.ethertype();
    let mut tags = Vec::new();
    while ethertype == ethertype::VLAN && tags.len() < 2
        || ethertype == ethertype::SERVICE_VLAN && tags.is_empty()
    {
        let tag = vlan::View::new(&frame[eth::field::HEADER + tags.len() * Tag::LENGTH..]).ok()?;
        let tci = u16::from(tag.priority()) << 13 | u16::from(tag.drop_eligible()) << 12 | tag.id();
        tags.push(Tag { tpid: ethertype, tci });
        ethertype = tag.ethertype();
    }
    Some((eth::field::HEADER + tags.len() * Tag::LENGTH, tags, ethertype))
}

/// The frame without any VLAN tag.
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    match network_layer(frame) {
        Some((l3, ..)) => [&frame[eth::field::ADDRESSES], &frame[l3 - 2..]].concat(),
        None => frame.to_vec(),
    }
}

/// The frame as tc has it: the outer tag stands beside it.
pub fn without_outer(frame: &[u8]) -> Vec<u8> {
    match network_layer(frame) {
        Some((_, tags, _)) if !tags.is_empty() => {
            [&frame[eth::field::ADDRESSES], &frame[eth::field::TYPE.start + Tag::LENGTH..]].concat()
        }
        _ => frame.to_vec(),
    }
}

/// An untagged frame with tags.
pub fn tagged(frame: &[u8], tags: &[Tag]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|tag| tag.bytes()).collect();
    [&frame[eth::field::ADDRESSES], &tags, &frame[eth::field::TYPE.start..]].concat()
}

/// One hop less (RFC 1812 section 5.3.1; RFC 8200 section 3), with the IPv4 checksum made anew.
pub fn one_hop(frame: &[u8]) -> Vec<u8> {
    let mut out = frame.to_vec();
    let Some((l3, _, ethertype)) = network_layer(frame) else { return out };
    match ethertype {
        ethertype::IPV4 => {
            out[l3 + ipv4::field::TTL] -= 1;
            let header = l3 + ipv4::header_length(out[l3]);
            sum_header(&mut out[l3..header]);
        }
        ethertype::IPV6 => out[l3 + ipv6::field::HOP_LIMIT] -= 1,
        _ => {}
    }
    out
}

/// Computes the checksum of an IPv4 header anew.
fn sum_header(header: &mut [u8]) {
    put_be16(header, ipv4::field::CHECKSUM, 0);
    let sum = internet(header);
    put_be16(header, ipv4::field::CHECKSUM, sum);
}

/// The frame as it leaves: one hop less, new addresses, the egress unit's tags. Tags that stay keep their priority
/// bits; new ones have none.
pub fn forwarded(frame: &[u8], to: Mac, from: Mac, vlan: Option<Vlan>) -> Vec<u8> {
    let arrived = network_layer(frame).map(|(_, tags, _)| tags).unwrap_or_default();
    let tags = if vlan.is_some() && vlan_of(&arrived) == vlan { arrived } else { tags_of(vlan) };
    let hop = untagged(&one_hop(frame));
    tagged(&[&to.0[..], &from.0[..], &hop[eth::field::TYPE.start..]].concat(), &tags)
}

/// Expected and seen, without what nobody can foretell: the identification of an IPv4 packet that was an IPv6 one and
/// may be fragmented (RFC 7915 section 5.1). One with a Fragment header keeps what that says (5.1.1).
pub fn comparable(came: &[u8], expected: Vec<u8>, seen: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let family = |frame: &[u8]| network_layer(frame).map(|(_, _, ethertype)| ethertype);
    let translated = family(came) == Some(ethertype::IPV6) && family(&seen) == Some(ethertype::IPV4);
    if translated && !has_fragment_header(came) {
        return (unidentified(expected), unidentified(seen));
    }
    (expected, seen)
}

fn has_fragment_header(frame: &[u8]) -> bool {
    let Some((l3, ..)) = network_layer(frame) else { return false };
    use ipv6_ext::field;
    let (mut next, mut at) = (frame[l3 + ipv6::field::NEXT_HEADER], l3 + ipv6::field::HEADER);
    while [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION_OPTIONS].contains(&next)
        && at + field::UNIT <= frame.len()
    {
        let length = ipv6_ext::length(frame[at + field::LENGTH]);
        (next, at) = (frame[at + field::NEXT_HEADER], at + length);
    }
    next == protocol::FRAGMENT
}

fn unidentified(mut frame: Vec<u8>) -> Vec<u8> {
    let Some((l3, _, ethertype::IPV4)) = network_layer(&frame) else { return frame };
    let plain = at(l3, 0..ipv4::field::HEADER);
    if frame.len() < plain.end {
        return frame;
    }
    let header = &mut frame[plain];
    if be16(header, ipv4::field::FLAGS_OFFSET) & !ipv4::FLAG_RESERVED != 0 {
        return frame;
    }
    // a header that was right stays so, and a wrong one stays wrong
    let right = internet(header) == 0;
    put_be16(header, ipv4::field::ID, 0);
    if right {
        sum_header(header);
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
