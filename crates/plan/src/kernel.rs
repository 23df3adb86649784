//! What the plan wants from the kernel: devices, addresses, routes, sysctls and the guard.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sluice_language::config::{Config, Interface, Prefix, RouteTarget, Unit};

use crate::units::{device_of, is_managed};
use crate::{Environment, PlanError};

/// Wanted state, in the order it must be reached. Names, never ifindexes: the devices may not exist yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelWants {
    pub vlan_pairs: Vec<VlanPair>,
    pub links: Vec<LinkWant>,
    pub addresses: Vec<(String, Prefix)>,
    pub routes: Vec<RouteWant>,
    /// Path below /proc/sys and its value; set after the guard stands.
    pub sysctls: Vec<(String, &'static str)>,
    /// Devices whose traffic the kernel must never forward by itself.
    pub guard: BTreeSet<String>,
}

/// A tagged unit's device where 8021q is missing: the data plane sends untagged frames for the host to `peer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanPair {
    pub device: String,
    pub peer: String,
    pub parent: String,
    pub mtu: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkWant {
    pub device: String,
    pub up: bool,
    pub mtu: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteWant {
    pub destination: Prefix,
    pub target: RouteVia,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteVia {
    Gateways(Vec<Gateway>),
    Device(String),
    Discard,
    Reject,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gateway {
    pub addr: IpAddr,
    /// The device whose configured subnet has it. Named, because the kernel would choose by what is there at the
    /// moment: while a commit moves a subnet to another device, both have it. None = the kernel finds the way.
    pub device: Option<String>,
}

/// Longest netdev name Linux takes.
const NAME_MAX: usize = 15;

pub(crate) fn wants(config: &Config, environment: &Environment) -> Result<KernelWants, PlanError> {
    let mut wants = KernelWants::default();
    for interface in &config.interfaces {
        let mtu = interface.mtu.map(u32::from);
        let netdev = environment.netdevs.get(&interface.name);
        if let (Some(mtu), Some((low, high))) = (mtu, netdev.and_then(|d| d.mtu_range))
            && !(low..=high).contains(&mtu)
        {
            let interface = interface.name.clone();
            return Err(PlanError::MtuRefused { interface, mtu, low, high });
        }
        let up = !interface.disabled;
        wants.links.push(LinkWant { device: interface.name.clone(), up, mtu });
        wants.guard.insert(interface.name.clone());
        for unit in &interface.units {
            add_unit(&mut wants, config, environment, interface, unit)?;
        }
    }
    for listener in config.fan_out.kernel().filter(|listener| listener.answer_arp) {
        let addr = listener.bind.ip();
        let len = if addr.is_ipv4() { 32 } else { 128 };
        let unit = listener.interface.as_deref().unwrap_or_default();
        let device = device_of_unit_name(config, unit);
        // an interface that has it already answers by itself
        if !wants.addresses.iter().any(|(_, known)| known.addr == addr) {
            wants.addresses.push((device, Prefix { addr, len }));
        }
    }
    for route in &config.static_routes {
        let target = match &route.next_hop {
            RouteTarget::Gateways(gateways) => {
                RouteVia::Gateways(gateways.iter().map(|addr| gateway(*addr, &wants.addresses)).collect())
            }
            RouteTarget::Interface(unit) => RouteVia::Device(device_of_unit_name(config, unit)),
            RouteTarget::Discard => RouteVia::Discard,
            RouteTarget::Reject => RouteVia::Reject,
        };
        wants.routes.push(RouteWant { destination: route.destination, target });
    }
    Ok(wants)
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
    if unit.vlan_id.is_some() {
        let peer = format!("{device}p");
        if peer.len() > NAME_MAX {
            return Err(PlanError::NameTooLong {
                unit: format!("{}.{}", interface.name, unit.number),
                device: peer,
            });
        }
        let mtu = crate::units::unit_mtu(environment, interface, unit)?;
        wants.links.push(LinkWant { device: device.clone(), up, mtu: Some(mtu) });
        wants.links.push(LinkWant { device: peer.clone(), up, mtu: Some(mtu) });
        wants.guard.extend([device.clone(), peer.clone()]);
        wants.vlan_pairs.push(VlanPair { device: device.clone(), peer, parent: interface.name.clone(), mtu });
    }
    if !up {
        return Ok(());
    }
    for prefix in unit.inet.iter().chain(&unit.inet6) {
        wants.addresses.push((device.clone(), *prefix));
    }
    if is_managed(config, interface, unit) {
        // The FIB lookup of the data plane answers only for devices that forward.
        wants.sysctls.push((format!("net/ipv4/conf/{device}/forwarding"), "1"));
        wants.sysctls.push((format!("net/ipv6/conf/{device}/forwarding"), "1"));
    }
    Ok(())
}

fn gateway(addr: IpAddr, addresses: &[(String, Prefix)]) -> Gateway {
    let connected = addresses.iter().filter(|(_, prefix)| contains(*prefix, addr)).max_by_key(|(_, p)| p.len);
    Gateway { addr, device: connected.map(|(device, _)| device.clone()) }
}

fn contains(prefix: Prefix, addr: IpAddr) -> bool {
    let (a, b, bits) = match (prefix.addr, addr) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(u32::from(a)), u128::from(u32::from(b)), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a), u128::from(b), 128),
        _ => return false,
    };
    prefix.len == 0 || (a ^ b) >> (bits - u32::from(prefix.len)) == 0
}

fn device_of_unit_name(config: &Config, name: &str) -> String {
    let units = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u)));
    let mut found = units.filter(|(i, u)| format!("{}.{}", i.name, u.number) == name);
    found.next().map_or_else(|| name.to_owned(), |(i, u)| device_of(i, u))
}
