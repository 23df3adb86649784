//! The policies' tables of a generation as the packet path reads them, for whoever asks what a packet would match.

use sluice_abi::tables::Table;
use sluice_abi::{ClassLine, Context, Rule, ZonePair};

use crate::slots::Filled;

/// The tables last until the second commit after theirs.
#[derive(Debug)]
pub struct RuleTables(Filled);

impl RuleTables {
    pub(crate) fn of(filled: &Filled) -> RuleTables {
        RuleTables(filled.clone())
    }

    /// False when a later commit has taken the tables' place: answers may then be a mix of both.
    pub fn are_there(&self) -> bool {
        self.0.is_there()
    }

    /// By [`sluice_abi::zone_pair_index`].
    pub fn zone_pair(&self, index: u32) -> ZonePair {
        self.0.read(Table::ZonePairs, index)
    }

    /// Where the rows of a list of rules are.
    pub fn context(&self, number: u32) -> Context {
        self.0.read(Table::Contexts, number)
    }

    /// By its index in the rule table.
    pub fn rule(&self, index: u32) -> Rule {
        self.0.read(Table::Rules, index)
    }

    /// A line of the class trees.
    pub fn classes(&self, line: u32) -> ClassLine {
        self.0.read(Table::Classes, line)
    }

    /// A line of the rows of bits.
    pub fn rows(&self, line: u32) -> ClassLine {
        self.0.read(Table::Rows, line)
    }
}
