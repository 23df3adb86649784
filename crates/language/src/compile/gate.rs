//! `services gate`: which zones demand grants, and for what.

use std::collections::{HashMap, HashSet};

use super::undefined;
use super::view::View;
use crate::config::{Gate, GateGrant, GateService, Interface, Prefix, Service, Zone};
use crate::error::Report;
use crate::schema::kind::book_prefix;
use crate::schema::numbers::{ports, protocol};
use crate::services::{WITH_PORTS, has_ports};

/// Bound of the data plane.
const MAX_SERVICES: usize = 4095;

pub(super) fn compile(top: View, interfaces: &[Interface], zones: &[Zone], report: &mut Report) -> Gate {
    let Some(gate) = top.path(&["services", "gate"]) else { return Gate::default() };
    let inactive_zones: HashSet<&str> = top.inactive_names(&["security", "zones", "security-zone"]).collect();
    let inactive: HashSet<&str> = gate.inactive_names(&["service"]).collect();
    let services: Vec<GateService> =
        gate.entries(&["service"]).filter_map(|view| service(view, report)).collect();
    if let Some(beyond) = gate.entries(&["service"]).nth(MAX_SERVICES) {
        report.error(&beyond.location(), format!("more than {MAX_SERVICES} services"));
    }
    let names: Vec<&str> = gate.entries(&["service"]).map(View::word).collect();
    let mut demanding = vec![];
    for zone in gate.entries(&["zone"]) {
        if zones.iter().any(|known| known.name == zone.word()) {
            demanding.push(zone.word().to_owned());
        } else {
            undefined(report, zone, "zone", zones.iter().map(|z| z.name.as_str()), &inactive_zones);
        }
    }
    let host_only = gate.entries(&["host-only"]);
    let host_only =
        host_only.filter_map(|view| host_only_interface(view, interfaces, zones, &demanding, report));
    let host_only = host_only.collect();
    let grants = gate.entries(&["grant"]);
    let grants = grants.filter_map(|view| grant(view, &names, &inactive, report)).collect();
    let grants = refuse_twins(gate, grants, report);
    Gate {
        zones: demanding,
        services,
        grants,
        host_only,
        max_grants: gate.value(&["max-grants"]).and_then(View::number),
    }
}

/// What the gate alone decides there it decides by itself: nothing else may want to see those packets.
fn host_only_interface(
    view: View,
    interfaces: &[Interface],
    zones: &[Zone],
    demanding: &[String],
    report: &mut Report,
) -> Option<String> {
    let name = view.word();
    let Some(interface) = interfaces.iter().find(|interface| interface.name == name) else {
        let known = interfaces.iter().map(|interface| interface.name.as_str());
        undefined(report, view, "interface", known, &HashSet::new());
        return None;
    };
    let mut refuse = |why: String, help: &str| {
        report.error_help(&view.location(), format!("`host-only {name}`: {why}"), help);
        None
    };
    let [unit] = &interface.units[..] else {
        return refuse("it needs exactly one unit".to_owned(), "configure `unit 0`, and no others");
    };
    if unit.vlan.is_some() {
        return refuse(
            "its unit is a VLAN".to_owned(),
            "tagged packets always take the gateway's way; leave it out",
        );
    }
    let unit = format!("{name}.{}", unit.number);
    let Some(zone) = zones.iter().find(|zone| zone.interfaces.iter().any(|member| member.unit == unit))
    else {
        return refuse("it belongs to no zone".to_owned(), "add it to a zone that demands grants");
    };
    if !demanding.contains(&zone.name) {
        let why = format!("zone `{}` demands no grants", zone.name);
        return refuse(why, "name the zone in `services gate zone`");
    }
    if zone.screen.is_some() {
        let why = format!("zone `{}` has a screen, which would not see these packets", zone.name);
        return refuse(why, "take the screen out of the zone, or leave this out");
    }
    Some(name.to_owned())
}

fn needed<'a>(view: View<'a>, what: &str, example: &str, report: &mut Report) -> Option<View<'a>> {
    let found = view.value(&[what]);
    if found.is_none() && view.child(what).is_none() {
        let message = format!("`{}` has no `{what}`", view.context());
        report.error_help(&view.location(), message, format!("add one, such as `{what} {example}`"));
    }
    found
}

fn service(view: View, report: &mut Report) -> Option<GateService> {
    let destinations = needed(view, "destination-address", "192.0.2.10", report);
    let value = needed(view, "protocol", "tcp", report)?;
    destinations?;
    let number = protocol(value.word()).ok()?;
    let mut ranges: Vec<(u16, u16)> =
        view.entries(&["destination-port"]).filter_map(|port| ports(port.word()).ok()).collect();
    if let Some(child) = view.child("destination-port").filter(|_| !has_ports(number)) {
        let message = format!("`destination-port` does not go with `protocol {}`", value.word());
        report.error_help(&child.location(), message, format!("it belongs to {WITH_PORTS}"));
    }
    if ranges.is_empty() {
        ranges.push((0, u16::MAX));
    }
    let term = |range| Service {
        protocol: Some(number),
        source_port: (0, u16::MAX),
        destination_port: range,
        icmp_type: None,
        icmp_code: None,
        inactivity_timeout_s: None,
    };
    Some(GateService {
        name: view.word().to_owned(),
        destinations: view
            .entries(&["destination-address"])
            .filter_map(|entry| book_prefix(entry.word()).ok())
            .collect(),
        terms: ranges.into_iter().map(term).collect(),
    })
}

fn grant(view: View, services: &[&str], inactive: &HashSet<&str>, report: &mut Report) -> Option<GateGrant> {
    let source = needed(view, "source-address", "192.0.2.10", report);
    needed(view, "service", "NAME", report);
    let mut opens = vec![];
    for service in view.entries(&["service"]) {
        if services.contains(&service.word()) {
            opens.push(service.word().to_owned());
        } else {
            undefined(report, service, "service", services.iter().copied(), inactive);
        }
    }
    let seconds = |name: &str| view.value(&[name]).and_then(View::number);
    Some(GateGrant {
        name: view.word().to_owned(),
        source: book_prefix(source?.word()).ok()?,
        user: view.value(&["user"]).map_or(view.word(), View::word).to_owned(),
        services: opens,
        idle_s: seconds("idle-timeout"),
        absolute_s: seconds("absolute-timeout"),
    })
}

/// One source has one grant for a service: who it belongs to must be clear.
fn refuse_twins(gate: View, grants: Vec<GateGrant>, report: &mut Report) -> Vec<GateGrant> {
    let mut seen: HashMap<(Prefix, &str), &str> = HashMap::new();
    for grant in &grants {
        for service in &grant.services {
            let twin = seen.insert((grant.source, service), &grant.name);
            if let (Some(first), Some(view)) = (twin, gate.path(&["grant", &grant.name])) {
                let message = format!(
                    "grants `{first}` and `{}` are for the same source and service `{service}`",
                    grant.name
                );
                report.error_help(&view.location(), message, "keep one of them");
            }
        }
    }
    grants
}
