//! `applications`: every name becomes the terms a packet is compared with.

use std::collections::{HashMap, HashSet};

use super::address_book::chain;
use super::undefined;
use super::view::View;
use crate::config::Service;
use crate::error::Report;
use crate::predefined::PREDEFINED;
use crate::schema::kind::{icmp_type, ports, protocol};
use crate::services;

const APPLICATION: &[&str] = &["applications", "application"];
const APPLICATION_SET: &[&str] = &["applications", "application-set"];

#[derive(Default)]
pub(super) struct Applications<'a> {
    pub services: HashMap<&'a str, Vec<Service>>,
    pub inactive: HashSet<&'a str>,
}

pub(super) fn compile<'a>(top: View<'a>, report: &mut Report) -> Applications<'a> {
    let mut known = Applications::default();
    known.services.extend(PREDEFINED.iter().map(|(name, terms)| (*name, terms.to_vec())));
    known.inactive.extend(top.inactive_names(APPLICATION).chain(top.inactive_names(APPLICATION_SET)));
    for entry in top.entries(APPLICATION) {
        reserved(entry, report);
        known.services.insert(entry.word(), application(entry, report));
    }
    let sets: HashMap<&str, View> = top.entries(APPLICATION_SET).map(|set| (set.word(), set)).collect();
    for set in top.entries(APPLICATION_SET) {
        reserved(set, report);
        if top.path(APPLICATION).is_some_and(|applications| applications.has(set.word())) {
            let message = format!("`{}` is both an application and an application-set", set.word());
            report.error_help(&set.location(), message, "rename one of them");
            continue;
        }
        flatten(set, &sets, &mut known, &mut Vec::new(), report);
    }
    known
}

fn reserved(entry: View, report: &mut Report) {
    let name = entry.word();
    if name == "any" || name.starts_with("junos-") {
        let message = format!("`{name}` is a reserved name and cannot be defined");
        report.error_help(&entry.location(), message, "choose a name that does not begin with `junos-`");
    }
}

fn application(entry: View, report: &mut Report) -> Vec<Service> {
    let direct = entry.children().find(|child| !matches!(child.word(), "description" | "term"));
    let terms: Vec<View> = entry.entries(&["term"]).collect();
    match (direct, terms.is_empty()) {
        (Some(direct), false) => {
            let message = format!("application `{}` has both terms and `{}`", entry.word(), direct.word());
            report.error_help(&direct.location(), message, "move it into a term");
            Vec::new()
        }
        (_, true) => service(entry, report).into_iter().collect(),
        (None, false) => terms.into_iter().filter_map(|term| service(term, report)).collect(),
    }
}

/// The terms of one protocol, described by the statements of an application or of a term.
fn service(view: View, report: &mut Report) -> Option<Service> {
    let Some(value) = view.value(&["protocol"]) else {
        if view.child("protocol").is_none() {
            let message = format!("`{}` has no `protocol`", view.context());
            report.error_help(&view.location(), message, "add one, such as `protocol tcp`");
        }
        return None;
    };
    let number = protocol(value.word()).ok()?;
    let is_icmp = matches!(number, services::ICMP | services::ICMP6);
    let has_ports = matches!(number, services::TCP | services::UDP | 132);
    let mut misplaced = |name: &str, belongs: bool, to: &str| {
        if let Some(child) = view.child(name).filter(|_| !belongs) {
            let message = format!("`{name}` does not go with `protocol {}`", value.word());
            report.error_help(&child.location(), message, format!("it belongs to {to}"));
        }
    };
    misplaced("source-port", has_ports, "tcp, udp and sctp");
    misplaced("destination-port", has_ports, "tcp, udp and sctp");
    misplaced("icmp-type", is_icmp, "icmp and icmp6");
    misplaced("icmp-code", is_icmp && view.has("icmp-type"), "icmp and icmp6, with an `icmp-type`");
    let range = |name| match view.value(&[name]) {
        Some(value) => ports(value.word()).ok(),
        None => Some((0, 65535)),
    };
    let code: Option<u8> = view.value(&["icmp-code"]).and_then(View::number);
    Some(Service {
        protocol: Some(number),
        source_port: range("source-port")?,
        destination_port: range("destination-port")?,
        icmp_type: icmp_types(view, number, report),
        icmp_code: code.map(|code| (code, code)),
        inactivity_timeout_s: view.value(&["inactivity-timeout"]).and_then(View::number),
    })
}

fn icmp_types(view: View, protocol: u8, report: &mut Report) -> Option<(u8, u8)> {
    let value = view.value(&["icmp-type"])?;
    let is_name = !value.word().bytes().all(|b| b.is_ascii_digit());
    let number = icmp_type(value.word()).ok()?;
    if protocol == services::ICMP6 && is_name {
        let message = format!("`{}` names a type of IPv4 ICMP", value.word());
        report.error_help(&value.location(), message, "give types of icmp6 by number, such as 128");
    }
    Some((number, number))
}

/// Resolves a set and the sets inside it; `open` are the sets being resolved.
fn flatten<'a>(
    set: View<'a>,
    sets: &HashMap<&'a str, View<'a>>,
    known: &mut Applications<'a>,
    open: &mut Vec<&'a str>,
    report: &mut Report,
) {
    if known.services.contains_key(set.word()) {
        return;
    }
    open.push(set.word());
    let mut terms: Vec<Service> = Vec::new();
    for member in set.entries(&["application"]) {
        match known.services.get(member.word()) {
            Some(services) if !sets.contains_key(member.word()) => terms.extend(services.iter().cloned()),
            _ => {
                let names = known.services.keys().copied().filter(|name| !sets.contains_key(name));
                undefined(report, member, "application", names, &known.inactive);
            }
        }
    }
    for member in set.entries(&["application-set"]) {
        match sets.get(member.word()) {
            Some(_) if open.contains(&member.word()) => {
                let loop_names = chain(open, member.word());
                let message = format!("application-set `{}` contains itself: {loop_names}", member.word());
                report.error_help(&member.location(), message, "remove one of these uses");
            }
            Some(inner) => {
                flatten(*inner, sets, known, open, report);
                terms.extend(known.services.get(member.word()).cloned().unwrap_or_default());
            }
            None => undefined(report, member, "application-set", sets.keys().copied(), &known.inactive),
        }
    }
    if set.entries(&["application"]).chain(set.entries(&["application-set"])).next().is_none() {
        report.error_help(
            &set.location(),
            format!("application-set `{}` has no members", set.word()),
            "add an `application` or an `application-set`",
        );
    }
    open.pop();
    known.services.insert(set.word(), distinct(terms));
}

/// Keeps the first of equal terms.
pub(super) fn distinct(terms: Vec<Service>) -> Vec<Service> {
    let mut kept: Vec<Service> = Vec::new();
    for term in terms {
        if !kept.contains(&term) {
            kept.push(term);
        }
    }
    kept
}
