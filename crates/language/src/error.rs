//! Errors that point at the offending word and say what would be valid there.

use std::fmt;
use std::sync::Arc;

/// Where a word stands. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The name that the text was read under; it need not be a path.
    pub file: Arc<str>,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// The name behind `apply-groups` by which the word came to where it is wrong.
    pub applied: Option<Arc<Location>>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One thing wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{location}: {message}{}{}", Help(.message, .help), Applied(.location))]
pub struct Error {
    /// The word at fault.
    pub location: Location,
    /// What is wrong, naming the statement it is wrong in.
    pub message: String,
    /// What would be valid, or what to do about it.
    pub help: Option<String>,
}

struct Help<'a>(&'a str, &'a Option<String>);

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(help) if self.0.ends_with('?') => write!(f, " {help}"),
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

struct Applied<'a>(&'a Location);

impl fmt::Display for Applied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.applied {
            Some(place) => write!(f, " (inherited by the `apply-groups` at {place})"),
            None => Ok(()),
        }
    }
}

/// Everything wrong with a configuration, in the order of the text, never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Errors {
    errors: Vec<Error>,
    /// Further ones that were counted, not kept.
    further: usize,
}

/// Further errors are counted, not kept: a wrong file should not fill the screen.
const MAX_ERRORS: usize = 100;

impl Errors {
    /// Those kept, at most 100.
    pub fn iter(&self) -> impl Iterator<Item = &Error> {
        self.errors.iter()
    }

    /// Of those kept; a message tells how many more there are.
    pub fn len(&self) -> usize {
        self.errors.len()
    }

    /// Always false: without an error there is no `Errors`.
    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }
}

impl IntoIterator for Errors {
    type Item = Error;
    type IntoIter = std::vec::IntoIter<Error>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        match self.further {
            0 => Ok(()),
            1 => write!(f, "\nand 1 further error"),
            further => write!(f, "\nand {further} further errors"),
        }
    }
}

/// Collects errors while a text is read or compiled.
#[derive(Debug)]
pub(crate) struct Report {
    errors: Vec<Error>,
    dropped: usize,
    bound: usize,
}

impl Default for Report {
    fn default() -> Self {
        Report { errors: Vec::new(), dropped: 0, bound: MAX_ERRORS }
    }
}

impl Report {
    /// One that keeps everything, for what mends a text instead of telling of it.
    pub fn of_all() -> Self {
        Report { bound: usize::MAX, ..Report::default() }
    }

    pub fn error(&mut self, at: &Location, message: impl Into<String>) {
        self.push(at, message.into(), None);
    }

    pub fn error_help(&mut self, at: &Location, message: impl Into<String>, help: impl Into<String>) {
        self.push(at, message.into(), Some(help.into()));
    }

    fn push(&mut self, at: &Location, message: String, help: Option<String>) {
        if self.errors.len() < self.bound {
            self.errors.push(Error { location: at.clone(), message, help });
        } else {
            self.dropped += 1;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// `Ok(value)` when nothing went wrong, else every error in the order of the text.
    pub fn finish<T>(mut self, value: T) -> Result<T, Errors> {
        if self.errors.is_empty() {
            return Ok(value);
        }
        self.errors.sort_by(|a, b| a.location.cmp(&b.location));
        self.errors.dedup();
        Err(Errors { errors: self.errors, further: self.dropped })
    }
}

/// `one of: a, b, c`, shortened when the list is long.
pub(crate) fn one_of<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 24;
    let mut text = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(", ... ({} more)", names.len() - SHOWN));
    }
    text
}

/// The name closest to what was written, when it is close enough to be a slip of the finger.
pub(crate) fn closest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    names
        .into_iter()
        .filter(|name| name.len().abs_diff(word.len()) <= limit)
        .map(|name| (distance(word, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// Edit distance in which swapping two neighbours counts once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut cells = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cells[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = cells[(i - 1) * width + j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let edited = 1 + cells[(i - 1) * width + j].min(cells[i * width + j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swap = if swapped { cells[(i - 2) * width + j - 2] + 1 } else { usize::MAX };
                replaced.min(edited).min(swap)
            };
        }
    }
    cells[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closest_finds_slips_only() {
        assert_eq!(closest("hots-name", ["host-name", "services"]), Some("host-name"));
        assert_eq!(closest("mtuu", ["mtu", "mode"]), Some("mtu"));
        assert_eq!(closest("bananas", ["mtu", "mode"]), None);
    }

    #[test]
    fn a_report_keeps_text_order_and_a_bound() {
        let at = |line| Location { file: "f".into(), line, column: 1, applied: None };
        let mut report = Report::default();
        for line in (1..=200).rev() {
            report.error(&at(line), format!("error {line}"));
        }
        let errors = report.finish(()).unwrap_err();
        assert_eq!(errors.len(), MAX_ERRORS);
        assert!(errors.iter().is_sorted_by_key(|error| error.location.line));
        assert!(errors.to_string().ends_with("\nand 100 further errors"));
    }
}
