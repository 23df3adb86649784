//! A mapping, and access to it while others write.
#![allow(unsafe_code, reason = "mmap, and volatile or atomic access to memory that others change")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use libc::c_int;
use zerocopy::{FromBytes, IntoBytes};

/// One mapping, taken away when it is dropped. It begins at a page, so an offset is as aligned as the address.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and it is shared with the kernel anyway: what is safe here
// are volatile copies and atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Fresh memory, page by page present.
    pub fn fresh(length: usize) -> io::Result<Memory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Memory::map(-1, 0, length, libc::PROT_READ | libc::PROT_WRITE, flags)
    }

    /// What a descriptor stands for, from `offset` on: the elements of a BPF array, the ring of a packet socket.
    pub fn shared(of: impl AsFd, offset: i64, length: usize) -> io::Result<Memory> {
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, of.as_fd());
        Memory::map(fd.as_raw_fd(), offset, length, protection, libc::MAP_SHARED)
    }

    /// The same, page by page present: no first access waits for the kernel.
    pub fn present(of: impl AsFd, offset: i64, length: usize) -> io::Result<Memory> {
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, of.as_fd());
        Memory::map(fd.as_raw_fd(), offset, length, protection, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    /// A part of a file, which nobody may write to through this.
    pub(crate) fn read_only(of: &File, offset: i64, length: usize) -> io::Result<Memory> {
        Memory::map(of.as_raw_fd(), offset, length, libc::PROT_READ, libc::MAP_SHARED)
    }

    fn map(fd: c_int, offset: i64, length: usize, protection: c_int, flags: c_int) -> io::Result<Memory> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Memory { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes of it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Where `bytes` bytes from `offset` on stand. Who goes there says why nobody else does at that time.
    ///
    /// # Panics
    /// When they are not all in the mapping.
    #[inline]
    pub fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.length), "beyond the mapping");
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.start.add(offset) }
    }

    /// Where a value stands.
    #[inline]
    fn field<T>(&self, offset: usize) -> NonNull<T> {
        assert!(offset.is_multiple_of(align_of::<T>()), "not aligned");
        self.at(offset, size_of::<T>()).cast()
    }

    /// A copy of the value at an offset. Its words may belong to different moments.
    ///
    /// # Panics
    /// Like everything below: when the offset is beyond the mapping, or not aligned.
    #[inline]
    pub fn read<T: FromBytes>(&self, offset: usize) -> T {
        // SAFETY: inside the mapping, aligned, and every bit pattern is a T (FromBytes).
        unsafe { self.field::<T>(offset).read_volatile() }
    }

    /// Puts a value at an offset, word by word.
    #[inline]
    pub fn write<T: IntoBytes>(&self, offset: usize, value: T) {
        // SAFETY: inside the mapping and aligned.
        unsafe { self.field::<T>(offset).write_volatile(value) }
    }

    /// Puts bytes at an offset, in any order: for what nobody reads meanwhile.
    #[inline]
    pub fn fill(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: inside the mapping, into which no reference leads but those of atomics: it is no memory of `bytes`.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// The byte at an offset, as all that change it see it at once.
    #[inline]
    pub fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: inside the mapping, which lives as long as `self`; changed by atomics or by others.
        unsafe { self.field::<AtomicU8>(offset).as_ref() }
    }

    /// The same of 16 bits.
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: as `byte`, and aligned.
        unsafe { self.field::<AtomicU16>(offset).as_ref() }
    }

    /// The same of 32 bits.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as `byte`, and aligned.
        unsafe { self.field::<AtomicU32>(offset).as_ref() }
    }

    /// The same of 64 bits.
    #[inline]
    pub fn long(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as `byte`, and aligned.
        unsafe { self.field::<AtomicU64>(offset).as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; what leads into it lives no longer than what holds this value.
        let result = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert!(result == 0, "{}", io::Error::last_os_error());
    }
}

/// Bytes of a page, at a multiple of which a mapping begins.
pub(crate) fn page() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let memory = Memory::fresh(4096).unwrap();
        assert_eq!((memory.length(), memory.read::<u64>(4088)), (4096, 0));
        memory.write(8, [1u32, 2]);
        assert_eq!((memory.read::<u32>(8), memory.read::<u32>(12)), (1, 2));
        memory.fill(3, &[7; 4]);
        assert_eq!(memory.read::<[u8; 8]>(0), [0, 0, 0, 7, 7, 7, 7, 0]);
    }

    #[test]
    fn atomics_of_every_width_are_parts_of_the_same_memory() {
        let memory = Memory::fresh(4096).unwrap();
        memory.long(16).store(u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]), Ordering::Relaxed);
        assert_eq!(memory.word(20).load(Ordering::Relaxed), u32::from_ne_bytes([5, 6, 7, 8]));
        assert_eq!(memory.half(18).load(Ordering::Relaxed), u16::from_ne_bytes([3, 4]));
        assert_eq!(memory.byte(23).fetch_add(1, Ordering::Relaxed), 8);
        assert_eq!(memory.read::<u8>(23), 9);
    }

    #[test]
    fn two_mappings_of_a_descriptor_are_the_same_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * page() as u64).unwrap();
        let one = Memory::shared(&file, 0, 4 * page()).unwrap();
        let other = Memory::present(&file, page() as i64, page()).unwrap();
        one.write(page() + 8, 42u64);
        assert_eq!(other.read::<u64>(8), 42);
    }

    #[test]
    fn nothing_is_mapped_without_length_or_beside_a_page() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Memory::fresh(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Memory::shared(&file, 8, 8).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn nothing_beyond_the_end_is_read() {
        Memory::fresh(4096).unwrap().read::<u64>(4096);
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn an_offset_does_not_wrap() {
        Memory::fresh(4096).unwrap().at(usize::MAX, 2);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_word_is_aligned() {
        Memory::fresh(4096).unwrap().word(2);
    }
}
