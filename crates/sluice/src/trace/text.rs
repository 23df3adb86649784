//! Traced packets as text.

use chrono::DateTime;
use sluice_control::api::trace::{TracedHeaders, TracedPacket, TracedPhase};

use crate::drops::end;

/// A packet in a few lines: what it was, and a line for each phase.
pub fn block(told: &TracedPacket) -> String {
    let mut text = head(told);
    let width = told.phases.iter().map(|phase| phase.phase.len()).max().unwrap_or(0);
    for phase in &told.phases {
        text += &format!("\n  {:<width$}  {}", phase.phase, came_to(phase));
    }
    text
}

/// The same in one.
pub fn line(told: &TracedPacket) -> String {
    format!("{}: {}", head(told), told.summary)
}

fn head(told: &TracedPacket) -> String {
    let TracedPacket { interface, from_zone, hook, length, .. } = told;
    let zone = from_zone.as_ref().map_or_else(String::new, |zone| format!("{zone} "));
    format!("{} {zone}{interface} {hook}: {}, {length} bytes", time(told.unix_ns), packet(&told.packet))
}

/// Of the day, in UTC.
fn time(unix_ns: u64) -> String {
    DateTime::from_timestamp_nanos(unix_ns as i64).format("%H:%M:%S%.6f").to_string()
}

fn came_to(phase: &TracedPhase) -> String {
    let (stages, notes) = (phase.stages.join(", "), phase.notes.join("; "));
    match (stages.is_empty(), notes.is_empty()) {
        (true, _) => notes,
        (_, true) => stages,
        _ => format!("{stages}: {notes}"),
    }
}

/// What it was: `tcp 10.0.0.1:4000 > 192.0.2.1:80 syn`.
fn packet(headers: &TracedHeaders) -> String {
    let (Some(source), Some(destination)) = (&headers.source, &headers.destination) else {
        return headers.frame.clone().unwrap_or_else(|| "a frame that is cut off".to_owned());
    };
    let protocol = headers.protocol.as_deref().unwrap_or("arp");
    let ends =
        format!("{} > {}", end(source, headers.source_port), end(destination, headers.destination_port));
    let more = match (headers.icmp, &headers.tcp_flags) {
        (Some((kind, code)), _) => format!(" {kind}/{code}"),
        (_, Some(flags)) => format!(" {flags}"),
        _ => String::new(),
    };
    format!("{protocol} {ends}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_reads_as_a_block_and_as_a_line() {
        let phase = |phase: &str, stages: &[&str], notes: &[&str]| TracedPhase {
            phase: phase.to_owned(),
            stages: stages.iter().map(|stage| (*stage).to_owned()).collect(),
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        };
        let told = TracedPacket {
            unix_ns: 1_001_000,
            hook: "xdp".into(),
            interface: "left0.0".into(),
            from_zone: Some("left".into()),
            length: 74,
            packet: TracedHeaders {
                source: Some("fd00::1".into()),
                source_port: Some(4000),
                destination: Some("fd00::2".into()),
                destination_port: Some(80),
                protocol: Some("tcp".into()),
                tcp_flags: Some("syn".into()),
                ..TracedHeaders::default()
            },
            phases: vec![
                phase("admit", &["entry", "session"], &["no session"]),
                phase("leave", &["exit"], &[]),
            ],
            summary: "dropped: policy_deny".into(),
            ..TracedPacket::default()
        };
        let head = "00:00:00.001001 left left0.0 xdp: tcp [fd00::1]:4000 > [fd00::2]:80 syn, 74 bytes";
        assert_eq!(block(&told), format!("{head}\n  admit  entry, session: no session\n  leave  exit"));
        assert_eq!(line(&told), format!("{head}: dropped: policy_deny"));
    }
}
