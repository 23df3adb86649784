//! `next-table`: packets must not be handed round in circles. Every destination that a circle may exist for is walked by
//! longest match over the static routes and subnets of each table, as the kernel does it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::instances::table_name;
use super::routing::{Leaks, Routes, Table};
use super::view::View;
use crate::config::{Prefix, RouteTarget, RoutingInstance, StaticRoute};
use crate::error::Report;
use crate::nat::{address, bits};
use crate::schema::kind::{first_address, last_address};
use crate::values::overlap;

/// Destinations of one table; Some = the number of the table that is asked instead. Number 0 is the main one.
type Destinations = BTreeMap<Prefix, Option<usize>>;

/// A `next-table` statement.
struct Leak<'a> {
    from: usize,
    to: usize,
    destination: Prefix,
    view: View<'a>,
}

pub(super) fn refuse_circles(
    main: &Table,
    routes: &Routes,
    (instances, views): (&[RoutingInstance], &[Leaks]),
    report: &mut Report,
) {
    let names: Vec<Option<&str>> =
        std::iter::once(None).chain(instances.iter().map(|own| Some(own.name.as_str()))).collect();
    let all = std::iter::once(&routes.all).chain(instances.iter().map(|own| &own.static_routes));
    let tables: Vec<Destinations> =
        names.iter().zip(all).map(|(name, routes)| destinations(main, &names, *name, routes)).collect();
    let views = std::iter::once(&routes.leaks).chain(views);
    let leaks: Vec<Leak> = views
        .enumerate()
        .flat_map(|(from, views)| views.iter().map(move |(destination, view)| (from, *destination, *view)))
        .filter_map(|(from, destination, view)| {
            let to = tables[from].get(&destination).copied().flatten()?;
            Some(Leak { from, to, destination, view })
        })
        .collect();
    let mut told: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for leak in &leaks {
        let Some((address, circle)) = circle(leak, &leaks, &tables) else { continue };
        if !told.insert(circle.iter().copied().collect()) {
            continue;
        }
        let way: Vec<String> =
            circle.iter().map(|number| table_name(names[*number], address.is_ipv4())).collect();
        let message = format!("packets for {address} would go round in circles: {}", way.join(" to "));
        let help = "have one of the tables lead somewhere else, or to less";
        report.error_help(&leak.view.location(), message, help);
    }
}

fn destinations(
    main: &Table,
    names: &[Option<&str>],
    own: Option<&str>,
    routes: &[StaticRoute],
) -> Destinations {
    let subnets = main.subnets.get(&own).into_iter().flatten().copied();
    let network = |prefix: Prefix| Prefix { addr: first_address(prefix), ..prefix };
    let mut found: Destinations = routes
        .iter()
        .map(|route| match &route.next_hop {
            RouteTarget::Table(to) => {
                (route.destination, names.iter().position(|name| *name == to.as_deref()))
            }
            _ => (route.destination, None),
        })
        .collect();
    found.extend(subnets.map(|subnet| (network(subnet), None)));
    found
}

/// A destination that comes back to the leak's own table, and the tables on its way. Of the leaks of a circle the longest is
/// walked: what is longer than it cannot be part of the circle, and what is longer in its tables divides its destinations.
fn circle(leak: &Leak, leaks: &[Leak], tables: &[Destinations]) -> Option<(IpAddr, Vec<usize>)> {
    let beside: Vec<&Leak> = leaks
        .iter()
        .filter(|other| {
            other.destination.len <= leak.destination.len && overlap(&other.destination, &leak.destination)
        })
        .collect();
    let mut met = BTreeSet::from([leak.to]);
    let mut behind = vec![leak.to];
    while let Some(table) = behind.pop() {
        let next = beside.iter().filter(|other| other.from == table).map(|other| other.to);
        behind.extend(next.filter(|next| met.insert(*next)));
    }
    if !met.contains(&leak.from) {
        return None;
    }
    let within = |prefix: &Prefix| prefix.len > leak.destination.len && overlap(prefix, &leak.destination);
    let inside = met.iter().flat_map(|table| tables[*table].keys().copied()).filter(within);
    let ends = inside.flat_map(|prefix| [Some(first_address(prefix)), after(prefix, leak.destination)]);
    let mut starts = std::iter::once(Some(first_address(leak.destination))).chain(ends).flatten();
    starts.find_map(|to| walk(leak.from, to, tables).map(|way| (to, way)))
}

/// The first address behind a prefix that is still in `whole`.
fn after(prefix: Prefix, whole: Prefix) -> Option<IpAddr> {
    let last = last_address(prefix);
    (last < last_address(whole)).then(|| address(bits(last).0 + 1, last))
}

/// The tables that are asked for a destination, if they come round to the first one.
fn walk(first: usize, to: IpAddr, tables: &[Destinations]) -> Option<Vec<usize>> {
    let mut way = vec![first];
    loop {
        let next = lookup(&tables[*way.last()?], to)?;
        if next == first {
            way.push(first);
            return Some(way);
        }
        // a circle that does not come back here is found from its own tables
        if way.contains(&next) {
            return None;
        }
        way.push(next);
    }
}

/// Longest match; None = the packet goes no further, or by a next hop.
fn lookup(table: &Destinations, to: IpAddr) -> Option<usize> {
    let (_, width) = bits(to);
    let prefixes =
        (0..=width as u8).rev().map(|len| Prefix { addr: first_address(Prefix { addr: to, len }), len });
    prefixes.into_iter().find_map(|prefix| table.get(&prefix)).copied().flatten()
}
