//! Unit table: one entry a logical unit and netdev it can be seen on, in a table without collisions.

use std::collections::BTreeMap;
use std::net::IpAddr;

use sluice_abi::{self as abi, Unit as UnitEntry};
use sluice_language::config::{Config, HostInbound, Interface, Prefix, Screen, Unit, Vlan, Zone};

use crate::words::words;
use crate::{Environment, NetDev, PlanError, screens, terms::Terms};

/// A device of its own namespace that packets never leave by.
pub(crate) const LOOPBACK: &str = "lo";

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
    if is_pair(interface, unit) { unit_name(interface, unit) } else { interface.name.clone() }
}

/// The same by the unit's name.
pub(crate) fn device_of_unit_name(config: &Config, name: &str) -> String {
    let units = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u)));
    let mut found = units.filter(|(i, u)| format!("{}.{}", i.name, u.number) == name);
    found.next().map_or_else(|| name.to_owned(), |(i, u)| device_of(i, u))
}

/// Whether a unit has a veth pair of its own: tagged ones, and mobile ones.
pub fn is_pair(interface: &Interface, unit: &Unit) -> bool {
    unit.vlan.is_some() || interface.mobile
}

/// Far end of the pair of a unit that has one, whose device it is named after.
pub fn far_end(interface: &Interface, device: &str) -> String {
    format!("{device}{}", if interface.mobile { "-peer" } else { "p" })
}

/// Netdev that the unit's frames are seen on.
pub(crate) fn physical(interface: &Interface, unit: &Unit) -> String {
    if interface.mobile { unit_name(interface, unit) } else { interface.name.clone() }
}

/// Whether a zone has the unit and it is enabled. Nothing reaches the others but on interfaces of the management.
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

/// Interfaces without any managed unit: as with Junos they are in the null zone, which passes nothing. `lo` is how the
/// host speaks to itself.
pub(crate) fn in_null_zone(config: &Config) -> Vec<&Interface> {
    let has_unit =
        |interface: &Interface| interface.units.iter().any(|unit| is_managed(config, interface, unit));
    config
        .interfaces
        .iter()
        .filter(|interface| !has_unit(interface) && is_looked_at(config, interface))
        .collect()
}

/// Whether packets of an interface of the configuration are the data plane's to judge.
pub(crate) fn is_looked_at(config: &Config, interface: &Interface) -> bool {
    interface.name != LOOPBACK && !interface.mobile && !config.management.contains(&interface.name)
}

/// Why an interface is in the null zone, for its operator.
pub(crate) fn null_cause(config: &Config, interface: &Interface) -> &'static str {
    let zoned = |unit: &Unit| {
        let name = unit_name(interface, unit);
        config.zones.iter().any(|zone| zone.interfaces.iter().any(|member| member.unit == name))
    };
    match () {
        () if interface.disabled => "it is disabled",
        () if interface.units.is_empty() => "it has no active unit",
        () if interface.units.iter().any(zoned) => "its units are disabled",
        () => "no unit of it is in a zone",
    }
}

