//! Mapped memory.
#![allow(unsafe_code, reason = "mappings shared with the kernel")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// One mapping, taken away when it is dropped.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; who may read and write what is the users' affair.
unsafe impl Send for Memory {}
// SAFETY: as above: a shared reference gives no access to the bytes but by pointers.
unsafe impl Sync for Memory {}

impl Memory {
    /// Fresh memory, page by page present.
    pub fn fresh(length: usize) -> io::Result<Memory> {
        Memory::map(-1, length, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    /// A ring of a socket.
    pub fn of_socket(socket: &OwnedFd, length: usize, offset: i64) -> io::Result<Memory> {
        Memory::map(socket.as_raw_fd(), length, offset, libc::MAP_SHARED)
    }

    fn map(fd: libc::c_int, length: usize, offset: i64, flags: libc::c_int) -> io::Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, where the kernel likes.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, flags | libc::MAP_POPULATE, fd, offset)
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Where `bytes` bytes from `offset` on stand.
    pub fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.length), "beyond the mapping");
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; pointers into it live no longer than what holds this value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
