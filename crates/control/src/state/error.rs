//! Questions that the kernel or the data plane did not answer, and what a state directory refuses.

use std::path::PathBuf;

use crate::kernel::KernelError;

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Dataplane(#[from] sluice_dataplane::Error),
}

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
