//! Static rule-sets, NPTv6 and NAT64 among them.

use std::net::IpAddr;

use super::matching::addresses;
use super::rules::{action, sets};
use super::{Published, Scope, family, port_range};
use crate::compile::view::View;
use crate::config::{Prefix, Ranges, Service};
use crate::error::Report;
use crate::nat::{
    Ends, MAX_NAT_PREFIXES, MAX_NAT_RULES, NatMatch, NatRule, PortMap, RuleSet, StaticAction, bits,
};
use crate::schema::kind::{book_prefix, first_address, last_address};
use crate::services::{TCP, UDP};

/// Lengths of NAT64 prefixes (RFC 6052 2.2).
const NAT64_LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// NPTv6 changes at most the upper half of an address here (RFC 6296 3.1).
const NPTV6_LONGEST: u8 = 64;

/// Rule-sets and the addresses they publish.
pub(super) fn compile<'a>(
    nat: View<'a>,
    scope: &mut Scope,
) -> (Vec<RuleSet<StaticAction>>, Vec<Published<'a>>) {
    let mut published = Vec::new();
    let mut sides = Vec::new();
    let sets = sets(nat, &["static", "rule-set"], scope, |view, set, scope| {
        let (from, written) = destination(view, scope)?;
        let action = action(view, "static-nat", "inet, prefix or nptv6-prefix", scope.report)?;
        let ports = ports(view, action, scope.report);
        let then = translation(from, written, action, ports, scope)?;
        let instance = match &then {
            StaticAction::Prefix { routing_instance, .. } => routing_instance.clone(),
            _ => None,
        };
        if let StaticAction::Prefix { to, .. } | StaticAction::Nptv6 { to, .. } = then {
            let range = |prefix| (first_address(prefix), last_address(prefix));
            published.push(Published {
                from: set.from.clone(),
                low: range(from).0,
                high: range(from).1,
                view: written,
            });
            sides.push(Side {
                ends: set.from.clone(),
                prefix: from,
                ports: ports.map(|p| p.from),
                written,
                inside: false,
                instance: None,
            });
            sides.push(Side {
                ends: set.from.clone(),
                prefix: to,
                ports: ports.map(|p| p.to),
                written: action,
                inside: true,
                instance,
            });
        }
        let matching = NatMatch {
            source: addresses(view, "source-address", scope),
            destination: Some(Ranges::between(first_address(from), last_address(from))),
            services: services(view, ports, scope.report),
        };
        source_fits(&matching, from, view, scope.report);
        Some(NatRule { name: view.word().to_owned(), matching, then })
    });
    distinct(&sides, scope.report);
    let inets = sets.iter().flat_map(|set| &set.rules);
    let inets = inets.filter(|rule| matches!(rule.then, StaticAction::Inet { .. })).count();
    if inets > MAX_NAT_PREFIXES {
        let message = format!("{inets} NAT64 prefixes, at most {MAX_NAT_PREFIXES} fit");
        scope.report.error(&nat.location(), message);
    }
    (sets, published)
}

/// What the rule matches: one prefix, given itself or by name.
fn destination<'a>(rule: View<'a>, scope: &mut Scope) -> Option<(Prefix, View<'a>)> {
    let by_prefix = rule.value(&["match", "destination-address"]);
    let by_name = rule.value(&["match", "destination-address-name"]);
    match (by_prefix, by_name) {
        (Some(prefix), None) => Some((book_prefix(prefix.word()).ok()?, prefix)),
        (None, Some(name)) => Some((named(name, scope)?, name)),
        (Some(_), Some(name)) => {
            let message = format!("`{}` has both `destination-address` and a name", rule.context());
            scope.report.error_help(&name.location(), message, "keep one");
            None
        }
        (None, None) => {
            if rule.path(&["match", "destination-address"]).is_none() {
                let message = format!("`{}` matches no destination", rule.context());
                scope.report.error_help(&rule.location(), message, "add `match destination-address`");
            }
            None
        }
    }
}

/// The prefix that a name of the global address book stands for.
fn named(name: View, scope: &mut Scope) -> Option<Prefix> {
    let Some(ranges) = scope.names.addresses.find(None, name.word()) else {
        scope.names.addresses.undefined(scope.report, name, None);
        return None;
    };
    let v4 = ranges.v4.iter().map(|(low, high)| (IpAddr::V4(*low), IpAddr::V4(*high)));
    let v6 = ranges.v6.iter().map(|(low, high)| (IpAddr::V6(*low), IpAddr::V6(*high)));
    let all: Vec<_> = v4.chain(v6).collect();
    let prefix = match all[..] {
        [(low, high)] => prefix_of(low, high),
        _ => None,
    };
    if prefix.is_none() {
        let message = format!("address `{}` in `{}` is not one prefix", name.word(), name.above().context());
        scope.report.error_help(&name.location(), message, "static NAT maps one prefix to another");
    }
    prefix
}

