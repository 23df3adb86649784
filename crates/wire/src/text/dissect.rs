//! Bytes to layers. Every field is read first; then each one that is as it would be by default is taken away again,
//! so what remains is exactly what is remarkable, and parses to the same bytes.

use super::{Kind, Layer, Packet, Value, encode};
use crate::{Mac, arp, eth, ethertype, icmpv4, icmpv6, ipv4, ipv6, ipv6_ext, protocol, tcp, udp, vlan};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Dissects a frame that starts with an Ethernet header.
pub fn dissect(frame: &[u8]) -> Packet {
    minimal(full(frame), frame)
}

/// Dissects a packet that starts with an IP header of either version.
pub fn dissect_ip(packet: &[u8]) -> Packet {
    minimal(by_version(packet, false), packet)
}

/// Every field of every layer, nothing left out.
pub(super) fn full(frame: &[u8]) -> Vec<Layer> {
    ethernet(frame).unwrap_or_else(|| raw(frame))
}

type Layers = Option<Vec<Layer>>;

fn minimal(mut layers: Vec<Layer>, bytes: &[u8]) -> Packet {
    let same = |layers: &[Layer]| encode::packet(layers).is_ok_and(|encoded| encoded == bytes);
    if !same(&layers) {
        // A shape that this form has no words for: the bytes themselves are always right.
        return Packet { layers: vec![Layer::raw(bytes)] };
    }
    for index in 0..layers.len() {
        for field in layers[index].kind.fields().iter().rev().filter(|field| !field.always) {
            let Some(at) = layers[index].values.iter().position(|(name, _)| *name == field.name) else {
                continue;
            };
            let taken = layers[index].values.remove(at);
            if !same(&layers) {
                layers[index].values.insert(at, taken);
            }
        }
    }
    Packet { layers }
}

fn raw(bytes: &[u8]) -> Vec<Layer> {
    if bytes.is_empty() { Vec::new() } else { vec![Layer::raw(bytes)] }
}

/// `layer` followed by what `inner` makes of the payload, or by the payload itself.
fn chain(layer: Layer, payload: &[u8], inner: impl FnOnce(&[u8]) -> Layers) -> Layers {
    let mut layers = vec![layer];
    layers.extend(inner(payload).unwrap_or_else(|| raw(payload)));
    Some(layers)
}

fn ethernet(frame: &[u8]) -> Layers {
    let view = eth::View::new(frame).ok()?;
    let layer = Layer::new(Kind::Eth)
        .mac_field("dst", view.destination())
        .mac_field("src", view.source())
        .number("type", view.ethertype());
    chain(layer, view.payload(), |payload| by_ethertype(view.ethertype(), payload))
}

fn by_ethertype(number: u16, payload: &[u8]) -> Layers {
    match number {
        ethertype::VLAN | ethertype::SERVICE_VLAN => tag(payload),
        ethertype::ARP => arp_message(payload),
        ethertype::IPV4 => ip(payload, true),
        ethertype::IPV6 => ip6(payload, true),
        _ => None,
    }
}

fn tag(bytes: &[u8]) -> Layers {
    let view = vlan::View::new(bytes).ok()?;
    let layer = Layer::new(Kind::Vlan)
        .number("id", view.id())
        .number("pcp", view.priority())
        .number("dei", u8::from(view.drop_eligible()))
        .number("type", view.ethertype());
    chain(layer, view.payload(), |payload| by_ethertype(view.ethertype(), payload))
}

fn arp_message(bytes: &[u8]) -> Layers {
    let view = arp::View::new(bytes).ok()?;
    let layer = Layer::new(Kind::Arp)
        .number("op", view.operation())
        .mac_field("sha", view.sender_mac())
        .v4_field("spa", view.sender_ip())
        .mac_field("tha", view.target_mac())
        .v4_field("tpa", view.target_ip());
    chain(layer, view.payload(), |_| None)
}

fn by_version(bytes: &[u8], trailer: bool) -> Vec<Layer> {
    let layers = match bytes.first().map(|byte| byte >> 4) {
        Some(4) => ip(bytes, trailer),
        Some(6) => ip6(bytes, trailer),
        _ => None,
    };
    layers.unwrap_or_else(|| raw(bytes))
}

