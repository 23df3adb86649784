//! The state directory: one daemon at a time, and what a commit leaves behind.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sluice_plan::Ids;

use crate::kernel::devices::{Baseline, DeviceCounts};
use crate::kernel::mtus::Mtus;
use crate::kernel::tags::Tags;
use crate::state::archive::{Archive, Commit, Confirm, Earlier};
pub use crate::state::error::StoreError;
use crate::state::files;

/// Where state lives unless told otherwise.
pub const DEFAULT_STATE_DIR: &str = "/var/lib/sluice/default";

/// Where pins live in a BPF file system; each instance has a directory of the name of its state directory.
const PIN_ROOT: &str = "sluice";

/// What the last successful commit stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    pub generation: u32,
    /// Configuration text, and the name its errors are reported under.
    pub text: String,
    pub file: String,
    pub ids: Ids,
    /// Who committed it, when and why.
    #[serde(default)]
    pub commit: Commit,
    /// It stays only if somebody says so.
    #[serde(default)]
    pub confirm: Option<Confirm>,
    /// What the managed devices had counted before the data plane's own counters began.
    #[serde(default)]
    pub devices_before: Baseline,
    /// And what those had counted by then that are managed no more.
    #[serde(default)]
    pub devices_gone: DeviceCounts,
    /// MTUs that Sluice has changed.
    #[serde(default)]
    pub mtus_before: Mtus,
    /// Offloads and filters of VLANs that Sluice has switched off, and flags that it has set for tagged units.
    #[serde(default)]
    pub tags_before: Tags,
}

impl Stored {
    /// As the history has it.
    pub fn earlier(&self) -> Earlier {
        let commit = Commit { file: self.file.clone(), ..self.commit.clone() };
        Earlier { commit, text: self.text.clone() }
    }

    /// What comes back if the commit is not confirmed in time.
    pub fn unconfirmed(&self, archive: &Archive) -> Option<Earlier> {
        archive.back_to(self.confirm.as_ref()?, self.commit.serial)
    }
}

/// The commit in force, a second writing of it, and what versions without a history wrote of the one before.
const ACTIVE: &str = "active.json";
const COPY: &str = "active.json.copy";
const BEFORE: &str = "active.json.before";

/// Sessions of the user plane that were made over the API.
pub const GTPU_SESSIONS: &str = "gtp-u-sessions.jsonl";

/// What a state directory remembers.
#[derive(Debug, Default)]
pub struct Memory {
    pub stored: Option<Stored>,
    /// An earlier commit.
    pub before: Option<Earlier>,
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
        files::make_open_dir(dir).map_err(io("create", dir))?;
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
        let write = || -> std::io::Result<()> {
            let bytes = files::sealed(stored)?;
            for name in [COPY, ACTIVE] {
                files::write_new(&self.dir, name, &bytes)?;
            }
            if let Some(replaced) = replaced.filter(|replaced| replaced.commit.serial < stored.commit.serial)
            {
                self.archive().put(&replaced.earlier())?;
            }
            files::keep(&self.dir, COPY)?;
            files::keep(&self.dir, ACTIVE)
        };
        write().map_err(|source| {
            // what was begun takes the room that is missing
            for name in [COPY, ACTIVE] {
                files::forget_new(&self.dir, name);
            }
            StoreError::Io { action: "write", path: self.dir.join(ACTIVE), source }
        })?;
        // it is what the next start finds; whether it outlasts a power cut, the disk does not say
        if let Err(error) = files::sync(&self.dir) {
            tracing::error!(%error, dir = %self.dir.display(), "the directory is not written to the disk");
        }
        self.archive().prune(stored.commit.serial, stored.confirm.as_ref().map(|confirm| confirm.back_to));
        Ok(())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn archive(&self) -> Archive {
        Archive::at(&self.dir)
    }

    /// Removes everything but the lock and the audit.
    pub fn clear(&self) -> Result<(), StoreError> {
        let kept = [ACTIVE, COPY, BEFORE]
            .into_iter()
            .flat_map(|name| [name.to_owned(), format!("{name}{}", files::NEW)]);
        for name in kept.chain(["sluice.sock".to_owned(), GTPU_SESSIONS.to_owned()]) {
            files::remove(&self.dir, &name).map_err(|source| StoreError::Io {
                action: "remove",
                path: self.dir.join(name),
                source,
            })?;
        }
        self.archive().clear()
    }

