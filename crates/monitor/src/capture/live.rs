//! A live interface: a packet socket with a ring of blocks that the kernel fills (TPACKET_V3, packet(7)).

#![allow(unsafe_code, reason = "a ring shared with the kernel, whose headers are C structures")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::libc::{self, c_int};
use sluice_memory::Memory;
use sluice_wire::{eth, ethertype, vlan};

use super::CaptureError;
use super::interface::{Capture, Interface};
use crate::frame::{Batch, LinkType, Record};

/// A quarter of a second of 64-byte frames at a million a second.
const BLOCKS: usize = 64;
const BLOCK: usize = 1 << 20;
/// Longest wait for a block that is not full, milliseconds.
const RETIRE: u32 = 50;

/// Not in the libc crate (linux/if_packet.h, since 4.20).
const PACKET_IGNORE_OUTGOING: c_int = 23;

/// ARPHRD_ETHER and ARPHRD_LOOPBACK: frames with an Ethernet header (linux/if_arp.h).
const ETHERNET_LIKE: [u16; 2] = [1, 772];

pub(super) struct PacketSocket {
    socket: OwnedFd,
    ring: Ring,
    link: LinkType,
    next: usize,
    drops: u64,
}

impl PacketSocket {
    /// Listens on an interface of the caller's network namespace, promiscuously.
    pub fn open(interface: &str) -> Result<Interface<PacketSocket>, CaptureError> {
        let io = |source| CaptureError::Io { name: interface.to_owned(), source };
        let Ok(index) = nix::net::if_::if_nametoindex(interface) else {
            return Err(CaptureError::NoInterface { name: interface.to_owned(), known: interfaces() });
        };
        let socket = packet_socket().map_err(io)?;
        option(&socket, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3).map_err(io)?;
        // SAFETY: all-zero bytes are a valid tpacket_req3.
        let mut request: libc::tpacket_req3 = unsafe { std::mem::zeroed() };
        request.tp_block_size = BLOCK as u32;
        request.tp_block_nr = BLOCKS as u32;
        request.tp_frame_size = 2048;
        request.tp_frame_nr = (BLOCK / 2048 * BLOCKS) as u32;
        request.tp_retire_blk_tov = RETIRE;
        option(&socket, libc::PACKET_RX_RING, &request).map_err(io)?;
        let ring = Ring::map(&socket).map_err(io)?;
        // Before it hears anything.
        option(&socket, PACKET_IGNORE_OUTGOING, &c_int::from(is_loopback(interface))).map_err(io)?;
        let link = bind(&socket, index).map_err(io)?;
        join(&socket, index).map_err(io)?;
        let tap = PacketSocket { socket, ring, link, next: 0, drops: 0 };
        Ok(Interface::new(interface.to_owned(), tap))
    }

    /// PACKET_STATISTICS are since the last reading.
    fn read_drops(&mut self) {
        // SAFETY: all-zero bytes are a valid tpacket_stats_v3.
        let mut statistics: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: pointer and length describe `statistics`, and the kernel writes no more than that.
        let failed = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        };
        if failed == 0 {
            self.drops += u64::from(statistics.tp_drops);
        }
    }
}

impl Capture for PacketSocket {
    fn take(&mut self, batch: &mut Batch) -> io::Result<()> {
        if self.ring.is_ready(self.next) {
            self.ring.take(self.next, self.link, batch);
            self.next = (self.next + 1) % BLOCKS;
        }
        self.read_drops();
        Ok(())
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd()]
    }

    fn drops(&self) -> u64 {
        self.drops
    }
}

/// The blocks, shared with the kernel. A block belongs to us from the moment its status says so until we give it back.
struct Ring(Memory);

impl Ring {
    fn map(socket: &OwnedFd) -> io::Result<Ring> {
        Memory::shared(socket, 0, BLOCK * BLOCKS).map(Ring)
    }

