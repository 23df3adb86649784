//! The plain model of forwarding: what must leave when a frame has come.

use std::net::IpAddr;

use crate::generator::endpoints::{ETHERNET, Endpoints, Offsets, offsets};
use crate::generator::packets::sum;
use crate::generator::site::Side;

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// What must leave towards `side`: one hop less to live (RFC 1812 5.3.1, RFC 8200 3), the addresses of the link, the ends
/// it is given, sums computed anew from what then stands there, and nothing else.
pub fn forwarded(came: &[u8], side: &Side, ends: Endpoints) -> Vec<u8> {
    let mut frame = came.to_vec();
    let Offsets { hops, addresses, l4, protocol, end, .. } = offsets(came);
    frame[..6].copy_from_slice(&side.host_mac);
    frame[6..12].copy_from_slice(&side.mac);
    frame[hops] -= 1;
    let pair = [octets(ends.from.0), octets(ends.to.0)].concat();
    frame[addresses..addresses + pair.len()].copy_from_slice(&pair);
    frame[l4..l4 + 2].copy_from_slice(&ends.from.1.to_be_bytes());
    frame[l4 + 2..l4 + 4].copy_from_slice(&ends.to.1.to_be_bytes());
    if l4 == ETHERNET + 20 {
        frame[24..26].fill(0);
        let check = !sum(&frame[ETHERNET..l4]);
        frame[24..26].copy_from_slice(&check.to_be_bytes());
    }
    if Endpoints::of(came) != ends {
        let at = l4 + if protocol == 6 { 16 } else { 6 };
        frame[at..at + 2].fill(0);
        let check = transport_check(&frame[l4..end], &pair, protocol);
        frame[at..at + 2].copy_from_slice(&check.to_be_bytes());
    }
    frame
}

/// What must leave as the other family (RFC 7915 4.1, 5.1): a header made anew, one hop less to live, the transport's sum
/// computed anew. The identification is the program's to choose, and is taken from what left.
pub fn between_families(came: &[u8], left: &[u8], side: &Side, ends: Endpoints) -> Vec<u8> {
    let Offsets { hops, l4, protocol, end, .. } = offsets(came);
    let pair = [octets(ends.from.0), octets(ends.to.0)].concat();
    let mut segment = came[l4..end].to_vec();
    let length = segment.len() as u16;
    segment[..2].copy_from_slice(&ends.from.1.to_be_bytes());
    segment[2..4].copy_from_slice(&ends.to.1.to_be_bytes());
    let at = if protocol == 6 { 16 } else { 6 };
    segment[at..at + 2].fill(0);
    let check = transport_check(&segment, &pair, protocol);
    segment[at..at + 2].copy_from_slice(&check.to_be_bytes());
    let mut header = match ends.from.0 {
        IpAddr::V4(_) => [
            &[0x45, 0][..],
            &(20 + length).to_be_bytes(),
            &left[18..20],
            &[0, 0, came[hops] - 1, protocol, 0, 0],
        ]
        .concat(),
        IpAddr::V6(_) => [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[protocol, came[hops] - 1]].concat(),
    };
    header.extend(&pair);
    if ends.from.0.is_ipv4() {
        let check = !sum(&header);
        header[10..12].copy_from_slice(&check.to_be_bytes());
    }
    let ethertype = if ends.from.0.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&side.host_mac[..], &side.mac, &ethertype, &header, &segment].concat()
}

/// RFC 768, RFC 9293 3.1, RFC 8200 8.1. A datagram's sum of zero is sent as all ones.
fn transport_check(segment: &[u8], addresses: &[u8], protocol: u8) -> u16 {
    let mut covered = addresses.to_vec();
    covered.extend([0, protocol]);
    covered.extend((segment.len() as u16).to_be_bytes());
    covered.extend(segment);
    match (!sum(&covered), protocol) {
        (0, 17) => 0xffff,
        (check, _) => check,
    }
}

/// Two frames byte by byte.
pub fn same_bytes(seen: &[u8], wanted: &[u8]) -> Result<(), String> {
    if seen == wanted {
        return Ok(());
    }
    let at = seen.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(seen.len().min(wanted.len()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Err(format!("from byte {at} on: left as {}, must be {}", hex(seen), hex(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::packets::{Family, Protocol, TCP_ACK, Template, Tuple};

    fn side() -> Side {
        Side { device: "wan0", mac: [2; 6], host_mac: [4; 6], ifindex: 1, host_ifindex: 2 }
    }

    fn frames() -> Vec<Vec<u8>> {
        let mut frames = vec![];
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            for session in 0..300 {
                let tuple = Tuple::of_session(session);
                let four = Template::new(Family::V4, protocol, [1; 6], [3; 6], TCP_ACK);
                let six = Template::new(Family::V6, protocol, [1; 6], [3; 6], TCP_ACK);
                frames.push(four.frame4(&four.entry4(tuple, session % 2 == 1), 5));
                frames.push(six.frame6(&six.entry6(tuple, session % 2 == 1), 5));
            }
        }
        frames
    }

    /// What the model makes has right sums in the eyes of another reader, and only what must change has changed.
    #[test]
    fn a_forwarded_frame_has_right_sums_and_no_other_changes() {
        for came in frames() {
            let mut ends = Endpoints::of(&came);
            let plain = forwarded(&came, &side(), ends);
            let changed: Vec<usize> = (12..came.len()).filter(|at| plain[*at] != came[*at]).collect();
            assert!(changed.iter().all(|at| [21, 22, 24, 25].contains(at)), "{changed:?}");
            ends.from.1 = ends.from.1.wrapping_add(77);
            let left = forwarded(&came, &side(), ends);
            assert_eq!(Endpoints::of(&left), ends);
            let Offsets { l4, end, protocol, addresses, address_len, .. } = offsets(&left);
            let mut covered = left[addresses..addresses + 2 * address_len].to_vec();
            covered.extend([0, protocol, 0, (end - l4) as u8]);
            covered.extend(&left[l4..end]);
            assert_eq!(sum(&covered), 0xffff);
            assert!(l4 != 34 || sum(&left[14..34]) == 0xffff);
        }
    }
}
