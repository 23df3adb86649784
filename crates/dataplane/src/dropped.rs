//! Dropped packets that the data plane tells of, read from their ring buffer.

use std::net::IpAddr;

use libbpf_rs::RingBufferBuilder;
use sluice_abi::stages::Reason;
use sluice_wire::fields::{be16, v4, v6};
use sluice_wire::{Mac, arp, eth, ethertype, icmpv4, ipv4, ipv6, ipv6_ext, protocol, tcp, vlan};
use zerocopy::FromBytes;

use crate::Dataplane;
use crate::error::{Doing, Result};
use crate::events::GATHER;

/// One record of `bpf/abi/dropped.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Why it was dropped.
    pub reason: Reason,
    /// What its first bytes say.
    pub headers: Headers,
    /// All of the record, as the data plane wrote it.
    pub raw: sluice_abi::Dropped,
}

impl Dropped {
    /// None = another build's record, or a reason that this one does not know.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (raw, _) = sluice_abi::Dropped::read_from_prefix(bytes).ok()?;
        let reason = *Reason::BY_NUMBER.get(usize::from(raw.reason))?;
        let head = &raw.head[..usize::from(raw.length).min(raw.head.len())];
        let mut headers = Headers::read(head, raw.l3.into(), raw.l4.into(), raw.proto);
        if headers.ports.is_none() && has_ports(headers.protocol) && (raw.be_sport, raw.be_dport) != (0, 0) {
            // a later fragment's, which the first one knew
            headers.ports = Some((u16::from_be(raw.be_sport), u16::from_be(raw.be_dport)));
        }
        Some(Self { reason, headers, raw })
    }
}

/// What the first bytes of a frame say. What is cut off, or not there, is None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Headers {
    /// Source and destination.
    pub macs: Option<(Mac, Mac)>,
    /// Behind VLAN tags.
    pub ethertype: Option<u16>,
    /// Source and destination.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Behind all extension headers.
    pub protocol: Option<u8>,
    /// Source and destination.
    pub ports: Option<(u16, u16)>,
    /// Type and code.
    pub icmp: Option<(u8, u8)>,
    /// The low eight bits, FIN first (RFC 9293 3.1).
    pub tcp_flags: Option<u8>,
}

impl Headers {
    /// `l3`, `l4` and `proto` are what the data plane has found; 0 = it has not looked.
    pub fn read(frame: &[u8], l3: usize, l4: usize, proto: u8) -> Self {
        let mut headers = Self::default();
        let Ok(link) = eth::View::new(frame) else { return headers };
        headers.macs = Some((link.source(), link.destination()));
        let l3 = behind_tags(frame, l3.max(eth::field::HEADER));
        let Some(kind) = l3.checked_sub(2).and_then(|at| frame.get(at..at + 2)) else { return headers };
        headers.ethertype = Some(be16(kind, 0..2));
        let packet = &frame[l3..];
        let behind = match headers.ethertype {
            Some(ethertype::IPV4) => headers.network4(packet),
            Some(ethertype::IPV6) => headers.network6(packet),
            Some(ethertype::ARP) => {
                headers.arp(packet);
                None
            }
            _ => None,
        };
        let Some(behind) = behind else { return headers };
        // one that the data plane has given up at is not where the headers end
        let is_found = l4 != 0 && proto != 0 && !ipv6_ext::is_extension(proto);
        if is_found {
            headers.protocol = Some(proto);
        }
        let transport = if is_found { l4.saturating_sub(l3) } else { behind };
        headers.transport(packet.get(transport..).unwrap_or_default());
        headers
    }

    /// Where the transport header begins, if this packet has it.
    fn network4(&mut self, packet: &[u8]) -> Option<usize> {
        let view = ipv4::View::new_unchecked(packet).ok()?;
        self.addresses = Some((view.source().into(), view.destination().into()));
        self.protocol = Some(view.protocol());
        (view.flags_offset() & ipv4::OFFSET_MASK == 0).then_some(view.header_length())
    }

    fn network6(&mut self, packet: &[u8]) -> Option<usize> {
        if packet.len() < ipv6::field::HEADER {
            return None;
        }
        self.addresses =
            Some((v6(packet, ipv6::field::SOURCE).into(), v6(packet, ipv6::field::DESTINATION).into()));
        let (mut next, mut at) = (packet[ipv6::field::NEXT_HEADER], ipv6::field::HEADER);
        self.protocol = Some(next);
        while ipv6_ext::is_extension(next) {
            let header = packet.get(at..at + ipv6_ext::field::UNIT)?;
            if next == protocol::FRAGMENT {
                next = header[ipv6_ext::field::NEXT_HEADER];
                self.protocol = Some(next);
                if be16(header, ipv6_ext::field::OFFSET_MORE) & ipv6_ext::OFFSET_MASK != 0 {
                    return None;
                }
                at += ipv6_ext::field::UNIT;
                continue;
            }
            next = header[ipv6_ext::field::NEXT_HEADER];
            at += ipv6_ext::length(header[ipv6_ext::field::LENGTH]);
            self.protocol = Some(next);
        }
        Some(at)
    }

