//! `routing-options`: static routes.

use std::collections::HashMap;
use std::net::IpAddr;

use super::view::View;
use crate::config::{Interface, Prefix, RouteTarget, StaticRoute};
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
            if let Some(next_hop) = target(view, destination, interfaces, report) {
                routes.push(StaticRoute { destination, next_hop });
            }
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

fn target(
    view: View,
    destination: Prefix,
    interfaces: &[Interface],
    report: &mut Report,
) -> Option<RouteTarget> {
    // Other statements were refused by the schema.
    let mut chosen =
        view.children().filter(|child| matches!(child.word(), "next-hop" | "discard" | "reject"));
    let first = chosen.next();
    if let (Some(first), Some(second)) = (first, chosen.next()) {
        let message =
            format!("the route to `{}` has both `{}` and `{}`", view.word(), first.word(), second.word());
        report.error_help(&second.location(), message, "keep one");
    }
    match first.map(View::word) {
        Some("discard") => Some(RouteTarget::Discard),
        Some("reject") => Some(RouteTarget::Reject),
        Some(_) => next_hops(view, destination, interfaces, report),
        None => {
            let message = format!("the route to `{}` leads nowhere", view.word());
            report.error_help(&view.location(), message, "add `next-hop`, `discard` or `reject`");
            None
        }
    }
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
        if let Ok(gateway) = address(hop.word()) {
            check_gateway(hop, gateway, destination, interfaces, report);
            gateways.push(gateway);
            continue;
        }
        let (interface, number) = unit(hop.word()).ok()?;
        if hops.len() > 1 {
            report.error_help(
                &hop.location(),
                format!("interface `{}` among several next hops", hop.word()),
                "an interface must be the only next hop of its route",
            );
        }
        let exists = |known: &Interface| {
            known.name == interface && known.units.iter().any(|unit| unit.number == number)
        };
        if !interfaces.iter().any(exists) {
            report.error_help(
                &hop.location(),
                format!("next hop `{}` is neither an address nor a unit of an interface", hop.word()),
                "define the interface and its unit, or correct the name",
            );
        }
        return Some(RouteTarget::Interface(format!("{interface}.{number}")));
    }
    (!gateways.is_empty()).then_some(RouteTarget::Gateways(gateways))
}

fn check_gateway(
    hop: View,
    gateway: IpAddr,
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
        IpAddr::V6(gateway) => gateway.is_unicast_link_local(),
    };
    if unusable || gateway.is_unspecified() || gateway.is_loopback() || gateway.is_multicast() {
        let message = format!("`{gateway}` cannot be a gateway");
        report.error_help(&at, message, "expected the address of a neighbour, not link-local");
    }
    let units = interfaces.iter().flat_map(|interface| &interface.units);
    let mut own = units.flat_map(|unit| unit.inet.iter().chain(&unit.inet6));
    if own.any(|prefix| prefix.addr == gateway) {
        let message = format!("gateway `{gateway}` is an address of this gateway itself");
        report.error_help(&at, message, "expected the address of a neighbour");
    }
}
