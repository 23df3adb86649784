//! The session log: what `then log` asks for, in the names that Junos gives its structured RT_FLOW messages.

use std::cell::RefCell;
use std::fmt::Display;
use std::sync::Arc;
use std::thread;

use sluice_abi::stages::Reason;
use sluice_abi::{
    CLOSE_CLEARED, CLOSE_GRANT, CLOSE_NAT, CLOSE_REOPENED, CLOSE_REVOKED, CLOSE_WITHDRAWN, EVENT_GATE_DENY,
    EVENT_GTPU_ERROR, EVENT_NAT_EXHAUSTED, EVENT_SCREEN, EVENT_SESSION_CLOSE, EVENT_SESSION_CREATE,
    EVENT_SESSION_DENY, TCP_DIR_CLOSED, TCP_DIR_RESET,
};
use sluice_dataplane::{Event, Tuple};
use sluice_plan::nat::Kind;

use crate::api::{LogEntry, LogFields};
use crate::commit::Shared;
use crate::events::syslog::Outputs;
use crate::functions::gtpu::sessions::Report;
use crate::kernel::clock::unix_ms;
use crate::state::active::Active;

/// Reads events for as long as the process lives.
pub fn start(shared: Arc<Shared>) -> std::io::Result<()> {
    let read = move || {
        let hz = u64::from(shared.dataplane.hz());
        let outputs = RefCell::new(Outputs::default());
        let tell = |entry: LogEntry| {
            if !outputs.borrow_mut().send(&entry) {
                tracing::info!(target: "session", "{}", entry.line());
            }
            shared.log.keep(entry);
        };
        let watched = shared.dataplane.watch_events(
            || {
                shared.log.note_read();
                outputs.borrow_mut().follow(&shared);
                shared.log.take_posted().into_iter().for_each(tell);
                true
            },
            |event| {
                // a flood leaves no pause between events
                shared.log.note_read();
                outputs.borrow_mut().follow(&shared);
                tell(entry(&event, &shared.active(), hz));
            },
        );
        if let Err(error) = watched {
            tracing::error!(%error, "the session log has ended; restart the daemon to have it again");
        }
    };
    thread::Builder::new().name("session-log".to_owned()).spawn(read).map(drop)
}

/// What the appliance prints where there is nothing to say.
const NOTHING: &str = "N/A";

/// Fields of an entry, in the order in which they are printed.
struct Fields(LogFields);

impl Fields {
    fn new() -> Self {
        Self(LogFields::roomy())
    }

    fn add(&mut self, name: &'static str, value: impl Display) -> &mut Self {
        self.0.add(name, value);
        self
    }

    fn tuple(&mut self, tuple: &Tuple) -> &mut Self {
        let (source_port, destination_port) = tuple.ports();
        self.add("source-address", tuple.source)
            .add("source-port", source_port)
            .add("destination-address", tuple.destination)
            .add("destination-port", destination_port)
    }

    fn packet(&mut self, event: &Event) -> &mut Self {
        self.tuple(&event.tuple).add("protocol-id", event.tuple.protocol)
    }

    /// What a session is translated to, which is what it was where no rule has matched.
    fn translation(&mut self, event: &Event, active: &Active) -> &mut Self {
        let (source_port, destination_port) = event.out.ports();
        let (source, destination) =
            (rule(event.raw.nat_source, active), rule(event.raw.nat_destination, active));
        self.add("nat-source-address", event.out.source)
            .add("nat-source-port", source_port)
            .add("nat-destination-address", event.out.destination)
            .add("nat-destination-port", destination_port)
            .add("src-nat-rule-type", source.0)
            .add("src-nat-rule-name", source.1)
            .add("dst-nat-rule-type", destination.0)
            .add("dst-nat-rule-name", destination.1)
    }

    /// Nobody looks into sessions to know their applications, nor at who is logged in.
    fn unknown(&mut self) -> &mut Self {
        self.add("application", "UNKNOWN")
            .add("nested-application", "UNKNOWN")
            .add("username", NOTHING)
            .add("roles", NOTHING)
    }

    fn entry(&mut self, event: &'static str) -> LogEntry {
        LogEntry { unix_ms: unix_ms(), event: event.into(), fields: std::mem::take(&mut self.0) }
    }
}

fn entry(event: &Event, active: &Active, hz: u64) -> LogEntry {
    match u32::from(event.raw.kind) {
        EVENT_SCREEN => screen_entry(event, active),
        EVENT_GATE_DENY => gate_entry(event, active),
        EVENT_NAT_EXHAUSTED => exhausted_entry(event, active),
        EVENT_GTPU_ERROR => tunnel_entry(event, active),
        kind => session_entry(kind, event, active, hz),
    }
}

