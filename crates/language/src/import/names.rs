//! Names and numbers that are written otherwise here: interfaces, names with odd characters, prefixes with host bits.

use std::collections::{HashMap, HashSet};

use super::{Cost, Import};
use crate::check::context;
use crate::compile::unfit_name;
use crate::groups::is_pattern;
use crate::schema::kind::{first_address, prefix};
use crate::schema::{Body, Cursor, Key, Kind, lookup};
use crate::tree::{NodeId, TOP, Tree};

/// An interface of the router that needs a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// As the router names it: `ge-0/0/0`.
    pub name: String,
    /// Its own, free text.
    pub description: Option<String>,
    /// Of its units, as the text has them.
    pub addresses: Vec<String>,
    /// Zones of its units.
    pub zones: Vec<String>,
}

/// Ports of a router, which are devices here: `ge-0/0/0`, `xe-0/0/1:2`, `reth0`, `ae0`.
pub fn is_port(name: &str) -> bool {
    let is_numbered = |prefix: &str| {
        let number = name.strip_prefix(prefix);
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let media = ["ge", "xe", "et", "fe", "mge", "sxe", "e1", "t1", "cl", "wl"];
    let (kind, slots) = name.split_once('-').unwrap_or((name, ""));
    let is_slots = slots.contains('/')
        && slots.chars().all(|c| c.is_ascii_digit() || matches!(c, '/' | ':'))
        && slots.split('/').all(|part| !part.is_empty());
    media.contains(&kind) && is_slots || is_numbered("reth") || is_numbered("ae")
}

/// Interfaces that only a router has, with what to say of them.
const INNER: &[(&str, &str)] = &[
    ("fab", "there is no cluster"),
    (
        "fxp",
        "the router's own management port: leave the device to the host, or give it to the zone `management`",
    ),
    ("gr-", TUNNEL),
    ("ip-", TUNNEL),
    ("irb", "Sluice does not switch: make a Linux bridge, and name it for this interface"),
    ("lo", "addresses of the gateway itself belong on a device: name one for it, such as a dummy"),
    ("lsq-", "there are no services cards"),
    ("lt-", "there is one table of routes"),
    (
        "pp",
        "Sluice speaks no PPPoE, and a PPP device has no Ethernet header: let the modem in front end the session",
    ),
    (
        "dl",
        "Sluice speaks no PPP, whose devices have no Ethernet header: let the modem in front end the session",
    ),
    ("sp-", "there are no services cards"),
    ("ms-", "there are no services cards"),
    (
        "st",
        "Sluice builds no tunnels, and an XFRM interface has no Ethernet header: let another host end them",
    ),
    ("swfab", "there is no cluster"),
    ("vlan", "Sluice does not switch: make a Linux bridge, and name it for this interface"),
    ("vme", "the router's own management port: leave the device to the host"),
];

const TUNNEL: &str =
    "Sluice builds no tunnels, and a device of one has no Ethernet header: let another host end it";

fn inner(name: &str) -> Option<&'static str> {
    let is_unit = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '/');
    let fits = |begin: &str| {
        let rest = name.strip_prefix(begin)?;
        let needs_number = !matches!(begin, "irb" | "vlan");
        (is_unit(rest) && (!needs_number || !rest.is_empty())).then_some(())
    };
    INNER.iter().find(|(begin, _)| fits(begin).is_some()).map(|(_, why)| *why)
}

/// A name that a router gives its interfaces.
pub(super) fn is_junos(name: &str) -> bool {
    is_port(name) || inner(name).is_some()
}

/// What a word is a value of.
fn kind_of(tree: &Tree, id: NodeId) -> Option<&'static Kind> {
    let node = tree.node(id);
    let key = |key: Option<&'static Key>| match key {
        Some(Key::Value(kind)) => Some(kind),
        _ => None,
    };
    match tree.node(node.parent).cursor {
        Cursor::Block(block) => {
            let statement = lookup(block, &node.word)?;
            key(statement.keys.first().filter(|_| statement.name.is_empty()))
        }
        Cursor::Key(statement, index) => key(statement.keys.get(index)),
        Cursor::Value(statement) => match &statement.body {
            Body::Value(kind) | Body::List(kind) => Some(kind),
            _ => None,
        },
        Cursor::Done | Cursor::Unknown => None,
    }
}

