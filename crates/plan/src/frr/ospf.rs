//! `router ospf`, `router ospf6` and what their interfaces have.

use sluice_language::protocols::{AreaKind, Ospf, OspfInterface, Verdict};

use super::maps::Use;
use super::{Writer, word};
use crate::units::device_of_unit_name;

pub(super) fn write(writer: &mut Writer<'_>, ospf: &Ospf, six: bool) {
    let protocol = if six { "ospf6" } else { "ospf" };
    for area in &ospf.areas {
        for interface in &area.interfaces {
            let device = device_of_unit_name(writer.config, &interface.unit);
            let lines = statements(writer, interface, &area.id.to_string(), six);
            writer.interfaces.entry(device).or_default().extend(lines);
        }
    }
    let mut lines = vec![format!("router {protocol}")];
    lines.extend(writer.config.protocols.router_id.map(|id| format!(" {protocol} router-id {id}")));
    lines.extend(ospf.reference_mbps.map(|mbps| format!(" auto-cost reference-bandwidth {mbps}")));
    redistribute(writer, ospf, six, &mut lines);
    for area in &ospf.areas {
        let closed = |closed: bool| if closed { " no-summary" } else { "" };
        match area.kind {
            AreaKind::Usual => {}
            AreaKind::Stub(is_closed) => lines.push(format!(" area {} stub{}", area.id, closed(is_closed))),
            AreaKind::Nssa(is_closed) => lines.push(format!(" area {} nssa{}", area.id, closed(is_closed))),
        }
    }
    writer.routers.extend(lines);
}

fn statements(writer: &mut Writer<'_>, interface: &OspfInterface, area: &str, six: bool) -> Vec<String> {
    let prefix = if six { "ipv6 ospf6" } else { "ip ospf" };
    let mut lines = vec![format!("{prefix} area {area}")];
    let mut say = |text: String| lines.push(format!("{prefix} {text}"));
    if !interface.md5.is_empty() {
        say("authentication message-digest".to_owned());
    }
    interface.md5.iter().for_each(|(number, key)| say(format!("message-digest-key {number} md5 {key}")));
    interface.metric.iter().for_each(|cost| say(format!("cost {cost}")));
    interface.hello_s.iter().for_each(|seconds| say(format!("hello-interval {seconds}")));
    interface.dead_s.iter().for_each(|seconds| say(format!("dead-interval {seconds}")));
    if interface.p2p {
        say("network point-to-point".to_owned());
    }
    if interface.passive {
        say("passive".to_owned());
    }
    if let Some(bfd) = interface.bfd {
        say("bfd".to_owned());
        say(format!("bfd profile {}", writer.profile(bfd)));
    }
    lines
}

fn redistribute(writer: &mut Writer<'_>, ospf: &Ospf, six: bool, lines: &mut Vec<String>) {
    for origin in writer.origins(six) {
        let protocol = word(origin);
        let own = if six { "ospf6" } else { "ospf" };
        let may = writer.maps.terms(&ospf.export).any(|term| {
            let from = &term.from.protocols;
            term.then.verdict != Verdict::Reject && (from.is_empty() || from.contains(&origin))
        });
        if protocol == own || !may {
            continue;
        }
        let before = (protocol == "kernel").then(|| writer.other_than_static(six));
        let purpose = Use::Redistribute(origin);
        let map = writer.maps.chain(purpose, &ospf.export, six, &mut writer.lists, before);
        lines.push(format!(" redistribute {protocol} route-map {map}"));
        // FRR tells no default route unless it is told to
        if protocol == "kernel" && writer.statics(six).iter().any(|prefix| prefix.len == 0) {
            lines.push(format!(" default-information originate route-map {map}"));
        }
    }
}
