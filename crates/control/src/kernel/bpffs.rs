//! Which BPF file system pins stand in. `ip netns exec` and some containers hide the one everybody uses behind a new /sys.

use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use crate::kernel::process::ancestors;

const USUAL: &str = "/sys/fs/bpf";

#[derive(Debug, thiserror::Error)]
pub enum BpffsError {
    #[error("{} is not a BPF file system; mount one there: `mount -t bpf bpf {}`", path.display(), path.display())]
    Other { path: PathBuf },
    #[error(
        "there is no BPF file system at {USUAL}, nor do the processes have one that started this one, and none can be mounted ({0}); mount one \
         somewhere (`mount -t bpf bpf DIR`) and name it with --bpffs DIR"
    )]
    None(io::Error),
}

/// The given one; else the usual one, as this process sees it or one of those that started it; else one is mounted.
pub fn find(given: Option<&Path>) -> Result<PathBuf, BpffsError> {
    match given {
        Some(path) if is_bpffs(path) => return Ok(path.to_owned()),
        Some(path) => return Err(BpffsError::Other { path: path.to_owned() }),
        None => {}
    }
    if is_bpffs(Path::new(USUAL)) {
        return Ok(USUAL.into());
    }
    if let Some(there) = ancestors().find_map(seen_by) {
        return Ok(there);
    }
    mount(Some("bpf"), USUAL, Some("bpf"), MsFlags::empty(), Some("mode=700"))
        .map_err(|errno| BpffsError::None(errno.into()))?;
    tracing::warn!(
        "mounted a BPF file system at {USUAL}: if that is seen by this process only (`unshare --mount`, a container), the data \
         plane ends with it; --bpffs names one that stays"
    );
    Ok(USUAL.into())
}

/// The usual one, if this process sees it; nothing is mounted.
pub fn there() -> Option<PathBuf> {
    is_bpffs(Path::new(USUAL)).then(|| USUAL.into())
}

/// The usual mount point as another process sees it. It stays open: that process may end.
fn seen_by(process: u32) -> Option<PathBuf> {
    let path = format!("/proc/{process}/root{USUAL}");
    let open = File::open(&path).ok().filter(|_| is_bpffs(Path::new(&path)))?;
    Some(format!("/proc/self/fd/{}", open.into_raw_fd()).into())
}

pub fn is_bpffs(path: &Path) -> bool {
    statfs(path).is_ok_and(|system| system.filesystem_type() == BPF_FS_MAGIC)
}
