//! `routing-instances`: which units are in them, their routes, and what does not work in them.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::interfaces::text;
use super::routing::{self, Leaks, Routes, Table};
use super::undefined;
use super::view::View;
use crate::config::{Config, Interface, Prefix, RoutingInstance, Unit};
use crate::error::Report;
use crate::schema::kind::unit;

/// Bound of the data plane: 1024 numbers, of which one is the main instance.
const MAX_INSTANCES: usize = 1023;

/// Linux takes names of so many characters for a device.
const MAX_NAME: usize = 15;

/// Names that mean something else to the kernel, or to Junos.
const RESERVED: [&str; 6] = ["lo", "all", "default", "main", "master", "mgmt_junos"];

/// A routing table as Junos calls it; None = of the main instance.
pub(super) fn table_name(instance: Option<&str>, is_v4: bool) -> String {
    let family = if is_v4 { "inet.0" } else { "inet6.0" };
    instance.map_or_else(|| family.to_owned(), |name| format!("{name}.{family}"))
}

/// Why no instance can have this name.
pub(crate) fn unfit_name(name: &str) -> Option<&'static str> {
    if name.len() > MAX_NAME {
        return Some("the kernel's VRF device has it, and Linux allows 15 characters");
    }
    let is_device = !name.contains(['/', ':']) && name != "." && name != "..";
    match is_device {
        false => Some("the kernel's VRF device has it, and Linux allows no `/` and no `:`"),
        true => RESERVED.contains(&name).then_some("it is reserved; choose another one"),
    }
}

/// Which instance each unit is in, as the text has it. What is wrong with it is told by [`compile`].
pub(super) struct Instances<'a> {
    names: Vec<&'a str>,
    of_unit: HashMap<String, &'a str>,
}

impl<'a> Instances<'a> {
    pub fn new(top: View<'a>) -> Self {
        let mut instances = Instances { names: Vec::new(), of_unit: HashMap::new() };
        for view in top.entries(&["routing-instances"]) {
            instances.names.push(view.word());
            for member in view.entries(&["interface"]) {
                let Ok((interface, number)) = unit(member.word()) else { continue };
                instances.of_unit.entry(format!("{interface}.{number}")).or_insert(view.word());
            }
        }
        instances
    }

    /// In the order of the text.
    pub fn names(&self) -> Vec<&'a str> {
        self.names.clone()
    }

    /// The instance of `NAME.UNIT`; None = the main one.
    pub fn of(&self, unit: &str) -> Option<&'a str> {
        self.of_unit.get(unit).copied()
    }

    /// Addresses of units with their subnets, by instance; None = the main one.
    pub fn subnets(&self, interfaces: &[Interface]) -> Subnets<'a> {
        let mut subnets = Subnets::new();
        for interface in interfaces {
            for unit in &interface.units {
                let own = subnets.entry(self.of(&format!("{}.{}", interface.name, unit.number))).or_default();
                own.extend(unit.addresses());
            }
        }
        subnets
    }
}

pub(super) type Subnets<'a> = HashMap<Option<&'a str>, Vec<Prefix>>;

/// The instances, and where each `next-table` of their routes stands, instance by instance.
pub(super) fn compile<'a>(
    top: View<'a>,
    main: &Table,
    report: &mut Report,
) -> (Vec<RoutingInstance>, Vec<Leaks<'a>>) {
    let units = main.interfaces.iter().flat_map(|own| own.units.iter().map(move |unit| (own, unit)));
    let known: BTreeSet<String> = units.map(|(own, unit)| format!("{}.{}", own.name, unit.number)).collect();
    let mut owners: HashMap<String, View> = HashMap::new();
    let mut found = (Vec::new(), Vec::new());
    for (index, view) in top.entries(&["routing-instances"]).enumerate() {
        if index == MAX_INSTANCES {
            report.error(&view.location(), format!("more than {MAX_INSTANCES} routing instances"));
        }
        check_name(view, main.interfaces, report);
        let instance_type = text(view, "instance-type");
        if instance_type.is_none() {
            let message = format!("routing-instance `{}` has no `instance-type`", view.word());
            report.error_help(&view.location(), message, "add `instance-type virtual-router`");
        }
        let members = view.entries(&["interface"]);
        let interfaces =
            members.filter_map(|member| own_unit(view, member, &known, &mut owners, report)).collect();
        let Routes { all, leaks } =
            routing::compile(view, &Table { instance: Some(view.word()), ..*main }, report);
        found.0.push(RoutingInstance {
            name: view.word().to_owned(),
            instance_type: instance_type.unwrap_or_default(),
            description: text(view, "description"),
            interfaces,
            static_routes: all,
        });
        found.1.push(leaks);
    }
    found
}

