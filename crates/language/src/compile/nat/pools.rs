//! Source and destination pools.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use super::{Scope, addresses, family, port_range, range_text};
use crate::compile::undefined;
use crate::compile::view::View;
use crate::error::{Location, Report};
use crate::nat::{
    DEFAULT_PORTS, DestinationPool, MAX_NAT_POOL_RANGES, MAX_NAT_POOLS, MAX_NAT_RANGES, Overflow, Ports,
    SourcePool,
};

/// A source pool and where its addresses are written.
pub(super) struct WrittenPool<'a> {
    pub pool: SourcePool,
    pub ranges: Vec<(IpAddr, IpAddr, View<'a>)>,
    view: View<'a>,
}

impl WrittenPool<'_> {
    /// Its ports were asked for, and are not what every pool has.
    pub fn sets_ports(&self) -> bool {
        self.view.path(&["port", "range"]).is_some()
    }

    /// The routing instance that it says it is in.
    pub fn instance(&self) -> Option<&str> {
        self.pool.routing_instance.as_deref()
    }

    pub fn family(&self) -> Option<IpAddr> {
        self.ranges.first().map(|(low, ..)| *low)
    }
}

pub(super) fn source<'a>(nat: View<'a>, scope: &mut Scope) -> Vec<WrittenPool<'a>> {
    let default = default_ports(nat, scope.report);
    let persistent = nat.path(&["source", "address-persistent"]).is_some();
    let views = nat.entries(&["source", "pool"]);
    let mut pools: Vec<WrittenPool> = views.map(|view| pool(view, default, persistent, scope)).collect();
    overlaps(&pools, scope.report);
    too_many(nat, &pools, scope.report);
    for index in 0..pools.len() {
        pools[index].pool.overflow = overflow(&pools, index, scope);
    }
    pools
}

fn too_many(nat: View, pools: &[WrittenPool], report: &mut Report) {
    if pools.len() > MAX_NAT_POOLS {
        let message = format!("{} source pools, at most {MAX_NAT_POOLS} fit", pools.len());
        report.error_help(&nat.location(), message, "give a pool several addresses");
    }
    let ranges: usize = pools.iter().map(|pool| pool.ranges.len()).sum();
    if ranges > MAX_NAT_RANGES {
        let message = format!("{ranges} address ranges of source pools, at most {MAX_NAT_RANGES} fit");
        report.error_help(&nat.location(), message, "use longer ranges");
    }
}

fn pool<'a>(view: View<'a>, default: (u16, u16), persistent: bool, scope: &mut Scope) -> WrittenPool<'a> {
    let routing_instance = view.value(&["routing-instance"]).map(|name| scope.instance(name));
    let routing_instance = routing_instance.filter(|name| scope.names.has_instance(name));
    let report = &mut *scope.report;
    let ranges = ranges(view, report);
    let pooling = view.child("address-pooling");
    let (paired, no_paired) =
        (pooling.and_then(|p| p.child("paired")), pooling.and_then(|p| p.child("no-paired")));
    if let (Some(_), Some(second)) = (paired, no_paired) {
        report.error_help(
            &second.location(),
            format!("`{}` has both `paired` and `no-paired`", second.above().context()),
            "keep one",
        );
    }
    let base = base(view, &ranges, report);
    let mut ports = ports(view.child("port"), default, report);
    if base.is_some() {
        ports.range = None;
    }
    let mut sorted: Vec<(IpAddr, IpAddr)> = ranges.iter().map(|(low, high, _)| (*low, *high)).collect();
    sorted.sort_unstable();
    WrittenPool {
        pool: SourcePool {
            name: view.word().to_owned(),
            addresses: sorted,
            ports,
            paired: paired.is_some() || persistent && no_paired.is_none(),
            overflow: None,
            base,
            routing_instance,
        },
        ranges,
        view,
    }
}

/// `host-address-base`: of the pool's family, and nothing may be said of ports.
fn base(view: View, ranges: &[(IpAddr, IpAddr, View)], report: &mut Report) -> Option<IpAddr> {
    let value = view.value(&["host-address-base"])?;
    let base: IpAddr = value.word().parse().ok()?;
    if let Some((low, ..)) = ranges.first().filter(|(low, ..)| low.is_ipv4() != base.is_ipv4()) {
        let message = format!("`host-address-base {base}` in a pool of {} addresses", family(*low));
        report.error_help(&value.location(), message, "both are of one family");
    }
    if let Some(port) = view.path(&["port"]).and_then(|port| port.children().next())
        && port.word() != "no-translation"
    {
        let message = format!("`{}` has both `host-address-base` and `port {}`", view.context(), port.word());
        report.error_help(&port.location(), message, "keep one: shifted addresses keep their ports");
    }
    Some(base)
}

