//! The machine as the plan sees it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sluice_language::config::{Config, Prefix, Unit};
use sluice_plan::{Environment, NetDev};

use crate::kernel::mtus::Mtus;
use crate::kernel::{Address, Kernel, KernelError, Link, ethtool, ipsec};

/// ifindexes of devices that the plan's kernel changes will make; no real one is this large.
const PLACEHOLDER: u32 = 0x7f00_0000;
/// The same of interfaces that are not here.
const ABSENT: u32 = 0x7e00_0000;

/// Interfaces that a configuration names. One that was in force may be put in force again, and another one that names them
/// too, while they are not here; a name that is new is refused then, as it may be mistyped.
pub type Known = BTreeSet<String>;

pub fn known(config: &Config) -> Known {
    config.interfaces.iter().filter(|own| !own.mobile).map(|own| own.name.clone()).collect()
}

/// Devices by name. Those that a commit of `config` would make, and those of `known` that are not here, stand in with
/// placeholders, so that everything can be checked before anything is made. Those whose MTU is set back by it have the earlier one.
pub fn read(
    kernel: &Kernel,
    links: &[Link],
    (config, known): (&Config, &Known),
    mtus_before: &Mtus,
) -> Result<Environment, KernelError> {
    let addresses = kernel.addresses()?;
    let tunnels = tunnels(&addresses);
    Ok(Environment { tunnels, ..devices(kernel, links, &addresses, (config, known), mtus_before) })
}

/// The same of devices alone: what is compared whenever the kernel tells of a change.
pub fn devices(
    kernel: &Kernel,
    links: &[Link],
    addresses: &[Address],
    (config, known): (&Config, &Known),
    mtus_before: &Mtus,
) -> Environment {
    let mut environment = of_links(links, addresses, (config, known), mtus_before);
    let tunnels = !config.gtp_u.is_empty();
    for interface in &config.interfaces {
        let wanted = sluice_plan::depends_on_sender(config, interface);
        if let Some(link) = links.iter().find(|link| link.name == interface.name)
            && let Some(netdev) = environment.netdevs.get_mut(&interface.name)
        {
            netdev.sender = wanted.then(|| kernel.sender(link)).flatten();
            // what changes with our own programs is not looked at: that would be another commit behind each start
            let asked = tunnels || netdev.has_lasting_reach();
            netdev.takes_redirected =
                asked && sluice_dataplane::takes_redirected(link.index).unwrap_or(false);
        }
    }
    environment
}

fn of_links(
    links: &[Link],
    addresses: &[Address],
    (config, known): (&Config, &Known),
    mtus_before: &Mtus,
) -> Environment {
    let mut environment = Environment::default();
    let by_index: HashMap<u32, &Link> = links.iter().map(|link| (link.index, link)).collect();
    let uppers = links.iter().filter(|link| takes_frames_below(link));
    let uppers: HashMap<u32, &Link> = uppers.filter_map(|upper| Some((upper.lower?, upper))).collect();
    let learned = learned(links, addresses, config);
    for link in links {
        let driver = link.kind.clone().or_else(|| ethtool::driver(&link.name).ok()).unwrap_or_default();
        let netdev = NetDev {
            ifindex: link.index,
            mac: link.mac,
            mtu: mtus_before.get(&link.name).copied().unwrap_or(link.mtu),
            driver,
            mtu_range: link.mtu_range,
            master: by_index
                .get(&link.master.unwrap_or(0))
                .copied()
                .filter(|master| !master.is_instance())
                .map(named),
            carries: uppers.get(&link.index).copied().map(named),
            xdp_refused: None,
            sender: None,
            takes_redirected: false,
            learned: learned.get(&link.index).cloned().unwrap_or_default(),
            headerless: link.headerless,
            absent: false,
        };
        environment.netdevs.insert(link.name.clone(), netdev);
    }
    add_absent(&mut environment, config, known);
    add_pairs(&mut environment, config);
    environment
}

fn add_absent(environment: &mut Environment, config: &Config, known: &Known) {
    let absent = config.interfaces.iter().filter(|own| known.contains(&own.name));
    for (interface, ifindex) in absent.zip(ABSENT..) {
        // as long as its units say, which is refused where the device turns out to be shorter
        let mtu = sluice_plan::least_mtu(interface).max(1500);
        // nothing that arrives elsewhere is held up by what it cannot take
        let netdev = NetDev { ifindex, mtu, takes_redirected: true, absent: true, ..NetDev::default() };
        environment.netdevs.entry(interface.name.clone()).or_insert(netdev);
    }
}

fn named(link: &Link) -> (String, String) {
    (link.name.clone(), link.kind.clone().unwrap_or_else(|| "another".to_owned()))
}

/// Devices that no unit can stand on, since another device has their frames, and which that is.
pub fn owned() -> Result<BTreeMap<String, String>, KernelError> {
    let (_runtime, kernel) = connected()?;
    let environment = of_links(&kernel.links()?, &[], (&Config::default(), &Known::new()), &Mtus::default());
    let why = |netdev: NetDev| match (netdev.master, netdev.carries) {
        (Some((master, kind)), _) => Some(format!("it is a port of {master} ({kind})")),
        (None, Some((device, kind))) => Some(format!("{device} ({kind}) lives on it")),
        (None, None) => None,
    };
    Ok(environment.netdevs.into_iter().filter_map(|(name, netdev)| Some((name, why(netdev)?))).collect())
}

