//! ARRAY maps seen through memory. Programs write them at the same time, so every access is volatile or atomic.
#![allow(unsafe_code, reason = "maps kernel memory and reads what other CPUs write")]

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use libbpf_rs::{MapCore, MapHandle};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The elements of an mmapable ARRAY map.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    base: NonNull<u8>,
    bytes: usize,
    len: u32,
    element: PhantomData<T>,
}

// SAFETY: the memory is shared with the kernel anyway; all accesses are volatile copies or atomics.
unsafe impl<T> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mapped<T> {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Mapped<T> {
    pub fn new(map: &MapHandle) -> io::Result<Mapped<T>> {
        let element = size_of::<T>();
        // elements of an ARRAY lie 8-byte aligned without gaps when their size is a multiple of 8
        if element != map.value_size() as usize || !(element.is_multiple_of(8) || map.max_entries() == 1) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "element size of the map is another"));
        }
        Self::of_length(map, map.max_entries())
    }

    fn of_length(map: &MapHandle, len: u32) -> io::Result<Mapped<T>> {
        let page = 4096;
        let bytes = (size_of::<T>() * len as usize).next_multiple_of(page);
        let length = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map.as_fd(), 0) }?;
        Ok(Mapped { base: base.cast(), bytes, len, element: PhantomData })
    }

    fn at(&self, index: u32, offset: usize, size: usize) -> *mut u8 {
        assert!(index < self.len && offset + size <= size_of::<T>(), "access outside a map");
        // SAFETY: the assertion keeps the result inside the mapping.
        unsafe { self.base.as_ptr().add(index as usize * size_of::<T>() + offset) }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// A copy. Words that change meanwhile may belong to different moments; callers that mind compare `tag`s.
    pub fn read(&self, index: u32) -> T {
        let place = self.at(index, 0, size_of::<T>()).cast::<T>();
        // SAFETY: inside the mapping, aligned to 8, and every bit pattern is a T (FromBytes).
        unsafe { place.read_volatile() }
    }

    /// A copy of one field.
    pub fn read_field<F: FromBytes + Copy>(&self, index: u32, offset: usize) -> F {
        assert!(offset.is_multiple_of(align_of::<F>()));
        let place = self.at(index, offset, size_of::<F>()).cast::<F>();
        // SAFETY: inside the mapping, aligned, and every bit pattern is an F (FromBytes).
        unsafe { place.read_volatile() }
    }

    pub fn write(&self, index: u32, value: T) {
        let place = self.at(index, 0, size_of::<T>()).cast::<T>();
        // SAFETY: inside the mapping and aligned to 8.
        unsafe { place.write_volatile(value) }
    }

    /// Puts bytes behind the beginning of an element, into the next ones as well, while nobody reads them.
    pub fn fill(&self, index: u32, offset: usize, bytes: &[u8]) {
        let begin = index as usize * size_of::<T>() + offset;
        assert!(begin + bytes.len() <= self.len as usize * size_of::<T>(), "access outside a map");
        // SAFETY: the assertion keeps it inside the mapping, which is no memory of `bytes`.
        unsafe { self.base.as_ptr().add(begin).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    pub fn byte(&self, index: u32, offset: usize) -> &AtomicU8 {
        // SAFETY: inside the mapping, which lives as long as `self`; only accessed atomically through it.
        unsafe { AtomicU8::from_ptr(self.at(index, offset, 1)) }
    }

    pub fn half(&self, index: u32, offset: usize) -> &AtomicU16 {
        assert!(offset.is_multiple_of(2));
        // SAFETY: as `byte`, and aligned.
        unsafe { AtomicU16::from_ptr(self.at(index, offset, 2).cast()) }
    }

    pub fn word(&self, index: u32, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4));
        // SAFETY: as `byte`, and aligned.
        unsafe { AtomicU32::from_ptr(self.at(index, offset, 4).cast()) }
    }

    pub fn long(&self, index: u32, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8));
        // SAFETY: as `byte`, and aligned.
        unsafe { AtomicU64::from_ptr(self.at(index, offset, 8).cast()) }
    }
}

/// The elements of an mmapable ARRAY map whose layout only that map knows.
#[derive(Debug)]
pub(crate) struct Records {
    words: Mapped<u64>,
    /// Of one element, in words.
    stride: u32,
    pub len: u32,
}

impl Records {
    pub fn new(map: &MapHandle) -> io::Result<Records> {
        let len = map.max_entries();
        // as the kernel aligns them
        let stride = map.value_size().div_ceil(8);
        let words =
            u32::try_from(u64::from(stride) * u64::from(len)).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Records { words: Mapped::of_length(map, words)?, stride, len })
    }

    /// Bytes of one element, in a buffer of so many words.
    pub fn buffer(&self) -> Vec<u8> {
        vec![0; self.stride as usize * 8]
    }

    /// Word by word: what a program writes meanwhile is there or not.
    pub fn read(&self, index: u32, into: &mut [u8]) {
        for (n, word) in (0..self.stride).zip(into.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.words.read(index * self.stride + n).to_ne_bytes());
        }
    }

    pub fn write(&self, index: u32, from: &[u8]) {
        for (n, word) in (0..self.stride).zip(from.chunks_exact(8)) {
            let word = word.try_into().map_or(0, u64::from_ne_bytes);
            self.words.write(index * self.stride + n, word);
        }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and no reference into it outlives `self`.
        if let Err(error) = unsafe { munmap(self.base.cast(), self.bytes) } {
            tracing::warn!(%error, "cannot unmap a BPF map");
        }
    }
}
