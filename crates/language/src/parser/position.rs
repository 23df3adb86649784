//! Where commands are done: `edit PATH`, `up`, `top` and `exit` move as they do in configuration mode.

use super::command::USUAL_KEYWORDS;
use super::{Item, Parser};
use crate::check::check;
use crate::commands::MOVES;
use crate::lexer::{Span, Token};
use crate::schema::{Cursor, ROOT};
use crate::tree::{MAX_DEPTH, TOP, Tree, Word};

const EDIT: &str = "write `edit` and the words of a statement that holds others, as `edit security zones`";
const UP: &str = "write `up`, or `up` and a number of levels from 1 to 64";
const ALONE: &str = "write it alone on its line";

/// A place below the base, and those that `exit` goes back to.
#[derive(Default)]
pub(super) struct Position {
    path: Vec<Word>,
    before: Vec<Vec<Word>>,
    /// The line that led here.
    line: u32,
}

impl Position {
    pub(super) fn path(&self) -> &[Word] {
        &self.path
    }

    fn words(&self) -> impl Iterator<Item = &String> {
        self.path.iter().map(|word| &word.text)
    }
}

impl Parser<'_> {
    /// `top` and the like may stand alone on a line.
    pub(super) fn at_move(&self) -> bool {
        let Some(first) = self.peek() else { return false };
        let Token::Word { text, quoted: false } = &first.token else { return false };
        let is_alone = self.peek_second().is_none_or(|second| second.span.line > first.span.line);
        is_alone && (MOVES.contains(&text.as_str()) || text == "delete" && !self.position.path.is_empty())
    }

    pub(super) fn go(&mut self, verb: &str, items: Vec<Item>, start: Span) {
        let mut words = Vec::new();
        for item in &items {
            let Some(word) = item.word() else {
                return self.error(item.span(), format!("`{verb}` takes no list"), "write words only");
            };
            words.push(word);
        }
        self.position.line = start.line;
        match verb {
            "edit" => self.edit_at(&words, start),
            "up" => self.up(&words, start),
            "top" => self.top(items, start),
            verb => self.exit(verb, &words, start),
        }
    }

    fn edit_at(&mut self, words: &[Word], start: Span) {
        if words.is_empty() {
            return self.error(start, "`edit` does not say where to", EDIT);
        }
        let before = self.position.path.clone();
        self.judge(words, start);
        self.position.path.extend_from_slice(words);
        self.position.before.push(before);
    }

    /// Says what is wrong with a place, at its words.
    fn judge(&mut self, words: &[Word], start: Span) {
        let above: Vec<Word> = self.below_base(start, vec![]).iter().filter_map(Item::word).collect();
        if above.len() + words.len() > MAX_DEPTH {
            return self.error(start, format!("statements are at most {MAX_DEPTH} words deep"), "");
        }
        let mut cursor = Cursor::Block(&ROOT);
        let mut scratch = Tree::default();
        scratch.begin_file(self.tree.file());
        let mut at = TOP;
        for word in above.iter().chain(words) {
            // what Sluice does not do is judged where it is set
            if cursor.refuses(&word.text) || matches!(cursor, Cursor::Unknown) && self.manner.foreign {
                return;
            }
            cursor = cursor.step(&word.text);
            let Some(child) = scratch.child(at, word) else { return };
            at = child;
        }
        let last = words.last().map_or(start, |word| word.span);
        match cursor {
            Cursor::Unknown if self.manner.foreign => {}
            Cursor::Value(_) | Cursor::Done => {
                let path = scratch.path(at).join(" ");
                self.error(last, format!("`{path}` holds no statements, so `edit` cannot go there"), EDIT);
            }
            _ => check(&scratch, self.report),
        }
    }

    fn up(&mut self, words: &[Word], start: Span) {
        let levels = match words {
            [] => Some(1),
            [number] => number.text.parse().ok().filter(|levels| (1..=MAX_DEPTH).contains(levels)),
            _ => None,
        };
        let Some(levels) = levels else {
            return self.error(words.first().map_or(start, |word| word.span), "`up` takes a number", UP);
        };
        for _ in 0..levels {
            if self.position.path.is_empty() {
                let message = format!("`up {levels}` leads above the top");
                return self.error(start, message, "leave it out, or write `top`");
            }
            self.position.path.pop();
            while !self.position.path.is_empty() && !self.is_place() {
                self.position.path.pop();
            }
        }
    }

    /// Statements may stand here: it is no middle of a header.
    fn is_place(&self) -> bool {
        let words = self.manner.base.iter().chain(self.position.words());
        match words.fold(Cursor::Block(&ROOT), |cursor, word| cursor.step(word)) {
            Cursor::Block(_) => true,
            Cursor::Unknown => {
                self.position.path.last().is_none_or(|word| !USUAL_KEYWORDS.contains(&word.text.as_str()))
            }
            Cursor::Key(..) | Cursor::Value(_) | Cursor::Done => false,
        }
    }

    /// `top`, or a command behind it that is done there, after which all is as before.
    fn top(&mut self, mut items: Vec<Item>, start: Span) {
        let before = std::mem::take(&mut self.position.path);
        if items.is_empty() {
            return;
        }
        let Some(verb) = items.remove(0).word() else { return };
        if MOVES.contains(&verb.text.as_str()) && verb.text != "edit" {
            return self.error(verb.span, format!("`top` does not go with `{}`", verb.text), ALONE);
        }
        self.one_command(&verb.text, items, Span { line: start.line, ..verb.span });
        match verb.text.as_str() {
            "edit" => self.position.before.last_mut().into_iter().for_each(|last| *last = before.clone()),
            _ => self.position.path = before,
        }
    }

    /// Back to where the last `edit` came from; there is nothing to do for one that ends the text.
    fn exit(&mut self, verb: &str, words: &[Word], start: Span) {
        let leaves = match words {
            [] => verb == "quit",
            [word] if verb == "exit" && word.text == "configuration-mode" => true,
            [word, ..] => return self.error(word.span, format!("`{verb}` takes no words"), ALONE),
        };
        if let Some(before) = self.position.before.pop().filter(|_| !leaves) {
            self.position.path = before;
            return;
        }
        let is_exit =
            |token: &Token| matches!(token, Token::Word { text, .. } if text == "exit" || text == "quit");
        if !self.lexemes.as_slice().iter().all(|lexeme| is_exit(&lexeme.token)) {
            let message = format!("`{verb}` leaves configuration mode here, and more follows");
            self.error(start, message, "remove it, or write `top`");
        }
        self.position = Position::default();
    }

    /// Text with braces has its own places, and whoever mixes both may mean either.
    pub(super) fn no_place_for_braces(&mut self, span: Span) {
        if self.position.path.is_empty() {
            return;
        }
        let path = self.position.words().cloned().collect::<Vec<_>>().join(" ");
        let message = format!("this is no command, and line {} has gone to `{path}`", self.position.line);
        self.error(span, message, "write it as a command, as `set`, or write `top` before it");
        self.position = Position::default();
    }
}