    /// Where the gate's audit stands. It stays when the rest is cleared.
    pub fn audit(&self) -> PathBuf {
        self.dir.join("gate-audit.jsonl")
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

/// Where the daemon of a state directory listens.
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
            Ok(bytes) => Ok(Some(files::unsealed(&bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { action: "read", path, source }),
        }
    };
    let before = |serial| -> Option<Earlier> {
        let of_another_version = || read(BEFORE).ok().flatten()?.ok();
        let newest = Archive::at(dir).newest(serial);
        newest.or_else(|| of_another_version().map(|stored| stored.earlier()))
    };
    let path = dir.join(ACTIVE);
    let why = match read(ACTIVE)? {
        // a crash of the first commit may have left a copy of what never was in force
        None => return Ok(Memory::default()),
        Some(Ok(stored)) => {
            let before = before(stored.commit.serial);
            return Ok(Memory { stored: Some(stored), before, damage: None });
        }
        Some(Err(why)) => why,
    };
    match read(COPY)? {
        Some(Ok(stored)) => {
            let damage = format!("{} is damaged ({why}); its copy is used", path.display());
            let before = before(stored.commit.serial);
            Ok(Memory { stored: Some(stored), before, damage: Some(damage) })
        }
        _ => Err(StoreError::Damaged { path, why }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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

    /// The socket and `resolv.conf` are for everybody; what is not has a mode of its own.
    #[test]
    fn a_directory_that_a_umask_closed_is_opened_and_one_that_its_owner_closed_is_not() {
        let dir = scratch("modes");
        let set = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        let is = || fs::metadata(&dir).unwrap().permissions().mode() & 0o7777;
        let store = Store::lock(&dir.join("inside")).unwrap();
        store.save(&stored("system {}", 1), None).unwrap();
        drop(store);
        let modes = |path: &str| fs::metadata(dir.join("inside").join(path)).unwrap().permissions().mode();
        assert_eq!((is(), modes(".") & 0o777), (0o755, 0o755));
        for name in [ACTIVE, COPY, "lock"] {
            assert_eq!(modes(name) & 0o777, 0o600, "{name}");
        }
        for (before, after) in [(0o750, 0o755), (0o700, 0o700), (0o770, 0o770)] {
            set(before);
            Store::lock(&dir).unwrap();
            assert_eq!(is(), after, "{before:o}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    fn stored(text: &str, serial: u64) -> Stored {
        Stored {
            generation: 7,
            text: text.into(),
            file: "a.conf".into(),
            ids: Ids::default(),
            commit: Commit { serial, ..Commit::default() },
            confirm: None,
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
        let (first, second) = (stored("system {}", 1), stored("system { host-name b; }", 2));
        store.save(&first, None).unwrap();
        store.save(&second, Some(&first)).unwrap();
        store.save(&second, Some(&second)).unwrap();
        let memory = store.load().unwrap();
        assert_eq!(
            (memory.stored, memory.before),
            (Some(second), Some(first.earlier())),
            "the last other one stays"
        );
        store.clear().unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "the lock");
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Every byte of it, lost or changed.
    #[test]
    fn what_is_damaged_comes_from_the_copy() {
        let dir = scratch("damage");
        let store = Store::lock(&dir).unwrap();
        let good = stored("system {}", 1);
        store.save(&good, None).unwrap();
        let (path, copy) = (dir.join(ACTIVE), dir.join(COPY));
        let whole = fs::read(&path).unwrap();
        for index in 0..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 1;
            for bytes in [&whole[..index], &changed] {
                fs::write(&path, bytes).unwrap();
                let memory = store.load().unwrap();
                assert_eq!(memory.stored, Some(good.clone()), "byte {index}");
                // beside the field's name nothing stands there
                assert!(memory.damage.is_some() || index < files::SEAL.len(), "byte {index}");
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
