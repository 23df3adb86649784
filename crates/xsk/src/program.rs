//! The least XDP program: every frame to the socket of its queue. Six instructions need no file of their own.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use sluice_libbpf::map::NewMap;
use sluice_libbpf::program::{Instruction, load_xdp};

use crate::socket::Socket;

/// From queues to sockets.
pub fn socket_map(queues: u32) -> io::Result<MapHandle> {
    let map =
        NewMap { kind: MapType::Xskmap, name: "sockets", key_size: 4, value_size: 4, max_entries: queues };
    map.create().map_err(io::Error::other)
}

/// Leads a queue to a socket.
pub fn put(map: &impl MapCore, queue: u32, socket: &Socket) -> io::Result<()> {
    let fd = socket.fd().as_raw_fd();
    map.update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)
}

/// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS)`
pub fn redirect_to(map: &impl AsFd) -> io::Result<OwnedFd> {
    let instruction =
        |code, target, source, offset, value| Instruction { code, target, source, offset, value };
    load_xdp(&[
        instruction(0x61, 2, 1, 16, 0),                      // r2 = ctx->rx_queue_index
        instruction(0x18, 1, 1, 0, map.as_fd().as_raw_fd()), // r1 = &sockets
        instruction(0, 0, 0, 0, 0),                          // (its upper half)
        instruction(0xb7, 3, 0, 0, 2),                       // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, 51),                      // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),                       // return r0
    ])
}
