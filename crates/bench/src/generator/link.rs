//! Puts the bench's own programs on devices. The programs leave with the value that holds them.

use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sluice_libbpf::Link;
pub use sluice_libbpf::Target;

/// How long the program before may stay: a process that another thread is just starting holds this one's descriptors, and
/// with them the link, until it executes.
const LEAVING: Duration = Duration::from_secs(1);

/// The device is one of the calling thread's network namespace. Dropping the link detaches the program.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, target: Target) -> Result<Link> {
    let begun = Instant::now();
    let attached = loop {
        match Link::attach(program, ifindex, target) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && begun.elapsed() < LEAVING => {
                thread::sleep(Duration::from_millis(5));
            }
            done => break done,
        }
    };
    attached.with_context(|| format!("cannot put a {target:?} program on device {ifindex}"))
}
