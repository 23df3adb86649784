//! One who types, or a list of commands: each line is read, understood and done.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::unistd::{User, getegid, geteuid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_control::Client;
use sluice_control::operations::system::HEALTH;
use sluice_control::operations::{NoArguments, Operation, Role};

use super::configure::Configuring;
use super::grammar::{Choice, Command, Given, Position, Wrong};
use super::known::{Daemon, Known};
use super::line::{Reader, Typed};
use super::operational::COMMANDS;
use super::out::{Ahead, Done, Out, Pager, Plain, Stop};
use super::pipe::{Form, PARTS, Part, Sink};
use super::words::Line;
use super::{configure, help};
use crate::exit::Failure;
use crate::interrupt;

/// What a command does.
pub type Action = fn(&mut Shell, &Given, &mut Out) -> Done;

pub struct Shell {
    pub state_dir: PathBuf,
    pub user: String,
    host: String,
    pub class: Role,
    pub known: Arc<Daemon>,
    /// Lines and columns that somebody has set; else those of the terminal.
    pub screen: (Option<usize>, Option<usize>),
    pub is_terminal: bool,
    pub is_over: bool,
    /// Its place in the candidate, in configuration mode.
    pub configuring: Option<Configuring>,
    /// Commands that are still to be done.
    pub coming: VecDeque<String>,
    /// What somebody types on a terminal, ahead of time, too.
    pub reader: Option<Reader>,
}

/// A line that was understood.
struct Understood {
    command: &'static Command<Action>,
    given: Given,
    parts: Vec<(&'static Command<Part>, Given)>,
}

impl Shell {
    pub fn new(state_dir: &Path, is_terminal: bool) -> Self {
        let class = class(state_dir);
        let user = User::from_uid(geteuid()).ok().flatten();
        Self {
            state_dir: state_dir.to_owned(),
            user: user.map_or_else(|| geteuid().to_string(), |user| user.name),
            host: host_name(state_dir),
            class,
            known: Arc::new(Daemon::new(state_dir, class)),
            screen: (None, None),
            is_terminal,
            is_over: false,
            configuring: None,
            coming: VecDeque::new(),
            reader: None,
        }
    }

    /// Does commands until they end or one of them ends the shell. False: one has failed.
    pub fn run_all(&mut self, commands: impl IntoIterator<Item = String>) -> bool {
        let mut all_well = true;
        self.coming = commands.into_iter().collect();
        while !self.is_over
            && let Some(command) = self.coming.pop_front()
        {
            all_well &= self.run(&command, None);
            if self.is_terminal && interrupt::requested() {
                // what follows was meant to come after it
                self.coming.clear();
            }
        }
        all_well
    }

    /// Asks for commands until somebody leaves. False: the last one has failed.
    pub fn talk(&mut self) -> Result<bool, Failure> {
        let known = self.known.clone();
        let choices = move |before: &str| may_follow(before, &known);
        let listing = |choices: &[Choice]| help::listing(choices, terminal().1);
        let _ahead = Ahead::begin().map_err(Failure::failed)?;
        self.reader = Some(Reader::new(Arc::new(choices), listing).map_err(Failure::failed)?);
        let mut was_well = true;
        while !self.is_over {
            self.known.forget_candidate();
            if let Some(configuring) = &self.configuring {
                let path = [&["edit".to_owned()], &configuring.path[..]].concat();
                println!("\n[{}]", path.join(" "));
            }
            let prompt = self.prompt();
            match self.reader.as_mut().map_or(Typed::End, |reader| reader.read(&prompt)) {
                // a paste may have several
                Typed::Line(lines) if lines.contains('\n') => {
                    was_well = self.run_all(lines.lines().map(str::to_owned));
                }
                Typed::Line(line) => was_well = self.run(&line, Some(prompt.chars().count())),
                Typed::Cancelled => {}
                Typed::End => {
                    println!();
                    break;
                }
            }
        }
        Ok(was_well)
    }

    fn prompt(&self) -> String {
        let sign = if self.configuring.is_some() { '#' } else { '>' };
        format!("{}@{}{sign} ", self.user, self.host)
    }

    /// Does a line. `column` is where it stands on the terminal; None where nobody sees it.
    fn run(&mut self, text: &str, column: Option<usize>) -> bool {
        let line = Line::read(text);
        if line.parts.iter().all(Vec::is_empty) {
            return true;
        }
        interrupt::forget();
        match self.understand(&line, text) {
            Err((wrong, at)) => {
                if column.is_none() {
                    eprintln!("{text}");
                }
                eprint!("{}", help::complaint(&wrong, text[..at].chars().count(), column.unwrap_or(0)));
                false
            }
            Ok(understood) => match self.act(&understood) {
                Ok(()) | Err(Stop::Enough) => true,
                Err(Stop::Interrupted) => {
                    eprintln!("[abort]");
                    false
                }
                Err(Stop::Failed(failure)) => {
                    eprintln!("error: {}", failure.message.trim_end());
                    false
                }
            },
        }
    }

    /// Err has what is wrong, and the byte of the line where.
    fn understand(&self, line: &Line, text: &str) -> Result<Understood, (Wrong, usize)> {
        if let Some(at) = line.unclosed {
            return Err((Wrong::Value("a closing quote".to_owned()), at));
        }
        let known: &dyn Known = &*self.known;
        let end = text.trim_end().len();
        let start = |part: usize, word: usize| line.parts[part].get(word).map_or(end, |word| word.start);
        let position = Position::of(table(&self.known), COMMANDS, &line.parts[0], known);
        let position = position.map_err(|(word, wrong)| (wrong, start(0, word)))?;
        let (command, given) = position.finish(known).map_err(|wrong| match wrong {
            Wrong::Class { .. } => (wrong, start(0, 0)),
            wrong => (wrong, end_of(line, 0, text)),
        })?;
        let mut parts = vec![];
        for (number, words) in line.parts.iter().enumerate().skip(1) {
            let position = Position::of(PARTS, PARTS, words, known);
            let position = position.map_err(|(word, wrong)| (wrong, start(number, word)))?;
            parts.push(position.finish(known).map_err(|wrong| (wrong, end_of(line, number, text)))?);
        }
        Ok(Understood { command, given, parts })
    }

