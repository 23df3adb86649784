//! Commands: `set` and the others, a line each.

use super::{Item, Marked, Parser};
use crate::commands::{COMMANDS, EDITOR_COMMANDS, MOVES};
use crate::lexer::{Lexeme, Span, Token};
use crate::tree::{TOP, Word};

/// Words before these usually name an entry, which keeps statements unknown to the schema readable in set form.
pub(super) const USUAL_KEYWORDS: &[&str] = &[
    "area",
    "filter",
    "from-zone",
    "group",
    "instance",
    "interface",
    "neighbor",
    "pool",
    "policy",
    "policy-statement",
    "prefix-list",
    "rule",
    "rule-set",
    "term",
    "unit",
    "user",
    "zone",
];

impl Parser<'_> {
    /// One line of `set` form.
    pub fn command(&mut self) {
        let Some(Lexeme { token: Token::Word { text: verb, .. }, span: start, .. }) = self.next() else {
            return;
        };
        let items = self.command_items(start.line);
        self.one_command(&verb, items, start);
    }

    pub(super) fn one_command(&mut self, verb: &str, items: Vec<Item>, start: Span) {
        if MOVES.contains(&verb) {
            return self.go(verb, items, start);
        }
        if EDITOR_COMMANDS.contains(&verb) {
            return self.editor_command(verb, items, start);
        }
        let (is_bare, items) = (items.is_empty(), self.below_base(start, items));
        match verb {
            "set" => {
                self.tree.replaces = true;
                self.insert(TOP, items, &Marked::default(), false);
                self.tree.replaces = false;
            }
            "insert" => self.reorder(items, start),
            "delete" if is_bare => self.delete_all(&items, start),
            verb if COMMANDS.contains(&verb) => self.change(verb, items),
            "protect" | "unprotect" if self.manner.foreign => {}
            verb => {
                let (known, moves) = (COMMANDS.join(", "), MOVES.join(", "));
                let help = format!("commands are: {known}, {}, {moves}", EDITOR_COMMANDS.join(", "));
                self.error(start, format!("`{verb}` is not followed here"), &help);
            }
        }
    }

    fn command_items(&mut self, line: u32) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        while let Some(lexeme) = self.peek()
            && lexeme.span.line == line
        {
            let Some(Lexeme { token, span, .. }) = self.next() else { break };
            match token {
                Token::Word { text, .. } => items.push(Item::Word(Word { text, span, joined: false })),
                Token::ListOpen => {
                    let words = self.list(span, Some(line));
                    items.push(Item::List(words, span));
                }
                // A `;` from habit does no harm.
                Token::Semicolon => break,
                Token::Open | Token::Close | Token::ListClose => {
                    self.error(span, "a `set` line holds words and `[ lists ]` only", "");
                    self.skip_line(line);
                    return Vec::new();
                }
            }
        }
        join_usual_names(&mut items);
        items
    }

    pub fn skip_line(&mut self, line: u32) {
        while self.peek().is_some_and(|lexeme| lexeme.span.line == line) {
            self.next();
        }
    }

    /// `insert PATH before NAME` and `insert PATH after KEYWORD NAME`: changes the order of statements of one kind.
    fn reorder(&mut self, items: Vec<Item>, start: Span) {
        let preposition = |item: &Item| matches!(item, Item::Word(word) if matches!(word.text.as_str(), "before" | "after"));
        let split = [2, 3]
            .iter()
            .filter_map(|back| items.len().checked_sub(*back))
            .find(|at| preposition(&items[*at]));
        let Some(split) = split.filter(|split| *split > 0) else {
            return self.error(
                start,
                "`insert` does not say where to",
                "write `insert PATH before NAME` or `insert PATH after NAME`",
            );
        };
        let Some(moved) = self.existing(TOP, "insert", &items[..split]) else { return };
        let parent = self.tree.node(moved).parent;
        let mut anchor = &items[split + 1..];
        if let [Item::Word(keyword), name @ ..] = anchor
            && !name.is_empty()
            && keyword.text == self.tree.node(parent).word
        {
            anchor = name;
        }
        let [Item::Word(name)] = anchor else {
            let message = "`insert` moves a statement among those of its own kind".to_owned();
            return self.error(items[split].span(), message, "name one statement of the same block");
        };
        let Some(sibling) = self.tree.find(parent, &name.text) else {
            let message = format!("nothing to insert at: there is no `{}` here", name.text);
            return self.error(name.span, message, "it must be set further up");
        };
        let after = matches!(&items[split], Item::Word(word) if word.text == "after");
        self.tree.reorder(moved, sibling, after);
    }

    /// `delete`, `deactivate` and `activate` of a statement that exists, or of members of its list.
    fn change(&mut self, verb: &str, mut items: Vec<Item>) {
        if let Some(Item::List(words, _)) = items.pop_if(|item| matches!(item, Item::List(..))) {
            for word in words {
                let path: Vec<Item> =
                    items.iter().filter_map(Item::word).chain([word]).map(Item::Word).collect();
                self.change(verb, path);
            }
            return;
        }
        let Some(at) = self.existing(TOP, verb, &items) else { return };
        match verb {
            _ if at == TOP => {}
            "delete" => self.tree.remove(at),
            _ => self.tree.set_inactive(at, verb == "deactivate"),
        }
    }

    /// `delete` without words: everything below the base.
    fn delete_all(&mut self, base: &[Item], start: Span) {
        if base.is_empty() {
            let help = "name a statement; `load override` replaces all of them";
            return self.error(start, "`delete` alone would remove the whole configuration", help);
        }
        if let Some(at) = self.existing(TOP, "delete", base) {
            self.tree.clear(at);
        }
    }
}

/// Marks words of a set line that probably stand on their keyword's line.
fn join_usual_names(items: &mut [Item]) {
    let count = items.len();
    let mut after_keyword = false;
    for (index, item) in items.iter_mut().enumerate() {
        if let Item::Word(word) = item {
            word.joined = after_keyword || (index > 0 && index + 1 == count);
            after_keyword = USUAL_KEYWORDS.contains(&word.text.as_str());
        }
    }
}
