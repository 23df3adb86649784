//! A packet socket with a receive ring (packet(7), TPACKET_V2): which sees every frame of a device.
#![allow(unsafe_code)] // the ring holds C structures that the kernel writes, and its options have no safe wrapper

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use sluice_lab::netns::Netns;
use sluice_memory::Memory;

use crate::generator::layouts::SINK_MAGIC;

/// Room of a frame with the ring's own header.
const FRAME_ROOM: u32 = 2048;
const BLOCK: u32 = 1 << 16;
const FRAMES_A_BLOCK: u32 = BLOCK / FRAME_ROOM;
const ETH_P_ALL: u16 = 3;
/// PACKET_FANOUT_HASH
const FANOUT_HASH: u32 = 0;

pub struct PacketRing {
    /// The kernel hands frames over through their status words.
    memory: Memory,
    socket: OwnedFd,
    frames: u32,
    at: u32,
}

fn check(result: i32, what: &str) -> Result<i32> {
    if result < 0 {
        return Err(io::Error::last_os_error()).with_context(|| what.to_owned());
    }
    Ok(result)
}

fn option<T>(socket: &OwnedFd, name: i32, value: &T) -> Result<()> {
    option_at(socket, libc::SOL_PACKET, name, value)
}

fn option_at<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> Result<()> {
    // SAFETY: the value outlives the call and its own size goes with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result, &format!("packet socket option {name}")).map(drop)
}

/// Neighbour discovery and multicast reports are on the link, too: neither received nor dropped shall they count.
/// Classic BPF: IPv4 with the bench's mark where the payload of UDP begins.
fn only_bench_frames() -> libc::sock_fprog {
    const fn op(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf, k }
    }
    static PROGRAM: [libc::sock_filter; 6] = [
        op(0x28, 0, 0, 12),         // ldh [12]
        op(0x15, 0, 3, 0x0800),     // jeq ETH_P_IP, else drop
        op(0x20, 0, 0, 42),         // ld [42]
        op(0x15, 0, 1, SINK_MAGIC), // jeq SINK_MAGIC, else drop
        op(0x06, 0, 0, u32::MAX),   // ret everything
        op(0x06, 0, 0, 0),          // ret nothing
    ];
    libc::sock_fprog { len: PROGRAM.len() as u16, filter: PROGRAM.as_ptr().cast_mut() }
}

impl PacketRing {
    /// `frames` is rounded up to whole blocks of 32. With `fanout`, sockets of one group share the device's flows.
    pub fn open(netns: &Netns, ifindex: u32, frames: u32, fanout: Option<u16>) -> Result<PacketRing> {
        netns.enter(|| PacketRing::open_here(ifindex, frames, fanout))?
    }

    fn open_here(ifindex: u32, frames: u32, fanout: Option<u16>) -> Result<PacketRing> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        // SAFETY: a descriptor just opened, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(check(fd, "cannot open a packet socket (CAP_NET_RAW)")?) };
        option(&socket, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as i32))?;
        option(&socket, libc::PACKET_IGNORE_OUTGOING, &1i32)?;
        option_at(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &only_bench_frames())?;
        let blocks = frames.div_ceil(FRAMES_A_BLOCK).max(1);
        let frames = blocks * FRAMES_A_BLOCK;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK,
            tp_block_nr: blocks,
            tp_frame_size: FRAME_ROOM,
            tp_frame_nr: frames,
        };
        option(&socket, libc::PACKET_RX_RING, &request)?;
        let memory = Memory::shared(&socket, 0, (blocks * BLOCK) as usize).context("cannot map the ring")?;
        let ring = PacketRing { memory, socket, frames, at: 0 };
        ring.bind(ifindex)?;
        if let Some(group) = fanout {
            option(&ring.socket, libc::PACKET_FANOUT, &(u32::from(group) | FANOUT_HASH << 16))?;
        }
        Ok(ring)
    }

    fn bind(&self, ifindex: u32) -> Result<()> {
        // SAFETY: all bytes zero are a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETH_P_ALL.to_be();
        address.sll_ifindex = ifindex as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address outlives the call and its own size goes with it.
        let result = unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) };
        check(result, "cannot bind the packet socket").map(drop)
    }

    /// Hands the next frame to `look`, then gives its slot of the ring back; None when there is none.
    pub fn next<T>(&mut self, look: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let offset = (self.at * FRAME_ROOM) as usize;
        let status = self.memory.word(offset + offset_of!(libc::tpacket2_hdr, tp_status));
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let header = self.memory.at(offset, FRAME_ROOM as usize).cast::<libc::tpacket2_hdr>();
        // SAFETY: the frame is ours until its status goes back; offset and length lie within its room.
        let seen = unsafe {
            let (offset, length) = ((*header.as_ptr()).tp_mac, (*header.as_ptr()).tp_snaplen);
            let room = FRAME_ROOM.saturating_sub(u32::from(offset));
            let start = header.cast::<u8>().add(usize::from(offset));
            look(std::slice::from_raw_parts_mut(start.as_ptr(), length.min(room) as usize))
        };
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.at = if self.at + 1 == self.frames { 0 } else { self.at + 1 };
        Some(seen)
    }

    /// Frames that found the ring full, since the last time.
    pub fn drops(&self) -> Result<u64> {
        // SAFETY: all bytes zero are valid counters.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the counters outlive the call and their own size goes with them.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        check(result, "cannot read the packet socket's counters")?;
        Ok(stats.tp_drops.into())
    }
}

/// Sends whole frames on a device, past its queueing discipline.
pub struct PacketSender(OwnedFd);

/// packet(7)
const PACKET_QDISC_BYPASS: i32 = 20;

impl PacketSender {
    pub fn open(netns: &Netns, ifindex: u32) -> Result<PacketSender> {
        netns.enter(|| {
            // A protocol of 0 receives nothing.
            // SAFETY: no pointers.
            let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
            // SAFETY: a descriptor just opened, owned by nobody else.
            let socket = unsafe { OwnedFd::from_raw_fd(check(fd, "cannot open a packet socket")?) };
            option(&socket, PACKET_QDISC_BYPASS, &1i32)?;
            // SAFETY: all bytes zero are a valid address.
            let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            (address.sll_family, address.sll_ifindex) = (libc::AF_PACKET as u16, ifindex as i32);
            let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            // SAFETY: the address outlives the call and its own size goes with it.
            let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
            check(result, "cannot bind the packet socket")?;
            Ok(PacketSender(socket))
        })?
    }

    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the frame outlives the call and its own length goes with it.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
