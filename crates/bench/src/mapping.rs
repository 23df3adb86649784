//! Maps shared with running programs through `mmap`.

use std::marker::PhantomData;
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use sluice_memory::Memory;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The entries of an mmapable ARRAY, or the one value of a data section.
pub struct Mapping<T> {
    memory: Memory,
    entries: usize,
    entry: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Mapping<T> {
    /// `entries` must not be more than the map holds, and T must be the map's value.
    pub fn new(map: impl AsFd, entries: usize) -> Result<Mapping<T>> {
        assert_eq!(size_of::<T>() % 8, 0, "array values stand at multiples of 8 bytes");
        ensure!(entries > 0, "a mapping of no entries");
        let length = entries * size_of::<T>();
        let memory = Memory::shared(map, 0, length)
            .with_context(|| format!("cannot map {length} bytes of a BPF array"))?;
        Ok(Mapping { memory, entries, entry: PhantomData })
    }

    pub fn entries(&self) -> usize {
        self.entries
    }

    pub fn read(&self, index: usize) -> T {
        assert!(index < self.entries);
        self.memory.read(index * size_of::<T>())
    }

    pub fn write(&mut self, index: usize, value: T) {
        assert!(index < self.entries);
        self.memory.write(index * size_of::<T>(), value);
    }

    /// Writes one 32-bit word at an offset and leaves the rest to the program that runs.
    pub fn write_word(&mut self, index: usize, offset: usize, value: u32) {
        assert!(index < self.entries && offset + 4 <= size_of::<T>());
        self.memory.write(index * size_of::<T>() + offset, value);
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
