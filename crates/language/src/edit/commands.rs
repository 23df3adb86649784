//! Commands of configuration mode that change what was written before.

use crate::commands::{COMMANDS, EDITOR_COMMANDS, MOVES, is_command};
use crate::lexer::{Span, Token};
use crate::parser::{Item, Parser};
use crate::tree::{TOP, Word};

const RENAME: &str = "write `rename STATEMENT to STATEMENT`";
const COPY: &str = "write `copy STATEMENT to STATEMENT`";
const ANNOTATE: &str = "write `annotate STATEMENT \"comment\"`; an empty comment removes the one there";
const REPLACE: &str = "write `replace pattern REGEX with TEXT`, perhaps with `upto COUNT` behind it";

impl Parser<'_> {
    /// One command a line, and nothing else.
    pub fn commands(&mut self) {
        while let Some(lexeme) = self.peek() {
            let span = lexeme.span;
            let verb = match &lexeme.token {
                Token::Word { text, quoted: false } => text.clone(),
                token => format!("{token:?}"),
            };
            if is_command(&verb) {
                self.command();
            } else {
                let message = format!("`{verb}` is no command of configuration mode");
                self.error(
                    span,
                    message,
                    &format!("commands are: {}", [COMMANDS, EDITOR_COMMANDS, MOVES].concat().join(", ")),
                );
                self.skip_line(span.line);
            }
        }
    }

    pub fn editor_command(&mut self, verb: &str, items: Vec<Item>, start: Span) {
        let mut words = Vec::new();
        for item in &items {
            match item.word() {
                Some(word) => words.push(word),
                None => {
                    let message = format!("`{verb}` takes one statement at a time");
                    return self.error(item.span(), message, "write one line for each");
                }
            }
        }
        match verb {
            "rename" => self.rename(&words, start, true, RENAME),
            "copy" => self.rename(&words, start, false, COPY),
            "annotate" => self.annotate(&words, start),
            _ => self.replace_pattern(&words, start),
        }
    }

    /// `A to B`: B holds what A held, and stands in its place or, copied, behind the others.
    fn rename(&mut self, words: &[Word], start: Span, moves: bool, usage: &str) {
        let verb = if moves { "rename" } else { "copy" };
        let split = words.iter().rposition(|word| word.text == "to");
        let Some((from, to)) =
            split.map(|at| (&words[..at], &words[at + 1..])).filter(|(a, b)| !a.is_empty() && !b.is_empty())
        else {
            let message = format!("`{verb}` does not say what and to what");
            return self.error(start, message, usage);
        };
        let path = self.below_base(start, from.iter().cloned().map(Item::Word).collect());
        let Some(found) = self.existing(TOP, verb, &path) else { return };
        if let Err((message, help)) = self.tree.rename(found, to, moves) {
            self.error(to[0].span, message, &help);
        }
    }

    fn annotate(&mut self, words: &[Word], start: Span) {
        let Some((comment, path)) = words.split_last().filter(|(_, path)| !path.is_empty()) else {
            return self.error(start, "`annotate` does not say what with what", ANNOTATE);
        };
        let path = self.below_base(start, path.iter().cloned().map(Item::Word).collect());
        if self.is_lost_comment(&path) {
            return;
        }
        let Some(found) = self.existing(TOP, "annotate", &path) else { return };
        if comment.text.contains("*/") {
            return self.error(comment.span, "a comment cannot hold `*/`", "write it otherwise");
        }
        let text = match comment.text.trim() {
            "" => String::new(),
            text => format!("/* {text} */"),
        };
        self.tree.set_comment(found, &text);
    }

    fn replace_pattern(&mut self, words: &[Word], start: Span) {
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        let (pattern, with, most) = match texts.as_slice() {
            ["pattern", pattern, "with", with] => (*pattern, *with, None),
            ["pattern", pattern, "with", with, "upto", count] => match count.parse() {
                Ok(count) => (*pattern, *with, Some(count)),
                Err(_) => return self.error(words[5].span, format!("`{count}` is no number"), REPLACE),
            },
            _ => return self.error(start, "`replace` does not say what with what", REPLACE),
        };
        let base = self.below_base(start, Vec::new());
        let Some(at) = self.existing(TOP, "replace", &base) else { return };
        match self.tree.replace_pattern(at, pattern, with, most) {
            Ok(0) => self.warn(words[1].span, format!("no name or value matches `{pattern}`"), ""),
            Ok(_) => {}
            Err((message, help)) => self.error(words[1].span, message, &help),
        }
    }
}
