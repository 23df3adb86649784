//! The programs that make copies, and how they stand before the gateway's.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Object, ObjectBuilder};
use libbpf_sys as c;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/copies.bpf.o"));

/// Copies a millisecond and CPU, at most: what a port may lose of its CPU to the monitor.
const MOST_PER_MILLISECOND: u32 = 1000;
/// Names of the gateway's programs at the entries of a port, and of the one that takes the place of the first.
const XDP_ROOT: &str = "xdp_root";
const TC_ROOT: &str = "tc_root";
const XDP_COPY: &str = "copy_xdp";
/// Where the gateway's program is kept while a copying one has its place: a port must go on when the monitor is killed.
const PINS: &str = "/sys/fs/bpf/sluice-monitor";

/// Programs in place on a port.
pub struct Tap {
    ifindex: u32,
    pub copies: MapHandle,
    lost: MapHandle,
    xdp: Option<Displaced>,
    /// Before the gateway's programs; they go with their descriptors.
    tcx: Vec<OwnedFd>,
}

/// The gateway's program and where it stood.
struct Displaced {
    link: OwnedFd,
    root: OwnedFd,
    /// Identity of the program in its place.
    copier: u32,
    pin: PathBuf,
}

impl Tap {
    /// Whether a gateway's programs stand on the port, or what a killed monitor left in their place.
    pub fn is_wanted(ifindex: u32) -> bool {
        xdp_program(ifindex).is_some_and(|(_, name)| name == XDP_ROOT || name == XDP_COPY)
            || has_tc_root(ifindex)
    }

    /// Puts copying programs before the gateway's.
    pub fn set_up(ifindex: u32, everything: bool) -> io::Result<Tap> {
        let mut object = load(everything)?;
        let (copies, lost) = (map(&object, "copies")?, map(&object, ".data.lost")?);
        let mut tap = Tap { ifindex, copies, lost, xdp: None, tcx: Vec::new() };
        tap.tcx.push(link_before(&program(&object, "copy_sent")?, ifindex, c::BPF_TCX_EGRESS)?);
        match xdp_program(ifindex).filter(|(_, name)| name == XDP_ROOT || name == XDP_COPY) {
            Some((id, name)) => tap.xdp = Some(displace(&mut object, ifindex, id, &name)?),
            None => {
                let received = program(&object, "copy_received")?;
                tap.tcx.push(link_before(&received, ifindex, c::BPF_TCX_INGRESS)?);
            }
        }
        Ok(tap)
    }

    /// Whether the programs still stand where they see every frame.
    pub fn is_in_place(&self) -> bool {
        let xdp = xdp_program(self.ifindex);
        match &self.xdp {
            Some(displaced) => xdp.is_some_and(|(id, _)| id == displaced.copier),
            None => xdp.is_none() && has_tc_root(self.ifindex),
        }
    }

    /// Copies that were not made.
    pub fn lost(&self) -> u64 {
        let value = self.lost.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        value
            .chunks_exact(8)
            .filter_map(|word| word.first_chunk())
            .map(|word| u64::from_ne_bytes(*word))
            .sum()
    }

    /// Gives the gateway's program its place back.
    pub fn take_down(&mut self) {
        self.tcx.clear();
        let Some(Displaced { link, root, copier, pin }) = self.xdp.take() else { return };
        let is_ours = xdp_program(self.ifindex).is_some_and(|(id, _)| id == copier);
        if is_ours && let Err(error) = update(&link, &root) {
            // Frames go on through the copying program, which needs its pin.
            tracing::warn!("cannot give the gateway's program its place back: {error}; the next commit does");
            return;
        }
        if let Err(error) = fs::remove_file(&pin) {
            tracing::warn!("cannot remove {}: {error}", pin.display());
        }
    }
}

fn load(everything: bool) -> io::Result<Object> {
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_memory(OBJECT).map_err(io::Error::other)?;
    let mut config = [0; 8];
    config[..4].copy_from_slice(&MOST_PER_MILLISECOND.to_ne_bytes());
    config[4..].copy_from_slice(&u32::from(everything).to_ne_bytes());
    for mut map in open.maps_mut().filter(|map| map.name() == ".rodata.config") {
        map.set_initial_value(&config).map_err(io::Error::other)?;
    }
    open.load().map_err(|error| io::Error::other(format!("cannot load the copying programs: {error}")))
}

fn program(object: &Object, name: &str) -> io::Result<OwnedFd> {
    let found = object.progs().find(|program| program.name() == name);
    found.ok_or(io::ErrorKind::NotFound)?.as_fd().try_clone_to_owned()
}

fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let found = object.maps().find(|map| map.name() == name).ok_or(io::ErrorKind::NotFound)?;
    MapHandle::try_from(&found).map_err(io::Error::other)
}

