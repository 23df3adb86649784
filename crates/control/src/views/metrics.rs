//! `/metrics`: what is told of a gateway.

use sluice_abi::counters::UnitCounter;
use sluice_abi::stages::Reason;
use sluice_metrics::Kind::{self, Counter, Gauge};
use sluice_metrics::Page;

use crate::api::nat::{NatPoolView, NatRuleView, NatView};
use crate::api::{GateView, GtpuCounts, GtpuSpreadView, InterfaceView, LogOutputView, Stats};

pub fn text(stats: &Stats, nat: &NatView) -> String {
    let mut page = Page::default();
    gateway(&mut page, stats);
    translation(&mut page, nat);
    units(&mut page, &stats.interfaces);
    drops(&mut page, &stats.interfaces);
    page.text()
}

type RuleField = (&'static str, Kind, &'static str, fn(&NatRuleView) -> u64);

const NAT_RULES: [RuleField; 4] = [
    ("sluice_nat_rule_hits_total", Counter, "First packets that a NAT rule matched", |r| r.hits),
    ("sluice_nat_rule_sessions_total", Counter, "Sessions that a NAT rule translated", |r| r.sessions),
    ("sluice_nat_rule_failed_total", Counter, "First packets for which nothing was free", |r| r.failed),
    ("sluice_nat_rule_sessions", Gauge, "Live sessions of a NAT rule", |r| r.live_sessions),
];

type PoolField = (&'static str, Kind, &'static str, fn(&NatPoolView) -> u64);

const NAT_POOLS: [PoolField; 5] = [
    ("sluice_nat_pool_allocated_total", Counter, "Ports given out", |p| p.allocated),
    ("sluice_nat_pool_exhausted_total", Counter, "First packets that found nothing free", |p| p.exhausted),
    ("sluice_nat_pool_overflow_total", Counter, "Those of them that the overflow pool served", |p| {
        p.overflowed
    }),
    ("sluice_nat_pool_ports_in_use", Gauge, "Addresses and ports that live sessions have", |p| {
        p.ports_in_use
    }),
    ("sluice_nat_pool_addresses_in_use", Gauge, "Addresses that live sessions have", |p| p.addresses_in_use),
];

fn translation(page: &mut Page, nat: &NatView) {
    for (name, kind, help, field) in NAT_RULES {
        let family = page.family(name, kind, help);
        for rule in &nat.rules {
            let labels = [("kind", &*rule.kind), ("rule_set", &*rule.rule_set), ("rule", &*rule.name)];
            family.sample(&labels, field(rule));
        }
    }
    page.family("sluice_nat_bindings", Gauge, "Bindings of persistent-nat").sample(&[], nat.bindings);
    page.family("sluice_nat_bindings_limit", Gauge, "Bindings that there is room for")
        .sample(&[], nat.bindings_limit);
    let help = "Packets that NAT64 was to fragment and that did not leave whole";
    let lost = nat.unfragmented;
    page.family("sluice_nat64_unfragmented_total", Counter, help)
        .sample(&[("reason", "late")], lost.late)
        .sample(&[("reason", "malformed")], lost.malformed)
        .sample(&[("reason", "busy")], lost.busy)
        .sample(&[("reason", "refused")], lost.refused);
    for (name, kind, help, field) in NAT_POOLS {
        let family = page.family(name, kind, help);
        for pool in &nat.pools {
            family.sample(&[("pool", &pool.name)], field(pool));
        }
    }
}

fn gateway(page: &mut Page, stats: &Stats) {
    page.family("sluice_build_info", Gauge, "Version (always 1)")
        .sample(&[("version", &stats.version)], true);
    page.family("sluice_generation", Gauge, "Number of the active commit").sample(&[], stats.generation);
    let sessions = &stats.sessions;
    page.family("sluice_sessions", Gauge, "Sessions in the table")
        .sample(&[("family", "inet")], sessions.v4)
        .sample(&[("family", "inet6")], sessions.v6);
    page.family("sluice_sessions_limit", Gauge, "Sessions that fit into the table")
        .sample(&[("family", "inet")], sessions.limit4)
        .sample(&[("family", "inet6")], sessions.limit6);
    page.family("sluice_sessions_unanswered", Gauge, "Sessions that wait for their first answer")
        .sample(&[("family", "inet")], sessions.unanswered4)
        .sample(&[("family", "inet6")], sessions.unanswered6);
    page.family("sluice_sessions_expired_total", Counter, "Sessions that timed out")
        .sample(&[], sessions.expired);
    page.family("sluice_sweeps_total", Counter, "Sweeps of the session table").sample(&[], stats.sweeps);
    page.family("sluice_commits_total", Counter, "Commits by result")
        .sample(&[("result", "complete")], stats.commits)
        .sample(&[("result", "refused")], stats.commits_failed);
    gate(page, &stats.gate);
    user_plane(page, &stats.gtpu);
    log_outputs(page, &stats.log_outputs);
    let help = "Packets that a conservation equation does not account for (0 at rest)";
    page.family("sluice_conservation_difference", Gauge, help)
        .sample(&[("equation", "ingress")], stats.equations.ingress.difference)
        .sample(&[("equation", "egress")], stats.equations.egress.difference);
}

