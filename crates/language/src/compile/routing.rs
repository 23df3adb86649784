//! `routing-options` of the main instance and of others: static routes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use super::instances::{Instances, Subnets, table_name};
use super::undefined;
use super::view::View;
use crate::config::{Interface, NextHop, Prefix, RouteTarget, STATIC_PREFERENCE, StaticRoute};
use crate::error::Report;
use crate::schema::kind::{address, no_host_bits, prefix, unit};

/// The routing table that routes stand in, and what they may name.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    /// None = the main one's.
    pub instance: Option<&'a str>,
    pub interfaces: &'a [Interface],
    pub instances: &'a Instances<'a>,
    pub subnets: &'a Subnets<'a>,
}

/// Destinations whose packets are handed on, and where their `next-table` stands.
pub(super) type Leaks<'a> = Vec<(Prefix, View<'a>)>;

/// Routes of a table.
pub(super) struct Routes<'a> {
    pub all: Vec<StaticRoute>,
    pub leaks: Leaks<'a>,
}

/// `above` has the `routing-options`.
pub(super) fn compile<'a>(above: View<'a>, table: &Table, report: &mut Report) -> Routes<'a> {
    let mut routes = Routes { all: Vec::new(), leaks: Vec::new() };
    let mut seen: HashMap<Prefix, View> = HashMap::new();
    for (rib, entry) in statics(above, table, report) {
        for view in entry.entries(&["static", "route"]) {
            let Ok(destination) = prefix(view.word()).and_then(no_host_bits) else { continue };
            if let Some(other) = seen.insert(destination, view) {
                let at = other.location();
                let message =
                    format!("the route to `{}` is already set at {}:{}", view.word(), at.line, at.column);
                report.error_help(&view.location(), message, "merge them: `next-hop` takes several gateways");
            }
            table.family(view, destination, rib, report);
            let by_preference = table.targets(view, destination, report);
            routes.leaks.extend(view.value(&["next-table"]).map(|next| (destination, next)));
            let route = |(preference, next_hop)| StaticRoute { destination, preference, next_hop };
            routes.all.extend(by_preference.into_iter().map(route));
        }
    }
    routes
}

/// Where `static` may stand, and which family is right there; None = both are.
fn statics<'a>(above: View<'a>, table: &Table, report: &mut Report) -> Vec<(Option<bool>, View<'a>)> {
    let mut found: Vec<_> =
        above.path(&["routing-options"]).map(|options| (None, options)).into_iter().collect();
    let ribs: Vec<View> = above.entries(&["routing-options", "rib"]).collect();
    for is_v4 in [true, false] {
        let name = table_name(table.instance, is_v4);
        found.extend(ribs.iter().filter(|rib| rib.word() == name).map(|rib| (Some(is_v4), *rib)));
    }
    // of the main instance the schema knows them
    let Some(instance) = table.instance else { return found };
    let own = [true, false].map(|is_v4| table_name(Some(instance), is_v4));
    for rib in ribs.iter().filter(|rib| !own.iter().any(|name| name == rib.word())) {
        let message = format!("`{}` is no table of routing-instance `{instance}`", rib.word());
        report.error_help(&rib.location(), message, format!("expected `{}` or `{}`", own[0], own[1]));
    }
    found
}

