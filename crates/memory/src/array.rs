//! The elements of a BPF ARRAY, seen through memory.

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::mapping::Memory;

/// An mmapable ARRAY, or a data section of an object, which is one with a single element. Programs write it at the same time,
/// so every access is volatile or atomic.
#[derive(Debug)]
pub struct Array<T> {
    memory: Memory,
    len: u32,
    element: PhantomData<T>,
}

impl<T: FromBytes + IntoBytes + Immutable + Copy> Array<T> {
    /// The first `len` elements of a map. T is its value, whose size is a multiple of 8 where there are several: so they lie 8-byte
    /// aligned without gaps.
    pub fn of(map: impl AsFd, len: u32) -> io::Result<Array<T>> {
        if !(size_of::<T>().is_multiple_of(8) || len == 1) {
            let text = format!("elements of {} bytes do not lie without gaps", size_of::<T>());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let memory = Memory::shared(map, 0, size_of::<T>() * len as usize)?;
        Ok(Array { memory, len, element: PhantomData })
    }

    /// Where a part of an element stands.
    fn at(&self, index: u32, offset: usize, size: usize) -> usize {
        assert!(index < self.len && offset + size <= size_of::<T>(), "access outside a map");
        index as usize * size_of::<T>() + offset
    }

    /// How many elements it has.
    #[expect(clippy::len_without_is_empty, reason = "memory of no bytes cannot be mapped")]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// A copy. Words that change meanwhile may belong to different moments; callers that mind compare `tag`s.
    ///
    /// # Panics
    /// Like everything below: when the element or the part of it is not there.
    pub fn read(&self, index: u32) -> T {
        self.memory.read(self.at(index, 0, size_of::<T>()))
    }

    /// A copy of one field.
    pub fn read_field<F: FromBytes + Copy>(&self, index: u32, offset: usize) -> F {
        self.memory.read(self.at(index, offset, size_of::<F>()))
    }

    /// Puts an element there; readers may see a part of it first.
    pub fn write(&self, index: u32, value: T) {
        self.memory.write(self.at(index, 0, size_of::<T>()), value);
    }

    /// Puts bytes behind the beginning of an element, into the next ones as well, while nobody reads them.
    pub fn fill(&self, index: u32, offset: usize, bytes: &[u8]) {
        let begin = index as usize * size_of::<T>() + offset;
        assert!(begin + bytes.len() <= self.len as usize * size_of::<T>(), "access outside a map");
        self.memory.fill(begin, bytes);
    }

    /// The 8 bits at an offset of an element.
    pub fn byte(&self, index: u32, offset: usize) -> &AtomicU8 {
        self.memory.byte(self.at(index, offset, 1))
    }

    /// The 16 bits at an offset of an element, which divides by 2.
    pub fn half(&self, index: u32, offset: usize) -> &AtomicU16 {
        self.memory.half(self.at(index, offset, 2))
    }

    /// The 32 bits at an offset of an element, which divides by 4.
    pub fn word(&self, index: u32, offset: usize) -> &AtomicU32 {
        self.memory.word(self.at(index, offset, 4))
    }

    /// The 64 bits at an offset of an element, which divides by 8.
    pub fn long(&self, index: u32, offset: usize) -> &AtomicU64 {
        self.memory.long(self.at(index, offset, 8))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn array<T: FromBytes + IntoBytes + Immutable + Copy>(len: u32) -> Array<T> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        Array::of(&file, len).unwrap()
    }

    #[test]
    fn elements_and_their_parts_lie_one_behind_the_other() {
        let array = array::<[u32; 4]>(3);
        array.write(1, [1, 2, 3, 4]);
        array.fill(2, 4, &[9; 4]);
        assert_eq!((array.len(), array.read(0), array.read(1)), (3, [0; 4], [1, 2, 3, 4]));
        assert_eq!(array.read_field::<[u32; 2]>(1, 8), [3, 4]);
        assert_eq!(
            (array.word(2, 0).load(Ordering::Relaxed), array.byte(2, 5).load(Ordering::Relaxed)),
            (0, 9)
        );
        array.word(0, 12).store(7, Ordering::Relaxed);
        assert_eq!(array.read(0), [0, 0, 0, 7]);
    }

    #[test]
    fn several_elements_leave_no_gaps() {
        assert_eq!(array::<[u8; 12]>(1).read(0), [0; 12]);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Array::<[u8; 12]>::of(&file, 2).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    #[should_panic(expected = "access outside a map")]
    fn a_field_ends_with_its_element() {
        array::<[u8; 8]>(2).read_field::<u64>(0, 1);
    }
}
