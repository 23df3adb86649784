//! The session log: what `then log` asks for, in the names that Junos gives its structured RT_FLOW messages.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_abi::stages::Reason;
use sluice_abi::{
    CLOSE_CLEARED, CLOSE_GRANT, CLOSE_NAT, CLOSE_REOPENED, CLOSE_REVOKED, EVENT_GATE_DENY,
    EVENT_NAT_EXHAUSTED, EVENT_SCREEN, EVENT_SESSION_CLOSE, EVENT_SESSION_CREATE, EVENT_SESSION_DENY,
    TCP_DIR_CLOSED,
};
use sluice_dataplane::Event;

use crate::api::LogEntry;
use crate::shared::{Active, Shared};

/// Entries that `sluice show log` can still show.
const KEPT: usize = 1000;

#[derive(Debug, Default)]
pub struct SessionLog(Mutex<VecDeque<LogEntry>>);

impl SessionLog {
    /// The newest entries, oldest first.
    pub fn last(&self, count: usize) -> Vec<LogEntry> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().skip(entries.len().saturating_sub(count)).cloned().collect()
    }

    fn keep(&self, entry: LogEntry) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }
}

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

fn entry(event: &Event, active: &Active, hz: u64) -> LogEntry {
    let raw = &event.raw;
    if u32::from(raw.kind) == EVENT_SCREEN {
        return screen_entry(event, active);
    }
    if u32::from(raw.kind) == EVENT_GATE_DENY {
        return gate_entry(event, active);
    }
    if u32::from(raw.kind) == EVENT_NAT_EXHAUSTED {
        return exhausted_entry(event, active);
    }
    let mut fields = vec![];
    let mut field = |name: &str, value: String| fields.push((name.to_owned(), value));
    if u32::from(raw.kind) == EVENT_SESSION_CLOSE {
        field("reason", close_reason(event).to_owned());
    }
    field("source-address", event.tuple.source.to_string());
    field("source-port", event.tuple.source_port.to_string());
    field("destination-address", event.tuple.destination.to_string());
    field("destination-port", event.tuple.destination_port.to_string());
    field("protocol-id", event.tuple.protocol.to_string());
    field("policy-name", active.policy_name(raw.policy));
    field("source-zone-name", active.zone_name(raw.from_zone));
    field("destination-zone-name", active.zone_name(raw.to_zone));
    if u32::from(raw.kind) != EVENT_SESSION_DENY {
        field("session-id", raw.session.to_string());
    }
    field("packet-incoming-interface", active.unit_name(raw.ingress_unit));
    if u32::from(raw.kind) == EVENT_SESSION_CLOSE {
        for (side, index) in [("client", 0), ("server", 1)] {
            field(&format!("packets-from-{side}"), raw.packets[index].to_string());
            field(&format!("bytes-from-{side}"), raw.bytes[index].to_string());
        }
        field("elapsed-time", (u64::from(raw.age) / hz).to_string());
    }
    LogEntry { unix_ms: unix_ms(), event: name(u32::from(raw.kind)).to_owned(), fields }
}

/// A pool that had nothing free for a first packet.
fn exhausted_entry(event: &Event, active: &Active) -> LogEntry {
    let (raw, tuple) = (&event.raw, &event.tuple);
    let fields = [
        ("nat-pool-name", active.nat_pool_name(raw.policy)),
        ("nat-rule-name", active.nat_rule_name(raw.session as u16).unwrap_or_else(|| "-".to_owned())),
        ("source-address", tuple.source.to_string()),
        ("source-port", tuple.source_port.to_string()),
        ("destination-address", tuple.destination.to_string()),
        ("destination-port", tuple.destination_port.to_string()),
        ("protocol-id", tuple.protocol.to_string()),
        ("source-zone-name", active.zone_name(raw.from_zone)),
        ("packet-incoming-interface", active.unit_name(raw.ingress_unit)),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).to_vec();
    LogEntry { unix_ms: unix_ms(), event: "RT_SRC_NAT_OUTOF_PORTS".to_owned(), fields }
}

/// What a screen recognised: at most one entry a second for each screen of a zone on each CPU.
fn screen_entry(event: &Event, active: &Active) -> LogEntry {
    let (raw, tuple) = (&event.raw, &event.tuple);
    let check = Reason::ALL.get(usize::from(raw.screen));
    let action = if raw.passed != 0 { "alarm-without-drop" } else { "drop" };
    let fields = [
        ("attack-name", check.map_or("unknown", |reason| reason.name()).to_owned()),
        ("source-address", tuple.source.to_string()),
        ("source-port", tuple.source_port.to_string()),
        ("destination-address", tuple.destination.to_string()),
        ("destination-port", tuple.destination_port.to_string()),
        ("protocol-id", tuple.protocol.to_string()),
        ("source-zone-name", active.zone_name(raw.from_zone)),
        ("interface-name", active.unit_name(raw.ingress_unit)),
        ("action", action.to_owned()),
    ];
    let event = match tuple.protocol {
        1 | 58 => "RT_SCREEN_ICMP",
        6 => "RT_SCREEN_TCP",
        17 => "RT_SCREEN_UDP",
        _ => "RT_SCREEN_IP",
    };
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).to_vec();
    LogEntry { unix_ms: unix_ms(), event: event.to_owned(), fields }
}

/// What the gate refused: at most one entry a second for each zone and reason on each CPU.
fn gate_entry(event: &Event, active: &Active) -> LogEntry {
    let (raw, tuple) = (&event.raw, &event.tuple);
    let reason = Reason::ALL.get(usize::from(raw.screen));
    let service = active.plan.gate.services.get(&raw.policy).map_or("-", String::as_str);
    let fields = [
        ("reason", reason.map_or("unknown", |reason| reason.name()).to_owned()),
        ("source-address", tuple.source.to_string()),
        ("source-port", tuple.source_port.to_string()),
        ("destination-address", tuple.destination.to_string()),
        ("destination-port", tuple.destination_port.to_string()),
        ("protocol-id", tuple.protocol.to_string()),
        ("service-name", service.to_owned()),
        ("source-zone-name", active.zone_name(raw.from_zone)),
        ("interface-name", active.unit_name(raw.ingress_unit)),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value)).to_vec();
    LogEntry { unix_ms: unix_ms(), event: "RT_GATE_DENY".to_owned(), fields }
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
        _ if event.raw.tcp_state == [TCP_DIR_CLOSED; 2] => "TCP closed",
        _ => "idle timeout",
    }
}
