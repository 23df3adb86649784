//! One entry as a syslog message: RFC 5424, its fields as structured data.

use std::fmt::Write;

use chrono::{DateTime, SecondsFormat};

use crate::api::LogEntry;
use crate::state::messages::Said;

/// user.info (RFC 5424 6.2.1), as the appliance sends its own.
const PRIORITY: u8 = 14;
/// Below the enterprise number that RFC 5612 keeps for examples: Sluice has none of its own.
const STRUCTURE: &str = "sluice@32473";

/// Who writes messages: this host, and the time, which many have in common.
#[derive(Default)]
pub struct Writer {
    pub host: String,
    unix_ms: u64,
    time: String,
}

impl Writer {
    fn know_time(&mut self, unix_ms: u64) {
        if self.time.is_empty() || self.unix_ms != unix_ms {
            (self.unix_ms, self.time) = (unix_ms, timestamp(unix_ms));
        }
    }

    pub fn message(&mut self, entry: &LogEntry) -> Vec<u8> {
        self.know_time(entry.unix_ms);
        let Self { host, time, .. } = self;
        let (application, event) = (application(&entry.event), &entry.event);
        let mut text = String::with_capacity(1024);
        let _ = write!(text, "<{PRIORITY}>1 {time} {host} {application} - {event} [{STRUCTURE}");
        entry.fields.write(&mut text);
        text.push(']');
        text.into_bytes()
    }
}

/// RFC 5424 6.2.3
fn timestamp(unix_ms: u64) -> String {
    let time = DateTime::from_timestamp_millis(unix_ms as i64).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// A message of the gateway itself; what belongs to it stands in its structured data or behind its text.
pub fn own(said: &Said, host: &str, structured: bool) -> Vec<u8> {
    let (time, process) = (timestamp(said.unix_ms), std::process::id());
    let priority = facility(said.facility) * 8 + said.severity;
    let mut text = format!("<{priority}>1 {time} {host} sluice {process} - ");
    let has_data = structured && !said.fields.is_empty();
    text += if has_data { "[" } else { "- " };
    if has_data {
        text += STRUCTURE;
        said.fields.write(&mut text);
        text += "] ";
    }
    text += &said.text;
    if !structured {
        said.fields.write(&mut text);
    }
    // a message is a line
    text.replace(|character: char| character.is_control(), " ").into_bytes()
}

/// Numbers of RFC 5424 6.2.1, as the appliance sends its own.
fn facility(name: &str) -> u8 {
    const LOCAL6: u8 = 22;
    const DAEMON: u8 = 3;
    if name == "change-log" { LOCAL6 } else { DAEMON }
}

/// APP-NAME, by which the appliance tells its daemons apart.
fn application(event: &str) -> &'static str {
    const NAMES: [(&str, &str); 5] = [
        ("RT_FLOW", "RT_FLOW"),
        ("RT_SCREEN", "RT_IDS"),
        ("RT_SRC_NAT", "RT_NAT"),
        ("RT_GATE", "RT_GATE"),
        ("RT_GTPU", "RT_GTPU"),
    ];
    NAMES.iter().find(|(prefix, _)| event.starts_with(prefix)).map_or("RT_LOG", |(_, name)| name)
}

/// HOSTNAME: at most 255 printable characters without a space, else the NILVALUE.
pub fn host(configured: Option<&str>) -> String {
    let own = || Some(std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned());
    let name = configured.map(str::to_owned).or_else(own).unwrap_or_default();
    let fits = !name.is_empty() && name.len() <= 255 && name.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { name } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::LogFields;

    #[test]
    fn what_would_end_a_value_is_escaped() {
        let mut fields = LogFields::default();
        fields.add("policy-name", r#"a"b\c]d"#);
        fields.add("protocol-id", 6);
        let entry = LogEntry { unix_ms: 1_795_000_000_123, event: "RT_FLOW_SESSION_DENY".into(), fields };
        let mut writer = Writer { host: "gw".to_owned(), ..Writer::default() };
        assert_eq!(
            String::from_utf8(writer.message(&entry)).unwrap(),
            r#"<14>1 2026-11-18T11:06:40.123Z gw RT_FLOW - RT_FLOW_SESSION_DENY [sluice@32473 policy-name="a\"b\\c\]d" protocol-id="6"]"#
        );
    }

    #[test]
    fn an_own_message_is_a_line_whatever_is_said() {
        let mut fields = LogFields::default();
        fields.add("comment", "a \"b\" ]");
        let said = Said {
            unix_ms: 1_795_000_000_123,
            facility: "change-log",
            severity: 6,
            text: "commit\ncomplete".to_owned(),
            fields,
        };
        let begin = format!("<182>1 2026-11-18T11:06:40.123Z gw sluice {} - ", std::process::id());
        let written = |structured| String::from_utf8(own(&said, "gw", structured)).unwrap();
        let (plain, data) = (written(false), written(true));
        assert_eq!(plain.strip_prefix(&begin), Some(r#"- commit complete comment="a \"b\" \]""#));
        assert_eq!(data.strip_prefix(&begin), Some(r#"[sluice@32473 comment="a \"b\" \]"] commit complete"#));
    }

    #[test]
    fn a_host_name_that_syslog_cannot_carry_is_left_out() {
        assert_eq!(host(Some("gw.example.net")), "gw.example.net");
        assert_eq!(host(Some("g w")), "-");
        assert_eq!(host(Some(&"g".repeat(256))), "-");
    }
}
