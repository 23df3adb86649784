//! The policies' tables of a generation as the packet path reads them, for whoever asks what a packet would match.

use sluice_abi::{ClassLine, Context, Rule, ZonePair};

use crate::error::{Doing, Result};
use crate::generation::Generation;
use crate::mmap::Mapped;

/// Keeps the tables alive, also when their generation is gone.
#[derive(Debug)]
pub struct RuleTables {
    zone_pairs: Mapped<ZonePair>,
    contexts: Mapped<Context>,
    rules: Mapped<Rule>,
    classes: Mapped<ClassLine>,
    rows: Mapped<ClassLine>,
}

impl RuleTables {
    pub(crate) fn of(generation: &Generation) -> Result<RuleTables> {
        fn mapped<T>(generation: &Generation, name: &'static str) -> Result<Mapped<T>>
        where
            T: zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + Copy,
        {
            Mapped::new(generation.table(name)).doing(|| format!("map table {name}"))
        }
        Ok(RuleTables {
            zone_pairs: mapped(generation, "zone_pairs")?,
            contexts: mapped(generation, "contexts")?,
            rules: mapped(generation, "rules")?,
            classes: mapped(generation, "classes")?,
            rows: mapped(generation, "rows")?,
        })
    }

    /// By [`sluice_abi::zone_pair_index`].
    pub fn zone_pair(&self, index: u32) -> ZonePair {
        self.zone_pairs.read(index)
    }

    pub fn context(&self, number: u32) -> Context {
        self.contexts.read(number)
    }

    pub fn rule(&self, place: u32) -> Rule {
        self.rules.read(place)
    }

    pub fn classes(&self, line: u32) -> ClassLine {
        self.classes.read(line)
    }

    pub fn rows(&self, line: u32) -> ClassLine {
        self.rows.read(line)
    }
}
