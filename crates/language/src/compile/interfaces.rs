//! `interfaces`: devices and their units.

use std::collections::HashMap;

use super::dhcp;
use super::instances::Instances;
use super::view::View;
use crate::config::{HookMode, Interface, Prefix, Unit, Vlan};
use crate::error::Report;
use crate::gtpu::MOBILE;
use crate::schema::kind::{interface_address, vlan_tag};
use crate::values::overlap;

/// Bound of the data plane, which keeps an index more for what arrives on no unit.
const MAX_UNITS: usize = 4096;

/// Longest name of a unit's device: Linux allows 15, one is kept for the far end of a veth pair.
const MAX_UNIT_NAME: usize = 14;

pub(super) fn compile(
    top: View,
    default_mode: HookMode,
    instances: &Instances,
    report: &mut Report,
) -> Vec<Interface> {
    let mut seen = Addresses { instances, subnets: vec![] };
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut units = 0;
    for view in top.entries(&["interfaces"]) {
        devices_are_distinct(top, view, report);
        let interface = interface(top, view, default_mode, &mut seen, report);
        let before = units;
        units += interface.units.len();
        if before <= MAX_UNITS && units > MAX_UNITS {
            report.error(&view.location(), format!("more than {MAX_UNITS} units"));
        }
        interfaces.push(interface);
    }
    dhcp::lans_are_units(top, &interfaces, report);
    interfaces
}

/// A tagged or mobile unit has a device of its own, named `wan0.100`, which cannot be an interface too.
fn devices_are_distinct(top: View, interface: View, report: &mut Report) {
    let Some((name, unit)) = interface.word().rsplit_once('.') else { return };
    let unit = top.path(&["interfaces", name, "unit", unit]);
    let has_device =
        |unit: &View| name == MOBILE || TAGGING.iter().any(|word| unit.above().above().has(word));
    if let Some(unit) = unit.filter(has_device) {
        let message = format!("`{}` is the device of `{}`", interface.word(), unit.context());
        report.error_help(&interface.location(), message, "configure it there only");
    }
}

pub(super) fn mode(value: View) -> HookMode {
    match value.word() {
        "tc" => HookMode::Tc,
        "xdp" => HookMode::Xdp,
        "generic" => HookMode::Generic,
        _ => HookMode::Auto,
    }
}

pub(super) fn text(view: View, name: &str) -> Option<String> {
    view.value(&[name]).map(|value| value.word().to_owned())
}

const TAGGING: [&str; 2] = ["vlan-tagging", "flexible-vlan-tagging"];

/// What the units of an interface may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tagging {
    None,
    /// One 802.1Q tag.
    Single,
    /// One, or a pair.
    Flexible,
}

fn tagging(interface: View, report: &mut Report) -> Tagging {
    let [single, flexible] = TAGGING.map(|word| interface.child(word));
    if let (Some(_), Some(flexible)) = (single, flexible) {
        report.error_help(
            &flexible.location(),
            format!("`{}` has `vlan-tagging` and `flexible-vlan-tagging`", interface.word()),
            "keep the second, which allows one tag as well as two",
        );
    }
    match (single, flexible) {
        (_, Some(_)) => Tagging::Flexible,
        (Some(_), None) => Tagging::Single,
        (None, None) => Tagging::None,
    }
}

fn interface<'a>(
    top: View<'a>,
    view: View<'a>,
    default_mode: HookMode,
    seen: &mut Addresses<'a>,
    report: &mut Report,
) -> Interface {
    if view.word() == "lo" {
        report.error_help(
            &view.location(),
            "the loopback device `lo` belongs to the kernel",
            "remove it; traffic to the gateway itself is ruled by `host-inbound-traffic`",
        );
    }
    let mobile = view.word() == MOBILE;
    if mobile {
        refuse_on_mobile(view, report);
    }
    let tagging = if mobile { Tagging::None } else { tagging(view, report) };
    let mut tags = HashMap::new();
    let mut units = Vec::new();
    for entry in view.entries(&["unit"]) {
        if let Some(unit) = unit(top, entry, tagging, &mut tags, report) {
            addresses_are_distinct(entry, seen, report);
            units.push(unit);
        }
    }
    Interface {
        name: view.word().to_owned(),
        description: text(view, "description"),
        disabled: view.has("disable"),
        mtu: view.value(&["mtu"]).and_then(View::number),
        vlan_tagging: tagging != Tagging::None,
        mode: view.value(&["mode"]).map_or(default_mode, mode),
        mobile,
        units,
    }
}

