//! Where the pins of a state directory are, for commands that are not told.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::files;
use crate::kernel::bpffs::{self, BpffsError};

/// Names the file that says which BPF file system was given to the daemon.
const REMEMBERED: &str = "bpffs";

/// The given one, else the one that was given to the daemon, else the usual one.
pub fn bpffs(state_dir: &Path, given: Option<&Path>) -> Result<PathBuf, BpffsError> {
    let remembered = fs::read(state_dir.join(REMEMBERED)).map(OsString::from_vec).map(PathBuf::from);
    // another mount namespace may have another one there
    let remembered = remembered.ok().filter(|path| given.is_none() && bpffs::is_bpffs(path));
    remembered.map_or_else(|| bpffs::find(given), Ok)
}

/// Commands beside the daemon need not be told.
pub fn remember(state_dir: &Path, given: Option<&Path>) -> io::Result<()> {
    let Some(given) = given else { return Ok(()) };
    files::replace(state_dir, REMEMBERED, fs::canonicalize(given)?.as_os_str().as_bytes())
}

/// There are none any more.
pub fn forget(state_dir: &Path) -> io::Result<()> {
    files::remove(state_dir, REMEMBERED).map(|_| ())
}
