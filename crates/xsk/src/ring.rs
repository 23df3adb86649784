//! The two ends of a ring in shared memory: one produces, one consumes, and no lock is needed.
#![allow(unsafe_code, reason = "memory that the kernel changes at the same time")]

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_memory::Memory;

/// A mapped ring; entries are plain old data.
struct Shared<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    _memory: Arc<Memory>,
}

// SAFETY: the pointers lead into memory that the value holds, and entries are plain data.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    fn new(memory: Arc<Memory>, at: &libc::xdp_ring_offset, size: u32) -> Shared<T> {
        assert!(size.is_power_of_two(), "rings have a power of two of entries");
        let word = |offset: u64| memory.at(offset as usize, size_of::<u32>()).cast();
        Shared {
            producer: word(at.producer),
            consumer: word(at.consumer),
            flags: word(at.flags),
            entries: memory.at(at.desc as usize, size as usize * size_of::<T>()).cast(),
            size,
            _memory: memory,
        }
    }

    fn word(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: the kernel's offsets lie within the mapping and are aligned; both sides change the word atomically.
        unsafe { word.as_ref() }
    }

    fn entry(&self, at: u32) -> NonNull<T> {
        // SAFETY: masked, so within the ring.
        unsafe { self.entries.add((at & (self.size - 1)) as usize) }
    }
}

/// The end that writes entries.
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    at: u32,
    /// Consumer's index as last seen.
    seen: u32,
}

impl<T: Copy> Producer<T> {
    pub fn map(
        socket: &OwnedFd,
        at: &libc::xdp_ring_offset,
        page: i64,
        size: u32,
    ) -> io::Result<Producer<T>> {
        Ok(Producer::over(mapped::<T>(socket, at, page, size)?, at, size))
    }

    pub fn over(memory: Arc<Memory>, at: &libc::xdp_ring_offset, size: u32) -> Producer<T> {
        Producer { shared: Shared::new(memory, at, size), at: 0, seen: 0 }
    }

    /// Entries that can be written; looks again for more only if there are fewer than `wanted`.
    pub fn room(&mut self, wanted: u32) -> u32 {
        let free = self.shared.size - self.at.wrapping_sub(self.seen);
        if free >= wanted {
            return free;
        }
        self.seen = self.shared.word(self.shared.consumer).load(Ordering::Acquire);
        self.shared.size - self.at.wrapping_sub(self.seen)
    }

    /// How many of so many entries can be written.
    #[inline]
    pub fn room_for(&mut self, wanted: usize) -> usize {
        self.room(wanted as u32).min(wanted as u32) as usize
    }

    /// Writes entries, for which there must be room, and shows the other end all of them at once.
    #[inline]
    pub fn put(&mut self, entries: impl ExactSizeIterator<Item = T>) {
        let any = entries.len() > 0;
        entries.for_each(|entry| self.push(entry));
        if any {
            self.submit();
        }
    }

    /// Writes the next entry, for which there must be room. The other end sees it after [`Producer::submit`].
    pub fn push(&mut self, entry: T) {
        debug_assert!(self.at.wrapping_sub(self.seen) < self.shared.size);
        // SAFETY: within the ring, and not the consumer's before the index moves.
        unsafe { self.shared.entry(self.at).write_volatile(entry) };
        self.at = self.at.wrapping_add(1);
    }

    pub fn submit(&mut self) {
        self.shared.word(self.shared.producer).store(self.at, Ordering::Release);
    }

    /// Entries that the other end has not taken.
    pub fn pending(&mut self) -> u32 {
        self.seen = self.shared.word(self.shared.consumer).load(Ordering::Acquire);
        self.at.wrapping_sub(self.seen)
    }

    /// The kernel asks for a system call before it goes on with the ring.
    pub fn needs_wakeup(&self) -> bool {
        self.shared.word(self.shared.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end that reads entries.
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    at: u32,
    /// Producer's index as last seen.
    seen: u32,
}

impl<T: Copy> Consumer<T> {
    pub fn map(
        socket: &OwnedFd,
        at: &libc::xdp_ring_offset,
        page: i64,
        size: u32,
    ) -> io::Result<Consumer<T>> {
        Ok(Consumer::over(mapped::<T>(socket, at, page, size)?, at, size))
    }

    pub fn over(memory: Arc<Memory>, at: &libc::xdp_ring_offset, size: u32) -> Consumer<T> {
        Consumer { shared: Shared::new(memory, at, size), at: 0, seen: 0 }
    }

    /// Entries that wait.
    pub fn available(&mut self) -> u32 {
        self.seen = self.shared.word(self.shared.producer).load(Ordering::Acquire);
        self.seen.wrapping_sub(self.at)
    }

    /// Hands on up to `most` entries, in order; their places are free after it. Says how many they were.
    #[inline]
    pub fn take(&mut self, most: usize, mut each: impl FnMut(T)) -> usize {
        let count = self.available().min(most as u32);
        (0..count).for_each(|_| each(self.pop()));
        if count > 0 {
            self.release();
        }
        count as usize
    }

    /// Reads the next entry, of which [`Consumer::available`] has told. Its place is free after [`Consumer::release`].
    pub fn pop(&mut self) -> T {
        debug_assert!(self.seen != self.at);
        // SAFETY: within the ring, and written before the producer's index moved.
        let entry = unsafe { self.shared.entry(self.at).read_volatile() };
        self.at = self.at.wrapping_add(1);
        entry
    }

    pub fn release(&mut self) {
        self.shared.word(self.shared.consumer).store(self.at, Ordering::Release);
    }
}

fn mapped<T>(socket: &OwnedFd, at: &libc::xdp_ring_offset, page: i64, size: u32) -> io::Result<Arc<Memory>> {
    let length = at.desc as usize + size as usize * size_of::<T>();
    Ok(Arc::new(Memory::present(socket, page, length)?))
}

#[cfg(test)]
pub(crate) fn pair<T: Copy>(size: u32) -> (Producer<T>, Consumer<T>) {
    let at = libc::xdp_ring_offset { producer: 0, consumer: 64, flags: 128, desc: 192 };
    let memory = Arc::new(Memory::fresh(192 + size as usize * size_of::<T>()).unwrap());
    (Producer::over(memory.clone(), &at, size), Consumer::over(memory, &at, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_once_in_order_over_the_wrap_of_indices() {
        let (mut producer, mut consumer) = pair::<u64>(8);
        // as if four billion entries had passed
        for index in [&mut producer.at, &mut producer.seen, &mut consumer.at, &mut consumer.seen] {
            *index = u32::MAX - 10;
        }
        consumer.release();
        producer.submit();
        let (mut written, mut read) = (0u64, 0u64);
        for step in 0..1000u32 {
            for _ in 0..producer.room(8).min(step % 9) {
                producer.push(written);
                written += 1;
            }
            producer.submit();
            for _ in 0..consumer.available().min(step % 7) {
                assert_eq!(consumer.pop(), read);
                read += 1;
            }
            consumer.release();
            assert_eq!(u64::from(producer.pending()), written - read);
        }
        assert!(read > 2000 && written - read <= 8);
    }

    #[test]
    fn a_full_ring_has_no_room_until_entries_are_released() {
        let (mut producer, mut consumer) = pair::<u64>(4);
        (0..4).for_each(|n| producer.push(n));
        producer.submit();
        assert_eq!((producer.room(1), consumer.available()), (0, 4));
        consumer.pop();
        assert_eq!(producer.room(1), 0);
        consumer.release();
        assert_eq!(producer.room(1), 1);
    }
}
