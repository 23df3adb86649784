//! Puts the bench's own programs on devices. The programs leave with the value that holds them.
#![allow(unsafe_code)] // bpf_link_create has no safe wrapper for tcx or for a required XDP mode

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use libbpf_sys as c;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the driver; generic XDP would measure something else.
    XdpNative,
    /// Behind the driver, on a whole socket buffer: only where somebody asked for it.
    XdpGeneric,
    TcxIngress,
}

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// The device is one of the calling thread's network namespace. Dropping the descriptor detaches the program.
pub fn attach(program: BorrowedFd<'_>, ifindex: u32, place: Place) -> Result<OwnedFd> {
    let (kind, flags) = match place {
        Place::XdpNative => (c::BPF_XDP, XDP_FLAGS_DRV_MODE),
        Place::XdpGeneric => (c::BPF_XDP, XDP_FLAGS_SKB_MODE),
        Place::TcxIngress => (c::BPF_TCX_INGRESS, 0),
    };
    let options = c::bpf_link_create_opts {
        sz: size_of::<c::bpf_link_create_opts>() as c::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the descriptor is open, the options are a whole structure of the size they claim and outlive the call.
    let fd = unsafe { c::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd))
            .with_context(|| format!("cannot put a {place:?} program on device {ifindex}"));
    }
    // SAFETY: a descriptor just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
