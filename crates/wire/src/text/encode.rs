//! Layers to bytes, innermost first, so that every length and checksum is known when it is needed.

use super::{Kind, Layer, TextError, Value};
use crate::checksum::Pseudo;
use crate::{Mac, arp, eth, ethertype, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, protocol, tcp, udp, vlan};
use std::net::{Ipv4Addr, Ipv6Addr};

pub fn packet(layers: &[Layer]) -> Result<Vec<u8>, TextError> {
    let mut payload = Vec::new();
    let mut trailer = Vec::new();
    let mut cut = None;
    for (index, layer) in layers.iter().enumerate().rev() {
        let next = layers.get(index + 1).map(|layer| layer.kind);
        match layer.kind {
            Kind::Cut => cut = Some(layer.n("n").unwrap_or(0) as usize),
            Kind::Trailer if matches!(next, None | Some(Kind::Cut)) => trailer = layer.bytes("bytes"),
            Kind::Trailer => return Err(wrong("a trailer stands last (only `cut` may follow)")),
            Kind::Raw => payload.splice(0..0, layer.bytes("bytes")).for_each(drop),
            Kind::Fill => {
                let byte = layer.n("byte").unwrap_or(0) as u8;
                let filler = vec![byte; layer.n("n").unwrap_or(0) as usize];
                payload.splice(0..0, filler).for_each(drop);
            }
            _ => payload = header(layer, next, pseudo(&layers[..index]), payload)?,
        }
    }
    payload.extend(trailer);
    if let Some(length) = cut {
        payload.truncate(length);
    }
    if payload.len() > usize::from(u16::MAX) {
        return Err(wrong("a packet longer than 65,535 bytes"));
    }
    Ok(payload)
}

fn wrong(message: &str) -> TextError {
    TextError { at: 0, message: message.to_owned() }
}

/// The pseudo-header for a transport layer below `outer`: addresses of the nearest IP header.
fn pseudo(outer: &[Layer]) -> Pseudo {
    match outer.iter().rev().find(|layer| matches!(layer.kind, Kind::Ip | Kind::Ip6)) {
        Some(layer) if layer.kind == Kind::Ip => Pseudo::V4(layer.v4("src"), layer.v4("dst")),
        Some(layer) => Pseudo::V6(layer.v6("src"), layer.v6("dst")),
        None => Pseudo::None,
    }
}

fn header(layer: &Layer, next: Option<Kind>, pseudo: Pseudo, payload: Vec<u8>) -> Result<Vec<u8>, TextError> {
    Ok(match layer.kind {
        Kind::Eth => ethernet(layer, next).build(&payload),
        Kind::Vlan => tag(layer, next).build(&payload),
        Kind::Arp => arp_message(layer).build(&payload),
        Kind::Ip => ip(layer, next).build(&payload),
        Kind::Ip6 => ip6(layer, next).build(&payload),
        Kind::HopByHop | Kind::DestinationOptions => options(layer, next).build(&payload),
        Kind::Routing => routing(layer, next).build(&payload),
        Kind::Fragment => fragment(layer, next).build(&payload),
        Kind::Udp => udp_header(layer).build(&payload, pseudo),
        Kind::Tcp => tcp_header(layer).build(&payload, pseudo),
        Kind::Icmp => icmp(layer).build(quoted(layer, &payload)),
        Kind::Icmp6 => icmp6(layer).build(quoted(layer, &payload), pseudo),
        Kind::Raw | Kind::Fill | Kind::Trailer | Kind::Cut => {
            return Err(wrong("payload is not a header"));
        }
    })
}

fn ethertype_of(layer: &Layer, next: Option<Kind>) -> u16 {
    let natural = match next {
        Some(Kind::Ip) => ethertype::IPV4,
        Some(Kind::Ip6) => ethertype::IPV6,
        Some(Kind::Arp) => ethertype::ARP,
        Some(Kind::Vlan) => ethertype::VLAN,
        _ => 0,
    };
    layer.n("type").map_or(natural, |n| n as u16)
}

