//! What may be typed: commands as a table, and where a line stands in it. Matching, completion, help and errors all ask the
//! same question of a [`Position`]: what may follow?

use sluice_control::operations::Role;

use super::known::Known;
use super::statement::Statement;
use super::words::Word;

/// One command of a table.
pub struct Command<A: 'static> {
    /// Its keywords, each of which may be shortened as long as no other is meant.
    pub words: &'static str,
    pub help: &'static str,
    pub arguments: &'static [Argument],
    /// Who may give it.
    pub class: Role,
    pub action: A,
}

/// What may stand behind the keywords, in any order.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Names the value for whoever reads it; also the keyword, where it has one.
    pub name: &'static str,
    pub help: &'static str,
    pub shape: Shape,
    /// The command means nothing without it.
    pub is_needed: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A keyword alone.
    Flag,
    /// A keyword and a value.
    Named(Value),
    /// A value alone.
    Alone(Value),
    /// The rest of the line: a place in the configuration.
    Statement(Places),
    /// The rest of the line: a command of the other table.
    Command,
    /// The rest of the line, as it was typed.
    Rest,
}

/// Which places of the configuration are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// What the language has.
    Possible,
    /// What the candidate has.
    Present,
    /// What the candidate has, up to one of these words or a quote.
    Until(&'static [&'static str]),
    /// What the configuration in force has.
    Active,
}

/// What a value looks like, and where those that exist are found.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    Number(u64, u64),
    /// Address or prefix.
    Prefix,
    Address,
    /// A name of something that exists.
    Name(&'static str),
    /// Anything; the text says what.
    Any(&'static str),
}

pub const fn flag(name: &'static str, help: &'static str) -> Argument {
    Argument { name, help, shape: Shape::Flag, is_needed: false }
}

pub const fn named(name: &'static str, help: &'static str, value: Value) -> Argument {
    Argument { name, help, shape: Shape::Named(value), is_needed: false }
}

pub const fn alone(name: &'static str, help: &'static str, value: Value) -> Argument {
    Argument { name, help, shape: Shape::Alone(value), is_needed: false }
}

pub const fn statement(help: &'static str, places: Places) -> Argument {
    Argument { name: "statement", help, shape: Shape::Statement(places), is_needed: false }
}

pub const fn rest(name: &'static str, help: &'static str, shape: Shape) -> Argument {
    Argument { name, help, shape, is_needed: true }
}

impl Argument {
    pub const fn needed(mut self) -> Self {
        self.is_needed = true;
        self
    }

    fn keyword(&self) -> Option<&'static str> {
        matches!(self.shape, Shape::Flag | Shape::Named(_)).then_some(self.name)
    }
}

impl Value {
    pub fn placeholder(self) -> String {
        match self {
            Value::Number(low, high) => format!("<{low}..{high}>"),
            Value::Prefix => "<prefix>".to_owned(),
            Value::Address => "<address>".to_owned(),
            Value::Name(what) | Value::Any(what) => format!("<{what}>"),
        }
    }

    /// Err says what would be one.
    fn check(self, word: &str) -> Result<(), String> {
        let is_one = match self {
            Value::Number(low, high) => word.parse().is_ok_and(|number| (low..=high).contains(&number)),
            Value::Prefix => {
                let (address, length) = word.split_once('/').unwrap_or((word, "0"));
                let most = if address.contains(':') { 128 } else { 32 };
                let is_length = length.parse::<u8>().is_ok_and(|length| length <= most);
                is_length && address.parse::<std::net::IpAddr>().is_ok()
            }
            Value::Address => word.parse::<std::net::IpAddr>().is_ok(),
            Value::Name(_) | Value::Any(_) => !word.is_empty(),
        };
        let wanted = match self {
            Value::Number(low, high) => format!("a number from {low} to {high}"),
            Value::Prefix => "an address or a prefix, such as 10.0.1.0/24".to_owned(),
            Value::Address => "an address".to_owned(),
            Value::Name(what) | Value::Any(what) => what.to_owned(),
        };
        if is_one { Ok(()) } else { Err(wanted) }
    }

