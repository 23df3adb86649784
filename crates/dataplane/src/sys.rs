//! The few libbpf calls that libbpf-rs has no safe form of: links by descriptor, program details, XDP queries.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libbpf_rs::{AsRawLibbpf, OpenMap, OpenObject, btf};
use libbpf_sys as c;

/// Name, mode in words.
pub const XDP_MODES: [&str; 5] = ["none", "native", "generic", "offloaded", "several modes"];

#[derive(Debug, Clone)]
pub struct ProgramDetails {
    pub id: u32,
    pub tag: [u8; 8],
    pub name: String,
    pub verified_instructions: u32,
    pub jited_bytes: u32,
    pub map_ids: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkDetails {
    pub program_id: u32,
    /// 0 = the device is gone.
    pub ifindex: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    XdpNative,
    XdpGeneric,
    TcxIngress,
    TcxEgress,
}

fn check(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}

fn path_text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Attaches a program to a device of the calling thread's network namespace.
pub fn link_create(program: BorrowedFd<'_>, ifindex: u32, target: Target) -> io::Result<OwnedFd> {
    let (kind, flags) = match target {
        Target::XdpNative => (c::BPF_XDP, c::XDP_FLAGS_DRV_MODE),
        Target::XdpGeneric => (c::BPF_XDP, c::XDP_FLAGS_SKB_MODE),
        // first of the line: another program must not let packets pass before us
        Target::TcxIngress => (c::BPF_TCX_INGRESS, c::BPF_F_BEFORE),
        Target::TcxEgress => (c::BPF_TCX_EGRESS, c::BPF_F_BEFORE),
    };
    let options = c::bpf_link_create_opts {
        sz: size_of::<c::bpf_link_create_opts>() as _,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` outlives the call and carries its own size; the descriptors are open.
    let fd = check(unsafe { c::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &options) })?;
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a device as netlink does, unless there is one, and takes it off again. For what libbpf says of a
/// refusal: links are refused without a word.
pub fn try_xdp(program: BorrowedFd<'_>, ifindex: u32, target: Target) -> io::Result<()> {
    let mode = if target == Target::XdpNative { c::XDP_FLAGS_DRV_MODE } else { c::XDP_FLAGS_SKB_MODE };
    let (device, no_options) = (ifindex as i32, std::ptr::null());
    let flags = mode | c::XDP_FLAGS_UPDATE_IF_NOEXIST;
    // SAFETY: the descriptor is open; no options.
    check(unsafe { c::bpf_xdp_attach(device, program.as_raw_fd(), flags, no_options) })?;
    // SAFETY: no options.
    check(unsafe { c::bpf_xdp_detach(device, mode, no_options) }).map(drop)
}

pub fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; no options.
    check(unsafe { c::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) }).map(drop)
}

/// Takes the program off its device at once; closing the last reference would do it some time later.
pub fn link_detach(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open.
    check(unsafe { c::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

pub fn link_details(link: BorrowedFd<'_>) -> io::Result<LinkDetails> {
    let mut info = c::bpf_link_info::default();
    let mut len = size_of::<c::bpf_link_info>() as u32;
    // SAFETY: `info` has `len` bytes and outlives the call.
    check(unsafe { c::bpf_link_get_info_by_fd(link.as_raw_fd(), &mut info, &mut len) })?;
    let ifindex = match info.type_ {
        // SAFETY: the kernel filled the member that belongs to the type; every bit pattern is a number.
        c::BPF_LINK_TYPE_XDP => unsafe { info.__bindgen_anon_1.xdp.ifindex },
        // SAFETY: as above.
        c::BPF_LINK_TYPE_TCX => unsafe { info.__bindgen_anon_1.tcx.ifindex },
        _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "neither an XDP nor a tcx link")),
    };
    Ok(LinkDetails { program_id: info.prog_id, ifindex })
}

pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_text(path)?;
    // SAFETY: the path ends in NUL and outlives the call.
    check(unsafe { c::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Opens any pinned object.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = path_text(path)?;
    // SAFETY: the path ends in NUL and outlives the call.
    let fd = check(unsafe { c::bpf_obj_get(path.as_ptr()) })?;
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub fn program_details(program: BorrowedFd<'_>) -> io::Result<ProgramDetails> {
    let mut map_ids = [0u32; 64]; // the kernel's own limit for one program
    let mut info = c::bpf_prog_info {
        nr_map_ids: map_ids.len() as u32,
        map_ids: map_ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of::<c::bpf_prog_info>() as u32;
    // SAFETY: `info` has `len` bytes; `map_ids` has room for the number it names; both outlive the call.
    check(unsafe { c::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) })?;
    // SAFETY: the kernel ends the name with NUL inside its 16 bytes.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(ProgramDetails {
        id: info.id,
        tag: info.tag,
        name,
        verified_instructions: info.verified_insns,
        jited_bytes: info.jited_prog_len,
        map_ids: map_ids.iter().copied().take(info.nr_map_ids as usize).collect(),
    })
}

/// Which functions each function of a program calls, by their order in the program.
pub fn calls(program: BorrowedFd<'_>) -> io::Result<Vec<Vec<usize>>> {
    const SIZE: usize = size_of::<c::bpf_insn>();
    let mut info = c::bpf_prog_info::default();
    let mut len = size_of::<c::bpf_prog_info>() as u32;
    // SAFETY: `info` has `len` bytes and outlives the call; without buffers the kernel only says how long they must be.
    check(unsafe { c::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) })?;
    let mut code = vec![0u8; info.xlated_prog_len as usize];
    let record = info.func_info_rec_size as usize;
    let mut functions = vec![0u8; info.nr_func_info as usize * record];
    let mut asked = c::bpf_prog_info {
        xlated_prog_len: info.xlated_prog_len,
        xlated_prog_insns: code.as_mut_ptr() as u64,
        nr_func_info: info.nr_func_info,
        func_info_rec_size: info.func_info_rec_size,
        func_info: functions.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of::<c::bpf_prog_info>() as u32;
    // SAFETY: both buffers have the sizes named beside them and outlive the call.
    check(unsafe { c::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut asked, &mut len) })?;
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    let starts: Vec<usize> = functions.chunks_exact(record.max(1)).map(word).collect();
    let function_of = |insn: usize| starts.partition_point(|start| *start <= insn).saturating_sub(1);
    let mut calls = vec![Vec::new(); starts.len().max(1)];
    for (at, insn) in code.chunks_exact(SIZE).enumerate() {
        let (source, target) =
            (insn[1] >> 4, at as i64 + 1 + i64::from(i16::from_ne_bytes([insn[2], insn[3]])));
        if u32::from(insn[0]) == c::BPF_JMP | c::BPF_CALL && u32::from(source) == c::BPF_PSEUDO_CALL {
            calls[function_of(at)].push(function_of(target as usize));
        }
    }
    Ok(calls)
}

/// Id of the XDP program on a device of the calling thread's namespace (0 = none) and the index of its mode.
pub fn xdp_query(ifindex: u32) -> io::Result<(u32, usize)> {
    let mut options =
        c::bpf_xdp_query_opts { sz: size_of::<c::bpf_xdp_query_opts>() as _, ..Default::default() };
    // SAFETY: `options` outlives the call and carries its own size.
    check(unsafe { c::bpf_xdp_query(ifindex as i32, 0, &mut options) })?;
    let (id, mode) = match options.attach_mode as u32 {
        c::XDP_ATTACHED_NONE => (0, 0),
        c::XDP_ATTACHED_DRV => (options.prog_id.max(options.drv_prog_id), 1),
        c::XDP_ATTACHED_SKB => (options.prog_id.max(options.skb_prog_id), 2),
        c::XDP_ATTACHED_HW => (options.prog_id.max(options.hw_prog_id), 3),
        _ => (options.drv_prog_id.max(options.skb_prog_id), 4),
    };
    Ok((id, mode))
}

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

/// Types of a map's keys and values, and the BTF that tells what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapTypes {
    /// 0 = none.
    pub btf_id: u32,
    pub key: u32,
    pub value: u32,
}

pub fn map_types(map: BorrowedFd<'_>) -> io::Result<MapTypes> {
    let mut info = c::bpf_map_info::default();
    let mut len = size_of::<c::bpf_map_info>() as u32;
    // SAFETY: `info` has `len` bytes and outlives the call.
    check(unsafe { c::bpf_map_get_info_by_fd(map.as_raw_fd(), &mut info, &mut len) })?;
    Ok(MapTypes { btf_id: info.btf_id, key: info.btf_key_type_id, value: info.btf_value_type_id })
}

/// A BTF that the kernel holds.
pub fn btf_bytes(id: u32) -> io::Result<Vec<u8>> {
    // SAFETY: no pointers.
    let fd = check(unsafe { c::bpf_btf_get_fd_by_id(id) })?;
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
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

/// The BTF of an object's own types.
pub fn object_btf(object: &OpenObject) -> Option<Vec<u8>> {
    let mut size = 0;
    // SAFETY: the object lives as long as the reference, its BTF as long as it, and the bytes as long as that.
    unsafe {
        let btf = c::bpf_object__btf(object.as_libbpf_object().as_ptr());
        let data = if btf.is_null() { std::ptr::null() } else { c::btf__raw_data(btf, &mut size) };
        (!data.is_null()).then(|| std::slice::from_raw_parts(data.cast::<u8>(), size as usize).to_vec())
    }
}

/// As [`map_types`], of a map that does not exist yet.
pub fn object_map_types(map: &OpenMap<'_>) -> MapTypes {
    let map = map.as_libbpf_object().as_ptr();
    // SAFETY: the pointer is that of a live map of an object.
    unsafe {
        let (key, value) = (c::bpf_map__btf_key_type_id(map), c::bpf_map__btf_value_type_id(map));
        MapTypes { btf_id: 0, key, value }
    }
}

/// Gives memory that was freed back to the kernel: what a large commit took would stay with the allocator otherwise.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the allocator takes its own locks.
    unsafe {
        libc::malloc_trim(0)
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