/// What a `proto` or `next` field says about the following layer; `nothing` when none follows.
fn protocol_of(layer: &Layer, field: &str, next: Option<Kind>, nothing: u8) -> u8 {
    let natural = match next {
        Some(Kind::Udp) => protocol::UDP,
        Some(Kind::Tcp) => protocol::TCP,
        Some(Kind::Icmp) => protocol::ICMP,
        Some(Kind::Icmp6) => protocol::ICMPV6,
        Some(Kind::Ip) => protocol::IPV4,
        Some(Kind::Ip6) => protocol::IPV6,
        Some(Kind::HopByHop) => protocol::HOP_BY_HOP,
        Some(Kind::Routing) => protocol::ROUTING,
        Some(Kind::Fragment) => protocol::FRAGMENT,
        Some(Kind::DestinationOptions) => protocol::DESTINATION_OPTIONS,
        Some(Kind::Raw | Kind::Fill) => protocol::RESERVED,
        _ => nothing,
    };
    layer.n(field).map_or(natural, |n| n as u8)
}

fn ethernet(layer: &Layer, next: Option<Kind>) -> eth::Builder {
    let ethertype = ethertype_of(layer, next);
    eth::Builder { destination: layer.mac("dst"), source: layer.mac("src"), ethertype }
}

fn tag(layer: &Layer, next: Option<Kind>) -> vlan::Builder {
    vlan::Builder {
        priority: layer.num("pcp") as u8,
        drop_eligible: layer.num("dei") != 0,
        id: layer.num("id") as u16,
        ethertype: ethertype_of(layer, next),
    }
}

fn arp_message(layer: &Layer) -> arp::Builder {
    arp::Builder {
        operation: layer.n("op").unwrap_or(1) as u16,
        sender_mac: layer.mac("sha"),
        sender_ip: layer.v4("spa"),
        target_mac: layer.mac("tha"),
        target_ip: layer.v4("tpa"),
    }
}

fn ip(layer: &Layer, next: Option<Kind>) -> ipv4::Builder {
    let flags = layer.num("rf") << 15 | layer.num("df") << 14 | layer.num("mf") << 13;
    ipv4::Builder {
        source: layer.v4("src"),
        destination: layer.v4("dst"),
        protocol: protocol_of(layer, "proto", next, protocol::RESERVED),
        ttl: layer.n("ttl").unwrap_or(64) as u8,
        tos: layer.num("tos") as u8,
        id: layer.num("id") as u16,
        flags_offset: (flags | layer.num("frag")) as u16,
        options: layer.bytes("opts"),
        version: layer.n("version").map(|n| n as u8),
        ihl: layer.n("ihl").map(|n| n as u8),
        length: layer.n("len").map(|n| n as u16),
        checksum: layer.n("csum").map(|n| n as u16),
    }
}

fn ip6(layer: &Layer, next: Option<Kind>) -> ipv6::Builder {
    ipv6::Builder {
        source: layer.v6("src"),
        destination: layer.v6("dst"),
        next_header: protocol_of(layer, "next", next, protocol::NO_NEXT),
        hop_limit: layer.n("hop").unwrap_or(64) as u8,
        traffic_class: layer.num("tc") as u8,
        flow_label: layer.num("flow") as u32,
        version: layer.n("version").map(|n| n as u8),
        length: layer.n("len").map(|n| n as u16),
    }
}

fn options(layer: &Layer, next: Option<Kind>) -> ipv6_ext::Builder {
    ipv6_ext::Builder {
        next_header: protocol_of(layer, "next", next, protocol::NO_NEXT),
        data: layer.bytes("opts"),
        length: layer.n("len").map(|n| n as u8),
    }
}

