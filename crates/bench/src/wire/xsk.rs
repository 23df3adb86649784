//! An AF_XDP socket that sends only: frames in shared memory, and two rings (Documentation/networking/af_xdp.rst).
#![allow(unsafe_code)] // memory shared with the kernel

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::socket::{Outlet, check};

const FRAMES: u32 = 1024;
const FRAME_SIZE: u32 = 2048;

/// One mapped ring of `T`.
struct Ring<T> {
    memory: NonNull<u8>,
    length: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
}

pub struct XdpSocket {
    socket: OwnedFd,
    memory: NonNull<u8>,
    transmit: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
    free: Vec<u32>,
    /// Buffers handed out for the batch that is being made.
    batch: Vec<u32>,
    /// Those that have held a frame.
    written: Vec<bool>,
}

impl XdpSocket {
    /// On queue 0 of a device of the calling thread's network namespace.
    pub fn open(ifindex: u32) -> Result<XdpSocket> {
        // SAFETY: plain numbers in and out.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            return Err(error)
                .context("cannot open an AF_XDP socket (CONFIG_XDP_SOCKETS and root are needed)");
        }
        // SAFETY: a descriptor just opened, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let memory = umem(&socket)?;
        for (option, entries) in [
            (libc::XDP_UMEM_FILL_RING, 64),
            (libc::XDP_UMEM_COMPLETION_RING, FRAMES),
            (libc::XDP_TX_RING, FRAMES),
        ] {
            set(&socket, option, &entries).context("cannot make an AF_XDP ring")?;
        }
        let offsets = offsets(&socket)?;
        let transmit = Ring::map(&socket, &offsets.tx, libc::XDP_PGOFF_TX_RING)?;
        let completed = Ring::map(&socket, &offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64)?;
        bind(&socket, ifindex)?;
        let free = (0..FRAMES).collect();
        let written = vec![false; FRAMES as usize];
        Ok(XdpSocket { socket, memory, transmit, completed, free, batch: vec![], written })
    }

    /// Takes back what the kernel has sent.
    fn reclaim(&mut self) {
        let ring = &self.completed;
        let (from, to) = (ring.consumer().load(Ordering::Relaxed), ring.producer().load(Ordering::Acquire));
        for i in 0..to.wrapping_sub(from) {
            self.free.push((ring.read(from.wrapping_add(i)) / u64::from(FRAME_SIZE)) as u32);
        }
        ring.consumer().store(to, Ordering::Release);
    }

    fn kick(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address: the call only wakes the kernel.
        let sent = unsafe {
            libc::sendto(
                self.socket.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        match check(sent as libc::c_int) {
            Err(error)
                if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }
}

impl Outlet for XdpSocket {
    fn frame(&mut self, slot: usize, first: &[u8]) -> &mut [u8] {
        if slot == 0 {
            self.free.append(&mut self.batch);
        }
        while self.free.is_empty() {
            self.reclaim();
            if self.free.is_empty() {
                // What is not taken at once is taken by a later call.
                let _ = self.kick();
            }
        }
        let number = self.free.pop().unwrap_or_default();
        self.batch.push(number);
        let fresh = !std::mem::replace(&mut self.written[number as usize], true);
        // SAFETY: the frame lies within the shared memory; the kernel has handed it back, so nobody else reads it.
        let frame = unsafe {
            let start = self.memory.add((number * FRAME_SIZE) as usize);
            std::slice::from_raw_parts_mut(start.as_ptr(), first.len())
        };
        if fresh {
            frame.copy_from_slice(first);
        }
        frame
    }

    fn send(&mut self, count: usize, len: usize) -> io::Result<()> {
        let ring = &self.transmit;
        let at = ring.producer().load(Ordering::Relaxed);
        for (i, number) in self.batch.drain(..count).enumerate() {
            let address = u64::from(number) * u64::from(FRAME_SIZE);
            // As many entries as frames: there is always room.
            ring.write(
                at.wrapping_add(i as u32),
                libc::xdp_desc { addr: address, len: len as u32, options: 0 },
            );
        }
        ring.producer().store(at.wrapping_add(count as u32), Ordering::Release);
        let end = at.wrapping_add(count as u32);
        while self.transmit.consumer().load(Ordering::Acquire) != end {
            self.kick()?;
            self.reclaim();
        }
        Ok(())
    }
}

impl Drop for XdpSocket {
    fn drop(&mut self) {
        // SAFETY: the mapping of `umem`; no reference into it outlives this value.
        let _ = unsafe { munmap(self.memory.cast(), (FRAMES * FRAME_SIZE) as usize) };
    }
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, offset: &libc::xdp_ring_offset, page_offset: i64) -> Result<Ring<T>> {
        let length = offset.desc as usize + FRAMES as usize * size_of::<T>();
        let size = NonZeroUsize::new(length).context("an empty ring")?;
        let (protection, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE);
        // SAFETY: a fresh mapping of the ring at the offset and of the length the kernel names.
        let memory = unsafe { mmap(None, size, protection, flags, socket, page_offset) }
            .context("cannot map an AF_XDP ring")?
            .cast::<u8>();
        // SAFETY: the kernel's offsets lie within the mapping, aligned for what stands there.
        unsafe {
            Ok(Ring {
                memory,
                length,
                producer: memory.add(offset.producer as usize).cast(),
                consumer: memory.add(offset.consumer as usize).cast(),
                entries: memory.add(offset.desc as usize).cast(),
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned, within the mapping, and changed by the kernel only atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn read(&self, at: u32) -> T {
        // SAFETY: within the ring; the producer index says that the entry is written.
        unsafe { self.entries.add((at % FRAMES) as usize).read_volatile() }
    }

    fn write(&self, at: u32, entry: T) {
        // SAFETY: within the ring; the kernel reads it only after the producer index has moved.
        unsafe { self.entries.add((at % FRAMES) as usize).write_volatile(entry) }
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: start and length of the mapping; no reference into it outlives this value.
        let _ = unsafe { munmap(self.memory.cast(), self.length) };
    }
}

fn umem(socket: &OwnedFd) -> Result<NonNull<u8>> {
    let length = NonZeroUsize::new((FRAMES * FRAME_SIZE) as usize).context("no frames")?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_POPULATE;
    // SAFETY: fresh anonymous memory that nothing else refers to.
    let memory =
        unsafe { mmap_anonymous(None, length, protection, flags) }.context("no memory for frames")?;
    // SAFETY: all zeros is a valid registration; the fields that matter follow.
    let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
    registration.addr = memory.as_ptr() as u64;
    registration.len = (FRAMES * FRAME_SIZE).into();
    registration.chunk_size = FRAME_SIZE;
    set(socket, libc::XDP_UMEM_REG, &registration).context("cannot share memory with an AF_XDP socket")?;
    Ok(memory.cast())
}

fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value is read during the call and has the size that is named.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (value as *const T).cast(),
            size_of::<T>() as u32,
        )
    };
    check(result)
}

fn offsets(socket: &OwnedFd) -> Result<libc::xdp_mmap_offsets> {
    // SAFETY: all zeros is a valid value; the kernel overwrites it.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&offsets) as u32;
    // SAFETY: the kernel writes at most `length` bytes into the structure.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &mut length,
        )
    };
    check(result).context("cannot ask for the layout of AF_XDP rings")?;
    Ok(offsets)
}

fn bind(socket: &OwnedFd, ifindex: u32) -> Result<()> {
    // SAFETY: all zeros is a valid address structure; flags 0 let the driver choose copy or zero-copy.
    let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
    (address.sxdp_family, address.sxdp_ifindex) = (libc::AF_XDP as u16, ifindex);
    // The kernel lets go of an earlier socket's queue some time after it was closed.
    let deadline = Instant::now() + Duration::from_secs(2);
    let bound = loop {
        // SAFETY: the address is read during the call and has the size that is named.
        let bound = unsafe {
            libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        };
        let is_busy = bound != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
        if !is_busy || Instant::now() > deadline {
            break bound;
        }
        thread::sleep(Duration::from_millis(10));
    };
    check(bound).with_context(|| format!("cannot tie an AF_XDP socket to queue 0 of device {ifindex}"))
}
