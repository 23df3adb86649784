//! A place in the configuration, word by word, by the schema and by what a configuration has.

use sluice_language::Tree;
use sluice_language::follows::{Follows, follows};
use sluice_language::schema::complete;

use super::grammar::{Choice, ENTER, Places, Wrong};
use super::known::Known;
use super::words::{Word, quoted};

/// Words that lead to a statement below the place that `edit` went to.
#[derive(Debug, Clone)]
pub struct Statement {
    places: Places,
    words: Vec<String>,
    /// As they are to be sent: quoted where they must be.
    sent: Vec<String>,
    /// How many of the words lead to the innermost block.
    block: usize,
    in_list: bool,
    /// The path has ended; what follows is not looked up.
    is_over: bool,
}

impl Statement {
    pub fn new(places: Places) -> Self {
        Self { places, words: vec![], sent: vec![], block: 0, in_list: false, is_over: false }
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn words(&self) -> Vec<String> {
        self.sent.clone()
    }

    fn base(&self, known: &dyn Known) -> Vec<String> {
        match self.places {
            Places::Active => vec![],
            Places::Possible | Places::Present | Places::Until(_) => known.place(),
        }
    }

    /// Where the words lead, from the top.
    fn path(&self, known: &dyn Known) -> Vec<String> {
        [self.base(known), self.words.clone()].concat()
    }

    pub fn step(&mut self, word: &Word, known: &dyn Known) -> Result<(), Wrong> {
        let text = word.text.as_str();
        if !word.is_quoted && (text == "[" || text == "]") {
            self.in_list = text == "[";
            self.sent.push(text.to_owned());
            return Ok(());
        }
        if let Places::Until(ends) = self.places
            && (word.is_quoted || ends.contains(&text))
            && !self.words.is_empty()
        {
            self.is_over = true;
        }
        if self.in_list || self.is_over {
            self.sent.push(if word.is_quoted { format!("\"{text}\"") } else { quoted(text) });
            return Ok(());
        }
        let (base, mut words) = (self.base(known), self.words.clone());
        let path = [base.clone(), words.clone()].concat();
        if matches!(at(&path), Follows::Done) && self.places == Places::Possible {
            // several statements of one block may stand in a line
            words.truncate(self.block);
        }
        let whole = self.whole(word, &[base, words.clone()].concat(), known)?;
        words.push(whole.clone());
        self.words = words;
        self.sent.push(if word.is_quoted { format!("\"{whole}\"") } else { quoted(&whole) });
        if matches!(at(&self.path(known)), Follows::Block) {
            self.block = self.words.len();
        }
        Ok(())
    }

    /// A keyword may be shortened, a name may not.
    fn whole(&self, word: &Word, path: &[String], known: &dyn Known) -> Result<String, Wrong> {
        let present = match self.places {
            // names are not matched, only offered
            Places::Possible => vec![],
            _ => self.offered(path, known),
        };
        // where nothing stands the daemon says so
        let offered = if present.is_empty() { possible(path) } else { present };
        let text = word.text.as_str();
        // also where only what is there is offered
        let takes_value = possible(path).iter().any(Choice::is_placeholder);
        if word.is_quoted || offered.iter().any(|choice| choice.word == text) {
            return Ok(text.to_owned());
        }
        let begun = offered.iter().filter(|choice| !choice.is_placeholder() && choice.word.starts_with(text));
        let begun: Vec<&Choice> = begun.collect();
        match begun[..] {
            _ if takes_value => Ok(text.to_owned()),
            [one] => Ok(one.word.clone()),
            [] if matches!(at(path), Follows::Unknown) => Ok(text.to_owned()),
            // only the words of the language are known; the daemon judges the rest
            [] if is_common(text) => Ok(text.to_owned()),
            [] => Err(Wrong::Unknown(offered)),
            _ => Err(Wrong::Ambiguous(begun.into_iter().cloned().collect())),
        }
    }

    pub fn choices(&self, known: &dyn Known) -> Vec<Choice> {
        let mut path = self.path(known);
        if self.is_over {
            return vec![Choice::new(ENTER, "Execute this command")];
        }
        let mut choices = vec![];
        let here = at(&path);
        if matches!(here, Follows::Block | Follows::Done)
            && (!self.words.is_empty() || self.places != Places::Possible)
        {
            choices.push(Choice::new(ENTER, "Execute this command"));
        }
        if matches!(here, Follows::Done) && self.places == Places::Possible {
            let above = path.len() - self.words.len();
            path.truncate(above + self.block);
        }
        choices.extend(self.offered(&path, known));
        if let Places::Until(ends) = self.places
            && !self.words.is_empty()
        {
            choices.extend(ends.iter().map(|word| Choice::new(word, "What comes then")));
        }
        choices
    }

    fn offered(&self, path: &[String], known: &dyn Known) -> Vec<Choice> {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let possible = possible(path);
        let tree = known.tree(self.places);
        let present = tree.as_deref().map(|tree| tree.words_below(&words)).unwrap_or_default();
        let present: Vec<String> = present.into_iter().map(str::to_owned).collect();
        if self.places == Places::Possible {
            return with_names(possible, &present, tree.as_deref(), known);
        }
        let value = possible.iter().find(|choice| choice.is_placeholder());
        let told = |word: String| match possible.iter().find(|choice| choice.word == word) {
            Some(keyword) => keyword.clone(),
            None => Choice::name(word, value.map_or_else(String::new, |value| value.help.clone())),
        };
        present.into_iter().map(told).collect()
    }
}

fn possible(path: &[String]) -> Vec<Choice> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    complete(&words).into_iter().map(|(word, help)| Choice { word, help, is_name: false }).collect()
}

/// May stand in every block, and is not offered.
fn is_common(word: &str) -> bool {
    ["apply-groups", "apply-groups-except", "groups"].contains(&word)
}

fn at(path: &[String]) -> Follows {
    follows(&path.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Where a name stands, those that the configuration has of its kind, and those that are there already.
fn with_names(
    mut choices: Vec<Choice>,
    present: &[String],
    tree: Option<&Tree>,
    known: &dyn Known,
) -> Vec<Choice> {
    let Some(placeholder) = choices.iter().find(|choice| choice.is_placeholder()).cloned() else {
        return choices;
    };
    let has = |choices: &[Choice], word: &str| choices.iter().any(|choice| choice.word == word);
    let mut names: Vec<(String, String)> = vec![];
    names.extend(present.iter().map(|word| (word.clone(), placeholder.help.clone())));
    if is_name(&placeholder.word) {
        let used = tree.map(|tree| tree.names(&placeholder.word)).unwrap_or_default();
        names.extend(used.into_iter().map(|word| (word, placeholder.help.clone())));
    }
    match placeholder.word.as_str() {
        "<interface>" => names.extend(known.names("device")),
        "<application>" => names.extend(known.names("application")),
        _ => {}
    }
    for (word, help) in names {
        if !has(&choices, &word) {
            choices.push(Choice::name(word, help));
        }
    }
    choices
}

/// Numbers, addresses and texts of elsewhere mean nothing here.
fn is_name(placeholder: &str) -> bool {
    const VALUES: [&str; 12] = [
        "<text>",
        "<address>",
        "<address/length>",
        "<prefix>",
        "<port>",
        "<tag>",
        "<seconds>",
        "<time>",
        "<date>",
        "<next-hop>",
        "<type>",
        "<code>",
    ];
    !VALUES.contains(&placeholder) && !placeholder.contains("..")
}