fn routing(layer: &Layer, next: Option<Kind>) -> ipv6_ext::Builder {
    let mut data = vec![layer.num("type") as u8, layer.num("left") as u8];
    data.extend(layer.bytes("data"));
    // Addresses and reserved words are not options: pad with zeros here, or PadN would be added.
    data.resize((data.len() + 2).next_multiple_of(ipv6_ext::field::UNIT) - 2, 0);
    ipv6_ext::Builder {
        next_header: protocol_of(layer, "next", next, protocol::NO_NEXT),
        data,
        length: layer.n("len").map(|n| n as u8),
    }
}

fn fragment(layer: &Layer, next: Option<Kind>) -> ipv6_ext::FragmentBuilder {
    ipv6_ext::FragmentBuilder {
        next_header: protocol_of(layer, "next", next, protocol::NO_NEXT),
        reserved: layer.num("res") as u8,
        offset_more: (layer.num("frag") << 3 | layer.num("res2") << 1 | layer.num("mf")) as u16,
        id: layer.num("id") as u32,
    }
}

fn udp_header(layer: &Layer) -> udp::Builder {
    udp::Builder {
        source_port: layer.num("sport") as u16,
        destination_port: layer.num("dport") as u16,
        length: layer.n("len").map(|n| n as u16),
        checksum: layer.n("csum").map(|n| n as u16),
    }
}

fn tcp_header(layer: &Layer) -> tcp::Builder {
    tcp::Builder {
        source_port: layer.num("sport") as u16,
        destination_port: layer.num("dport") as u16,
        sequence: layer.num("seq") as u32,
        acknowledgment: layer.num("ack") as u32,
        reserved: layer.num("res") as u8,
        flags: layer.num("flags") as u8,
        window: layer.n("win").unwrap_or(65535) as u16,
        urgent: layer.num("urg") as u16,
        options: layer.bytes("opts"),
        offset: layer.n("off").map(|n| n as u8),
        checksum: layer.n("csum").map(|n| n as u16),
    }
}

fn icmp(layer: &Layer) -> icmpv4::Builder {
    let named = layer.num("id") << 16 | layer.num("seq") | layer.num("mtu");
    icmpv4::Builder {
        kind: layer.num("type") as u8,
        code: layer.num("code") as u8,
        rest: layer.n("rest").unwrap_or(named) as u32,
        checksum: layer.n("csum").map(|n| n as u16),
    }
}

fn icmp6(layer: &Layer) -> icmpv6::Builder {
    let named = layer.num("id") << 16 | layer.num("seq") | layer.num("mtu");
    icmpv6::Builder {
        kind: layer.num("type") as u8,
        code: layer.num("code") as u8,
        rest: layer.n("rest").unwrap_or(named) as u32,
        checksum: layer.n("csum").map(|n| n as u16),
    }
}

/// The part of a quoted packet that `quote=` keeps.
fn quoted<'a>(layer: &Layer, payload: &'a [u8]) -> &'a [u8] {
    let keep = layer.n("quote").map_or(payload.len(), |n| n as usize);
    &payload[..keep.min(payload.len())]
}

impl Layer {
    fn n(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Number(n)) => Some(*n),
            _ => None,
        }
    }

    fn num(&self, name: &str) -> u64 {
        self.n(name).unwrap_or(0)
    }

    fn mac(&self, name: &str) -> Mac {
        match self.get(name) {
            Some(Value::Mac(mac)) => *mac,
            _ => Mac::default(),
        }
    }

    fn v4(&self, name: &str) -> Ipv4Addr {
        match self.get(name) {
            Some(Value::V4(addr)) => *addr,
            _ => Ipv4Addr::UNSPECIFIED,
        }
    }

    fn v6(&self, name: &str) -> Ipv6Addr {
        match self.get(name) {
            Some(Value::V6(addr)) => *addr,
            _ => Ipv6Addr::UNSPECIFIED,
        }
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        match self.get(name) {
            Some(Value::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }
}
