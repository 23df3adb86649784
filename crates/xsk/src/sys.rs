//! System calls without a wrapper.
#![allow(unsafe_code, reason = "system calls")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::c_int;

pub fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a descriptor just opened that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `T` is plain data of the kernel's interface.
pub fn set<T>(socket: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let place = ptr::from_ref(value).cast();
    // SAFETY: pointer and length describe `value`.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, place, length) }).map(drop)
}

fn get<T>(socket: &OwnedFd, option: c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: the kernel writes no more than `length` bytes into `value`.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, place, &raw mut length) })?;
    Ok(value)
}

pub fn register(socket: &OwnedFd, (addr, len): (u64, u64), chunk_size: u32) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid registration.
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    (registration.addr, registration.len, registration.chunk_size) = (addr, len, chunk_size);
    set(socket, libc::XDP_UMEM_REG, &registration)
}

pub fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: all-zero bytes are a valid value.
    get(socket, libc::XDP_MMAP_OFFSETS, unsafe { std::mem::zeroed() })
}

pub fn statistics(socket: &OwnedFd) -> io::Result<libc::xdp_statistics> {
    // SAFETY: all-zero bytes are a valid value.
    get(socket, libc::XDP_STATISTICS, unsafe { std::mem::zeroed() })
}

pub fn options(socket: &OwnedFd) -> io::Result<libc::xdp_options> {
    // SAFETY: all-zero bytes are a valid value.
    get(socket, libc::XDP_OPTIONS, unsafe { std::mem::zeroed() })
}

pub fn bind(socket: &OwnedFd, ifindex: u32, queue: u32, flags: u16, shared: Option<c_int>) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid address.
    let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
    address.sxdp_family = libc::AF_XDP as u16;
    (address.sxdp_ifindex, address.sxdp_queue_id, address.sxdp_flags) = (ifindex, queue, flags);
    address.sxdp_shared_umem_fd = shared.unwrap_or(0) as u32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Sends nothing: the call only makes the kernel look at the tx ring.
pub fn kick_tx(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: no buffer and no address.
    let sent =
        unsafe { libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    check(sent as c_int).map(drop)
}

/// Receives nothing: the call only makes the kernel look at the fill ring.
pub fn kick_rx(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: no buffer and no address.
    let received = unsafe {
        libc::recvfrom(
            socket.as_raw_fd(),
            ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    check(received as c_int).map(drop)
}

/// Waits until one of the sockets is ready, or `patience_ms` have passed. Err when a device went down or away.
pub fn poll(sockets: &[&OwnedFd], events: i16, patience_ms: c_int) -> io::Result<()> {
    let one = |socket: &&OwnedFd| libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    let mut wanted: Vec<_> = sockets.iter().map(one).collect();
    // SAFETY: pointer and length describe `wanted`.
    let result = unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, patience_ms) };
    match check(result) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ if wanted.iter().any(|one| one.revents & (libc::POLLERR | libc::POLLHUP) != 0) => {
            Err(io::Error::new(io::ErrorKind::NetworkDown, "the interface went down or away"))
        }
        _ => Ok(()),
    }
}

/// ethtool's question for channels (struct ethtool_channels): counts of rx, tx, other and combined ones.
pub fn channels(name: &str) -> io::Result<[u32; 4]> {
    const GET_CHANNELS: u32 = 0x3c;
    const SIOCETHTOOL: u64 = 0x8946;
    let mut question = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: all-zero bytes are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_data = question.as_mut_ptr().cast();
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: a descriptor just opened that nobody else knows.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request names the device and points to a structure of the size that the question has.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })?;
    Ok([question[5], question[6], question[7], question[8]])
}
