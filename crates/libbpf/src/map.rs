//! Maps that no object file declares, and what the kernel says of maps.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys as c;

use crate::call::check;

/// A map to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewMap<'a> {
    /// Its type.
    pub kind: MapType,
    /// At most 15 bytes.
    pub name: &'a str,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// How many there may be; bytes of a ring buffer.
    pub max_entries: u32,
}

impl NewMap<'_> {
    /// One without flags.
    pub fn create(self) -> libbpf_rs::Result<MapHandle> {
        self.with(c::bpf_map_create_opts::default())
    }

    /// One whose values can be mapped into memory.
    pub fn create_mmapable(self) -> libbpf_rs::Result<MapHandle> {
        self.with(c::bpf_map_create_opts { map_flags: c::BPF_F_MMAPABLE, ..Default::default() })
    }

    /// One of maps like `inner`.
    pub fn create_of(self, inner: BorrowedFd<'_>) -> libbpf_rs::Result<MapHandle> {
        let inner_map_fd = inner.as_raw_fd() as u32;
        self.with(c::bpf_map_create_opts { inner_map_fd, ..Default::default() })
    }

    fn with(self, options: c::bpf_map_create_opts) -> libbpf_rs::Result<MapHandle> {
        let options = c::bpf_map_create_opts { sz: size_of::<c::bpf_map_create_opts>() as _, ..options };
        let NewMap { kind, name, key_size, value_size, max_entries } = self;
        MapHandle::create(kind, Some(name), key_size, value_size, max_entries, &options)
    }
}

/// Types of a map's keys and values, and the BTF that tells what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapTypes {
    /// 0 = none.
    pub btf_id: u32,
    /// Number of the key's type in it; 0 = none.
    pub key: u32,
    /// Number of the value's type in it; 0 = none.
    pub value: u32,
}

/// What a map's BTF says of it.
pub fn types(map: impl AsFd) -> io::Result<MapTypes> {
    let mut info = c::bpf_map_info::default();
    let mut len = size_of::<c::bpf_map_info>() as u32;
    // SAFETY: `info` has `len` bytes and outlives the call.
    check(unsafe { c::bpf_map_get_info_by_fd(map.as_fd().as_raw_fd(), &mut info, &mut len) })?;
    Ok(MapTypes { btf_id: info.btf_id, key: info.btf_key_type_id, value: info.btf_value_type_id })
}

/// Bytes that a map takes, as the kernel counts them.
pub fn bytes(map: impl AsFd) -> io::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = fs::read_to_string(&path)?;
    let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not say `memlock`"));
    memlock(&text).ok_or_else(missing)
}

fn memlock(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_is_read_from_fdinfo() {
        assert_eq!(memlock("pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t7\n"), Some(4096));
        assert_eq!(memlock("pos:\t0\n"), None);
    }

    #[test]
    fn what_is_no_map_takes_no_bytes() {
        let error = bytes(fs::File::open("/dev/null").unwrap()).unwrap_err();
        assert!(error.to_string().contains("memlock"), "{error}");
    }
}