impl Import {
    /// Interfaces that need a device, in the order of the text.
    pub fn ports(&self) -> Vec<Port> {
        let tree = &self.tree;
        let Some(all) = tree.find(TOP, "interfaces") else { return Vec::new() };
        let names = tree.node(all).children.iter().filter(|&&id| is_port(&tree.node(id).word));
        names.filter_map(|&id| self.port(id)).collect()
    }

    /// None for what has no packets to route: members of bundles, switch ports.
    fn port(&self, id: NodeId) -> Option<Port> {
        let tree = &self.tree;
        let name = tree.node(id).word.clone();
        if tree.is_inactive(id) {
            return None;
        }
        let value = |at: NodeId, word: &str| {
            let found = tree.find(at, word)?;
            tree.node(found).children.first().map(|&value| tree.node(value).word.clone())
        };
        let mut addresses = Vec::new();
        let mut is_routed = false;
        for unit in tree.find(id, "unit").map(|units| tree.node(units).children.clone()).unwrap_or_default() {
            let Some(families) = tree.find(unit, "family").filter(|_| !tree.node(unit).inactive) else {
                continue;
            };
            for family in ["inet", "inet6"].iter().filter_map(|family| tree.find(families, family)) {
                is_routed = true;
                let found = tree.find(family, "address").map(|all| &tree.node(all).children);
                addresses.extend(found.into_iter().flatten().map(|&address| tree.node(address).word.clone()));
            }
        }
        let zones = self.zones_of(&name);
        let description = value(id, "description");
        (is_routed || !zones.is_empty()).then_some(Port { name, description, addresses, zones })
    }

    fn zones_of(&self, interface: &str) -> Vec<String> {
        let tree = &self.tree;
        let path = ["security", "zones", "security-zone"];
        let Some(zones) = path.iter().try_fold(TOP, |id, word| tree.find(id, word)) else {
            return Vec::new();
        };
        let has = |&&zone: &&NodeId| {
            let members = tree.find(zone, "interfaces").map(|id| &tree.node(id).children);
            members.into_iter().flatten().any(|&member| {
                let word = &tree.node(member).word;
                word.rsplit_once('.').map_or(word.as_str(), |(name, _)| name) == interface
            })
        };
        tree.node(zones).children.iter().filter(has).map(|&zone| tree.node(zone).word.clone()).collect()
    }

    /// Writes names and prefixes as they are written here, and leaves out interfaces that have no device.
    pub(super) fn fit_names(&mut self, devices: &[(String, String)]) {
        let devices: HashMap<&str, &str> =
            devices.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        self.leave_instances();
        self.leave_interfaces(&devices);
        let clean = self.clean_names();
        let mut told = HashSet::new();
        // what was taken over before has Linux's MTUs already
        let is_renamed = devices.iter().any(|(from, to)| from != to);
        let headers = self.headers();
        for id in self.all() {
            let Some(kind) = kind_of(&self.tree, id) else { continue };
            let word = self.tree.node(id).word.clone();
            match kind {
                Kind::Interface => {
                    if let Some(device) = devices.get(word.as_str()).filter(|device| **device != word) {
                        self.fit_mtu(id, &headers);
                        self.tree.reword_if_free(id, (*device).to_owned());
                    } else if word == ALL_INTERFACES && is_renamed && !self.tree.is_inactive(id) {
                        self.fit_mtu(id, &headers);
                    }
                }
                Kind::Unit | Kind::NextHop => {
                    if let Some(unit) = unit_here(&word, &devices) {
                        self.tree.reword_if_free(id, unit);
                    }
                }
                Kind::Prefix | Kind::BookPrefix => self.cut_host_bits(id, &word),
                Kind::Name(_) => {
                    if let Some(name) = clean.get(&word)
                        && self.tree.reword_if_free(id, name.clone())
                        && told.insert(word.clone())
                    {
                        let why = format!("`{word}` is `{name}` here: names are letters, digits and `-_.:/`");
                        self.found(id, Cost::Form, why, false);
                    }
                }
                _ => {}
            }
        }
        self.take_node_groups();
    }

