//! Maps shared with running programs through `mmap`.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use sluice_memory::Array;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The entries of an mmapable ARRAY, or the one value of a data section: counted as slices are, and changed as a whole.
pub struct Mapping<T>(Array<T>);

impl<T: FromBytes + IntoBytes + Immutable + Copy> Mapping<T> {
    /// `entries` must not be more than the map holds, and T must be the map's value.
    pub fn new(map: impl AsFd, entries: usize) -> Result<Mapping<T>> {
        ensure!(entries > 0, "a mapping of no entries");
        let array = Array::of(map, u32::try_from(entries)?);
        array.map(Mapping).with_context(|| format!("cannot map {entries} entries of a BPF array"))
    }

    pub fn entries(&self) -> usize {
        self.0.len() as usize
    }

    pub fn read(&self, index: usize) -> T {
        self.0.read(index as u32)
    }

    pub fn write(&mut self, index: usize, value: T) {
        self.0.write(index as u32, value);
    }

    /// Writes one 32-bit word at an offset and leaves the rest to the program that runs.
    pub fn write_word(&mut self, index: usize, offset: usize, value: u32) {
        self.0.word(index as u32, offset).store(value, Ordering::Relaxed);
    }

    /// Reads, changes and writes back. Not atomic: for words no program changes meanwhile.
    pub fn update(&mut self, index: usize, change: impl FnOnce(&mut T)) {
        let mut value = self.read(index);
        change(&mut value);
        self.write(index, value);
    }

    /// Writes entries from the first place on; there must be some.
    pub fn fill(&mut self, entries: &[T]) -> Result<()> {
        let fits = !entries.is_empty() && entries.len() <= self.entries();
        ensure!(fits, "the ring has {} places", self.entries());
        entries.iter().enumerate().for_each(|(index, entry)| self.write(index, *entry));
        Ok(())
    }
}
