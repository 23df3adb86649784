//! A file that is written beside the one it is to become: what was there stays until the new one is whole.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;

/// Removed unless it took its place.
pub(crate) struct Beside {
    target: PathBuf,
    path: PathBuf,
}

impl Beside {
    /// A new file in the target's folder. Nobody foresees its name, and what has it already, be it a link, is not used.
    pub(crate) fn create(target: &Path) -> io::Result<(Beside, File)> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let chance = RandomState::new().hash_one(0u32);
        let path = target.with_file_name(format!(".{name}.{chance:016x}.new"));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok((Beside { target: target.to_owned(), path }, file))
    }

    /// In place of what was there.
    pub(crate) fn take_place(self) -> io::Result<()> {
        fs::rename(&self.path, &self.target)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // in its place it has another name
        let _ = fs::remove_file(&self.path);
    }
}

/// Fails where an output is a file that is also read, by whatever name; `-` reads standard input.
pub(crate) fn not_a_source(option: &str, output: &Path, sources: &[&str]) -> anyhow::Result<()> {
    let same = |path: &str| {
        let path = if path == "-" { "/dev/stdin" } else { path };
        let (Ok(source), Ok(output)) = (fs::metadata(path), fs::metadata(output)) else { return false };
        source.is_file() && (source.dev(), source.ino()) == (output.dev(), output.ino())
    };
    match sources.iter().find(|source| same(source)) {
        Some(source) => {
            bail!("{option} {} is the capture {source} itself: name another file", output.display())
        }
        None => Ok(()),
    }
}