    /// Instances of kinds that there are not here. What they kept apart must not meet in the main one.
    fn leave_instances(&mut self) {
        let Some(all) = self.tree.find(TOP, "routing-instances").filter(|&id| !self.tree.node(id).inactive)
        else {
            return;
        };
        for instance in self.tree.node(all).children.clone() {
            if self.tree.node(instance).inactive {
                continue;
            }
            let tree = &self.tree;
            let kind = tree.find(instance, "instance-type").filter(|&kind| !tree.node(kind).inactive);
            let kind = kind.and_then(|kind| tree.node(kind).children.first()).map(|&id| &tree.node(id).word);
            let why = match (kind.map(String::as_str), unfit_name(&tree.node(instance).word)) {
                (Some("virtual-router" | "vrf"), None) => continue,
                (Some("virtual-router" | "vrf"), Some(why)) => {
                    format!("left out with its units: its name; {why}")
                }
                (Some(kind), _) => {
                    format!("left out with its units: there is no `instance-type {kind}` here")
                }
                (None, _) => "left out with its units: it has no `instance-type`".to_owned(),
            };
            self.tree.set_inactive(instance, true);
            self.found(instance, Cost::Security, why, true);
            self.leave_members(instance);
        }
    }

    /// Units that were members of what was left out.
    pub(super) fn leave_members(&mut self, id: NodeId) {
        let path = self.tree.path(id);
        let (name, members) = match path[..] {
            ["routing-instances", name] => {
                let members = self.tree.find(id, "interface").map(|all| self.tree.node(all).children.clone());
                (name.to_owned(), members.unwrap_or_default())
            }
            ["routing-instances", name, "interface", _] => (name.to_owned(), vec![id]),
            _ => return,
        };
        for member in members {
            let (interface, unit) = match self.tree.node(member).word.rsplit_once('.') {
                Some((interface, unit)) => (interface.to_owned(), unit.to_owned()),
                None => (self.tree.node(member).word.clone(), "0".to_owned()),
            };
            let found = self.tree.at(&["interfaces", &interface, "unit", &unit]);
            if let Some(unit) = found.filter(|&unit| !self.tree.is_inactive(unit)) {
                self.tree.set_inactive(unit, true);
                let why = format!(
                    "left out: routing-instance `{name}` routed it, and in the main one it would meet what was kept apart"
                );
                self.found(unit, Cost::Security, why, true);
            }
        }
    }

    fn leave_interfaces(&mut self, devices: &HashMap<&str, &str>) {
        for id in self.all() {
            let node = self.tree.node(id);
            if !matches!(kind_of(&self.tree, id), Some(Kind::Interface)) || self.tree.is_inactive(id) {
                continue;
            }
            let name = node.word.clone();
            let is_odd_pattern = is_pattern(&name) && name != ALL_INTERFACES;
            let why = match inner(&name) {
                _ if devices.contains_key(name.as_str()) => continue,
                Some(why) => why.to_owned(),
                None if is_odd_pattern => {
                    "left out: the pattern is one of names that interfaces do not have here".to_owned()
                }
                None if is_port(&name) => match self.port(id) {
                    Some(_) => {
                        format!("left out: no device is named for it; `--interfaces {name}=DEVICE` does")
                    }
                    None => "left out: it routes no packets of its own".to_owned(),
                },
                None => continue,
            };
            self.tree.set_inactive(id, true);
            self.found(id, Cost::Traffic, why, true);
        }
    }

    /// Bytes of Ethernet header and tags by the name of an interface, or the pattern of many.
    fn headers(&self) -> Vec<(String, u32)> {
        let tree = &self.tree;
        let interfaces = self
            .all()
            .into_iter()
            .filter(|&id| matches!(kind_of(tree, id), Some(Kind::Interface)) && !tree.is_inactive(id));
        let header = |id: NodeId| {
            let has = |word| tree.find(id, word).is_some_and(|id| !tree.node(id).inactive);
            let length = match (has("flexible-vlan-tagging"), has("vlan-tagging")) {
                (true, _) => 22,
                (false, true) => 18,
                (false, false) => 14,
            };
            (tree.node(id).word.clone(), length)
        };
        interfaces.map(header).collect()
    }

    /// Junos counts the Ethernet header and tags, Linux does not; of many interfaces the longest one fits them all.
    fn fit_mtu(&mut self, interface: NodeId, headers: &[(String, u32)]) {
        let tree = &self.tree;
        let value = tree.find(interface, "mtu").and_then(|mtu| tree.node(mtu).children.first().copied());
        let word = &tree.node(interface).word;
        let is_meant = |name: &str| name == word || name == ALL_INTERFACES || word == ALL_INTERFACES;
        let meant = headers.iter().filter(|(name, _)| is_meant(name));
        let header = meant.map(|(_, length)| *length).max().unwrap_or(14);
        let Some(value) = value else { return };
        let mtu = tree.node(value).word.parse::<u32>().ok().and_then(|mtu| mtu.checked_sub(header));
        if let Some(mtu) = mtu
            && self.tree.reword_if_free(value, mtu.to_string())
        {
            let why = format!(
                "{mtu} here: Junos counts {header} bytes of Ethernet header and tags, Linux does not"
            );
            self.found(value, Cost::Form, why, false);
        }
    }

