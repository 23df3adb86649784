//! Puts the bench's own programs on devices. The programs leave with the value that holds them.

use std::os::fd::BorrowedFd;

use anyhow::{Context, Result};
use sluice_libbpf::Link;
pub use sluice_libbpf::Target;

/// The device is one of the calling thread's network namespace. Dropping the link detaches the program.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, target: Target) -> Result<Link> {
    Link::attach(program, ifindex, target)
        .with_context(|| format!("cannot put a {target:?} program on device {ifindex}"))
}
