//! `system services dhcp-local-server` and its pools, of both families.

mod hosts;
mod options;

use std::collections::HashSet;
use std::net::IpAddr;

use self::hosts::hosts;
use self::options::{ROUTER, options};
use super::router_advertisement::known_unit;
use super::undefined;
use super::view::View;
use crate::config::{Interface, Prefix};
use crate::dhcp_server::{Delegated, DhcpServer, DhcpSubnet, Family, LEASE_S};
use crate::error::Report;
use crate::schema::kind::{address, first_address, last_address, prefix};
use crate::values::overlap;

/// Of one pool.
const MAX_RANGES: usize = 64;
const MAX_HOSTS: usize = 4096;

/// What a family calls things.
struct Words {
    family: &'static str,
    inet: &'static str,
    network: &'static str,
    /// Bits of the longest network that has addresses to lend.
    longest: u8,
    groups: &'static [&'static str],
}

fn words(family: Family) -> Words {
    match family {
        Family::Inet => Words {
            family: "IPv4",
            inet: "inet",
            network: "network",
            longest: 30,
            groups: &["system", "services", "dhcp-local-server", "group"],
        },
        Family::Inet6 => Words {
            family: "IPv6",
            inet: "inet6",
            network: "prefix",
            longest: 126,
            groups: &["system", "services", "dhcp-local-server", "dhcpv6", "group"],
        },
    }
}

struct Pool<'a> {
    view: View<'a>,
    network: Prefix,
    holds: Holds,
}

/// A pool has addresses or prefixes.
enum Holds {
    Addresses(DhcpSubnet),
    Prefixes(Delegated),
}

/// What all units are looked at with.
struct Around<'a> {
    family: Family,
    interfaces: &'a [Interface],
    pools: Vec<Pool<'a>>,
}

pub(super) fn compile(top: View, interfaces: &[Interface], report: &mut Report) -> DhcpServer {
    let subnets = Family::ALL.map(|family| {
        let entries = top.entries(&["access", "address-assignment", "pool"]);
        let pools = entries.filter_map(|view| pool(view, family, report)).collect();
        let around = Around { family, interfaces, pools };
        around.are_apart(report);
        around.subnets(top, report)
    });
    DhcpServer { subnets: subnets.into_iter().flatten().collect() }
}

impl<'a> Around<'a> {
    fn are_apart(&self, report: &mut Report) {
        for (index, pool) in self.pools.iter().enumerate() {
            let before = &self.pools[..index];
            if let Some(other) = before.iter().find(|other| overlap(&other.network, &pool.network)) {
                let message =
                    format!("pools `{}` and `{}` are of one network", other.view.word(), pool.view.word());
                report.error_help(&pool.view.location(), message, "merge them: a pool takes several ranges");
            }
            let mut units = self.interfaces.iter().flat_map(|own| own.units.iter().map(move |u| (own, u)));
            let has = |own: &Prefix| overlap(own, &pool.network);
            let taken = units.find(|(_, unit)| unit.inet6.iter().any(has));
            if let (Holds::Prefixes(_), Some((interface, unit))) = (&pool.holds, taken) {
                let message = format!(
                    "pool `{}` delegates prefixes of a link that is here, `{}.{}`",
                    pool.view.word(),
                    interface.name,
                    unit.number
                );
                report.error_help(&pool.view.location(), message, "delegate a prefix that no unit has");
            }
        }
    }

    fn subnets(&self, top: View<'a>, report: &mut Report) -> Vec<DhcpSubnet> {
        let groups = words(self.family).groups;
        let mut found: Vec<DhcpSubnet> = vec![];
        for group in top.entries(groups) {
            for view in group.entries(&["interface"]) {
                let Some(unit) = known_unit(view, self.interfaces, report) else { continue };
                if found.iter().any(|other| other.unit == unit) {
                    let message = format!("`{unit}` is served twice");
                    report.error_help(&view.location(), message, "leave one out");
                    continue;
                }
                let Some((subnet, own)) = self.served(view, &unit, report) else { continue };
                let mut subnet = of_unit(subnet, unit, own);
                if self.family == Family::Inet6 {
                    // from the nearest
                    let levels = [Some(view), Some(group), top.path(&groups[..groups.len() - 1])];
                    let overrides: Vec<View> =
                        levels.into_iter().flatten().filter_map(|level| level.child("overrides")).collect();
                    subnet.rapid_commit = overrides.iter().any(|own| own.has("rapid-commit"));
                    let pool = overrides.iter().find_map(|own| own.value(&["delegated-pool"]));
                    subnet.delegated = pool.and_then(|pool| self.delegated(pool, &found, report));
                }
                found.push(subnet);
            }
        }
        found
    }

