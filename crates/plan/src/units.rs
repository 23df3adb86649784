//! Unit table: one entry a logical unit and netdev it can be seen on, in a table without collisions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_abi::{self as abi, Unit as UnitEntry};
use sluice_language::config::{Config, HookMode, HostInbound, Interface, Prefix, Screen, Unit, Vlan, Zone};

use crate::{Environment, NetDev, PlanError, screens, terms::Terms};

/// A unit that belongs to a zone, with all that is known about it.
pub(crate) struct Managed<'a> {
    pub interface: &'a Interface,
    pub unit: &'a Unit,
    pub zone: &'a Zone,
    pub inbound: &'a HostInbound,
    pub screen: Option<&'a Screen>,
}

/// `wan0.100`, as the configuration and every report name it.
pub fn unit_name(interface: &Interface, unit: &Unit) -> String {
    format!("{}.{}", interface.name, unit.number)
}

/// Netdev that carries the unit's addresses.
pub fn device_of(interface: &Interface, unit: &Unit) -> String {
    if unit.vlan.is_some() { unit_name(interface, unit) } else { interface.name.clone() }
}

/// Whether the data plane handles the unit: it is enabled and a zone has it. The others (a management port) only
/// get their addresses; the guard keeps the kernel from forwarding through them.
pub(crate) fn is_managed(config: &Config, interface: &Interface, unit: &Unit) -> bool {
    let name = unit_name(interface, unit);
    let zoned = config.zones.iter().any(|z| z.interfaces.iter().any(|i| i.unit == name));
    zoned && !interface.disabled && !unit.disabled
}

/// The managed units in configuration order.
pub(crate) fn managed(config: &Config) -> Vec<Managed<'_>> {
    let mut zones = BTreeMap::new();
    for zone in &config.zones {
        for member in &zone.interfaces {
            let inbound = member.host_inbound.as_ref().unwrap_or(&zone.host_inbound);
            zones.insert(member.unit.as_str(), (zone, inbound));
        }
    }
    let mut managed = vec![];
    for interface in config.interfaces.iter().filter(|i| !i.disabled) {
        for unit in interface.units.iter().filter(|u| !u.disabled) {
            if let Some((zone, inbound)) = zones.get(unit_name(interface, unit).as_str()) {
                let screen = zone.screen.as_ref().and_then(|n| config.screens.iter().find(|s| &s.name == n));
                managed.push(Managed { interface, unit, zone, inbound, screen });
            }
        }
    }
    managed
}

/// What devices send besides their MTU: an Ethernet header and one tag. A second tag is taken from the packet.
const SECOND_TAG: u32 = 4;

/// The tags as the data plane has them (`VLAN_*`).
pub fn vlan_word(vlan: Option<Vlan>) -> u32 {
    let Some(vlan) = vlan else { return 0 };
    let service = if vlan.service { abi::VLAN_SERVICE } else { 0 };
    let inner = vlan.inner.map_or(0, |inner| abi::VLAN_TWO | u32::from(inner) << abi::VLAN_INNER_SHIFT);
    u32::from(vlan.id) | service | inner
}

/// Largest IP packet of a unit: its own MTU, else the interface's, else what the device has.
pub(crate) fn unit_mtu(env: &Environment, interface: &Interface, unit: &Unit) -> Result<u32, PlanError> {
    let netdev = netdev(env, &interface.name)?;
    let two = unit.vlan.is_some_and(|vlan| vlan.inner.is_some());
    let device = interface.mtu.map_or(netdev.mtu, u32::from);
    let link = if two { device.saturating_sub(SECOND_TAG) } else { device };
    let mtu = unit.mtu.map_or(link, u32::from);
    if mtu > link {
        return Err(PlanError::UnitMtu { unit: unit_name(interface, unit), mtu, link, two });
    }
    // The data plane keeps MTUs in 16 bits; no IPv4 packet is larger.
    Ok(mtu.min(u32::from(u16::MAX)))
}

pub(crate) fn netdev<'a>(env: &'a Environment, name: &str) -> Result<&'a NetDev, PlanError> {
    env.netdevs.get(name).ok_or_else(|| PlanError::UnknownInterface {
        name: name.to_owned(),
        known: env.netdevs.keys().cloned().collect(),
    })
}

/// Whether each interface's ingress runs on XDP, by interface name.
pub(crate) fn hooks(
    config: &Config,
    env: &Environment,
) -> Result<BTreeMap<String, crate::IngressHook>, PlanError> {
    use crate::IngressHook::{Tc, XdpGeneric, XdpNative};
    let mut names: Vec<&Interface> = managed(config).iter().map(|m| m.interface).collect();
    names.dedup_by_key(|i| &i.name);
    let mut all_redirect = true;
    for interface in &names {
        all_redirect &= netdev(env, &interface.name)?.xdp_preferred();
    }
    let mut hooks = BTreeMap::new();
    for interface in names {
        let netdev = netdev(env, &interface.name)?;
        let hook = match interface.mode {
            HookMode::Tc => Tc,
            HookMode::Generic => XdpGeneric,
            HookMode::Xdp if !netdev.xdp_native() => {
                let (name, driver) = (interface.name.clone(), netdev.driver.clone());
                return Err(PlanError::NoNativeXdp { name, driver });
            }
            HookMode::Xdp => XdpNative,
            HookMode::Auto if all_redirect => XdpNative,
            HookMode::Auto => Tc,
        };
        hooks.insert(interface.name.clone(), hook);
    }
    Ok(hooks)
}

