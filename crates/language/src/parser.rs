//! Reads hierarchical text and `set` commands into a tree, and goes on after errors.

mod command;
mod position;
mod walk;

use std::borrow::Cow;

use crate::commands::{MARKS, is_command};
use crate::error::{Error, Errors, Report};
use crate::lexer::{Lexeme, Span, Token, lex};
use crate::schema::Cursor;
use crate::stray::{Stray, take_out};
use crate::tree::{MAX_DEPTH, NodeId, TOP, Tree, Word};
use position::Position;
use walk::Walk;

/// Larger texts are refused before they are read.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// Blocks inside blocks; the bound keeps the recursion shallow.
const MAX_NESTING: usize = MAX_DEPTH;

/// What a text may hold beside statements, and where in the tree it belongs.
#[derive(Debug, Default)]
pub(crate) struct Manner<'a> {
    /// Words before those of each statement and command.
    pub base: &'a [String],
    pub marks: Marks,
    /// The text is what an editor was told: commands only, all of them.
    pub editor: bool,
    /// The text is a router's: what only its editor understands is passed over.
    pub foreign: bool,
}

/// What `replace:` and `delete:` in front of a hierarchical statement are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Marks {
    /// Followed, in a text that is read and not loaded over another.
    #[default]
    InFile,
    Refused,
    Ignored,
    Followed,
}

/// Marks that stand in front of a statement.
#[derive(Debug, Default)]
struct Marked {
    inactive: bool,
    replace: bool,
    delete: Option<Span>,
}

/// One piece of a statement's header.
pub(crate) enum Item {
    Word(Word),
    List(Vec<Word>, Span),
}

pub(crate) struct Parser<'a> {
    pub tree: &'a mut Tree,
    report: &'a mut Report,
    manner: &'a Manner<'a>,
    position: Position,
    /// What was passed over, and why.
    pub warnings: Vec<Error>,
    lexemes: std::vec::IntoIter<Lexeme>,
    /// Where the last lexeme stood.
    last: Span,
}

impl Tree {
    /// Merges another text into this tree, as if it stood behind what was read before. On error the tree holds what
    /// could be understood.
    pub fn read(&mut self, text: &str, file: &str) -> Result<(), Errors> {
        self.read_as(text, file, &Manner::default()).map(drop)
    }

    /// The same in another manner; says what was passed over.
    pub(crate) fn read_as(
        &mut self,
        text: &str,
        file: &str,
        manner: &Manner<'_>,
    ) -> Result<Vec<Error>, Errors> {
        let mut report = Report::default();
        self.begin_file(file);
        let (warnings, strays) = read(self, text, manner, &mut report);
        let at = self.file().clone();
        for stray in strays {
            let help = match stray.hides {
                true => "Sluice reads the text that `show configuration` prints, all of it",
                false => "remove it, or let `sluice import` take it out",
            };
            let message = format!("this line is {}, not a statement", stray.what);
            report.error_help(&Span { line: stray.line, column: stray.column }.in_file(&at), message, help);
        }
        report.finish(warnings)
    }

    /// The same for text of a router, whose stray lines are returned instead of refused.
    pub(crate) fn read_foreign(&mut self, text: &str, file: &str) -> (Vec<Stray>, Result<(), Errors>) {
        let mut report = Report::default();
        self.begin_file(file);
        let manner = Manner { foreign: true, ..Manner::default() };
        let (_, strays) = read(self, text, &manner, &mut report);
        (strays, report.finish(()))
    }
}

/// Returns what was passed over, and the lines that are no statements.
fn read(tree: &mut Tree, text: &str, manner: &Manner<'_>, report: &mut Report) -> (Vec<Error>, Vec<Stray>) {
    let file = tree.file().clone();
    let start = Span { line: 1, column: 1 };
    if text.len() > MAX_TEXT_BYTES {
        report.error(&start.in_file(&file), format!("the text is larger than {} MiB", MAX_TEXT_BYTES >> 20));
        return (vec![], vec![]);
    }
    // what an editor is told is nothing but commands
    let (text, strays) = if manner.editor { (Cow::Borrowed(text), vec![]) } else { take_out(text) };
    let lexemes = lex(&text, &file, report).into_iter();
    let position = Position::default();
    let mut parser = Parser { tree, report, manner, position, warnings: Vec::new(), lexemes, last: start };
    if manner.editor {
        parser.commands();
    } else if let Some(context) = parser.context() {
        parser.block(context, None, 0);
    }
    (parser.warnings, strays)
}

