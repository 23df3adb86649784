//! `interfaces`: devices and their units.

use std::collections::HashMap;

use super::view::View;
use crate::config::{HookMode, Interface, Prefix, Unit};
use crate::error::Report;
use crate::schema::kind::{first_address, interface_address, last_address};

/// Bound of the data plane, which keeps slot 0 for what arrives on no unit.
const MAX_UNITS: usize = 255;

/// Longest name of a unit's device: Linux allows 15, one is kept for the far end of a veth pair.
const MAX_UNIT_NAME: usize = 14;

pub(super) fn compile(top: View, default_mode: HookMode, report: &mut Report) -> Vec<Interface> {
    let mut seen = Addresses::default();
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut units = 0;
    for view in top.entries(&["interfaces"]) {
        devices_are_distinct(top, view, report);
        let interface = interface(view, default_mode, &mut seen, report);
        let before = units;
        units += interface.units.len();
        if before <= MAX_UNITS && units > MAX_UNITS {
            report.error(&view.location(), format!("more than {MAX_UNITS} units"));
        }
        interfaces.push(interface);
    }
    interfaces
}

/// A tagged unit has a device of its own, named `wan0.100`, which cannot be an interface too.
fn devices_are_distinct(top: View, interface: View, report: &mut Report) {
    let Some((name, unit)) = interface.word().rsplit_once('.') else { return };
    let unit = top.path(&["interfaces", name, "unit", unit]);
    if let Some(unit) = unit.filter(|unit| unit.above().above().has("vlan-tagging")) {
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

fn interface<'a>(
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
    let vlan_tagging = view.has("vlan-tagging");
    let mut tags = HashMap::new();
    let mut units = Vec::new();
    for entry in view.entries(&["unit"]) {
        if let Some(unit) = unit(entry, vlan_tagging, &mut tags, report) {
            addresses_are_distinct(entry, seen, report);
            units.push(unit);
        }
    }
    Interface {
        name: view.word().to_owned(),
        description: text(view, "description"),
        disabled: view.has("disable"),
        mtu: view.value(&["mtu"]).and_then(View::number),
        vlan_tagging,
        mode: view.value(&["mode"]).map_or(default_mode, mode),
        units,
    }
}

fn unit<'a>(
    view: View<'a>,
    vlan_tagging: bool,
    tags: &mut HashMap<u16, View<'a>>,
    report: &mut Report,
) -> Option<Unit> {
    let number: u32 = view.number()?;
    let vlan = view.value(&["vlan-id"]);
    let name = view.above().above().word();
    match vlan {
        Some(vlan) if !vlan_tagging => report.error_help(
            &vlan.location(),
            format!("`vlan-id` on `{name}`, which has no `vlan-tagging`"),
            format!("add `vlan-tagging` to `interfaces {name}`, or remove `vlan-id`"),
        ),
        None if vlan_tagging => report.error_help(
            &view.location(),
            format!("unit {number} of `{name}` has no `vlan-id`"),
            "every unit of an interface with `vlan-tagging` needs one",
        ),
        None if number != 0 => report.error_help(
            &view.location(),
            format!("unit {number} on `{name}`, which has no `vlan-tagging`"),
            "use unit 0, or add `vlan-tagging` and give the unit a `vlan-id`",
        ),
        _ => {}
    }
    if vlan_tagging && name.len() + 1 + view.word().len() > MAX_UNIT_NAME {
        report.error_help(
            &view.location(),
            format!("`{name}.{number}` is too long for a Linux device"),
            format!("at most {MAX_UNIT_NAME} characters fit; use a shorter interface name or unit number"),
        );
    }
    let vlan_id = vlan.and_then(View::number);
    if let (Some(vlan), Some(tag)) = (vlan, vlan_id)
        && let Some(other) = tags.insert(tag, view)
    {
        report.error_help(
            &vlan.location(),
            format!("`vlan-id {tag}` is already used by unit {} of `{name}`", other.word()),
            "give each unit its own",
        );
    }
    Some(Unit {
        number,
        description: text(view, "description"),
        disabled: view.has("disable"),
        vlan_id,
        inet: family(view, "inet", report),
        inet6: family(view, "inet6", report),
        mtu: mtu(view, report),
    })
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

/// Subnets by their unit, to find addresses that would shadow each other.
#[derive(Default)]
struct Addresses<'a> {
    subnets: Vec<(Prefix, View<'a>)>,
}

fn addresses_are_distinct<'a>(unit: View<'a>, seen: &mut Addresses<'a>, report: &mut Report) {
    let first_of_unit = seen.subnets.len();
    for address in
        ["inet", "inet6"].into_iter().flat_map(|family| unit.entries(&["family", family, "address"]))
    {
        let Ok(prefix) = interface_address(address.word()) else { continue };
        let clash = seen.subnets.iter().enumerate().find(|(index, (other, _))| {
            // Secondary addresses of one subnet may share a unit.
            other.addr == prefix.addr && !is_link_local(&prefix)
                || *index < first_of_unit && overlap(other, &prefix)
        });
        if let Some((_, (_, other))) = clash {
            report.error_help(
                &address.location(),
                format!("address `{}` overlaps `{}` in `{}`", address.word(), other.word(), unit_of(*other)),
                "a subnet belongs to one unit, an address stands once",
            );
        }
        seen.subnets.push((prefix, address));
    }
}

/// `interfaces trust0 unit 0` of an address.
fn unit_of(address: View) -> String {
    address.above().above().above().above().context()
}

fn is_link_local(prefix: &Prefix) -> bool {
    matches!(prefix.addr, std::net::IpAddr::V6(addr) if addr.is_unicast_link_local())
}

fn overlap(a: &Prefix, b: &Prefix) -> bool {
    let shorter = a.len.min(b.len);
    let cut = |prefix: &Prefix| Prefix { addr: prefix.addr, len: shorter };
    a.addr.is_ipv4() == b.addr.is_ipv4()
        && !is_link_local(a)
        && !is_link_local(b)
        && first_address(cut(a)) == first_address(cut(b))
        && last_address(cut(a)) == last_address(cut(b))
}
