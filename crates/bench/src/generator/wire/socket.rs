//! Generators in user space, for devices and kernels that live frames do not suit: AF_PACKET works everywhere.
#![allow(unsafe_code)] // sendmmsg, setsockopt and clock_gettime

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::frame::Maker;
use super::generator::{Order, Sent};
use super::numbers::Numbers;
use super::xsk::XdpSocket;
use super::{Device, Size};
use crate::method::affinity::pin;

/// How frames leave user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `sendmmsg`, past the queueing discipline.
    Packet,
    /// A ring shared with the kernel; the driver copies, unless it can do better.
    Xdp,
}

/// Frames handed over in one call.
const BATCH: usize = 64;

/// Sends by a socket of the device's namespace until the limit of the order or the time is reached.
pub fn send(kind: Kind, device: Device<'_>, order: &Order, at_most: Duration) -> Result<Sent> {
    let Size::Bytes(_) = order.size else { bail!("socket generators send frames of one size") };
    let work = || -> Result<Sent> {
        pin(order.cpu)?;
        match kind {
            Kind::Packet => run(&mut PacketSocket::open(device.ifindex)?, order, at_most),
            Kind::Xdp => run(&mut XdpSocket::open(device.ifindex)?, order, at_most),
        }
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| device.enter(work)?);
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes frames of one batch.
pub(super) trait Outlet {
    /// Buffers for up to a batch of frames, each holding at least what it was given last.
    fn frame(&mut self, slot: usize, first: &[u8]) -> &mut [u8];
    /// Sends the first `count` buffers, waiting for room.
    fn send(&mut self, count: usize, len: usize) -> io::Result<()>;
}

fn run(outlet: &mut impl Outlet, order: &Order, at_most: Duration) -> Result<Sent> {
    let len = order.size.lengths()[0];
    let maker = Maker::new(order.addresses, len);
    let mut numbers = Numbers::new(order.flows);
    let limit = order.limit.unwrap_or(u64::MAX);
    let (began, mut sent, mut last) = (Instant::now(), 0u64, Duration::ZERO);
    let mut late = Duration::ZERO;
    while sent < limit && began.elapsed() < at_most {
        let count = match order.rate {
            None => BATCH,
            Some(rate) => {
                let due = ((began.elapsed() - late).as_secs_f64() * rate) as u64 + 1;
                let owed = due.saturating_sub(sent);
                // What a stall has made overdue is not sent in a burst.
                if owed as f64 > (rate * STALL.as_secs_f64()).max(BATCH as f64) {
                    late += Duration::from_secs_f64(owed as f64 / rate);
                    continue;
                }
                (owed as usize).min(BATCH)
            }
        };
        let count = count.min((limit - sent).min(BATCH as u64) as usize);
        if count == 0 {
            std::hint::spin_loop();
            continue;
        }
        for slot in 0..count {
            let (flow, lap) = numbers.next().unwrap_or_default();
            let time = if order.stamped { monotonic_ns() } else { 0 };
            maker.write(outlet.frame(slot, maker.first()), flow, lap, time);
        }
        outlet.send(count, len.into()).context("cannot send frames by a socket")?;
        sent += count as u64;
        last = began.elapsed();
    }
    Ok(Sent {
        frames: sent,
        bytes: sent * u64::from(len),
        seconds: last.as_secs_f64(),
        late_seconds: late.as_secs_f64(),
        withheld: 0,
    })
}

const STALL: Duration = Duration::from_millis(1);

/// The clock that the programs read.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A packet socket that sends only.
pub struct PacketSocket {
    socket: OwnedFd,
    buffers: Vec<Vec<u8>>,
}

impl PacketSocket {
    /// The device is one of the calling thread's network namespace.
    pub fn open(ifindex: u32) -> Result<PacketSocket> {
        // Protocol 0: nothing is received.
        // SAFETY: plain numbers in and out.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error()).context("cannot open a packet socket (root is needed)");
        }
        // SAFETY: a descriptor just opened, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let one: libc::c_int = 1;
        // SAFETY: the option's value is read during the call and has the size that is named.
        let bypassed = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                (&raw const one).cast(),
                size_of_val(&one) as u32,
            )
        };
        check(bypassed).context("cannot pass by the queueing discipline")?;
        bind(&socket, ifindex, 0)?;
        Ok(PacketSocket { socket, buffers: vec![Vec::new(); BATCH] })
    }

    /// Sends whole frames, in order.
    pub fn send_all(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        for batch in frames.chunks(BATCH) {
            let mut vectors: Vec<libc::iovec> = batch
                .iter()
                .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
                .collect();
            self.send_vectors(&mut vectors)?;
        }
        Ok(())
    }

    fn send_vectors(&self, vectors: &mut [libc::iovec]) -> io::Result<()> {
        let mut messages: Vec<libc::mmsghdr> = vectors.iter_mut().map(message).collect();
        let mut done = 0;
        while done < messages.len() {
            let rest = &mut messages[done..];
            // SAFETY: every message names one buffer that lives and does not change during the call.
            let sent =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, 0) };
            match check(sent) {
                Ok(()) => done += sent as usize,
                // The device's queue is full: wait for it, like a NIC's driver would make us.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => {
                    std::hint::spin_loop();
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Outlet for PacketSocket {
    fn frame(&mut self, slot: usize, first: &[u8]) -> &mut [u8] {
        let buffer = &mut self.buffers[slot];
        if buffer.len() != first.len() {
            *buffer = first.to_vec();
        }
        buffer
    }

    fn send(&mut self, count: usize, len: usize) -> io::Result<()> {
        let mut vectors: Vec<libc::iovec> = self.buffers[..count]
            .iter()
            .map(|buffer| libc::iovec { iov_base: buffer.as_ptr().cast_mut().cast(), iov_len: len })
            .collect();
        self.send_vectors(&mut vectors)
    }
}

fn message(vector: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: all zeros is a message without address, control data or buffers.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (vector, 1);
    message
}

/// Ties a packet socket to a device. `protocol` 0 receives nothing.
pub fn bind(socket: &OwnedFd, ifindex: u32, protocol: u16) -> Result<()> {
    // SAFETY: all zeros is a valid address structure.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as i32;
    // SAFETY: the address is read during the call and has the size that is named.
    let bound =
        unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    check(bound).with_context(|| format!("cannot tie a packet socket to device {ifindex}"))
}

pub(super) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
