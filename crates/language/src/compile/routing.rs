//! `routing-options`: static routes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::view::View;
use crate::config::{Interface, NextHop, Prefix, RouteTarget, STATIC_PREFERENCE, StaticRoute};
use crate::error::Report;
use crate::schema::kind::{address, no_host_bits, prefix, unit};

pub(super) fn compile(top: View, interfaces: &[Interface], report: &mut Report) -> Vec<StaticRoute> {
    let mut routes = Vec::new();
    let mut seen: HashMap<Prefix, View> = HashMap::new();
    let tables: [(&str, &[&str]); 3] = [
        ("inet.0", &["routing-options", "static", "route"]),
        ("rib inet.0", &["routing-options", "rib", "inet.0", "static", "route"]),
        ("inet6.0", &["routing-options", "rib", "inet6.0", "static", "route"]),
    ];
    for (table, path) in tables {
        for view in top.entries(path) {
            let Ok(destination) = prefix(view.word()).and_then(no_host_bits) else { continue };
            if let Some(other) = seen.insert(destination, view) {
                let at = other.location();
                let message =
                    format!("the route to `{}` is already set at {}:{}", view.word(), at.line, at.column);
                report.error_help(&view.location(), message, "merge them: `next-hop` takes several gateways");
            }
            family(view, destination, table, report);
            let by_preference = targets(view, destination, interfaces, report);
            let route = |(preference, next_hop)| StaticRoute { destination, preference, next_hop };
            routes.extend(by_preference.into_iter().map(route));
        }
    }
    routes
}

fn family(view: View, destination: Prefix, table: &str, report: &mut Report) {
    let (version, right) = match (destination.addr.is_ipv4(), table) {
        (true, "inet6.0") => ("IPv4", "routing-options static"),
        (false, "rib inet.0") => ("IPv6", "routing-options rib inet6.0 static"),
        _ => return,
    };
    let table = table.trim_start_matches("rib ");
    let message = format!("{version} route `{}` in table {table}", view.word());
    report.error_help(&view.location(), message, format!("write it under `{right}`"));
}

/// Where a route leads, by preference: the statement's own, and those of its qualified next hops.
fn targets(
    view: View,
    destination: Prefix,
    interfaces: &[Interface],
    report: &mut Report,
) -> BTreeMap<u32, RouteTarget> {
    const ALONE: [&str; 2] = ["discard", "reject"];
    let chosen = |child: &View| {
        matches!(child.word(), "next-hop" | "qualified-next-hop") || ALONE.contains(&child.word())
    };
    // Other statements were refused by the schema.
    let says = |child: &View| ALONE.contains(&child.word()) || child.children().next().is_some();
    let all: Vec<View> = view.children().filter(|child| chosen(child) && says(child)).collect();
    if let (Some(first), Some(alone)) = (all.first(), all.iter().find(|child| ALONE.contains(&child.word())))
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
        Some(_) => {
            targets.extend(next_hops(view, destination, interfaces, report).map(|hops| (preference, hops)));
            for hop in view.entries(&["qualified-next-hop"]) {
                qualified(hop, (destination, preference), interfaces, &mut targets, report);
            }
        }
        None => {
            let message = format!("the route to `{}` leads nowhere", view.word());
            report.error_help(&view.location(), message, "add `next-hop`, `discard` or `reject`");
        }
    }
    targets
}

fn preference(view: View) -> Option<u32> {
    view.value(&["preference"]).and_then(View::number)
}

/// A next hop joins those of its preference (ECMP).
fn qualified(
    hop: View,
    (destination, inherited): (Prefix, u32),
    interfaces: &[Interface],
    targets: &mut BTreeMap<u32, RouteTarget>,
    report: &mut Report,
) {
    let preference = preference(hop).unwrap_or(inherited);
    let by = hop.value(&["interface"]).and_then(|view| named_unit(view, view.word(), interfaces, report));
    let Ok(address) = address(hop.word()) else {
        let Some(unit) = named_unit(hop, hop.word(), interfaces, report) else { return };
        if by.is_some() || targets.insert(preference, RouteTarget::Interface(unit)).is_some() {
            let message =
                format!("interface `{}` and another next hop of preference {preference}", hop.word());
            let help = "an interface must be the only next hop of its preference";
            report.error_help(&hop.location(), message, help);
        }
        return;
    };
    check_gateway(hop, address, by.is_some(), destination, interfaces, report);
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
fn named_unit(at: View, text: &str, interfaces: &[Interface], report: &mut Report) -> Option<String> {
    let (interface, number) = unit(text).ok()?;
    let exists =
        |known: &Interface| known.name == interface && known.units.iter().any(|unit| unit.number == number);
    if !interfaces.iter().any(exists) {
        report.error_help(
            &at.location(),
            format!("next hop `{text}` is neither an address nor a unit of an interface"),
            "define the interface and its unit, or correct the name",
        );
    }
    Some(format!("{interface}.{number}"))
}

fn next_hops(
    route: View,
    destination: Prefix,
    interfaces: &[Interface],
    report: &mut Report,
) -> Option<RouteTarget> {
    let hops: Vec<View> = route.entries(&["next-hop"]).collect();
    let mut gateways = Vec::new();
    for &hop in &hops {
        if let Ok(address) = address(hop.word()) {
            check_gateway(hop, address, false, destination, interfaces, report);
            gateways.push(NextHop { address, interface: None });
            continue;
        }
        let unit = named_unit(hop, hop.word(), interfaces, report)?;
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
    hop: View,
    gateway: IpAddr,
    has_interface: bool,
    destination: Prefix,
    interfaces: &[Interface],
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
            true => "write `qualified-next-hop ADDRESS interface NAME.UNIT`: every link has such addresses",
            false => "expected the address of a neighbour",
        };
        report.error_help(&at, message, help);
    }
    let units = interfaces.iter().flat_map(|interface| &interface.units);
    let mut own = units.flat_map(|unit| unit.inet.iter().chain(&unit.inet6));
    if own.any(|prefix| prefix.addr == gateway) {
        let message = format!("gateway `{gateway}` is an address of this gateway itself");
        report.error_help(&at, message, "expected the address of a neighbour");
    }
}
