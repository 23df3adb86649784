//! A live interface through AF_XDP sockets, one a receive queue (Documentation/networking/af_xdp.rst).
//!
//! Cheaper than a packet socket, because a frame is taken before the kernel makes anything of it; and for that reason
//! only for taps that nobody else uses: what is taken does not reach the machine. Such a tap is declared by `xdp:` in
//! front of its name.

#![allow(unsafe_code, reason = "rings and frames shared with the kernel; system calls without a wrapper")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::libc::{self, c_int};

use super::{CaptureError, Source};
use crate::frame::{Batch, LinkType, Record};

/// What stands in front of the name of an interface whose frames are taken.
pub(super) const PREFIX: &str = "xdp:";

/// Frames a queue, and room for each: a page, of which the kernel keeps some for itself.
const FRAMES: u32 = 8192;
const ROOM: u32 = 4096;
/// Wait for frames before an empty batch is returned, milliseconds.
const PATIENCE: c_int = 200;
/// Frames of a batch, at most.
const BATCH: u32 = 4096;

pub struct XdpSource {
    name: String,
    queues: Vec<Queue>,
    /// Takes the program off when it is closed.
    _link: OwnedFd,
    frames: u64,
    bytes: u64,
}

impl XdpSource {
    /// Takes all frames of an interface of the caller's network namespace.
    pub fn open(interface: &str) -> Result<XdpSource, CaptureError> {
        let name = format!("{PREFIX}{interface}");
        let Ok(index) = nix::net::if_::if_nametoindex(interface) else {
            return Err(CaptureError::NoInterface { name, known: super::live::interfaces() });
        };
        let failed = |what: &str, source: io::Error| {
            let text = format!("{what}: {source}");
            CaptureError::Io { name: name.clone(), source: io::Error::new(source.kind(), text) }
        };
        let count = receive_queues(interface);
        let map = bpf::socket_map(count).map_err(|error| failed("cannot make a map of sockets", error))?;
        let mut queues = Vec::new();
        for number in 0..count {
            let queue = Queue::open(index, number)
                .map_err(|error| failed(&format!("cannot open an AF_XDP socket on queue {number}"), error))?;
            bpf::put(&map, number, &queue.socket).map_err(|error| failed("cannot enter a socket", error))?;
            queues.push(queue);
        }
        let link =
            bpf::redirect_to(&map).and_then(|program| bpf::attach(&program, index)).map_err(|error| {
                failed("cannot attach the XDP program that takes frames (is there another?)", error)
            })?;
        Ok(XdpSource { name, queues, _link: link, frames: 0, bytes: 0 })
    }

    fn wait(&self) -> io::Result<()> {
        let wanted =
            |queue: &Queue| libc::pollfd { fd: queue.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut wanted: Vec<_> = self.queues.iter().map(wanted).collect();
        // SAFETY: pointer and length describe `wanted`.
        match unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, PATIENCE) } {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
            }
            _ if wanted.iter().any(|one| one.revents & (libc::POLLERR | libc::POLLHUP) != 0) => {
                Err(io::Error::new(io::ErrorKind::NetworkDown, "the interface went down or away"))
            }
            _ => Ok(()),
        }
    }
}

impl Source for XdpSource {
    fn next_batch(&mut self, batch: &mut Batch) -> Result<bool, CaptureError> {
        batch.reset(self.frames + 1);
        batch.buffer().clear();
        if self.queues.iter().all(|queue| queue.ready() == 0) {
            self.wait().map_err(|source| CaptureError::Io { name: self.name.clone(), source })?;
        }
        for queue in &mut self.queues {
            queue.take(batch);
        }
        self.frames += batch.len() as u64;
        self.bytes += batch.bytes().len() as u64;
        Ok(true)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes, None)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn drops(&self) -> u64 {
        self.queues.iter().map(Queue::drops).sum()
    }
}

/// At least one; a device that does not say has one.
fn receive_queues(interface: &str) -> u32 {
    let Ok(entries) = std::fs::read_dir(format!("/sys/class/net/{interface}/queues")) else { return 1 };
    let is_receiving = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("rx-");
    (entries.flatten().filter(is_receiving).count() as u32).max(1)
}

/// One socket with its frames. Frames are the kernel's while they stand in the fill ring, and ours from the receive ring
/// until we put them back.
struct Queue {
    socket: OwnedFd,
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    frames: Memory,
}

