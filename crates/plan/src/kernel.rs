//! What the plan wants from the kernel: devices, addresses, routes, sysctls and the guard.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_language::config::{
    Config, Interface, NextHop, Prefix, RouteTarget, STATIC_PREFERENCE, StaticRoute, Unit,
};
use sluice_language::nat::{Proxy, address, bits, count};

use crate::instances::{self, InstanceWant};
use crate::prefix::{contains, network};
use crate::units::{LOOPBACK, device_of, device_of_unit_name, far_end, is_managed, is_pair};
use crate::{Environment, PlanError};

/// Wanted state, in the order it must be reached. Names, never ifindexes: the devices may not exist yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelWants {
    /// VRF devices, one a routing instance.
    pub instances: Vec<InstanceWant>,
    /// veth pairs that stand for tagged and for mobile units.
    pub vlan_pairs: Vec<VlanPair>,
    /// State and MTU of devices.
    pub links: Vec<LinkWant>,
    /// Device and the address it gets, with the length of its subnet.
    pub addresses: Vec<(String, Prefix)>,
    /// Static routes.
    pub routes: Vec<RouteWant>,
    /// Static routes, or gateways of theirs, that cannot be used as the configuration stands, and why.
    pub inactive_routes: Vec<String>,
    /// Addresses that a device answers ARP or neighbour solicitations for, besides its own.
    pub proxies: Vec<(String, IpAddr)>,
    /// Path below /proc/sys and its value; set after the guard stands.
    pub sysctls: Vec<(String, &'static str)>,
    /// Address families that the configuration does not mention. Forwarding is switched on for them where that is
    /// possible; that it is not (/proc/sys of a container cannot be written) is no error.
    pub unasked: Vec<&'static str>,
    /// Devices whose frames must have their tags in them: XDP sees none beside.
    pub tags_in_frames: Vec<String>,
    /// Devices whose traffic the kernel must never forward by itself.
    pub guard: BTreeSet<String>,
}

impl KernelWants {
    /// The routing instance that a device's packets are routed in; None = the main one.
    pub fn instance_of(&self, device: &str) -> Option<&InstanceWant> {
        self.instances.iter().find(|instance| instance.ports.iter().any(|port| port == device))
    }

    /// Interfaces that tagged frames arrive on, once for each of their units.
    pub fn tagged(&self) -> impl Iterator<Item = &String> {
        self.vlan_pairs.iter().filter_map(|pair| pair.parent.as_ref())
    }

    /// The kernel's number of the table that they are routed by.
    pub fn table_of(&self, device: &str) -> u32 {
        self.instance_of(device).map_or(MAIN_TABLE, |instance| instance.table)
    }
}

/// A tagged or mobile unit's device: the data plane sends untagged frames for the host to `peer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanPair {
    /// Has the unit's addresses.
    pub device: String,
    /// The other end, which the data plane sends to.
    pub peer: String,
    /// The interface that the tagged frames arrive on, whose MAC address it has; None = what it carries leads into tunnels.
    pub parent: Option<String>,
    /// Of both ends, in bytes.
    pub mtu: u32,
}

/// What a device is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWant {
    /// Its name.
    pub device: String,
    /// False = `disable`.
    pub up: bool,
    /// In bytes; None = it keeps the one it has.
    pub mtu: Option<u32>,
}

/// A static route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteWant {
    /// The kernel's number of the table it stands in.
    pub table: u32,
    /// Network address: the bits behind its length are zero.
    pub destination: Prefix,
    /// Of several to one destination the kernel takes the lowest whose device is up: its metric.
    pub preference: u32,
    /// Where its packets go.
    pub target: RouteVia,
}

impl RouteWant {
    fn new(destination: Prefix, target: RouteVia) -> RouteWant {
        RouteWant { table: MAIN_TABLE, destination, preference: STATIC_PREFERENCE, target }
    }

    /// The kernel keeps one route for each destination and metric.
    pub fn is_in_place_of(&self, other: &RouteWant) -> bool {
        (self.table, self.destination, self.preference) == (other.table, other.destination, other.preference)
    }
}

/// Where a static route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteVia {
    /// One, or several that share the traffic (ECMP).
    Gateways(Vec<Gateway>),
    /// A directly connected network: the name of the netdev.
    Device(String),
    /// Packets are dropped, and no sender is told.
    Discard,
    /// Packets are dropped, and their senders get an ICMP error.
    Reject,
    /// The table of another instance decides, by the name of its VRF device; None = the main table, which the kernel asks after
    /// that of the instance (`throw`).
    Instance(Option<String>),
}

