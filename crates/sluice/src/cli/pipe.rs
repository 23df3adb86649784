//! What comes behind `|`: each part takes lines and hands on what it likes of them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use regex::{Regex, RegexBuilder};
use sluice_control::operations::Role;

use super::grammar::{Argument, Command, Given, Shape, Value, alone, named, rest};

/// Takes lines, without their ends.
pub trait Sink {
    /// False: nobody wants more.
    fn line(&mut self, line: &str) -> io::Result<bool>;

    /// Nothing comes any more.
    fn finish(&mut self) -> io::Result<()>;

    /// What was written is to be seen.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a part of a pipe makes of the sink behind it.
pub type Filter = fn(&Given, Box<dyn Sink>) -> Result<Box<dyn Sink>, String>;

/// What a part of a pipe does.
pub enum Part {
    /// With the lines.
    Filter(Filter),
    /// With the form in which the command answers.
    Form(fn(&Given) -> Form),
    /// It is refused, and this is why.
    Refused(&'static str),
    NoMore,
}

/// How a command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text,
    Json,
    Set,
    Inheritance,
    /// What has changed since an earlier configuration.
    Compare(Option<u32>),
}

const PATTERN: &[Argument] =
    &[alone("pattern", "Regular expression, whatever the case of letters", Value::Any("pattern")).needed()];

macro_rules! part {
    ($words:literal, $help:literal, $arguments:expr, $part:expr) => {
        Command { words: $words, help: $help, arguments: $arguments, class: Role::Anyone, action: $part }
    };
}

pub static PARTS: &[Command<Part>] = &[
    part!(
        "compare",
        "Show what differs from an earlier configuration",
        &[named("rollback", "Number of the earlier configuration", Value::Number(0, 50))],
        Part::Form(|given| Form::Compare(given.number("rollback")))
    ),
    part!("count", "Count lines", &[], Part::Filter(|_, next| Ok(Box::new(Count { next, lines: 0 })))),
    part!("display inheritance", "Show inherited statements and the group each comes from", &[], {
        Part::Form(|_| Form::Inheritance)
    }),
    part!("display json", "Show data in JSON", &[], Part::Form(|_| Form::Json)),
    part!("display set", "Show the configuration as set commands", &[], Part::Form(|_| Form::Set)),
    part!("display xml", "Not supported", &[], {
        Part::Refused("XML is not supported; `display json` has the same data")
    }),
    part!("except", "Show only lines that do not match a pattern", PATTERN, {
        Part::Filter(|given, next| Ok(Box::new(Match { pattern: pattern(given)?, wanted: false, next })))
    }),
    part!("find", "Begin with the first line that matches a pattern", PATTERN, {
        Part::Filter(|given, next| Ok(Box::new(Find { pattern: pattern(given)?, found: false, next })))
    }),
    part!("last", "Show only the last lines", &[alone("lines", "How many", Value::Number(1, 1_000_000))], {
        Part::Filter(|given, next| {
            let most = given.number("lines").unwrap_or(20);
            Ok(Box::new(Last { most, kept: VecDeque::new(), next }))
        })
    }),
    part!("match", "Show only lines that match a pattern", PATTERN, {
        Part::Filter(|given, next| Ok(Box::new(Match { pattern: pattern(given)?, wanted: true, next })))
    }),
    part!("no-more", "Do not stop when the screen is full", &[], Part::NoMore),
    part!("save", "Write the lines to a file", &[rest("file", "Name of the file", Shape::Rest)], {
        Part::Filter(|given, next| Ok(Box::new(Save::create(&given.get("file").unwrap_or_default(), next)?)))
    }),
];

fn pattern(given: &Given) -> Result<Regex, String> {
    let text = given.get("pattern").unwrap_or_default();
    RegexBuilder::new(&text).case_insensitive(true).build().map_err(|error| {
        let why = error.to_string();
        format!("{text}: no pattern: {}", why.lines().last().unwrap_or_default())
    })
}

struct Match {
    pattern: Regex,
    wanted: bool,
    next: Box<dyn Sink>,
}

impl Sink for Match {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        match self.pattern.is_match(line) == self.wanted {
            true => self.next.line(line),
            false => Ok(true),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.next.finish()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.next.flush()
    }
}

struct Find {
    pattern: Regex,
    found: bool,
    next: Box<dyn Sink>,
}

impl Sink for Find {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        self.found = self.found || self.pattern.is_match(line);
        if self.found { self.next.line(line) } else { Ok(true) }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.next.finish()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.next.flush()
    }
}

