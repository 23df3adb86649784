//! The audit of grants: who was given what, and what became of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use sluice_dataplane::{Ended, GrantKey, GrantRecord};
use sluice_plan::GatePlan;

use crate::state::store::{Store, StoreError};

/// Append-only: a line of JSON for every grant and every end of one.
#[derive(Debug)]
pub struct Audit(Mutex<Book>);

/// Ends that could not be written wait for so many bytes of lines; that is as many as there are grants by default.
const MOST_OWED: usize = 32 << 20;

#[derive(Debug)]
struct Book {
    file: File,
    /// Ends of grants that have no line yet.
    owed: Vec<u8>,
}

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
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self(Mutex::new(Book { file, owed: vec![] })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of these lines or none.
    pub fn write(&self, lines: &[u8]) -> io::Result<()> {
        let mut book = self.book();
        book.settle()?;
        book.append(lines)
    }

    /// Lines of what has happened already: if they cannot be written now, they are later.
    pub fn note(&self, lines: &[u8]) -> io::Result<()> {
        let mut book = self.book();
        if book.owed.len() + lines.len() <= MOST_OWED {
            book.owed.extend_from_slice(lines);
        } else {
            let lost = lines.iter().filter(|byte| **byte == b'\n').count();
            tracing::error!(
                lost,
                "the audit cannot be written, and too much waits for it: ends of grants have no line"
            );
        }
        book.settle()
    }

    /// Writes what waits for it.
    pub fn settle(&self) -> io::Result<()> {
        self.book().settle()
    }
}

impl Book {
    fn settle(&mut self) -> io::Result<()> {
        if self.owed.is_empty() {
            return Ok(());
        }
        let owed = std::mem::take(&mut self.owed);
        let written = self.append(&owed);
        if written.is_err() {
            self.owed = owed;
        }
        written
    }

    /// A file system that fills up in the midst takes lines of grants that nobody gets, and half a line.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        self.file.write_all(lines).inspect_err(|_| {
            if let Err(error) = self.file.set_len(before) {
                tracing::debug!(%error, "the audit stays as it is");
            }
        })
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

#[cfg(test)]
mod tests {
    use std::fs;

    use nix::mount::{MsFlags, mount, umount};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// In a file system of two pages.
    fn in_little_room(test: impl FnOnce(&Path)) {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let dir = std::env::temp_dir().join(format!("sluice-audit-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        mount(Some("tmpfs"), &dir, Some("tmpfs"), MsFlags::empty(), Some("size=8192")).unwrap();
        test(&dir);
        umount(&dir).unwrap();
        fs::remove_dir(&dir).unwrap();
    }

    fn what_finds_room(dir: &Path) {
        let path = dir.join("audit");
        let audit = Audit::open(&path).unwrap();
        audit.write(b"first\n").unwrap();
        let long = [&[b'x'; 3000][..], b"\n", &[b'y'; 9000], b"\n"].concat();
        assert!(audit.write(&long).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"first\n", "neither a line nor half of one");
        let filler = dir.join("filler");
        fs::write(&filler, [0; 8192]).unwrap_err();
        let end = [&[b'z'; 5000][..], b"\n"].concat();
        assert!(audit.note(&end).is_err());
        assert!(audit.write(b"a grant\n").is_err(), "not before what happened before it");
        fs::remove_file(&filler).unwrap();
        audit.write(b"a grant\n").unwrap();
        assert_eq!(fs::read(&path).unwrap(), [b"first\n", &end[..], b"a grant\n"].concat());
    }

    #[test]
    fn lines_are_written_whole_and_those_of_ends_when_there_is_room() {
        std::thread::spawn(|| in_little_room(what_finds_room)).join().unwrap();
    }
}
