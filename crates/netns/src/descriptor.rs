//! A namespace by its descriptor, and threads that enter it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use crate::{DIRECTORY, Error, Result};

/// That of the thread which asks, whatever the rest of its process is in.
const OWN: &str = "/proc/thread-self/ns/net";

/// A namespace kept alive by its descriptor.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    /// What errors call it.
    name: String,
}

impl Namespace {
    /// A new one without a name, entered by nobody.
    pub fn new() -> Result<Namespace> {
        let made = thread::spawn(|| -> io::Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open(OWN)
        });
        let name = "without a name".to_owned();
        match made.join().unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(file) => Ok(Namespace { file, name }),
            Err(source) => Err(Error::Namespace { action: "make", name, source }),
        }
    }

    /// The one that a path stands for, called `name` in errors.
    pub(crate) fn open(path: &Path, name: &str) -> io::Result<Namespace> {
        Ok(Namespace { file: File::open(path)?, name: name.to_owned() })
    }

    /// Moves the calling thread there for good.
    pub fn enter_for_good(&self) -> Result<()> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| Error::Namespace {
            action: "enter",
            name: self.name.clone(),
            source: errno.into(),
        })
    }

    /// Runs a closure there, on a thread of its own. Sockets it opens stay in the namespace.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| -> Result<T> {
                self.enter_for_good()?;
                Ok(work())
            });
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// A path by which child processes can name it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs what moves its thread into a namespace on a thread of its own, with which the namespace goes.
pub fn in_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(work).join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Every namespace that has a name or a process, once, as far as it may be opened.
pub fn all() -> Vec<Namespace> {
    let named = fs::read_dir(DIRECTORY).into_iter().flatten().flatten().map(|entry| entry.path());
    let processes = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()));
    let paths: Vec<PathBuf> = named.chain(processes.map(|entry| entry.path().join("ns/net"))).collect();
    let mut seen = BTreeSet::new();
    let new = |path: PathBuf| {
        let meta = fs::metadata(&path).ok()?;
        let is_new = seen.insert((meta.dev(), meta.ino()));
        is_new.then(|| Namespace::open(&path, &path.display().to_string()).ok()).flatten()
    };
    paths.into_iter().filter_map(new).collect()
}
