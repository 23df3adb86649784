//! Which hosts have a grant at all (layout: bpf/abi/gate.h): the fast path refuses the others without asking further.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};

use sluice_abi::grant_source;

use super::GrantKey;
use crate::error::Result;
use crate::mmap::Array;
use crate::records::{address_words, mapped};
use crate::state::State;

/// Changed under the lock of the book only.
#[derive(Debug)]
pub(super) struct Sources {
    words: Array<u64>,
    /// Grants behind each bit. One that has reached the end of its range stays there, and its bit with it: one host without a grant
    /// more for the slow path.
    counts: Vec<AtomicU8>,
    seed: u64,
}

impl Sources {
    pub fn open(state: &State, seed: u64) -> Result<Sources> {
        let words: Array<u64> = mapped(state, "grant_sources")?;
        let counts = (0..u64::from(words.len()) * 64).map(|_| AtomicU8::new(0)).collect();
        Ok(Sources { words, counts, seed })
    }

    fn bits(&self, source: IpAddr) -> (u32, [u32; 2]) {
        let (family, be_addr) = address_words(source);
        grant_source(self.seed, be_addr, family as u8, self.words.len() - 1)
    }

    fn count(&self, word: u32, bit: u32) -> &AtomicU8 {
        &self.counts[word as usize * 64 + bit as usize]
    }

    /// Before the key is in the index.
    pub fn add(&self, key: &GrantKey) {
        if !key.is_host() {
            return;
        }
        let (word, bits) = self.bits(key.source);
        let mut set = 0;
        for bit in bits {
            let count = self.count(word, bit);
            count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
            set |= 1 << bit;
        }
        self.words.long(word, 0).fetch_or(set, Ordering::Release);
    }

    /// After the key has left the index.
    pub fn remove(&self, key: &GrantKey) {
        if !key.is_host() {
            return;
        }
        let (word, bits) = self.bits(key.source);
        let mut clear = 0;
        for bit in bits {
            let count = self.count(word, bit);
            match count.load(Ordering::Relaxed) {
                0 | u8::MAX => {}
                1 => {
                    count.store(0, Ordering::Relaxed);
                    clear |= 1u64 << bit;
                }
                more => count.store(more - 1, Ordering::Relaxed),
            }
        }
        self.words.long(word, 0).fetch_and(!clear, Ordering::Release);
    }

    /// Takes these for all there are, whatever was there before.
    pub fn begin<'a>(&self, keys: impl Iterator<Item = &'a GrantKey>) {
        keys.for_each(|key| self.add(key));
        for word in 0..self.words.len() {
            let set = (0..64).filter(|bit| self.count(word, *bit).load(Ordering::Relaxed) > 0);
            let set = set.fold(0, |bits, bit| bits | 1u64 << bit);
            self.words.long(word, 0).store(set, Ordering::Release);
        }
    }
}
