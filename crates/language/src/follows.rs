//! What an editor asks about a path of the configuration: what may follow it, what stands there, which names are in use.

use crate::schema::{Body, Cursor, Key, Kind, ROOT, lookup};
use crate::tree::{NodeId, TOP, Tree};

/// What may follow some words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follows {
    /// Statements of a block.
    Block,
    /// A word of a header.
    Key,
    /// A value.
    Value,
    /// Nothing.
    Done,
    /// The schema does not say.
    Unknown,
}

/// Where words from the top level lead.
pub fn follows(path: &[&str]) -> Follows {
    match path.iter().fold(Cursor::Block(&ROOT), |cursor, word| cursor.step(word)) {
        Cursor::Block(_) => Follows::Block,
        Cursor::Key(..) => Follows::Key,
        Cursor::Value(_) => Follows::Value,
        Cursor::Done => Follows::Done,
        Cursor::Unknown => Follows::Unknown,
    }
}

impl Tree {
    /// Every word that stands for a value of this placeholder, as `<zone>`, in alphabetical order.
    pub fn names(&self, placeholder: &str) -> Vec<String> {
        let (mut names, mut stack) = (std::collections::BTreeSet::new(), vec![TOP]);
        while let Some(id) = stack.pop() {
            for &child in &self.node(id).children {
                stack.push(child);
                if self.kind_of(id, child).is_some_and(|kind| kind.placeholder() == placeholder) {
                    names.insert(self.node(child).word.clone());
                }
            }
        }
        names.into_iter().collect()
    }

    /// What value a word is; None for keywords.
    fn kind_of(&self, parent: NodeId, child: NodeId) -> Option<&'static Kind> {
        let key = |key: &'static Key| match key {
            Key::Value(kind) => Some(kind),
            Key::Word(_) => None,
        };
        match self.node(parent).cursor {
            Cursor::Block(block) => lookup(block, &self.node(child).word)
                .filter(|statement| statement.name.is_empty())
                .and_then(|statement| statement.keys.first().and_then(key)),
            Cursor::Key(statement, index) => statement.keys.get(index).and_then(key),
            Cursor::Value(statement) => match &statement.body {
                Body::Value(kind) | Body::List(kind) => Some(kind),
                Body::Block(_) | Body::Flag => None,
            },
            Cursor::Done | Cursor::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_what_they_name() {
        let text = "set security zones security-zone trust interfaces lan0\n\
            set security policies from-zone trust to-zone dmz policy web match source-address any\n";
        let tree = crate::parse(text, "a.conf").unwrap();
        assert_eq!(tree.names("<zone>"), ["dmz", "trust"]);
    }

    #[test]
    fn a_path_says_what_follows() {
        assert_eq!(follows(&["security"]), Follows::Block);
        assert_eq!(follows(&["security", "zones", "security-zone"]), Follows::Key);
        assert_eq!(follows(&["system", "host-name"]), Follows::Value);
        assert_eq!(follows(&["system", "host-name", "gw"]), Follows::Done);
        assert_eq!(follows(&["bananas"]), Follows::Unknown);
    }
}
