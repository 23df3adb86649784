//! What a router makes of a frame it forwards, written from the RFCs and not from the programs under test.

use sluice_wire::checksum::internet;
use sluice_wire::{Mac, eth, ipv4, ipv6};

/// Offset of the IP header and the VLAN tag, if the frame is IP.
pub fn network_layer(frame: &[u8]) -> Option<(usize, Option<u16>, u16)> {
    let view = eth::View::new(frame).ok()?;
    if view.ethertype() != eth::TYPE_VLAN {
        return Some((eth::field::HEADER, None, view.ethertype()));
    }
    let tag = sluice_wire::vlan::View::new(view.payload()).ok()?;
    Some((eth::field::HEADER + sluice_wire::vlan::field::HEADER, Some(tag.id()), tag.ethertype()))
}

/// The frame without any VLAN tag.
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    match network_layer(frame) {
        Some((l3, Some(_), _)) => [&frame[..12], &frame[l3 - 2..]].concat(),
        _ => frame.to_vec(),
    }
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

/// The frame as it leaves: one hop less, new addresses, the egress unit's tag. A tag that stays keeps its priority
/// bits; a new one has none.
pub fn forwarded(frame: &[u8], to: Mac, from: Mac, vlan: Option<u16>) -> Vec<u8> {
    let hop = untagged(&one_hop(frame));
    let mut out = [&to.0[..], &from.0[..]].concat();
    if let Some(id) = vlan {
        out.extend(eth::TYPE_VLAN.to_be_bytes());
        match network_layer(frame) {
            Some((_, Some(old), _)) if old == id => out.extend(&frame[14..16]),
            _ => out.extend(id.to_be_bytes()),
        }
    }
    out.extend(&hop[12..]);
    out
}

/// Expected and seen, without what nobody can foretell: the identification of an IPv4 packet that was an IPv6 one and
/// may be fragmented (RFC 7915 section 5.1).
pub fn comparable(came: &[u8], expected: Vec<u8>, seen: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let family = |frame: &[u8]| network_layer(frame).map(|(_, _, ethertype)| ethertype);
    if family(came) == Some(eth::TYPE_IPV6) && family(&seen) == Some(eth::TYPE_IPV4) {
        return (unidentified(expected), unidentified(seen));
    }
    (expected, seen)
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
        assert_eq!(forwarded(&before, to, from, Some(7)), after);
        let back = forwarded(&after, to, from, None);
        assert_eq!(&back[14..], &one_hop(&one_hop(&before))[14..]);
    }
}
