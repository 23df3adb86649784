//! Links: programs on devices, as long as somebody holds them.
#![allow(unsafe_code, reason = "calls into libbpf's C interface")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_sys as c;

use crate::call::{check, descriptor};
use crate::pin;

/// Where on a device a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// XDP in the driver if it can, else behind it.
    Xdp,
    /// XDP in the driver, or nowhere.
    XdpNative,
    /// XDP behind the driver, on a whole socket buffer.
    XdpGeneric,
    /// tcx, frames that arrive, before others that are there.
    TcxIngress,
    /// tcx, frames that leave, before others that are there.
    TcxEgress,
}

impl Target {
    pub(crate) fn attach_type(self) -> c::bpf_attach_type {
        match self {
            Target::Xdp | Target::XdpNative | Target::XdpGeneric => c::BPF_XDP,
            Target::TcxIngress => c::BPF_TCX_INGRESS,
            Target::TcxEgress => c::BPF_TCX_EGRESS,
        }
    }

    pub(crate) fn flags(self) -> u32 {
        match self {
            Target::Xdp => 0,
            Target::XdpNative => c::XDP_FLAGS_DRV_MODE,
            Target::XdpGeneric => c::XDP_FLAGS_SKB_MODE,
            // first of the line: another program must not let packets pass before us
            Target::TcxIngress | Target::TcxEgress => c::BPF_F_BEFORE,
        }
    }
}

/// What the kernel says of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkDetails {
    /// The kernel's number of it.
    pub id: u32,
    /// Of the program that it runs.
    pub program_id: u32,
    /// 0 = the device is gone.
    pub ifindex: u32,
}

/// A program on a device. It leaves with the last that holds the link: a descriptor, or a pin.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// On a device of the calling thread's network namespace.
    pub fn attach(program: impl AsFd, ifindex: u32, target: Target) -> io::Result<Link> {
        let options = c::bpf_link_create_opts {
            sz: size_of::<c::bpf_link_create_opts>() as _,
            flags: target.flags(),
            ..Default::default()
        };
        let (program, kind) = (program.as_fd().as_raw_fd(), target.attach_type());
        // SAFETY: `options` outlives the call and carries its own size; the call makes a descriptor.
        unsafe { descriptor(c::bpf_link_create(program, ifindex as i32, kind, &options)).map(Link) }
    }

    /// The link behind a pin.
    pub fn pinned(path: &Path) -> io::Result<Link> {
        pin::open(path).map(Link)
    }

    /// The link with an id of the kernel.
    pub fn by_id(id: u32) -> io::Result<Link> {
        // SAFETY: no pointers; the call makes a descriptor.
        unsafe { descriptor(c::bpf_link_get_fd_by_id(id)).map(Link) }
    }

    /// Puts another program in the place of the present one: every packet meets one of the two.
    pub fn update(&self, program: impl AsFd) -> io::Result<()> {
        let (link, program) = (self.0.as_raw_fd(), program.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open; no options.
        check(unsafe { c::bpf_link_update(link, program, std::ptr::null()) }).map(drop)
    }

    /// Takes the program off its device at once; closing the last reference would do it some time later.
    pub fn detach(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        check(unsafe { c::bpf_link_detach(self.0.as_raw_fd()) }).map(drop)
    }

    /// What the kernel says of it; an error for links of other kinds than XDP and tcx.
    pub fn details(&self) -> io::Result<LinkDetails> {
        let info = LinkInfo::from_fd(self.0.as_fd()).map_err(io::Error::other)?;
        let ifindex = match info.info {
            LinkTypeInfo::Xdp(xdp) => xdp.ifindex,
            LinkTypeInfo::Tcx(tcx) => tcx.ifindex,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "neither an XDP nor a tcx link")),
        };
        Ok(LinkDetails { id: info.id, program_id: info.prog_id, ifindex })
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use sluice_netns::Netns;

    use super::*;
    use crate::device::{XdpMode, XdpState, xdp, xdp_link};
    use crate::program::{Instruction, details, load_xdp};

    /// `return VERDICT`
    fn program(verdict: i32) -> OwnedFd {
        let instruction = |code, value| Instruction { code, target: 0, source: 0, offset: 0, value };
        load_xdp(&[instruction(0xb7, verdict), instruction(0x95, 0)]).unwrap()
    }

    #[test]
    fn a_program_stands_on_a_device_as_long_as_its_link_is_held() {
        const DROP: i32 = 1;
        const PASS: i32 = 2;
        let netns = Netns::create("links").unwrap();
        netns.ip("link add v0 type veth peer name v1").unwrap();
        let ifindex = netns.ifindex("v0").unwrap();
        let state = || netns.enter(|| xdp(ifindex)).unwrap().unwrap();
        let nothing = XdpState { program_id: 0, mode: XdpMode::None };
        for (target, mode) in [(Target::XdpNative, XdpMode::Native), (Target::XdpGeneric, XdpMode::Generic)] {
            assert_eq!(state(), nothing);
            let (first, second) = (program(DROP), program(PASS));
            let id = |program: &OwnedFd| details(program).unwrap().id;
            let link = netns.enter(|| Link::attach(&first, ifindex, target)).unwrap().unwrap();
            assert_eq!(state(), XdpState { program_id: id(&first), mode });
            let found = link.details().unwrap();
            assert_eq!(found, LinkDetails { id: found.id, program_id: id(&first), ifindex });
            let refused = netns.enter(|| Link::attach(&second, ifindex, target)).unwrap().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
            link.update(&second).unwrap();
            assert_eq!(state().program_id, id(&second));
            let same = Link::by_id(xdp_link(ifindex, id(&second)).unwrap()).unwrap();
            drop(link);
            assert_eq!(state().program_id, id(&second));
            same.detach().unwrap();
            assert_eq!((state(), same.details().unwrap().ifindex), (nothing, 0));
        }
    }
}
