//! How one header is put into the tree, by the schema.

use super::Parser;
use crate::lexer::Span;
use crate::schema::{Body, Cursor};
use crate::tree::{MAX_DEPTH, NodeId, TOP, Word};

/// A header that is being put into the tree.
pub(super) struct Walk<'p, 'a> {
    parser: &'p mut Parser<'a>,
    pub(super) at: NodeId,
    /// The block to go on in after a complete statement, for `protocol tcp destination-port 80;`.
    enclosing: Option<NodeId>,
    /// The first entry or leaf of the header: what `inactive:` speaks of.
    pub(super) statement: Option<NodeId>,
    /// Ended in a list.
    pub(super) listed: bool,
    /// Stands behind a statement that is refused by name, in a block that may stand on one line.
    refused: bool,
    /// Members of a list that are there go before others come.
    replace: bool,
    line: u32,
}

impl<'p, 'a> Walk<'p, 'a> {
    pub(super) fn new(parser: &'p mut Parser<'a>, context: NodeId, replace: bool) -> Self {
        let block = matches!(parser.tree.node(context).cursor, Cursor::Block(_));
        Walk {
            parser,
            at: context,
            enclosing: block.then_some(context),
            statement: None,
            listed: false,
            refused: false,
            replace,
            line: 0,
        }
    }

    pub(super) fn word(&mut self, word: &Word) -> Option<()> {
        self.resume(word)?;
        self.line = word.span.line;
        let above = self.parser.tree.node(self.at).cursor;
        self.at = self.step(self.at, word)?;
        self.refused |= word.joined && above.refuses(&word.text) && above.is_one_line();
        match self.parser.tree.node(self.at).cursor {
            Cursor::Block(statement) => {
                self.enclosing = Some(self.at);
                if !statement.keys.is_empty() {
                    self.statement.get_or_insert(self.at);
                }
            }
            Cursor::Value(_) | Cursor::Done => drop(self.statement.get_or_insert(self.at)),
            Cursor::Key(..) | Cursor::Unknown => {}
        }
        Some(())
    }

    /// After a complete statement, moves back to its block if that knows the next word.
    fn resume(&mut self, word: &Word) -> Option<()> {
        let cursor = |id| self.parser.tree.node(id).cursor;
        let done = self.listed || matches!(cursor(self.at), Cursor::Done);
        let known = self.enclosing.filter(|&block| cursor(block).has_keyword(&word.text));
        let is_value = self.enclosing == Some(self.parser.tree.node(self.at).parent);
        if !done && self.refused && !is_value && known.is_some() {
            // `alg ftp protocol tcp`: what is refused has had its value.
            self.at = known?;
            self.refused = false;
            return Some(());
        }
        if !done {
            return Some(());
        }
        self.listed = false;
        let known = known.or(self.enclosing.filter(|&block| cursor(block).refuses(&word.text)));
        if self.line != word.span.line {
            self.parser.error(word.span, format!("a `;` is missing before `{}`", word.text), "add it");
            self.at = self.enclosing?;
        } else if let Some(block) = known {
            self.at = block;
        } else {
            let message = format!("unexpected `{}` after a complete statement", word.text);
            self.parser.error(word.span, message, "end the statement with `;` before it");
            return None;
        }
        Some(())
    }

    pub(super) fn list(&mut self, words: &[Word], span: Span, inactive: bool) -> Option<()> {
        let cursor = self.parser.tree.node(self.at).cursor;
        let allowed = match cursor {
            Cursor::Value(statement) => matches!(statement.body, Body::List(_)) || words.len() <= 1,
            Cursor::Unknown => self.at != TOP && !self.listed,
            Cursor::Block(_) | Cursor::Key(..) | Cursor::Done => false,
        };
        if !allowed {
            let after = self.parser.tree.node(self.at).word.clone();
            self.parser.error(
                span,
                format!("`{after}` takes no list"),
                "write one statement for each member",
            );
            return None;
        }
        for word in words {
            let member = self.step(self.at, word)?;
            if inactive && matches!(cursor, Cursor::Unknown) {
                self.parser.tree.set_inactive(member, true);
            }
        }
        if inactive && matches!(cursor, Cursor::Value(_)) {
            self.parser.tree.set_inactive(self.statement.unwrap_or(self.at), true);
        }
        self.line = span.line;
        self.listed = true;
        Some(())
    }

    fn step(&mut self, at: NodeId, word: &Word) -> Option<NodeId> {
        if self.replace && matches!(self.parser.tree.node(at).cursor, Cursor::Value(_)) {
            self.replace = false;
            self.parser.tree.clear(at);
        }
        let child = self.parser.tree.child(at, word);
        if child.is_none() {
            let message = format!("statements are at most {MAX_DEPTH} words deep");
            self.parser.error(word.span, message, "");
        }
        child
    }
}
