//! ARRAY maps seen through memory. Programs write them at the same time, so every access is volatile or atomic.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use libbpf_rs::{MapCore, MapHandle};
use sluice_memory::Memory;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The elements of an mmapable ARRAY map.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    memory: Memory,
    len: u32,
    element: PhantomData<T>,
}

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
        let memory = Memory::shared(map.as_fd(), 0, size_of::<T>() * len as usize)?;
        Ok(Mapped { memory, len, element: PhantomData })
    }

    /// Where a part of an element stands.
    fn at(&self, index: u32, offset: usize, size: usize) -> usize {
        assert!(index < self.len && offset + size <= size_of::<T>(), "access outside a map");
        index as usize * size_of::<T>() + offset
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// A copy. Words that change meanwhile may belong to different moments; callers that mind compare `tag`s.
    pub fn read(&self, index: u32) -> T {
        self.memory.read(self.at(index, 0, size_of::<T>()))
    }

    /// A copy of one field.
    pub fn read_field<F: FromBytes + Copy>(&self, index: u32, offset: usize) -> F {
        self.memory.read(self.at(index, offset, size_of::<F>()))
    }

    pub fn write(&self, index: u32, value: T) {
        self.memory.write(self.at(index, 0, size_of::<T>()), value);
    }

    /// Puts bytes behind the beginning of an element, into the next ones as well, while nobody reads them.
    pub fn fill(&self, index: u32, offset: usize, bytes: &[u8]) {
        let begin = index as usize * size_of::<T>() + offset;
        assert!(begin + bytes.len() <= self.len as usize * size_of::<T>(), "access outside a map");
        self.memory.fill(begin, bytes);
    }

    pub fn byte(&self, index: u32, offset: usize) -> &AtomicU8 {
        self.memory.byte(self.at(index, offset, 1))
    }

    pub fn half(&self, index: u32, offset: usize) -> &AtomicU16 {
        self.memory.half(self.at(index, offset, 2))
    }

    pub fn word(&self, index: u32, offset: usize) -> &AtomicU32 {
        self.memory.word(self.at(index, offset, 4))
    }

    pub fn long(&self, index: u32, offset: usize) -> &AtomicU64 {
        self.memory.long(self.at(index, offset, 8))
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
