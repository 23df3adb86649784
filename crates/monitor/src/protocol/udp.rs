//! UDP as a carrier: ESP and IKE behind NAT (RFC 3948), IKE, GTP-U.

use sluice_wire::fields::be16;
use sluice_wire::gtpu::PORT as GTPU;
use sluice_wire::ike::{KEEPALIVE, NAT_TRAVERSAL_PORT as NAT_TRAVERSAL, NON_ESP_MARKER, PORT as IKE};
use sluice_wire::udp::field;

use super::ip::Addresses;
use super::{Packet, esp, gtpu, ike};
use crate::observation::{Flags, Observation, Protocol, Unknown};

#[inline(always)]
pub(super) fn observe(addresses: Addresses, packet: Packet<'_>) -> Result<Observation, Unknown> {
    let header: &[u8; field::HEADER] = packet.head("UDP header")?;
    let ports = (be16(header, field::SOURCE_PORT), be16(header, field::DESTINATION_PORT));
    let length = u32::from(be16(header, field::LENGTH));
    let either = |port: u16| ports.0 == port || ports.1 == port;
    let followed = either(NAT_TRAVERSAL) || either(GTPU) || either(IKE);
    if !followed {
        return Err(Unknown::UdpPort(ports.0.min(ports.1)));
    }
    if length != 0 && length < field::HEADER as u32 {
        return Err(Unknown::Malformed("UDP header: length below 8"));
    }
    // A first fragment holds less than its header says.
    let whole = length != 0 && !packet.flags.has(Flags::FRAGMENT);
    let packet = if whole { packet.ending(length) } else { packet };
    let packet = packet.after(field::HEADER, "UDP header")?;
    if either(NAT_TRAVERSAL) {
        return behind_nat(addresses, ports, packet);
    }
    if either(GTPU) { gtpu::observe(addresses, packet) } else { ike::observe(addresses, packet) }
}

/// RFC 3948 2.2: four zero bytes stand in front of IKE; 2.3: a single byte 0xff keeps the NAT's mapping; 2.1: ESP
/// otherwise.
#[inline(always)]
fn behind_nat(addresses: Addresses, ports: (u16, u16), packet: Packet<'_>) -> Result<Observation, Unknown> {
    if packet.wire == 1 && packet.data == [KEEPALIVE] {
        return Ok(Observation {
            key: addresses.key_with_ports(Protocol::EspUdp, 0, ports, &packet),
            payload_len: 1,
            flags: packet.flags.with(Flags::CONTROL),
            ..Observation::default()
        });
    }
    if packet.head("UDP-encapsulated ESP header")? == &NON_ESP_MARKER {
        return ike::observe(addresses, packet.after(NON_ESP_MARKER.len(), "non-ESP marker")?);
    }
    let (spi, seen) = esp::observe(packet)?;
    Ok(Observation { key: addresses.key_with_ports(Protocol::EspUdp, spi, ports, &packet), ..seen })
}