/// Splits what follows an IP header at the length it states: payload and, on the outermost packet, trailer.
fn split(rest: &[u8], stated: Option<usize>, trailer: bool) -> (&[u8], Layers) {
    match stated {
        Some(length) if trailer && length < rest.len() => {
            let padding = Layer::new(Kind::Trailer).with("bytes", Value::Bytes(rest[length..].to_vec()));
            (&rest[..length], Some(vec![padding]))
        }
        _ => (rest, None),
    }
}

fn ip(bytes: &[u8], trailer: bool) -> Layers {
    let view = ipv4::View::new_unchecked(bytes).ok()?;
    let whole = (ipv4::field::HEADER..=bytes.len()).contains(&view.header_length());
    let header = if whole { view.header_length() } else { ipv4::field::HEADER };
    let flag = |bit: u16| u8::from(view.flags_offset() & bit != 0);
    let layer = Layer::new(Kind::Ip)
        .v4_field("src", view.source())
        .v4_field("dst", view.destination())
        .number("ttl", view.ttl())
        .number("proto", view.protocol())
        .number("tos", view.tos())
        .number("id", view.id())
        .number("df", flag(ipv4::FLAG_DONT_FRAGMENT))
        .number("mf", flag(ipv4::FLAG_MORE_FRAGMENTS))
        .number("rf", flag(ipv4::FLAG_RESERVED))
        .number("frag", view.flags_offset() & ipv4::OFFSET_MASK)
        .with("opts", Value::Bytes(bytes[ipv4::field::HEADER..header].to_vec()))
        .number("version", view.version())
        .number("ihl", bytes[0] & 0x0f)
        .number("len", view.total_length())
        .number("csum", view.checksum());
    let stated = usize::from(view.total_length()).checked_sub(header);
    let (payload, padding) = split(&bytes[header..], stated, trailer);
    let first = view.flags_offset() & ipv4::OFFSET_MASK == 0;
    let inside = whole && first && view.version() == 4;
    let mut layers =
        chain(layer, payload, |payload| if inside { transport(view.protocol(), payload) } else { None })?;
    layers.extend(padding.unwrap_or_default());
    Some(layers)
}

fn ip6(bytes: &[u8], trailer: bool) -> Layers {
    let view = ipv6::View::new_unchecked(bytes).ok()?;
    let layer = Layer::new(Kind::Ip6)
        .v6_field("src", view.source())
        .v6_field("dst", view.destination())
        .number("hop", view.hop_limit())
        .number("next", view.next_header())
        .number("tc", view.traffic_class())
        .number("flow", view.flow_label())
        .number("version", view.version())
        .number("len", view.payload_length());
    let stated = Some(usize::from(view.payload_length()));
    let (payload, padding) = split(&bytes[ipv6::field::HEADER..], stated, trailer);
    let inside = view.version() == 6;
    let mut layers =
        chain(
            layer,
            payload,
            |payload| if inside { next_header(view.next_header(), payload) } else { None },
        )?;
    layers.extend(padding.unwrap_or_default());
    Some(layers)
}

fn next_header(next: u8, bytes: &[u8]) -> Layers {
    match next {
        protocol::HOP_BY_HOP => options(Kind::HopByHop, bytes),
        protocol::DESTINATION_OPTIONS => options(Kind::DestinationOptions, bytes),
        protocol::ROUTING => routing(bytes),
        protocol::FRAGMENT => fragment(bytes),
        _ => transport(next, bytes),
    }
}

fn options(kind: Kind, bytes: &[u8]) -> Layers {
    let view = ipv6_ext::View::new(bytes).ok()?;
    let layer = Layer::new(kind)
        .number("next", view.next_header())
        .with("opts", Value::Bytes(view.data().to_vec()))
        .number("len", bytes[ipv6_ext::field::LENGTH]);
    chain(layer, view.payload(), |payload| next_header(view.next_header(), payload))
}

fn routing(bytes: &[u8]) -> Layers {
    let view = ipv6_ext::View::new(bytes).ok()?;
    let layer = Layer::new(Kind::Routing)
        .number("next", view.next_header())
        .number("type", view.data()[0])
        .number("left", view.data()[1])
        .with("data", Value::Bytes(view.data()[2..].to_vec()))
        .number("len", bytes[ipv6_ext::field::LENGTH]);
    chain(layer, view.payload(), |payload| next_header(view.next_header(), payload))
}

