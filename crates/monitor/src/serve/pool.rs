//! Open databases, one for each question under way.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Failure;
use crate::results::{Ledgers, Reader};

/// More than these are closed after use.
const MOST_IDLE: usize = 8;

#[derive(Default)]
struct Idle {
    /// Of the file that they are open on.
    inode: u64,
    readers: Vec<Reader>,
    ledgers: Ledgers,
}

pub struct Pool {
    path: PathBuf,
    idle: Mutex<Idle>,
}

impl Pool {
    pub fn new(path: &Path) -> Self {
        Pool { path: path.to_owned(), idle: Mutex::default() }
    }

    /// Lends a reader of the file that is there at this time: another one may have taken its place.
    pub fn with<T>(&self, ask: impl FnOnce(&Reader) -> Result<T, Failure>) -> Result<T, Failure> {
        let inode = std::fs::metadata(&self.path).map_or(0, |file| file.ino());
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let (lent, ledgers) = {
            let mut idle = idle();
            if idle.inode != inode {
                *idle = Idle { inode, ..Idle::default() };
            }
            (idle.readers.pop(), idle.ledgers.clone())
        };
        let reader = match lent {
            Some(reader) => reader,
            None => Reader::sharing(&self.path, &ledgers)?,
        };
        let answer = ask(&reader);
        let mut idle = idle();
        if idle.inode == inode && idle.readers.len() < MOST_IDLE {
            idle.readers.push(reader);
        }
        answer
    }
}
