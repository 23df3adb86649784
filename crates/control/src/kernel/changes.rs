//! Kernel changes of one commit, each with its undo.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use sluice_language::config::Prefix;
use sluice_plan::{Gateway, KernelWants, MAIN_TABLE, RouteVia, RouteWant, VlanPair};

use crate::kernel::tags::{self, Tags};
use crate::kernel::{self, Address, Kernel, KernelError, Link, ethtool, instances};

/// What was done, newest last.
enum Done {
    Pair { device: String },
    Instance { device: String },
    Port { index: u32, name: String, was: Option<u32> },
    Up { index: u32, name: String, was: bool },
    Mtu { index: u32, name: String, was: u32 },
    Address { ifindex: u32, device: String, prefix: Prefix },
    Route { route: RouteWant, was: Option<RouteWant> },
    Proxied { ifindex: u32, addr: IpAddr },
    Sysctl { path: String, was: String },
    Tags(Tags),
}

/// Applies plans' wishes step by step; what is not kept is undone, at the latest when this is dropped.
pub struct Changes {
    kernel: Kernel,
    done: Vec<Done>,
    indexes: BTreeMap<String, u32>,
}

impl Changes {
    pub fn new(kernel: &Kernel) -> Self {
        Self { kernel: kernel.clone(), done: vec![], indexes: BTreeMap::new() }
    }

    /// What was done so far stays.
    pub fn keep(&mut self) {
        self.done.clear();
    }

    /// Undoes what was done so far, the newest first.
    pub fn undo(&mut self) {
        for done in std::mem::take(&mut self.done).iter().rev() {
            if let Err(error) = self.undo_one(done) {
                tracing::error!(%error, "a change of the failed commit could not be undone");
            }
        }
    }

    /// Devices, routing instances, MTUs, links and addresses, routes, proxied addresses.
    pub fn apply(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        let links = self.kernel.links()?;
        for pair in &wants.vlan_pairs {
            self.pair(pair, &links)?;
        }
        self.instances(wants)?;
        let links = self.kernel.links()?;
        self.indexes = links.iter().map(|l| (l.name.clone(), l.index)).collect();
        for want in &wants.links {
            let Some(link) = links.iter().find(|l| l.name == want.device) else { continue };
            self.mtu(link, want.mtu)?;
        }
        for want in &wants.links {
            let Some(link) = links.iter().find(|l| l.name == want.device) else { continue };
            self.up(link, want.up)?;
        }
        self.addresses(wants)?;
        self.routes(wants)?;
        self.proxied(wants)
    }