fn ranges<'a>(view: View<'a>, report: &mut Report) -> Vec<(IpAddr, IpAddr, View<'a>)> {
    let mut ranges: Vec<(IpAddr, IpAddr, View)> = Vec::new();
    for entry in view.entries(&["address"]) {
        let Some((low, high)) = addresses(entry, report) else { continue };
        if let Some((first, ..)) = ranges.first().filter(|(first, ..)| first.is_ipv4() != low.is_ipv4()) {
            let message =
                format!("pool `{}` has {} and {} addresses", view.word(), family(*first), family(low));
            report.error_help(&entry.location(), message, "make a pool for each family");
            continue;
        }
        if let Some(why) = unusable(low, high) {
            report.error(
                &entry.location(),
                format!("`{}` in pool `{}` {why}", range_text(low, high), view.word()),
            );
        }
        ranges.push((low, high, entry));
    }
    if view.path(&["address"]).is_none() {
        let message = format!("`{}` has no address", view.context());
        report.error_help(&view.location(), message, "add one, such as `address 192.0.2.1/32`");
    }
    if let Some((_, _, entry)) = ranges.get(MAX_NAT_POOL_RANGES) {
        let message =
            format!("pool `{}` has more than {MAX_NAT_POOL_RANGES} addresses or ranges", view.word());
        report.error_help(&entry.location(), message, "use longer ranges");
    }
    ranges
}

/// Addresses that no packet may carry as its source or destination.
fn unusable(low: IpAddr, high: IpAddr) -> Option<&'static str> {
    let bad = |address: IpAddr| match address {
        IpAddr::V4(a) => a.is_loopback() || a.octets()[0] == 0 || a.octets()[0] >= 224,
        IpAddr::V6(a) => {
            a.is_loopback() || a.is_unspecified() || a.is_multicast() || a.to_ipv4_mapped().is_some()
        }
    };
    (bad(low) || bad(high)).then_some("is not an address of a host")
}

/// Two pools with an address in common would both hand out its ports, where they may be in one routing instance.
fn overlaps(pools: &[WrittenPool], report: &mut Report) {
    let instances: BTreeSet<Option<&str>> = pools.iter().map(WrittenPool::instance).collect();
    let several = instances.iter().flatten().count() > 0;
    let mut told = BTreeSet::new();
    for instance in instances.into_iter().filter(|instance| instance.is_some() || !several) {
        let here = pools.iter().filter(|pool| pool.instance().is_none_or(|own| Some(own) == instance));
        overlaps_within(here, &mut told, report);
    }
}

/// Of pools that may be in one instance; `told` are those that were reported, in another one.
fn overlaps_within<'p, 'v: 'p>(
    pools: impl Iterator<Item = &'p WrittenPool<'v>>,
    told: &mut BTreeSet<Location>,
    report: &mut Report,
) {
    let mut all: Vec<(IpAddr, IpAddr, View, &WrittenPool)> = Vec::new();
    for pool in pools {
        all.extend(pool.ranges.iter().map(|(low, high, view)| (*low, *high, *view, pool)));
    }
    all.sort_by_key(|(low, high, ..)| (*low, *high));
    // The range that reaches furthest so far.
    let mut furthest: Option<(IpAddr, IpAddr, View, &WrittenPool)> = None;
    for range in all {
        let (low, high, view, pool) = range;
        if let Some((_, end, other, owner)) = furthest
            && end.is_ipv4() == low.is_ipv4()
            && low <= end
            && told.insert(view.location())
        {
            let at = other.location();
            let whose = match owner.pool.name == pool.pool.name {
                true => "another address of the pool".to_owned(),
                false => format!("pool `{}`", owner.pool.name),
            };
            let message = format!(
                "`{}` of pool `{}` overlaps {whose} at {}:{}",
                range_text(low, high),
                pool.pool.name,
                at.line,
                at.column
            );
            let help = match owner.instance() == pool.instance() {
                true => "an address stands in one source pool, once",
                false => {
                    "an address stands in one source pool of an instance: name the `routing-instance` of both"
                }
            };
            report.error_help(&view.location(), message, help);
        }
        if furthest.is_none_or(|(_, end, ..)| end.is_ipv4() != high.is_ipv4() || high > end) {
            furthest = Some(range);
        }
    }
}

fn default_ports(nat: View, report: &mut Report) -> (u16, u16) {
    one_range(nat.path(&["source"]), "pool-default-port-range", report).unwrap_or(DEFAULT_PORTS)
}

/// The range of a statement that may stand once.
fn one_range(view: Option<View>, name: &str, report: &mut Report) -> Option<(u16, u16)> {
    let entries: Vec<View> = view.into_iter().flat_map(|view| view.entries(&[name])).collect();
    for other in entries.iter().skip(1) {
        let message = format!("`{}` stands twice", other.above().context());
        report.error_help(&other.location(), message, "keep one range");
    }
    port_range(*entries.first()?, report)
}

pub(super) fn interface_ports(nat: View, report: &mut Report) -> Ports {
    ports(nat.path(&["source", "interface", "port"]), DEFAULT_PORTS, report)
}

