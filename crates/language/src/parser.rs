//! Reads hierarchical text and `set` commands into a tree, and goes on after errors.

use crate::error::{Errors, Report};
use crate::lexer::{Lexeme, Span, Token, lex};
use crate::schema::{Body, Cursor};
use crate::tree::{MAX_DEPTH, NodeId, TOP, Tree, Word};

/// Larger texts are refused before they are read.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// Blocks inside blocks; the bound keeps the recursion shallow.
const MAX_NESTING: usize = MAX_DEPTH;

/// Commands of `set` form that are understood.
pub(crate) const COMMANDS: &[&str] = &["set", "delete", "deactivate", "activate", "insert"];
/// Commands of the Junos editor that make no sense in a file.
pub(crate) const EDITOR_COMMANDS: &[&str] =
    &["annotate", "copy", "edit", "protect", "rename", "replace", "top", "unprotect", "up", "wildcard"];
/// Marks in front of a hierarchical statement.
pub(crate) const MARKS: &[&str] = &["inactive:", "active:", "protect:", "replace:", "delete:"];

/// Words before these usually name an entry, which keeps statements unknown to the schema readable in set form.
const USUAL_KEYWORDS: &[&str] = &[
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

/// One piece of a statement's header.
enum Item {
    Word(Word),
    List(Vec<Word>, Span),
}

struct Parser<'a> {
    tree: &'a mut Tree,
    report: &'a mut Report,
    lexemes: std::vec::IntoIter<Lexeme>,
    /// Where the last lexeme stood.
    last: Span,
}

impl Tree {
    /// Merges another text into this tree, as if it stood behind what was read before. On error the tree holds what
    /// could be understood.
    pub fn read(&mut self, text: &str, file: &str) -> Result<(), Errors> {
        let mut report = Report::default();
        self.begin_file(file);
        read(self, text, &mut report);
        report.finish(())
    }
}

