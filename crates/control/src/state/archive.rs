//! What was committed before, the rescue configuration, and the candidate, as they stand in the state directory.
//!
//! A file of the history is two compressed parts: what is to be said of a commit, and its text. It is written when another
//! commit replaces it, so that a commit writes as much however long the history is.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::kernel::clock::Deadline;
use crate::state::error::StoreError;
use crate::state::files;

/// Commits before the one in force.
pub const KEPT: usize = 50;

const HISTORY: &str = "history";
const RESCUE: &str = "rescue.json";
const CANDIDATE: &str = "candidate.json";

/// What is remembered of a commit besides its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Rises with every commit; 0 is of a version that kept no history.
    pub serial: u64,
    pub unix_ms: u64,
    pub user: String,
    pub client: String,
    pub comment: Option<String>,
    pub file: String,
}

/// The client of commits that a start makes of an earlier one, since the one after it cannot be used.
pub const FALLBACK: &str = "start";

impl Commit {
    /// Nobody has asked for it.
    pub fn is_fallback(&self) -> bool {
        self.client == FALLBACK
    }
}

/// A commit that does not stay by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// The commit that comes back.
    pub back_to: u64,
    pub deadline: Deadline,
}

/// A commit with its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    pub commit: Commit,
    pub text: String,
}

