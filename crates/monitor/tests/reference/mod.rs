//! A parser for well-formed frames only, written straight from the standards: the judge of the one under test.

use sluice_monitor::frame::Frame;
use sluice_monitor::observation::{ChannelKey, Flags, Location, Observation, Protocol, Unknown, Vlans};

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from(u16_at(data, at)) << 16 | u32::from(u16_at(data, at + 2))
}

fn digest(data: &[u8]) -> u32 {
    data.iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)) | 1
}

/// Reads a frame of the generator.
pub fn observe(frame: &Frame<'_>) -> Result<Observation, Unknown> {
    if frame.is_cut() {
        return Err(Unknown::Short("frame"));
    }
    let data = frame.data;
    let (mut at, mut vlans) = (12, Vlans::default());
    while matches!(u16_at(data, at), 0x8100 | 0x88a8) {
        vlans = Vlans { outer: vlans.inner, inner: u16_at(data, at + 2) & 0xfff };
        at += 4;
    }
    let location = Location::new(frame.interface, vlans);
    match u16_at(data, at) {
        0x88e5 => Ok(macsec(data, at + 2, location)),
        0x0800 => ipv4(&data[at + 2..], location),
        0x86dd => {
            let ip = &data[at + 2..];
            assert_eq!(ip[6], 50, "only ESP is generated over IPv6");
            let address = |from: usize| <[u8; 16]>::try_from(&ip[from..from + 16]).unwrap();
            let key = ChannelKey::ipv6(Protocol::Esp, address(8), address(24), u32_at(ip, 40), location);
            let end = 40 + usize::from(u16_at(ip, 4));
            Ok(observation(key, u32_at(ip, 44).into(), 32, &ip[48..end]))
        }
        other => Err(Unknown::Ethertype(other)),
    }
}

fn observation(key: ChannelKey, sequence: u64, bits: u8, payload: &[u8]) -> Observation {
    Observation {
        key,
        sequence,
        fingerprint: digest(payload),
        payload_len: payload.len() as u16,
        bits,
        flags: Flags::ENCRYPTED,
    }
}

/// 802.1AE 9.3.
fn macsec(data: &[u8], at: usize, location: Location) -> Observation {
    let explicit = data[at] & 0x20 != 0;
    let mac = data[6..12].iter().fold(0u64, |mac, byte| mac << 8 | u64::from(*byte));
    let (sci, header) = match explicit {
        true => (u64::from(u32_at(data, at + 6)) << 32 | u64::from(u32_at(data, at + 10)), 14),
        false => (mac << 16 | 1, 6),
    };
    let key = ChannelKey::macsec(sci, data[at] & 3, location);
    observation(key, u32_at(data, at + 2).into(), 32, &data[at + header..])
}

fn ipv4(ip: &[u8], location: Location) -> Result<Observation, Unknown> {
    let ip = &ip[..usize::from(u16_at(ip, 2))];
    let (from, to) = (ip[12..16].try_into().unwrap(), ip[16..20].try_into().unwrap());
    let key = |protocol, id| ChannelKey::ipv4(protocol, from, to, id, location);
    let payload = &ip[20..];
    match ip[9] {
        50 => {
            let key = key(Protocol::Esp, u32_at(payload, 0));
            Ok(observation(key, u32_at(payload, 4).into(), 32, &payload[8..]))
        }
        51 => {
            let key = key(Protocol::Ah, u32_at(payload, 4));
            Ok(observation(key, u32_at(payload, 8).into(), 32, &payload[12..]))
        }
        17 => udp(payload, key),
        other => Err(Unknown::IpProtocol(other)),
    }
}

fn udp(udp: &[u8], key: impl Fn(Protocol, u32) -> ChannelKey) -> Result<Observation, Unknown> {
    let (source, destination) = (u16_at(udp, 0), u16_at(udp, 2));
    let payload = &udp[8..];
    let without_number =
        |protocol| Observation { key: key(protocol, 0), flags: Flags::CONTROL, ..Observation::default() };
    match (source, destination) {
        (500, 500) => Ok(without_number(Protocol::Ike)),
        (4500, _) | (_, 4500) if payload == [0xff] => {
            let key = key(Protocol::EspUdp, 0).with_ports(source, destination);
            Ok(Observation { key, ..without_number(Protocol::EspUdp) })
        }
        (4500, _) | (_, 4500) if u32_at(payload, 0) == 0 => Ok(without_number(Protocol::Ike)),
        (4500, _) | (_, 4500) => {
            let key = key(Protocol::EspUdp, u32_at(payload, 0)).with_ports(source, destination);
            Ok(observation(key, u32_at(payload, 4).into(), 32, &payload[8..]))
        }
        (2152, 2152) => {
            let key = key(Protocol::GtpU, u32_at(payload, 4));
            Ok(observation(key, u16_at(payload, 8).into(), 16, &payload[12..]))
        }
        _ => Err(Unknown::UdpPort(source.min(destination))),
    }
}
