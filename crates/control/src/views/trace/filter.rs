//! A filter of packets with its fields understood, as the data plane compares packets with it.

use std::net::IpAddr;

use sluice_abi::{self as abi, TraceUnit, UNIT_HOST_SIDE, Unit};
use sluice_language::config::Prefix;
use sluice_plan::network;

use crate::api::protocol;
use crate::api::trace::TraceFilter;
use crate::state::active::Active;
use crate::views::sessions::{prefix, unit, zone_id};

/// Err says which field is wrong and what it takes.
pub fn compile(filter: &TraceFilter, active: &Active) -> Result<(abi::TraceFilter, Vec<TraceUnit>), String> {
    let prefixed = |text: &Option<String>| text.clone().map(prefix).transpose().map(|found| found.map(words));
    let protocol = filter.protocol.as_deref().map(protocol::parse).transpose()?;
    if protocol == Some(0) {
        return Err("protocol 0: expected tcp, udp, icmp, icmp6 or 1 to 255".to_owned());
    }
    let mut compared = abi::TraceFilter {
        source: prefixed(&filter.source_prefix)?.unwrap_or_default(),
        destination: prefixed(&filter.destination_prefix)?.unwrap_or_default(),
        either: prefixed(&filter.prefix)?.unwrap_or_default(),
        sport: port("source_port", filter.source_port)?,
        dport: port("destination_port", filter.destination_port)?,
        port: port("port", filter.port)?,
        protocol: protocol.unwrap_or(0).into(),
        ..abi::TraceFilter::default()
    };
    compared.by_packet = u32::from(compared != abi::TraceFilter::default());
    let zone = filter.zone.as_deref().map(|name| zone_id(name, active)).transpose()?;
    let interface = filter.interface.as_deref().map(|name| unit(name, active)).transpose()?;
    compared.by_unit = u32::from(zone.is_some() || interface.is_some());
    let is_wanted = |unit: &Unit| {
        zone.is_none_or(|zone| zone == u32::from(unit.zone))
            && interface.is_none_or(|index| index == u32::from(unit.index))
    };
    let wanted = active.plan.tables.units.iter().map(|(_, unit)| unit).filter(|unit| is_wanted(unit));
    Ok((compared, wanted.filter(|_| compared.by_unit != 0).map(frames_of).collect()))
}

/// What frames of a unit are known by; on the side of the host they have no tags yet.
fn frames_of(unit: &Unit) -> TraceUnit {
    let vlan = if unit.flags & UNIT_HOST_SIDE == 0 { unit.vlan } else { 0 };
    TraceUnit { ifindex: unit.ifindex, vlan }
}

/// 0 stands for any.
fn port(name: &str, given: Option<u16>) -> Result<u16, String> {
    match given {
        Some(0) => Err(format!("{name} 0: expected 1 to 65535")),
        given => Ok(given.unwrap_or(0)),
    }
}

fn words(given: Prefix) -> abi::TracePrefix {
    let Prefix { addr, len } = network(given);
    let (family, bytes, most) = match addr {
        IpAddr::V4(addr) => (4, addr.octets().to_vec(), 32),
        IpAddr::V6(addr) => (6, addr.octets().to_vec(), 128),
    };
    let bits = u128::MAX.checked_shl(128 - u32::from(len.min(most))).unwrap_or(0).to_be_bytes();
    let word = |bytes: &[u8], n: usize| {
        bytes
            .get(4 * n..4 * n + 4)
            .and_then(|word| word.first_chunk())
            .map_or(0, |word| u32::from_ne_bytes(*word))
    };
    abi::TracePrefix {
        be_address: std::array::from_fn(|n| word(&bytes, n)),
        be_mask: std::array::from_fn(|n| word(&bits[..bytes.len()], n)),
        family,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> abi::TracePrefix {
        words(prefix(text.to_owned()).unwrap())
    }

    #[test]
    fn prefixes_become_words() {
        let four = of("10.1.2.3/12");
        assert_eq!(
            (four.family, four.be_address, four.be_mask[1..].to_vec()),
            (4, [u32::from_ne_bytes([10, 0, 0, 0]), 0, 0, 0], vec![0; 3])
        );
        assert_eq!(four.be_mask[0].to_ne_bytes(), [255, 240, 0, 0]);
        let six = of("fd00:1:2::/40");
        assert_eq!((six.family, six.be_mask[0], six.be_mask[1].to_ne_bytes()), (6, u32::MAX, [255, 0, 0, 0]));
        assert_eq!(six.be_address[1].to_ne_bytes(), [0, 0, 0, 0]);
        assert_eq!(of("fd00::1").be_mask, [u32::MAX; 4]);
        assert_eq!(of("0.0.0.0/0").be_mask, [0; 4]);
    }

    #[test]
    fn no_port_is_0() {
        assert_eq!((port("port", None), port("port", Some(7))), (Ok(0), Ok(7)));
        assert!(port("port", Some(0)).unwrap_err().starts_with("port 0"));
    }
}
