//! The audit of grants: who was given what, and what became of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use sluice_dataplane::{Ended, GrantKey, GrantRecord};
use sluice_plan::GatePlan;

use crate::state::store::{Store, StoreError};

/// Append-only: a line of JSON for every grant and every end of one.
#[derive(Debug)]
pub struct Audit(Mutex<File>);

#[derive(Serialize)]
struct AuditLine<'a> {
    time: &'a str,
    event: &'a str,
    grant: u32,
    user: &'a str,
    source: String,
    service: &'a str,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    idle_timeout_s: Option<u32>,
    absolute_timeout_s: Option<u32>,
    sessions: u32,
}

impl Audit {
    pub fn of(store: &Store) -> Result<Self, StoreError> {
        let path = store.audit();
        Self::open(&path).map_err(|source| StoreError::Io { action: "open", path, source })
    }

    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(path).map(Mutex::new).map(Self)
    }

    pub fn write(&self, lines: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(lines)
    }
}

/// Who does something, and what it is called.
#[derive(Clone, Copy)]
pub struct Act<'a> {
    pub event: &'a str,
    pub by: &'a str,
    pub reason: Option<&'a str>,
}

pub fn lines(records: &[GrantRecord], names: &GatePlan, hz: u64, act: Act) -> Vec<u8> {
    let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
    let mut text = Vec::with_capacity(records.len() * 200);
    for record in records {
        let by_limit = match record.ended {
            Some(Ended::Expired) => Some("absolute-timeout"),
            Some(Ended::Idle) => Some("idle-timeout"),
            _ => None,
        };
        let line = AuditLine {
            time: &time,
            event: if by_limit.is_some() && act.event == "revoke" { "expire" } else { act.event },
            grant: record.handle,
            user: &record.user,
            source: source_text(&record.key),
            service: service_name(names, record.key.service),
            by: if by_limit.is_some() { "limit" } else { act.by },
            reason: by_limit.or(act.reason),
            idle_timeout_s: record.idle.map(|jiffies| (u64::from(jiffies) / hz) as u32),
            absolute_timeout_s: record.deadline.map(|end| (end.saturating_sub(record.created) / hz) as u32),
            sessions: record.sessions,
        };
        // Strings and numbers always are JSON.
        if serde_json::to_writer(&mut text, &line).is_ok() {
            text.push(b'\n');
        }
    }
    text
}

pub fn service_name(names: &GatePlan, id: u16) -> &str {
    names.services.get(&id.into()).map_or("-", String::as_str)
}

pub fn source_text(key: &GrantKey) -> String {
    format!("{}/{}", key.source, key.length)
}