    fn choices(self, help: &str, known: &dyn Known) -> Vec<Choice> {
        let mut choices = vec![Choice::new(&self.placeholder(), help)];
        if let Value::Name(what) = self {
            choices.extend(known.names(what).into_iter().map(|(word, help)| Choice::name(word, help)));
        }
        choices
    }
}

/// What may follow: a word, or a `<placeholder>` for a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    pub word: String,
    pub help: String,
    /// Of the gateway, not of the language: another one may be meant that begins like it.
    pub is_name: bool,
}

/// Stands where the line may end.
pub const ENTER: &str = "<[Enter]>";

impl Choice {
    pub fn new(word: &str, help: &str) -> Self {
        Self { word: word.to_owned(), help: help.to_owned(), is_name: false }
    }

    pub fn name(word: String, help: String) -> Self {
        Self { word, help, is_name: true }
    }

    /// Not to be typed as it stands.
    pub fn is_placeholder(&self) -> bool {
        self.word.starts_with('<') && self.word.ends_with('>')
    }
}

/// Why a word may not stand where it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing begins like that.
    Unknown(Vec<Choice>),
    /// More than one does.
    Ambiguous(Vec<Choice>),
    /// A value that is none; the text says what would be one.
    Value(String),
    /// It ends too early.
    Short(Vec<Choice>),
    /// Somebody else may.
    Class { command: String, class: Role },
}

/// What was given behind the keywords.
#[derive(Debug, Clone, Default)]
pub struct Given {
    values: Vec<(&'static str, String)>,
    /// Of a statement: whole words, as the language has them.
    pub path: Vec<String>,
}

impl Given {
    pub fn has(&self, name: &str) -> bool {
        self.values.iter().any(|(given, _)| *given == name)
    }

    pub fn get(&self, name: &str) -> Option<String> {
        self.values.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone())
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).and_then(|value| value.parse().ok())
    }
}

/// Where a line stands.
pub struct Position<A: 'static> {
    table: &'static [Command<A>],
    /// Where `run` leads.
    other: &'static [Command<A>],
    /// Keywords so far, whole.
    keywords: Vec<&'static str>,
    command: Option<&'static Command<A>>,
    given: Given,
    waits: Option<(&'static Argument, Value)>,
    statement: Option<Statement>,
    rest: Option<String>,
}

impl<A> Position<A> {
    pub fn new(table: &'static [Command<A>], other: &'static [Command<A>]) -> Self {
        Self {
            table,
            other,
            keywords: vec![],
            command: None,
            given: Given::default(),
            waits: None,
            statement: None,
            rest: None,
        }
    }

    /// Where words lead to; Err has the number of the wrong one.
    pub fn of(
        table: &'static [Command<A>],
        other: &'static [Command<A>],
        words: &[Word],
        known: &dyn Known,
    ) -> Result<Self, (usize, Wrong)> {
        let mut position = Self::new(table, other);
        for (number, word) in words.iter().enumerate() {
            position.step(word, known).map_err(|wrong| (number, wrong))?;
        }
        Ok(position)
    }

