//! Packets that leave NAT64 as several IPv6 fragments (RFC 7915 4): the programs translate them, here they are cut.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Duration;

use sluice_wire::checksum::Pseudo;
use sluice_wire::fields::{at, be16, put_be16, v6};
use sluice_wire::ipv6_ext::{MORE, OFFSET_MASK};
use sluice_wire::{icmpv6, ipv6, ipv6_ext, protocol, tcp, udp};
use zerocopy::FromBytes;

use crate::Dataplane;
use crate::error::Result;

const HEADER: usize = ipv6::field::HEADER;
/// And the Fragment header behind it.
const HEADERS: usize = HEADER + ipv6_ext::field::UNIT;
/// Of the Fragment header.
const OFFSET_MORE: Range<usize> = at(HEADER, ipv6_ext::field::OFFSET_MORE);
/// Packets that have waited longer, for want of a running daemon, are not sent.
const STALE_S: u64 = 1;

/// An IPv6 packet with a Fragment header that is longer than the MTU towards its next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversize {
    /// Device by which the next hop is reached.
    pub ifindex: u32,
    limit: usize,
    packet: Vec<u8>,
}

/// Why a packet is not fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It has waited for more than a second.
    Late,
    /// Its fragments would end beyond the longest datagram, or it is none.
    Malformed,
}

impl Oversize {
    fn read(bytes: &[u8]) -> Option<(Oversize, u32)> {
        let (raw, rest) = sluice_abi::Oversize::read_from_prefix(bytes).ok()?;
        let mut packet = rest.get(..raw.length.into())?.to_vec();
        if packet.len() <= HEADERS {
            return None;
        }
        // no host reassembles a datagram longer than 65,535 bytes (RFC 8200 4.5)
        let offset = usize::from(be16(&packet, OFFSET_MORE) & OFFSET_MASK);
        if offset + packet.len() - HEADERS > usize::from(u16::MAX) {
            return None;
        }
        if raw.unsummed != 0 {
            complete(&mut packet);
        }
        Some((Oversize { ifindex: raw.ifindex, limit: raw.limit.into(), packet }, raw.when))
    }

    /// Of its IPv6 header.
    pub fn destination(&self) -> Ipv6Addr {
        v6(&self.packet, ipv6::field::DESTINATION)
    }

    /// RFC 8200 4.5: all but the last hold a multiple of 8 bytes, and what came as a fragment goes on from its offset.
    pub fn pieces(&self) -> Vec<Vec<u8>> {
        let (headers, payload) = self.packet.split_at(HEADERS);
        let room = (self.limit.max(sluice_abi::NAT64_IPV6_MTU_MIN as usize) - HEADERS) & !7;
        let word = be16(headers, OFFSET_MORE);
        let count = payload.len().div_ceil(room);
        let piece = |(index, part): (usize, &[u8])| {
            let mut piece = [headers, part].concat();
            let more = if index + 1 < count { MORE } else { word & MORE };
            let offset = (word & OFFSET_MASK) + (index * room) as u16;
            let length = part.len() + HEADERS - HEADER;
            put_be16(&mut piece, ipv6::field::PAYLOAD_LENGTH, length as u16);
            put_be16(&mut piece, OFFSET_MORE, offset | more);
            piece
        };
        payload.chunks(room).enumerate().map(piece).collect()
    }
}

fn pseudo(packet: &[u8]) -> Pseudo {
    Pseudo::V6(v6(packet, ipv6::field::SOURCE), v6(packet, ipv6::field::DESTINATION))
}

/// Computes the transport checksum that a sender on this machine has left to a device (RFC 8200 8.1).
fn complete(packet: &mut [u8]) {
    let protocol = packet[HEADER + ipv6_ext::field::NEXT_HEADER];
    let field = match protocol {
        protocol::TCP => tcp::field::CHECKSUM,
        protocol::UDP => udp::field::CHECKSUM,
        protocol::ICMPV6 => icmpv6::field::CHECKSUM,
        _ => return,
    };
    let pseudo = pseudo(packet);
    let segment = &mut packet[HEADERS..];
    if segment.len() < field.end {
        return;
    }
    put_be16(segment, field.clone(), 0);
    let check = udp::sent(pseudo.checksum(protocol, segment));
    put_be16(segment, field, check);
}

impl Dataplane {
    /// Hands over packets that are to be fragmented as they come, until `go_on` says no; one reader at a time.
    pub fn watch_oversize(
        &self,
        go_on: impl Fn() -> bool,
        mut take: impl FnMut(std::result::Result<Oversize, Unfit>),
    ) -> Result<()> {
        let stale = STALE_S as u32 * self.hz();
        self.watch_ring("oversize", "packets to fragment", Duration::ZERO, go_on, |bytes| {
            let Some((oversize, when)) = Oversize::read(bytes) else { return take(Err(Unfit::Malformed)) };
            let now = self.now_jiffies().map_or(when, |now| now as u32);
            take(if now.wrapping_sub(when) <= stale { Ok(oversize) } else { Err(Unfit::Late) });
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `offset` in bytes, with the flag.
    fn oversize(length: usize, offset: u16, limit: usize) -> Oversize {
        let mut packet = vec![0; HEADERS];
        (packet[0], packet[6], packet[40]) = (0x60, protocol::FRAGMENT, protocol::UDP);
        packet[42..44].copy_from_slice(&offset.to_be_bytes());
        packet.extend((0..length).map(|at| at as u8));
        Oversize { ifindex: 1, limit, packet }
    }

    #[test]
    fn pieces_fit_and_are_the_whole() {
        for length in (1..3000).chain([9000, 10_000]) {
            for (offset, limit) in [(0, 1280), (1, 1280), (0x0b90, 1287), (0x0b91, 1500)] {
                let whole = oversize(length, offset, limit);
                let (mut at, pieces) = (0, whole.pieces());
                for (index, piece) in pieces.iter().enumerate() {
                    let last = index + 1 == pieces.len();
                    let word = u16::from_be_bytes([piece[42], piece[43]]);
                    let part = &piece[HEADERS..];
                    assert!(piece.len() <= limit && (last || part.len() % 8 == 0), "{length}, {limit}");
                    assert_eq!(usize::from(u16::from_be_bytes([piece[4], piece[5]])), piece.len() - HEADER);
                    assert_eq!(word & MORE, if last { offset & MORE } else { MORE });
                    assert_eq!(usize::from(word & !7), usize::from(offset & !7) + at);
                    assert_eq!(part, &whole.packet[HEADERS + at..][..part.len()]);
                    at += part.len();
                }
                assert_eq!(at, length);
            }
        }
    }

    #[test]
    fn what_ends_beyond_the_longest_datagram_is_not_sent() {
        for (offset, length, sent) in
            [(65528, 7, true), (65528, 8, false), (64000, 2000, false), (0, 0, false)]
        {
            let packet = oversize(length, offset, 1280).packet;
            let head = sluice_abi::Oversize { length: packet.len() as u16, ..Default::default() };
            let record = [zerocopy::IntoBytes::as_bytes(&head), &packet].concat();
            assert_eq!(Oversize::read(&record).is_some(), sent, "{offset} {length}");
        }
    }

    #[test]
    fn checksums_are_completed() {
        for length in [9, 40, 1401] {
            let mut packet = oversize(length, 0, 1280).packet;
            complete(&mut packet);
            assert_eq!(pseudo(&packet).checksum(protocol::UDP, &packet[HEADERS..]), 0);
        }
    }
}