    fn act(&mut self, understood: &Understood) -> Done {
        // what goes on by itself stops at no full screen
        let goes_on = understood.command.words.starts_with("monitor ");
        let is_told = understood.parts.iter().any(|(part, _)| matches!(part.action, Part::NoMore));
        let pages = self.is_terminal && !goes_on && !is_told;
        let (length, width) = self.screen();
        let mut sink: Box<dyn Sink> = match pages {
            true => Box::new(Pager::new(length, width)),
            false => Box::new(Plain::new()),
        };
        let mut form = Form::Text;
        for (part, given) in understood.parts.iter().rev() {
            match &part.action {
                Part::Filter(filter) => sink = filter(given, sink).map_err(Failure::bad_input)?,
                Part::Form(of) => form = of(given),
                Part::Refused(why) => return Err(Failure::bad_input(why).into()),
                Part::NoMore => {}
            }
        }
        let is_terminal = self.is_terminal && understood.parts.is_empty();
        let mut out = Out::new(sink, form, is_terminal);
        let done = (understood.command.action)(self, &understood.given, &mut out);
        // what came before it broke off is worth seeing
        out.finish().and(done)
    }

    /// Lines and columns.
    pub fn screen(&self) -> (usize, usize) {
        let (length, width) = terminal();
        (self.screen.0.unwrap_or(length), self.screen.1.unwrap_or(width))
    }

    pub fn client(&self) -> Client {
        Client::new(&self.state_dir).until(interrupt::requested)
    }

    pub fn ask<A: Serialize, T: DeserializeOwned>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
    ) -> Result<T, Stop> {
        self.order(operation, arguments, "")
    }

    pub fn order<A: Serialize, T: DeserializeOwned>(
        &self,
        operation: &Operation<A, T>,
        arguments: &A,
        body: &str,
    ) -> Result<T, Stop> {
        let answer = self.client().order(operation, arguments, body);
        answer.map_err(Stop::from)
    }

    /// A commit may have given the gateway another one.
    pub fn ask_name(&mut self) {
        self.host = host_name(&self.state_dir);
    }

    /// A word of who types.
    pub fn asks(&mut self, question: &str) -> bool {
        let Some(reader) = &mut self.reader else { return true };
        let answer = reader.text(&format!("{question} [yes,no] (no) "));
        matches!(answer, Typed::Line(answer) if ["y", "yes"].contains(&answer.trim()))
    }
}

/// Where something is missing behind a part.
fn end_of(line: &Line, part: usize, text: &str) -> usize {
    let end = match line.parts.get(part + 1) {
        Some(_) => line.parts[part].last().map_or(0, |word| word.start + word.text.len() + 1),
        None => text.trim_end().len() + 1,
    };
    end.min(text.len())
}

fn table(known: &Daemon) -> &'static [Command<Action>] {
    if known.is_configuring() { configure::COMMANDS } else { COMMANDS }
}

/// What may follow a line, and the word that is begun; Err tells what is wrong with it.
fn may_follow(before: &str, known: &Daemon) -> Result<(Vec<Choice>, String), String> {
    let mut line = Line::read(before);
    let mut words = line.parts.pop().unwrap_or_default();
    let begun = if line.is_open { words.pop() } else { None }.map(|word| word.text).unwrap_or_default();
    let wrong =
        |(at, wrong): (usize, Wrong)| help::complaint(&wrong, before[..words[at].start].chars().count(), 0);
    let mut choices = if line.parts.is_empty() {
        Position::of(table(known), COMMANDS, &words, known).map_err(wrong)?.choices(known)
    } else {
        Position::of(PARTS, PARTS, &words, known).map_err(wrong)?.choices(known)
    };
    if choices.first().is_some_and(|choice| choice.word == super::grammar::ENTER) {
        choices.push(Choice::new("|", "Pipe through a command"));
    }
    choices.retain(|choice| {
        choice.is_placeholder() && choice.word != super::grammar::ENTER || choice.word.starts_with(&begun)
    });
    Ok((choices, begun))
}

/// By the rights that the daemon gives on its socket: to its own user, to its group, to others.
fn class(state_dir: &Path) -> Role {
    let socket = std::fs::metadata(sluice_control::socket_path(state_dir));
    let (owner, group) = socket.map_or((0, 0), |socket| (socket.uid(), socket.gid()));
    match (geteuid(), getegid()) {
        (user, _) if user.is_root() || user.as_raw() == owner => Role::Owner,
        (_, own) if own.as_raw() == group => Role::Group,
        _ => Role::Anyone,
    }
}

/// As configured, else the machine's.
fn host_name(state_dir: &Path) -> String {
    let said = Client::new(state_dir).ask(&HEALTH, &NoArguments {}).ok().and_then(|health| health.host_name);
    let own = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        if name.trim().is_empty() { "sluice".to_owned() } else { name.trim().to_owned() }
    };
    said.unwrap_or_else(own)
}

/// Lines and columns of the terminal.
fn terminal() -> (usize, usize) {
    terminal_size::terminal_size().map_or((24, 80), |(width, height)| (height.0.into(), width.0.into()))
}
