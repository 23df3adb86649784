//! What comes to a log: lines of a file that may be rotated meanwhile, entries that the daemon remembers.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_control::api::LogEntry;

/// How soon something new is seen.
pub const LOOK: Duration = Duration::from_millis(200);
/// Of a file's end, where its last lines are looked for.
const TAIL_BYTES: u64 = 64 << 10;

/// A file that grows, and gives its name to another one when it is full.
pub struct Growing {
    path: PathBuf,
    file: BufReader<File>,
    /// Device and number of the file.
    identity: (u64, u64),
    /// Lines that were there.
    before: Vec<String>,
    /// A line that is under way.
    begun: Vec<u8>,
}

impl Growing {
    /// Begins with the last lines that are there.
    pub fn open(path: &Path, last: usize) -> io::Result<Self> {
        let mut growing = Self::begin(path)?;
        let length = growing.file.get_ref().metadata()?.len();
        growing.file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut before = growing.lines()?;
        before.drain(..before.len().saturating_sub(last));
        growing.before = before;
        Ok(growing)
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        let (before, begun) = (vec![], vec![]);
        Ok(Self { path: path.to_owned(), file: BufReader::new(file), identity, before, begun })
    }

    /// Whole lines that have come.
    pub fn next(&mut self) -> io::Result<Vec<String>> {
        let mut new = std::mem::take(&mut self.before);
        // looked at before the end is read: nobody writes to a file that has lost its name
        let is_another = self.is_another()?;
        new.extend(self.lines()?);
        if is_another {
            match Self::begin(&self.path) {
                Ok(next) => *self = next,
                // between two names
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(new),
                Err(error) => return Err(error),
            }
            new.extend(self.lines()?);
        }
        Ok(new)
    }

    /// Another file has the name, or this one was begun anew.
    fn is_another(&mut self) -> io::Result<bool> {
        let at = self.file.stream_position()?;
        match fs::metadata(&self.path) {
            Ok(now) => Ok((now.dev(), now.ino()) != self.identity || now.len() < at),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = vec![];
        loop {
            let read = self.file.by_ref().take(TAIL_BYTES).read_until(b'\n', &mut self.begun)?;
            if read == 0 {
                return Ok(lines);
            }
            if self.begun.last() == Some(&b'\n') || self.begun.len() as u64 >= TAIL_BYTES {
                let line = std::mem::take(&mut self.begun);
                lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
        }
    }
}

/// Entries of the session log, of which the daemon tells the newest.
pub struct Sessions {
    first: Option<usize>,
    newest: Option<LogEntry>,
}

impl Sessions {
    /// As many as it remembers.
    pub const MOST: usize = 1000;

    /// Begins with the last entries that are there.
    pub fn new(last: usize) -> Self {
        Self { first: Some(last), newest: None }
    }

    /// What is said where entries are missing.
    pub const GAP: &str = "entries are missing here: more than 1000 came at once, and the daemon remembers no more; a `file` or \
                           `stream` of `security log` has them all";

    /// Those that have come, of all that the daemon remembers; true where it has forgotten some before them.
    pub fn next(&mut self, all: &[LogEntry]) -> (bool, Vec<LogEntry>) {
        let (new, is_first) = match (self.first.take(), &self.newest) {
            (Some(last), _) => (&all[all.len().saturating_sub(last)..], true),
            (None, Some(newest)) => {
                let known = all.iter().rposition(|entry| entry == newest);
                (&all[known.map_or(0, |at| at + 1)..], false)
            }
            (None, None) => (all, false),
        };
        if let Some(newest) = all.last() {
            self.newest = Some(newest.clone());
        }
        (!is_first && new.len() >= Self::MOST, new.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_followed_over_its_rotation() {
        let dir = std::env::temp_dir().join(format!("sluice-follow-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("log");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut growing = Growing::open(&path, 2).unwrap();
        assert_eq!(growing.next().unwrap(), ["two", "three"]);
        let mut old = File::options().append(true).open(&path).unwrap();
        old.write_all(b"four\nfi").unwrap();
        assert_eq!(growing.next().unwrap(), ["four"]);
        fs::rename(&path, dir.join("log.1")).unwrap();
        old.write_all(b"ve\n").unwrap();
        assert_eq!(growing.next().unwrap(), ["five"]);
        fs::write(&path, "six\n").unwrap();
        assert_eq!(growing.next().unwrap(), ["six"]);
        // begun anew in its place
        fs::write(&path, "7\n").unwrap();
        assert_eq!(growing.next().unwrap(), ["7"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn entries_are_told_once() {
        let entry = |unix_ms| LogEntry { unix_ms, ..LogEntry::default() };
        let all: Vec<LogEntry> = (0..6).map(entry).collect();
        let mut sessions = Sessions::new(2);
        assert_eq!(sessions.next(&all[..4]), (false, all[2..4].to_vec()));
        assert_eq!(sessions.next(&all[..4]), (false, vec![]));
        assert_eq!(sessions.next(&all), (false, all[4..].to_vec()));
        // a daemon that has begun anew
        assert_eq!(sessions.next(&[entry(8), entry(9)]), (false, vec![entry(8), entry(9)]));
        // it has forgotten what was told last
        let many: Vec<LogEntry> = (100..100 + Sessions::MOST as u64).map(entry).collect();
        assert_eq!(sessions.next(&many), (true, many.clone()));
        let mut sessions = Sessions::new(Sessions::MOST);
        assert!(!sessions.next(&many).0, "what was before is no gap");
    }
}
