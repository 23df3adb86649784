//! Routing instances: VRF devices, and the devices that are their ports.

use std::collections::HashMap;

use rtnetlink::packet_route::link::InfoKind;
use rtnetlink::{LinkMessageBuilder, LinkUnspec, LinkVrf};
use sluice_plan::InstanceWant;

use super::connection::{Kernel, KernelError, Result};
use super::link::{INSTANCE_ALIAS, Link};

const NO_VRF: &str = "load its module (`modprobe vrf`), or use a kernel with CONFIG_NET_VRF; without it there is the main \
                      instance only: remove `routing-instances`";

impl Kernel {
    /// Whether there can be VRF devices: one without a table is asked for, which no kernel makes.
    fn has_vrf(&self) -> Result<()> {
        let nothing =
            LinkMessageBuilder::<LinkVrf>::new_with_info_kind(InfoKind::Vrf).name("sluice-vrf").build();
        match self.runtime.block_on(self.netlink.link().add(nothing).execute()) {
            Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code() == -libc::EOPNOTSUPP => {
                Err(KernelError {
                    action: "make routing instances".to_owned(),
                    reason: "this kernel has no VRF devices".to_owned(),
                    advice: NO_VRF,
                })
            }
            _ => Ok(()),
        }
    }

    fn add_vrf(&self, instance: &InstanceWant) -> Result<()> {
        let name = &instance.device;
        let message = LinkVrf::new(name, instance.table).build();
        let action = || format!("create the device of routing-instance {name}");
        self.wait(self.netlink.link().add(message).execute(), action, NO_VRF)?;
        let Some(made) = self.links()?.into_iter().find(|link| link.name == *name) else { return Ok(()) };
        let message = LinkUnspec::new_with_index(made.index).alias(INSTANCE_ALIAS).up().build();
        let action = || format!("set up the device of routing-instance {name}");
        self.wait(self.netlink.link().set(message).execute(), action, "check the device")
    }

    /// Makes a device a port of a VRF device, or of none. The kernel cycles the link.
    pub(super) fn set_master(&self, index: u32, name: &str, master: Option<u32>) -> Result<()> {
        let link = LinkUnspec::new_with_index(index);
        let message = match master {
            Some(index) => link.controller(index),
            None => link.nocontroller(),
        };
        let action = || format!("move {name} to another routing instance");
        self.wait(self.netlink.link().set(message.build()).execute(), action, "check the device")
    }
}

/// Refuses what cannot be made, before anything is.
pub fn check(kernel: &Kernel, links: &[Link], wants: &[InstanceWant]) -> Result<()> {
    if wants.is_empty() {
        return Ok(());
    }
    kernel.has_vrf()?;
    let find = |name: &str| links.iter().find(|link| link.name == name);
    for want in wants {
        let foreign = links.iter().find(|link| !link.ours && link.table == Some(want.table));
        if let Some(other) = foreign.or(find(&want.device)).filter(|link| !link.is_instance()) {
            return Err(KernelError {
                action: format!("make routing-instance {} with table {}", want.device, want.table),
                reason: format!("{} exists and was not made by Sluice", called(other)),
                advice: "remove it, or use another name",
            });
        }
        for port in want.ports.iter().filter_map(|port| find(port)) {
            if let Some(master) =
                links.iter().find(|link| Some(link.index) == port.master && !link.is_instance())
            {
                return Err(KernelError {
                    action: format!("take {} into routing-instance {}", port.name, want.device),
                    reason: format!("it is a port of {}", called(master)),
                    advice: "take it out (`ip link set DEVICE nomaster`)",
                });
            }
        }
    }
    Ok(())
}

fn called(link: &Link) -> String {
    match (&link.kind, link.table) {
        (Some(kind), Some(table)) => format!("{kind} {} with table {table}", link.name),
        (kind, _) => format!("{} {}", kind.as_deref().unwrap_or("device"), link.name),
    }
}

/// Makes VRF devices that are not there, and names them. One of another table, from a state that is lost, is made anew.
pub(super) fn make(kernel: &Kernel, links: &[Link], wants: &[InstanceWant]) -> Result<Vec<String>> {
    let mut made = vec![];
    for want in wants {
        let old = links.iter().find(|link| link.name == want.device && link.is_instance());
        match old {
            Some(link) if link.table == Some(want.table) && link.up => continue,
            Some(link) if link.table == Some(want.table) => {
                kernel.set_link_up(link.index, &link.name, true)?;
                continue;
            }
            Some(link) => kernel.delete_link(link.index, &link.name)?,
            None => {}
        }
        kernel.add_vrf(want)?;
        made.push(want.device.clone());
    }
    Ok(made)
}