    fn cut_host_bits(&mut self, id: NodeId, word: &str) {
        let Ok(prefix) = prefix(word) else { return };
        let network = first_address(prefix);
        if network != prefix.addr && self.tree.reword_if_free(id, format!("{network}/{}", prefix.len)) {
            let why = format!("`{word}` has bits beyond its length, which mean nothing");
            self.found(id, Cost::Form, why, false);
        }
    }

    /// Names that cannot be written so, and what they become; different ones stay different.
    fn clean_names(&self) -> HashMap<String, String> {
        let mut words = Vec::new();
        let mut taken = HashSet::new();
        for id in self.all() {
            let word = &self.tree.node(id).word;
            if let Some(kind @ Kind::Name(_)) = kind_of(&self.tree, id) {
                match kind.check(word) {
                    Ok(()) => drop(taken.insert(word.clone())),
                    Err(_) if word.is_empty() || word.starts_with("${") || is_pattern(word) => {}
                    Err(_) => words.push(word.clone()),
                }
            }
        }
        let mut clean = HashMap::new();
        for word in words {
            if clean.contains_key(&word) {
                continue;
            }
            let base = clean_name(&word);
            let numbered = (2..).map(|number: u32| {
                let end = format!("_{number}");
                base.chars().take(MAX_NAME - end.len()).collect::<String>() + &end
            });
            let free = std::iter::once(base.clone()).chain(numbered).find(|name| !taken.contains(name));
            if let Some(free) = free {
                taken.insert(free.clone());
                clean.insert(word, free);
            }
        }
        clean
    }

    fn take_node_groups(&mut self) {
        for id in self.all() {
            let is_node = self.tree.node(id).word.starts_with("${");
            if is_node && self.is_group_of_several(id) && !self.tree.is_inactive(id) {
                self.leave_group(id, "groups of one node of a cluster; copy what you need of them");
            }
        }
    }

    /// A name in `apply-groups` or `apply-groups-except`, beside others.
    pub(super) fn is_group_of_several(&self, id: NodeId) -> bool {
        let parent = self.tree.node(id).parent;
        let is_applied = matches!(self.tree.node(parent).cursor, Cursor::Value(_))
            && matches!(kind_of(&self.tree, id), Some(Kind::Name("group")));
        is_applied && self.tree.node(parent).children.len() > 1
    }

    /// Takes a name out alone: a list cannot have inactive members, and the others' groups must stay in effect.
    pub(super) fn leave_group(&mut self, id: NodeId, why: &str) {
        let what = context(&self.tree, id);
        self.found(id, Cost::Security, format!("`{what}`: {why}"), true);
        self.tree.detach(id);
    }
}

/// In groups, what every interface inherits.
const ALL_INTERFACES: &str = "<*>";

/// Names are at most this long.
pub(super) const MAX_NAME: usize = 63;

pub(super) fn clean_name(word: &str) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '/');
    let name: String = word.chars().take(MAX_NAME).map(|c| if valid(c) { c } else { '_' }).collect();
    match name.strip_prefix('-') {
        Some(rest) => format!("_{rest}"),
        None => name,
    }
}

/// `ge-0/0/0.100` by the names of devices.
fn unit_here(word: &str, devices: &HashMap<&str, &str>) -> Option<String> {
    if let Some(device) = devices.get(word) {
        return Some((*device).to_owned());
    }
    let (name, unit) = word.rsplit_once('.')?;
    devices.get(name).map(|device| format!("{device}.{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_a_router_are_known() {
        for name in ["ge-0/0/0", "xe-1/2/3:0", "reth1", "ae12", "et-0/0/48"] {
            assert!(is_port(name) && is_junos(name), "{name}");
        }
        for name in ["lo0", "st0", "irb", "vlan", "gr-0/0/0", "fxp0", "fab1", "pp0", "lt-0/0/0"] {
            assert!(!is_port(name) && is_junos(name), "{name}");
        }
        for name in
            ["eth0", "trust0", "lo", "ge", "wan0", "em1", "enp1s0", "vlan-a", "stx", "aeb", "ppp0", "st"]
        {
            assert!(!is_junos(name), "{name}");
        }
    }
}