/// What every frame of a device in the null zone finds, whatever its tags.
pub(crate) fn null_entry(device: &NetDev, index: u32) -> UnitEntry {
    UnitEntry {
        ifindex: device.ifindex,
        vlan: abi::VLAN_NULL,
        index: index as u16,
        flags: abi::UNIT_VALID,
        mac: device.mac,
        phys_ifindex: device.ifindex,
        host_ifindex: device.ifindex,
        ..Default::default()
    }
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

/// What a device must take for the MTUs that its units say.
pub fn least_mtu(interface: &Interface) -> u32 {
    let of_unit = |unit: &Unit| unit.mtu.map_or(0, |mtu| u32::from(mtu) + second_tag(unit));
    interface.units.iter().map(of_unit).max().unwrap_or(0)
}

fn second_tag(unit: &Unit) -> u32 {
    if has_two_tags(unit) { SECOND_TAG } else { 0 }
}

fn has_two_tags(unit: &Unit) -> bool {
    unit.vlan.is_some_and(|vlan| vlan.inner.is_some())
}

/// Largest IP packet of a unit: its own MTU, else the interface's, else what the device has.
pub(crate) fn unit_mtu(env: &Environment, interface: &Interface, unit: &Unit) -> Result<u32, PlanError> {
    let netdev = netdev(env, &interface.name)?;
    let two = has_two_tags(unit);
    let device = interface.mtu.map_or(netdev.mtu, u32::from);
    let link = device.saturating_sub(second_tag(unit));
    let mtu = unit.mtu.map_or(link, u32::from);
    if mtu > link {
        return Err(PlanError::UnitMtu { unit: unit_name(interface, unit), mtu, link, two });
    }
    // The data plane keeps MTUs in 16 bits; no IPv4 packet is larger.
    Ok(mtu.min(u32::from(u16::MAX)))
}

/// Headers of a packet in a tunnel: UDP, GTP-U with its optional fields, a PDU Session Container.
const TUNNEL: u32 = 8 + 12 + 4;
/// And the outer IP header.
const OUTER4: u32 = 20;
const OUTER6: u32 = 40;

/// What a mobile unit takes where nothing says how long packets in tunnels may be.
const LINK_MTU: u32 = 1500;

/// Longest packets that leave by tunnels whole, over each unit that some end on.
pub(crate) fn tunnel_lengths(
    config: &Config,
    environment: &Environment,
) -> Result<Vec<(String, u32)>, PlanError> {
    let mut lengths = vec![];
    for interface in &config.interfaces {
        for unit in &interface.units {
            let name = unit_name(interface, unit);
            let Some(own) = config.gtp_u.interfaces.iter().find(|own| own.unit == name) else { continue };
            let outer = if own.v6.is_some() { OUTER6 } else { OUTER4 };
            lengths.push((name, unit_mtu(environment, interface, unit)?.saturating_sub(outer + TUNNEL)));
        }
    }
    Ok(lengths)
}

/// Largest packet of a mobile unit: as configured, else what fits into every tunnel.
fn mobile_mtu(
    config: &Config,
    environment: &Environment,
    interface: &Interface,
    unit: &Unit,
) -> Result<u32, PlanError> {
    if let Some(mtu) = unit.mtu.or(interface.mtu) {
        return Ok(mtu.into());
    }
    let lengths = tunnel_lengths(config, environment)?;
    Ok(lengths.iter().map(|(_, length)| *length).min().unwrap_or(LINK_MTU).min(u16::MAX.into()))
}

/// Of any unit.
pub(crate) fn mtu(
    config: &Config,
    env: &Environment,
    interface: &Interface,
    unit: &Unit,
) -> Result<u32, PlanError> {
    match interface.mobile {
        true => mobile_mtu(config, env, interface, unit),
        false => unit_mtu(env, interface, unit),
    }
}

/// Of the kernel's device that carries a unit's addresses: an untagged unit's own MTU is the data plane's alone.
pub(crate) fn device_mtu(
    config: &Config,
    env: &Environment,
    interface: &Interface,
    unit: &Unit,
) -> Result<u32, PlanError> {
    match unit.vlan {
        _ if interface.mobile => mtu(config, env, interface, unit),
        Some(_) => unit_mtu(env, interface, unit),
        None => Ok(interface.mtu.map_or(netdev(env, &interface.name)?.mtu, u32::from)),
    }
}

pub(crate) fn netdev<'a>(env: &'a Environment, name: &str) -> Result<&'a NetDev, PlanError> {
    env.netdevs.get(name).ok_or_else(|| PlanError::UnknownInterface {
        name: name.to_owned(),
        known: env.netdevs.keys().cloned().collect(),
    })
}

/// What the plan gives a unit.
pub(crate) struct Numbers {
    pub index: u16,
    pub zone: u16,
    pub mtu: u16,
    pub gtpu: u8,
    pub instance: u16,
}

/// Entries of one unit: where its frames are seen, and, for a tagged one, the device that carries its addresses.
pub(crate) fn entries(
    managed: &Managed,
    env: &Environment,
    numbers: Numbers,
    xdp: bool,
    terms: &mut Terms,
) -> Result<Vec<UnitEntry>, PlanError> {
    let name = unit_name(managed.interface, managed.unit);
    let physical = netdev(env, &physical(managed.interface, managed.unit))?;
    let device = netdev(env, &device_of(managed.interface, managed.unit))?;
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
        index: numbers.index,
        zone: numbers.zone,
        routing_instance: numbers.instance,
        mtu: numbers.mtu,
        gtpu: numbers.gtpu,
        flags,
        mac: physical.mac,
        phys_ifindex: physical.ifindex,
        host_ifindex: physical.ifindex,
        be_addr4: first_v4(own(&managed.unit.inet, &device.learned)),
        be_addr6: best_v6(own(&managed.unit.inet6, &device.learned)),
        host_first,
        host_count,
        screens: managed.screen.map_or(0, screens::bits),
        ..Default::default()
    };
    if managed.interface.mobile {
        let far = netdev(env, &far_end(managed.interface, &name))?;
        entry.flags |= abi::UNIT_HOST_VETH;
        entry.host_peer_ifindex = far.ifindex;
        // the same unit where the host's own packets come out of the pair
        return Ok(vec![entry, UnitEntry { ifindex: far.ifindex, ..entry }]);
    }
    if vlan == 0 {
        return Ok(vec![entry]);
    }
    let host = netdev(env, &name)?;
    entry.host_ifindex = host.ifindex;
    entry.host_peer_ifindex = netdev(env, &far_end(managed.interface, &name))?.ifindex;
    entry.flags |= abi::UNIT_HOST_VETH;
    let mut host_side = entry;
    host_side.ifindex = host.ifindex;
    host_side.flags |= abi::UNIT_HOST_SIDE;
    Ok(vec![entry, host_side])
}

