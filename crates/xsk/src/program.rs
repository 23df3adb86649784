//! The least XDP program: every frame to the socket of its queue. By bpf(2), since it is six instructions.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::socket::Socket;

const MAP_CREATE: i64 = 0;
const MAP_UPDATE: i64 = 2;
const PROGRAM_LOAD: i64 = 5;
const LINK_CREATE: i64 = 28;
const XSKMAP: u32 = 17;
const TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const LICENSE: &std::ffi::CStr = c"GPL";

/// bpf_attr, zero but for the words that are given: index of a 4-byte word, value.
fn call(command: i64, words: &[(usize, u32)], pointers: &[(usize, u64)]) -> io::Result<i64> {
    let mut attributes = [0u32; 32];
    for (at, word) in words {
        attributes[*at] = *word;
    }
    for (at, pointer) in pointers {
        (attributes[*at], attributes[at + 1]) = (*pointer as u32, (pointer >> 32) as u32);
    }
    // Little-endian machines only have the low half first.
    #[cfg(target_endian = "big")]
    pointers.iter().for_each(|(at, _)| attributes.swap(*at, at + 1));
    let size = size_of_val(&attributes);
    // SAFETY: pointer and length describe `attributes`; what it points to outlives the call at every caller.
    match unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn descriptor(result: i64) -> OwnedFd {
    // SAFETY: a descriptor that the call just made.
    unsafe { OwnedFd::from_raw_fd(result as i32) }
}

/// From queues to sockets.
pub fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    call(MAP_CREATE, &[(0, XSKMAP), (1, 4), (2, 4), (3, queues)], &[]).map(descriptor)
}

pub fn put(map: &impl AsRawFd, queue: u32, socket: &Socket) -> io::Result<()> {
    let value = socket.fd().as_raw_fd();
    let pointers = [(2, &raw const queue as u64), (4, &raw const value as u64)];
    call(MAP_UPDATE, &[(0, map.as_raw_fd() as u32)], &pointers).map(drop)
}

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`
pub fn redirect_to(map: &OwnedFd) -> io::Result<OwnedFd> {
    let instruction = |code: u8, target: u8, source: u8, offset: i16, value: i32| {
        let mut bytes = [0; 8];
        (bytes[0], bytes[1]) = (code, source << 4 | target);
        bytes[2..4].copy_from_slice(&offset.to_ne_bytes());
        bytes[4..].copy_from_slice(&value.to_ne_bytes());
        bytes
    };
    let program = [
        instruction(0x61, 2, 1, 16, 0),              // r2 = ctx->rx_queue_index
        instruction(0x18, 1, 1, 0, map.as_raw_fd()), // r1 = &sockets
        instruction(0, 0, 0, 0, 0),                  // (its upper half)
        instruction(0xb7, 3, 0, 0, 2),               // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, 51),              // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),               // return r0
    ];
    let pointers = [(2, program.as_ptr() as u64), (4, LICENSE.as_ptr() as u64)];
    call(PROGRAM_LOAD, &[(0, TYPE_XDP), (1, program.len() as u32), (17, ATTACH_XDP)], &pointers)
        .map(descriptor)
}

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// In the driver if it can, else behind it.
    AsPossible,
    Native,
    Generic,
}

impl Attach {
    /// XDP_FLAGS_DRV_MODE and XDP_FLAGS_SKB_MODE of linux/if_link.h.
    fn flags(self) -> u32 {
        match self {
            Attach::AsPossible => 0,
            Attach::Native => 1 << 2,
            Attach::Generic => 1 << 1,
        }
    }
}

/// Attaches the program until the descriptor is closed; EBUSY when the device has another one.
pub fn attach(program: &impl AsRawFd, ifindex: u32, how: Attach) -> io::Result<OwnedFd> {
    let words = [(0, program.as_raw_fd() as u32), (1, ifindex), (2, ATTACH_XDP), (3, how.flags())];
    call(LINK_CREATE, &words, &[]).map(descriptor)
}
