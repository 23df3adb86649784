//! What a client without an address sends and reads by itself: IPv4 (RFC 791), UDP (RFC 768), ARP (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

const IP: usize = 20;
const UDP: usize = 8;

/// A DHCP message to everybody (RFC 2131, section 4.1).
pub fn broadcast(source: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let (length, destination) = (IP + UDP + message.len(), Ipv4Addr::BROADCAST);
    let mut packet = vec![0x45, 0xc0];
    packet.extend((length as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet, 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp_length = (UDP + message.len()) as u16;
    let mut udp = [68u16, 67, udp_length, 0].map(u16::to_be_bytes).concat();
    udp.extend(message);
    let pseudo = [&source.octets()[..], &destination.octets(), &[0, 17], &udp_length.to_be_bytes()].concat();
    let sum = match checksum(&udp, u32::from(!checksum(&pseudo, 0))) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    packet.extend(udp);
    packet
}

/// RFC 1071.
fn checksum(bytes: &[u8], begin: u32) -> u16 {
    let pair = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum = begin + bytes.chunks(2).map(pair).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What a datagram to port 68 holds. Its checksum is not looked at: of a packet from this machine it is not made yet, and
/// the link has one of its own.
pub fn answer(packet: &[u8]) -> Option<&[u8]> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes(*packet.get(2..4)?.first_chunk()?));
    if packet[0] >> 4 != 4 || header < IP || packet.get(9) != Some(&17) {
        return None;
    }
    let udp = packet.get(..total)?.get(header..)?;
    let [_, _, to, to_low, length, length_low, _, _] = *udp.first_chunk::<UDP>()?;
    let length = usize::from(u16::from_be_bytes([length, length_low]));
    (u16::from_be_bytes([to, to_low]) == 68).then_some(())?;
    udp.get(UDP..length)
}

/// RFC 5227, section 1.1: a probe has no sender's address; an announcement has it twice.
pub fn arp(mac: [u8; 6], sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let fixed: &[u8] = &[0, 1, 8, 0, 6, 4, 0, 1];
    [fixed, &mac, &sender.octets(), &[0; 6], &target.octets()].concat()
}

/// Who says by ARP that an address is his, or asks for it himself (RFC 5227, section 2.1.1).
pub fn claims(packet: &[u8], address: Ipv4Addr, own: [u8; 6]) -> Option<[u8; 6]> {
    let packet: &[u8; 28] = packet.first_chunk()?;
    let mac: [u8; 6] = *packet[8..].first_chunk()?;
    let [sender, target] =
        [14, 24].map(|at| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]));
    if packet[..6] != [0, 1, 8, 0, 6, 4] || mac == own {
        return None;
    }
    (sender == address || sender.is_unspecified() && target == address && packet[7] == 1).then_some(mac)
}

pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn checksums_are_right_and_an_answer_reads_back() {
        let mut packet = broadcast(Ipv4Addr::UNSPECIFIED, b"odd");
        assert_eq!(checksum(&packet[..20], 0), 0);
        let pseudo = [&packet[12..20], &[0, 17, 0, 11]].concat();
        assert_eq!(checksum(&packet[20..], u32::from(!checksum(&pseudo, 0))), 0);
        assert_eq!(answer(&packet), None, "to another port");
        packet[22..24].copy_from_slice(&[0, 68]);
        assert_eq!(answer(&packet), Some(&b"odd"[..]));
    }

    #[test]
    fn a_conflict_is_of_another_host_alone() {
        let (own, other, address) = ([2; 6], [4; 6], Ipv4Addr::new(192, 0, 2, 9));
        let unspecified = Ipv4Addr::UNSPECIFIED;
        let claimed = |packet: Vec<u8>| claims(&packet, address, own).is_some();
        assert!(claimed(arp(other, address, Ipv4Addr::new(192, 0, 2, 1))), "it has it");
        assert!(claimed(arp(other, unspecified, address)), "it probes for it");
        assert!(!claimed(arp(own, unspecified, address)), "our own probe");
        assert!(!claimed(arp(other, Ipv4Addr::new(192, 0, 2, 1), address)), "it only asks who has it");
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_ends_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (answer(&bytes), claims(&bytes, Ipv4Addr::BROADCAST, [0; 6]));
        }
    }
}
