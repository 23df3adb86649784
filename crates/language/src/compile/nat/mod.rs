//! `security nat`: pools, rules and proxied addresses, and whether they can work together.

mod matching;
mod persistent;
mod pools;
mod reach;
mod rules;
mod statics;

use std::collections::HashSet;
use std::net::IpAddr;

use super::address_book::AddressBooks;
use super::applications::Applications;
use super::instances::Instances;
use super::undefined;
use super::view::View;
use crate::config::{Interface, Prefix, RoutingInstance, StaticRoute, Zone};
use crate::error::Report;
use crate::nat::{DestinationNat, Ends, MAX_NAT_RULES, Nat, SourceNat};
use crate::schema::kind::{book_prefix, first_address, last_address, unit};

/// As Junos calls the main instance.
const MAIN: &str = "default";

/// What NAT may refer to.
pub(super) struct Names<'a> {
    pub instances: &'a Instances<'a>,
    pub instance_routes: &'a [RoutingInstance],
    pub interfaces: &'a [Interface],
    pub zones: &'a [Zone],
    pub addresses: &'a AddressBooks<'a>,
    pub applications: &'a Applications<'a>,
    pub routes: &'a [StaticRoute],
}

impl Names<'_> {
    /// The instance that a unit is in.
    fn instance_of(&self, unit: &str) -> &str {
        self.instances.of(unit).unwrap_or(MAIN)
    }

    fn has_instance(&self, name: &str) -> bool {
        name == MAIN || self.instances.names().contains(&name)
    }

    /// The first of these ends that is in another instance, and in which.
    fn elsewhere(&self, ends: &Ends, instance: &str) -> Option<(String, &str)> {
        let unit = |name: &str| self.zones.iter().find(|zone| zone.name == name)?.interfaces.first();
        let all: Vec<(String, &str)> = match ends {
            Ends::Units(units) => {
                units.iter().map(|unit| (format!("`{unit}`"), self.instance_of(unit))).collect()
            }
            // all units of a zone are in one instance
            Ends::Zones(zones) => zones
                .iter()
                .filter_map(|zone| Some((format!("zone `{zone}`"), self.instance_of(&unit(zone)?.unit))))
                .collect(),
            Ends::RoutingInstances { names, .. } => {
                let known = self.instances.names().into_iter().chain([MAIN]);
                known
                    .filter(|known| names.iter().any(|name| name == known))
                    .map(|name| (format!("routing-instance `{name}`"), name))
                    .collect()
            }
        };
        all.into_iter().find(|(_, other)| *other != instance)
    }
}

pub(super) fn compile(top: View, names: &Names, report: &mut Report) -> Nat {
    let Some(view) = top.path(&["security", "nat"]) else { return Nat::default() };
    let inactive = Inactive {
        instances: top.inactive_names(&["routing-instances"]).collect(),
        zones: top.inactive_names(&["security", "zones", "security-zone"]).collect(),
        source_pools: view.inactive_names(&["source", "pool"]).collect(),
        destination_pools: view.inactive_names(&["destination", "pool"]).collect(),
    };
    let mut scope = Scope { names, inactive, report };
    let proxies = reach::proxies(view, &mut scope);
    let (statics, static_places) = statics::compile(view, &mut scope);
    let source_pools = pools::source(view, &mut scope);
    let destination_pools = pools::destination(view, &mut scope);
    let lowest_ipv6_mtu = view.value(&["static", "lowest-ipv6-mtu"]).and_then(View::number);
    let mut nat = Nat { statics, lowest_ipv6_mtu, proxies, ..Nat::default() };
    let source_sets = rules::source(view, &source_pools, nat.has_nat64(), &mut scope);
    let (destination_sets, destination_places) = rules::destination(view, &destination_pools, &mut scope);
    let reach = reach::Reach::new(names, &nat.proxies);
    source_pools.iter().for_each(|pool| reach.pool(pool, scope.report));
    for published in static_places.iter().chain(&destination_places) {
        reach.published(published, scope.report);
    }
    nat.source = SourceNat {
        pools: source_pools.into_iter().map(|pool| pool.pool).collect(),
        rule_sets: source_sets,
        address_persistent: view.path(&["source", "address-persistent"]).is_some(),
        sequential_ports: view.path(&["source", "port-randomization", "disable"]).is_some(),
        interface_ports: pools::interface_ports(view, scope.report),
        max_bindings: view.value(&["source", "max-bindings"]).and_then(View::number),
    };
    nat.destination = DestinationNat {
        pools: destination_pools.into_iter().map(|(pool, _)| pool).collect(),
        rule_sets: destination_sets,
    };
    rules_fit(view, &nat, scope.report);
    nat
}

fn rules_fit(view: View, nat: &Nat, report: &mut Report) {
    let count = nat.source.rule_sets.iter().map(|set| set.rules.len()).sum::<usize>()
        + nat.destination.rule_sets.iter().map(|set| set.rules.len()).sum::<usize>()
        + nat.statics.iter().map(|set| set.rules.len()).sum::<usize>();
    if count > MAX_NAT_RULES {
        let message = format!("{count} NAT rules, at most {MAX_NAT_RULES} fit");
        report.error_help(&view.location(), message, "join rules whose action is the same");
    }
}

/// Names that exist, but are inactive.
struct Inactive<'a> {
    instances: HashSet<&'a str>,
    zones: HashSet<&'a str>,
    source_pools: HashSet<&'a str>,
    destination_pools: HashSet<&'a str>,
}

