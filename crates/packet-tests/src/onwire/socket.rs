//! A packet socket on one device (packet(7)). The kernel takes a VLAN tag out of what it shows and tells it beside;
//! `receive` puts it back.
#![allow(unsafe_code, reason = "sockaddr_ll and auxiliary data have no safe interface")]

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};

const LARGEST: usize = 65_536;
/// linux/if_packet.h
const IGNORE_OUTGOING: libc::c_int = 23;

/// Sends and receives whole frames on one device.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

#[repr(C)]
#[derive(Clone, Copy)]
struct AuxData {
    status: u32,
    len: u32,
    snaplen: u32,
    mac: u16,
    net: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
}

fn check(code: libc::c_int) -> io::Result<libc::c_int> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(code) }
}

impl PacketSocket {
    /// On a device of the calling thread's namespace; the socket works from any.
    pub fn open(ifindex: u32) -> Result<PacketSocket> {
        let all = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call; the result is checked before it is owned.
        let fd =
            check(unsafe { libc::socket(libc::AF_PACKET, kind, all.into()) }).context("packet socket")?;
        // SAFETY: the descriptor is new and nobody else's.
        let socket = PacketSocket(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.option(libc::PACKET_AUXDATA)?;
        socket.option(IGNORE_OUTGOING)?;
        // SAFETY: all zeros is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = all;
        address.sll_ifindex = ifindex as i32;
        // SAFETY: the address lives through the call and its size is its own.
        let code =
            unsafe { libc::bind(fd, (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as u32) };
        check(code).context("binding a packet socket")?;
        Ok(socket)
    }

    fn option(&self, name: libc::c_int) -> Result<()> {
        let on: libc::c_int = 1;
        let size = size_of::<libc::c_int>() as u32;
        // SAFETY: the value lives through the call and its size is its own.
        let code = unsafe {
            libc::setsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, name, (&raw const on).cast(), size)
        };
        check(code).with_context(|| format!("packet socket option {name}"))?;
        Ok(())
    }

    /// All of it, or an error.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: the buffer lives through the call and the length is its own.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        ensure!(sent == frame.len() as isize, "sending a frame: {}", io::Error::last_os_error());
        Ok(())
    }

    /// A frame that arrived, if there is one.
    pub fn receive(&self) -> Result<Option<Vec<u8>>> {
        let mut frame = vec![0u8; LARGEST];
        let mut control = [0u64; 16];
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        // SAFETY: every buffer that the message names outlives the call with the size it names.
        let got = unsafe { libc::recvmsg(self.0.as_raw_fd(), &raw mut message, 0) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(error.into()) };
        }
        frame.truncate(got as usize);
        if let Some((tpid, tci)) = tag(&message) {
            let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
            frame.splice(12..12, tag).for_each(drop);
        }
        Ok(Some(frame))
    }
}

fn tag(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: recvmsg filled the message, and its control buffer is alive.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    // SAFETY: a PACKET_AUXDATA message carries this structure; the read does not need alignment.
    let data: AuxData = unsafe { libc::CMSG_DATA(header).cast::<AuxData>().read_unaligned() };
    let valid = data.status & libc::TP_STATUS_VLAN_VALID != 0;
    valid.then_some((data.vlan_tpid, data.vlan_tci))
}