impl Queue {
    fn open(ifindex: u32, number: u32) -> io::Result<Queue> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: a descriptor just opened that nobody else knows.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let frames = Memory::map(None, (FRAMES * ROOM) as usize, 0)?;
        // SAFETY: all-zero bytes are a valid registration.
        let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        registration.addr = frames.start.as_ptr() as u64;
        registration.len = frames.length as u64;
        registration.chunk_size = ROOM;
        set(&socket, libc::XDP_UMEM_REG, &registration)?;
        for (option, entries) in [
            (libc::XDP_UMEM_FILL_RING, FRAMES),
            (libc::XDP_UMEM_COMPLETION_RING, 64),
            (libc::XDP_RX_RING, FRAMES),
        ] {
            set(&socket, option, &entries)?;
        }
        // SAFETY: all-zero bytes are a valid value.
        let offsets: libc::xdp_mmap_offsets =
            get(&socket, libc::XDP_MMAP_OFFSETS, unsafe { std::mem::zeroed() })?;
        let fill = Ring::map(&socket, &offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as i64)?;
        let receive = Ring::map(&socket, &offsets.rx, libc::XDP_PGOFF_RX_RING)?;
        (0..FRAMES).for_each(|frame| fill.write(frame, u64::from(frame * ROOM)));
        fill.producer().store(FRAMES, Ordering::Release);
        // SAFETY: all-zero bytes are a valid address.
        let mut address: libc::sockaddr_xdp = unsafe { std::mem::zeroed() };
        address.sxdp_family = libc::AF_XDP as u16;
        (address.sxdp_ifindex, address.sxdp_queue_id) = (ifindex, number);
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: pointer and length describe `address`.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Queue { socket, fill, receive, frames })
    }

    /// Frames that wait.
    fn ready(&self) -> u32 {
        let ring = &self.receive;
        ring.producer().load(Ordering::Acquire).wrapping_sub(ring.consumer().load(Ordering::Relaxed))
    }

    /// Copies the frames that wait and gives their memory back. The time is that of reading: AF_XDP has none.
    fn take(&mut self, batch: &mut Batch) {
        let (count, ring) = (self.ready().min(BATCH), &self.receive);
        if count == 0 {
            return;
        }
        let time_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let (from, to) =
            (ring.consumer().load(Ordering::Relaxed), self.fill.producer().load(Ordering::Relaxed));
        for at in 0..count {
            let entry = ring.read(from.wrapping_add(at));
            let record =
                Record { time_ns, wire_len: entry.len, link: LinkType::Ethernet, ..Record::default() };
            batch.push_copy(record, self.frames.bytes(entry.addr as usize, entry.len as usize));
            self.fill.write(to.wrapping_add(at), entry.addr / u64::from(ROOM) * u64::from(ROOM));
        }
        ring.consumer().store(from.wrapping_add(count), Ordering::Release);
        self.fill.producer().store(to.wrapping_add(count), Ordering::Release);
    }

    /// Frames for which there was no room.
    fn drops(&self) -> u64 {
        // SAFETY: all-zero bytes are valid statistics.
        let none: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get(&self.socket, libc::XDP_STATISTICS, none).map_or(0, |of| of.rx_dropped + of.rx_ring_full)
    }
}

/// Memory shared with the kernel.
struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Fresh memory, or a ring of a socket.
    fn map(socket: Option<&OwnedFd>, length: usize, offset: i64) -> io::Result<Memory> {
        let shared =
            if socket.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let fd = socket.map_or(-1, AsRawFd::as_raw_fd);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, shared | libc::MAP_POPULATE, fd, offset)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes that the kernel has handed over; empty where they do not lie in the memory.
    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return &[];
        }
        // SAFETY: inside the mapping, and ours until the frame is put back into the fill ring.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// A ring of [`FRAMES`] entries with one producer and one consumer, one of which is the kernel.
struct Ring<T> {
    memory: Memory,
    producer: usize,
    consumer: usize,
    entries: usize,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, offsets: &libc::xdp_ring_offset, page_offset: i64) -> io::Result<Ring<T>> {
        let length = offsets.desc as usize + FRAMES as usize * size_of::<T>();
        let memory = Memory::map(Some(socket), length, page_offset)?;
        let (producer, consumer, entries) =
            (offsets.producer as usize, offsets.consumer as usize, offsets.desc as usize);
        Ok(Ring { memory, producer, consumer, entries, of: std::marker::PhantomData })
    }

    fn index(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie inside the mapping, aligned; both sides change the word only atomically.
        unsafe { AtomicU32::from_ptr(self.memory.start.as_ptr().add(offset).cast()) }
    }

    fn producer(&self) -> &AtomicU32 {
        self.index(self.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.index(self.consumer)
    }

    fn entry(&self, at: u32) -> *mut T {
        // SAFETY: below FRAMES, so inside the mapping.
        unsafe { self.memory.start.as_ptr().add(self.entries).cast::<T>().add((at % FRAMES) as usize) }
    }

    fn read(&self, at: u32) -> T {
        // SAFETY: the producer's index says that the entry is written.
        unsafe { self.entry(at).read_volatile() }
    }

    fn write(&self, at: u32, value: T) {
        // SAFETY: the kernel reads it only after the producer's index has moved.
        unsafe { self.entry(at).write_volatile(value) }
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(socket: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, ptr::from_ref(value).cast(), length)
    };
    check(set).map(drop)
}

fn get<T>(socket: &OwnedFd, option: c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (fd, place) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: the kernel writes no more than `length` bytes into `value`.
    check(unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, place, &raw mut length) })?;
    Ok(value)
}

/// The one program that is needed, by bpf(2): every frame to the socket of its queue.
mod bpf {
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    use nix::libc;

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

    pub fn put(map: &OwnedFd, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let value = socket.as_raw_fd();
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

    pub fn attach(program: &OwnedFd, ifindex: u32) -> io::Result<OwnedFd> {
        call(LINK_CREATE, &[(0, program.as_raw_fd() as u32), (1, ifindex), (2, ATTACH_XDP)], &[])
            .map(descriptor)
    }
}
