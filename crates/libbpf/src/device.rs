//! What is attached to a device of the calling thread's network namespace.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo};
use libbpf_sys as c;

use crate::Target;
use crate::call::check;

/// Programs at one entry of a device, at most (`BPF_MPROG_MAX`).
const MOST: usize = 64;

/// How the XDP program of a device runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// There is none.
    None,
    /// In the driver.
    Native,
    /// Behind the driver, on a whole socket buffer.
    Generic,
    /// In the hardware.
    Offloaded,
    /// Programs in several modes at one time.
    Several,
}

impl XdpMode {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            XdpMode::None => "none",
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
            XdpMode::Offloaded => "offloaded",
            XdpMode::Several => "several modes",
        }
    }
}

/// The XDP program of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XdpState {
    /// 0 = none.
    pub program_id: u32,
    /// How it runs.
    pub mode: XdpMode,
}

fn query(ifindex: u32) -> io::Result<c::bpf_xdp_query_opts> {
    let mut options =
        c::bpf_xdp_query_opts { sz: size_of::<c::bpf_xdp_query_opts>() as _, ..Default::default() };
    // SAFETY: `options` outlives the call and carries its own size.
    check(unsafe { c::bpf_xdp_query(ifindex as i32, 0, &mut options) })?;
    Ok(options)
}

/// `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const TAKES_REDIRECTED: u64 = 1 << 2;

/// Whether a device takes frames that XDP programs of others redirect to it, as it is now.
pub fn takes_redirected(ifindex: u32) -> io::Result<bool> {
    Ok(query(ifindex)?.feature_flags & TAKES_REDIRECTED != 0)
}

/// What XDP program a device has.
pub fn xdp(ifindex: u32) -> io::Result<XdpState> {
    let options = query(ifindex)?;
    let (program_id, mode) = match options.attach_mode as u32 {
        c::XDP_ATTACHED_NONE => (0, XdpMode::None),
        c::XDP_ATTACHED_DRV => (options.prog_id.max(options.drv_prog_id), XdpMode::Native),
        c::XDP_ATTACHED_SKB => (options.prog_id.max(options.skb_prog_id), XdpMode::Generic),
        c::XDP_ATTACHED_HW => (options.prog_id.max(options.hw_prog_id), XdpMode::Offloaded),
        _ => (options.drv_prog_id.max(options.skb_prog_id), XdpMode::Several),
    };
    Ok(XdpState { program_id, mode })
}

/// Id of the link that holds a device's XDP program. None where it was put there without one.
pub fn xdp_link(ifindex: u32, program_id: u32) -> Option<u32> {
    let is_there = |info: &LinkTypeInfo| matches!(info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == ifindex);
    let mut links = LinkInfoIter::default();
    links.find(|link| link.prog_id == program_id && is_there(&link.info)).map(|link| link.id)
}

/// Programs at one of a device's tcx entries in the order in which packets meet them: id of each, and of its link (0 = without).
pub fn tcx(ifindex: u32, target: Target) -> io::Result<Vec<(u32, u32)>> {
    let (mut programs, mut links) = ([0u32; MOST], [0u32; MOST]);
    let mut options = c::bpf_prog_query_opts {
        sz: size_of::<c::bpf_prog_query_opts>() as _,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.count = MOST as u32;
    // SAFETY: `options` and the arrays outlive the call, and it carries their sizes.
    check(unsafe { c::bpf_prog_query_opts(ifindex as i32, target.attach_type(), &mut options) })?;
    Ok(programs.into_iter().zip(links).take_while(|(program, _)| *program != 0).collect())
}

/// Attaches an XDP program as netlink does, unless there is one, and takes it off again. For what libbpf says of a refusal:
/// links are refused without a word.
pub fn try_xdp(program: impl AsFd, ifindex: u32, target: Target) -> io::Result<()> {
    let (device, mode, no_options) = (ifindex as i32, target.flags(), std::ptr::null());
    let flags = mode | c::XDP_FLAGS_UPDATE_IF_NOEXIST;
    // SAFETY: the descriptor is open; no options.
    check(unsafe { c::bpf_xdp_attach(device, program.as_fd().as_raw_fd(), flags, no_options) })?;
    // SAFETY: no options.
    check(unsafe { c::bpf_xdp_detach(device, mode, no_options) }).map(drop)
}
