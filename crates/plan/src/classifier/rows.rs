//! Rows of rule bits, a row a class and context.

use std::collections::{BTreeMap, HashMap};

use sluice_abi::{CLASS_CHUNK_RULES, CLASS_LINE_WORDS, ClassLine, MAX_ROW_LINES};

use super::words::Words;

/// The bits of one chunk of rules.
type Bits = [u64; CLASS_CHUNK_RULES / 64];

pub(super) struct Rows {
    words: Words,
    /// Lines of bits that are stored already.
    known: HashMap<Bits, u32>,
}

impl Rows {
    pub fn new() -> Rows {
        let mut words = Words::new(MAX_ROW_LINES);
        // Line 0 says that there is nothing.
        words.extend(&[0; CLASS_LINE_WORDS]);
        Rows { words, known: HashMap::from([([0; 8], 0)]) }
    }

    /// Stores the rows of one class space for `rules` rules. `wanted` says which rules want which set (None: any), `members`
    /// which sets each class satisfies. Returns the offset, in words, of the list of the classes' rows.
    pub fn space(
        &mut self,
        rules: usize,
        wanted: &BTreeMap<Option<u32>, Vec<u32>>,
        members: &[Vec<u32>],
    ) -> u32 {
        let mut any = vec![Bits::default(); rules.div_ceil(CLASS_CHUNK_RULES)];
        set(&mut any, wanted.get(&None).map_or(&[], Vec::as_slice));
        let base = self.lines(&any);
        let mut rows: HashMap<Vec<u32>, u32> = HashMap::new();
        let mut offsets = Vec::with_capacity(members.len());
        for sets in members {
            let mut row = base.clone();
            self.satisfied(sets, wanted, &any, &mut row);
            let words = &mut self.words;
            let offset = *rows.entry(row).or_insert_with_key(|row| match row.iter().all(|line| *line == 0) {
                true => 0,
                false => words.extend_within_line(row),
            });
            offsets.push(offset);
        }
        self.words.list(offsets)
    }

    /// Adds the rules of all satisfied sets to a row; only the chunks that have some are looked at.
    fn satisfied(
        &mut self,
        sets: &[u32],
        wanted: &BTreeMap<Option<u32>, Vec<u32>>,
        any: &[Bits],
        row: &mut [u32],
    ) {
        let lists = sets.iter().filter_map(|number| wanted.get(&Some(*number)));
        let mut rules: Vec<u32> = lists.flatten().copied().collect();
        rules.sort_unstable();
        for chunk in rules.chunk_by(|a, b| *a as usize / CLASS_CHUNK_RULES == *b as usize / CLASS_CHUNK_RULES)
        {
            let chunk_number = chunk[0] as usize / CLASS_CHUNK_RULES;
            let mut bits = [any[chunk_number]];
            let first = (chunk_number * CLASS_CHUNK_RULES) as u32;
            set(&mut bits, &chunk.iter().map(|rule| rule - first).collect::<Vec<_>>());
            row[chunk_number] = self.line(&bits[0]);
        }
    }

    /// Stores which rule stands where.
    pub fn orders(&mut self, order: Vec<u32>) -> u32 {
        self.words.list(order)
    }

    fn lines(&mut self, bits: &[Bits]) -> Vec<u32> {
        bits.iter().map(|bits| self.line(bits)).collect()
    }

    fn line(&mut self, bits: &Bits) -> u32 {
        if let Some(line) = self.known.get(bits) {
            return *line;
        }
        let words: Vec<u32> = bits.iter().flat_map(|word| [*word as u32, (*word >> 32) as u32]).collect();
        let line = self.words.extend_line(&words) / CLASS_LINE_WORDS as u32;
        self.known.insert(*bits, line);
        line
    }

    pub fn check(&self) -> Result<(), usize> {
        self.words.check()
    }

    pub fn lines_of_table(self) -> Result<Vec<ClassLine>, usize> {
        self.words.lines()
    }
}

fn set(bits: &mut [Bits], rules: &[u32]) {
    for rule in rules {
        let rule = *rule as usize;
        bits[rule / CLASS_CHUNK_RULES][rule % CLASS_CHUNK_RULES / 64] |= 1 << (rule % 64);
    }
}
