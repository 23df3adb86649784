//! `replace pattern`: names and values that match a regular expression become others. Keywords stay what they are.

use regex::Regex;

use super::entries::{Refusal, is_same_kind};
use crate::schema::{Cursor, Key, lookup};
use crate::tree::{NodeId, Tree};

impl Tree {
    /// Says how many words were changed; at most as many as are given.
    pub(super) fn replace_pattern(
        &mut self,
        below: NodeId,
        pattern: &str,
        with: &str,
        most: Option<usize>,
    ) -> Result<usize, Refusal> {
        let regex = Regex::new(pattern).map_err(|error| {
            (
                format!("`{pattern}` is no regular expression: {error}"),
                "write `.`, `*` and the like as `\\.`".to_owned(),
            )
        })?;
        let with = references(with);
        let mut changed = 0;
        // the words of one statement before those below it, in the order of the text
        let mut stack: Vec<NodeId> = self.node(below).children.iter().rev().copied().collect();
        while let Some(id) = stack.pop() {
            if most.is_some_and(|most| changed >= most) {
                break;
            }
            changed += usize::from(self.is_chosen(id) && self.substitute(id, &regex, &with)?);
            stack.extend(self.node(id).children.iter().rev());
        }
        Ok(changed)
    }

    /// A name or a value: what whoever wrote it was free to choose.
    fn is_chosen(&self, id: NodeId) -> bool {
        let node = self.node(id);
        match self.node(node.parent).cursor {
            Cursor::Key(statement, index) => matches!(statement.keys[index], Key::Value(_)),
            Cursor::Value(_) | Cursor::Unknown => true,
            Cursor::Block(block) => {
                lookup(block, &node.word).is_some_and(|statement| statement.name.is_empty())
            }
            Cursor::Done => false,
        }
    }

    fn substitute(&mut self, id: NodeId, regex: &Regex, with: &str) -> Result<bool, Refusal> {
        let (word, cursor, parent) = (&self.node(id).word, self.node(id).cursor, self.node(id).parent);
        let new = regex.replace_all(word, with).into_owned();
        if new == *word {
            return Ok(false);
        }
        if self.find(parent, &new).is_some() {
            let path = self.path(parent).join(" ");
            return Err((
                format!("`{word}` would become `{new}`, which is there already"),
                format!("in `{path}`"),
            ));
        }
        if new.is_empty() || !is_same_kind(cursor, self.node(parent).cursor.step(&new)) {
            return Err((format!("`{word}` would become `{new}`, which is no name"), String::new()));
        }
        self.reword(id, new);
        Ok(true)
    }
}

/// `\1` is the first group of the expression, and nothing else is special.
fn references(with: &str) -> String {
    let mut out = String::new();
    let mut characters = with.chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek().copied()) {
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                characters.next();
                out.push_str(&format!("${{{digit}}}"));
            }
            ('$', _) => out.push_str("$$"),
            (c, _) => out.push(c),
        }
    }
    out
}
