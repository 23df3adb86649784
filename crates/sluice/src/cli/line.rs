//! The line that is typed: completion by Tab and space, help by `?`, history.

use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{
    Cmd, ConditionalEventHandler, Config, Editor, Event, EventContext, EventHandler, KeyEvent, RepeatCount,
};

use super::grammar::Choice;

/// What may follow a line, and the part of its last word that is there.
pub type Choices = dyn Fn(&str) -> Result<(Vec<Choice>, String), String> + Send + Sync;

/// Why the editor handed the line back.
enum Pause {
    Entered,
    /// A text has ended. The editor's own end of file would forget what was typed ahead.
    Ended,
    /// To list what may follow.
    Listed(String, (String, String)),
}

type Shared = Arc<Mutex<Pause>>;

fn pause(shared: &Shared) -> MutexGuard<'_, Pause> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What somebody typed.
pub enum Typed {
    Line(String),
    /// Ctrl-C: the line is given up.
    Cancelled,
    /// Ctrl-D, or the terminal has gone.
    End,
}

pub struct Reader {
    editor: Editor<(), FileHistory>,
    pause: Shared,
    /// What is typed is no command.
    is_text: Arc<AtomicBool>,
    history: Option<PathBuf>,
}

impl Reader {
    pub fn new(choices: Arc<Choices>, listing: fn(&[Choice]) -> String) -> rustyline::Result<Self> {
        let config = Config::builder().auto_add_history(false).max_history_size(1000)?.build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        let pause: Shared = Arc::new(Mutex::new(Pause::Entered));
        let is_text = Arc::new(AtomicBool::new(false));
        let keys = [('\t', Key::Tab), (' ', Key::Space), ('?', Key::Help), ('\x04', Key::End)];
        for (key, what) in keys {
            let (choices, pause, is_text) = (choices.clone(), pause.clone(), is_text.clone());
            let handler = Handler { what, choices, pause, is_text, listing };
            editor.bind_sequence(KeyEvent::from(key), EventHandler::Conditional(Box::new(handler)));
        }
        let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".sluice_history"));
        if let Some(file) = &history {
            // there is none at first
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, pause, is_text, history })
    }

    /// Waits for a line of a text, or an answer: nothing is completed, listed or remembered. What was typed ahead counts.
    pub fn text(&mut self, prompt: &str) -> Typed {
        self.is_text.store(true, Ordering::Relaxed);
        *pause(&self.pause) = Pause::Entered;
        let line = self.editor.readline(prompt);
        self.is_text.store(false, Ordering::Relaxed);
        let paused = mem::replace(&mut *pause(&self.pause), Pause::Entered);
        match (line, paused) {
            (Ok(line), Pause::Entered) => Typed::Line(line),
            (Err(ReadlineError::Interrupted), _) => Typed::Cancelled,
            _ => Typed::End,
        }
    }

    /// Waits for a line.
    pub fn read(&mut self, prompt: &str) -> Typed {
        let mut begun = (String::new(), String::new());
        loop {
            *pause(&self.pause) = Pause::Entered;
            let line = self.editor.readline_with_initial(prompt, (&begun.0, &begun.1));
            let paused = mem::replace(&mut *pause(&self.pause), Pause::Entered);
            match (line, paused) {
                (Ok(_), Pause::Listed(list, rest)) => {
                    print!("{list}");
                    begun = rest;
                }
                (Ok(line), Pause::Entered | Pause::Ended) => {
                    self.remember(&line);
                    return Typed::Line(line);
                }
                (Err(ReadlineError::Interrupted), _) => return Typed::Cancelled,
                (Err(_), _) => return Typed::End,
            }
        }
    }

    /// A paste may have several lines.
    fn remember(&mut self, text: &str) {
        text.lines().for_each(|line| self.remember_line(line));
    }

    fn remember_line(&mut self, line: &str) {
        if line.trim().is_empty() || !self.editor.add_history_entry(line).unwrap_or(false) {
            return;
        }
        if let Some(file) = &self.history {
            // a read-only home keeps nothing
            let _ = self.editor.append_history(file);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Tab,
    Space,
    Help,
    End,
}

struct Handler {
    what: Key,
    choices: Arc<Choices>,
    pause: Shared,
    is_text: Arc<AtomicBool>,
    listing: fn(&[Choice]) -> String,
}

impl ConditionalEventHandler for Handler {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        if self.is_text.load(Ordering::Relaxed) {
            return self.in_text(context.line());
        }
        let (before, after) = context.line().split_at(context.pos());
        let is_quoted = before.matches('"').count() % 2 == 1;
        if is_quoted && self.what != Key::Tab || self.what == Key::End {
            return None;
        }
        let (choices, begun) = match (self.choices)(before) {
            Ok(found) => found,
            Err(_) if self.what == Key::Space => return None,
            Err(complaint) => return Some(self.list(complaint, before, after)),
        };
        match self.what {
            Key::End => None,
            Key::Help => Some(self.list((self.listing)(&choices), before, after)),
            Key::Space if begun.is_empty() => before.ends_with(' ').then_some(Cmd::Noop),
            Key::Space => keyword(&choices, &begun).map(|word| Cmd::Insert(1, ending(&word, &begun, after))),
            Key::Tab => match completed(&choices, &begun) {
                Completed::Whole(word) => Some(Cmd::Insert(1, ending(&word, &begun, after))),
                Completed::Longer(word) => Some(Cmd::Insert(1, word[begun.len()..].to_owned())),
                Completed::Open => Some(self.list((self.listing)(&choices), before, after)),
            },
        }
    }
}