    /// The pool of a unit, by the first of its addresses that has one.
    fn served(&self, view: View, unit: &str, report: &mut Report) -> Option<(&DhcpSubnet, IpAddr)> {
        let (name, number) = unit.rsplit_once('.')?;
        let interface = self.interfaces.iter().find(|own| own.name == name)?;
        let own = interface.units.iter().find(|own| own.number.to_string() == number)?;
        let (addresses, is_client) = match self.family {
            Family::Inet => (&own.inet, own.dhcp.is_some()),
            Family::Inet6 => (&own.inet6, own.dhcpv6.is_some()),
        };
        if is_client {
            let message = format!("`{unit}` is itself a client of what it shall serve");
            let help = "serve another unit, one with an address of its own";
            report.error_help(&view.location(), message, help);
            return None;
        }
        let mut fitting = addresses.iter().filter_map(|own| {
            let network = Prefix { addr: first_address(*own), len: own.len };
            self.pools.iter().find_map(|pool| match &pool.holds {
                Holds::Addresses(subnet) if pool.network == network => Some((subnet, own.addr)),
                _ => None,
            })
        });
        let first = fitting.next();
        if first.is_none() {
            let Words { family, inet, network, .. } = words(self.family);
            let message = format!("no pool has the {network} of `{unit}`");
            let help = match addresses.first() {
                None => format!("give `interfaces {name} unit {number}` an {family} address"),
                Some(own) => format!(
                    "add `access address-assignment pool NAME family {inet} {network} {}/{}`",
                    first_address(*own),
                    own.len
                ),
            };
            report.error_help(&view.location(), message, help);
        } else if first.is_some_and(|(subnet, _)| fitting.any(|(other, _)| other.network != subnet.network)) {
            let message = format!("two pools have networks of `{unit}`");
            report.error_help(&view.location(), message, "leave the network of one address to its hosts");
        }
        let own = self.interfaces.iter().flat_map(|own| &own.units).flat_map(|unit| unit.addresses());
        let own: HashSet<IpAddr> = own.map(|own| own.addr).collect();
        let hosts = first.iter().flat_map(|(subnet, _)| &subnet.hosts);
        for host in hosts.filter(|host| own.contains(&host.address)) {
            let message = format!(
                "host `{}` of the pool of `{unit}` has {}, an address of this gateway",
                host.name, host.address
            );
            report.error_help(&view.location(), message, "reserve another address");
        }
        first
    }

    /// Two servers of one set of prefixes would know nothing of each other's clients.
    fn delegated(&self, view: View, found: &[DhcpSubnet], report: &mut Report) -> Option<Delegated> {
        let name = view.word();
        let Some(pool) = self.pools.iter().find(|pool| pool.view.word() == name) else {
            undefined(report, view, "pool", self.pools.iter().map(|pool| pool.view.word()), &HashSet::new());
            return None;
        };
        let Holds::Prefixes(delegated) = &pool.holds else {
            let message = format!("pool `{name}` has no prefixes to delegate");
            report.error_help(&view.location(), message, "give it `range NAME prefix-length 56`");
            return None;
        };
        let twin = |own: &&DhcpSubnet| own.delegated.as_ref().is_some_and(|other| other.pool == name);
        if let Some(other) = found.iter().find(twin) {
            let message = format!("pool `{name}` delegates to clients of `{}` already", other.unit);
            report.error_help(&view.location(), message, "make another pool for this unit");
            return None;
        }
        Some(delegated.clone())
    }
}

