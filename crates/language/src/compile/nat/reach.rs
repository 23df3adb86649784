//! Whether packets for the addresses of pools and published prefixes get here: somebody must answer for them.

use std::net::IpAddr;

use super::pools::WrittenPool;
use super::{Names, Published, Scope, addresses, family, range_text};
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
    answered: Ranges,
    interfaces: &'a [Interface],
}

impl<'a> Reach<'a> {
    pub fn new(names: &Names<'a>, proxies: &[Proxy]) -> Self {
        let mut answered = Ranges::default();
        for (_, prefix) in subnets(names.interfaces) {
            answered.add(&Ranges::between(prefix.addr, prefix.addr));
        }
        for proxy in proxies {
            answered.add(&Ranges::between(proxy.low, proxy.high));
        }
        // What is not forwarded any further was routed here on purpose.
        for route in names.routes {
            if matches!(route.next_hop, RouteTarget::Discard | RouteTarget::Reject)
                && route.destination.len > 0
            {
                let prefix = route.destination;
                answered.add(&Ranges::between(first_address(prefix), last_address(prefix)));
            }
        }
        answered.normalise();
        Reach { answered, interfaces: names.interfaces }
    }

    pub fn pool(&self, pool: &WrittenPool, report: &mut Report) {
        for (low, high, view) in &pool.ranges {
            if !self.answered.covers(*low, *high) {
                self.refuse(*low, *high, *view, &format!("of pool `{}` ", pool.pool.name), report);
            }
        }
    }

    /// A published address in a subnet that its packets come from must be answered for; others are routed here.
    pub fn published(&self, published: &Published, names: &Names, report: &mut Report) {
        let from = |unit: &str| match &published.from {
            Ends::Units(units) => units.iter().any(|name| name == unit),
            Ends::Zones(zones) => {
                let mut zones = names.zones.iter().filter(|zone| zones.contains(&zone.name));
                zones.any(|zone| zone.interfaces.iter().any(|member| member.unit == unit))
            }
            Ends::RoutingInstance => true,
        };
        let mut inside =
            subnets(self.interfaces).filter(|(_, prefix)| within(*prefix, published.low, published.high));
        if inside.any(|(unit, _)| from(&unit)) && !self.answered.covers(published.low, published.high) {
            self.refuse(published.low, published.high, published.view, "", report);
        }
    }

    fn refuse(&self, low: IpAddr, high: IpAddr, view: View, whose: &str, report: &mut Report) {
        let text = range_text(low, high);
        let (proxy, what) =
            if low.is_ipv4() { ("proxy-arp", "ARP") } else { ("proxy-ndp", "neighbour solicitations") };
        let subnet = subnets(self.interfaces).find(|(_, prefix)| within(*prefix, low, high));
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
                format!("`{text}` {whose}is no address of an interface and stands in no `{proxy}`"),
                format!(
                    "add `{proxy}`, or, where neighbours route it here, say so with `routing-options ... route PREFIX discard`"
                ),
            ),
        };
        report.error_help(&view.location(), message, help);
    }
}

fn subnets(interfaces: &[Interface]) -> impl Iterator<Item = (String, Prefix)> {
    interfaces.iter().flat_map(|interface| {
        interface.units.iter().flat_map(move |unit| {
            let name = format!("{}.{}", interface.name, unit.number);
            unit.inet.iter().chain(&unit.inet6).map(move |prefix| (name.clone(), *prefix))
        })
    })
}

fn within(prefix: Prefix, low: IpAddr, high: IpAddr) -> bool {
    low.is_ipv4() == prefix.addr.is_ipv4() && first_address(prefix) <= low && high <= last_address(prefix)
}
