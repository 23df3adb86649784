//! `/metrics`: the Prometheus text format.

use std::fmt::Write as _;

use sluice_abi::counters::UnitCounter;
use sluice_abi::stages::Reason;

use crate::api::nat::{NatPoolView, NatRuleView, NatView};
use crate::api::{GateView, InterfaceView, Stats};

/// A family of samples that differ in labels.
struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    fn new(text: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        Self { text, name }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{}\"", escape(v))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

type RuleField = (&'static str, &'static str, &'static str, fn(&NatRuleView) -> u64);

const NAT_RULES: [RuleField; 4] = [
    ("sluice_nat_rule_hits_total", "counter", "First packets that a NAT rule matched", |r| r.hits),
    ("sluice_nat_rule_sessions_total", "counter", "Sessions that a NAT rule translated", |r| r.sessions),
    ("sluice_nat_rule_failed_total", "counter", "First packets for which nothing was free", |r| r.failed),
    ("sluice_nat_rule_sessions", "gauge", "Live sessions of a NAT rule", |r| r.live_sessions),
];

type PoolField = (&'static str, &'static str, &'static str, fn(&NatPoolView) -> u64);

const NAT_POOLS: [PoolField; 5] = [
    ("sluice_nat_pool_allocated_total", "counter", "Ports given out", |p| p.allocated),
    ("sluice_nat_pool_exhausted_total", "counter", "First packets that found nothing free", |p| p.exhausted),
    ("sluice_nat_pool_overflow_total", "counter", "Those of them that the overflow pool served", |p| {
        p.overflowed
    }),
    ("sluice_nat_pool_ports_in_use", "gauge", "Addresses and ports that live sessions have", |p| {
        p.ports_in_use
    }),
    ("sluice_nat_pool_addresses_in_use", "gauge", "Addresses that live sessions have", |p| {
        p.addresses_in_use
    }),
];

fn translation(text: &mut String, nat: &NatView) {
    for (name, kind, help, field) in NAT_RULES {
        let mut family = Family::new(text, name, kind, help);
        for rule in &nat.rules {
            let labels = [("kind", &*rule.kind), ("rule_set", &*rule.rule_set), ("rule", &*rule.name)];
            family.sample(&labels, field(rule));
        }
    }
    Family::new(text, "sluice_nat_bindings", "gauge", "Bindings of persistent-nat").sample(&[], nat.bindings);
    Family::new(text, "sluice_nat_bindings_limit", "gauge", "Bindings that there is room for")
        .sample(&[], nat.bindings_limit);
    for (name, kind, help, field) in NAT_POOLS {
        let mut family = Family::new(text, name, kind, help);
        for pool in &nat.pools {
            family.sample(&[("pool", &pool.name)], field(pool));
        }
    }
}

pub fn text(stats: &Stats, nat: &NatView) -> String {
    let mut text = String::new();
    gateway(&mut text, stats);
    translation(&mut text, nat);
    let mut mode =
        Family::new(&mut text, "sluice_attach_mode", "gauge", "Where a unit's ingress is handled (always 1)");
    for i in &stats.interfaces {
        mode.sample(&[("unit", &i.name), ("zone", &i.zone), ("device", &i.physical), ("mode", &i.mode)], 1);
    }
    for (index, counter) in UnitCounter::ALL.iter().enumerate() {
        let mut family = Family::new(&mut text, counter.metric, "counter", counter.help);
        for i in &stats.interfaces {
            let labels = [("unit", &*i.name), ("zone", &*i.zone), ("mode", &*i.mode)];
            family.sample(&labels, i.counters.values()[index]);
        }
    }
    drops(&mut text, &stats.interfaces);
    let mut devices = Family::new(
        &mut text,
        "sluice_device_drops_total",
        "counter",
        "Packets that a device dropped on its way out",
    );
    for i in &stats.interfaces {
        devices.sample(&[("unit", &i.name), ("device", &i.physical)], i.device_drops);
    }
    text
}

fn gateway(text: &mut String, stats: &Stats) {
    Family::new(text, "sluice_build_info", "gauge", "Version (always 1)")
        .sample(&[("version", &stats.version)], 1);
    Family::new(text, "sluice_generation", "gauge", "Number of the active commit")
        .sample(&[], stats.generation);
    let mut sessions = Family::new(text, "sluice_sessions", "gauge", "Sessions in the table");
    sessions.sample(&[("family", "inet")], stats.sessions.v4);
    sessions.sample(&[("family", "inet6")], stats.sessions.v6);
    let mut limits = Family::new(text, "sluice_sessions_limit", "gauge", "Sessions that fit into the table");
    limits.sample(&[("family", "inet")], stats.sessions.limit4);
    limits.sample(&[("family", "inet6")], stats.sessions.limit6);
    let mut unanswered =
        Family::new(text, "sluice_sessions_unanswered", "gauge", "Sessions that wait for their first answer");
    unanswered.sample(&[("family", "inet")], stats.sessions.unanswered4);
    unanswered.sample(&[("family", "inet6")], stats.sessions.unanswered6);
    Family::new(text, "sluice_sessions_expired_total", "counter", "Sessions that timed out")
        .sample(&[], stats.sessions.expired);
    Family::new(text, "sluice_sweeps_total", "counter", "Sweeps of the session table")
        .sample(&[], stats.sweeps);
    let mut commits = Family::new(text, "sluice_commits_total", "counter", "Commits by result");
    commits.sample(&[("result", "complete")], stats.commits);
    commits.sample(&[("result", "refused")], stats.commits_failed);
    gate(text, &stats.gate);
    let mut difference = Family::new(
        text,
        "sluice_conservation_difference",
        "gauge",
        "Packets that a conservation equation does not account for (0 at rest)",
    );
    difference.sample(&[("equation", "ingress")], stats.equations.ingress.difference);
    difference.sample(&[("equation", "egress")], stats.equations.egress.difference);
}

fn gate(text: &mut String, gate: &GateView) {
    Family::new(text, "sluice_grants", "gauge", "Grants in force").sample(&[], gate.grants);
    Family::new(text, "sluice_grants_limit", "gauge", "Grants that there is room for")
        .sample(&[], gate.limit);
    let mut given = Family::new(text, "sluice_grants_given_total", "counter", "Grants given, new or renewed");
    given.sample(&[("kind", "new")], gate.given);
    given.sample(&[("kind", "renewed")], gate.renewed);
    let mut ended = Family::new(text, "sluice_grants_ended_total", "counter", "Grants that ended, by cause");
    for (cause, count) in [("revoked", gate.revoked), ("expired", gate.expired), ("idle", gate.idle)] {
        ended.sample(&[("cause", cause)], count);
    }
    Family::new(text, "sluice_grants_refused_total", "counter", "Grants that found no room")
        .sample(&[], gate.refused_full);
}

fn drops(text: &mut String, interfaces: &[InterfaceView]) {
    let mut family =
        Family::new(text, "sluice_dropped_packets_total", "counter", "Dropped packets by stage and reason");
    for interface in interfaces {
        for reason in Reason::ALL {
            let Some(count) = interface.drops.get(reason.name()) else { continue };
            let labels = [
                ("unit", interface.name.as_str()),
                ("zone", interface.zone.as_str()),
                ("stage", reason.stage().name()),
                ("reason", reason.name()),
            ];
            family.sample(&labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_unit_zone_stage_reason_and_mode() {
        let mut interface =
            InterfaceView { name: "wan0.100".into(), zone: "w\"an".into(), ..Default::default() };
        interface.mode = "xdp-native".into();
        interface.drops.insert("no_route".into(), 7);
        let stats = Stats { interfaces: vec![interface], ..Default::default() };
        let pool = NatPoolView { name: "p".into(), exhausted: 3, ..Default::default() };
        let text = text(&stats, &NatView { pools: vec![pool], ..Default::default() });
        assert!(text.contains("sluice_nat_pool_exhausted_total{pool=\"p\"} 3\n"), "{text}");
        let wanted = "sluice_dropped_packets_total{unit=\"wan0.100\",zone=\"w\\\"an\",stage=\"route\",reason=\"no_route\"} 7\n";
        assert!(text.contains(wanted), "{text}");
        assert!(text.contains("mode=\"xdp-native\"} 1\n"), "{text}");
    }

    #[test]
    fn every_family_is_announced_once() {
        let text = text(&Stats::default(), &NatView::default());
        let mut names: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
