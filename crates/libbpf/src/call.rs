//! What calls into libbpf return.
#![allow(unsafe_code, reason = "a number from the kernel becomes the owner of a descriptor")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// libbpf's functions return the negative error, as the kernel does.
pub fn check(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}

/// The descriptor that a call has made.
///
/// # Safety
/// `code` is what a call returned that makes a descriptor, and nobody else has taken it.
pub unsafe fn descriptor(code: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel has just made it, and as the caller says nobody else owns it.
    check(code).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}