struct Count {
    lines: u64,
    next: Box<dyn Sink>,
}

impl Sink for Count {
    fn line(&mut self, _: &str) -> io::Result<bool> {
        self.lines += 1;
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.next.line(&format!("Count: {} lines", self.lines))?;
        self.next.finish()
    }
}

struct Last {
    most: usize,
    kept: VecDeque<String>,
    next: Box<dyn Sink>,
}

impl Sink for Last {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        if self.kept.len() == self.most {
            self.kept.pop_front();
        }
        self.kept.push_back(line.to_owned());
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        for line in self.kept.drain(..) {
            if !self.next.line(&line)? {
                break;
            }
        }
        self.next.finish()
    }
}

struct Save {
    name: String,
    file: BufWriter<File>,
    lines: u64,
    next: Box<dyn Sink>,
}

impl Save {
    fn create(name: &str, next: Box<dyn Sink>) -> Result<Self, String> {
        let file = File::create(name).map_err(|error| format!("cannot write {name}: {error}"))?;
        Ok(Self { name: name.to_owned(), file: BufWriter::new(file), lines: 0, next })
    }
}

impl Sink for Save {
    fn line(&mut self, line: &str) -> io::Result<bool> {
        self.lines += 1;
        writeln!(self.file, "{line}")?;
        Ok(true)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.next.line(&format!("Wrote {} lines of output to '{}'", self.lines, self.name))?;
        self.next.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::super::grammar::Position;
    use super::super::known::tests::Nothing;
    use super::super::words::Line;
    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Rc<RefCell<Vec<String>>>);

    impl Sink for Kept {
        fn line(&mut self, line: &str) -> io::Result<bool> {
            self.0.borrow_mut().push(line.to_owned());
            Ok(true)
        }

        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What a pipe leaves of three lines.
    fn through(pipe: &str) -> Result<Vec<String>, String> {
        let kept = Kept::default();
        let mut sink: Box<dyn Sink> = Box::new(kept.clone());
        let line = Line::read(pipe);
        for words in line.parts.iter().rev() {
            let position =
                Position::of(PARTS, PARTS, words, &Nothing).map_err(|wrong| format!("{wrong:?}"))?;
            let (part, given) = position.finish(&Nothing).map_err(|wrong| format!("{wrong:?}"))?;
            let Part::Filter(filter) = part.action else { panic!("{pipe} is no filter") };
            sink = filter(&given, sink)?;
        }
        for line in ["one lan0", "two wan0", "three LAN1"] {
            sink.line(line).unwrap();
        }
        sink.finish().unwrap();
        Ok(kept.0.take())
    }

    #[test]
    fn parts_choose_lines() {
        assert_eq!(through("match lan").unwrap(), ["one lan0", "three LAN1"]);
        assert_eq!(through("except lan").unwrap(), ["two wan0"]);
        assert_eq!(through("find two").unwrap(), ["two wan0", "three LAN1"]);
        assert_eq!(through("count").unwrap(), ["Count: 3 lines"]);
        assert_eq!(through("last 1").unwrap(), ["three LAN1"]);
        assert_eq!(through("mat lan | cou").unwrap(), ["Count: 2 lines"]);
        assert_eq!(through("match \"one|two\" | last 1").unwrap(), ["two wan0"]);
    }

    #[test]
    fn a_wrong_part_says_what_is_wrong() {
        assert!(through("match (").unwrap_err().contains("no pattern"), "{:?}", through("match ("));
        assert!(through("match").unwrap_err().contains("Short"));
        assert!(through("last none").unwrap_err().contains("number"));
        assert!(through("bananas").unwrap_err().contains("Unknown"));
        assert!(through("save /nonexistent/file").unwrap_err().contains("/nonexistent/file"));
    }

    #[test]
    fn what_is_saved_is_not_shown() {
        let file = std::env::temp_dir().join(format!("sluice-save-{}", std::process::id()));
        let said = through(&format!("match wan | save {}", file.display())).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two wan0\n");
        assert_eq!(said, [format!("Wrote 1 lines of output to '{}'", file.display())]);
        std::fs::remove_file(file).unwrap();
    }
}
