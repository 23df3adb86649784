//! `security zones`: which units belong together, and what may reach the gateway from them.

use std::collections::{HashMap, HashSet};

use super::undefined;
use super::view::View;
use crate::config::{HostInbound, Interface, Screen, Service, Zone, ZoneInterface};
use crate::error::Report;
use crate::schema::kind::{Choices, unit};
use crate::services::{PROTOCOLS, SYSTEM_SERVICES, routing_protocol, system_service};

/// Bound of the data plane: 256 ids, of which one is no zone and one is the gateway itself.
const MAX_ZONES: usize = 254;

/// Names with a meaning of their own.
const RESERVED: &[&str] = &["any", "global", "junos-host", "null"];

/// Security zones, and the interfaces of the functional zone `management`.
pub(super) fn compile<'a>(
    top: View<'a>,
    interfaces: &[Interface],
    screens: &[Screen],
    report: &mut Report,
) -> (Vec<Zone>, Vec<String>) {
    let units = Units::new(top, interfaces);
    let inactive_screens: HashSet<&str> = top.inactive_names(&["security", "screen", "ids-option"]).collect();
    let mut owners: HashMap<String, View<'a>> = HashMap::new();
    let mut zones = Vec::new();
    for (index, view) in top.entries(&["security", "zones", "security-zone"]).enumerate() {
        if RESERVED.contains(&view.word()) {
            let message = format!("`{}` is a reserved name and cannot be a zone", view.word());
            report.error_help(&view.location(), message, "choose another name");
        }
        if index == MAX_ZONES {
            report.error(&view.location(), format!("more than {MAX_ZONES} zones"));
        }
        if let Some(screen) = view.value(&["screen"])
            && !screens.iter().any(|known| known.name == screen.word())
        {
            let known = screens.iter().map(|screen| screen.name.as_str());
            undefined(report, screen, "screen", known, &inactive_screens);
        }
        zones.push(Zone {
            name: view.word().to_owned(),
            screen: view.value(&["screen"]).map(|screen| screen.word().to_owned()),
            tcp_rst: view.has("tcp-rst"),
            interfaces: members(view, &units, &mut owners, report),
            host_inbound: view
                .child("host-inbound-traffic")
                .map(|traffic| host_inbound(traffic, report))
                .unwrap_or_default(),
        });
    }
    let management = management(top, &zones, &units, &mut owners, report);
    (zones, management)
}

/// A device is looked at as a whole or not at all.
fn management<'a>(
    top: View<'a>,
    zones: &[Zone],
    units: &Units,
    owners: &mut HashMap<String, View<'a>>,
    report: &mut Report,
) -> Vec<String> {
    let Some(view) = top.path(&["security", "zones", "functional-zone", "management"]) else {
        return Vec::new();
    };
    let mut interfaces = Vec::new();
    for member in members(view, units, owners, report) {
        let Some((interface, _)) = member.unit.rsplit_once('.') else { continue };
        let zoned = zones.iter().flat_map(|zone| &zone.interfaces).map(|member| member.unit.as_str());
        if let Some(other) = zoned
            .filter(|other| *other != member.unit)
            .find(|other| other.rsplit_once('.').is_some_and(|(name, _)| name == interface))
        {
            let message = format!("interface `{interface}` has `{other}` in a security zone");
            report.error_help(&view.location(), message, "give the management an interface of its own");
        }
        interfaces.push(interface.to_owned());
    }
    interfaces
}

/// Unit names that may stand in a zone.
struct Units<'a> {
    known: HashSet<String>,
    interfaces: HashSet<&'a str>,
    inactive: HashSet<&'a str>,
}

impl<'a> Units<'a> {
    fn new(top: View<'a>, interfaces: &'a [Interface]) -> Self {
        let names = |interface: &Interface| {
            let name = interface.name.clone();
            interface.units.iter().map(move |unit| format!("{name}.{}", unit.number)).collect::<Vec<_>>()
        };
        Units {
            known: interfaces.iter().flat_map(names).collect(),
            interfaces: interfaces.iter().map(|interface| interface.name.as_str()).collect(),
            inactive: top.inactive_names(&["interfaces"]).collect(),
        }
    }
}

fn members<'a>(
    zone: View<'a>,
    units: &Units,
    owners: &mut HashMap<String, View<'a>>,
    report: &mut Report,
) -> Vec<ZoneInterface> {
    let mut members = Vec::new();
    for entry in zone.entries(&["interfaces"]) {
        let Ok((interface, number)) = unit(entry.word()) else { continue };
        let name = format!("{interface}.{number}");
        if !units.known.contains(&name) {
            unknown_unit(entry, interface, number, units, report);
        }
        if let Some(other) = owners.insert(name.clone(), zone) {
            let message = format!("`{name}` already belongs to zone `{}`", other.word());
            report.error_help(&entry.location(), message, "a unit belongs to one zone");
        }
        let host_inbound = entry.child("host-inbound-traffic").map(|traffic| host_inbound(traffic, report));
        members.push(ZoneInterface { unit: name, host_inbound });
    }
    members
}

fn unknown_unit(entry: View, interface: &str, number: u32, units: &Units, report: &mut Report) {
    if units.interfaces.contains(interface) {
        let message = format!("`{interface}` has no active unit {number}");
        let help = format!("define `interfaces {interface} unit {number}`");
        report.error_help(&entry.location(), message, help);
        return;
    }
    if units.inactive.contains(interface) {
        let message = format!("interface `{interface}` is inactive");
        report.error_help(&entry.location(), message, "activate it, or remove it from the zone");
        return;
    }
    undefined(report, entry, "interface", units.known.iter().map(String::as_str), &HashSet::new());
}

fn host_inbound(view: View, report: &mut Report) -> HostInbound {
    let (all_services, mut services) =
        expand(view, "system-services", SYSTEM_SERVICES, system_service, report);
    let (all_protocols, protocols) = expand(view, "protocols", PROTOCOLS, routing_protocol, report);
    for service in protocols {
        if !services.contains(&service) {
            services.push(service);
        }
    }
    let any_service = view.path(&["system-services", "any-service"]).is_some();
    HostInbound { any: any_service || all_services && all_protocols, services }
}

/// Terms of the entries of a block, and whether they are all there are: `all` without an exception.
fn expand(
    view: View,
    block: &str,
    names: Choices,
    terms: fn(&str) -> Vec<Service>,
    report: &mut Report,
) -> (bool, Vec<Service>) {
    let entries: Vec<View> = view.entries(&[block]).collect();
    let all = entries.iter().any(|entry| entry.word() == "all");
    let excepted: HashSet<&str> =
        entries.iter().filter(|entry| entry.has("except")).map(|entry| entry.word()).collect();
    for entry in entries.iter().filter(|entry| entry.has("except")) {
        if !all || matches!(entry.word(), "all" | "any-service") {
            let message = format!("`{} except` excepts nothing", entry.word());
            report.error_help(&entry.location(), message, format!("it is an exception from `{block} all`"));
        }
    }
    let mut services = Vec::new();
    for (name, _) in names {
        let wanted = (all || entries.iter().any(|entry| entry.word() == *name)) && !excepted.contains(name);
        for service in if wanted { terms(name) } else { Vec::new() } {
            if !services.contains(&service) {
                services.push(service);
            }
        }
    }
    (all && excepted.is_empty(), services)
}
