//! Names of objects in the BPF file system.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_sys as c;

use crate::call::{check, descriptor};

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Gives a link, a program or a map a name there; it lives as long as it has one.
pub fn pin(object: impl AsFd, path: &Path) -> io::Result<()> {
    let path = text(path)?;
    // SAFETY: the path ends in NUL and outlives the call.
    check(unsafe { c::bpf_obj_pin(object.as_fd().as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// What has the name.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    let path = text(path)?;
    // SAFETY: the path ends in NUL and outlives the call, which makes a descriptor.
    unsafe { descriptor(c::bpf_obj_get(path.as_ptr())) }
}