/// The prefix that has exactly these addresses.
fn prefix_of(low: IpAddr, high: IpAddr) -> Option<Prefix> {
    let ((low_bits, width), (high_bits, _)) = (bits(low), bits(high));
    let free = 128 - (low_bits ^ high_bits).leading_zeros();
    let prefix = Prefix { addr: low, len: (width - free) as u8 };
    (first_address(prefix) == low && last_address(prefix) == high).then_some(prefix)
}

fn translation(
    from: Prefix,
    written: View,
    action: View,
    ports: Option<PortMap>,
    scope: &mut Scope,
) -> Option<StaticAction> {
    match action.word() {
        "inet" => {
            nat64_prefix(from, written, scope.report);
            Some(StaticAction::Inet { prefix: from })
        }
        "nptv6-prefix" => {
            let to = action.children().next()?;
            let prefix = book_prefix(to.word()).ok()?;
            same_shape(from, prefix, to, scope.report)?;
            if from.addr.is_ipv4() || from.len > NPTV6_LONGEST {
                let message =
                    format!("`nptv6-prefix {}` is no IPv6 prefix of at most {NPTV6_LONGEST} bits", to.word());
                scope.report.error_help(
                    &to.location(),
                    message,
                    "use `prefix` for longer ones and for IPv4 (RFC 6296 3.1)",
                );
            }
            Some(StaticAction::Nptv6 { from, to: prefix })
        }
        "prefix-name" => {
            let name = action.children().next()?;
            let to = named(name, scope)?;
            same_shape(from, to, name, scope.report)?;
            Some(StaticAction::Prefix { from, to, ports, routing_instance: None })
        }
        _ => {
            let beside = ["mapped-port", "routing-instance"];
            let mut targets = action.children().filter(|child| !beside.contains(&child.word()));
            let Some(name) = targets.next() else {
                let message = format!("`{}` names no prefix", action.context());
                scope.report.error_help(
                    &action.location(),
                    message,
                    "add the prefix that the destination becomes",
                );
                return None;
            };
            for other in targets {
                let message = format!("`{}` names more than one prefix", action.context());
                scope.report.error_help(&other.location(), message, "keep one");
            }
            let to = book_prefix(name.word()).ok()?;
            same_shape(from, to, name, scope.report)?;
            let routing_instance = action.value(&["routing-instance"]).map(|name| scope.instance(name));
            Some(StaticAction::Prefix { from, to, ports, routing_instance })
        }
    }
}

/// RFC 6052 2.2: six lengths, and bits 64 to 71 of the address are zero.
fn nat64_prefix(prefix: Prefix, written: View, report: &mut Report) {
    let IpAddr::V6(address) = prefix.addr else {
        let message = format!("`static-nat inet` for the IPv4 prefix `{}`", written.word());
        report.error_help(
            &written.location(),
            message,
            "NAT64 needs an IPv6 prefix, such as 64:ff9b::/96 (RFC 6052 2.1)",
        );
        return;
    };
    if !NAT64_LENGTHS.contains(&prefix.len) {
        let message = format!("a NAT64 prefix cannot have {} bits", prefix.len);
        report.error_help(&written.location(), message, "expected 32, 40, 48, 56, 64 or 96 (RFC 6052 2.2)");
    } else if address.octets()[8] != 0 {
        let message = format!("bits 64 to 71 of the NAT64 prefix `{}` are not zero", written.word());
        report.error_help(
            &written.location(),
            message,
            "they are reserved (RFC 6052 2.2); choose another prefix",
        );
    }
}

fn same_shape(from: Prefix, to: Prefix, written: View, report: &mut Report) -> Option<()> {
    let message = if from.addr.is_ipv4() != to.addr.is_ipv4() {
        format!("`{}` is {}, the matched prefix is {}", written.word(), family(to.addr), family(from.addr))
    } else if from.len != to.len {
        format!("`{}` has {} bits, the matched prefix has {}", written.word(), to.len, from.len)
    } else {
        return Some(());
    };
    report.error_help(
        &written.location(),
        message,
        "static NAT maps one to one: both must be of one family and length",
    );
    None
}