impl Handler {
    /// Keys that a text has another use for.
    fn in_text(&self, line: &str) -> Option<Cmd> {
        match self.what {
            Key::Tab => Some(Cmd::Insert(1, "\t".to_owned())),
            Key::End if line.is_empty() => {
                *pause(&self.pause) = Pause::Ended;
                Some(Cmd::AcceptLine)
            }
            Key::Space | Key::Help | Key::End => None,
        }
    }

    fn list(&self, list: String, before: &str, after: &str) -> Cmd {
        *pause(&self.pause) = Pause::Listed(list, (before.to_owned(), after.to_owned()));
        Cmd::AcceptLine
    }
}

fn ending(word: &str, begun: &str, after: &str) -> String {
    let space = if after.starts_with(' ') { "" } else { " " };
    format!("{}{space}", &word[begun.len()..])
}

/// What a space makes of a begun word. A name is taken as it is typed.
fn keyword(choices: &[Choice], begun: &str) -> Option<String> {
    let Completed::Whole(word) = completed(choices, begun) else { return None };
    let is_name = choices.iter().any(|choice| choice.is_name && choice.word == word);
    (word != begun && !is_name).then_some(word)
}

#[derive(Debug, PartialEq, Eq)]
pub enum Completed {
    /// Nothing else is meant.
    Whole(String),
    /// What all that may be meant begin with.
    Longer(String),
    Open,
}

/// What a begun word may become.
pub fn completed(choices: &[Choice], begun: &str) -> Completed {
    let words: Vec<&str> = choices
        .iter()
        .filter(|choice| !choice.is_placeholder() && choice.word.starts_with(begun))
        .map(|choice| choice.word.as_str())
        .collect();
    let is_open = choices.iter().any(Choice::is_placeholder);
    match words[..] {
        // any other value may be meant, or the end
        _ if begun.is_empty() && is_open => Completed::Open,
        [] => Completed::Open,
        [one] => Completed::Whole(one.to_owned()),
        [first, ..] => {
            let common = words.iter().fold(first.len(), |length, word| {
                first.bytes().zip(word.bytes()).take(length).take_while(|(a, b)| a == b).count()
            });
            match common > begun.len() && first.is_char_boundary(common) {
                true => Completed::Longer(first[..common].to_owned()),
                false => Completed::Open,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_completes_keywords_alone() {
        let choices = [Choice::new("family", ""), Choice::name("10".to_owned(), String::new())];
        assert_eq!(keyword(&choices, "fam").as_deref(), Some("family"));
        assert_eq!((keyword(&choices, "family"), keyword(&choices, "1")), (None, None));
        assert_eq!(completed(&choices, "1"), Completed::Whole("10".to_owned()), "which Tab does");
    }

    #[test]
    fn words_are_completed_as_far_as_they_are_certain() {
        let choices = ["<zone>", "trust", "trunk", "dmz"].map(|word| Choice::new(word, ""));
        assert_eq!(completed(&choices, "d"), Completed::Whole("dmz".to_owned()));
        assert_eq!(completed(&choices, "t"), Completed::Longer("tru".to_owned()));
        assert_eq!(completed(&choices, "tru"), Completed::Open);
        assert_eq!(completed(&choices, "x"), Completed::Open);
        assert_eq!(completed(&choices[..2], ""), Completed::Open, "any other name may be meant");
        assert_eq!(completed(&choices[1..2], ""), Completed::Whole("trust".to_owned()));
    }
}