    fn arp(&mut self, packet: &[u8]) {
        if packet.len() >= arp::field::LENGTH {
            let address = |field| IpAddr::from(v4(packet, field));
            self.addresses = Some((address(arp::field::SENDER_IP), address(arp::field::TARGET_IP)));
        }
    }

    fn transport(&mut self, segment: &[u8]) {
        if has_ports(self.protocol) && segment.len() >= 4 {
            self.ports = Some((be16(segment, 0..2), be16(segment, 2..4)));
        }
        match self.protocol {
            Some(protocol::TCP) => self.tcp_flags = segment.get(tcp::field::FLAGS).copied(),
            Some(protocol::ICMP | protocol::ICMPV6) if segment.len() >= 2 => {
                self.icmp = Some((segment[icmpv4::field::TYPE], segment[icmpv4::field::CODE]));
            }
            _ => {}
        }
    }
}

/// Protocols whose headers begin with two ports, as `bpf/lib/packet.h` has them.
fn has_ports(number: Option<u8>) -> bool {
    const WITH_PORTS: [u8; 5] =
        [protocol::TCP, protocol::UDP, protocol::SCTP, protocol::DCCP, protocol::UDP_LITE];
    number.is_some_and(|number| WITH_PORTS.contains(&number))
}

/// Where the network header begins, if not behind still more tags than the data plane takes.
fn behind_tags(frame: &[u8], mut at: usize) -> usize {
    while frame.len() >= at && ethertype::TAGS.contains(&be16(frame, at - 2..at)) {
        at += vlan::field::HEADER;
    }
    at.min(frame.len())
}

impl Dataplane {
    /// Hands over dropped packets as they come, those of the time without a reader first, until `go_on` says no. There
    /// can be one reader at a time.
    pub fn watch_dropped(&self, go_on: impl Fn() -> bool, mut take: impl FnMut(Dropped)) -> Result<()> {
        self.watch_ring("dropped", "dropped packets", GATHER, go_on, |bytes| {
            Dropped::read(bytes).into_iter().for_each(&mut take)
        })
    }

    /// Those that wait to be read, without waiting for more.
    pub fn take_dropped(&self) -> Result<Vec<Dropped>> {
        let what = || "read the dropped packets".to_owned();
        let mut taken = Vec::new();
        let mut builder = RingBufferBuilder::new();
        let take = |bytes: &[u8]| {
            taken.extend(Dropped::read(bytes));
            0
        };
        builder.add(self.state.map("dropped"), take).doing(what)?;
        let ring = builder.build().doing(what)?;
        ring.consume().doing(what)?;
        drop(ring);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use sluice_wire::text::bytes;

    use super::*;

    fn headers(text: &str) -> Headers {
        Headers::read(&bytes(text).unwrap(), 0, 0, 0)
    }

    #[test]
    fn tuples_are_read_behind_tags_and_extension_headers() {
        for packet in [
            "eth()/ip(src=10.0.0.1, dst=10.0.0.2)/udp(sport=7, dport=9)",
            "eth()/vlan(id=5)/ip(src=10.0.0.1, dst=10.0.0.2)/tcp(sport=7, dport=9)",
            "eth()/ip6(src=fd00::1, dst=fd00::2)/hbh()/dstopts()/udp(sport=7, dport=9)",
            "eth()/ip6(src=fd00::1, dst=fd00::2)/fragment(id=1)/tcp(sport=7, dport=9)",
        ] {
            let headers = headers(packet);
            assert_eq!(headers.ports, Some((7, 9)), "{packet}");
            let (source, destination) = headers.addresses.unwrap();
            assert!(source.to_string().ends_with('1') && destination.to_string().ends_with('2'), "{packet}");
        }
        let echo = headers("eth()/ip(src=10.0.0.1, dst=10.0.0.2)/icmp(type=8)");
        assert_eq!((echo.icmp, echo.ports), (Some((8, 0)), None));
    }

    /// Of what is cut off nothing is made up, wherever that is.
    #[test]
    fn what_is_cut_off_is_not_there() {
        let whole =
            bytes("eth()/vlan(id=5)/ip6(src=fd00::1, dst=fd00::2)/hbh()/tcp(sport=7, dport=9)").unwrap();
        for length in 0..whole.len() {
            let headers = Headers::read(&whole[..length], 0, 0, 0);
            assert_eq!(headers.macs.is_some(), length >= 14, "{length}");
            assert_eq!(headers.addresses.is_some(), length >= 58, "{length}");
            assert_eq!(headers.ports.is_some(), length >= 70, "{length}");
        }
        // places that lie, as they never should
        for (l3, l4) in [(200, 0), (14, 300), (1, 1), (13, 2)] {
            Headers::read(&whole, l3, l4, 6);
        }
    }
}