/// A candidate that differs from what is in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    pub text: String,
    /// Of the commit that it was begun with.
    pub base: u64,
    pub changed_by: String,
    pub changed_unix_ms: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("there is no commit {number}; the history has 0 to {last}")]
    NoCommit { number: u32, last: usize },
    #[error("commit {number} is damaged: {} ({why}); choose another one", path.display())]
    Damaged { number: u32, path: PathBuf, why: String },
    #[error("no rescue configuration is saved; `sluice rescue save` saves the one in force")]
    NoRescue,
    #[error("{} is damaged ({why}); `sluice rescue save` writes it anew", path.display())]
    DamagedRescue { path: PathBuf, why: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A state directory, whoever runs on it.
#[derive(Debug, Clone)]
pub struct Archive {
    dir: PathBuf,
}

impl Archive {
    pub fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn history(&self) -> PathBuf {
        self.dir.join(HISTORY)
    }

    fn write_error(&self, name: &str) -> impl FnOnce(io::Error) -> StoreError {
        let path = self.dir.join(name);
        move |source| StoreError::Io { action: "write", path, source }
    }

    /// Writes a commit that is about to be replaced into the history.
    pub fn put(&self, replaced: &Earlier) -> io::Result<()> {
        files::make_dir(&self.history())?;
        let bytes = packed(replaced)?;
        files::replace(&self.history(), &name_of(replaced.commit.serial), &bytes)
    }

    /// Serials of commits before `active`, the newest first.
    fn serials(&self, active: u64) -> Vec<u64> {
        let entries = fs::read_dir(self.history()).into_iter().flatten().flatten();
        let mut serials: Vec<u64> = entries
            .filter_map(|entry| serial_of(entry.file_name().to_str()?))
            .filter(|serial| *serial < active)
            .collect();
        serials.sort_unstable_by(|a, b| b.cmp(a));
        serials
    }

    /// Takes out what is older than the history shall be, but never what a commit may go back to.
    pub fn prune(&self, active: u64, back_to: Option<u64>) {
        for serial in self.serials(active).into_iter().skip(KEPT).filter(|serial| Some(*serial) != back_to) {
            if let Err(error) = fs::remove_file(self.history().join(name_of(serial))) {
                tracing::warn!(%error, serial, "an old commit remains in the history");
            }
        }
    }

    /// What there is before `active`, the newest first; Err says why one cannot be read.
    pub fn list(&self, active: u64) -> Vec<Result<Commit, String>> {
        let serials = self.serials(active).into_iter().take(KEPT);
        serials.map(|serial| self.by_serial(serial).map(|earlier| earlier.commit)).collect()
    }

    /// Commit `number` before `active`; 1 is the one before it.
    pub fn earlier(&self, active: u64, number: u32) -> Result<Earlier, ArchiveError> {
        let serials = self.serials(active);
        let last = serials.len().min(KEPT);
        let index = (number as usize).checked_sub(1).filter(|index| *index < last);
        let serial = index.map(|index| serials[index]).ok_or(ArchiveError::NoCommit { number, last })?;
        self.by_serial(serial).map_err(|why| ArchiveError::Damaged {
            number,
            path: self.history().join(name_of(serial)),
            why,
        })
    }

    pub fn by_serial(&self, serial: u64) -> Result<Earlier, String> {
        unpacked(&self.read(serial)?)
    }

    /// The newest commit before `active` that can be read.
    pub fn newest(&self, active: u64) -> Option<Earlier> {
        self.serials(active).into_iter().find_map(|serial| self.by_serial(serial).ok())
    }

    /// What comes back for a commit that waits to be confirmed: the one before or, if that is damaged, the next older one.
    pub fn back_to(&self, confirm: &Confirm, active: u64) -> Option<Earlier> {
        let back_to = confirm.back_to;
        let found = self.by_serial(back_to).inspect_err(|why| {
            tracing::error!(
                why,
                serial = back_to,
                "the commit to go back to is damaged; an older one is taken"
            );
        });
        found.ok().or_else(|| self.newest(active))
    }

    fn read(&self, serial: u64) -> Result<Vec<u8>, String> {
        fs::read(self.history().join(name_of(serial))).map_err(|error| error.to_string())
    }

    pub fn save_rescue(&self, rescue: &Earlier) -> Result<(), StoreError> {
        let written = files::sealed(rescue).and_then(|bytes| files::replace(&self.dir, RESCUE, &bytes));
        written.map_err(self.write_error(RESCUE))
    }

    pub fn rescue(&self) -> Result<Earlier, ArchiveError> {
        match self.read_sealed(RESCUE)? {
            None => Err(ArchiveError::NoRescue),
            Some(Ok(rescue)) => Ok(rescue),
            Some(Err(why)) => Err(ArchiveError::DamagedRescue { path: self.dir.join(RESCUE), why }),
        }
    }

    /// False when there was none.
    pub fn delete_rescue(&self) -> Result<bool, StoreError> {
        files::remove(&self.dir, RESCUE).map_err(self.write_error(RESCUE))
    }

    pub fn save_draft(&self, draft: Option<&Draft>) -> Result<(), StoreError> {
        let written = match draft {
            None => files::remove(&self.dir, CANDIDATE).map(drop),
            Some(draft) => {
                files::sealed(draft).and_then(|bytes| files::replace(&self.dir, CANDIDATE, &bytes))
            }
        };
        written.map_err(self.write_error(CANDIDATE))
    }

    /// Err: why it cannot be read.
    pub fn draft(&self) -> Result<Option<Draft>, String> {
        let read = self.read_sealed(CANDIDATE).map_err(|error| error.to_string())?.transpose();
        read.map_err(|why| {
            format!(
                "{} is damaged ({why}); the candidate is what is in force",
                self.dir.join(CANDIDATE).display()
            )
        })
    }

    fn read_sealed<T: serde::de::DeserializeOwned>(
        &self,
        name: &str,
    ) -> Result<Option<Result<T, String>>, StoreError> {
        let path = self.dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(files::unsealed(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
        }
    }

    /// Removes all of it.
    pub fn clear(&self) -> Result<(), StoreError> {
        let remove = |name: &str| files::remove(&self.dir, name).map(drop);
        let history = || match fs::remove_dir_all(self.history()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        let names = [RESCUE.to_owned(), CANDIDATE.to_owned()];
        let all = names.iter().flat_map(|name| [name.clone(), format!("{name}{}", files::NEW)]);
        all.map(|name| remove(&name))
            .chain([history()])
            .collect::<io::Result<()>>()
            .map_err(self.write_error(HISTORY))
    }
}

fn name_of(serial: u64) -> String {
    format!("{serial:08}.gz")
}

fn serial_of(name: &str) -> Option<u64> {
    name.strip_suffix(".gz")?.parse().ok()
}

fn packed(earlier: &Earlier) -> io::Result<Vec<u8>> {
    let mut bytes = vec![];
    for part in [serde_json::to_vec(&earlier.commit)?.as_slice(), earlier.text.as_bytes()] {
        let mut encoder = GzEncoder::new(bytes, Compression::fast());
        encoder.write_all(part)?;
        bytes = encoder.finish()?;
    }
    Ok(bytes)
}

fn unpacked(bytes: &[u8]) -> Result<Earlier, String> {
    let (head, rest) = part(bytes)?;
    let commit = serde_json::from_slice(&head).map_err(|error| error.to_string())?;
    let (text, _) = part(rest)?;
    let text = String::from_utf8(text).map_err(|error| error.to_string())?;
    Ok(Earlier { commit, text })
}

/// Checked by the checksum that ends it.
fn part(bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), String> {
    let mut decoder = GzDecoder::new(bytes);
    let mut part = vec![];
    decoder.read_to_end(&mut part).map_err(|error| error.to_string())?;
    Ok((part, decoder.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> Archive {
        let dir = std::env::temp_dir().join(format!("sluice-archive-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Archive::at(&dir)
    }

    fn stored(serial: u64) -> Earlier {
        let commit = Commit { serial, user: "root".into(), ..Commit::default() };
        Earlier { commit, text: format!("system {{ host-name n{serial}; }}") }
    }

    #[test]
    fn the_newest_fifty_stay_and_what_a_commit_goes_back_to() {
        let archive = scratch("prune");
        (1..=60).for_each(|serial| archive.put(&stored(serial)).unwrap());
        archive.prune(61, Some(3));
        assert_eq!(archive.serials(61).len(), KEPT + 1);
        assert_eq!(archive.list(61).len(), KEPT);
        assert_eq!(archive.earlier(61, 1).unwrap(), stored(60));
        assert_eq!(archive.earlier(61, 50).unwrap(), stored(11));
        assert!(matches!(archive.earlier(61, 51), Err(ArchiveError::NoCommit { last: 50, .. })));
        assert!(matches!(archive.earlier(61, 0), Err(ArchiveError::NoCommit { .. })));
        assert_eq!(archive.by_serial(3).unwrap().text, stored(3).text);
        assert_eq!(archive.list(30).len(), 20, "a commit that never was in force is none of the history");
        archive.clear().unwrap();
        assert_eq!(fs::read_dir(&archive.dir).unwrap().count(), 0);
        fs::remove_dir_all(&archive.dir).unwrap();
    }

    /// Every byte of it, lost or changed.
    #[test]
    fn a_damaged_commit_is_named_and_an_older_one_is_taken() {
        let archive = scratch("damage");
        [1, 2].into_iter().for_each(|serial| archive.put(&stored(serial)).unwrap());
        let path = archive.history().join(name_of(2));
        let whole = fs::read(&path).unwrap();
        for index in 0..whole.len() {
            fs::write(&path, &whole[..index]).unwrap();
            assert!(matches!(archive.earlier(3, 1), Err(ArchiveError::Damaged { number: 1, .. })), "{index}");
            assert_eq!(archive.newest(3).unwrap().commit.serial, 1, "{index}");
            let mut changed = whole.clone();
            changed[index] ^= 1;
            fs::write(&path, &changed).unwrap();
            // of the heads of the parts a checksum knows nothing: time, system
            let read = archive.by_serial(2);
            assert!(read.is_err() || read == Ok(stored(2)), "{index}");
        }
        fs::remove_dir_all(&archive.dir).unwrap();
    }

    #[test]
    fn rescue_and_candidate_come_and_go() {
        let archive = scratch("rescue");
        assert!(matches!(archive.rescue(), Err(ArchiveError::NoRescue)));
        archive.save_rescue(&stored(1)).unwrap();
        assert_eq!(archive.rescue().unwrap(), stored(1));
        assert!(archive.delete_rescue().unwrap() && !archive.delete_rescue().unwrap());
        let draft = Draft { text: "x".into(), base: 1, ..Draft::default() };
        archive.save_draft(Some(&draft)).unwrap();
        assert_eq!(archive.draft().unwrap(), Some(draft));
        archive.save_draft(None).unwrap();
        assert_eq!(archive.draft().unwrap(), None);
        fs::write(archive.dir.join(CANDIDATE), "{").unwrap();
        assert!(archive.draft().unwrap_err().contains("candidate.json is damaged"));
        fs::remove_dir_all(&archive.dir).unwrap();
    }
}
