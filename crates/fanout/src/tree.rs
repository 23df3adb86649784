//! The whole configuration that a YAML file stands for: its listeners, the interfaces they need, and everything else
//! allowed to pass, since whoever spreads datagrams has not asked for a firewall.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

use sluice_language::fan_out::{FanOut, Mode};
use sluice_netlink::Routing;

use crate::names::{Names, PATIENCE};
use crate::yaml::{Loaded, YamlError};

/// Sessions of what passes by; a gateway that is more than a fan-out is configured as a tree.
const SESSIONS: &str = "set security flow max-sessions 65536\nset security flow max-sessions-v6 65536\n";

/// The tree as `set` commands. Asks the kernel for the routes to receivers; for those by name that the DNS does not tell in a
/// moment, when it does.
pub fn from_yaml(loaded: &Loaded, file: &str, names: &Names) -> Result<String, YamlError> {
    let mut devices: BTreeMap<String, Option<&str>> = BTreeMap::new();
    names.learn(&loaded.fan_out, PATIENCE);
    let expanded = names.expand(&loaded.fan_out);
    for listener in expanded.kernel() {
        let mode = match listener.mode {
            Mode::Xdp => Some("xdp"),
            Mode::TcEbpf => Some("tc"),
            _ => None,
        };
        let unit = listener.interface.clone().unwrap_or_default();
        let known = devices.entry(unit.clone()).or_insert(mode);
        if mode.is_some() && known.is_some() && *known != mode {
            let message =
                format!("listener {}: another listener has {unit} run on another hook", listener.name);
            return Err(loaded.error(file, &listener.name, message));
        }
        *known = known.or(mode);
        for address in listener.receivers.iter().filter_map(|r| r.address()) {
            match device_towards(address.ip()) {
                Ok(Some(device)) => drop(devices.entry(format!("{device}.0")).or_insert(None)),
                Ok(None) => {
                    let message = format!(
                        "listener {}: receiver {address} is this host; use mode userspace",
                        listener.name
                    );
                    return Err(loaded.error(file, &listener.name, message));
                }
                Err(error) => tracing::warn!(receiver = %address, %error, "no route to this receiver yet"),
            }
        }
    }
    Ok(format!("{}{}", loaded.statements, surroundings(&devices)))
}

fn surroundings(devices: &BTreeMap<String, Option<&str>>) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let zone = "set security zones security-zone fan-out";
    let mut text = format!(
        "{zone} host-inbound-traffic system-services all\n{zone} host-inbound-traffic protocols all\n\
         set security policies default-policy permit-all\n{SESSIONS}"
    );
    for (unit, mode) in devices {
        let (device, number) = unit.rsplit_once('.').unwrap_or((unit, "0"));
        if number != "0" {
            text += &format!(
                "set interfaces {device} vlan-tagging\nset interfaces {device} unit {number} vlan-id {number}\n"
            );
        }
        text += &format!("set interfaces {device} unit {number}\n{zone} interfaces {unit}\n");
        if let Some(mode) = mode {
            text += &format!("set interfaces {device} mode {mode}\n");
        }
    }
    text
}

/// Devices that lead to receivers of the data plane's listeners at the moment, as far as there are routes.
pub fn ways(fan_out: &FanOut, names: &Names) -> BTreeSet<String> {
    let expanded = names.expand(fan_out);
    let receivers = expanded.kernel().flat_map(|listener| &listener.receivers);
    let addresses: BTreeSet<IpAddr> =
        receivers.filter_map(|receiver| receiver.address()).map(|address| address.ip()).collect();
    addresses.into_iter().filter_map(|address| device_towards(address).ok().flatten()).collect()
}

/// Device that packets to an address leave through, by the route to it; None = the address is this host's.
fn device_towards(address: IpAddr) -> io::Result<Option<String>> {
    let mut routing = Routing::open()?;
    let hop = routing.next_hop(address)?;
    if hop.is_local { Ok(None) } else { routing.device(hop.ifindex).map(|device| Some(device.name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    #[test]
    fn the_tree_of_a_yaml_compiles() {
        let devices = BTreeMap::from([("up0.0".to_owned(), Some("xdp")), ("down0.0".to_owned(), None)]);
        let loaded = yaml::load(
            "listeners: [{name: a, interface: up0, mode: xdp, bind: '192.0.2.1:514', \
             downstream: [{name: b, address: '192.0.2.2:514'}]}]",
            "x",
        )
        .unwrap();
        let text = format!("{}{}", loaded.statements, surroundings(&devices));
        let config = sluice_language::compile(&sluice_language::parse(&text, "x").unwrap()).unwrap();
        assert!(config.default_permit && config.zones[0].host_inbound.any);
        assert_eq!(config.interfaces.len(), 2);
    }

    #[test]
    fn a_receiver_of_this_host_is_told_from_one_elsewhere() {
        let towards = |address: &str| device_towards(address.parse().unwrap());
        for own in ["127.0.0.1", "127.0.0.77", "::1"] {
            assert_eq!(towards(own).unwrap(), None, "{own}");
        }
    }
}