    fn block(&self, number: usize) -> *mut libc::tpacket_block_desc {
        self.0.at(number * BLOCK, BLOCK).as_ptr().cast()
    }

    fn status(&self, number: usize) -> &AtomicU32 {
        // SAFETY: an aligned word of the mapping, which lives as long as self, and which the kernel writes as a whole.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.block(number)).hdr.bh1.block_status) }
    }

    fn is_ready(&self, number: usize) -> bool {
        self.status(number).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Copies a ready block's frames and gives the block back.
    fn take(&self, number: usize, link: LinkType, batch: &mut Batch) {
        let block = self.block(number).cast::<u8>();
        // SAFETY: the block is ours, and its header lies at its beginning.
        let header = unsafe { (*self.block(number)).hdr.bh1 };
        let mut at = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            // SAFETY: the kernel put a frame's header here; frames lie inside their block.
            let frame = unsafe { block.add(at).cast::<libc::tpacket3_hdr>().read_unaligned() };
            let start = at + usize::from(frame.tp_mac);
            // SAFETY: as above: the kernel wrote tp_snaplen bytes from tp_mac on.
            let data = unsafe { std::slice::from_raw_parts(block.add(start), frame.tp_snaplen as usize) };
            push(&frame, data, link, batch);
            at += frame.tp_next_offset as usize;
        }
        self.status(number).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The kernel takes a frame's VLAN tag off; it is put back where it was (802.1Q 9.6: behind the addresses).
fn push(frame: &libc::tpacket3_hdr, data: &[u8], link: LinkType, batch: &mut Batch) {
    let record = Record {
        time_ns: u64::from(frame.tp_sec) * 1_000_000_000 + u64::from(frame.tp_nsec),
        wire_len: frame.tp_len,
        link,
        ..Record::default()
    };
    if frame.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        batch.push_copy(record, data);
        return;
    }
    let known = frame.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let tpid = if known { frame.hv1.tp_vlan_tpid } else { ethertype::VLAN };
    push_tagged(record, data, tpid, frame.hv1.tp_vlan_tci as u16, batch);
}

/// Adds a frame with the tag that was taken off it.
pub(super) fn push_tagged(record: Record, data: &[u8], tpid: u16, tci: u16, batch: &mut Batch) {
    let Some((addresses, rest)) = data.split_at_checked(eth::field::ADDRESSES.end) else {
        return batch.push_copy(record, data);
    };
    let tagged = [addresses, &tpid.to_be_bytes(), &tci.to_be_bytes(), rest].concat();
    batch.push_copy(Record { wire_len: record.wire_len + vlan::field::HEADER as u32, ..record }, &tagged);
}

/// Of a device whose frames all come back: a socket would see each as it goes and as it comes.
fn is_loopback(interface: &str) -> bool {
    let kind = std::fs::read_to_string(format!("/sys/class/net/{interface}/type"));
    kind.is_ok_and(|kind| kind.trim() == ETHERNET_LIKE[1].to_string())
}

/// Asks an interface for what is for other stations, until the socket is closed. It hears nothing itself.
pub(super) fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    join(&socket, index)?;
    Ok(socket)
}

fn join(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let promiscuous = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    option(socket, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
}

/// Hears nothing before it is bound.
fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor of ours that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn option<T>(socket: &OwnedFd, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Binds to all protocols of an interface; the kernel then says what kind of link it is.
fn bind(socket: &OwnedFd, index: u32) -> io::Result<LinkType> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let mut length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    let failed = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; the kernel writes no more than `length`.
    let failed = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if ETHERNET_LIKE.contains(&address.sll_hatype) { LinkType::Ethernet } else { LinkType::RawIp })
}

pub(super) fn interfaces() -> String {
    let Ok(all) = nix::net::if_::if_nameindex() else { return "(cannot be listed)".to_owned() };
    all.iter().map(|one| one.name().to_string_lossy().into_owned()).collect::<Vec<_>>().join(", ")
}