    /// Commands that begin with the keywords so far.
    fn begun(&self) -> impl Iterator<Item = (&'static Command<A>, Option<&'static str>)> + '_ {
        self.table.iter().filter_map(|command| {
            let mut words = command.words.split(' ');
            self.keywords.iter().all(|keyword| words.next() == Some(keyword)).then(|| (command, words.next()))
        })
    }

    /// Arguments that may still come.
    fn open_arguments(&self) -> impl Iterator<Item = &'static Argument> + '_ {
        let arguments = self.command.map_or(&[][..], |command| command.arguments);
        let is_alone = |argument: &Argument| matches!(argument.shape, Shape::Alone(_));
        // of values without a keyword there is one
        let has_alone = arguments.iter().any(|other| is_alone(other) && self.given.has(other.name));
        arguments
            .iter()
            .filter(move |argument| !(self.given.has(argument.name) || has_alone && is_alone(argument)))
    }

    fn step(&mut self, word: &Word, known: &dyn Known) -> Result<(), Wrong> {
        if let Some(rest) = &mut self.rest {
            *rest += " ";
            *rest += &as_typed(word);
            return Ok(());
        }
        if let Some(statement) = &mut self.statement {
            return statement.step(word, known);
        }
        if let Some((argument, value)) = self.waits.take() {
            return self.take(argument, value, word);
        }
        if let Some(keyword) = self.keyword(word, known)? {
            return self.enter(keyword);
        }
        let alone = self.open_arguments().find_map(|argument| match argument.shape {
            Shape::Alone(value) => Some((argument, Some(value))),
            Shape::Statement(_) | Shape::Command | Shape::Rest => Some((argument, None)),
            Shape::Flag | Shape::Named(_) => None,
        });
        match alone {
            Some((argument, Some(value))) => self.take(argument, value, word),
            Some((argument, None)) => self.begin_rest(argument, word, known),
            None => Err(Wrong::Unknown(self.choices(known))),
        }
    }

    /// The whole keyword or argument name that a word means; None when it can only be a value.
    fn keyword(&self, word: &Word, known: &dyn Known) -> Result<Option<&'static str>, Wrong> {
        if word.is_quoted {
            return Ok(None);
        }
        let names = self
            .begun()
            .filter(|_| self.command.is_none() || self.at_keywords())
            .filter_map(|(_, next)| next);
        let mut names: Vec<&'static str> =
            names.chain(self.open_arguments().filter_map(Argument::keyword)).collect();
        names.sort_unstable();
        names.dedup();
        if let Some(exact) = names.iter().find(|name| **name == word.text) {
            return Ok(Some(exact));
        }
        names.retain(|name| name.starts_with(&word.text));
        if names.len() > 1 {
            // a class is never offered what it may not do, so it is not in its way either
            let offered: Vec<Choice> = self.choices(known);
            let mut meant = names.iter().filter(|name| offered.iter().any(|choice| choice.word == **name));
            return match (meant.next(), meant.next()) {
                (Some(one), None) => Ok(Some(one)),
                _ => Err(Wrong::Ambiguous(
                    offered.into_iter().filter(|choice| names.contains(&choice.word.as_str())).collect(),
                )),
            };
        }
        Ok(names.pop())
    }

    /// No argument has come yet, so that keywords may.
    fn at_keywords(&self) -> bool {
        self.given.values.is_empty()
    }

    fn enter(&mut self, keyword: &'static str) -> Result<(), Wrong> {
        let named = self.open_arguments().find(|argument| argument.keyword() == Some(keyword));
        match named.map(|argument| (argument, argument.shape)) {
            Some((argument, Shape::Named(value))) => self.waits = Some((argument, value)),
            Some((argument, _)) => self.given.values.push((argument.name, String::new())),
            None => {
                self.keywords.push(keyword);
                let whole = self.begun().find(|(_, next)| next.is_none()).map(|(command, _)| command);
                self.command = whole;
                self.begin_statement();
            }
        }
        Ok(())
    }

    /// A command whose first argument is a place stands there at once.
    fn begin_statement(&mut self) {
        let longer = self.begun().any(|(_, next)| next.is_some());
        if let Some(command) = self.command.filter(|_| !longer)
            && let [Argument { shape: Shape::Statement(places), .. }] = command.arguments
        {
            self.statement = Some(Statement::new(*places));
        }
    }

    fn take(&mut self, argument: &'static Argument, value: Value, word: &Word) -> Result<(), Wrong> {
        value.check(&word.text).map_err(Wrong::Value)?;
        self.given.values.push((argument.name, word.text.clone()));
        Ok(())
    }

    fn begin_rest(
        &mut self,
        argument: &'static Argument,
        word: &Word,
        known: &dyn Known,
    ) -> Result<(), Wrong> {
        match argument.shape {
            Shape::Statement(places) => {
                let statement = self.statement.insert(Statement::new(places));
                statement.step(word, known)
            }
            Shape::Command => {
                *self = Self::new(self.other, self.other);
                self.step(word, known)
            }
            _ => {
                self.rest = Some(as_typed(word));
                Ok(())
            }
        }
    }

    /// What may follow, for whoever may do it.
    pub fn choices(&self, known: &dyn Known) -> Vec<Choice> {
        if let Some(statement) = &self.statement {
            return statement.choices(known);
        }
        if let Some((argument, value)) = self.waits {
            return value.choices(argument.help, known);
        }
        let mut choices: Vec<Choice> = vec![];
        if self.rest.is_some() {
            return vec![Choice::new(ENTER, "Execute this command")];
        }
        if self.may_end() {
            choices.push(Choice::new(ENTER, "Execute this command"));
        }
        for argument in self.open_arguments() {
            match argument.shape {
                Shape::Flag | Shape::Named(_) => choices.push(Choice::new(argument.name, argument.help)),
                Shape::Alone(value) => choices.extend(value.choices(argument.help, known)),
                Shape::Statement(places) => choices.extend(Statement::new(places).choices(known)),
                Shape::Command => choices.extend(Self::new(self.other, self.other).choices(known)),
                Shape::Rest => choices.push(Choice::new(&format!("<{}>", argument.name), argument.help)),
            }
        }
        if self.at_keywords() {
            choices.extend(self.keywords_offered(known));
        }
        choices.sort();
        choices.dedup_by(|a, b| a.word == b.word);
        choices
    }

    fn keywords_offered(&self, known: &dyn Known) -> Vec<Choice> {
        let may = |command: &Command<A>| known.class() >= rank(command.class);
        let offered = self.begun().filter(|(command, _)| may(command)).filter_map(|(command, next)| {
            let next = next?;
            let path = [&self.keywords[..], &[next]].concat().join(" ");
            let help = match command.words == path {
                true => command.help,
                false => super::help::of_words(&path).unwrap_or(command.help),
            };
            Some(Choice::new(next, help))
        });
        offered.collect()
    }

    fn may_end(&self) -> bool {
        self.rest.is_some() || self.command.is_some() && self.waits.is_none() && self.missing().is_none()
    }

    fn missing(&self) -> Option<&'static Argument> {
        self.command?.arguments.iter().find(|argument| argument.is_needed && !self.given.has(argument.name))
    }

    /// The command, and what it was given.
    pub fn finish(mut self, known: &dyn Known) -> Result<(&'static Command<A>, Given), Wrong> {
        let short = |position: &Self| Wrong::Short(position.choices(known));
        let Some(command) = self.command else { return Err(short(&self)) };
        if self.waits.is_some() {
            return Err(short(&self));
        }
        if known.class() < rank(command.class) {
            return Err(Wrong::Class { command: command.words.to_owned(), class: command.class });
        }
        let rest = self.rest.take();
        let statement = self.statement.take();
        for argument in command.arguments {
            match (argument.shape, &rest, &statement) {
                (Shape::Rest, Some(rest), _) => self.given.values.push((argument.name, rest.clone())),
                (Shape::Statement(_), _, Some(statement)) if !statement.is_empty() => {
                    self.given.path = statement.words();
                    self.given.values.push((argument.name, String::new()));
                }
                _ => {}
            }
        }
        match self.missing() {
            Some(_) if statement.is_some() => {
                self.statement = statement;
                Err(short(&self))
            }
            Some(_) => Err(short(&self)),
            None => Ok((command, self.given)),
        }
    }
}

fn as_typed(word: &Word) -> String {
    if word.is_quoted { format!("\"{}\"", word.text) } else { word.text.clone() }
}

/// The more, the more it may do.
pub fn rank(class: Role) -> usize {
    Role::ALL.iter().position(|role| *role == class).unwrap_or(0)
}

/// What the appliance calls it.
pub fn class_name(class: Role) -> &'static str {
    match class {
        Role::Anyone => "read-only",
        Role::Group => "operator",
        Role::Owner => "super-user",
    }
}
