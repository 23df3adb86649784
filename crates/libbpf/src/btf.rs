//! Type information: of an object before it is loaded, and of what the kernel holds.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::io;
use std::os::fd::AsRawFd;

use libbpf_rs::{AsRawLibbpf, OpenMap, OpenObject, btf};
use libbpf_sys as c;

use crate::call::{check, descriptor};
use crate::map::MapTypes;

/// Offset and size of a global variable in its section.
pub fn variable(object: &OpenObject, section: &str, variable: &str) -> Option<(usize, usize)> {
    // SAFETY: the pointer stays valid while `object` lives, and the BTF is used up in this function.
    let raw = unsafe { object.as_libbpf_object().as_ref() };
    let types = btf::Btf::from_bpf_object(raw).ok()??;
    let section: btf::types::DataSec<'_> = types.type_by_name(section)?;
    section.iter().find_map(|entry| {
        let found: btf::types::Var<'_> = types.type_by_id(entry.ty)?;
        (found.name()? == variable).then_some((entry.offset as usize, entry.size))
    })
}

/// The BTF of an object's own types.
pub fn of_object(object: &OpenObject) -> Option<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the object lives as long as the reference, its BTF as long as it, and the bytes as long as that.
    unsafe {
        let btf = c::bpf_object__btf(object.as_libbpf_object().as_ptr());
        let data = if btf.is_null() { std::ptr::null() } else { c::btf__raw_data(btf, &mut size) };
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size as usize).to_vec())
    }
}

/// As [`crate::map::types`], of a map that does not exist yet.
pub fn types_of_open_map(map: &OpenMap<'_>) -> MapTypes {
    let map = map.as_libbpf_object().as_ptr();
    // SAFETY: the pointer is that of a live map of an object.
    unsafe {
        let (key, value) = (c::bpf_map__btf_key_type_id(map), c::bpf_map__btf_value_type_id(map));
        MapTypes { btf_id: 0, key, value }
    }
}

/// A BTF that the kernel holds.
pub fn by_id(id: u32) -> io::Result<Vec<u8>> {
    // SAFETY: no pointers; the call makes a descriptor.
    let fd = unsafe { descriptor(c::bpf_btf_get_fd_by_id(id)) }?;
    let mut bytes = Vec::new();
    // The first call tells the size.
    for _ in 0..2 {
        let mut info = c::bpf_btf_info {
            btf: bytes.as_mut_ptr() as u64,
            btf_size: bytes.len() as u32,
            ..Default::default()
        };
        let mut len = size_of::<c::bpf_btf_info>() as u32;
        // SAFETY: `info` has `len` bytes, `bytes` as many as it says; both outlive the call.
        check(unsafe { c::bpf_btf_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut len) })?;
        bytes.resize(info.btf_size as usize, 0);
    }
    Ok(bytes)
}