/// It is no device, so it has no frames and no hook.
fn refuse_on_mobile(view: View, report: &mut Report) {
    for word in ["vlan-tagging", "flexible-vlan-tagging", "mode"] {
        if let Some(statement) = view.child(word) {
            let message = format!("`{word}` on `{MOBILE}`, whose units lead into tunnels");
            report.error_help(&statement.location(), message, "remove it");
        }
    }
}

fn unit<'a>(
    top: View<'a>,
    view: View<'a>,
    tagging: Tagging,
    tags: &mut HashMap<Vlan, View<'a>>,
    report: &mut Report,
) -> Option<Unit> {
    let number: u32 = view.number()?;
    let name = view.above().above().word();
    if tagging != Tagging::None && name.len() + 1 + view.word().len() > MAX_UNIT_NAME {
        report.error_help(
            &view.location(),
            format!("`{name}.{number}` is too long for a Linux device"),
            format!("at most {MAX_UNIT_NAME} characters fit; use a shorter interface name or unit number"),
        );
    }
    has_its_tags(view, tagging, report);
    let vlan = tags_of(view, report);
    if let Some((vlan, statement)) = vlan
        && let Some(other) = tags.insert(vlan, view)
    {
        report.error_help(
            &statement.location(),
            format!("`{} {vlan}` is already used by unit {} of `{name}`", tag_statement(vlan), other.word()),
            "give each unit its own",
        );
    }
    Some(Unit {
        number,
        description: text(view, "description"),
        disabled: view.has("disable"),
        vlan: vlan.map(|(vlan, _)| vlan),
        inet: family(view, "inet", report),
        inet6: family(view, "inet6", report),
        mtu: mtu(view, report),
        dhcp: dhcp::v4(top, view, report),
        dhcpv6: dhcp::v6(view, report),
    })
}

fn tag_statement(vlan: Vlan) -> &'static str {
    if vlan.inner.is_some() { "vlan-tags" } else { "vlan-id" }
}

/// Units have the tags that their interface allows and asks for.
fn has_its_tags(unit: View, tagging: Tagging, report: &mut Report) {
    let (number, name) = (unit.word(), unit.above().above().word());
    let (id, tags) = (unit.value(&["vlan-id"]), unit.child("vlan-tags"));
    let add =
        |what: &str, statement: &str| format!("add `{what}` to `interfaces {name}`, or remove `{statement}`");
    match (id, tags) {
        (Some(_), Some(tags)) => report.error_help(
            &tags.location(),
            format!("unit {number} of `{name}` has `vlan-id` and `vlan-tags`"),
            "keep one of them",
        ),
        (_, Some(tags)) if tagging != Tagging::Flexible => report.error_help(
            &tags.location(),
            format!("`vlan-tags` on `{name}`, which has no `flexible-vlan-tagging`"),
            add("flexible-vlan-tagging", "vlan-tags"),
        ),
        (Some(id), None) if tagging == Tagging::None => report.error_help(
            &id.location(),
            format!("`vlan-id` on `{name}`, which has no `vlan-tagging`"),
            add("vlan-tagging", "vlan-id"),
        ),
        (None, None) if tagging == Tagging::Single => report.error_help(
            &unit.location(),
            format!("unit {number} of `{name}` has no `vlan-id`"),
            "every unit of an interface with `vlan-tagging` needs one",
        ),
        (None, None) if tagging == Tagging::Flexible => report.error_help(
            &unit.location(),
            format!("unit {number} of `{name}` has neither `vlan-id` nor `vlan-tags`"),
            "every unit of an interface with `flexible-vlan-tagging` needs one of them",
        ),
        (None, None) if name == MOBILE => {}
        (None, None) if number != "0" => report.error_help(
            &unit.location(),
            format!("unit {number} on `{name}`, which has no `vlan-tagging`"),
            "use unit 0, or add `vlan-tagging` and give the unit a `vlan-id`",
        ),
        _ => {}
    }
}

