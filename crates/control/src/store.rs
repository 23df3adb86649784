//! The state directory: one daemon at a time, and what a commit leaves behind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sluice_plan::Ids;

use crate::devices::Baseline;
use crate::gate::Audit;
use crate::mtus::Mtus;

/// Where state lives unless told otherwise.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sluice/default";

/// Where pins live in a BPF file system; each instance has a directory of the name of its state directory.
const PIN_ROOT: &str = "sluice";

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "another daemon (pid {pid}) runs on {}; stop it, or give this one its own --state-dir and network namespace",
        dir.display()
    )]
    Locked { dir: PathBuf, pid: String },
    #[error("cannot {action} {}: {source}; check the directory's owner and free space", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is damaged: {source}; remove it and start again (sessions stay)", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("{} has no usable file name; it names the instance", path.display())]
    NoInstance { path: PathBuf },
}

/// What the last successful commit stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub generation: u32,
    /// Configuration text, and the name its errors are reported under.
    pub text: String,
    pub file: String,
    pub ids: Ids,
    /// What the managed devices had counted before the data plane's own counters began.
    #[serde(default)]
    pub devices_before: Baseline,
    /// MTUs that Sluice has changed.
    #[serde(default)]
    pub mtus_before: Mtus,
}

/// A locked state directory.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Store {
    /// Makes the directory and locks it until this value is dropped or the process ends, however it ends.
    pub fn lock(dir: &Path) -> Result<Self, StoreError> {
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { action, path, source }
        };
        fs::create_dir_all(dir).map_err(io("create", dir))?;
        let path = dir.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io("open", &path))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                // The pid is a courtesy; without it the message still stands.
                let _ = file.read_to_string(&mut pid);
                return Err(StoreError::Locked { dir: dir.to_owned(), pid: pid.trim().to_owned() });
            }
            Err((_, errno)) => return Err(io("lock", &path)(errno.into())),
        };
        let write = |lock: &mut Flock<File>| -> std::io::Result<()> {
            lock.set_len(0)?;
            lock.seek(SeekFrom::Start(0))?;
            writeln!(lock, "{}", std::process::id())
        };
        write(&mut lock).map_err(io("write", &path))?;
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    pub fn load(&self) -> Result<Option<Stored>, StoreError> {
        load(&self.dir)
    }

    /// Replaces the stored commit; a crash leaves the old or the new one, never half.
    pub fn save(&self, stored: &Stored) -> Result<(), StoreError> {
        let path = self.dir.join("active.json");
        let temporary = self.dir.join("active.json.new");
        let write = || -> std::io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
            file.write_all(&serde_json::to_vec_pretty(stored)?)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| StoreError::Io { action: "write", path, source })
    }

    /// Removes everything but the lock and the audit.
    pub fn clear(&self) -> Result<(), StoreError> {
        for name in ["active.json", "active.json.new", "sluice.sock"] {
            let path = self.dir.join(name);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StoreError::Io { action: "remove", path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The audit of the gate. It stays when the rest is cleared.
    pub fn audit(&self) -> Result<Audit, StoreError> {
        let path = self.dir.join("gate-audit.jsonl");
        Audit::open(&path).map_err(|source| StoreError::Io { action: "open", path, source })
    }

    pub fn socket(&self) -> PathBuf {
        socket_path(&self.dir)
    }

    /// Where this instance's BPF objects are pinned.
    pub fn pin_dir(&self, bpffs: &Path) -> Result<PathBuf, StoreError> {
        let dir = &self.dir;
        let name = dir.file_name().ok_or_else(|| StoreError::NoInstance { path: dir.to_owned() })?;
        // bpffs refuses dots in names.
        Ok(bpffs.join(PIN_ROOT).join(name.to_string_lossy().replace('.', "_")))
    }
}

pub fn socket_path(dir: &Path) -> PathBuf {
    dir.join("sluice.sock")
}

/// Whether a daemon runs on a state directory.
pub fn is_locked(dir: &Path) -> bool {
    File::open(dir.join("lock")).is_ok_and(|file| {
        matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, nix::errno::Errno::EWOULDBLOCK)))
    })
}

/// Whether something was committed there that has not been cleaned up.
pub fn is_used(dir: &Path) -> bool {
    dir.join("active.json").exists()
}

fn load(dir: &Path) -> Result<Option<Stored>, StoreError> {
    let path = dir.join("active.json");
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|source| StoreError::Damaged { path, source })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io { action: "read", path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("sluice-store-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_second_lock_names_the_holder() {
        let dir = scratch("lock");
        let first = Store::lock(&dir).unwrap();
        let refused = Store::lock(&dir).unwrap_err().to_string();
        assert!(refused.contains(&format!("pid {}", std::process::id())), "{refused}");
        drop(first);
        Store::lock(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = scratch("save");
        let store = Store::lock(&dir).unwrap();
        assert_eq!(store.load().unwrap(), None);
        let stored = Stored {
            generation: 7,
            text: "system {}".into(),
            file: "a.conf".into(),
            ids: Ids::default(),
            devices_before: Baseline::from([(3, crate::devices::DeviceCounts { dropped: 1, xdp_sent: 2 })]),
            mtus_before: Mtus::from([("lan0".into(), 1500)]),
        };
        store.save(&stored).unwrap();
        assert_eq!(store.load().unwrap(), Some(stored));
        fs::write(dir.join("active.json"), "{").unwrap();
        assert!(matches!(store.load(), Err(StoreError::Damaged { .. })));
        fs::remove_dir_all(&dir).unwrap();
    }
}
