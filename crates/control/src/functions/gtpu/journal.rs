//! The sessions that were made over the API, as they outlive the daemon: a line of JSON for each that is made or changed, and
//! for each that ends.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::meters::Meter;
use crate::api::GtpuSessionRequest;
use crate::state::files;
use crate::state::store::{GTPU_SESSIONS as NAME, Store};

/// What became of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// It is as it says from here on.
    Put(GtpuSessionRequest),
    /// The session of this name is no more.
    End(String),
    /// What was told of a session.
    Meter(Meter),
}

/// What stands in a journal, by name.
#[derive(Debug, Default)]
pub struct Written {
    pub sessions: BTreeMap<String, GtpuSessionRequest>,
    pub meters: BTreeMap<String, Meter>,
}

/// Lines that a file may have for nothing before it is written anew.
const IDLE: usize = 4096;

#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    /// None = nothing is written here.
    file: Option<File>,
    lines: usize,
}

impl Journal {
    /// That of a state directory, and what stands in it. What a crash has cut off is no line.
    pub fn open(store: &Store) -> io::Result<(Journal, Written)> {
        let (sessions, lines, whole) = read(store.dir())?;
        let mut file = append(store.dir())?;
        if file.metadata()?.len() > whole {
            file.set_len(whole)?;
            file.flush()?;
        }
        Ok((Journal { dir: store.dir().to_owned(), file: Some(file), lines }, sessions))
    }

    /// What stands there, for who only reads.
    pub fn look(dir: &Path) -> io::Result<(Journal, Written)> {
        let (sessions, lines, _) = read(dir)?;
        Ok((Journal { dir: dir.to_owned(), file: None, lines }, sessions))
    }

    /// Lasts when this returns.
    pub fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("nothing is written here")) };
        let mut text = Vec::with_capacity(lines.len() * 160);
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        let before = file.metadata()?.len();
        let written = file.write_all(&text).and_then(|()| file.sync_data());
        if written.is_err() {
            // half a line is none, and takes the room that is missing
            let _ = file.set_len(before);
        }
        self.lines += lines.len();
        written
    }

    /// Writes the file anew when most of it says what is no more.
    pub fn tidy(&mut self, count: usize, lines: impl Iterator<Item = Line>) -> io::Result<()> {
        if self.file.is_none() || self.lines <= 2 * count + IDLE {
            return Ok(());
        }
        let mut text = Vec::with_capacity(count * 160);
        for line in lines {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        files::replace(&self.dir, NAME, &text)?;
        self.file = Some(append(&self.dir)?);
        self.lines = count;
        Ok(())
    }
}

fn append(dir: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(dir.join(NAME))
}

/// Sessions, how many lines said so, and how many bytes these have.
fn read(dir: &Path) -> io::Result<(Written, usize, u64)> {
    let text = match std::fs::read(dir.join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => vec![],
        text => text?,
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let (mut written, mut count) = (Written::default(), 0);
    for (number, line) in (1..).zip(text[..whole].split_inclusive(|byte| *byte == b'\n')) {
        count += 1;
        match serde_json::from_slice(line) {
            Ok(Line::Put(session)) => drop(written.sessions.insert(session.name.clone(), session)),
            Ok(Line::End(name)) => {
                written.sessions.remove(&name);
                written.meters.remove(&name);
            }
            Ok(Line::Meter(meter)) => drop(written.meters.insert(meter.name.clone(), meter)),
            Err(error) => {
                tracing::error!(%error, line = number, file = NAME, "a line cannot be read and is passed over")
            }
        }
    }
    Ok((written, count, whole as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str, teid: u32) -> GtpuSessionRequest {
        GtpuSessionRequest { name: name.to_owned(), teid: Some(teid), ..Default::default() }
    }

    #[test]
    fn what_was_written_is_read_and_what_was_cut_off_is_not() {
        let dir = std::env::temp_dir().join(format!("sluice-gtpu-journal-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let store = Store::lock(&dir).unwrap();
        let (mut journal, sessions) = Journal::open(&store).unwrap();
        assert!(sessions.sessions.is_empty());
        journal
            .write(&[Line::Put(session("a", 1)), Line::Put(session("b", 2)), Line::Put(session("b", 3))])
            .unwrap();
        journal.write(&[Line::End("a".to_owned())]).unwrap();
        let path = dir.join(NAME);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"put\":{\"name\":\"c\""].concat()).unwrap();
        let (mut journal, sessions) = Journal::open(&store).unwrap();
        assert_eq!(sessions.sessions.into_values().collect::<Vec<_>>(), [session("b", 3)]);
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        journal.lines = 3 + IDLE;
        journal.tidy(1, [Line::Put(session("b", 3))].into_iter()).unwrap();
        journal.write(&[Line::Put(session("d", 4))]).unwrap();
        let (journal, sessions) = Journal::look(&dir).unwrap();
        assert_eq!((journal.lines, sessions.sessions.len()), (2, 2));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
