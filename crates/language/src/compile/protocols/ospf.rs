//! `protocols ospf` and `ospf3`.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::super::view::View;
use super::{Use, bfd, key, named};
use crate::config::Interface;
use crate::error::Report;
use crate::protocols::{Area, AreaKind, Ospf, OspfInterface, PolicyStatement};
use crate::schema::kind::{amount, unit};

pub(super) fn compile(
    top: View,
    protocol: &str,
    policies: &[PolicyStatement],
    interfaces: &[Interface],
    report: &mut Report,
) -> Option<Ospf> {
    let ospf = top.path(&["protocols", protocol])?;
    let mut seen = HashMap::new();
    let mut areas = vec![];
    for view in ospf.entries(&["area"]) {
        let Some(id) = area_id(view.word()) else {
            let message = format!("`{}` is no area", view.word());
            report.error_help(&view.location(), message, "expected a number or an address, like `0.0.0.0`");
            continue;
        };
        if areas.iter().any(|area: &Area| area.id == id) {
            let message = format!("`{}` is the area {id}, which stands there already", view.word());
            report.error_help(&view.location(), message, "write its interfaces into the first one");
        }
        let mut members = vec![];
        for entry in view.entries(&["interface"]) {
            let Some(member) = interface(entry, interfaces, report) else { continue };
            if let Some(other) = seen.insert(member.unit.clone(), view) {
                let message = format!("`{}` stands in area `{}` already", member.unit, other.word());
                report.error_help(&entry.location(), message, "a unit belongs to one area");
            }
            members.push(member);
        }
        areas.push(Area { id, kind: kind(view, id, report), interfaces: members });
    }
    let export = ospf.child("export");
    let export = export.map(|list| named(list, policies, top, Use::OspfExport, report)).unwrap_or_default();
    let bandwidth = ospf.value(&["reference-bandwidth"]);
    let reference_mbps = bandwidth
        .and_then(|bits| amount(bits.word(), 0, u64::MAX).ok())
        .map(|bits| (bits / 1_000_000) as u32);
    Some(Ospf { areas, export, reference_mbps })
}

fn area_id(word: &str) -> Option<Ipv4Addr> {
    word.parse().ok().or_else(|| word.parse::<u32>().ok().map(Ipv4Addr::from_bits))
}

fn kind(view: View, id: Ipv4Addr, report: &mut Report) -> AreaKind {
    let (stub, nssa) = (view.child("stub"), view.child("nssa"));
    let Some(first) = stub.or(nssa) else { return AreaKind::Usual };
    if id.is_unspecified() || (stub.is_some() && nssa.is_some()) {
        let message = format!("area `{}` cannot be one with `{}`", view.word(), first.word());
        report.error_help(&first.location(), message, "the backbone is neither, and no area is both");
    }
    let closed = first.has("no-summaries");
    if stub.is_some() { AreaKind::Stub(closed) } else { AreaKind::Nssa(closed) }
}

fn interface(view: View, interfaces: &[Interface], report: &mut Report) -> Option<OspfInterface> {
    let (name, number) = unit(view.word()).ok()?;
    let exists =
        |known: &Interface| known.name == name && known.units.iter().any(|unit| unit.number == number);
    if !interfaces.iter().any(exists) {
        let message = format!("`{}` is no unit of an interface", view.word());
        report.error_help(
            &view.location(),
            message,
            "define the interface and its unit, or correct the name",
        );
    }
    let value = |name: &str| view.value(&[name]).and_then(View::number);
    let (hello_s, dead_s): (Option<u16>, Option<u16>) = (value("hello-interval"), value("dead-interval"));
    // Junos derives the one from the other, FRR does not
    let dead_s = dead_s.or(hello_s.map(|hello| hello.saturating_mul(4)));
    if let (Some(hello), Some(dead), Some(at)) = (hello_s, dead_s, view.child("dead-interval"))
        && dead <= hello
    {
        let message =
            format!("a dead-interval of {dead} seconds is over before the next hello, after {hello}");
        report.error_help(&at.location(), message, "four times hello-interval is usual");
    }
    Some(OspfInterface {
        unit: format!("{name}.{number}"),
        metric: value("metric"),
        hello_s,
        dead_s,
        p2p: view.has("interface-type"),
        passive: view.has("passive"),
        md5: view.entries(&["authentication", "md5"]).filter_map(|number| md5(number, report)).collect(),
        bfd: bfd(view),
    })
}

fn md5(number: View, report: &mut Report) -> Option<(u8, String)> {
    match number.value(&["key"]) {
        Some(text) => Some((number.number()?, key(text, 16, report))),
        None => {
            let message = format!("`{}` has no key", number.context());
            report.error_help(&number.location(), message, "add `key`");
            None
        }
    }
}