/// Takes the place of the gateway's XDP program. Its link is changed, never detached: no frame meets a bare port.
fn displace(object: &mut Object, ifindex: u32, present: u32, name: &str) -> io::Result<Displaced> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "the gateway's program is on no link");
    let is_it = |info: &LinkTypeInfo| matches!(info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == ifindex);
    let link = LinkInfoIter::default().find(|link| link.prog_id == present && is_it(&link.info));
    let link = link_by_id(link.ok_or_else(missing)?.id)?;
    let pin = pin_of(ifindex)?;
    // What a killed monitor left knows the gateway's program by its pinned map.
    let root = match name {
        XDP_COPY => kept_program(&pin)?,
        _ => program_by_id(present)?,
    };
    let kept = map(object, "copied_root")?;
    let fd = root.as_raw_fd() as u32;
    kept.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
    let copier = program(object, XDP_COPY)?;
    let id = details(copier.as_fd())?.0;
    fs::create_dir_all(PINS)?;
    let fresh = pin.with_extension("new");
    // Usually there is none.
    let _ = fs::remove_file(&fresh);
    pin_map(kept.as_fd(), &fresh)?;
    if let Err(error) = update(&link, &copier) {
        fs::remove_file(&fresh)?;
        return Err(error);
    }
    fs::rename(&fresh, &pin)?;
    Ok(Displaced { link, root, copier: id, pin })
}

/// Interfaces have their numbers within a network namespace.
fn pin_of(ifindex: u32) -> io::Result<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Path::new(PINS).join(format!("{namespace}-{ifindex}")))
}

fn kept_program(pin: &Path) -> io::Result<OwnedFd> {
    let kept = MapHandle::from_pinned_path(pin).map_err(io::Error::other)?;
    let id = kept.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
    let id = id.as_deref().and_then(|id| id.first_chunk()).ok_or(io::ErrorKind::NotFound)?;
    program_by_id(u32::from_ne_bytes(*id))
}

/// Id and name of the XDP program on a device of the calling thread's namespace.
fn xdp_program(ifindex: u32) -> Option<(u32, String)> {
    let mut options =
        c::bpf_xdp_query_opts { sz: size_of::<c::bpf_xdp_query_opts>() as _, ..Default::default() };
    // SAFETY: `options` outlives the call and carries its own size.
    check(unsafe { c::bpf_xdp_query(ifindex as i32, 0, &mut options) }).ok()?;
    let ids = [options.prog_id, options.drv_prog_id, options.skb_prog_id];
    let id = ids.into_iter().find(|id| *id != 0)?;
    details(program_by_id(id).ok()?.as_fd()).ok()
}

fn has_tc_root(ifindex: u32) -> bool {
    let mut ids = [0u32; 64];
    let mut options =
        c::bpf_prog_query_opts { sz: size_of::<c::bpf_prog_query_opts>() as _, ..Default::default() };
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.count = ids.len() as u32;
    // SAFETY: `options` and the ids it points to outlive the call; both carry their size.
    let asked = unsafe { c::bpf_prog_query_opts(ifindex as i32, c::BPF_TCX_INGRESS, &mut options) };
    let name = |id: &u32| Some(details(program_by_id(*id).ok()?.as_fd()).ok()?.1);
    asked == 0 && ids.iter().take_while(|id| **id != 0).any(|id| name(id).as_deref() == Some(TC_ROOT))
}

fn details(program: BorrowedFd<'_>) -> io::Result<(u32, String)> {
    let mut info = c::bpf_prog_info::default();
    let mut length = size_of::<c::bpf_prog_info>() as u32;
    // SAFETY: `info` has `length` bytes and outlives the call.
    check(unsafe { c::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) })?;
    // SAFETY: the kernel ends the name with NUL inside its 16 bytes.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok((info.id, name.to_string_lossy().into_owned()))
}

fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; a descriptor that the kernel just made.
    unsafe { check(c::bpf_prog_get_fd_by_id(id)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; a descriptor that the kernel just made.
    unsafe { check(c::bpf_link_get_fd_by_id(id)).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

fn link_before(program: &OwnedFd, ifindex: u32, place: c::bpf_attach_type) -> io::Result<OwnedFd> {
    let options = c::bpf_link_create_opts {
        sz: size_of::<c::bpf_link_create_opts>() as _,
        flags: c::BPF_F_BEFORE,
        ..Default::default()
    };
    // SAFETY: `options` outlives the call and carries its own size; a descriptor that the kernel just made.
    unsafe {
        check(c::bpf_link_create(program.as_raw_fd(), ifindex as i32, place, &options))
            .map(|fd| OwnedFd::from_raw_fd(fd))
    }
}

fn update(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; no options.
    check(unsafe { c::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) }).map(drop)
}

fn pin_map(map: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends in NUL and outlives the call.
    check(unsafe { c::bpf_obj_pin(map.as_raw_fd(), path.as_ptr()) }).map(drop)
}

fn check(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}