impl Parser<'_> {
    pub fn peek(&self) -> Option<&Lexeme> {
        self.lexemes.as_slice().first()
    }

    fn peek_second(&self) -> Option<&Lexeme> {
        self.lexemes.as_slice().get(1)
    }

    fn next(&mut self) -> Option<Lexeme> {
        let lexeme = self.lexemes.next()?;
        self.last = lexeme.span;
        Some(lexeme)
    }

    /// Where statements without a command belong; made when the text holds any.
    fn context(&mut self) -> Option<NodeId> {
        let first = self.peek()?.span;
        let items = self.below_base(first, Vec::new());
        self.insert(TOP, items, &Marked::default(), true)
    }

    /// Items behind the words of the position, and of the base, as if those stood at `span` too.
    pub fn below_base(&self, span: Span, items: Vec<Item>) -> Vec<Item> {
        let position = self.position.path().iter().cloned().map(Item::Word);
        let base = self.manner.base.iter();
        let base = base.map(|text| Item::Word(Word { text: text.clone(), span, joined: false }));
        base.chain(position).chain(items).collect()
    }

    /// What is not done, without keeping the rest from being done.
    pub fn warn(&mut self, span: Span, message: impl Into<String>, help: &str) {
        let help = (!help.is_empty()).then(|| help.to_owned());
        let location = span.in_file(self.tree.file());
        self.warnings.push(Error { location, message: message.into(), help });
    }

    pub fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
        let at = span.in_file(self.tree.file());
        match help {
            "" => self.report.error(&at, message),
            help => self.report.error_help(&at, message, help),
        }
    }

    /// Statements up to the closing brace, or to the end of the text at the top level.
    fn block(&mut self, context: NodeId, opened: Option<Span>, nesting: usize) {
        loop {
            let Some(lexeme) = self.peek() else {
                if let Some(span) = opened {
                    self.error(span, "this block is not closed", "add the missing `}`");
                }
                return;
            };
            let span = lexeme.span;
            match &lexeme.token {
                Token::Close => {
                    self.next();
                    if opened.is_some() {
                        return;
                    }
                    self.error(span, "this `}` closes nothing", "remove it");
                }
                Token::Semicolon => drop(self.next()),
                Token::ListClose => {
                    self.next();
                    self.error(span, "this `]` closes nothing", "remove it");
                }
                Token::Open => {
                    self.next();
                    self.error(span, "a block must have a name before its `{`", "");
                    self.skip_block();
                }
                Token::Word { .. } if opened.is_none() && self.at_command() => self.command(),
                Token::Word { .. } | Token::ListOpen => {
                    if opened.is_none() {
                        self.no_place_for_braces(span);
                    }
                    self.statement(context, nesting);
                }
            }
        }
    }

    /// `set` and the like count as commands only with more words on their line.
    fn at_command(&self) -> bool {
        if self.at_move() {
            return true;
        }
        let (Some(first), Some(second)) = (self.peek(), self.peek_second()) else { return false };
        let Token::Word { text, quoted: false } = &first.token else { return false };
        is_command(text)
            && matches!(second.token, Token::Word { .. } | Token::ListOpen)
            && second.span.line == first.span.line
    }

    /// Skips to behind the brace that closes the block just opened.
    fn skip_block(&mut self) {
        let mut depth = 1;
        while depth > 0
            && let Some(lexeme) = self.next()
        {
            match lexeme.token {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                _ => {}
            }
        }
    }

    fn statement(&mut self, context: NodeId, nesting: usize) {
        let mut comment = self.peek().and_then(|lexeme| lexeme.comment.clone());
        let marked = self.marks();
        let items = self.header();
        let Some(start) = items.first().map(Item::span) else { return };
        let end = self.peek().map(|lexeme| lexeme.token.clone());
        let opens = end == Some(Token::Open);
        if let Some(span) = marked.delete {
            return self.delete_marked(context, &items, span, opens);
        }
        let target = self.insert(context, items, &marked, opens);
        if let Some(behind) = self.lexemes.as_slice().get(1).and_then(|next| next.behind.as_deref()) {
            comment =
                Some(comment.map_or_else(|| behind.into(), |above| format!("{above}\n{behind}").into()));
        }
        if let (Some(target), Some(comment)) = (target, &comment) {
            self.tree.set_comment(target, comment);
        }
        match end {
            Some(Token::Semicolon) => drop(self.next()),
            Some(Token::Open) => {
                let span = self.next().map_or(start, |lexeme| lexeme.span);
                match target {
                    Some(_) if nesting >= MAX_NESTING => {
                        self.error(span, format!("blocks are nested more than {MAX_NESTING} deep"), "");
                        self.skip_block();
                    }
                    Some(target) => self.block(target, Some(span), nesting + 1),
                    None => self.skip_block(),
                }
            }
            _ => self.error(self.last, "the statement that ends here has no `;`", "add it"),
        }
    }

    /// `inactive:` and the like in front of a statement.
    fn marks(&mut self) -> Marked {
        let mut marked = Marked::default();
        while let Some(Lexeme { token: Token::Word { text, quoted: false }, span, .. }) = self.peek() {
            let span = *span;
            match (text.as_str(), &self.manner.marks) {
                ("inactive:", _) => marked.inactive = true,
                ("active:", _) => marked.inactive = false,
                ("replace:", Marks::Followed | Marks::InFile) => marked.replace = true,
                ("delete:", Marks::Followed | Marks::InFile | Marks::Ignored) => marked.delete = Some(span),
                ("replace:", Marks::Ignored) => {}
                ("protect:", _) if self.manner.foreign => {}
                (mark, _) if MARKS.contains(&mark) => {
                    let message = format!("`{mark}` is not supported");
                    self.error(span, message, "remove it");
                }
                _ => break,
            }
            self.next();
        }
        marked
    }

    /// `delete: STATEMENT;`, whatever stands in a block behind it.
    fn delete_marked(&mut self, context: NodeId, items: &[Item], span: Span, opens: bool) {
        if let Some(found) = self.existing(context, "delete", items) {
            if found == TOP {
                self.error(span, "`delete:` names no statement", "write the statement behind it");
            } else {
                self.tree.remove(found);
            }
        }
        if opens {
            self.next();
            self.skip_block();
        } else if self.peek().is_some_and(|lexeme| lexeme.token == Token::Semicolon) {
            self.next();
        }
    }

    /// Words and lists up to `;`, `{`, `}`, the end, or the line on which the next statement must begin.
    fn header(&mut self) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        while let Some(lexeme) = self.peek() {
            let span = lexeme.span;
            match &lexeme.token {
                Token::Word { text, .. } => {
                    items.push(Item::Word(Word { text: text.clone(), span, joined: !items.is_empty() }));
                    self.next();
                }
                Token::ListOpen => {
                    self.next();
                    let words = self.list(span, None);
                    items.push(Item::List(words, span));
                }
                Token::ListClose => {
                    self.next();
                    self.error(span, "this `]` closes nothing", "remove it");
                }
                Token::Semicolon | Token::Open | Token::Close => break,
            }
        }
        items
    }

    /// The words of a list whose `[` is read; ends with the `line` if one is given.
    fn list(&mut self, opened: Span, line: Option<u32>) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(lexeme) = self.peek() {
            if line.is_some_and(|line| lexeme.span.line != line) {
                break;
            }
            let span = lexeme.span;
            match &lexeme.token {
                Token::Word { text, .. } => words.push(Word { text: text.clone(), span, joined: true }),
                Token::ListClose => {
                    self.next();
                    if words.is_empty() && !self.manner.foreign {
                        self.error(opened, "this list is empty", "name its members between `[` and `]`");
                    }
                    return words;
                }
                Token::ListOpen => self.error(span, "a list cannot hold a list", ""),
                Token::Semicolon | Token::Open | Token::Close => break,
            }
            self.next();
        }
        self.error(opened, "this list is not closed", "add the missing `]`");
        words
    }

    /// The statement that words lead to from `context`.
    pub fn existing(&mut self, context: NodeId, verb: &str, items: &[Item]) -> Option<NodeId> {
        let mut at = context;
        for item in items {
            let Item::Word(word) = item else {
                let message = format!("`{verb}` takes one statement at a time");
                self.error(item.span(), message, "write one line for each");
                return None;
            };
            let Some(child) = self.tree.find(at, &word.text) else {
                let message = format!("nothing to {verb}: there is no `{}` here", word.text);
                if verb == "delete" && self.is_change() {
                    self.warn(word.span, message, "");
                } else if self.is_change() {
                    self.error(word.span, message, &self.tree.what_is_there(at));
                } else if verb == "delete" {
                    self.tree.warn(word.span, message, "correct the path, or remove the line");
                } else {
                    self.error(word.span, message, "it must be set further up");
                }
                return None;
            };
            at = child;
        }
        Some(at)
    }

    /// A comment on what a router does not print is of no use.
    pub fn is_lost_comment(&self, path: &[Item]) -> bool {
        let words = path.iter().filter_map(Item::word);
        let found = words.into_iter().try_fold(TOP, |at, word| self.tree.find(at, &word.text));
        self.manner.foreign && found.is_none()
    }

    /// What is read changes a tree that is there, instead of being one.
    fn is_change(&self) -> bool {
        self.manner.editor || self.manner.marks != Marks::InFile
    }

    /// Walks a header into the tree and returns the node a block would continue at.
    fn insert(&mut self, context: NodeId, items: Vec<Item>, marked: &Marked, opens: bool) -> Option<NodeId> {
        let inactive = marked.inactive;
        let mut walk = Walk::new(self, context, marked.replace);
        for item in items {
            match item {
                Item::Word(word) => walk.word(&word)?,
                Item::List(words, span) => walk.list(&words, span, inactive)?,
            }
        }
        let Walk { at, statement, listed, .. } = walk;
        if marked.replace && !listed && !matches!(self.tree.node(at).cursor, Cursor::Done) {
            self.tree.clear(at);
        }
        if marked.replace {
            self.tree.set_inactive(at, false);
        }
        if inactive && !listed {
            self.tree.set_inactive(statement.unwrap_or(at), true);
        }
        if opens && (listed || matches!(self.tree.node(at).cursor, Cursor::Done)) {
            let word = self.tree.node(at).word.clone();
            self.error(self.last, format!("`{word}` holds no block"), "end the statement with `;`");
            return None;
        }
        Some(at)
    }
}

impl Item {
    pub fn span(&self) -> Span {
        match self {
            Item::Word(word) => word.span,
            Item::List(_, span) => *span,
        }
    }

    pub fn word(&self) -> Option<Word> {
        match self {
            Item::Word(word) => Some(word.clone()),
            Item::List(..) => None,
        }
    }
}
