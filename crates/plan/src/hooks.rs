//! Which hook the packets of an interface arrive on.

use std::collections::{BTreeMap, BTreeSet};

use sluice_abi::{self as abi, Unit};
use sluice_language::config::{Config, HookMode, Interface};

use crate::IngressHook::{Tc, XdpGeneric, XdpNative};
use crate::devices::{VETH, Warning};
use crate::units::{in_null_zone, managed, netdev};
use crate::{Environment, IngressHook, PlanError, gtpu};

/// A veth pair that tunnels end on, and nothing against XDP there.
fn takes_tunnels(config: &Config, env: &Environment, interface: &Interface) -> Result<bool, PlanError> {
    Ok(asks_for_tunnels(config, env, interface)? && xdp_obstacle(config, env, interface)?.is_none())
}

/// Whether each interface's ingress runs on XDP, by interface name.
pub(crate) fn hooks(config: &Config, env: &Environment) -> Result<BTreeMap<String, IngressHook>, PlanError> {
    let mut names: Vec<&Interface> = managed(config).iter().map(|m| m.interface).collect();
    names.dedup_by_key(|i| &i.name);
    let mobile: Vec<&Interface> = names.extract_if(.., |interface| interface.mobile).collect();
    let mut all_redirect = true;
    for interface in names.iter().filter(|interface| !env.is_absent(&interface.name)) {
        all_redirect &= netdev(env, &interface.name)?.xdp_preferred();
    }
    names.extend(in_null_zone(config));
    let mut hooks = BTreeMap::new();
    for interface in names {
        let netdev = netdev(env, &interface.name)?;
        let hook = match interface.mode {
            HookMode::Tc => Tc,
            HookMode::Generic => XdpGeneric,
            HookMode::Xdp if !netdev.xdp_native() && !netdev.absent => {
                let (name, driver) = (interface.name.clone(), netdev.driver.clone());
                return Err(PlanError::NoNativeXdp { name, driver });
            }
            HookMode::Xdp => XdpNative,
            HookMode::Auto if all_redirect && netdev.xdp_preferred() => XdpNative,
            HookMode::Auto if takes_tunnels(config, env, interface)? => XdpNative,
            HookMode::Auto => Tc,
        };
        hooks.insert(interface.name.clone(), hook);
    }
    // what the host sends to subscribers is seen where its checksums can be completed, and no frame arrives otherwise
    hooks.extend(mobile.iter().map(|interface| (interface.name.clone(), Tc)));
    Ok(hooks)
}

/// Has units of devices that lose what native XDP redirects to them say so, and adds an entry for each device of generic XDP, which
/// sends to every device and leaves nothing to other CPUs. Where nothing can be lost so, and nothing is spread, nothing is said.
pub(crate) fn tell_reach(
    environment: &Environment,
    is_spread: bool,
    hooks: &BTreeMap<String, IngressHook>,
    entries: &mut Vec<Unit>,
) {
    // `mif` is no device itself
    let devices = || hooks.iter().filter_map(|(name, hook)| Some((environment.netdevs.get(name)?, *hook)));
    let lose = devices().filter(|(netdev, hook)| *hook != XdpNative && netdev.loses_redirected());
    let by_kernel: BTreeSet<u32> = lose.map(|(netdev, _)| netdev.ifindex).collect();
    let is_lost = !by_kernel.is_empty() && hooks.values().any(|hook| *hook == XdpNative);
    for entry in entries.iter_mut().filter(|entry| is_lost && by_kernel.contains(&entry.phys_ifindex)) {
        entry.phys_ifindex |= abi::LEAVES_BY_KERNEL;
    }
    if !is_lost && !is_spread {
        return;
    }
    let generic = devices().filter(|(_, hook)| *hook == XdpGeneric);
    entries.extend(generic.map(|(netdev, _)| Unit {
        ifindex: netdev.ifindex,
        vlan: abi::VLAN_GENERIC,
        flags: abi::UNIT_VALID,
        ..Default::default()
    }));
}

/// Messages of GTP-U are never joined to large packets, the reason for which `mode auto` takes tc on veth. What stands against
/// XDP for them; None = nothing, or there is no question of it.
fn xdp_obstacle(
    config: &Config,
    environment: &Environment,
    interface: &Interface,
) -> Result<Option<String>, PlanError> {
    let (left, tags) = match netdev(environment, &interface.name)?.sender {
        None => {
            return Ok(Some("its other end cannot be seen from here; ask for it with `mode xdp`".to_owned()));
        }
        Some(sender) => (sender.checksums_left, sender.tags_beside),
    };
    if left {
        let text = "its other end leaves checksums to be completed, also those of packets in tunnels; `ethtool -K DEVICE tx off` there";
        return Ok(Some(text.to_owned()));
    }
    if tags && interface.units.iter().any(|unit| unit.vlan.is_some()) {
        let text = "its other end leaves VLAN tags beside the frame; `ethtool -K DEVICE txvlan off tx-vlan-stag-hw-insert off` there";
        return Ok(Some(text.to_owned()));
    }
    for other in managed(config).iter().map(|managed| managed.interface).filter(|other| !other.mobile) {
        let to = netdev(environment, &other.name)?;
        if to.takes_redirected || to.xdp_preferred() {
            continue;
        }
        let what = match to.driver == VETH {
            true => "its other end has no NAPI; `ethtool -K DEVICE gro on` there".to_owned(),
            false => format!("driver {}", to.driver),
        };
        return Ok(Some(format!("{} takes no frames that XDP redirects ({what})", other.name)));
    }
    Ok(None)
}

/// Why `mode auto` takes tc on a veth pair that tunnels end on.
pub(crate) fn refused_xdp_for_tunnels(
    config: &Config,
    environment: &Environment,
    interface: &Interface,
) -> Result<Option<Warning>, PlanError> {
    if !asks_for_tunnels(config, environment, interface)? {
        return Ok(None);
    }
    let name = &interface.name;
    Ok(xdp_obstacle(config, environment, interface)?.map(|why| Warning {
        device: name.clone(),
        text: format!("interface {name}: mode auto would take XDP for its tunnels, and takes tc: {why}"),
    }))
}

/// Whether `mode auto` has to ask what stands against XDP: a veth pair that tunnels end on.
fn asks_for_tunnels(
    config: &Config,
    environment: &Environment,
    interface: &Interface,
) -> Result<bool, PlanError> {
    let netdev = netdev(environment, &interface.name)?;
    let auto = interface.mode == HookMode::Auto && netdev.xdp_refused.is_none();
    Ok(auto && netdev.driver == VETH && gtpu::has_role(config, interface))
}

/// Whether what the other end of the interface sends matters: a veth pair takes XDP where that is asked for, and for tunnels.
pub fn depends_on_sender(config: &Config, interface: &Interface) -> bool {
    match interface.mode {
        HookMode::Xdp | HookMode::Generic => true,
        HookMode::Auto => gtpu::has_role(config, interface),
        HookMode::Tc => false,
    }
}