fn of_unit(subnet: &DhcpSubnet, unit: String, own: IpAddr) -> DhcpSubnet {
    let mut subnet = DhcpSubnet { unit, own, ..subnet.clone() };
    if let IpAddr::V4(own) = own
        && !subnet.options.iter().any(|(code, _)| *code == ROUTER)
    {
        subnet.options.push((ROUTER, own.octets().to_vec()));
    }
    subnet.options.sort();
    subnet
}

fn pool<'a>(view: View<'a>, family: Family, report: &mut Report) -> Option<Pool<'a>> {
    let words = words(family);
    let inet = view.path(&["family", words.inet])?;
    let Some(network) = inet.value(&[words.network]) else {
        let message = format!("pool `{}` has no `{}`", view.word(), words.network);
        let help = match family {
            Family::Inet => "add it: `network 192.0.2.0/24`",
            Family::Inet6 => "add it: `prefix 2001:db8:0:1::/64`",
        };
        report.error_help(&inet.location(), message, help);
        return None;
    };
    let network = lent_network(view, network, family, report)?;
    if let Some(range) = inet.entries(&["range"]).find(|range| range.has("prefix-length")) {
        let delegated = pieces(view, inet, range, network, report)?;
        return Some(Pool { view, network, holds: Holds::Prefixes(delegated) });
    }
    let attributes = inet.child("dhcp-attributes");
    let (lease_s, preferred_s) = lifetimes(attributes, report);
    let subnet = DhcpSubnet {
        unit: String::new(),
        pool: view.word().to_owned(),
        own: network.addr,
        network,
        ranges: ranges(inet, network, report),
        hosts: hosts(inet, network, report),
        lease_s,
        preferred_s,
        server_identifier: attributes
            .and_then(|own| own.value(&["server-identifier"]))
            .and_then(|own| of_its_family(own, family, report))
            .and_then(|own| match own {
                IpAddr::V4(own) => Some(own),
                IpAddr::V6(_) => None,
            }),
        options: attributes.map(|own| options(own, family, report)).unwrap_or_default(),
        rapid_commit: false,
        delegated: None,
    };
    Some(Pool { view, network, holds: Holds::Addresses(subnet) })
}

/// One whose addresses hosts can have.
fn lent_network(view: View, network: View, family: Family, report: &mut Report) -> Option<Prefix> {
    let words = words(family);
    let found = prefix(network.word()).ok()?;
    let is_global = match found.addr {
        IpAddr::V4(_) => true,
        IpAddr::V6(addr) => !addr.is_unicast_link_local() && !addr.is_multicast() && !addr.is_unspecified(),
    };
    if Family::of(found.addr) == family && is_global && found.len <= words.longest {
        return Some(found);
    }
    let Words { family, network: what, longest, .. } = words;
    let message =
        format!("{what} `{}` of pool `{}` has no {family} addresses to lend", network.word(), view.word());
    let help = format!("write an {family} {what} of at most {longest} bits");
    report.error_help(&network.location(), message, help);
    None
}

/// A pool that is delegated in pieces holds nothing else: its clients are told what the pool of their unit says.
fn pieces(view: View, inet: View, range: View, prefix: Prefix, report: &mut Report) -> Option<Delegated> {
    let beside = inet.entries(&["range"]).filter(|other| other.word() != range.word());
    let within = ["low", "high"].into_iter().filter_map(|end| range.child(end));
    let other = ["host", "dhcp-attributes"].into_iter().filter_map(|name| inet.child(name));
    for extra in beside.chain(within).chain(other) {
        let message = format!("`{}` beside prefixes that pool `{}` delegates", extra.word(), view.word());
        let help = "move it into the pool with the unit's addresses, or take it away";
        report.error_help(&extra.location(), message, help);
    }
    let length = range.value(&["prefix-length"])?;
    let bits: u8 = length.number()?;
    if bits < prefix.len {
        let message = format!("prefixes of /{bits} do not fit into {}/{}", prefix.addr, prefix.len);
        report.error_help(
            &length.location(),
            message,
            "choose a longer `prefix-length`, or a shorter `prefix`",
        );
        return None;
    }
    Some(Delegated { pool: view.word().to_owned(), prefix, length: bits })
}

