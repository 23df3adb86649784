//! Maps shared with running programs through `mmap`.
#![allow(unsafe_code)] // mmap, and volatile access to memory that programs change

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The entries of an mmapable ARRAY, or the one value of a data section.
pub struct Mapping<T> {
    start: NonNull<T>,
    entries: usize,
}

// SAFETY: the mapping belongs to this value alone on the user's side, and T holds plain bytes.
unsafe impl<T: Send> Send for Mapping<T> {}
// SAFETY: shared references only read, volatile.
unsafe impl<T: Sync> Sync for Mapping<T> {}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Mapping<T> {
    /// `entries` must not be more than the map holds, and T must be the map's value.
    pub fn new(map: impl AsFd, entries: usize) -> Result<Mapping<T>> {
        assert_eq!(size_of::<T>() % 8, 0, "array values stand at multiples of 8 bytes");
        let length = NonZeroUsize::new(entries * size_of::<T>()).context("a mapping of no entries")?;
        let (protection, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED);
        // SAFETY: a fresh mapping of a map's values; nothing else in this process refers to it.
        let start = unsafe { mmap(None, length, protection, flags, map, 0) }
            .with_context(|| format!("cannot map {length} bytes of a BPF array"))?;
        Ok(Mapping { start: start.cast(), entries })
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    pub fn read(&self, index: usize) -> T {
        assert!(index < self.entries);
        // SAFETY: in bounds, aligned (values stand at multiples of 8 in whole pages), any bytes are a valid T.
        unsafe { self.start.add(index).read_volatile() }
    }

    pub fn write(&mut self, index: usize, value: T) {
        assert!(index < self.entries);
        // SAFETY: as in `read`.
        unsafe { self.start.add(index).write_volatile(value) }
    }

    /// Writes one 32-bit word at an offset and leaves the rest to the program that runs.
    pub fn write_word(&mut self, index: usize, offset: usize, value: u32) {
        assert!(index < self.entries && offset.is_multiple_of(4) && offset + 4 <= size_of::<T>());
        // SAFETY: in bounds and aligned, as asserted; a word is written at once.
        unsafe { self.start.add(index).cast::<u8>().add(offset).cast::<u32>().write_volatile(value) }
    }

    /// Reads, changes and writes back. Not atomic: for words no program changes meanwhile.
    pub fn update(&mut self, index: usize, change: impl FnOnce(&mut T)) {
        let mut value = self.read(index);
        change(&mut value);
        self.write(index, value);
    }

    /// Writes entries from the first place on; there must be some.
    pub fn fill(&mut self, entries: &[T]) -> Result<()> {
        let fits = !entries.is_empty() && entries.len() <= self.entries;
        ensure!(fits, "the ring has {} places", self.entries);
        entries.iter().enumerate().for_each(|(index, entry)| self.write(index, *entry));
        Ok(())
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: start and length are those mmap returned; no reference into the mapping outlives this value.
        let unmapped = unsafe { munmap(self.start.cast(), self.entries * size_of::<T>()) };
        debug_assert!(unmapped.is_ok());
    }
}
