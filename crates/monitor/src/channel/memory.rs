//! Hints to the memory system: prefetching, huge pages, and a hasher for keys that are hashes already.
#![allow(unsafe_code)] // prefetch and madvise have no safe form; both are hints that cannot change a value

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::LazyLock;

/// Asks for the cache line of `value`, to be written soon.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address has no effect that a program can observe; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// A vector with room for `capacity` elements on huge pages where the system grants them. Memory is taken when it is
/// first written, so capacity that is not used costs nothing.
pub fn huge_vec<T>(capacity: usize) -> Vec<T> {
    const HUGE: usize = 2 << 20;
    let vector: Vec<T> = Vec::with_capacity(capacity);
    let start = vector.as_ptr() as usize;
    let (first, end) =
        (start.next_multiple_of(HUGE), (start + vector.capacity() * size_of::<T>()) / HUGE * HUGE);
    if first < end {
        // SAFETY: the range lies inside the allocation just made, and MADV_HUGEPAGE only changes how it is backed.
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, libc::MADV_HUGEPAGE) };
    }
    vector
}

/// For maps whose keys are channel numbers or indices: one multiplication.
#[derive(Clone, Copy, Debug)]
pub struct WordHasher(u64);

/// For maps whose keys are words; one multiplication a key.
pub type Words = BuildHasherDefault<WordHasher>;

/// Begins with what nobody outside this process knows: keys are made of addresses that anybody may choose.
impl Default for WordHasher {
    fn default() -> Self {
        static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0u8));
        WordHasher(*SECRET)
    }
}

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_vectors_are_vectors() {
        let mut vector = huge_vec::<[u64; 8]>(1 << 16);
        vector.push([7; 8]);
        prefetch(&vector[0]);
        assert_eq!((vector.len(), vector[0][3], vector.capacity() >= 1 << 16), (1, 7, true));
    }
}