fn check_name(view: View, interfaces: &[Interface], report: &mut Report) {
    let name = view.word();
    if let Some(why) = unfit_name(name) {
        report.error_help(&view.location(), format!("`{name}` cannot be a routing instance's name"), why);
    }
    let is_device = |own: &Interface| {
        let has = |unit: &Unit| format!("{}.{}", own.name, unit.number) == name;
        own.name == name || own.units.iter().any(has)
    };
    if interfaces.iter().any(is_device) {
        let message = format!("routing-instance `{name}` has the name of an interface");
        report.error_help(&view.location(), message, "it becomes a device of its own; choose another name");
    }
}

/// A unit that exists and is in no other instance.
fn own_unit<'a>(
    instance: View<'a>,
    member: View,
    known: &BTreeSet<String>,
    owners: &mut HashMap<String, View<'a>>,
    report: &mut Report,
) -> Option<String> {
    let (interface, number) = unit(member.word()).ok()?;
    let name = format!("{interface}.{number}");
    if !known.contains(&name) {
        undefined(report, member, "interface", known.iter().map(String::as_str), &HashSet::new());
        return None;
    }
    if let Some(other) = owners.insert(name.clone(), instance) {
        let message = format!("`{name}` is already in routing-instance `{}`", other.word());
        report.error_help(&member.location(), message, "a unit is in one routing instance");
        return None;
    }
    Some(name)
}

/// Refuses what does not work in an instance, and zones that are in several.
pub(super) fn fit(top: View, config: &Config, report: &mut Report) {
    let instances = Instances::new(top);
    for view in top.entries(&["routing-instances"]) {
        for member in view.entries(&["interface"]) {
            let Ok((interface, number)) = unit(member.word()) else { continue };
            if let Some(what) = unfit(config, interface, number) {
                let message =
                    format!("`{}` {what}, which is not done in a routing instance yet", member.word());
                report.error_help(&member.location(), message, "leave it in the main one");
            }
        }
    }
    for zone in top.entries(&["security", "zones", "security-zone"]) {
        let mut first: Option<(View, Option<&str>)> = None;
        for member in zone.entries(&["interfaces"]) {
            let Ok((interface, number)) = unit(member.word()) else { continue };
            let of = instances.of(&format!("{interface}.{number}"));
            let (other, others) = *first.get_or_insert((member, of));
            if others != of {
                let called = |of: Option<&str>| of.map_or("the main one".to_owned(), |of| format!("`{of}`"));
                let message = format!(
                    "`{}` is of another routing instance ({}) than `{}` ({}) of the same zone",
                    member.word(),
                    called(of),
                    other.word(),
                    called(others)
                );
                report.error_help(&member.location(), message, "all units of a zone are in one instance");
            }
        }
    }
}

/// What a unit has or is that needs the main instance.
fn unfit(config: &Config, interface: &str, number: u32) -> Option<&'static str> {
    let name = format!("{interface}.{number}");
    let own = config.interfaces.iter().find(|own| own.name == interface)?;
    let unit = own.units.iter().find(|unit| unit.number == number)?;
    let zone = config.zones.iter().find(|zone| zone.interfaces.iter().any(|member| member.unit == name));
    let ospf = [&config.protocols.ospf, &config.protocols.ospf3];
    let ospf: BTreeSet<&str> = ospf
        .into_iter()
        .flatten()
        .flat_map(|ospf| &ospf.areas)
        .flat_map(|area| area.interfaces.iter().map(|interface| interface.unit.as_str()))
        .collect();
    let clients = config.interfaces.iter().flat_map(|own| &own.units).filter_map(|unit| unit.dhcpv6.as_ref());
    let gets_prefix = clients.flat_map(|client| &client.lans).any(|lan| *lan == name);
    let is = [
        (own.mobile, "leads into tunnels"),
        (config.management.iter().any(|managed| managed == interface), "is of the functional-zone"),
        (unit.dhcp.is_some() || unit.dhcpv6.is_some(), "is a client of DHCP"),
        (gets_prefix, "gets a part of a delegated prefix"),
        (config.dhcp_server.subnets.iter().any(|subnet| subnet.unit == name), "has a DHCP server"),
        (
            config.router_advertisement.interfaces.iter().any(|own| own.unit == name),
            "sends router advertisements",
        ),
        (ospf.contains(name.as_str()), "speaks a routing protocol"),
        (config.gtp_u.interfaces.iter().any(|own| own.unit == name), "has tunnels of GTP-U"),
        (
            config.fan_out.listeners.iter().any(|own| own.interface.as_ref() == Some(&name)),
            "has a fan-out listener",
        ),
        (zone.is_some_and(|zone| config.gate.zones.contains(&zone.name)), "is in a zone of the gate"),
    ];
    is.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}