/// The tags, and the statement that says them.
fn tags_of<'a>(unit: View<'a>, report: &mut Report) -> Option<(Vlan, View<'a>)> {
    if let Some(id) = unit.value(&["vlan-id"]) {
        return Some((id.number::<u16>()?.into(), id));
    }
    let tags = unit.child("vlan-tags")?;
    for part in ["outer", "inner"] {
        if tags.value(&[part]).is_none() {
            report.error_help(
                &tags.location(),
                format!("`{}` has no `{part}`", tags.context()),
                format!("add `{part}` and its VLAN; a unit with one tag has a `vlan-id`"),
            );
        }
    }
    let tag = |part: &str| vlan_tag(tags.value(&[part])?.word()).ok();
    let ((service, id), (_, inner)) = (tag("outer")?, tag("inner")?);
    Some((Vlan { id, service, inner: Some(inner) }, tags))
}

fn family(unit: View, family: &str, report: &mut Report) -> Vec<Prefix> {
    let mut addresses = Vec::new();
    for address in unit.entries(&["family", family, "address"]) {
        let Ok(prefix) = interface_address(address.word()) else { continue };
        if prefix.addr.is_ipv4() == (family == "inet") {
            addresses.push(prefix);
        } else {
            let (version, right) = if family == "inet" { ("IPv6", "inet6") } else { ("IPv4", "inet") };
            report.error_help(
                &address.location(),
                format!("{version} address `{}` in `family {family}`", address.word()),
                format!("write it under `family {right}`"),
            );
        }
    }
    addresses
}

/// The data plane keeps one IP MTU a unit, so the families cannot differ.
fn mtu(unit: View, report: &mut Report) -> Option<u16> {
    let value = |family| unit.value(&["family", family, "mtu"]);
    let (inet, inet6) = (value("inet"), value("inet6"));
    if let Some(inet6) = inet6
        && inet6.number::<u16>().is_some_and(|mtu| mtu < 1280)
    {
        report.error_help(
            &inet6.location(),
            format!("IPv6 does not work with an MTU of {}", inet6.word()),
            "expected at least 1280 (RFC 8200, section 5)",
        );
    }
    if let (Some(inet), Some(inet6)) = (inet, inet6)
        && inet.word() != inet6.word()
    {
        report.error_help(
            &inet6.location(),
            format!("`family inet6 mtu {}` differs from `family inet mtu {}`", inet6.word(), inet.word()),
            "a unit has one MTU for both families",
        );
    }
    inet.or(inet6).and_then(View::number)
}

/// Subnets by their routing instance and unit, to find addresses that would shadow each other.
struct Addresses<'a> {
    instances: &'a Instances<'a>,
    subnets: Vec<(Option<&'a str>, Prefix, View<'a>)>,
}

fn addresses_are_distinct<'a>(unit: View<'a>, seen: &mut Addresses<'a>, report: &mut Report) {
    let first_of_unit = seen.subnets.len();
    let instance = seen.instances.of(&format!("{}.{}", unit.above().above().word(), unit.word()));
    for address in
        ["inet", "inet6"].into_iter().flat_map(|family| unit.entries(&["family", family, "address"]))
    {
        let Ok(prefix) = interface_address(address.word()) else { continue };
        let of_instance = seen.subnets.iter().enumerate().filter(|(_, (of, ..))| *of == instance);
        let clash =
            of_instance.map(|(index, (_, other, view))| (index, other, view)).find(|(index, other, _)| {
                // Secondary addresses of one subnet may share a unit.
                other.addr == prefix.addr && !is_link_local(&prefix)
                    || *index < first_of_unit
                        && !is_link_local(other)
                        && !is_link_local(&prefix)
                        && overlap(other, &prefix)
            });
        if let Some((_, _, other)) = clash {
            report.error_help(
                &address.location(),
                format!("address `{}` overlaps `{}` in `{}`", address.word(), other.word(), unit_of(*other)),
                "a subnet belongs to one unit, an address stands once",
            );
        }
        seen.subnets.push((instance, prefix, address));
    }
}

/// `interfaces trust0 unit 0` of an address.
fn unit_of(address: View) -> String {
    address.above().above().above().above().context()
}

fn is_link_local(prefix: &Prefix) -> bool {
    matches!(prefix.addr, std::net::IpAddr::V6(addr) if addr.is_unicast_link_local())
}