impl Table<'_> {
    fn family(&self, view: View, destination: Prefix, rib: Option<bool>, report: &mut Report) {
        let is_v4 = destination.addr.is_ipv4();
        let Some(rib) = rib.filter(|rib| *rib != is_v4) else { return };
        let own = table_name(self.instance, is_v4);
        let (version, right) = match is_v4 {
            true => ("IPv4", "routing-options static".to_owned()),
            false => ("IPv6", format!("routing-options rib {own} static")),
        };
        let message =
            format!("{version} route `{}` in table {}", view.word(), table_name(self.instance, rib));
        report.error_help(&view.location(), message, format!("write it under `{right}`"));
    }

    /// Where a route leads, by preference: the statement's own, and those of its qualified next hops.
    fn targets(&self, view: View, destination: Prefix, report: &mut Report) -> BTreeMap<u32, RouteTarget> {
        const ALONE: [&str; 3] = ["discard", "reject", "next-table"];
        let chosen = |child: &View| {
            matches!(child.word(), "next-hop" | "qualified-next-hop") || ALONE.contains(&child.word())
        };
        // Other statements were refused by the schema.
        let says =
            |child: &View| matches!(child.word(), "discard" | "reject") || child.children().next().is_some();
        let all: Vec<View> = view.children().filter(|child| chosen(child) && says(child)).collect();
        if let (Some(first), Some(alone)) =
            (all.first(), all.iter().find(|child| ALONE.contains(&child.word())))
            && all.len() > 1
        {
            let second = if first.word() == alone.word() { all[1] } else { *alone };
            let message =
                format!("the route to `{}` has both `{}` and `{}`", view.word(), first.word(), second.word());
            report.error_help(&second.location(), message, "keep one");
        }
        let preference = preference(view).unwrap_or(STATIC_PREFERENCE);
        let mut targets = BTreeMap::new();
        match all.first().map(|first| first.word()) {
            Some("discard") => drop(targets.insert(preference, RouteTarget::Discard)),
            Some("reject") => drop(targets.insert(preference, RouteTarget::Reject)),
            Some("next-table") => {
                let next =
                    view.value(&["next-table"]).and_then(|next| self.next_table(next, destination, report));
                targets.extend(next.map(|next| (preference, next)));
            }
            Some(_) => {
                targets.extend(self.next_hops(view, destination, report).map(|hops| (preference, hops)));
                for hop in view.entries(&["qualified-next-hop"]) {
                    self.qualified(hop, (destination, preference), &mut targets, report);
                }
            }
            None => {
                let message = format!("the route to `{}` leads nowhere", view.word());
                report.error_help(
                    &view.location(),
                    message,
                    "add `next-hop`, `next-table`, `discard` or `reject`",
                );
            }
        }
        targets
    }

    /// `inet.0`, or `NAME.inet.0`.
    fn next_table(&self, next: View, destination: Prefix, report: &mut Report) -> Option<RouteTarget> {
        let is_v4 = destination.addr.is_ipv4();
        let family = table_name(None, is_v4);
        let instance = match next.word() {
            word if word == family => None,
            word => match word.strip_suffix(&format!(".{family}")) {
                Some(name) => Some(name),
                None => {
                    let message = format!("`{word}` is no table of the route's address family");
                    let help = format!("expected `{family}`, or `NAME.{family}` of a routing instance");
                    report.error_help(&next.location(), message, help);
                    return None;
                }
            },
        };
        if instance == self.instance {
            let message = format!("the route's own table is `{}`", next.word());
            report.error_help(&next.location(), message, "name another one");
            return None;
        }
        let known = self.instances.names();
        if instance.is_some_and(|name| !known.contains(&name)) {
            let tables: Vec<String> = known.iter().map(|name| table_name(Some(name), is_v4)).collect();
            let known = tables.iter().map(String::as_str);
            undefined(report, next, "routing table", known, &HashSet::new());
            return None;
        }
        Some(RouteTarget::Table(instance.map(str::to_owned)))
    }
    /// A next hop joins those of its preference (ECMP).
    fn qualified(
        &self,
        hop: View,
        (destination, inherited): (Prefix, u32),
        targets: &mut BTreeMap<u32, RouteTarget>,
        report: &mut Report,
    ) {
        let preference = preference(hop).unwrap_or(inherited);
        let by = hop.value(&["interface"]).and_then(|view| self.named_unit(view, view.word(), report));
        let Ok(address) = address(hop.word()) else {
            let Some(unit) = self.named_unit(hop, hop.word(), report) else { return };
            if by.is_some() || targets.insert(preference, RouteTarget::Interface(unit)).is_some() {
                let message =
                    format!("interface `{}` and another next hop of preference {preference}", hop.word());
                let help = "an interface must be the only next hop of its preference";
                report.error_help(&hop.location(), message, help);
            }
            return;
        };
        self.check_gateway(hop, address, by.is_some(), destination, report);
        let next = NextHop { address, interface: by };
        match targets.entry(preference).or_insert_with(|| RouteTarget::Gateways(vec![])) {
            RouteTarget::Gateways(hops) => hops.push(next),
            _ => {
                let message =
                    format!("next hop `{}` and an interface, both of preference {preference}", hop.word());
                let help = "an interface must be the only next hop of its preference";
                report.error_help(&hop.location(), message, help);
            }
        }
    }

    /// `NAME.UNIT`, if the configuration has it.
    fn named_unit(&self, at: View, text: &str, report: &mut Report) -> Option<String> {
        let (interface, number) = unit(text).ok()?;
        let name = format!("{interface}.{number}");
        let exists = |known: &Interface| {
            known.name == interface && known.units.iter().any(|unit| unit.number == number)
        };
        if !self.interfaces.iter().any(exists) {
            report.error_help(
                &at.location(),
                format!("next hop `{text}` is neither an address nor a unit of an interface"),
                "define the interface and its unit, or correct the name",
            );
        } else if self.instances.of(&name) != self.instance {
            let of = self.instances.of(&name).map_or("the main one".to_owned(), |of| format!("`{of}`"));
            let message = format!("next hop `{text}` is a unit of another routing instance, {of}");
            report.error_help(&at.location(), message, "`next-table` hands packets to another instance");
        }
        Some(name)
    }

    fn next_hops(&self, route: View, destination: Prefix, report: &mut Report) -> Option<RouteTarget> {
        let hops: Vec<View> = route.entries(&["next-hop"]).collect();
        let mut gateways = Vec::new();
        for &hop in &hops {
            if let Ok(address) = address(hop.word()) {
                self.check_gateway(hop, address, false, destination, report);
                gateways.push(NextHop { address, interface: None });
                continue;
            }
            let unit = self.named_unit(hop, hop.word(), report)?;
            if hops.len() > 1 {
                report.error_help(
                    &hop.location(),
                    format!("interface `{}` among several next hops", hop.word()),
                    "an interface must be the only next hop of its route",
                );
            }
            return Some(RouteTarget::Interface(unit));
        }
        (!gateways.is_empty()).then_some(RouteTarget::Gateways(gateways))
    }

    fn check_gateway(
        &self,
        hop: View,
        gateway: IpAddr,
        has_interface: bool,
        destination: Prefix,
        report: &mut Report,
    ) {
        let at = hop.location();
        if gateway.is_ipv4() != destination.addr.is_ipv4() {
            let message = format!("gateway `{gateway}` is not of the address family of its route");
            report.error(&at, message);
            return;
        }
        let unusable = match gateway {
            IpAddr::V4(gateway) => gateway.is_broadcast(),
            IpAddr::V6(gateway) => gateway.is_unicast_link_local() && !has_interface,
        };
        if unusable || gateway.is_unspecified() || gateway.is_loopback() || gateway.is_multicast() {
            let message = format!("`{gateway}` cannot be a gateway");
            let help = match unusable && gateway.is_ipv6() {
                true => {
                    "write `qualified-next-hop ADDRESS interface NAME.UNIT`: every link has such addresses"
                }
                false => "expected the address of a neighbour",
            };
            report.error_help(&at, message, help);
        }
        let own = self.subnets.get(&self.instance);
        if own.into_iter().flatten().any(|prefix| prefix.addr == gateway) {
            let message = format!("gateway `{gateway}` is an address of this gateway itself");
            report.error_help(&at, message, "expected the address of a neighbour");
        }
    }
}

fn preference(view: View) -> Option<u32> {
    view.value(&["preference"]).and_then(View::number)
}
