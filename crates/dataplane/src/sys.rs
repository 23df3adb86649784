//! The few calls into the C library that nix has no safe form of.
#![allow(unsafe_code, reason = "calls into the C library")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

/// Gives memory that was freed back to the kernel: what a large commit took would stay with the allocator otherwise.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator takes its own locks.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Large pieces of memory get a mapping each, which goes back to the kernel as soon as it is freed. Without this the
/// allocator takes them from its heaps from the first freed one on, and small pieces that live on between them keep the
/// heaps of several threads large.
pub fn map_large_pieces() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator takes its own locks.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10)
    };
}

/// Length of a scheduler tick, which the coarse clocks have as resolution.
pub fn tick_ns() -> u64 {
    let mut resolution = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `resolution` outlives the call.
    unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    resolution.tv_nsec.max(1) as u64
}

/// Name of a device of the calling thread's namespace.
pub fn interface_name(ifindex: u32) -> String {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the call demands.
    let found = unsafe { libc::if_indextoname(ifindex, name.as_mut_ptr().cast()) };
    match CStr::from_bytes_until_nul(&name) {
        Ok(text) if !found.is_null() => text.to_string_lossy().into_owned(),
        _ => format!("interface {ifindex}"),
    }
}

/// A second descriptor of the same object.
pub fn duplicate(object: &impl AsFd) -> io::Result<OwnedFd> {
    object.as_fd().try_clone_to_owned()
}

/// Has a directory to itself among all processes. None where another keeps it longer, or it is not there.
pub fn exclude(directory: &Path, patience: Duration) -> Option<Flock<File>> {
    let begun = Instant::now();
    let mut file = File::open(directory).ok()?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((_, _)) if begun.elapsed() >= patience => return None,
            Err((again, _)) => file = again,
        }
        thread::sleep(Duration::from_millis(1));
    }
}
