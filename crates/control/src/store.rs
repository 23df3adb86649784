//! The state directory: one daemon at a time, and what a commit leaves behind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sluice_plan::Ids;

use crate::audit::Audit;
use crate::devices::{Baseline, DeviceCounts};
use crate::mtus::Mtus;
use crate::tags::Tags;

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
    #[error("{} and its copies are damaged: {why}; remove them and start again (sessions stay)", path.display())]
    Damaged { path: PathBuf, why: String },
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
    /// And what those had counted by then that are managed no more.
    #[serde(default)]
    pub devices_gone: DeviceCounts,
    /// MTUs that Sluice has changed.
    #[serde(default)]
    pub mtus_before: Mtus,
    /// Offloads that Sluice has switched off.
    #[serde(default)]
    pub tags_before: Tags,
}

/// The commit in force, a second writing of it, and the last one before it whose text was another.
const ACTIVE: &str = "active.json";
const COPY: &str = "active.json.copy";
const BEFORE: &str = "active.json.before";

/// What a state directory remembers.
#[derive(Debug, Default)]
pub struct Memory {
    pub stored: Option<Stored>,
    /// An earlier commit.
    pub before: Option<Stored>,
    /// Why `stored` is not from where it should be.
    pub damage: Option<String>,
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
        // A courtesy as well: on a full disk there is no room for it.
        let write = |lock: &mut Flock<File>| -> std::io::Result<()> {
            lock.set_len(0)?;
            lock.seek(SeekFrom::Start(0))?;
            writeln!(lock, "{}", std::process::id())
        };
        if let Err(error) = write(&mut lock) {
            tracing::warn!(%error, path = %path.display(), "the pid cannot be written there");
        }
        Ok(Self { dir: dir.to_owned(), _lock: lock })
    }

    pub fn load(&self) -> Result<Memory, StoreError> {
        load(&self.dir)
    }

    /// Replaces the stored commit; a crash leaves the old or the new one, never half. The copy is never older than what it
    /// stands in for: ids that were given must not be forgotten.
    pub fn save(&self, stored: &Stored, replaced: Option<&Stored>) -> Result<(), StoreError> {
        let path = self.dir.join(ACTIVE);
        let new = |name: &str| self.dir.join(format!("{name}.new"));
        let write = || -> std::io::Result<()> {
            let bytes = sealed(stored)?;
            for name in [COPY, ACTIVE] {
                write_file(&new(name), &bytes)?;
            }
            if let Some(replaced) = replaced.filter(|replaced| replaced.text != stored.text) {
                write_file(&new(BEFORE), &sealed(replaced)?)?;
                fs::rename(new(BEFORE), self.dir.join(BEFORE))?;
            }
            fs::rename(new(COPY), self.dir.join(COPY))?;
            fs::rename(new(ACTIVE), &path)
        };
        write().map_err(|source| {
            // what was begun takes the room that is missing
            for name in [COPY, ACTIVE, BEFORE] {
                let _ = fs::remove_file(new(name));
            }
            StoreError::Io { action: "write", path, source }
        })
    }

    /// Removes everything but the lock and the audit.
    pub fn clear(&self) -> Result<(), StoreError> {
        let kept =
            [ACTIVE, COPY, BEFORE].into_iter().flat_map(|name| [name.to_owned(), format!("{name}.new")]);
        for name in kept.chain(["sluice.sock".to_owned()]) {
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

    pub fn pin_dir(&self, bpffs: &Path) -> Result<PathBuf, StoreError> {
        pin_dir(&self.dir, bpffs)
    }
}

/// Where an instance's BPF objects are pinned.
pub fn pin_dir(dir: &Path, bpffs: &Path) -> Result<PathBuf, StoreError> {
    let name = dir.file_name().ok_or_else(|| StoreError::NoInstance { path: dir.to_owned() })?;
    // bpffs refuses dots in names.
    Ok(bpffs.join(PIN_ROOT).join(name.to_string_lossy().replace('.', "_")))
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

/// What is there, as far as it is whole.
pub fn load(dir: &Path) -> Result<Memory, StoreError> {
    let read = |name: &str| -> Result<Option<Result<Stored, String>>, StoreError> {
        let path = dir.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(unsealed(&bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
        }
    };
    let before = read(BEFORE).ok().flatten().and_then(Result::ok);
    let path = dir.join(ACTIVE);
    let why = match read(ACTIVE)? {
        // a crash of the first commit may have left a copy of what never was in force
        None => return Ok(Memory::default()),
        Some(Ok(stored)) => return Ok(Memory { stored: Some(stored), before, damage: None }),
        Some(Err(why)) => why,
    };
    match read(COPY)? {
        Some(Ok(stored)) => {
            let damage = format!("{} is damaged ({why}); its copy is used", path.display());
            Ok(Memory { stored: Some(stored), before, damage: Some(damage) })
        }
        _ => Err(StoreError::Damaged { path, why }),
    }
}

/// A checksum is the first field: of all that follows it, byte by byte.
const SEAL: &str = "{\n  \"checksum\": \"";
const SUM: usize = 8;

fn sealed(stored: &Stored) -> std::io::Result<Vec<u8>> {
    let plain = serde_json::to_vec_pretty(stored)?;
    let rest = [b"\",", &plain[1..]].concat();
    let sum = format!("{:08x}", checksum(&rest));
    Ok([SEAL.as_bytes(), sum.as_bytes(), &rest].concat())
}

/// Those of versions that write no checksum are taken as they are.
fn unsealed(bytes: &[u8]) -> Result<Stored, String> {
    if let Some((sum, rest)) =
        bytes.strip_prefix(SEAL.as_bytes()).and_then(|bytes| bytes.split_at_checked(SUM))
        && sum != format!("{:08x}", checksum(rest)).as_bytes()
    {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
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

    fn stored(text: &str) -> Stored {
        Stored {
            generation: 7,
            text: text.into(),
            file: "a.conf".into(),
            ids: Ids::default(),
            devices_before: Baseline::from([(3, DeviceCounts { dropped: 1, xdp_sent: 2, xdp_refused: 1 })]),
            devices_gone: DeviceCounts { dropped: 3, xdp_sent: 4, xdp_refused: 2 },
            mtus_before: Mtus::from([("lan0".into(), 1500)]),
            tags_before: Tags::from([("lan0".into(), vec!["rx-vlan-hw-parse".into()])]),
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let dir = scratch("save");
        let store = Store::lock(&dir).unwrap();
        assert_eq!(store.load().unwrap().stored, None);
        let (first, second) = (stored("system {}"), stored("system { host-name b; }"));
        store.save(&first, None).unwrap();
        store.save(&second, Some(&first)).unwrap();
        store.save(&second, Some(&second)).unwrap();
        let memory = store.load().unwrap();
        assert_eq!((memory.stored, memory.before), (Some(second), Some(first)), "the last other one stays");
        store.clear().unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "the lock");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Every byte of it, lost or changed.
    #[test]
    fn what_is_damaged_comes_from_the_copy() {
        let dir = scratch("damage");
        let store = Store::lock(&dir).unwrap();
        let good = stored("system {}");
        store.save(&good, None).unwrap();
        let (path, copy) = (dir.join(ACTIVE), dir.join(COPY));
        let whole = fs::read(&path).unwrap();
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            for bytes in [&whole[..place], &changed] {
                fs::write(&path, bytes).unwrap();
                let memory = store.load().unwrap();
                assert_eq!(memory.stored, Some(good.clone()), "byte {place}");
                // beside the field's name nothing stands there
                assert!(memory.damage.is_some() || place < SEAL.len(), "byte {place}");
            }
        }
        fs::write(&copy, "{").unwrap();
        assert!(matches!(store.load(), Err(StoreError::Damaged { .. })));
        // an earlier version's
        fs::write(&path, serde_json::to_vec_pretty(&good).unwrap()).unwrap();
        assert_eq!(store.load().unwrap().stored, Some(good));
        fs::remove_dir_all(&dir).unwrap();
    }
}