/// A next hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    /// Of the route's family.
    pub addr: IpAddr,
    /// The device whose configured subnet has it. Named, because the kernel would choose by what is there at the
    /// moment: while a commit moves a subnet to another device, both have it. None = the kernel finds the way.
    pub device: Option<String>,
}

/// The kernel's main table (RT_TABLE_MAIN).
pub const MAIN_TABLE: u32 = 254;

/// Longest netdev name Linux takes.
const NAME_MAX: usize = 15;

/// Of the last route of an instance's table: without it the kernel would go on to the main table (Documentation/networking/vrf.rst).
const LAST_METRIC: u32 = 4_278_198_272;

pub(crate) fn wants(
    config: &Config,
    environment: &Environment,
    instances: &BTreeMap<String, u32>,
) -> Result<KernelWants, PlanError> {
    let instances = instances::wanted(config, environment, instances);
    let mut wants = KernelWants { instances, ..Default::default() };
    for interface in &config.interfaces {
        let mtu = interface.mtu.map(u32::from);
        let netdev = environment.netdevs.get(&interface.name);
        if let (Some(mtu), Some((low, high))) = (mtu, netdev.and_then(|d| d.mtu_range))
            && !(low..=high).contains(&mtu)
        {
            let interface = interface.name.clone();
            return Err(PlanError::MtuRefused { interface, mtu, low, high });
        }
        if environment.is_absent(&interface.name) {
            wants.guard.insert(interface.name.clone());
            wants.guard.extend(interface.units.iter().map(|unit| device_of(interface, unit)));
            continue;
        }
        let up = !interface.disabled;
        if !interface.mobile {
            wants.links.push(LinkWant { device: interface.name.clone(), up, mtu });
            wants.guard.insert(interface.name.clone());
        }
        for unit in &interface.units {
            add_unit(&mut wants, config, environment, interface, unit)?;
        }
    }
    for listener in config.fan_out.kernel().filter(|listener| listener.answer_arp) {
        let addr = listener.bind.ip();
        let len = if addr.is_ipv4() { 32 } else { 128 };
        let unit = listener.interface.as_deref().unwrap_or_default();
        let device = device_of_unit_name(config, unit);
        if environment.is_absent(&device) {
            continue;
        }
        // an interface that has it already answers by itself
        if !wants.addresses.iter().any(|(_, known)| known.addr == addr) {
            wants.addresses.push((device, Prefix { addr, len }));
        }
    }
    add_routes(&mut wants, config, environment);
    follow_links(&mut wants, learns_shared(config));
    add_pool_routes(&mut wants, config);
    wants.unasked =
        ["ipv4", "ipv6"].into_iter().filter(|family| !speaks_of(config, *family == "ipv4")).collect();
    Ok(wants)
}

fn add_routes(wants: &mut KernelWants, config: &Config, environment: &Environment) {
    add_last_routes(wants);
    let of_table = |wants: &KernelWants, table: u32| -> Vec<(String, Prefix)> {
        wants.addresses.iter().filter(|(device, _)| wants.table_of(device) == table).cloned().collect()
    };
    let mut tables = vec![(MAIN_TABLE, &config.static_routes, of_table(wants, MAIN_TABLE))];
    for (want, instance) in wants.instances.iter().zip(&config.routing_instances) {
        tables.push((want.table, &instance.static_routes, of_table(wants, want.table)));
    }
    let dead = dead_units(config, environment);
    for (table, routes, addresses) in tables {
        add_table(wants, (config, &dead), (table, &addresses), routes);
    }
}

/// What an instance's table does not know is unreachable, and its questions to the FIB are answered.
fn add_last_routes(wants: &mut KernelWants) {
    for instance in &wants.instances {
        for everything in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let destination = Prefix { addr: everything, len: 0 };
            let (table, preference) = (instance.table, LAST_METRIC);
            wants.routes.push(RouteWant { table, destination, preference, target: RouteVia::Reject });
        }
    }
    let main = Some(LOOPBACK).filter(|_| !wants.instances.is_empty());
    let devices = wants.instances.iter().map(|instance| instance.device.as_str()).chain(main);
    let forwarding = devices.flat_map(|device| {
        ["ipv4", "ipv6"].map(|family| (format!("net/{family}/conf/{device}/forwarding"), "1"))
    });
    wants.sysctls.extend(forwarding);
    // the kernel forwards what comes by a port as if it came by the VRF device
    wants.guard.extend(wants.instances.iter().map(|instance| instance.device.clone()));
}

