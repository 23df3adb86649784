//! A line as words: where each stands, what is quoted, where pipes divide it.

/// A word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Without its quotes.
    pub text: String,
    /// Byte of the line that it begins at.
    pub start: usize,
    pub is_quoted: bool,
}

/// A line up to its end or a pipe, and the parts behind pipes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    pub parts: Vec<Vec<Word>>,
    /// The last word has no end: nothing follows it, not even a space.
    pub is_open: bool,
    /// A quote that nobody closed begins here.
    pub unclosed: Option<usize>,
}

impl Line {
    pub fn read(text: &str) -> Self {
        let mut line = Self { parts: vec![vec![]], ..Self::default() };
        let mut word: Option<Word> = None;
        let mut quote = None;
        for (at, letter) in text.char_indices() {
            match letter {
                '"' if quote.is_some() => quote = None,
                '"' => {
                    quote = Some(at);
                    word.get_or_insert_with(|| Word::at(at)).is_quoted = true;
                }
                _ if quote.is_some() => word.get_or_insert_with(|| Word::at(at)).text.push(letter),
                '|' => {
                    line.end(&mut word);
                    line.parts.push(vec![]);
                }
                letter if letter.is_whitespace() => line.end(&mut word),
                letter => word.get_or_insert_with(|| Word::at(at)).text.push(letter),
            }
        }
        line.is_open = word.is_some();
        line.end(&mut word);
        line.unclosed = quote;
        line
    }

    fn end(&mut self, word: &mut Option<Word>) {
        self.parts.last_mut().unwrap_or(&mut vec![]).extend(word.take());
    }
}

impl Word {
    fn at(start: usize) -> Self {
        Self { text: String::new(), start, is_quoted: false }
    }
}

/// As the language wants a word that it shall take for one.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/<>*?@%+,=~!&$^()'`".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// The commands of a text: lines, and what semicolons divide outside of quotes.
pub fn commands(text: &str) -> Vec<String> {
    let mut commands = vec![String::new()];
    let mut is_quoted = false;
    for letter in text.chars() {
        match letter {
            '\n' => {
                is_quoted = false;
                commands.push(String::new());
            }
            ';' if !is_quoted => commands.push(String::new()),
            letter => {
                is_quoted ^= letter == '"';
                if let Some(last) = commands.last_mut() {
                    last.push(letter);
                }
            }
        }
    }
    commands.retain(|command| !command.trim().is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &Line) -> Vec<Vec<&str>> {
        line.parts.iter().map(|part| part.iter().map(|word| word.text.as_str()).collect()).collect()
    }

    #[test]
    fn quotes_hold_words_and_pipes_together() {
        let line = Line::read("show log | match \"a | b\"  | count ");
        assert_eq!(texts(&line), [vec!["show", "log"], vec!["match", "a | b"], vec!["count"]]);
        assert!(!line.is_open && line.unclosed.is_none());
        assert_eq!(line.parts[1][1].start, 17);
        let line = Line::read("annotate system \"half");
        assert_eq!((line.unclosed, line.is_open), (Some(16), true));
        assert_eq!(texts(&Line::read("")), [Vec::<&str>::new()]);
    }

    #[test]
    fn commands_end_with_lines_and_semicolons() {
        assert_eq!(commands("a; b\n\nc \"d; e\"\n"), ["a", " b", "c \"d; e\""]);
    }

    #[test]
    fn words_are_quoted_where_the_language_wants_it() {
        assert_eq!(quoted("10.0.0.0/8"), "10.0.0.0/8");
        assert_eq!(quoted("two words"), "\"two words\"");
        assert_eq!(quoted(""), "\"\"");
        assert_eq!(quoted("[lan0-3]"), "\"[lan0-3]\"");
    }
}
