//! What the daemon is told of the packets that a step dropped: each of them, with its unit, zone, reason and tuple.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use sluice_dataplane::{Dataplane, Dropped};
use sluice_plan::Plan;
use sluice_wire::text::{Kind, Packet, Value, dissect};

use crate::counters::{Values, drops_by_reason};

/// Nothing is loaded that could tell.
const UNTOLD: [&str; 1] = ["no_generation"];

/// Every share may have its whole rate again, and what waits is forgotten.
pub fn begin(dataplane: &Dataplane) -> Result<()> {
    let map = MapHandle::from_pinned_path(dataplane.pin().join("dropped_tokens"))?;
    let empty = vec![0; map.value_size() as usize];
    for share in 0..map.max_entries() {
        map.update(&share.to_ne_bytes(), &empty, MapFlags::ANY)?;
    }
    dataplane.take_dropped()?;
    Ok(())
}

/// Holds what was told against what was counted, and the frame that was sent.
pub fn check(
    dataplane: &Dataplane,
    plan: &Plan,
    counted: &Values,
    frame: &[u8],
    complaints: &mut Vec<String>,
) -> Result<()> {
    let told = dataplane.take_dropped().context("drops that were told")?;
    let mut wanted: BTreeMap<(usize, &str), u64> = drops_by_reason(counted);
    wanted.retain(|(_, reason), _| !UNTOLD.contains(reason));
    let mut seen = BTreeMap::new();
    for drop in &told {
        *seen.entry((usize::from(drop.raw.unit), drop.reason.name())).or_default() +=
            u64::from(drop.raw.segments);
    }
    if seen != wanted {
        complaints.push(format!("  drops told {seen:?}, expected {wanted:?}"));
    }
    let packet = dissect(frame);
    for drop in &told {
        if let Some(text) = zone_differs(plan, drop).or_else(|| tuple_differs(&packet, drop)) {
            complaints.push(format!("  of the drop for {} is told {text}", drop.reason.name()));
        }
    }
    Ok(())
}

fn zone_differs(plan: &Plan, drop: &Dropped) -> Option<String> {
    let unit = plan.units.iter().find(|unit| unit.index == u32::from(drop.raw.unit))?;
    let zone = plan.zones.get(&u32::from(drop.raw.from_zone)).map(String::as_str);
    // the sender of what leaves here is this host
    let own = drop.raw.from_zone == sluice_abi::ZONE_HOST;
    (!own && zone != Some(unit.zone.as_str())).then(|| format!("zone {zone:?} of unit {}", unit.name))
}

/// Addresses of the outermost IP header, and ports that stand right behind it.
fn tuple_differs(packet: &Packet, drop: &Dropped) -> Option<String> {
    let headers = &drop.headers;
    let network = packet.layers.iter().position(|layer| matches!(layer.kind, Kind::Ip | Kind::Ip6))?;
    let address = |field: &str| match packet.layers[network].get(field) {
        Some(Value::V4(address)) => Some(IpAddr::V4(*address)),
        Some(Value::V6(address)) => Some(IpAddr::V6(*address)),
        _ => None,
    };
    let addresses = address("src").zip(address("dst"));
    if addresses.is_some() && headers.addresses != addresses {
        return Some(format!("{:?}", headers.addresses));
    }
    let transport = packet.layers[network + 1..].iter().find(|layer| !is_extension(layer.kind))?;
    let port = |field: &str| match transport.get(field) {
        Some(Value::Number(port)) => Some(*port as u16),
        _ => None,
    };
    let ports = port("sport").zip(port("dport"));
    (ports.is_some() && headers.ports != ports).then(|| format!("{:?}", headers.ports))
}

fn is_extension(kind: Kind) -> bool {
    matches!(kind, Kind::HopByHop | Kind::DestinationOptions | Kind::Routing | Kind::Fragment)
}
