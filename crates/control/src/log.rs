//! The session log: what `then log` asks for, in the names that Junos gives its structured RT_FLOW messages.

use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_abi::stages::Reason;
use sluice_abi::{
    CLOSE_CLEARED, CLOSE_GRANT, CLOSE_NAT, CLOSE_REOPENED, CLOSE_REVOKED, CLOSE_WITHDRAWN, EVENT_GATE_DENY,
    EVENT_NAT_EXHAUSTED, EVENT_SCREEN, EVENT_SESSION_CLOSE, EVENT_SESSION_CREATE, EVENT_SESSION_DENY,
    TCP_DIR_CLOSED,
};
use sluice_dataplane::Event;

use crate::api::LogEntry;
use crate::shared::{Active, Shared};

/// Reads events for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let read = move || {
        let hz = u64::from(shared.dataplane.hz());
        let watched = shared.dataplane.watch_events(
            || true,
            |event| {
                let entry = entry(&event, &shared.active(), hz);
                tracing::info!(target: "session", "{}", entry.line());
                shared.log.keep(entry);
            },
        );
        if let Err(error) = watched {
            tracing::error!(%error, "the session log has ended; restart the daemon to have it again");
        }
    };
    thread::Builder::new().name("session-log".to_owned()).spawn(read).map(drop)
}

/// Fields of an entry, in the order in which they are printed.
#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    fn add(&mut self, name: impl Into<String>, value: impl ToString) -> &mut Self {
        self.0.push((name.into(), value.to_string()));
        self
    }

    fn packet(&mut self, event: &Event) -> &mut Self {
        let tuple = &event.tuple;
        self.add("source-address", tuple.source)
            .add("source-port", tuple.source_port)
            .add("destination-address", tuple.destination)
            .add("destination-port", tuple.destination_port)
            .add("protocol-id", tuple.protocol)
    }

    fn entry(&mut self, event: &str) -> LogEntry {
        LogEntry { unix_ms: unix_ms(), event: event.to_owned(), fields: std::mem::take(&mut self.0) }
    }
}

fn entry(event: &Event, active: &Active, hz: u64) -> LogEntry {
    match u32::from(event.raw.kind) {
        EVENT_SCREEN => screen_entry(event, active),
        EVENT_GATE_DENY => gate_entry(event, active),
        EVENT_NAT_EXHAUSTED => exhausted_entry(event, active),
        kind => session_entry(kind, event, active, hz),
    }
}

fn session_entry(kind: u32, event: &Event, active: &Active, hz: u64) -> LogEntry {
    let raw = &event.raw;
    let mut fields = Fields::default();
    if kind == EVENT_SESSION_CLOSE {
        fields.add("reason", close_reason(event));
    }
    fields
        .packet(event)
        .add("policy-name", active.policy_name(raw.policy))
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("destination-zone-name", active.zone_name(raw.to_zone));
    if kind != EVENT_SESSION_DENY {
        fields.add("session-id", raw.session);
    }
    fields.add("packet-incoming-interface", active.unit_name(raw.ingress_unit));
    if kind == EVENT_SESSION_CLOSE {
        for (side, index) in [("client", 0), ("server", 1)] {
            fields
                .add(format!("packets-from-{side}"), raw.packets[index])
                .add(format!("bytes-from-{side}"), raw.bytes[index]);
        }
        fields.add("elapsed-time", u64::from(raw.age) / hz);
    }
    fields.entry(name(kind))
}

/// A pool that had nothing free for a first packet.
fn exhausted_entry(event: &Event, active: &Active) -> LogEntry {
    let raw = &event.raw;
    Fields::default()
        .add("nat-pool-name", active.nat_pool_name(raw.policy))
        .add("nat-rule-name", active.nat_rule_name(raw.session as u16).unwrap_or_else(|| "-".to_owned()))
        .packet(event)
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("packet-incoming-interface", active.unit_name(raw.ingress_unit))
        .entry("RT_SRC_NAT_OUTOF_PORTS")
}

/// What a screen recognised: at most one entry a second for each screen of a zone on each CPU.
fn screen_entry(event: &Event, active: &Active) -> LogEntry {
    let raw = &event.raw;
    let attack = Reason::BY_NUMBER.get(usize::from(raw.screen));
    let name = match event.tuple.protocol {
        1 | 58 => "RT_SCREEN_ICMP",
        6 => "RT_SCREEN_TCP",
        17 => "RT_SCREEN_UDP",
        _ => "RT_SCREEN_IP",
    };
    Fields::default()
        .add("attack-name", attack.map_or("unknown", |reason| reason.name()))
        .packet(event)
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("interface-name", active.unit_name(raw.ingress_unit))
        .add("action", if raw.passed != 0 { "alarm-without-drop" } else { "drop" })
        .entry(name)
}

/// What the gate refused: at most one entry a second for each zone and reason on each CPU.
fn gate_entry(event: &Event, active: &Active) -> LogEntry {
    let raw = &event.raw;
    let reason = Reason::BY_NUMBER.get(usize::from(raw.screen));
    Fields::default()
        .add("reason", reason.map_or("unknown", |reason| reason.name()))
        .packet(event)
        .add("service-name", active.plan.gate.services.get(&raw.policy).map_or("-", String::as_str))
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("interface-name", active.unit_name(raw.ingress_unit))
        .entry("RT_GATE_DENY")
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn name(kind: u32) -> &'static str {
    match kind {
        EVENT_SESSION_CREATE => "RT_FLOW_SESSION_CREATE",
        EVENT_SESSION_CLOSE => "RT_FLOW_SESSION_CLOSE",
        EVENT_SESSION_DENY => "RT_FLOW_SESSION_DENY",
        _ => "RT_FLOW_UNKNOWN",
    }
}

fn close_reason(event: &Event) -> &'static str {
    match u32::from(event.raw.close) {
        CLOSE_CLEARED => "cleared",
        CLOSE_REVOKED => "policy changed",
        CLOSE_REOPENED => "reopened",
        CLOSE_GRANT => "grant ended",
        CLOSE_NAT => "NAT changed",
        CLOSE_WITHDRAWN => "could not leave",
        _ if event.raw.tcp_state.iter().all(|state| *state >= TCP_DIR_CLOSED) => "TCP closed",
        _ => "idle timeout",
    }
}