fn log_outputs(page: &mut Page, outputs: &[LogOutputView]) {
    let labels = |output: &LogOutputView| [output.name.clone(), output.transport.clone()];
    let help = "Entries of the session log handed to a stream or written to the file";
    let sent = page.family("sluice_log_sent_total", Counter, help);
    for output in outputs {
        let [name, transport] = labels(output);
        sent.sample(&[("output", &name), ("transport", &transport)], output.sent);
    }
    let help = "Entries of the session log that an output has not got, by cause";
    let lost = page.family("sluice_log_lost_total", Counter, help);
    for output in outputs {
        let [name, transport] = labels(output);
        let causes =
            [("full", output.lost_full), ("refused", output.lost_refused), ("rate", output.lost_rate)];
        for (cause, count) in causes {
            lost.sample(&[("output", &name), ("transport", &transport), ("cause", cause)], count);
        }
    }
    let help = "Bytes of entries that wait for a collector";
    let waiting = page.family("sluice_log_waiting_bytes", Gauge, help);
    for output in outputs {
        let [name, transport] = labels(output);
        waiting.sample(&[("output", &name), ("transport", &transport)], output.waiting_bytes);
    }
}

fn gate(page: &mut Page, gate: &GateView) {
    page.family("sluice_grants", Gauge, "Grants in force").sample(&[], gate.grants);
    page.family("sluice_grants_limit", Gauge, "Grants that there is room for").sample(&[], gate.limit);
    page.family("sluice_grants_given_total", Counter, "Grants given, new or renewed")
        .sample(&[("kind", "new")], gate.given)
        .sample(&[("kind", "renewed")], gate.renewed);
    page.family("sluice_grants_ended_total", Counter, "Grants that ended, by cause")
        .sample(&[("cause", "revoked")], gate.revoked)
        .sample(&[("cause", "expired")], gate.expired)
        .sample(&[("cause", "idle")], gate.idle);
    page.family("sluice_grants_refused_total", Counter, "Grants that found no room")
        .sample(&[], gate.refused_full);
}

fn user_plane(page: &mut Page, gtpu: &GtpuCounts) {
    page.family("sluice_gtpu_sessions", Gauge, "GTP-U sessions")
        .sample(&[("from", "configuration")], gtpu.by_configuration)
        .sample(&[("from", "api")], gtpu.sessions.saturating_sub(gtpu.by_configuration));
    page.family("sluice_gtpu_sessions_limit", Gauge, "GTP-U sessions that there is room for")
        .sample(&[], gtpu.limit);
    page.family("sluice_gtpu_peers", Gauge, "Other ends of GTP-U tunnels").sample(&[], gtpu.peers);
    page.family(
        "sluice_gtpu_usage_reports_total",
        Counter,
        "Reports of usage: thresholds that were passed, and time quotas",
    )
    .sample(&[], gtpu.reports);
    spread(page, &gtpu.spread);
}

fn spread(page: &mut Page, cpus: &[GtpuSpreadView]) {
    let taken = "GTP-U packets that a CPU had from others, to which their flows are spread";
    let taken = page.family("sluice_gtpu_spread_packets_total", Counter, taken);
    for own in cpus {
        taken.sample(&[("cpu", &own.cpu.to_string())], own.packets);
    }
    let waiting = page.family("sluice_gtpu_spread_waiting", Gauge, "GTP-U packets that wait for a CPU");
    for own in cpus {
        waiting.sample(&[("cpu", &own.cpu.to_string())], own.waiting);
    }
}

fn units(page: &mut Page, interfaces: &[InterfaceView]) {
    let mode = page.family("sluice_attach_mode", Gauge, "Where a unit's ingress is handled (always 1)");
    for i in interfaces {
        mode.sample(
            &[("unit", &i.name), ("zone", &i.zone), ("device", &i.physical), ("mode", &i.mode)],
            true,
        );
    }
    for (index, counter) in UnitCounter::ALL.iter().enumerate() {
        let family = page.family(counter.metric, Counter, counter.help);
        for i in interfaces {
            let labels = [("unit", &*i.name), ("zone", &*i.zone), ("mode", &*i.mode)];
            family.sample(&labels, i.counters.values()[index]);
        }
    }
}

