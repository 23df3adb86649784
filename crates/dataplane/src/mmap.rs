//! ARRAY maps seen through memory.

use std::io;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle};
pub(crate) use sluice_memory::Array;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The elements of an mmapable ARRAY map.
pub(crate) fn array<T: FromBytes + IntoBytes + Immutable + Copy>(map: &MapHandle) -> io::Result<Array<T>> {
    if size_of::<T>() != map.value_size() as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "element size of the map is another"));
    }
    Array::of(map.as_fd(), map.max_entries())
}

/// The elements of an mmapable ARRAY map whose layout only that map knows.
#[derive(Debug)]
pub(crate) struct Records {
    words: Array<u64>,
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
        Ok(Records { words: Array::of(map.as_fd(), words)?, stride, len })
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
