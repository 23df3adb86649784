//! `match` of NAT rules.

use super::{Scope, port_range};
use crate::compile::applications::distinct;
use crate::compile::view::View;
use crate::config::{Ranges, Service};
use crate::nat::NatMatch;
use crate::schema::kind::{book_prefix, first_address, last_address};
use crate::schema::numbers::protocol;
use crate::services::{TCP, UDP, WITH_PORTS, has_ports};

/// Reads `match` of a rule.
pub(super) fn matching(rule: View, scope: &mut Scope) -> NatMatch {
    NatMatch {
        source: addresses(rule, "source-address", scope),
        destination: addresses(rule, "destination-address", scope),
        services: services(rule, scope),
    }
}

/// Prefixes and names of one side; None = any.
pub(super) fn addresses(rule: View, part: &str, scope: &mut Scope) -> Option<Ranges> {
    let mut ranges = Ranges::default();
    let mut found = false;
    for member in rule.entries(&["match", part]) {
        found = true;
        if let Ok(prefix) = book_prefix(member.word()) {
            ranges.add(&Ranges::between(first_address(prefix), last_address(prefix)));
        }
    }
    for member in rule.entries(&["match", &format!("{part}-name")]) {
        found = true;
        match (member.word(), scope.names.addresses.find(None, member.word())) {
            ("any", _) => {
                ranges.add(&Ranges::all_v4());
                ranges.add(&Ranges::all_v6());
            }
            ("any-ipv4", _) => ranges.add(&Ranges::all_v4()),
            ("any-ipv6", _) => ranges.add(&Ranges::all_v6()),
            (_, Some(known)) => ranges.add(known),
            (_, None) => scope.names.addresses.undefined(scope.report, member, None),
        }
    }
    ranges.normalise();
    found.then_some(ranges)
}

fn services(rule: View, scope: &mut Scope) -> Option<Vec<Service>> {
    let members: Vec<View> = rule.entries(&["match", "application"]).collect();
    let plain = ["protocol", "source-port", "destination-port"];
    let other = plain.iter().find_map(|part| rule.path(&["match", part]));
    if let (Some(other), false) = (other, members.is_empty()) {
        let message = format!("`{}` stands beside `application`", other.context());
        let help = "an application says what its protocol and ports are; keep one of the two";
        scope.report.error_help(&other.location(), message, help);
    }
    if members.is_empty() { by_ports(rule, scope) } else { by_applications(&members, scope) }
}

fn by_applications(members: &[View], scope: &mut Scope) -> Option<Vec<Service>> {
    let mut terms = Vec::new();
    let mut any = None;
    for member in members {
        match (member.word(), scope.names.applications.services.get(member.word())) {
            ("any", _) => any = Some(*member),
            (_, Some(services)) => terms.extend(services.iter().cloned()),
            (_, None) => {
                scope.names.applications.undefined(scope.report, *member, "application", |_| true);
            }
        }
    }
    if let Some(any) = any.filter(|_| members.len() > 1) {
        let message = format!("`any` stands beside other applications in `{}`", any.above().context());
        scope.report.error_help(&any.location(), message, "keep `any` alone, or only the others");
    }
    if any.is_some() { None } else { Some(distinct(terms)) }
}

/// Ports without a protocol mean those of TCP and UDP.
fn by_ports(rule: View, scope: &mut Scope) -> Option<Vec<Service>> {
    let protocols: Vec<View> = rule.entries(&["match", "protocol"]).collect();
    let ranges = |part: &str, scope: &mut Scope| -> Vec<(u16, u16)> {
        rule.entries(&["match", part]).filter_map(|entry| port_range(entry, scope.report)).collect()
    };
    let (source, destination) = (ranges("source-port", scope), ranges("destination-port", scope));
    let with_ports = !source.is_empty() || !destination.is_empty();
    if protocols.is_empty() && !with_ports {
        return None;
    }
    let mut numbers = Vec::new();
    for view in &protocols {
        let Ok(number) = protocol(view.word()) else { continue };
        if with_ports && !has_ports(number) {
            let message =
                format!("protocol `{}` beside ports in `{}`", view.word(), view.above().above().context());
            scope.report.error_help(&view.location(), message, format!("ports belong to {WITH_PORTS}"));
        }
        numbers.push(number);
    }
    if protocols.is_empty() {
        numbers.extend([TCP, UDP]);
    }
    let or_all = |list: Vec<(u16, u16)>| if list.is_empty() { vec![(0, u16::MAX)] } else { list };
    let (source, destination) = (or_all(source), or_all(destination));
    let mut terms = Vec::new();
    for protocol in numbers {
        for source_port in &source {
            terms.extend(destination.iter().map(|destination_port| Service {
                protocol: Some(protocol),
                source_port: *source_port,
                destination_port: *destination_port,
                icmp_type: None,
                icmp_code: None,
                inactivity_timeout_s: None,
            }));
        }
    }
    Some(distinct(terms))
}