fn ports(rule: View, action: View, report: &mut Report) -> Option<PortMap> {
    let entry = |view: Option<View<'_>>, report: &mut Report| {
        let (entry, count) = (view?.children().next()?, view?.children().count());
        if count > 1 {
            let message = format!("`{}` has more than one range", view?.context());
            report.error_help(&entry.location(), message, "make a rule for each");
        }
        Some((port_range(entry, report)?, entry.location()))
    };
    let from = entry(rule.path(&["match", "destination-port"]), report);
    let to = entry(action.child("mapped-port"), report);
    let size = |range: (u16, u16)| range.1 - range.0;
    match (from, to) {
        (Some((from, at)), _) if action.word() == "inet" || action.word() == "nptv6-prefix" => {
            report.error_help(
                &at,
                format!("`destination-port` with `static-nat {}`", action.word()),
                "remove it: all ports are translated",
            );
            Some(PortMap { from, to: from })
        }
        (Some((from, _)), Some((to, at))) if size(from) != size(to) => {
            let message = format!(
                "`mapped-port` has {} ports, `destination-port` {}",
                u32::from(size(to)) + 1,
                u32::from(size(from)) + 1
            );
            report.error_help(&at, message, "they are mapped one to one: both ranges must have as many");
            None
        }
        (Some((from, _)), Some((to, _))) => Some(PortMap { from, to }),
        (Some((from, _)), None) => Some(PortMap { from, to: from }),
        (None, Some((_, at))) => {
            let message = format!("`mapped-port` without `destination-port` in `{}`", rule.context());
            report.error_help(&at, message, "add `match destination-port`");
            None
        }
        (None, None) => None,
    }
}

fn services(rule: View, ports: Option<PortMap>, report: &mut Report) -> Option<Vec<Service>> {
    let entries = rule.entries(&["match", "source-port"]);
    let sources: Vec<(u16, u16)> = entries.filter_map(|entry| port_range(entry, report)).collect();
    if sources.is_empty() && ports.is_none() {
        return None;
    }
    let destination_port = ports.map_or((0, u16::MAX), |ports| ports.from);
    let sources = if sources.is_empty() { vec![(0, u16::MAX)] } else { sources };
    let terms = [TCP, UDP].into_iter().flat_map(|protocol| {
        sources.iter().map(move |source_port| Service {
            protocol: Some(protocol),
            source_port: *source_port,
            destination_port,
            icmp_type: None,
            icmp_code: None,
            inactivity_timeout_s: None,
        })
    });
    Some(terms.collect())
}

fn source_fits(matching: &NatMatch, from: Prefix, rule: View, report: &mut Report) {
    let Some(source) = &matching.source else { return };
    let empty = if from.addr.is_ipv4() { source.v4.is_empty() } else { source.v6.is_empty() };
    if empty && !source.is_empty() {
        let message = format!(
            "`{}` matches no packet: its source and destination are of different families",
            rule.context()
        );
        report.error_help(&rule.location(), message, "correct one of the addresses");
    }
}

/// One side of a static rule.
struct Side<'a> {
    ends: Ends,
    prefix: Prefix,
    ports: Option<(u16, u16)>,
    written: View<'a>,
    /// What the destination becomes.
    inside: bool,
    /// Where that is, if it says so.
    instance: Option<String>,
}

/// Whether packets may come from both; zones and interfaces are not compared.
fn may_meet(a: &Ends, b: &Ends) -> bool {
    match (a, b) {
        (Ends::Zones(a), Ends::Zones(b)) | (Ends::Units(a), Ends::Units(b)) => {
            a.iter().any(|name| b.contains(name))
        }
        (Ends::RoutingInstances { names: a, .. }, Ends::RoutingInstances { names: b, .. }) => {
            a.iter().any(|name| b.contains(name))
        }
        // The more specific rule-set wins.
        _ => false,
    }
}

/// An address and port must not have two translations in either direction.
fn distinct(sides: &[Side], report: &mut Report) {
    if sides.len() > 2 * MAX_NAT_RULES {
        return;
    }
    let mut order: Vec<&Side> = sides.iter().collect();
    let low = |side: &Side| (side.inside, first_address(side.prefix));
    order.sort_by_key(|side| low(side));
    for (index, side) in order.iter().enumerate() {
        let end = last_address(side.prefix);
        let reached =
            order[index + 1..].iter().take_while(|other| other.inside == side.inside && low(other).1 <= end);
        for other in reached.filter(|other| first_address(other.prefix).is_ipv4() == end.is_ipv4()) {
            let ports_meet = match (side.ports, other.ports) {
                (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
                _ => true,
            };
            let instances_meet =
                side.instance.is_none() || other.instance.is_none() || side.instance == other.instance;
            if ports_meet && instances_meet && may_meet(&side.ends, &other.ends) {
                let (first, second) = if side.written.location() < other.written.location() {
                    (*side, *other)
                } else {
                    (*other, *side)
                };
                let at = first.written.location();
                let message = format!(
                    "`{}/{}` of a static rule overlaps `{}/{}` at {}:{}",
                    second.prefix.addr,
                    second.prefix.len,
                    first.prefix.addr,
                    first.prefix.len,
                    at.line,
                    at.column
                );
                report.error_help(
                    &second.written.location(),
                    message,
                    "an address and port have one static translation",
                );
            }
        }
    }
}