fn drops(page: &mut Page, interfaces: &[InterfaceView]) {
    let stages = page.family("sluice_dropped_packets_total", Counter, "Dropped packets by stage and reason");
    for i in interfaces {
        for reason in Reason::ALL {
            let Some(count) = i.drops.get(reason.name()) else { continue };
            let (stage, reason) = (reason.stage().name(), reason.name());
            let labels = [("unit", &*i.name), ("zone", &*i.zone), ("stage", stage), ("reason", reason)];
            stages.sample(&labels, *count);
        }
    }
    let help = "Packets that a device dropped on its way out";
    let devices = page.family("sluice_device_drops_total", Counter, help);
    for i in interfaces {
        devices.sample(&[("unit", &i.name), ("device", &i.physical)], i.device_drops);
    }
}

#[cfg(test)]
mod tests {
    use sluice_metrics::judge;

    use super::*;
    use crate::api::nat::NatUnfragmentedView;
    use crate::api::{Counters, Equation, Equations, SessionCounts};

    /// Each of its counters has another value.
    fn counters(first: usize) -> Counters {
        let ours = UnitCounter::ALL.iter().map(|counter| counter.name);
        let names = ours.chain(["dropped_ingress", "dropped_egress"]);
        let values = names.zip(first..).map(|(name, value)| (name.to_owned(), value.into()));
        serde_json::from_value(serde_json::Value::Object(values.collect())).unwrap()
    }

    fn interface(name: &str, zone: &str, first: usize) -> InterfaceView {
        InterfaceView {
            name: name.into(),
            zone: zone.into(),
            physical: name.split('.').next().unwrap().into(),
            mode: "xdp-native".into(),
            counters: counters(first),
            drops: [(Reason::NoRoute.name().into(), 7), (Reason::Land.name().into(), 8)].into(),
            device_drops: 9,
            ..Default::default()
        }
    }

    fn stats() -> Stats {
        let equation = |left, right| Equation::new(left, right);
        Stats {
            version: "1.2.3".into(),
            generation: 4,
            sessions: SessionCounts {
                v4: 10,
                v6: 11,
                limit4: 12,
                limit6: 13,
                expired: 14,
                unanswered4: 15,
                unanswered6: 16,
            },
            interfaces: vec![interface("wan0.100", "w\"a\\n", 100), interface("lan0.0", "lan", 200)],
            equations: Equations { ingress: equation(20, 23), egress: equation(23, 20) },
            sweeps: 30,
            commits: 31,
            commits_failed: 32,
            gate: GateView {
                grants: 40,
                limit: 41,
                given: 42,
                renewed: 43,
                revoked: 44,
                expired: 45,
                idle: 46,
                refused_full: 47,
                ..Default::default()
            },
            gtpu: GtpuCounts {
                sessions: 38,
                by_configuration: 33,
                limit: 39,
                peers: 34,
                reports: 35,
                spread: vec![GtpuSpreadView { cpu: 1, packets: 43, waiting: 44 }],
            },
            ..Default::default()
        }
    }

    fn nat() -> NatView {
        let rule = NatRuleView {
            kind: "source".into(),
            rule_set: "out".into(),
            name: "r".into(),
            hits: 50,
            sessions: 51,
            live_sessions: 52,
            failed: 53,
            ..Default::default()
        };
        let pool = NatPoolView {
            name: "(interface)".into(),
            addresses_in_use: 60,
            ports_in_use: 61,
            allocated: 62,
            exhausted: 63,
            overflowed: 64,
            ..Default::default()
        };
        NatView {
            rules: vec![rule],
            pools: vec![pool],
            bindings: 70,
            bindings_limit: 71,
            unfragmented: NatUnfragmentedView { late: 72, malformed: 73, busy: 74, refused: 75 },
            ..Default::default()
        }
    }

    #[test]
    fn the_page_is_the_one_kept_and_another_reader_reads_it() {
        let page = text(&stats(), &nat());
        judge::golden("gateway", &page);
        judge::read(&page).unwrap();
    }

    #[test]
    fn a_gateway_without_anything_announces_every_family() {
        let families = |page: &str| judge::read(page).unwrap().into_iter().map(|family| family.name);
        let (full, empty) = (text(&stats(), &nat()), text(&Stats::default(), &NatView::default()));
        assert!(families(&full).eq(families(&empty)));
    }
}