/// The configuration's addresses of a family, else those that the device has by other means.
fn own<'a>(configured: &'a [Prefix], learned: &'a [Prefix]) -> &'a [Prefix] {
    if configured.is_empty() { learned } else { configured }
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

/// The table of units: every entry in its slot, or a little behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnitTable {
    pub slots: Vec<(usize, UnitEntry)>,
    pub multiplier: u32,
    pub shift: u32,
}

/// Slots for each entry, as long as the table may grow: then nearly no two share one.
const SLOTS_PER_ENTRY: usize = 16;
const LEAST_SLOTS: usize = 256;
/// Entries that are placed at most in search of the best multiplier.
const MULTIPLIER_EFFORT: usize = 1 << 21;

impl UnitTable {
    pub(crate) fn new(entries: &[UnitEntry]) -> Result<UnitTable, PlanError> {
        let slots = (SLOTS_PER_ENTRY * entries.len()).max(LEAST_SLOTS).next_power_of_two();
        let shift = (32 - slots.trailing_zeros()).max(abi::UNIT_LEAST_SHIFT);
        let mut placement =
            Placement { shift, taken: vec![0; (1 << (32 - shift)) + abi::UNIT_PROBES - 1], round: 0 };
        let mut multiplier = 1u32;
        let mut best: Option<(usize, u32)> = None;
        for _ in 0..(MULTIPLIER_EFFORT / entries.len().max(1)).max(16) {
            let moved = placement.moved(entries, multiplier);
            if moved.is_some_and(|moved| best.is_none_or(|(least, _)| moved < least)) {
                best = moved.map(|moved| (moved, multiplier));
            }
            if matches!(best, Some((0, _))) {
                break;
            }
            // A step that visits every odd number.
            multiplier = multiplier.wrapping_mul(0xd9f5_0b35).wrapping_add(0x9e37_79ba) | 1;
        }
        let (_, multiplier) = best.ok_or(PlanError::UnitTableFull { entries: entries.len() })?;
        Ok(UnitTable { slots: placement.fill(entries, multiplier), multiplier, shift })
    }
}

/// Which slots are taken in the round under way.
struct Placement {
    shift: u32,
    taken: Vec<u32>,
    round: u32,
}

impl Placement {
    /// The first free slot from the entry's own on, and how far that is.
    fn take(&mut self, entry: &UnitEntry, multiplier: u32) -> Option<(usize, usize)> {
        // frames have no tags yet on the host's side of a tagged unit
        let vlan = if entry.flags & abi::UNIT_HOST_SIDE == 0 { entry.vlan } else { 0 };
        let own = abi::unit_slot(entry.ifindex, vlan, multiplier, self.shift);
        let slot = (own..own + abi::UNIT_PROBES).find(|slot| self.taken[*slot] != self.round)?;
        self.taken[slot] = self.round;
        Some((slot, slot - own))
    }

    /// How many entries do not stand in their slots, if there is a slot for every one.
    fn moved(&mut self, entries: &[UnitEntry], multiplier: u32) -> Option<usize> {
        self.round += 1;
        entries.iter().try_fold(0, |moved, entry| {
            self.take(entry, multiplier).map(|(_, beyond)| moved + usize::from(beyond > 0))
        })
    }

    fn fill(&mut self, entries: &[UnitEntry], multiplier: u32) -> Vec<(usize, UnitEntry)> {
        self.round += 1;
        let placed: Vec<_> = entries.iter().filter_map(|entry| self.take(entry, multiplier)).collect();
        let mut slots: BTreeMap<usize, UnitEntry> =
            placed.iter().map(|(slot, _)| *slot).zip(entries.iter().copied()).collect();
        for passed in placed.iter().flat_map(|(slot, beyond)| slot - beyond..*slot) {
            slots.entry(passed).and_modify(|entry| entry.flags |= abi::UNIT_CROWDED);
        }
        // in the order of the configuration
        placed.iter().map(|(slot, _)| (*slot, slots[slot])).collect()
    }
}

/// The entry that the data plane finds for frames on a netdev: as `unit_find` of bpf/maps.h.
#[cfg(test)]
pub(crate) fn find(tables: &abi::tables::Tables, ifindex: u32, vlan: u32) -> Option<UnitEntry> {
    let slots: BTreeMap<usize, UnitEntry> = tables.units.iter().copied().collect();
    let own = abi::unit_slot(ifindex, vlan, tables.unit_multiplier, tables.unit_shift);
    for slot in own..own + abi::UNIT_PROBES {
        let entry = slots.get(&slot)?;
        let tags = if entry.flags & abi::UNIT_HOST_SIDE == 0 { entry.vlan } else { 0 };
        if (entry.ifindex, tags) == (ifindex, vlan) {
            return Some(*entry);
        }
        if entry.flags & abi::UNIT_CROWDED == 0 {
            return None;
        }
    }
    None
}