fn fragment(bytes: &[u8]) -> Layers {
    let view = ipv6_ext::FragmentView::new(bytes).ok()?;
    let word = view.offset_more();
    let layer = Layer::new(Kind::Fragment)
        .number("next", view.next_header())
        .number("frag", word >> 3)
        .number("mf", word & ipv6_ext::MORE)
        .number("id", view.id())
        .number("res", view.reserved())
        .number("res2", word >> 1 & 3);
    let first = word & ipv6_ext::OFFSET_MASK == 0;
    chain(
        layer,
        view.payload(),
        |payload| if first { next_header(view.next_header(), payload) } else { None },
    )
}

fn transport(number: u8, bytes: &[u8]) -> Layers {
    match number {
        protocol::UDP => udp_header(bytes),
        protocol::TCP => tcp_header(bytes),
        protocol::ICMP => icmp(bytes),
        protocol::ICMPV6 => icmp6(bytes),
        protocol::IPV4 => ip(bytes, false),
        protocol::IPV6 => ip6(bytes, false),
        _ => None,
    }
}

fn udp_header(bytes: &[u8]) -> Layers {
    let view = udp::View::new(bytes).ok()?;
    let layer = Layer::new(Kind::Udp)
        .number("sport", view.source_port())
        .number("dport", view.destination_port())
        .number("len", view.length())
        .number("csum", view.checksum());
    chain(layer, view.payload(), |_| None)
}

fn tcp_header(bytes: &[u8]) -> Layers {
    let view = tcp::View::new_unchecked(bytes).ok()?;
    let whole = (tcp::field::HEADER..=bytes.len()).contains(&view.header_length());
    let header = if whole { view.header_length() } else { tcp::field::HEADER };
    let layer = Layer::new(Kind::Tcp)
        .number("sport", view.source_port())
        .number("dport", view.destination_port())
        .number("flags", view.flags())
        .number("seq", view.sequence())
        .number("ack", view.acknowledgment())
        .number("win", view.window())
        .number("urg", view.urgent())
        .with("opts", Value::Bytes(bytes[tcp::field::HEADER..header].to_vec()))
        .number("res", view.reserved())
        .number("off", bytes[tcp::field::OFFSET_RESERVED] >> 4)
        .number("csum", view.checksum());
    chain(layer, &bytes[header..], |_| None)
}

fn icmp(bytes: &[u8]) -> Layers {
    let view = icmpv4::View::new(bytes).ok()?;
    let mut layer = Layer::new(Kind::Icmp).number("type", view.kind()).number("code", view.code());
    layer = match view.kind() {
        icmpv4::ECHO_REQUEST | icmpv4::ECHO_REPLY => {
            layer.number("id", view.id()).number("seq", view.sequence())
        }
        icmpv4::UNREACHABLE if view.rest() >> 16 == 0 => layer.number("mtu", view.mtu()),
        _ => layer.number("rest", view.rest()),
    };
    layer = layer.number("csum", view.checksum());
    let error = icmpv4::is_error(view.kind());
    chain(layer, view.payload(), |payload| if error { ip(payload, false) } else { None })
}

fn icmp6(bytes: &[u8]) -> Layers {
    let view = icmpv6::View::new(bytes).ok()?;
    let mut layer = Layer::new(Kind::Icmp6).number("type", view.kind()).number("code", view.code());
    layer = match view.kind() {
        icmpv6::ECHO_REQUEST | icmpv6::ECHO_REPLY => {
            layer.number("id", view.id()).number("seq", view.sequence())
        }
        icmpv6::PACKET_TOO_BIG => layer.number("mtu", view.mtu()),
        _ => layer.number("rest", view.rest()),
    };
    layer = layer.number("csum", view.checksum());
    let error = icmpv6::is_error(view.kind());
    chain(layer, view.payload(), |payload| if error { ip6(payload, false) } else { None })
}

impl Layer {
    fn mac_field(self, name: &'static str, mac: Mac) -> Layer {
        self.with(name, Value::Mac(mac))
    }

    fn v4_field(self, name: &'static str, addr: Ipv4Addr) -> Layer {
        self.with(name, Value::V4(addr))
    }

    fn v6_field(self, name: &'static str, addr: Ipv6Addr) -> Layer {
        self.with(name, Value::V6(addr))
    }
}
