//! Open databases, one for each question under way.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Failure;
use crate::results::Reader;

/// More than these are closed after use.
const MOST_IDLE: usize = 8;

pub struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<(u64, Reader)>>,
}

impl Pool {
    pub fn new(path: &Path) -> Self {
        Pool { path: path.to_owned(), idle: Mutex::default() }
    }

    /// Lends a reader of the file that is there at this time: another one may have taken its place.
    pub fn with<T>(&self, ask: impl FnOnce(&Reader) -> Result<T, Failure>) -> Result<T, Failure> {
        let inode = std::fs::metadata(&self.path).map_or(0, |file| file.ino());
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = {
            let mut idle = idle();
            idle.retain(|(of, _)| *of == inode);
            idle.pop()
        };
        let reader = match lent {
            Some((_, reader)) => reader,
            None => Reader::open(&self.path)?,
        };
        let answer = ask(&reader);
        let mut idle = idle();
        if idle.len() < MOST_IDLE {
            idle.push((inode, reader));
        }
        answer
    }
}
