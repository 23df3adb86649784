//! The machine as the plan sees it.

use sluice_language::config::Config;
use sluice_plan::{Environment, NetDev};

use crate::kernel::{Link, ethtool};
use crate::mtus::Mtus;

/// ifindexes of devices that the plan's kernel changes will make; no real one is this large.
const PLACEHOLDER: u32 = 0x7f00_0000;

/// Devices by name. Those that a commit of `config` would make stand in with placeholders, so that everything can be
/// checked before anything is made. Those whose MTU is set back by it have the earlier one.
pub fn read(links: &[Link], config: &Config, mtus_before: &Mtus) -> Environment {
    let mut environment = Environment::default();
    for link in links {
        let driver = link.kind.clone().or_else(|| ethtool::driver(&link.name).ok()).unwrap_or_default();
        let mtu = mtus_before.get(&link.name).copied().unwrap_or(link.mtu);
        let netdev = NetDev { ifindex: link.index, mac: link.mac, mtu, driver, mtu_range: link.mtu_range };
        environment.netdevs.insert(link.name.clone(), netdev);
    }
    add_pairs(&mut environment, config);
    environment
}

/// An environment in which every interface of the configuration exists: for `check --no-interfaces`.
pub fn imagined(config: &Config) -> Environment {
    let mut environment = Environment::default();
    for (number, interface) in config.interfaces.iter().enumerate() {
        let netdev = NetDev {
            ifindex: number as u32 + 1,
            mac: [2, 0, 0, 0, 0, 0],
            mtu: interface.mtu.map_or(1500, u32::from),
            driver: "veth".to_owned(),
            mtu_range: None,
        };
        environment.netdevs.insert(interface.name.clone(), netdev);
    }
    add_pairs(&mut environment, config);
    environment
}

fn add_pairs(environment: &mut Environment, config: &Config) {
    let mut placeholder = PLACEHOLDER;
    for interface in &config.interfaces {
        let Some(parent) = environment.netdevs.get(&interface.name).cloned() else { continue };
        for unit in interface.units.iter().filter(|u| u.vlan.is_some()) {
            let device = sluice_plan::device_of(interface, unit);
            for name in [format!("{device}p"), device] {
                placeholder += 1;
                let wanted = NetDev { ifindex: placeholder, driver: "veth".to_owned(), ..parent.clone() };
                environment.netdevs.entry(name).or_insert(wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRUNK: &str = "set interfaces t0 vlan-tagging\nset interfaces t0 unit 5 vlan-id 5\n";

    #[test]
    fn devices_that_a_commit_makes_stand_in_until_they_exist() {
        let config = crate::config::parse(TRUNK, "test").unwrap();
        let link =
            |index: u32, name: &str| Link { index, name: name.to_owned(), mtu: 1500, ..Default::default() };
        let first = read(&[link(3, "t0")], &config, &Mtus::default());
        assert!(first.netdevs["t0.5"].ifindex >= PLACEHOLDER);
        assert_ne!(first.netdevs["t0.5"].ifindex, first.netdevs["t0.5p"].ifindex);
        let then = read(&[link(3, "t0"), link(8, "t0.5"), link(7, "t0.5p")], &config, &Mtus::default());
        assert_eq!((then.netdevs["t0.5"].ifindex, then.netdevs["t0.5p"].ifindex), (8, 7));
        assert!(imagined(&config).netdevs.contains_key("t0.5p"));
    }
}