/// What every part needs.
struct Scope<'a, 'n> {
    names: &'n Names<'n>,
    inactive: Inactive<'a>,
    report: &'n mut Report,
}

/// What a rule-set publishes: where its packets come from, their addresses, and where that is written.
struct Published<'a> {
    from: Ends,
    low: IpAddr,
    high: IpAddr,
    view: View<'a>,
}

impl Scope<'_, '_> {
    /// `from` or `to` of a rule-set.
    fn ends(&mut self, set: View, side: &str) -> Option<Ends> {
        let view = set.child(side);
        let Some(kind) = view.and_then(|view| view.children().next()) else {
            let message = format!("`{}` has no `{side}`", set.context());
            self.report.error_help(&set.location(), message, format!("add one, such as `{side} zone NAME`"));
            return None;
        };
        for other in view.into_iter().flat_map(View::children).skip(1) {
            let message =
                format!("`{}` has both `{}` and `{}`", kind.above().context(), kind.word(), other.word());
            self.report.error_help(&other.location(), message, "keep one kind");
        }
        match kind.word() {
            "interface" => Some(Ends::Units(kind.children().filter_map(|name| self.unit(name)).collect())),
            "zone" => Some(Ends::Zones(kind.children().map(|name| self.zone(name)).collect())),
            _ => {
                let names: Vec<String> = kind.children().map(|name| self.instance(name)).collect();
                let members = self.names.zones.iter().flat_map(|zone| &zone.interfaces);
                let units = members.map(|member| &member.unit).filter(|unit| {
                    let of = self.names.instance_of(unit);
                    names.iter().any(|name| name == of)
                });
                Some(Ends::RoutingInstances { units: units.cloned().collect(), names })
            }
        }
    }

    pub(super) fn instance(&mut self, name: View) -> String {
        if !self.names.has_instance(name.word()) {
            let known = self.names.instances.names().into_iter().chain([MAIN]);
            undefined(self.report, name, "routing-instance", known, &self.inactive.instances);
        }
        name.word().to_owned()
    }

    fn zone(&mut self, name: View) -> String {
        let zones = self.names.zones;
        if !zones.iter().any(|zone| zone.name == name.word()) {
            let known = zones.iter().map(|zone| zone.name.as_str());
            undefined(self.report, name, "zone", known, &self.inactive.zones);
        }
        name.word().to_owned()
    }

    /// A unit, which must belong to a zone.
    fn unit(&mut self, name: View) -> Option<String> {
        let (interface, number) = unit(name.word()).ok()?;
        let full = format!("{interface}.{number}");
        let known = self.names.zones.iter().flat_map(|zone| &zone.interfaces).map(|i| i.unit.as_str());
        if !known.clone().any(|unit| unit == full) {
            let exists = self
                .names
                .interfaces
                .iter()
                .any(|i| i.name == interface && i.units.iter().any(|unit| unit.number == number));
            if exists {
                let message = format!("`{full}` in `{}` belongs to no zone", name.above().context());
                let help = format!("add `security zones security-zone ZONE interfaces {full}`");
                self.report.error_help(&name.location(), message, help);
            } else {
                undefined(self.report, name, "interface", known, &HashSet::new());
            }
        }
        Some(full)
    }
}

/// First and last address of an entry: a prefix, or an address and the last one behind `to`.
fn addresses(entry: View, report: &mut Report) -> Option<(IpAddr, IpAddr)> {
    let low = book_prefix(entry.word()).ok()?;
    let Some(last) = entry.value(&["to"]) else {
        return Some((first_address(low), last_address(low)));
    };
    let high = book_prefix(last.word()).ok()?;
    for (prefix, view) in [(low, entry), (high, last)] {
        if !is_host(prefix) {
            let message = format!("`{}` is more than one address", view.word());
            report.error_help(&view.location(), message, "a range goes from address to address");
            return None;
        }
    }
    if low.addr.is_ipv4() != high.addr.is_ipv4() {
        let message = format!("`{}` and `{}` are of different address families", low.addr, high.addr);
        report.error(&last.location(), message);
        return None;
    }
    if low.addr > high.addr {
        let message = format!("the range `{} to {}` runs backwards", low.addr, high.addr);
        let help = format!("did you mean `{} to {}`?", high.addr, low.addr);
        report.error_help(&last.location(), message, help);
        return None;
    }
    Some((low.addr, high.addr))
}

fn is_host(prefix: Prefix) -> bool {
    prefix.len == if prefix.addr.is_ipv4() { 32 } else { 128 }
}

/// A port, or a range with the last one behind `to`.
fn port_range(entry: View, report: &mut Report) -> Option<(u16, u16)> {
    let low = entry.number::<u16>()?;
    let Some(last) = entry.value(&["to"]) else { return Some((low, low)) };
    let high = last.number::<u16>()?;
    if low > high {
        let message = format!("the range `{low} to {high}` runs backwards");
        report.error_help(&last.location(), message, format!("did you mean `{high} to {low}`?"));
        return None;
    }
    Some((low, high))
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// `10.0.0.1`, or `10.0.0.1 to 10.0.0.9`
fn range_text(low: IpAddr, high: IpAddr) -> String {
    if low == high { low.to_string() } else { format!("{low} to {high}") }
}
