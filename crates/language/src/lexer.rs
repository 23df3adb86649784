//! Words, quotes and punctuation of Junos text, each with its place.

use std::sync::Arc;

use crate::error::{Location, Report};

/// Line and column of a word, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Span {
    pub line: u32,
    pub column: u32,
}

impl Span {
    pub fn in_file(self, file: &Arc<str>) -> Location {
        Location { file: file.clone(), line: self.line, column: self.column, applied: None }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word; quoted words lose any special meaning (`inactive:`, `set`).
    Word {
        text: String,
        quoted: bool,
    },
    Open,
    Close,
    ListOpen,
    ListClose,
    Semicolon,
}

#[derive(Debug, Clone)]
pub(crate) struct Lexeme {
    pub token: Token,
    pub span: Span,
    /// Comments on lines of their own before it, as they were written.
    pub comment: Option<Box<str>>,
    /// Comments behind the lexeme before it, on the same line.
    pub behind: Option<Box<str>>,
}

struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::CharIndices<'a>>,
    text: &'a str,
    at: Span,
}

/// Cuts `text` into lexemes. Unterminated quotes and comments are reported and end at the line or text end.
pub(crate) fn lex(text: &str, file: &Arc<str>, report: &mut Report) -> Vec<Lexeme> {
    // what some editors put in front of UTF-8
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lexer = Lexer { rest: text.char_indices().peekable(), text, at: Span { line: 1, column: 1 } };
    let mut lexemes: Vec<Lexeme> = Vec::new();
    let (mut comment, mut behind): (Option<String>, Option<String>) = (None, None);
    while let Some(&(start, c)) = lexer.rest.peek() {
        let span = lexer.at;
        let token = match c {
            '{' => lexer.single(Token::Open),
            '}' => lexer.single(Token::Close),
            '[' => lexer.single(Token::ListOpen),
            ']' => lexer.single(Token::ListClose),
            ';' => lexer.single(Token::Semicolon),
            '"' => match lexer.quoted() {
                Ok(token) => token,
                Err(token) => {
                    report.error_help(
                        &span.in_file(file),
                        "this quote is not closed on its line",
                        "add the closing `\"`",
                    );
                    token
                }
            },
            c if is_space(c) => {
                lexer.bump();
                continue;
            }
            '#' => {
                lexer.skip_line();
                let is_behind = lexemes.last().is_some_and(|last| last.span.line == span.line);
                add_comment(if is_behind { &mut behind } else { &mut comment }, lexer.since(start));
                continue;
            }
            '/' if text[start..].starts_with("/*") => {
                if !lexer.skip_comment() {
                    report.error_help(&span.in_file(file), "this comment is not closed", "add `*/`");
                }
                let is_behind = lexemes.last().is_some_and(|last| last.span.line == span.line);
                add_comment(if is_behind { &mut behind } else { &mut comment }, lexer.since(start));
                continue;
            }
            _ => lexer.word(start),
        };
        let (comment, behind) = (comment.take().map(Into::into), behind.take().map(Into::into));
        lexemes.push(Lexeme { token, span, comment, behind });
    }
    lexemes
}

/// `##` begins what the printer itself has to say.
fn add_comment(comments: &mut Option<String>, text: &str) {
    if text.starts_with("##") {
        return;
    }
    let comments = comments.get_or_insert_default();
    if !comments.is_empty() {
        comments.push('\n');
    }
    comments.push_str(text.trim_end());
}

impl<'t> Lexer<'t> {
    fn bump(&mut self) -> Option<char> {
        let (_, c) = self.rest.next()?;
        if c == '\n' {
            self.at = Span { line: self.at.line + 1, column: 1 };
        } else {
            self.at.column += 1;
        }
        Some(c)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().map(|&(_, c)| c)
    }

    /// The text from `start` to where it is read.
    fn since(&mut self, start: usize) -> &'t str {
        let end = self.rest.peek().map_or(self.text.len(), |&(index, _)| index);
        &self.text[start..end]
    }

    fn single(&mut self, token: Token) -> Token {
        self.bump();
        token
    }

    fn word(&mut self, start: usize) -> Token {
        while let Some(&(index, c)) = self.rest.peek() {
            let enclosed = enclosed(&self.text[index..]);
            if enclosed == 0 && (is_space(c) || is_delimiter(c)) {
                break;
            }
            for _ in 0..enclosed.max(1) {
                self.bump();
            }
        }
        let end = self.rest.peek().map_or(self.text.len(), |&(index, _)| index);
        Token::Word { text: self.text[start..end].to_owned(), quoted: false }
    }

    /// `\"` and `\\` are the only escapes; any other backslash stands for itself. A line that ends inside of quotes which
    /// are closed further down becomes `\n`, as Junos shows it.
    fn quoted(&mut self) -> Result<Token, Token> {
        let several_lines = self.rest.peek().is_some_and(|&(at, _)| closes_later(&self.text[at + 1..]));
        self.bump();
        let mut text = String::new();
        loop {
            match self.peek() {
                Some('\n') if several_lines => {
                    self.bump();
                    text.truncate(text.trim_end_matches('\r').len());
                    text.push_str("\\n");
                }
                None | Some('\n') => return Err(Token::Word { text, quoted: true }),
                Some('"') => {
                    self.bump();
                    return Ok(Token::Word { text, quoted: true });
                }
                Some('\\') => {
                    self.bump();
                    match self.peek() {
                        Some(c @ ('"' | '\\')) => {
                            self.bump();
                            text.push(c);
                        }
                        _ => text.push('\\'),
                    }
                }
                Some(c) => {
                    self.bump();
                    text.push(c);
                }
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.bump();
        }
    }

    /// False when the text ends first.
    fn skip_comment(&mut self) -> bool {
        self.bump();
        self.bump();
        while let Some(c) = self.bump() {
            if c == '*' && self.peek() == Some('/') {
                self.bump();
                return true;
            }
        }
        false
    }
}