fn ports(view: Option<View>, default: (u16, u16), report: &mut Report) -> Ports {
    let range = one_range(view, "range", report);
    let has = |name| view.is_some_and(|view| view.has(name));
    let fixed = view.and_then(|view| view.child("no-translation"));
    if let (Some(fixed), Some(other)) =
        (fixed, view.and_then(|view| view.children().find(|child| child.word() != "no-translation")))
    {
        let message =
            format!("`{}` has both `no-translation` and `{}`", fixed.above().context(), other.word());
        report.error_help(&other.location(), message, "keep one: ports that stay as they are have no range");
    }
    Ports {
        range: if fixed.is_some() { None } else { Some(range.unwrap_or(default)) },
        preserve_source: has("preserve-source"),
    }
}

/// What stands in for pool `index`. It must translate ports and must not refer to yet another pool.
fn overflow(pools: &[WrittenPool], index: usize, scope: &mut Scope) -> Option<Overflow> {
    let this = &pools[index];
    let view = this.view.child("overflow-pool")?;
    let name = view.children().next()?;
    for other in view.children().skip(1) {
        let message = format!("`{}` has more than one pool", view.context());
        scope.report.error_help(&other.location(), message, "keep one");
    }
    if name.word() == "interface" {
        return Some(Overflow::Interface);
    }
    let Some(other) = pools.iter().find(|pool| pool.pool.name == name.word()) else {
        let known = pools.iter().map(|pool| pool.pool.name.as_str());
        undefined(scope.report, name, "source pool", known, &scope.inactive.source_pools);
        return None;
    };
    let why = if std::ptr::eq(other, this) {
        Some("is the pool itself")
    } else if other.view.path(&["port", "no-translation"]).is_some() {
        Some("does not translate ports")
    } else if other.view.has("overflow-pool") {
        Some("has an overflow-pool of its own")
    } else if other.family().zip(this.family()).is_some_and(|(a, b)| a.is_ipv4() != b.is_ipv4()) {
        Some("has addresses of the other family")
    } else if other.instance().is_some_and(|of| this.instance() != Some(of)) {
        Some("is in another routing-instance")
    } else {
        None
    };
    if let Some(why) = why {
        let message = format!("overflow-pool `{}` of pool `{}` {why}", name.word(), this.pool.name);
        scope.report.error_help(
            &name.location(),
            message,
            "name a pool with port translation, of the same family and instance",
        );
    }
    Some(Overflow::Pool(name.word().to_owned()))
}

/// Destination pools by name.
pub(super) fn destination<'a>(nat: View<'a>, scope: &mut Scope) -> Vec<(DestinationPool, View<'a>)> {
    let mut pools = Vec::new();
    for view in nat.entries(&["destination", "pool"]) {
        let entries: Vec<View> = view.entries(&["address"]).collect();
        for other in entries.iter().skip(1) {
            let message = format!("destination pool `{}` has more than one address", view.word());
            let help = "keep one address, prefix or range";
            scope.report.error_help(&other.location(), message, help);
        }
        let Some(entry) = entries.first() else {
            if view.path(&["address"]).is_none() {
                let message = format!("`{}` has no address", view.context());
                scope.report.error_help(
                    &view.location(),
                    message,
                    "add one, such as `address 10.0.0.80/32 port 80`",
                );
            }
            continue;
        };
        let Some((low, high)) = addresses(*entry, scope.report) else { continue };
        if let Some(why) = unusable(low, high) {
            let message = format!("`{}` in pool `{}` {why}", range_text(low, high), view.word());
            scope.report.error(&entry.location(), message);
        }
        let port = entry.value(&["port"]).and_then(View::number);
        let routing_instance = view.value(&["routing-instance"]).map(|name| scope.instance(name));
        pools.push((
            DestinationPool { name: view.word().to_owned(), low, high, port, routing_instance },
            view,
        ));
    }
    if pools.len() > MAX_NAT_POOLS {
        let message = format!("{} destination pools, at most {MAX_NAT_POOLS} fit", pools.len());
        scope.report.error_help(&nat.location(), message, "use prefixes");
    }
    pools
}

/// The pool behind `then ... pool`, by its index in `names`.
pub(super) fn named<'a>(
    view: View<'a>,
    names: &HashMap<&str, usize>,
    what: &str,
    inactive: &std::collections::HashSet<&str>,
    report: &mut Report,
) -> Option<(usize, View<'a>)> {
    let mut members = view.children().filter(|member| member.word() != "persistent-nat");
    let Some(name) = members.next() else {
        let message = format!("`{}` names no pool", view.context());
        report.error_help(&view.location(), message, format!("add the name of a {what}"));
        return None;
    };
    for other in members {
        let message = format!("`{}` names more than one pool", view.context());
        report.error_help(&other.location(), message, "keep one");
    }
    let found = names.get(name.word()).copied();
    if found.is_none() {
        undefined(report, name, what, names.keys().copied(), inactive);
    }
    found.map(|index| (index, name))
}