/// What leads through dead units only is inactive, as with Junos. The kernel would keep such a route when its interface is
/// disabled, and refuse it at the next start. `addresses` are those of the table's instance.
fn add_table(
    wants: &mut KernelWants,
    (config, dead_units): (&Config, &[DeadUnit]),
    (table, addresses): (u32, &[(String, Prefix)]),
    routes: &[StaticRoute],
) {
    for route in routes {
        let mut dead = vec![];
        let target = match &route.next_hop {
            RouteTarget::Gateways(gateways) => {
                let all = gateways.iter().map(|hop| gateway(config, hop, addresses));
                let named = gateways.iter().map(|hop| hop.interface.as_deref());
                let named = named.map(|name| dead_units.iter().find(|unit| Some(unit.name.as_str()) == name));
                let usable = all.zip(named).filter(|(gateway, named)| {
                    let elsewhere =
                        || dead_units.iter().find(|unit| gateway.device.is_none() && unit.has(gateway.addr));
                    let unit = named.or_else(elsewhere);
                    dead.extend(unit.map(|unit| {
                        format!("{} is behind {}, which is {}", gateway.addr, unit.name, unit.why)
                    }));
                    unit.is_none()
                });
                RouteVia::Gateways(usable.map(|(gateway, _)| gateway).collect())
            }
            RouteTarget::Interface(unit) => {
                let found = dead_units.iter().find(|dead| dead.name == *unit);
                dead.extend(found.map(|unit| format!("{}, which is {}", unit.name, unit.why)));
                RouteVia::Device(device_of_unit_name(config, unit))
            }
            RouteTarget::Discard => RouteVia::Discard,
            RouteTarget::Reject => RouteVia::Reject,
            RouteTarget::Table(instance) => RouteVia::Instance(instance.clone()),
        };
        let is_active = match &target {
            RouteVia::Gateways(left) => !left.is_empty(),
            _ => dead.is_empty(),
        };
        let Prefix { addr, len } = route.destination;
        wants.inactive_routes.extend(dead.iter().map(|why| {
            let what = if is_active { "one of its gateways is inactive" } else { "it is inactive" };
            format!("static route {addr}/{len}: {what}, {why}")
        }));
        if is_active {
            let (destination, preference) = (route.destination, route.preference);
            wants.routes.push(RouteWant { table, destination, preference, target });
        }
    }
}

/// Whether a routing protocol may bring routes with several next hops.
fn learns_shared(config: &Config) -> bool {
    let bgp = config.protocols.bgp.as_ref();
    // OSPF does of its own accord (RFC 2328 16.1.1, RFC 5340 4.8)
    config.protocols.ospf.is_some()
        || config.protocols.ospf3.is_some()
        || bgp.is_some_and(|bgp| bgp.multipath.0 || bgp.multipath.1)
}

/// The kernel keeps routes over a link that has lost its carrier, and goes on to use them; those that others stand in for it
/// is to pass over.
fn follow_links(wants: &mut KernelWants, learns_shared: bool) {
    let hops = |route: &RouteWant| match &route.target {
        RouteVia::Gateways(gateways) => gateways.iter().map(|gateway| gateway.device.clone()).collect(),
        RouteVia::Device(device) => vec![Some(device.clone())],
        RouteVia::Discard | RouteVia::Reject | RouteVia::Instance(_) => vec![None],
    };
    let mut by_destination: BTreeMap<(u32, Prefix), Vec<Option<String>>> = BTreeMap::new();
    for route in &wants.routes {
        by_destination.entry((route.table, route.destination)).or_default().extend(hops(route));
    }
    let mut sysctls = BTreeSet::new();
    let is_shared = |route: &RouteWant| matches!(&route.target, RouteVia::Gateways(all) if all.len() > 1);
    if learns_shared || wants.routes.iter().any(is_shared) {
        // one that does not answer for its neighbour is passed over, as IPv6 does by itself
        sysctls.insert("net/ipv4/fib_multipath_use_neigh".to_owned());
        // ports count as well as addresses: by them sessions find the next hop again that they have (bpf/stage/route.h)
        sysctls.extend(["ipv4", "ipv6"].map(|family| format!("net/{family}/fib_multipath_hash_policy")));
    }
    for ((_, destination), hops) in by_destination.iter().filter(|(_, hops)| hops.len() > 1) {
        let family = if destination.addr.is_ipv4() { "ipv4" } else { "ipv6" };
        let path = |device: &String| format!("net/{family}/conf/{device}/ignore_routes_with_linkdown");
        sysctls.extend(hops.iter().flatten().map(path));
    }
    wants.sysctls.extend(sysctls.into_iter().map(|path| (path, "1")));
}