/// Seconds that something is lent for, and that it is preferred.
fn lifetimes(attributes: Option<View>, report: &mut Report) -> (u32, u32) {
    let value = |name: &str| attributes.and_then(|own| own.value(&[name]));
    let (valid, lease) = (value("valid-lifetime"), value("maximum-lease-time"));
    if let (Some(_), Some(lease)) = (valid, lease) {
        let message = "`maximum-lease-time` beside `valid-lifetime`, which means the same";
        report.error_help(&lease.location(), message, "keep one of them");
    }
    let lease_s: u32 = valid.or(lease).and_then(View::number).unwrap_or(LEASE_S);
    let five_eighths = (u64::from(lease_s) * 5 / 8) as u32;
    let Some(preferred) = value("preferred-lifetime") else { return (lease_s, five_eighths) };
    let preferred_s = preferred.number().unwrap_or(five_eighths);
    if preferred_s > lease_s {
        let message = format!("preferred for {preferred_s} s, and valid for {lease_s} s");
        report.error_help(&preferred.location(), message, "let it end no later than `valid-lifetime`");
    }
    (lease_s, preferred_s)
}

fn bounded<'a>(view: View<'a>, kind: &str, most: usize, report: &mut Report) -> Vec<View<'a>> {
    let all: Vec<View> = view.entries(&[kind]).collect();
    if let Some(beyond) = all.get(most) {
        report.error(&beyond.location(), format!("more than {most} of `{kind}` in one pool"));
    }
    all
}

/// An address that the protocol can tell.
fn of_its_family(view: View, family: Family, report: &mut Report) -> Option<IpAddr> {
    let found = address(view.word()).ok()?;
    if Family::of(found) == family {
        return Some(found);
    }
    let (is, help) = match family {
        Family::Inet => ("IPv6", "DHCP of IPv4 tells IPv4 addresses"),
        Family::Inet6 => ("IPv4", "DHCPv6 tells IPv6 addresses"),
    };
    report.error_help(&view.location(), format!("`{}` is an {is} address", view.word()), help);
    None
}

/// One that a host of the network can have. In IPv6 only the first is no host's: it is any router's (RFC 4291 2.6.1).
fn lendable(view: View, network: Prefix, report: &mut Report) -> Option<IpAddr> {
    let found = of_its_family(view, Family::of(network.addr), report)?;
    let (first, last) = (first_address(network), last_address(network));
    if found <= first || found > last || found == last && last.is_ipv4() {
        let message = format!("`{found}` is no address of a host in {}/{}", network.addr, network.len);
        let help = format!("take one between {first} and {last}");
        report.error_help(&view.location(), message, help);
        return None;
    }
    Some(found)
}

fn ranges(inet: View, network: Prefix, report: &mut Report) -> Vec<(IpAddr, IpAddr)> {
    let ranges: Vec<_> = bounded(inet, "range", MAX_RANGES, report)
        .into_iter()
        .filter_map(|entry| Some((entry, range(entry, network, report)?)))
        .collect();
    for (index, (entry, own)) in ranges.iter().enumerate() {
        if let Some((other, _)) =
            ranges[..index].iter().find(|(_, other)| own.0 <= other.1 && other.0 <= own.1)
        {
            let message =
                format!("ranges `{}` and `{}` have addresses in common", other.word(), entry.word());
            report.error_help(&entry.location(), message, "let them end before each other");
        }
    }
    ranges.into_iter().map(|(_, range)| range).collect()
}

fn range(view: View, network: Prefix, report: &mut Report) -> Option<(IpAddr, IpAddr)> {
    let (Some(low), Some(high)) = (view.value(&["low"]), view.value(&["high"])) else {
        let message = format!("range `{}` lacks `low` or `high`", view.word());
        report.error_help(&view.location(), message, "add both: its first and its last address");
        return None;
    };
    let (first, last) = (lendable(low, network, report), lendable(high, network, report));
    let (first, last) = (first?, last?);
    if first > last {
        let message = format!("range `{}` begins at {first}, behind its end {last}", view.word());
        report.error_help(&low.location(), message, "exchange `low` and `high`");
        return None;
    }
    Some((first, last))
}

fn hex(word: &str) -> Option<Vec<u8>> {
    let digits = word.strip_prefix("0x").unwrap_or(word).as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(pair).collect()
}
