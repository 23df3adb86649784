//! `protocols`, and what belongs to them of `routing-options`.

mod as_path;
mod bgp;
mod ospf;
mod policies;

use std::net::IpAddr;

use super::instances::Instances;
use super::undefined;
use super::view::View;
use crate::config::Interface;
use crate::error::Report;
use crate::protocols::{Bfd, PolicyStatement, Protocols};

pub(super) fn compile(
    top: View,
    interfaces: &[Interface],
    instances: &Instances,
    report: &mut Report,
) -> Protocols {
    let policies = policies::compile(top, report);
    Protocols {
        router_id: router_id(top, report),
        bgp: bgp::compile(top, &policies, &instances.subnets(interfaces), report),
        ospf: ospf::compile(top, "ospf", &policies, interfaces, report),
        ospf3: ospf::compile(top, "ospf3", &policies, interfaces, report),
        policies,
    }
}

fn router_id(top: View, report: &mut Report) -> Option<std::net::Ipv4Addr> {
    let view = top.value(&["routing-options", "router-id"])?;
    match view.word().parse() {
        Ok(IpAddr::V4(address)) if !address.is_unspecified() => Some(address),
        _ => {
            let message = format!("`{}` is no router id", view.word());
            report.error_help(&view.location(), message, "expected an IPv4 address of this gateway");
            None
        }
    }
}

/// Junos's defaults, where nothing is said (RFC 5880 leaves them to the operator).
fn bfd(view: View) -> Option<Bfd> {
    let bfd = view.child("bfd-liveness-detection")?;
    let interval_ms = bfd.value(&["minimum-interval"]).and_then(View::number).unwrap_or(300);
    Some(Bfd { interval_ms, multiplier: bfd.value(&["multiplier"]).and_then(View::number).unwrap_or(3) })
}

/// Where a policy is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Import,
    Export,
    /// `export` of OSPF: what it tells has nothing of BGP.
    OspfExport,
}

/// The policies that `import` or `export` names.
fn named(
    view: View,
    policies: &[PolicyStatement],
    top: View,
    purpose: Use,
    report: &mut Report,
) -> Vec<String> {
    let mut names: Vec<String> = vec![];
    for name in view.children() {
        if !policies.iter().any(|policy| policy.name == name.word()) {
            let inactive = top.inactive_names(&["policy-options", "policy-statement"]).collect();
            undefined(report, name, "policy", policies.iter().map(|policy| policy.name.as_str()), &inactive);
        }
        fits(name, top, purpose, report);
        names.push(name.word().to_owned());
    }
    names
}

/// Refuses what FRR would take there and not mean: a match that it does not know holds for every route.
fn fits(name: View, top: View, purpose: Use, report: &mut Report) {
    let unfit: &[(&[&str], &str)] = match purpose {
        Use::Import => &[(&["then", "next-hop", "self"], "in an import")],
        Use::Export => &[(&["from", "neighbor"], "in an export")],
        Use::OspfExport => &[
            (&["from", "community"], "in an export of OSPF"),
            (&["from", "as-path"], "in an export of OSPF"),
            (&["from", "neighbor"], "in an export"),
        ],
    };
    let statements = top.entries(&["policy-options", "policy-statement"]);
    for statement in statements.filter(|statement| statement.word() == name.word()) {
        for term in statement.entries(&["term"]).chain([statement]) {
            for (words, place) in unfit.iter().filter(|(words, _)| term.path(words).is_some()) {
                let message =
                    format!("policy `{}` has `{}`, which cannot be {place}", name.word(), words.join(" "),);
                report.error_help(&name.location(), message, "name a policy without it");
            }
        }
    }
}

/// What FRR takes as one word, or the rest of a line.
fn plain(view: View, report: &mut Report) -> String {
    let text = view.word();
    if text.trim() != text || text.is_empty() || text.chars().any(char::is_control) {
        let message =
            format!("`{}` begins or ends with a blank, or has characters no line may have", view.context());
        report.error_help(&view.location(), message, "remove them");
    }
    text.to_owned()
}

/// What a key begins with that a router shows and hides; as it stands no neighbour has it.
pub(crate) const HIDDEN: &str = "$9$";

/// A key: one word of printable ASCII, in clear.
fn key(view: View, longest: usize, report: &mut Report) -> String {
    let text = view.word();
    if text.is_empty() || text.len() > longest || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "the key has blanks, characters beyond ASCII, or too many of them".to_owned();
        report.error_help(&view.location(), message, format!("at most {longest} printable characters"));
    } else if text.starts_with(HIDDEN) {
        let message = format!("the key begins with `{HIDDEN}`, as a router hides it: no neighbour has it so");
        report.error_help(&view.location(), message, "write the key in clear");
    }
    text.to_owned()
}