/// Devices that are ports of another instance than they are to be, and of which; None = of none. What others have made
/// ports of devices of theirs stays there.
pub(super) fn moves<'a>(links: &'a [Link], wants: &[InstanceWant]) -> Vec<(&'a Link, Option<u32>)> {
    let instance = |index: u32| links.iter().find(|link| link.index == index).is_some_and(Link::is_instance);
    let wanted = |link: &Link| {
        let own = wants.iter().find(|want| want.ports.contains(&link.name))?;
        links.iter().find(|link| link.name == own.device && link.is_instance()).map(|link| link.index)
    };
    let ours = links.iter().filter(|link| link.master.is_none_or(instance));
    ours.map(|link| (link, wanted(link))).filter(|(link, wanted)| link.master != *wanted).collect()
}

/// VRF devices of ours that nobody wants.
pub(super) fn leftovers<'a>(links: &'a [Link], wants: &[InstanceWant]) -> impl Iterator<Item = &'a Link> {
    links.iter().filter(|link| link.is_instance() && !wants.iter().any(|want| want.device == link.name))
}

/// Numbers of the instances that devices are in, by index, as the kernel has it; those of the main one are not listed.
pub fn numbers(links: &[Link], wants: &[InstanceWant]) -> HashMap<u32, u16> {
    let number = |link: &Link| wants.iter().find(|want| want.device == link.name).map(|want| want.number);
    let vrfs = links.iter().filter(|link| link.is_instance());
    let mut numbers: HashMap<u32, u16> = vrfs.filter_map(|vrf| Some((vrf.index, number(vrf)?))).collect();
    let ports = links.iter().filter_map(|link| Some((link.index, *numbers.get(&link.master?)?)));
    let ports: Vec<(u32, u16)> = ports.collect();
    numbers.extend(ports);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vrf(index: u32, name: &str, table: u32) -> Link {
        let kind = Some("vrf".to_owned());
        Link {
            index,
            name: name.to_owned(),
            kind,
            table: Some(table),
            ours: true,
            up: true,
            ..Default::default()
        }
    }

    fn port(index: u32, name: &str, master: Option<u32>) -> Link {
        Link { index, name: name.to_owned(), master, ..Default::default() }
    }

    fn want(device: &str, number: u16, ports: &[&str]) -> InstanceWant {
        let ports = ports.iter().map(|port| (*port).to_owned()).collect();
        InstanceWant { device: device.to_owned(), number, table: 1_000_000 + u32::from(number), ports }
    }

    #[test]
    fn ports_go_to_the_instance_that_names_them_and_others_stay_where_they_are() {
        let bridge = Link { index: 9, name: "br0".to_owned(), ..Default::default() };
        let links = [
            vrf(1, "blue", 1_000_001),
            vrf(2, "red", 1_000_002),
            port(3, "a0", None),
            port(4, "b0", Some(1)),
            port(5, "c0", Some(1)),
            port(6, "d0", Some(9)),
            port(7, "e0", Some(2)),
            bridge,
        ];
        let wants = [want("blue", 1, &["a0", "b0", "d0"]), want("red", 2, &["c0"])];
        let moves: Vec<_> =
            moves(&links, &wants).into_iter().map(|(link, to)| (link.name.as_str(), to)).collect();
        assert_eq!(moves, [("a0", Some(1)), ("c0", Some(2)), ("e0", None)]);
    }

    #[test]
    fn addresses_belong_to_the_instance_that_the_kernel_has_their_device_in() {
        let foreign = Link { ours: false, ..vrf(8, "mgmt", 10) };
        let links = [
            vrf(1, "blue", 1_000_001),
            port(3, "a0", Some(1)),
            port(4, "b0", None),
            port(5, "m0", Some(8)),
            foreign,
        ];
        let wants = [want("blue", 7, &["a0"])];
        for (ifindex, number) in [(1, 7), (3, 7), (4, 0), (5, 0), (99, 0)] {
            let known = numbers(&links, &wants).get(&ifindex).copied();
            assert_eq!(known.unwrap_or(0), number, "{ifindex}");
        }
        assert!(numbers(&links, &[]).is_empty());
    }
}
