//! Entries under another name.

use crate::error::one_of;
use crate::schema::{Cursor, Statement};
use crate::tree::{NodeId, Tree, Word};

/// What is wrong, and what to do.
pub(super) type Refusal = (String, String);

impl Tree {
    /// Gives what an entry holds to one of another name; `moves`: the old one goes, and the new one stands in its place.
    /// Either all words of the new one are given, or those behind its keyword.
    pub(super) fn rename(&mut self, from: NodeId, to: &[Word], moves: bool) -> Result<(), Refusal> {
        let header = self.header_of(from);
        let words = self.new_header(&header, to)?;
        let parent = self.node(header[0]).parent;
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        if texts.iter().try_fold(parent, |at, word| self.find(at, word)).is_some() {
            return Err((format!("`{}` is there already", texts.join(" ")), "delete it before".to_owned()));
        }
        let mut made = vec![];
        for word in &words {
            let above = made.last().copied().unwrap_or(parent);
            let child = self
                .child(above, word)
                .ok_or_else(|| ("the statement gets too deep".to_owned(), String::new()))?;
            made.push(child);
        }
        let last = made[made.len() - 1];
        if !is_same_kind(self.node(from).cursor, self.node(last).cursor) {
            let kind = texts[..texts.len() - 1].join(" ");
            return Err((
                format!("`{}` is another kind of statement", texts.join(" ")),
                format!("expected: {kind} NAME"),
            ));
        }
        self.copy_below(from, last);
        self.take_marks(from, last);
        if moves {
            let fork = header.iter().zip(&made).find(|(old, new)| old != new);
            if let Some((&old, &new)) = fork {
                self.reorder(new, old, true);
            }
            self.remove(from);
        }
        Ok(())
    }

    fn new_header(&self, header: &[NodeId], to: &[Word]) -> Result<Vec<Word>, Refusal> {
        let from = header[header.len() - 1];
        let named = match self.node(from).cursor {
            Cursor::Block(statement) => !statement.keys.is_empty(),
            Cursor::Done => header.len() > 1,
            Cursor::Unknown => true,
            Cursor::Key(..) | Cursor::Value(_) => false,
        };
        let old: Vec<&str> = header.iter().map(|&id| self.node(id).word.as_str()).collect();
        if !named {
            let names: Vec<&str> =
                self.node(from).children.iter().map(|&child| self.node(child).word.as_str()).collect();
            let help =
                if names.is_empty() { String::new() } else { format!("below it are: {}", one_of(&names)) };
            return Err((format!("`{}` has no name", old.join(" ")), help));
        }
        if to.len() == old.len() {
            return Ok(to.to_vec());
        }
        if to.len() + 1 == old.len() {
            let keyword = Word { text: old[0].to_owned(), span: to[0].span, joined: false };
            return Ok([vec![keyword], to.to_vec()].concat());
        }
        let help = format!("`{}` has {} words; so has the new name", old.join(" "), old.len());
        Err(("the new name has another form than the old one".to_owned(), help))
    }

    /// Everything below one word comes below another, too.
    fn copy_below(&mut self, from: NodeId, to: NodeId) {
        let mut pairs = vec![(from, to)];
        while let Some((from, to)) = pairs.pop() {
            for child in self.node(from).children.clone() {
                pairs.push((child, self.copy_word(to, child)));
            }
        }
    }
}

pub(super) fn is_same_kind(a: Cursor, b: Cursor) -> bool {
    let same = |a: &'static Statement, b: &'static Statement| std::ptr::eq(a, b);
    match (a, b) {
        (Cursor::Block(a), Cursor::Block(b)) | (Cursor::Value(a), Cursor::Value(b)) => same(a, b),
        (Cursor::Key(a, i), Cursor::Key(b, j)) => same(a, b) && i == j,
        (Cursor::Done, Cursor::Done) | (Cursor::Unknown, Cursor::Unknown) => true,
        _ => false,
    }
}