/// Characters of `${...}`, and of `<[...]...>` at the start of a pattern, that stand in a word though they are punctuation.
fn enclosed(rest: &str) -> usize {
    let close = match rest.as_bytes() {
        [b'$', b'{', ..] => '}',
        [b'<', b'[', ..] => '>',
        _ => return 0,
    };
    let inside = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | ';' | '}' | '>');
    let length = 2 + rest[2..].chars().take_while(|c| inside(*c)).count();
    if rest[length..].starts_with(close) { length + 1 } else { 0 }
}

/// Lines that a quoted text may go on for, so that a forgotten quote is told of where it stands.
const MAX_QUOTED_LINES: usize = 200;

/// The quote is closed on a later line, and behind it a statement goes on or ends.
fn closes_later(text: &str) -> bool {
    let mut lines = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => {
                let next = text[at + 1..].chars().next();
                return lines > 0 && next.is_none_or(|c| is_space(c) || matches!(c, ';' | '{' | '}' | ']'));
            }
            '\n' => lines += 1,
            _ => {}
        }
        if lines > MAX_QUOTED_LINES {
            return false;
        }
        escaped = c == '\\' && !escaped;
    }
    false
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{b}' | '\u{c}')
}

fn is_delimiter(c: char) -> bool {
    matches!(c, '{' | '}' | '[' | ']' | ';' | '"')
}

/// Writes a word so that the lexer reads the same text back.
pub(crate) fn write_word(out: &mut String, word: &str, force_quotes: bool) {
    let plain = !word.is_empty()
        && !word.chars().any(|c| is_space(c) || is_delimiter(c))
        && !word.starts_with('#')
        && !word.starts_with("/*");
    if plain && !force_quotes {
        out.push_str(word);
        return;
    }
    out.push('"');
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        // A backslash before an ordinary character needs no escape, so regular expressions stay readable.
        if c == '"' || (c == '\\' && matches!(chars.peek(), None | Some('"' | '\\'))) {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> (Vec<String>, bool) {
        let mut report = Report::default();
        let lexemes = lex(text, &"t".into(), &mut report);
        let words = lexemes
            .into_iter()
            .map(|lexeme| match lexeme.token {
                Token::Word { text, .. } => text,
                other => format!("{other:?}"),
            })
            .collect();
        (words, report.is_empty())
    }

    #[test]
    fn comments_end_where_they_should() {
        assert_eq!(words("a # b { \n/* c ; \n */ d;").0, ["a", "d", "Semicolon"]);
        assert_eq!(words("10.0.0.0/8 a#b").0, ["10.0.0.0/8", "a#b"]);
        assert!(!words("/* open").1);
    }

    #[test]
    fn quotes_keep_backslashes_of_regular_expressions() {
        assert_eq!(words(r#""a \"b\" \. \\" c"#).0, [r#"a "b" \. \"#, "c"]);
        assert!(!words("\"open\nnext").1);
    }

    #[test]
    fn words_may_enclose_punctuation() {
        assert_eq!(words("a ${node};").0, ["a", "${node}", "Semicolon"]);
        assert_eq!(words("<[gx]e-*> {").0, ["<[gx]e-*>", "Open"]);
        assert_eq!(words("${a b}").0, ["$", "Open", "a", "b", "Close"]);
    }

    #[test]
    fn quotes_may_go_on_for_lines() {
        assert_eq!(words("a \"b\r\nc\";").0, ["a", "b\\nc", "Semicolon"]);
        assert!(!words("a \"b;\nc \"d\";").1);
    }

    #[test]
    fn written_words_read_back() {
        for word in ["", "a b", "\\", "\\\\", "\\\"", "a\\.b c", "#x", "/*", "é", "a\\\\b c", "x;\\"] {
            let mut out = String::new();
            write_word(&mut out, word, false);
            assert_eq!(words(&out), (vec![word.to_owned()], true), "{out}");
        }
    }

    #[test]
    fn columns_count_characters() {
        let lexemes = lex("éé b\n c", &"t".into(), &mut Report::default());
        let spans: Vec<_> = lexemes.iter().map(|lexeme| (lexeme.span.line, lexeme.span.column)).collect();
        assert_eq!(spans, [(1, 1), (1, 4), (2, 2)]);
    }
}