/// Subscribers are behind their mobile unit, where its own subnet does not say so already.
fn add_pool_routes(wants: &mut KernelWants, config: &Config) {
    for pool in &config.gtp_u.pools {
        let units = config.interfaces.iter().filter(|interface| interface.mobile);
        let mut units = units.flat_map(|interface| interface.units.iter().map(move |unit| (interface, unit)));
        let found =
            units.find(|(interface, unit)| crate::units::unit_name(interface, unit) == pool.interface);
        let Some((interface, unit)) = found.filter(|(interface, unit)| is_managed(config, interface, unit))
        else {
            continue;
        };
        let own = || unit.addresses().map(|prefix| network(*prefix));
        let is_connected =
            |prefix: &Prefix| own().any(|own| own.len <= prefix.len && contains(own, prefix.addr));
        for prefix in pool.prefixes.iter().filter(|prefix| !is_connected(prefix)) {
            let target = RouteVia::Device(device_of(interface, unit));
            wants.routes.push(RouteWant::new(*prefix, target));
        }
    }
}

/// A unit that nothing leaves by.
struct DeadUnit {
    name: String,
    why: &'static str,
    prefixes: Vec<Prefix>,
}

impl DeadUnit {
    fn has(&self, addr: IpAddr) -> bool {
        self.prefixes.iter().any(|prefix| contains(*prefix, addr))
    }
}

/// Units that are disabled, by themselves or with their interface, and those of interfaces that are not here.
fn dead_units(config: &Config, environment: &Environment) -> Vec<DeadUnit> {
    let units = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u)));
    let dead = |(interface, unit): (&Interface, &Unit)| {
        let why = match interface.disabled || unit.disabled {
            true => "disabled",
            false if environment.is_absent(&interface.name) => "not here",
            false => return None,
        };
        let prefixes = unit.addresses().copied().collect();
        Some(DeadUnit { name: format!("{}.{}", interface.name, unit.number), why, prefixes })
    };
    units.filter_map(dead).collect()
}

/// Whether any address, route or listener is of this family, or none is of any: then all that passes is meant.
fn speaks_of(config: &Config, v4: bool) -> bool {
    let units = config.interfaces.iter().flat_map(|interface| &interface.units);
    let mut families: Vec<bool> =
        units.flat_map(|unit| unit.addresses()).map(|prefix| prefix.addr.is_ipv4()).collect();
    let instances = config.routing_instances.iter().flat_map(|instance| &instance.static_routes);
    families
        .extend(config.static_routes.iter().chain(instances).map(|route| route.destination.addr.is_ipv4()));
    families.extend(config.interfaces.iter().flat_map(|i| &i.units).flat_map(|unit| {
        [unit.dhcp.is_some().then_some(true), unit.dhcpv6.is_some().then_some(false)].into_iter().flatten()
    }));
    families.extend(config.gtp_u.pools.iter().flat_map(|pool| &pool.prefixes).map(|p| p.addr.is_ipv4()));
    families.extend(config.fan_out.kernel().map(|listener| listener.bind.is_ipv4()));
    // a gateway that translates needs both
    families.is_empty() || families.contains(&v4) || !config.nat.is_empty()
}

/// Every link that carries IPv6 takes packets of this length.
pub(crate) const IPV6_MTU_MIN: u32 = 1280;
/// Of what a veth pair takes.
const VETH_MTU_MAX: u32 = 65_535;

