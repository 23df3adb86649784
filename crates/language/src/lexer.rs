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
    let mut lexemes = Vec::new();
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
                continue;
            }
            '/' if text[start..].starts_with("/*") => {
                if !lexer.skip_comment() {
                    report.error_help(&span.in_file(file), "this comment is not closed", "add `*/`");
                }
                continue;
            }
            _ => lexer.word(start),
        };
        lexemes.push(Lexeme { token, span });
    }
    lexemes
}

impl Lexer<'_> {
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

    fn single(&mut self, token: Token) -> Token {
        self.bump();
        token
    }

    fn word(&mut self, start: usize) -> Token {
        while self.peek().is_some_and(|c| !is_space(c) && !is_delimiter(c)) {
            self.bump();
        }
        let end = self.rest.peek().map_or(self.text.len(), |&(index, _)| index);
        Token::Word { text: self.text[start..end].to_owned(), quoted: false }
    }

    /// `\"` and `\\` are the only escapes; any other backslash stands for itself.
    fn quoted(&mut self) -> Result<Token, Token> {
        self.bump();
        let mut text = String::new();
        loop {
            match self.peek() {
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