/// Entries of one unit: where its frames are seen, and, for a tagged one, the device that carries its addresses.
pub(crate) fn entries(
    managed: &Managed,
    env: &Environment,
    index: u32,
    zone: u32,
    xdp: bool,
    terms: &mut Terms,
) -> Result<Vec<UnitEntry>, PlanError> {
    let name = unit_name(managed.interface, managed.unit);
    let physical = netdev(env, &managed.interface.name)?;
    let mtu = unit_mtu(env, managed.interface, managed.unit)?;
    let (host_first, host_count) = terms.services(&managed.inbound.services, &name)?;
    let mut flags = abi::UNIT_VALID;
    flags |= if managed.inbound.any { abi::UNIT_HOST_ANY } else { 0 };
    flags |= if managed.zone.tcp_rst { abi::UNIT_TCP_RST } else { 0 };
    flags |= if xdp { abi::UNIT_XDP } else { 0 };
    let counts_udp = managed.screen.is_some_and(|screen| screen.limits.udp_flood.is_some());
    flags |= if counts_udp { abi::UNIT_UDP_FLOOD } else { 0 };
    let vlan = vlan_word(managed.unit.vlan);
    let mut entry = UnitEntry {
        ifindex: physical.ifindex,
        vlan,
        index: index as u16,
        zone: zone as u16,
        mtu: mtu as u16,
        flags,
        mac: physical.mac,
        phys_ifindex: physical.ifindex,
        host_ifindex: physical.ifindex,
        be_addr4: first_v4(&managed.unit.inet),
        be_addr6: best_v6(&managed.unit.inet6),
        host_first,
        host_count,
        screens: managed.screen.map_or(0, screens::bits),
        ..Default::default()
    };
    if vlan == 0 {
        return Ok(vec![entry]);
    }
    let host = netdev(env, &name)?;
    entry.host_ifindex = host.ifindex;
    entry.host_peer_ifindex = netdev(env, &format!("{name}p"))?.ifindex;
    entry.flags |= abi::UNIT_HOST_VETH;
    let mut host_side = entry;
    host_side.ifindex = host.ifindex;
    host_side.flags |= abi::UNIT_HOST_SIDE;
    Ok(vec![entry, host_side])
}

fn first_v4(prefixes: &[Prefix]) -> u32 {
    let v4 = prefixes.iter().find_map(|p| match p.addr {
        IpAddr::V4(a) => Some(u32::from_ne_bytes(a.octets())),
        IpAddr::V6(_) => None,
    });
    v4.unwrap_or(0)
}

/// The first global address, else the first.
fn best_v6(prefixes: &[Prefix]) -> [u32; 4] {
    let all = || {
        prefixes.iter().filter_map(|p| match p.addr {
            IpAddr::V6(a) => Some(a),
            IpAddr::V4(_) => None,
        })
    };
    let best = all().find(|a| !a.is_unicast_link_local()).or_else(|| all().next());
    best.map_or([0; 4], |a| words(a.octets()))
}

/// Sixteen bytes as four words in network order.
pub fn words(octets: [u8; 16]) -> [u32; 4] {
    std::array::from_fn(|i| {
        let o = &octets[i * 4..i * 4 + 4];
        u32::from_ne_bytes([o[0], o[1], o[2], o[3]])
    })
}

/// Where the data plane looks for an entry: frames have no tags yet on the host's side of a tagged unit.
pub(crate) fn slot_of(entry: &UnitEntry, multiplier: u32) -> usize {
    let vlan = if entry.flags & abi::UNIT_HOST_SIDE == 0 { entry.vlan } else { 0 };
    abi::unit_slot(entry.ifindex, vlan, multiplier)
}

/// How many multipliers are tried before the table is called too full.
const MULTIPLIER_TRIES: u32 = 1 << 21;

/// An odd multiplier under which no two entries share a slot.
pub(crate) fn find_multiplier(entries: &[UnitEntry]) -> Result<u32, PlanError> {
    let mut taken = vec![0u32; abi::UNIT_TABLE_SLOTS];
    let mut multiplier = 1u32;
    for round in 1..=MULTIPLIER_TRIES {
        let collides = entries.iter().any(|e| {
            let seen = &mut taken[slot_of(e, multiplier)];
            std::mem::replace(seen, round) == round
        });
        if !collides {
            return Ok(multiplier);
        }
        // A step that visits every odd number.
        multiplier = multiplier.wrapping_mul(0xd9f5_0b35).wrapping_add(0x9e37_79ba) | 1;
    }
    Err(PlanError::UnitTableFull { entries: entries.len() })
}
