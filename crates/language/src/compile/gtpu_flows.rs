//! Flows of `services gtp-u rules`: which packets they take, and what these meet.

use std::collections::HashSet;
use std::hash::Hash;

use super::gtpu::direction;
use super::view::View;
use crate::error::{Location, Report};
use crate::gtpu::{FlowFilter, SessionFlow};
use crate::schema::kind::{book_prefix, dscp};
use crate::schema::numbers::{ports, protocol};
use crate::services::{WITH_PORTS, has_ports};

/// Bounds of a set of rules in the data plane.
const MAX_FLOWS: usize = 64;
pub const MAX_PREFIXES: usize = 127;
pub const MAX_PORTS: usize = 127;

/// Flows of one set of rules, the first by precedence first (TS 29.244 5.2.1: the lowest value).
pub(super) fn flows(rules: View, gtp_u: View, report: &mut Report) -> Vec<SessionFlow> {
    let mut flows: Vec<(SessionFlow, View)> = vec![];
    let mut counts = Counts::default();
    for view in rules.entries(&["flow"]) {
        let Some(flow) = flow(view, rules, gtp_u, report) else { continue };
        is_distinct(&flow, view, &flows, report);
        counts.add(view, report);
        flows.push((flow, view));
    }
    if let Some((_, beyond)) = flows.get(MAX_FLOWS) {
        let message = format!("rules `{}` have more than {MAX_FLOWS} flows", rules.word());
        report.error_help(&beyond.location(), message, "let one flow match what several did");
    }
    flows.sort_by_key(|(flow, _)| flow.precedence);
    covered(&flows, report);
    flows.into_iter().map(|(flow, _)| flow).collect()
}

fn flow(view: View, rules: View, gtp_u: View, report: &mut Report) -> Option<SessionFlow> {
    let name = view.word();
    let qfi = view.value(&["qfi"]).and_then(View::number);
    let reflective = view.child("reflective-qos");
    if let Some(reflective) = reflective.filter(|_| view.child("qfi").is_none()) {
        let message = format!("flow `{name}` has `reflective-qos` and no `qfi`");
        report.error_help(&reflective.location(), message, "add `qfi`, whose container says so");
    }
    let filter = filter(view, report);
    let [uplink, downlink] = ["uplink", "downlink"].map(|name| direction(view, name, gtp_u, report));
    let Some(precedence) = view.value(&["precedence"]) else {
        if view.child("precedence").is_none() {
            let message = format!("flow `{name}` of rules `{}` has no `precedence`", rules.word());
            let help =
                "add one: a packet belongs to the flow with the lowest number of those that it matches";
            report.error_help(&view.location(), message, help);
        }
        return None;
    };
    let precedence = precedence.number()?;
    let reflective = reflective.is_some();
    Some(SessionFlow { name: name.to_owned(), precedence, filter, qfi, reflective, uplink, downlink })
}

fn filter(flow: View, report: &mut Report) -> FlowFilter {
    let Some(view) = flow.child("match") else { return FlowFilter::default() };
    let all = |name: &str| view.entries(&[name]).filter_map(|entry| ports(entry.word()).ok()).collect();
    let number = view.value(&["protocol"]);
    let filter = FlowFilter {
        protocol: number.and_then(|number| protocol(number.word()).ok()),
        remote_addresses: view
            .entries(&["remote-address"])
            .filter_map(|entry| book_prefix(entry.word()).ok())
            .collect(),
        remote_ports: all("remote-port"),
        local_ports: all("local-port"),
        dscp: view.value(&["dscp"]).and_then(|value| dscp(value.word()).ok()),
    };
    let with_ports = !filter.remote_ports.is_empty() || !filter.local_ports.is_empty();
    if let (Some(number), Some(own)) = (number, filter.protocol)
        && with_ports
        && !has_ports(own)
    {
        let message =
            format!("flow `{}` asks for ports of protocol `{}`, which has none", flow.word(), number.word());
        report.error_help(&number.location(), message, format!("ports are of {WITH_PORTS}"));
    }
    filter
}

fn is_distinct(flow: &SessionFlow, view: View, others: &[(SessionFlow, View)], report: &mut Report) {
    if let Some((other, _)) = others.iter().find(|(other, _)| other.precedence == flow.precedence) {
        let at = view.value(&["precedence"]).unwrap_or(view).location();
        let (name, precedence) = (&flow.name, flow.precedence);
        let message = format!("flow `{name}` has the precedence {precedence} of flow `{}`", other.name);
        report.error_help(&at, message, "give each its own, so that it is said which comes first");
    }
}

/// What an earlier flow takes, a later one never meets: the plain case, in which both ask for the same.
fn covered(flows: &[(SessionFlow, View)], report: &mut Report) {
    for (later, (flow, view)) in flows.iter().enumerate() {
        let own = flow.filter.sorted();
        let earlier = flows[..later].iter().find(|(other, _)| {
            let other = other.filter.sorted();
            other == own || other == FlowFilter::default()
        });
        if let Some((other, _)) = earlier {
            let message =
                format!("flow `{}` matches no packet: flow `{}` takes all of its", flow.name, other.name);
            let help = "change what one of them matches, or give this one the lower precedence";
            report.error_help(&view.location(), message, help);
        }
    }
}

/// What the flows of a set of rules ask for, all together.
#[derive(Default)]
struct Counts<'a> {
    prefixes: [HashSet<&'a str>; 2],
    ports: [HashSet<&'a str>; 2],
}

/// True if this is the first one beyond what there is room for.
fn is_beyond<T: Eq + Hash>(seen: &mut HashSet<T>, value: T, most: usize) -> bool {
    seen.insert(value) && seen.len() == most + 1
}

impl<'a> Counts<'a> {
    fn add(&mut self, flow: View<'a>, report: &mut Report) {
        let mut tell = |at: Location, most: usize, what: &str| {
            let message = format!("flows of one set of rules ask for more than {most} different {what}");
            report.error_help(&at, message, "join some, or divide the sessions among several sets of rules");
        };
        for entry in flow.entries(&["match", "remote-address"]) {
            let is_ip6 = entry.word().contains(':');
            if is_beyond(&mut self.prefixes[usize::from(is_ip6)], entry.word(), MAX_PREFIXES) {
                let family = if is_ip6 { "IPv6" } else { "IPv4" };
                tell(entry.location(), MAX_PREFIXES, &format!("remote addresses of {family}"));
            }
        }
        for (seen, name) in self.ports.iter_mut().zip(["remote-port", "local-port"]) {
            for entry in flow.entries(&["match", name]) {
                if is_beyond(seen, entry.word(), MAX_PORTS) {
                    tell(entry.location(), MAX_PORTS, &name.replace('-', " ").replace("port", "ports"));
                }
            }
        }
    }
}
