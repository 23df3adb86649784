//! Whether packets for the addresses of pools and published prefixes get here: somebody must answer for them.

use std::collections::HashMap;
use std::net::IpAddr;

use super::pools::WrittenPool;
use super::{MAIN, Names, Published, Scope, addresses, family, range_text};
use crate::compile::view::View;
use crate::config::{Interface, Prefix, Ranges, RouteTarget};
use crate::error::Report;
use crate::nat::{Ends, MAX_NAT_PROXIED, Proxy, count};
use crate::schema::kind::{first_address, last_address};

/// `proxy-arp` and `proxy-ndp`
pub(super) fn proxies(nat: View, scope: &mut Scope) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    let mut total = 0u64;
    for (block, four) in [("proxy-arp", true), ("proxy-ndp", false)] {
        for interface in nat.entries(&[block, "interface"]) {
            let Some(unit) = scope.unit(interface) else { continue };
            for entry in interface.entries(&["address"]) {
                let Some((low, high)) = addresses(entry, scope.report) else { continue };
                if low.is_ipv4() != four {
                    let right = if four { "proxy-ndp" } else { "proxy-arp" };
                    let message = format!("{} address `{}` in `{block}`", family(low), entry.word());
                    scope.report.error_help(&entry.location(), message, format!("write it under `{right}`"));
                    continue;
                }
                total = total.saturating_add(count(low, high));
                if total > MAX_NAT_PROXIED {
                    let message =
                        format!("more than {MAX_NAT_PROXIED} addresses of `proxy-arp` and `proxy-ndp`");
                    let help = "have the neighbouring router route the prefix to this host instead";
                    scope.report.error_help(&entry.location(), message, help);
                    return proxies;
                }
                proxies.push(Proxy { unit: unit.clone(), low, high });
            }
            if interface.path(&["address"]).is_none() {
                let message = format!("`{}` has no address", interface.context());
                scope.report.error_help(&interface.location(), message, "add one, or remove the interface");
            }
        }
    }
    proxies
}

/// Addresses that packets get here for.
pub(super) struct Reach<'a> {
    /// By routing instance; None = the main one.
    answered: HashMap<Option<&'a str>, Ranges>,
    names: &'a Names<'a>,
}

impl<'a> Reach<'a> {
    pub fn new(names: &'a Names<'a>, proxies: &[Proxy]) -> Self {
        let mut answered: HashMap<Option<&str>, Ranges> = HashMap::new();
        let mut add = |instance, low, high| {
            answered.entry(instance).or_default().add(&Ranges::between(low, high));
        };
        for (unit, prefix) in subnets(names.interfaces) {
            add(names.instances.of(&unit), prefix.addr, prefix.addr);
        }
        for proxy in proxies {
            add(names.instances.of(&proxy.unit), proxy.low, proxy.high);
        }
        let instances =
            names.instance_routes.iter().map(|own| (Some(own.name.as_str()), &own.static_routes[..]));
        for (instance, routes) in instances.chain([(None, names.routes)]) {
            // What is not forwarded any further was routed here on purpose.
            let kept = routes.iter().filter(|route| {
                matches!(route.next_hop, RouteTarget::Discard | RouteTarget::Reject)
                    && route.destination.len > 0
            });
            for prefix in kept.map(|route| route.destination) {
                add(instance, first_address(prefix), last_address(prefix));
            }
        }
        answered.values_mut().for_each(Ranges::normalise);
        Reach { answered, names }
    }

    pub fn pool(&self, pool: &WrittenPool, report: &mut Report) {
        let is_there = |instance: &str| pool.instance().is_none_or(|own| own == instance);
        let answered = self.answered.iter().filter(|(of, _)| is_there(of.unwrap_or(MAIN)));
        let answered: Vec<&Ranges> = answered.map(|(_, ranges)| ranges).collect();
        let whose = format!("of pool `{}` ", pool.pool.name);
        for (low, high, view) in &pool.ranges {
            if !answered.iter().any(|answered| answered.covers(*low, *high)) {
                let mut subnets = subnets(self.names.interfaces);
                let subnet = subnets.find(|(unit, prefix)| {
                    within(*prefix, *low, *high) && is_there(self.names.instance_of(unit))
                });
                refuse((*low, *high), subnet, *view, (&whose, pool.instance()), report);
            }
        }
    }

    /// A published address in a subnet that its packets come from must be answered for; others are routed here.
    pub fn published(&self, published: &Published, report: &mut Report) {
        let from = |unit: &str| match &published.from {
            Ends::Units(units) | Ends::RoutingInstances { units, .. } => {
                units.iter().any(|name| name == unit)
            }
            Ends::Zones(zones) => {
                let mut zones = self.names.zones.iter().filter(|zone| zones.contains(&zone.name));
                zones.any(|zone| zone.interfaces.iter().any(|member| member.unit == unit))
            }
        };
        let (low, high) = (published.low, published.high);
        let is_answered = |unit: &str| {
            let answered = self.answered.get(&self.names.instances.of(unit));
            answered.is_some_and(|answered| answered.covers(low, high))
        };
        let mut inside = subnets(self.names.interfaces).filter(|(_, prefix)| within(*prefix, low, high));
        let silent = inside.find(|(unit, _)| from(unit) && !is_answered(unit));
        if silent.is_some() {
            refuse((low, high), silent, published.view, ("", None), report);
        }
    }
}

fn refuse(
    (low, high): (IpAddr, IpAddr),
    subnet: Option<(String, Prefix)>,
    view: View,
    (whose, instance): (&str, Option<&str>),
    report: &mut Report,
) {
    let text = range_text(low, high);
    let (proxy, what) =
        if low.is_ipv4() { ("proxy-arp", "ARP") } else { ("proxy-ndp", "neighbour solicitations") };
    let (message, help) = match subnet {
        Some((unit, prefix)) => (
            format!(
                "nobody answers {what} for `{text}` {whose}in {}/{} of `{unit}`",
                first_address(prefix),
                prefix.len
            ),
            format!("add `security nat {proxy} interface {unit} address {text}`"),
        ),
        None => (
            format!(
                "`{text}` {whose}is no address of an interface and stands in no `{proxy}`{}",
                place(instance)
            ),
            format!(
                "add `{proxy}`, or, where neighbours route it here, say so with `{}routing-options ... route PREFIX discard`",
                instance
                    .filter(|name| *name != MAIN)
                    .map_or(String::new(), |name| format!("routing-instances {name} ")),
            ),
        ),
    };
    report.error_help(&view.location(), message, help);
}

fn place(instance: Option<&str>) -> String {
    instance.map_or(String::new(), |name| format!(" of routing-instance `{name}`"))
}

fn subnets(interfaces: &[Interface]) -> impl Iterator<Item = (String, Prefix)> {
    interfaces.iter().flat_map(|interface| {
        interface.units.iter().flat_map(move |unit| {
            let name = format!("{}.{}", interface.name, unit.number);
            unit.addresses().map(move |prefix| (name.clone(), *prefix))
        })
    })
}

fn within(prefix: Prefix, low: IpAddr, high: IpAddr) -> bool {
    low.is_ipv4() == prefix.addr.is_ipv4() && first_address(prefix) <= low && high <= last_address(prefix)
}