fn session_entry(kind: u32, event: &Event, active: &Active, hz: u64) -> LogEntry {
    let (raw, tuple) = (&event.raw, &event.tuple);
    let mut fields = Fields::new();
    if kind == EVENT_SESSION_CLOSE {
        fields.add("reason", close_reason(event));
    }
    let service = sluice_language::service_name(tuple.protocol, tuple.destination_port);
    fields.tuple(tuple).add("service-name", service.unwrap_or("None"));
    if kind != EVENT_SESSION_DENY {
        fields.translation(event, active);
    }
    fields.add("protocol-id", tuple.protocol);
    if kind == EVENT_SESSION_DENY {
        fields.add("icmp-type", raw.icmp_type);
    }
    fields
        .add("policy-name", active.policy_name(raw.policy))
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("destination-zone-name", active.zone_name(raw.to_zone));
    if kind != EVENT_SESSION_DENY {
        fields.add("session-id-32", raw.session);
    }
    if kind == EVENT_SESSION_CLOSE {
        fields
            .add("packets-from-client", raw.packets[0])
            .add("bytes-from-client", raw.bytes[0])
            .add("packets-from-server", raw.packets[1])
            .add("bytes-from-server", raw.bytes[1])
            .add("elapsed-time", u64::from(raw.age) / hz);
    }
    fields.unknown().add("packet-incoming-interface", active.unit_name(raw.ingress_unit));
    if kind == EVENT_SESSION_DENY {
        fields.add("reason", "Denied by policy");
    }
    fields.entry(name(kind))
}

/// Type and name of a NAT rule, as the appliance calls them.
fn rule(id: u16, active: &Active) -> (&'static str, &str) {
    let Some(rule) = active.nat_rule(id).filter(|_| id != 0) else {
        return (NOTHING, NOTHING);
    };
    let kind = match rule.kind {
        Kind::Source => "source rule",
        Kind::Destination => "destination rule",
        Kind::Static | Kind::Nat64 => "static rule",
    };
    (kind, &rule.name)
}

/// A pool that had nothing free for a first packet.
fn exhausted_entry(event: &Event, active: &Active) -> LogEntry {
    let raw = &event.raw;
    Fields::new()
        .add("nat-pool-name", active.nat_pool_name(raw.policy))
        .add("nat-rule-name", active.nat_rule_name(raw.session as u16).unwrap_or_else(|| "-".to_owned()))
        .packet(event)
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("packet-incoming-interface", active.unit_name(raw.ingress_unit))
        .entry("RT_SRC_NAT_OUTOF_PORTS")
}

/// A peer that does not know a tunnel any more says so (TS 29.281 7.3.1). What becomes of the session is its owner's to say.
fn tunnel_entry(event: &Event, active: &Active) -> LogEntry {
    let raw = &event.raw;
    Fields::new()
        .add("peer-address", event.tuple.source)
        .add("peer-teid", format_args!("{:#010x}", raw.policy))
        .add("tunnel-address", event.tuple.destination)
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("interface-name", active.unit_name(raw.ingress_unit))
        .entry("RT_GTPU_ERROR_INDICATION")
}

/// What has passed of a session, when a threshold was passed, its time is over or a commit has ended it (TS 29.244 7.5.8.3).
pub fn usage_entry(report: &Report) -> LogEntry {
    let told = &report.told;
    let elapsed = report.since.map(|since| told.at.saturating_sub(since).to_string());
    Fields::new()
        .add("session-name", &report.name)
        .add("teid", format_args!("{:#010x}", report.teid))
        .add("reason", &told.trigger)
        .add("report-number", report.number)
        .add("bytes-from-client", told.bytes[0])
        .add("packets-from-client", told.packets[0])
        .add("bytes-from-server", told.bytes[1])
        .add("packets-from-server", told.packets[1])
        .add("elapsed-time", elapsed.as_deref().unwrap_or(NOTHING))
        .entry("RT_GTPU_USAGE_REPORT")
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
    Fields::new()
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
    Fields::new()
        .add("reason", reason.map_or("unknown", |reason| reason.name()))
        .packet(event)
        .add("service-name", active.plan.gate.services.get(&raw.policy).map_or("-", String::as_str))
        .add("source-zone-name", active.zone_name(raw.from_zone))
        .add("interface-name", active.unit_name(raw.ingress_unit))
        .entry("RT_GATE_DENY")
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
        _ if event.raw.tcp_state.iter().any(|state| *state & TCP_DIR_RESET != 0) => "TCP RST",
        _ if event.raw.tcp_state.iter().all(|state| *state >= TCP_DIR_CLOSED) => "TCP FIN",
        _ => "idle Timeout",
    }
}