/// For a command that asks once: without its runtime the connection ends.
pub fn connected() -> Result<(tokio::runtime::Runtime, Kernel), KernelError> {
    let runtime = crate::runtime().map_err(|e| KernelError {
        action: "start a runtime".to_owned(),
        reason: e.to_string(),
        advice: "check the limits of threads and open files",
    })?;
    let kernel = Kernel::connect(runtime.handle())?;
    Ok((runtime, kernel))
}

/// Kinds of devices that live on another one's frames.
const UPPER: [&str; 6] = ["vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec"];

fn takes_frames_below(upper: &Link) -> bool {
    upper.lower_namespace.is_none() && UPPER.contains(&upper.kind.as_deref().unwrap_or_default())
}

/// Addresses that units have by other means than the configuration, which gives them none of that family; by ifindex.
fn learned(links: &[Link], addresses: &[Address], config: &Config) -> HashMap<u32, Vec<Prefix>> {
    let units = config.interfaces.iter().flat_map(|i| i.units.iter().map(move |u| (i, u)));
    let units: HashMap<String, &Unit> = units.map(|(i, u)| (sluice_plan::device_of(i, u), u)).collect();
    let devices = links.iter().filter_map(|link| Some((link.index, *units.get(&link.name)?)));
    let devices: HashMap<u32, &Unit> = devices.collect();
    let mut learned: HashMap<u32, Vec<Prefix>> = HashMap::new();
    for address in addresses.iter().filter(|address| address.lasting && !address.ours) {
        let Some(unit) = devices.get(&address.ifindex) else { continue };
        let configured = if address.prefix.addr.is_ipv4() { &unit.inet } else { &unit.inet6 };
        if configured.is_empty() {
            learned.entry(address.ifindex).or_default().push(address.prefix);
        }
    }
    learned.values_mut().for_each(|prefixes| prefixes.sort_unstable());
    learned
}

/// Tunnels for others than this host, whose own packets the kernel sends. Who may not ask knows of none.
pub fn tunnels(own: &[Address]) -> Vec<(Prefix, Prefix)> {
    let mut tunnels = ipsec::tunnels().unwrap_or_else(|error| {
        tracing::debug!(%error, "the policies of IPsec cannot be listed");
        vec![]
    });
    let is_own = |source: Prefix| {
        sluice_plan::is_host(source) && own.iter().any(|address| address.prefix.addr == source.addr)
    };
    tunnels.retain(|(source, _)| !is_own(*source));
    tunnels
}

/// An environment in which every interface of the configuration exists: for `check --no-interfaces`.
pub fn imagined(config: &Config) -> Environment {
    let mut environment = Environment::default();
    let wired = config.interfaces.iter().filter(|interface| !interface.mobile);
    for (number, interface) in wired.enumerate() {
        let netdev = NetDev {
            ifindex: number as u32 + 1,
            mac: [2, 0, 0, 0, 0, 0],
            mtu: interface.mtu.map_or(1500, u32::from),
            driver: "veth".to_owned(),
            mtu_range: None,
            ..Default::default()
        };
        environment.netdevs.insert(interface.name.clone(), netdev);
    }
    add_pairs(&mut environment, config);
    environment
}

fn add_pairs(environment: &mut Environment, config: &Config) {
    let mut placeholder = PLACEHOLDER;
    for interface in &config.interfaces {
        let parent = match interface.mobile {
            true => NetDev { mac: [2, 0, 0, 0, 0, 0], mtu: 1500, ..NetDev::default() },
            false => match environment.netdevs.get(&interface.name) {
                Some(parent) => parent.clone(),
                None => continue,
            },
        };
        for unit in interface.units.iter().filter(|unit| sluice_plan::is_pair(interface, unit)) {
            let device = sluice_plan::device_of(interface, unit);
            let far = sluice_plan::far_end(interface, &device);
            for name in [far, device] {
                placeholder += 1;
                let wanted = NetDev { ifindex: placeholder, driver: "veth".to_owned(), ..parent.clone() };
                // what is left of a pair whose interface is away is away with it
                if parent.absent || !environment.netdevs.contains_key(&name) {
                    environment.netdevs.insert(name, wanted);
                }
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
        let config = crate::state::config::parse(TRUNK, "test").unwrap();
        let link =
            |index: u32, name: &str| Link { index, name: name.to_owned(), mtu: 1500, ..Default::default() };
        let first = of_links(&[link(3, "t0")], &[], (&config, &Known::new()), &Mtus::default());
        assert!(first.netdevs["t0.5"].ifindex >= PLACEHOLDER);
        assert_ne!(first.netdevs["t0.5"].ifindex, first.netdevs["t0.5p"].ifindex);
        let links = [link(3, "t0"), link(8, "t0.5"), link(7, "t0.5p")];
        let then = of_links(&links, &[], (&config, &Known::new()), &Mtus::default());
        assert_eq!((then.netdevs["t0.5"].ifindex, then.netdevs["t0.5p"].ifindex), (8, 7));
        assert!(imagined(&config).netdevs.contains_key("t0.5p"));
    }

    #[test]
    fn interfaces_that_were_known_stand_in_while_they_are_away_and_others_do_not() {
        let config = crate::state::config::parse(TRUNK, "test").unwrap();
        let none = of_links(&[], &[], (&config, &Known::new()), &Mtus::default());
        assert!(none.netdevs.is_empty(), "{none:?}");
        // its pair may be there still
        let pair = Link { index: 8, name: "t0.5".to_owned(), mtu: 1500, ..Default::default() };
        let absent = of_links(&[pair], &[], (&config, &known(&config)), &Mtus::default());
        assert!(["t0", "t0.5", "t0.5p"].iter().all(|device| absent.is_absent(device)), "{absent:?}");
    }
}