fn read(tree: &mut Tree, text: &str, report: &mut Report) {
    let file = tree.file().clone();
    if text.len() > MAX_TEXT_BYTES {
        let at = Span { line: 1, column: 1 }.in_file(&file);
        report.error(&at, format!("the text is larger than {} MiB", MAX_TEXT_BYTES >> 20));
        return;
    }
    let lexemes = lex(text, &file, report).into_iter();
    let mut parser = Parser { tree, report, lexemes, last: Span { line: 1, column: 1 } };
    parser.block(TOP, None, 0);
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Lexeme> {
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

    fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
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
            if self.report.is_full() {
                return;
            }
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
                Token::Word { .. } | Token::ListOpen => self.statement(context, nesting),
            }
        }
    }

    /// `set` and the like count as commands only with more words on their line.
    fn at_command(&self) -> bool {
        let (Some(first), Some(second)) = (self.peek(), self.peek_second()) else { return false };
        let Token::Word { text, quoted: false } = &first.token else { return false };
        (COMMANDS.contains(&text.as_str()) || EDITOR_COMMANDS.contains(&text.as_str()))
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
        let inactive = self.marks();
        let items = self.header();
        let Some(start) = items.first().map(Item::span) else { return };
        let end = self.peek().map(|lexeme| lexeme.token.clone());
        let opens = end == Some(Token::Open);
        let target = self.insert(context, items, inactive, opens);
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

    /// `inactive:` in front of a statement; other marks belong to `load replace` and are refused.
    fn marks(&mut self) -> bool {
        let mut inactive = false;
        while let Some(Lexeme { token: Token::Word { text, quoted: false }, span }) = self.peek() {
            let span = *span;
            match text.as_str() {
                "inactive:" => inactive = true,
                "active:" => inactive = false,
                mark if MARKS.contains(&mark) => {
                    let message = format!("`{mark}` is not supported");
                    self.error(span, message, "remove it");
                }
                _ => break,
            }
            self.next();
        }
        inactive
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
                    if words.is_empty() {
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

    /// One line of `set` form.
    fn command(&mut self) {
        let Some(Lexeme { token: Token::Word { text: verb, .. }, span: start }) = self.next() else { return };
        let items = self.command_items(start.line);
        match verb.as_str() {
            "set" => {
                self.tree.replaces = true;
                self.insert(TOP, items, false, false);
                self.tree.replaces = false;
            }
            "insert" => self.reorder(items, start),
            verb if COMMANDS.contains(&verb) => self.change(verb, items),
            verb => {
                let message = format!("`{verb}` is a command of the editor and has no place in a file");
                self.error(
                    start,
                    message,
                    "write `set`, `delete`, `deactivate`, `activate` or `insert` with the whole path",
                );
            }
        }
    }

    fn command_items(&mut self, line: u32) -> Vec<Item> {
        let mut items: Vec<Item> = Vec::new();
        while let Some(lexeme) = self.peek()
            && lexeme.span.line == line
        {
            let Some(Lexeme { token, span }) = self.next() else { break };
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

    fn skip_line(&mut self, line: u32) {
        while self.peek().is_some_and(|lexeme| lexeme.span.line == line) {
            self.next();
        }
    }

    /// The statement that words lead to.
    fn existing(&mut self, verb: &str, items: &[Item]) -> Option<NodeId> {
        let mut at = TOP;
        for item in items {
            let Item::Word(word) = item else {
                let message = format!("`{verb}` takes one statement at a time");
                self.error(item.span(), message, "write one line for each");
                return None;
            };
            let Some(child) = self.tree.find(at, &word.text) else {
                let message = format!("nothing to {verb}: there is no `{}` here", word.text);
                self.error(word.span, message, "it must be set further up");
                return None;
            };
            at = child;
        }
        Some(at)
    }

    /// `insert PATH before NAME` and `insert PATH after KEYWORD NAME`: changes the order of statements of one kind.
    fn reorder(&mut self, items: Vec<Item>, start: Span) {
        let place = |item: &Item| matches!(item, Item::Word(word) if matches!(word.text.as_str(), "before" | "after"));
        let split =
            [2, 3].iter().filter_map(|back| items.len().checked_sub(*back)).find(|at| place(&items[*at]));
        let Some(split) = split.filter(|split| *split > 0) else {
            return self.error(
                start,
                "`insert` does not say where to",
                "write `insert PATH before NAME` or `insert PATH after NAME`",
            );
        };
        let Some(moved) = self.existing("insert", &items[..split]) else { return };
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

    /// `delete`, `deactivate` and `activate` of a statement that exists.
    fn change(&mut self, verb: &str, items: Vec<Item>) {
        let Some(at) = self.existing(verb, &items) else { return };
        match verb {
            _ if at == TOP => {}
            "delete" => self.tree.remove(at),
            _ => self.tree.set_inactive(at, verb == "deactivate"),
        }
    }

    /// Walks a header into the tree and returns the node a block would continue at.
    fn insert(&mut self, context: NodeId, items: Vec<Item>, inactive: bool, opens: bool) -> Option<NodeId> {
        let mut walk = Walk::new(self, context);
        for item in items {
            match item {
                Item::Word(word) => walk.word(&word)?,
                Item::List(words, span) => walk.list(&words, span, inactive)?,
            }
        }
        let Walk { at, statement, listed, .. } = walk;
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
    fn span(&self) -> Span {
        match self {
            Item::Word(word) => word.span,
            Item::List(_, span) => *span,
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

/// A header on its way into the tree.
struct Walk<'p, 'a> {
    parser: &'p mut Parser<'a>,
    at: NodeId,
    /// The block to go on in after a complete statement, for `protocol tcp destination-port 80;`.
    enclosing: Option<NodeId>,
    /// The first entry or leaf of the header: what `inactive:` speaks of.
    statement: Option<NodeId>,
    /// Ended in a list.
    listed: bool,
    line: u32,
}

impl<'p, 'a> Walk<'p, 'a> {
    fn new(parser: &'p mut Parser<'a>, context: NodeId) -> Self {
        let block = matches!(parser.tree.node(context).cursor, Cursor::Block(_));
        Walk {
            parser,
            at: context,
            enclosing: block.then_some(context),
            statement: None,
            listed: false,
            line: 0,
        }
    }

    fn word(&mut self, word: &Word) -> Option<()> {
        self.resume(word)?;
        self.line = word.span.line;
        self.at = self.step(self.at, word)?;
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
        let done = self.listed || matches!(self.parser.tree.node(self.at).cursor, Cursor::Done);
        if !done {
            return Some(());
        }
        self.listed = false;
        let known =
            self.enclosing.filter(|&block| self.parser.tree.node(block).cursor.has_keyword(&word.text));
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

    fn list(&mut self, words: &[Word], span: Span, inactive: bool) -> Option<()> {
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
        let child = self.parser.tree.child(at, word);
        if child.is_none() {
            let message = format!("statements are at most {MAX_DEPTH} words deep");
            self.parser.error(word.span, message, "");
        }
        child
    }
}