    /// After the guard stands.
    pub fn sysctls(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        for (path, value) in &wants.sysctls {
            let was = kernel::sysctl(path)?;
            if was == *value {
                continue;
            }
            match kernel::set_sysctl(path, value) {
                Ok(()) => self.done.push(Done::Sysctl { path: path.clone(), was }),
                Err(error)
                    if wants.unasked.iter().any(|family| path.starts_with(&format!("net/{family}/"))) =>
                {
                    tracing::warn!(%error, "of this family nothing is forwarded; nothing in the configuration asks for it");
                }
                Err(error) if path.ends_with("_notify") => {
                    tracing::warn!(%error, "neighbours will be late to hear of another MAC address");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What devices receive of frames with tags ([`tags`]). Says what was changed.
    pub fn tags(&mut self, wants: &KernelWants) -> Result<Tags, KernelError> {
        let mut changed = Tags::new();
        for link in self.kernel.links()? {
            let mut settings = vec![];
            let done = tags::change(&self.kernel, &link, wants, &mut settings);
            if !settings.is_empty() {
                self.done.push(Done::Tags(Tags::from([(link.name.clone(), settings.clone())])));
                changed.insert(link.name, settings);
            }
            done?;
        }
        Ok(changed)
    }

    /// What no unit needs any more. Returns what failed.
    pub fn put_back(&self, changed: &Tags) -> Vec<String> {
        tags::put_back(&self.kernel, changed)
    }

    fn pair(&mut self, pair: &VlanPair, links: &[Link]) -> Result<(), KernelError> {
        let find = |name: &str| links.iter().find(|l| l.name == name);
        let parent = match &pair.parent {
            Some(parent) => match find(parent) {
                Some(parent) => Some(parent),
                None => return Ok(()),
            },
            None => None,
        };
        let (device, peer) = (find(&pair.device), find(&pair.peer));
        let ours = |link: Option<&Link>| link.is_some_and(|l| l.ours);
        if !(ours(device) && ours(peer)) {
            self.refuse_foreign(pair, device.or(peer))?;
            self.kernel.add_veth(&pair.device, &pair.peer)?;
            self.done.push(Done::Pair { device: pair.device.clone() });
        }
        let links = self.kernel.links()?;
        for (name, near) in [(&pair.device, true), (&pair.peer, false)] {
            let Some(link) = links.iter().find(|l| &l.name == name) else { continue };
            if !link.ours {
                self.kernel.mark_link(link.index, name)?;
            }
            if let Some(parent) = parent.filter(|parent| near && link.mac != parent.mac) {
                self.kernel.set_mac(link.index, name, parent.mac)?;
            }
            if near && parent.is_none() {
                // nobody would answer: who is behind it is known by address alone
                self.kernel.set_noarp(link.index, name)?;
            }
            if !near {
                // The far end never talks to the host's stack: no link-local address, no neighbour discovery.
                self.kernel.set_noarp(link.index, name)?;
                kernel::set_sysctl(&format!("net/ipv6/conf/{name}/disable_ipv6"), "1")?;
            }
        }
        if pair.parent.is_none() {
            // What leaves by tunnels is one packet each: nobody behind the pair could cut it, or complete its checksum.
            ethtool::send_whole_packets(&pair.device).map_err(|e| KernelError {
                action: format!("turn off segmentation and checksum offload of {}", pair.device),
                reason: e.to_string(),
                advice: "check the device",
            })?;
        }
        // Without it, frames that XDP redirects into the pair would wait for ever.
        ethtool::enable_gro(&pair.device).map_err(|e| KernelError {
            action: format!("turn on generic receive offload of {}", pair.device),
            reason: e.to_string(),
            advice: "check the device",
        })
    }

    fn refuse_foreign(&self, pair: &VlanPair, existing: Option<&Link>) -> Result<(), KernelError> {
        let Some(link) = existing else { return Ok(()) };
        Err(KernelError {
            action: format!("create the device of unit {}", pair.device),
            reason: format!("{} exists and was not made by Sluice", link.name),
            advice: "remove it or use another unit number",
        })
    }

    /// Before anything has addresses: a link that becomes a port loses those of IPv6, and its routes.
    fn instances(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        let made = instances::make(&self.kernel, &self.kernel.links()?, &wants.instances)?;
        self.done.extend(made.into_iter().map(|device| Done::Instance { device }));
        for (link, master) in instances::moves(&self.kernel.links()?, &wants.instances) {
            self.kernel.set_master(link.index, &link.name, master)?;
            self.done.push(Done::Port { index: link.index, name: link.name.clone(), was: link.master });
        }
        Ok(())
    }

    fn mtu(&mut self, link: &Link, mtu: Option<u32>) -> Result<(), KernelError> {
        if let Some(mtu) = mtu.filter(|mtu| *mtu != link.mtu) {
            self.kernel.set_mtu(link.index, &link.name, mtu)?;
            self.done.push(Done::Mtu { index: link.index, name: link.name.clone(), was: link.mtu });
        }
        Ok(())
    }

    fn up(&mut self, link: &Link, up: bool) -> Result<(), KernelError> {
        if link.up != up {
            self.kernel.set_link_up(link.index, &link.name, up)?;
            self.done.push(Done::Up { index: link.index, name: link.name.clone(), was: link.up });
        }
        Ok(())
    }

    fn addresses(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        let present = self.kernel.addresses()?;
        for (device, prefix) in &wants.addresses {
            let Some(ifindex) = self.indexes.get(device).copied() else { continue };
            if present.iter().any(|a| a.ifindex == ifindex && a.prefix == *prefix) {
                continue;
            }
            self.kernel.add_address(ifindex, device, *prefix)?;
            self.done.push(Done::Address { ifindex, device: device.clone(), prefix: *prefix });
        }
        Ok(())
    }

    fn routes(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        let present = routes(&self.kernel, &self.indexes)?;
        for route in &wants.routes {
            let was = present.iter().find(|present| present.is_in_place_of(route));
            if was.is_some_and(|was| same(was, route)) {
                continue;
            }
            match self.kernel.put_route(route, |name| self.indexes.get(name).copied()) {
                // of a family that nothing asks for, and the kernel has not
                Err(error) if is_last(route) && is_unasked(wants, route) => {
                    tracing::warn!(%error, "of this family nothing is routed");
                    continue;
                }
                put => put?,
            }
            self.done.push(Done::Route { route: route.clone(), was: was.cloned() });
        }
        Ok(())
    }

    fn proxied(&mut self, wants: &KernelWants) -> Result<(), KernelError> {
        if wants.proxies.is_empty() {
            return Ok(());
        }
        let present = self.kernel.proxied()?;
        for (device, addr) in &wants.proxies {
            let Some(ifindex) = self.indexes.get(device).copied() else { continue };
            if present.iter().any(|p| p.ifindex == ifindex && p.addr == *addr) {
                continue;
            }
            self.kernel.add_proxied(ifindex, device, *addr)?;
            self.done.push(Done::Proxied { ifindex, addr: *addr });
        }
        Ok(())
    }

    fn undo_one(&self, done: &Done) -> Result<(), KernelError> {
        let index = |name: &str| self.indexes.get(name).copied();
        match done {
            Done::Port { index, name, was } => self.kernel.set_master(*index, name, *was),
            Done::Pair { device } | Done::Instance { device } => {
                let links = self.kernel.links()?;
                links
                    .iter()
                    .find(|l| &l.name == device)
                    .map_or(Ok(()), |l| self.kernel.delete_link(l.index, device))
            }
            Done::Up { index, name, was } => self.kernel.set_link_up(*index, name, *was),
            Done::Mtu { index, name, was } => self.kernel.set_mtu(*index, name, *was),
            Done::Address { ifindex, device, prefix } => {
                self.kernel.delete_address(*ifindex, device, *prefix)
            }
            Done::Route { was: Some(was), .. } => self.kernel.put_route(was, index),
            Done::Route { route, was: None } => self.kernel.delete_route(route, index),
            Done::Proxied { ifindex, addr } => self.kernel.delete_proxied(*ifindex, *addr),
            Done::Sysctl { path, was } => kernel::set_sysctl(path, was),
            Done::Tags(changed) => {
                tags::put_back(&self.kernel, changed).iter().for_each(|error| tracing::error!("{error}"));
                Ok(())
            }
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Puts back what a plan wants and the kernel has lost since: with a link that was down go its IPv6 addresses, routes
/// and proxied addresses, with one that was in another namespace all of its settings. Says what, and whether something
/// could not be put back yet. Devices of `unjudged` get nothing: this host would answer on them whoever asks.
pub fn restore(
    kernel: &Kernel,
    wants: &KernelWants,
    unjudged: impl Fn(&Link) -> bool,
) -> Result<(Vec<String>, bool), KernelError> {
    // what stands in the way of instances is nothing to the rest
    let (mut restored, lacks) = match restore_instances(kernel, wants) {
        Ok(restored) => (restored, false),
        Err(error) => {
            tracing::debug!(%error, "not put back yet");
            (vec![], true)
        }
    };
    restored.extend(settings(wants));
    let links = kernel.links()?;
    restored.extend(tags::restore(kernel, &links, wants));
    let up = links.iter().filter(|link| link.up && !unjudged(link));
    let up = up.map(|link| (link.name.as_str(), link.index)).collect();
    let mut restoring = Restoring { kernel, wants, up, restored, lacks };
    restoring.addresses()?;
    restoring.connected()?;
    restoring.routes(&links)?;
    restoring.proxied()?;
    Ok((restoring.restored, restoring.lacks))
}

/// VRF devices and their ports.
fn restore_instances(kernel: &Kernel, wants: &KernelWants) -> Result<Vec<String>, KernelError> {
    if wants.instances.is_empty() {
        return Ok(vec![]);
    }
    let made = instances::make(kernel, &kernel.links()?, &wants.instances)?;
    let mut restored: Vec<String> = made.iter().map(|name| format!("routing-instance {name}")).collect();
    for (link, master) in instances::moves(&kernel.links()?, &wants.instances) {
        kernel.set_master(link.index, &link.name, master)?;
        restored.push(format!("routing instance of {}", link.name));
    }
    Ok(restored)
}

struct Restoring<'a> {
    kernel: &'a Kernel,
    wants: &'a KernelWants,
    up: BTreeMap<&'a str, u32>,
    restored: Vec<String>,
    lacks: bool,
}

impl Restoring<'_> {
    fn index(&self, device: &str) -> Option<u32> {
        self.up.get(device).copied()
    }

    fn note(&mut self, what: String, result: Result<(), KernelError>) {
        match result {
            Ok(()) => self.restored.push(what),
            Err(error) => {
                self.lacks = true;
                tracing::debug!(%error, "not put back yet");
            }
        }
    }

    fn addresses(&mut self) -> Result<(), KernelError> {
        let present: HashSet<_> = self.kernel.addresses()?.iter().map(|a| (a.ifindex, a.prefix)).collect();
        for (device, prefix) in &self.wants.addresses {
            let Some(ifindex) = self.index(device) else { continue };
            if !present.contains(&(ifindex, *prefix)) {
                let what = format!("address {}/{} of {device}", prefix.addr, prefix.len);
                self.note(what, self.kernel.add_address(ifindex, device, *prefix));
            }
        }
        Ok(())
    }

    /// Connected routes (to an address's own subnet), which the kernel makes with the address and only then.
    fn connected(&mut self) -> Result<(), KernelError> {
        let present: HashSet<_> = self.kernel.connected()?.into_iter().collect();
        for (device, prefix) in &self.wants.addresses {
            let Some(ifindex) = self.index(device) else { continue };
            let subnet = sluice_plan::network(*prefix);
            if !sluice_plan::is_host(*prefix) && !present.contains(&(ifindex, subnet)) {
                let what = format!("route {}/{} to {device}", subnet.addr, subnet.len);
                let table = self.wants.table_of(device);
                self.note(what, self.kernel.add_connected(ifindex, device, table, *prefix));
            }
        }
        Ok(())
    }

    fn routes(&mut self, links: &[Link]) -> Result<(), KernelError> {
        let all = links.iter().map(|l| (l.name.clone(), l.index)).collect();
        let present = routes(self.kernel, &all)?;
        for route in &self.wants.routes {
            let Some(usable) = self.usable(route) else { continue };
            let has = |wanted: &RouteWant| {
                present.iter().any(|present| present.is_in_place_of(wanted) && same(present, wanted))
            };
            if !has(route) && !has(&usable) {
                let put = self.kernel.put_route(&usable, |name| self.index(name));
                self.note(format!("route {}", kernel::route_text(&usable)), put);
            }
        }
        Ok(())
    }

    /// By the devices that are up. IPv4 takes a shared route away as a whole when one of its devices goes, and nothing of it
    /// can be put back by that one.
    fn usable(&self, route: &RouteWant) -> Option<RouteWant> {
        let is_up = |device: &str| self.index(device).is_some();
        let target = match &route.target {
            RouteVia::Gateways(gateways) => {
                let left = gateways.iter().filter(|gateway| gateway.device.as_deref().is_none_or(is_up));
                RouteVia::Gateways(left.cloned().collect())
            }
            RouteVia::Device(device) | RouteVia::Instance(Some(device)) if !is_up(device) => return None,
            target => target.clone(),
        };
        let is_none = matches!(&target, RouteVia::Gateways(left) if left.is_empty());
        (!is_none).then(|| RouteWant { target, ..route.clone() })
    }

    fn proxied(&mut self) -> Result<(), KernelError> {
        let proxies = &self.wants.proxies;
        let present = if proxies.is_empty() { vec![] } else { self.kernel.proxied()? };
        for (device, addr) in proxies {
            let Some(ifindex) = self.index(device) else { continue };
            if !present.iter().any(|p| p.ifindex == ifindex && p.addr == *addr) {
                let added = self.kernel.add_proxied(ifindex, device, *addr);
                self.note(format!("answers for {addr} on {device}"), added);
            }
        }
        Ok(())
    }
}

/// What had to be set again. A setting that is not there belongs to a device that has gone; one that may not be written was
/// told by the commit.
fn settings(wants: &KernelWants) -> Vec<String> {
    let lost =
        wants.sysctls.iter().filter(|(path, value)| kernel::sysctl(path).is_ok_and(|now| now != *value));
    lost.filter(|(path, value)| kernel::set_sysctl(path, value).is_ok())
        .map(|(path, value)| format!("{path} = {value}"))
        .collect()
}

/// Whether the kernel's route is the wanted one: gateways in any order, on any device where none is named.
fn same(present: &RouteWant, wanted: &RouteWant) -> bool {
    let (present, wanted) = match (&present.target, &wanted.target) {
        (RouteVia::Gateways(present), RouteVia::Gateways(wanted)) => (present, wanted),
        // a VRF device is a device to the kernel
        (RouteVia::Device(present), RouteVia::Instance(Some(wanted))) => return present == wanted,
        (present, wanted) => return present == wanted,
    };
    let matches = |p: &Gateway, w: &Gateway| p.addr == w.addr && (w.device.is_none() || w.device == p.device);
    present.len() == wanted.len() && wanted.iter().all(|w| present.iter().any(|p| matches(p, w)))
}

/// Each wanted route, and whether the kernel has it so.
pub fn compare_routes<'a>(
    kernel: &Kernel,
    wants: &'a KernelWants,
) -> Result<Vec<(&'a RouteWant, bool)>, KernelError> {
    let indexes = kernel.links()?.into_iter().map(|link| (link.name, link.index)).collect();
    let present = routes(kernel, &indexes)?;
    let has = |route: &RouteWant| present.iter().any(|one| one.is_in_place_of(route) && same(one, route));
    Ok(wants.routes.iter().map(|route| (route, has(route))).collect())
}

fn routes(kernel: &Kernel, indexes: &BTreeMap<String, u32>) -> Result<Vec<RouteWant>, KernelError> {
    kernel.routes(|index| indexes.iter().find(|(_, i)| **i == index).map(|(name, _)| name.clone()))
}

/// Removes what Sluice added and `wants` does not name: proxied and own addresses, routes, devices of routing instances and of tagged
/// units. Goes on after an error; returns all of them.
pub fn remove_leftovers(kernel: &Kernel, wants: &KernelWants) -> Vec<KernelError> {
    let links = match kernel.links() {
        Ok(links) => links,
        Err(error) => return vec![error],
    };
    let indexes: BTreeMap<String, u32> = links.iter().map(|l| (l.name.clone(), l.index)).collect();
    let mut results = vec![];
    match kernel.proxied() {
        Ok(present) => results.extend(
            present
                .iter()
                .filter(|p| {
                    p.ours
                        && !wants
                            .proxies
                            .iter()
                            .any(|(d, a)| *a == p.addr && indexes.get(d) == Some(&p.ifindex))
                })
                .map(|p| kernel.delete_proxied(p.ifindex, p.addr)),
        ),
        Err(error) => results.push(Err(error)),
    }
    match routes(kernel, &indexes) {
        Ok(present) => results.extend(
            present
                .iter()
                .filter(|route| !wants.routes.iter().any(|wanted| wanted.is_in_place_of(route)))
                .map(|route| kernel.delete_route(route, |name| indexes.get(name).copied())),
        ),
        Err(error) => results.push(Err(error)),
    }
    match kernel.addresses() {
        Ok(present) => results
            .extend(present.iter().filter(|a| a.ours).filter_map(|a| leftover(kernel, wants, &links, a))),
        Err(error) => results.push(Err(error)),
    }
    let instances = instances::leftovers(&links, &wants.instances);
    results.extend(instances.map(|link| kernel.delete_link(link.index, &link.name)));
    for link in links.iter().filter(|l| l.ours && !l.is_instance()) {
        let pair = wants.vlan_pairs.iter().find(|p| p.device == link.name || p.peer == link.name);
        // Deleting one end deletes the other.
        let is_far = link.name.ends_with('p') || link.name.ends_with("-peer");
        if pair.is_none() && !is_far {
            results.push(kernel.delete_link(link.index, &link.name));
        }
    }
    results.into_iter().filter_map(Result::err).collect()
}

/// What an instance's table ends with.
fn is_last(route: &RouteWant) -> bool {
    route.table != MAIN_TABLE && route.destination.len == 0 && route.target == RouteVia::Reject
}

fn is_unasked(wants: &KernelWants, route: &RouteWant) -> bool {
    let family = if route.destination.addr.is_ipv4() { "ipv4" } else { "ipv6" };
    wants.unasked.contains(&family)
}

fn leftover(
    kernel: &Kernel,
    wants: &KernelWants,
    links: &[Link],
    address: &Address,
) -> Option<Result<(), KernelError>> {
    let device = &links.iter().find(|l| l.index == address.ifindex)?.name;
    let wanted = wants.addresses.iter().any(|(d, p)| d == device && *p == address.prefix);
    (!wanted).then(|| kernel.delete_address(address.ifindex, device, address.prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(gateways: &[(&str, Option<&str>)]) -> RouteWant {
        let gateway = |(addr, device): &(&str, Option<&str>)| Gateway {
            addr: addr.parse().unwrap(),
            device: device.map(str::to_owned),
        };
        let destination = Prefix { addr: "10.9.0.0".parse().unwrap(), len: 16 };
        RouteWant {
            table: MAIN_TABLE,
            destination,
            preference: 5,
            target: RouteVia::Gateways(gateways.iter().map(gateway).collect()),
        }
    }

    #[test]
    fn routes_are_the_same_in_any_order_and_on_any_device_where_none_is_named() {
        let present = route(&[("10.0.0.1", Some("a0")), ("10.0.0.2", Some("b0"))]);
        assert!(same(&present, &route(&[("10.0.0.2", None), ("10.0.0.1", Some("a0"))])));
        assert!(!same(&present, &route(&[("10.0.0.2", Some("a0")), ("10.0.0.1", Some("a0"))])));
        assert!(!same(&present, &route(&[("10.0.0.1", Some("a0"))])));
        assert!(!same(&RouteWant { target: RouteVia::Discard, ..present.clone() }, &present));
    }
}
