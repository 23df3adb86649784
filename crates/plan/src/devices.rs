//! What devices cannot be used for, and what their operator should know of them.

use sluice_language::config::{Config, HookMode, Interface, Prefix};

use crate::display::prefix_text;
use crate::{Environment, IngressHook, PlanError, units};

/// What a commit tells about a device and `show interfaces` repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Name of the netdev.
    pub device: String,
    /// The whole sentence, with what to do.
    pub text: String,
}

/// Frames of these never reach a unit, are none, or reach two owners: refused by name.
pub(crate) fn refuse_owned(config: &Config, environment: &Environment) -> Result<(), PlanError> {
    let looked_at = |interface: &&Interface| units::is_looked_at(config, interface);
    for interface in config.interfaces.iter().filter(looked_at) {
        let netdev = units::netdev(environment, &interface.name)?;
        let name = interface.name.clone();
        if netdev.headerless {
            return Err(PlanError::NoEthernet { name, driver: netdev.driver.clone() });
        }
        if let Some((master, kind)) = netdev.master.clone() {
            return Err(PlanError::Enslaved { name, master, kind });
        }
        if let Some((device, kind)) = netdev.carries.clone() {
            return Err(PlanError::Carries { name, device, kind });
        }
    }
    Ok(())
}

/// What is configured for interfaces that are not here waits until they come.
pub(crate) fn absent(config: &Config, environment: &Environment) -> Vec<Warning> {
    let absent = config.interfaces.iter().filter(|interface| environment.is_absent(&interface.name));
    let warning = |interface: &Interface| Warning {
        device: interface.name.clone(),
        text: format!(
            "interface {name} is not here: its addresses, and routes by it, wait until it comes; look for the device, or \
             `delete interfaces {name}`",
            name = interface.name
        ),
    };
    absent.map(warning).collect()
}

/// XDP sees the bytes of a frame and nothing beside them: what the other end of a veth pair leaves there, a tag or a
/// checksum's completion, is lost.
pub(crate) fn sender_warnings(
    interface: &Interface,
    environment: &Environment,
    hook: IngressHook,
) -> Result<Vec<Warning>, PlanError> {
    let netdev = units::netdev(environment, &interface.name)?;
    if hook == IngressHook::Tc || netdev.driver != VETH {
        return Ok(vec![]);
    }
    let name = &interface.name;
    let warning = |text: String| Warning { device: name.clone(), text };
    let Some(sender) = netdev.sender else {
        let text = format!(
            "interface {name}: its other end cannot be seen from here; XDP needs `tx off txvlan off tx-vlan-stag-hw-insert off` \
             (ethtool -K) there: it sees no tag beside a frame, and does not complete checksums"
        );
        return Ok(vec![warning(text)]);
    };
    let tagged = interface.units.iter().any(|unit| unit.vlan.is_some());
    if sender.tags_beside && tagged {
        return Err(PlanError::TagsBeside { name: name.clone() });
    }
    let mut warnings = vec![];
    if sender.tags_beside {
        warnings.push(warning(format!(
            "interface {name}: its other end leaves VLAN tags beside the frame, where XDP does not see them: tagged frames are \
             taken for untagged ones; `ethtool -K DEVICE txvlan off tx-vlan-stag-hw-insert off` there, or mode tc"
        )));
    }
    if sender.checksums_left {
        warnings.push(warning(format!(
            "interface {name}: its other end leaves checksums to be completed, which XDP cannot: its TCP and UDP arrive broken; \
             `ethtool -K DEVICE tx off` there, or mode tc"
        )));
    }
    Ok(warnings)
}

/// Redirected packets never meet the kernel's policies: what a tunnel is for would leave in clear.
pub fn passed_by_ipsec(environment: &Environment) -> Vec<Warning> {
    let text = |(source, destination): &(Prefix, Prefix)| {
        format!(
            "the IPsec policy for {} to {} (`ip xfrm policy`) is not asked about what Sluice forwards, which leaves unencrypted: \
             deny it by a security policy, or let another host encrypt it",
            prefix_text(source),
            prefix_text(destination)
        )
    };
    environment.tunnels.iter().map(|tunnel| Warning { device: String::new(), text: text(tunnel) }).collect()
}

/// Why `mode auto` takes tc on a device whose driver has native XDP.
pub(crate) fn refused_xdp(
    interface: &Interface,
    environment: &Environment,
) -> Result<Option<Warning>, PlanError> {
    let netdev = units::netdev(environment, &interface.name)?;
    let refusal = netdev.xdp_refused.as_ref().filter(|_| interface.mode == HookMode::Auto);
    Ok(refusal.map(|why| Warning {
        device: interface.name.clone(),
        text: format!(
            "interface {}: mode auto takes tc, since native XDP was refused: {why}; it is tried again when the daemon starts or \
             the device's MTU changes",
            interface.name
        ),
    }))
}

pub(crate) const VETH: &str = "veth";
