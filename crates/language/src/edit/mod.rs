//! Changes of a tree that is there: commands of configuration mode, texts that are loaded into it, and what differs.
//!
//! Everything here takes the words of an edit path, before which the words of a command, a text or an answer stand. A change
//! that has an error changes nothing.

mod commands;
mod compare;
mod entries;
mod pattern;

use crate::error::{Error, Errors};
use crate::parser::{Manner, Marks};
use crate::print::Remarks;
use crate::tree::{TOP, Tree};

/// What a loaded text does to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Its statements come to those that are there.
    Merge,
    /// It is all that is there from here on.
    Override,
    /// Like merge, and statements marked `replace:` stand for what they had.
    Replace,
    /// It consists of commands: `set`, `delete` and the others.
    Set,
}

impl Load {
    /// In the order completion lists them.
    pub const ALL: [Self; 4] = [Self::Merge, Self::Override, Self::Replace, Self::Set];

    /// As `load` is told it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Merge => "merge",
            Self::Override => "override",
            Self::Replace => "replace",
            Self::Set => "set",
        }
    }

    /// None = it is none of the four names.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|load| load.name() == name)
    }
}

impl Tree {
    /// Does what commands of configuration mode say, one a line, at an edit path: `set`, `delete`, `activate`, `deactivate`,
    /// `insert A before|after B`, `rename A to B`, `copy A to B`, `annotate A "comment"` and `replace pattern X with Y`. Says
    /// what was passed over, such as a `delete` of what is not there.
    pub fn edit(&mut self, path: &[String], commands: &str, file: &str) -> Result<Vec<Error>, Errors> {
        self.change(
            commands,
            file,
            &Manner { base: path, editor: true, marks: Marks::Refused, foreign: false },
        )
    }

    /// Loads a text; its statements stand below `path`.
    pub fn load(
        &mut self,
        path: &[String],
        mode: Load,
        text: &str,
        file: &str,
    ) -> Result<Vec<Error>, Errors> {
        let manner = |marks| Manner { base: path, marks, ..Manner::default() };
        match mode {
            Load::Merge => self.change(text, file, &manner(Marks::Ignored)),
            Load::Replace => self.change(text, file, &manner(Marks::Followed)),
            Load::Set => self.edit(path, text, file),
            Load::Override => {
                let mut tree = self.clone();
                if let Some(at) = tree.at(path) {
                    tree.clear(at);
                }
                let warnings = tree.read_as(text, file, &manner(Marks::Ignored))?;
                *self = tree;
                Ok(warnings)
            }
        }
    }

    fn change(&mut self, text: &str, file: &str, manner: &Manner<'_>) -> Result<Vec<Error>, Errors> {
        let mut tree = self.clone();
        let warnings = tree.read_as(text, file, manner)?;
        *self = tree;
        Ok(warnings)
    }

    /// Nothing is configured.
    pub fn is_empty(&self) -> bool {
        self.node(TOP).children.is_empty()
    }

    /// Whether something is configured at a path.
    pub fn contains<S: AsRef<str>>(&self, path: &[S]) -> bool {
        self.at(path).is_some()
    }

    /// Words that stand below a path: names of entries, keywords, values. For completion.
    pub fn words_below<S: AsRef<str>>(&self, path: &[S]) -> Vec<&str> {
        let children = self.at(path).map(|at| self.node(at).children.as_slice()).unwrap_or_default();
        children.iter().map(|&child| self.node(child).word.as_str()).collect()
    }

    /// Hierarchical text of what stands below a path, with comments; None where nothing does.
    pub fn text_at<S: AsRef<str>>(&self, path: &[S]) -> Option<String> {
        self.at(path).map(|at| self.print(at, Remarks::Comments))
    }

    /// The same as `set` commands with the whole path.
    pub fn set_at<S: AsRef<str>>(&self, path: &[S]) -> Option<String> {
        self.at(path).map(|at| self.set_lines(at))
    }
}