/// Proxied addresses. The kernel answers ARP for an address only if its route leads to another device than the one it
/// is asked on: that of an address in the device's own subnet would not.
pub(crate) fn add_proxies(wants: &mut KernelWants, proxies: &[(String, Proxy)]) {
    let own: BTreeSet<(u32, IpAddr)> =
        wants.addresses.iter().map(|(device, prefix)| (wants.table_of(device), prefix.addr)).collect();
    let tables: Vec<u32> = proxies.iter().map(|(device, _)| wants.table_of(device)).collect();
    let target = RouteVia::Device(LOOPBACK.to_owned());
    for ((device, proxy), table) in proxies.iter().zip(tables) {
        let (low, _) = bits(proxy.low);
        let all = (0..u128::from(count(proxy.low, proxy.high))).map(|n| address(low + n, proxy.low));
        wants
            .proxies
            .extend(all.filter(|addr| !own.contains(&(table, *addr))).map(|addr| (device.clone(), addr)));
        // The kernel would wait for others to answer first.
        let (family, needed) = if proxy.low.is_ipv4() { ("ipv4", None) } else { ("ipv6", Some("proxy_ndp")) };
        let delay = (format!("net/{family}/neigh/{device}/proxy_delay"), "0");
        let needed = needed.map(|name| (format!("net/{family}/conf/{device}/{name}"), "1"));
        for sysctl in std::iter::once(delay).chain(needed) {
            if !wants.sysctls.contains(&sysctl) {
                wants.sysctls.push(sysctl);
            }
        }
        if proxy.low.is_ipv6() {
            continue;
        }
        if !wants.links.iter().any(|link| link.device == LOOPBACK) {
            wants.links.push(LinkWant { device: LOOPBACK.to_owned(), up: true, mtu: None });
        }
        for destination in crate::nat::of_range(proxy.low, proxy.high) {
            let has = |route: &RouteWant| (route.table, route.destination) == (table, destination);
            if !wants.routes.iter().any(has) {
                wants.routes.push(RouteWant { table, ..RouteWant::new(destination, target.clone()) });
            }
        }
    }
}

fn add_unit(
    wants: &mut KernelWants,
    config: &Config,
    environment: &Environment,
    interface: &Interface,
    unit: &Unit,
) -> Result<(), PlanError> {
    let device = device_of(interface, unit);
    let up = !interface.disabled && !unit.disabled;
    if is_pair(interface, unit) {
        let peer = far_end(interface, &device);
        if peer.len() > NAME_MAX {
            return Err(PlanError::NameTooLong {
                unit: format!("{}.{}", interface.name, unit.number),
                device: peer,
            });
        }
        let mtu = crate::units::mtu(config, environment, interface, unit)?;
        wants.links.push(LinkWant { device: device.clone(), up, mtu: Some(mtu) });
        // what comes out of a tunnel may be longer than what goes into one
        let far = if interface.mobile { VETH_MTU_MAX } else { mtu };
        wants.links.push(LinkWant { device: peer.clone(), up, mtu: Some(far) });
        wants.guard.extend([device.clone(), peer.clone()]);
        let parent = Some(interface.name.clone()).filter(|_| !interface.mobile);
        wants.vlan_pairs.push(VlanPair { device: device.clone(), peer, parent, mtu });
    }
    if !up {
        return Ok(());
    }
    for prefix in unit.addresses() {
        wants.addresses.push((device.clone(), *prefix));
    }
    if is_managed(config, interface, unit) {
        // The FIB lookup of the data plane answers only for devices that forward.
        wants.sysctls.push((format!("net/ipv4/conf/{device}/forwarding"), "1"));
        // a smaller device has no IPv6 (RFC 8200 section 5), nor the files that say so
        let has_ipv6 = crate::units::device_mtu(config, environment, interface, unit)? >= IPV6_MTU_MIN;
        if has_ipv6 {
            wants.sysctls.push((format!("net/ipv6/conf/{device}/forwarding"), "1"));
        }
        // Neighbours hear of another MAC address at once, not when their entries are stale.
        wants.sysctls.push((format!("net/ipv4/conf/{device}/arp_notify"), "1"));
        if has_ipv6 {
            wants.sysctls.push((format!("net/ipv6/conf/{device}/ndisc_notify"), "1"));
        }
    }
    Ok(())
}

fn gateway(config: &Config, hop: &NextHop, addresses: &[(String, Prefix)]) -> Gateway {
    let addr = hop.address;
    if let Some(unit) = &hop.interface {
        return Gateway { addr, device: Some(device_of_unit_name(config, unit)) };
    }
    let connected = addresses.iter().filter(|(_, prefix)| contains(*prefix, addr)).max_by_key(|(_, p)| p.len);
    Gateway { addr, device: connected.map(|(device, _)| device.clone()) }
}
