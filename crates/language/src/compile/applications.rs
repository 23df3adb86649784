//! `applications`: every name becomes the terms a packet is compared with.

use std::collections::{HashMap, HashSet};

use super::nesting::Nesting;
use super::undefined;
use super::view::View;
use crate::config::Service;
use crate::error::Report;
use crate::predefined::{self, is_alg_only};
use crate::schema::Kind;
use crate::schema::kind::inactivity_timeout;
use crate::schema::numbers::{icmp_code, icmp_type, ports, protocol};
use crate::services;

const APPLICATION: &[&str] = &["applications", "application"];
const APPLICATION_SET: &[&str] = &["applications", "application-set"];

#[derive(Default)]
pub(super) struct Applications<'a> {
    pub services: HashMap<&'a str, Vec<Service>>,
    pub inactive: HashSet<&'a str>,
}

impl Applications<'_> {
    /// Reports a name that is no application, or none that a packet filter can tell by its headers.
    pub fn undefined(&self, report: &mut Report, member: View, what: &str, wanted: impl Fn(&str) -> bool) {
        if is_alg_only(member.word()) {
            report.error_help(
                &member.location(),
                format!(
                    "application `{}` in `{}` is known by its RPC program or UUID, which only an ALG can read",
                    member.word(),
                    member.above().context()
                ),
                "permit `junos-sun-rpc` or `junos-ms-rpc` and the ports the service uses",
            );
            return;
        }
        let known = self.services.keys().copied().filter(|name| wanted(name));
        undefined(report, member, what, known, &self.inactive);
    }
}

pub(super) fn compile<'a>(top: View<'a>, report: &mut Report) -> Applications<'a> {
    let mut known = Applications::default();
    known.services.extend(predefined::all());
    known.inactive.extend(top.inactive_names(APPLICATION).chain(top.inactive_names(APPLICATION_SET)));
    for entry in top.entries(APPLICATION) {
        reserved(entry, report);
        known.services.insert(entry.word(), application(entry, report));
    }
    let sets: HashMap<&str, View> = top.entries(APPLICATION_SET).map(|set| (set.word(), set)).collect();
    let mut nesting = Nesting::default();
    for set in top.entries(APPLICATION_SET) {
        reserved(set, report);
        if top.path(APPLICATION).is_some_and(|applications| applications.has(set.word())) {
            let message = format!("`{}` is both an application and an application-set", set.word());
            report.error_help(&set.location(), message, "rename one of them");
            continue;
        }
        flatten(set, &sets, &mut known, &mut nesting, report);
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
    let has_ports = services::has_ports(number);
    let mut misplaced = |name: &str, belongs: bool, to: &str| {
        if let Some(child) = view.child(name).filter(|_| !belongs) {
            let message = format!("`{name}` does not go with `protocol {}`", value.word());
            report.error_help(&child.location(), message, format!("it belongs to {to}"));
        }
    };
    misplaced("source-port", has_ports, services::WITH_PORTS);
    misplaced("destination-port", has_ports, services::WITH_PORTS);
    let six = number == services::ICMP6;
    misplaced("icmp-type", is_icmp, "icmp and icmp6");
    misplaced("icmp6-type", six, "icmp6");
    let typed = view.has("icmp-type") || six && view.has("icmp6-type");
    misplaced("icmp-code", is_icmp && typed, "icmp and icmp6, with an `icmp-type`");
    misplaced("icmp6-code", six && typed, "icmp6, with an `icmp6-type`");
    let range = |name| match view.value(&[name]) {
        Some(value) => ports(value.word()).ok(),
        None => Some((0, 65535)),
    };
    let icmp_type = icmp_value(view, ("type", Kind::IcmpType), six, report, |word| icmp_type(word, six));
    let icmp_code =
        icmp_value(view, ("code", Kind::IcmpCode), six, report, |word| icmp_code(word, six, icmp_type));
    let timeout = view.value(&["inactivity-timeout"]);
    Some(Service {
        protocol: Some(number),
        source_port: range("source-port")?,
        destination_port: range("destination-port")?,
        icmp_type: icmp_type.map(|number| (number, number)),
        icmp_code: icmp_code.map(|number| (number, number)),
        inactivity_timeout_s: timeout.and_then(|timeout| inactivity_timeout(timeout.word()).ok()),
    })
}

/// `icmp-type` or `icmp-code`, which may be spelled `icmp6-` with `protocol icmp6`.
fn icmp_value(
    view: View,
    (what, kind): (&str, Kind),
    six: bool,
    report: &mut Report,
    read: impl Fn(&str) -> Result<u8, String>,
) -> Option<u8> {
    let (four, own) = (view.value(&[&format!("icmp-{what}")]), view.value(&[&format!("icmp6-{what}")]));
    let value = match (four, own.filter(|_| six)) {
        (Some(four), Some(own)) if four.word() != own.word() => {
            let message = format!("`icmp-{what}` and `icmp6-{what}` differ");
            report.error_help(&own.location(), message, "keep one");
            return None;
        }
        (four, own) => own.or(four)?,
    };
    let word = value.word();
    match read(word) {
        Ok(number) => Some(number),
        // Words that are no value at all were refused by the schema.
        Err(_) if kind.check(word).is_err() => None,
        Err(_) => {
            let message =
                format!("`{word}` in `{}` belongs to another protocol or type", value.above().context());
            report.error_help(&value.location(), message, "correct the name, or give the number");
            None
        }
    }
}

/// Resolves a set and the sets inside it; `open` are the sets being resolved.
fn flatten<'a>(
    set: View<'a>,
    sets: &HashMap<&'a str, View<'a>>,
    known: &mut Applications<'a>,
    nesting: &mut Nesting<'a>,
    report: &mut Report,
) {
    if known.services.contains_key(set.word()) {
        return;
    }
    nesting.enter(set.word());
    let mut terms: Vec<Service> = Vec::new();
    for member in set.entries(&["application"]) {
        match known.services.get(member.word()) {
            Some(services) if !sets.contains_key(member.word()) => terms.extend(services.iter().cloned()),
            _ => known.undefined(report, member, "application", |name| !sets.contains_key(name)),
        }
    }
    for member in set.entries(&["application-set"]) {
        match sets.get(member.word()) {
            Some(inner) if nesting.takes("application-set", member, report) => {
                flatten(*inner, sets, known, nesting, report);
                terms.extend(known.services.get(member.word()).cloned().unwrap_or_default());
            }
            Some(_) => {}
            None => match predefined::set(member.word()) {
                Some(services) => terms.extend(services),
                None => known.undefined(report, member, "application-set", |name| {
                    sets.contains_key(name) || predefined::set(name).is_some()
                }),
            },
        }
    }
    if set.entries(&["application"]).chain(set.entries(&["application-set"])).next().is_none() {
        report.error_help(
            &set.location(),
            format!("application-set `{}` has no members", set.word()),
            "add an `application` or an `application-set`",
        );
    }
    nesting.leave();
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
