//! A table of 64-byte lines while it grows, seen as 32-bit words.

use std::collections::HashMap;

use sluice_abi::{CLASS_LINE_WORDS, ClassLine};

/// Lines of a table with a bound. What would exceed the bound is not kept; [`Words::lines`] says so at the end.
#[derive(Debug)]
pub(super) struct Words {
    words: Vec<u32>,
    /// In lines.
    limit: usize,
    full: bool,
    lists: HashMap<Vec<u32>, u32>,
}

impl Words {
    pub fn new(limit: usize) -> Words {
        Words { words: vec![], limit, full: false, lists: HashMap::new() }
    }

    /// Appends words and says where they are.
    pub fn extend(&mut self, words: &[u32]) -> u32 {
        let offset = self.words.len() as u32;
        if (self.words.len() + words.len()).div_ceil(CLASS_LINE_WORDS) > self.limit {
            self.full = true;
        } else {
            self.words.extend_from_slice(words);
        }
        offset
    }

    /// Zeros up to a multiple of `words`, at most a line.
    pub fn align(&mut self, words: usize) {
        let rest = self.words.len().next_multiple_of(words) - self.words.len();
        self.extend(&[0; CLASS_LINE_WORDS][..rest]);
    }

    /// Appends words from the beginning of a line.
    pub fn extend_line(&mut self, words: &[u32]) -> u32 {
        self.align(CLASS_LINE_WORDS);
        self.extend(words)
    }

    /// The same, but not across the end of a line unless it is longer than one and begins with one.
    pub fn extend_within_line(&mut self, words: &[u32]) -> u32 {
        let used = self.words.len() % CLASS_LINE_WORDS;
        if used + words.len() > CLASS_LINE_WORDS { self.extend_line(words) } else { self.extend(words) }
    }

    /// A list that is stored once, however often it is asked for.
    pub fn list(&mut self, words: Vec<u32>) -> u32 {
        if let Some(offset) = self.lists.get(&words) {
            return *offset;
        }
        let offset = self.extend(&words);
        self.lists.insert(words, offset);
        offset
    }

    pub fn write(&mut self, offset: usize, words: &[u32]) {
        if let Some(target) = self.words.get_mut(offset..offset + words.len()) {
            target.copy_from_slice(words);
        }
    }

    /// Err(limit) when something did not fit.
    pub fn check(&self) -> Result<(), usize> {
        if self.full { Err(self.limit) } else { Ok(()) }
    }

    pub fn lines(self) -> Result<Vec<ClassLine>, usize> {
        self.check()?;
        let line = |words: &[u32]| {
            let mut line = ClassLine::default();
            line.word[..words.len()].copy_from_slice(words);
            line
        };
        Ok(self.words.chunks(CLASS_LINE_WORDS).map(line).collect())
    }
}
