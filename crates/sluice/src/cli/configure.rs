//! The commands of configuration mode: what is typed becomes commands of the candidate, which the daemon keeps.

use sluice_control::api::{
    CandidateQuery, CloseQuery, CommitQuery, CompareQuery, EditQuery, Edited, LoadQuery, OpenQuery,
    RollbackQuery,
};
use sluice_control::operations::Role;
use sluice_control::operations::candidate::{
    CANDIDATE, CLOSE_CANDIDATE, COMMIT_CANDIDATE, COMPARE, EDIT_CANDIDATE, LOAD_CANDIDATE, OPEN_CANDIDATE,
    ROLLBACK,
};

use super::grammar::{Argument, Command, Given, Places, Shape, Value, alone, flag, named, rest, statement};
use super::line::Typed;
use super::out::{Done, Out, Stop};
use super::pipe::Form;
use super::report;
use super::shell::{Action, Shell};
use super::words::quoted;
use crate::commit::{forewarned, rolled_back};
use crate::exit::Failure;

/// What the history calls whoever types here.
const CLIENT: &str = "cli";
/// `commit confirmed` without a number.
const MINUTES: u32 = 10;

/// Somebody's place in the candidate.
#[derive(Default)]
pub struct Configuring {
    pub path: Vec<String>,
    /// Places that `exit` goes back to.
    before: Vec<Vec<String>>,
}

const THERE: &[Argument] = &[statement("A statement of the candidate", Places::Present).needed()];
const ANNOTATED: &[Argument] =
    &[statement("A statement, then a comment in quotes", Places::Until(&[])).needed()];
const MOVED: &[Argument] =
    &[statement("A statement, before or after which other", Places::Until(&["after", "before"])).needed()];
const RENAMED: &[Argument] =
    &[statement("A statement, and what it is to be called", Places::Until(&["to"])).needed()];
const FILE: &[Argument] = &[
    flag("terminal", "What is typed from here on, up to Ctrl-D"),
    alone("file", "Name of a file", Value::Any("file")),
    flag("relative", "Its statements stand below this place"),
];
const COMMIT: &[Argument] = &[
    flag("and-quit", "Leave configuration mode"),
    flag("check", "Find everything that would be refused, and change nothing"),
    named("comment", "Why, for the history", Value::Any("comment")),
    flag("confirmed", "Go back by itself unless another commit comes first"),
    alone("minutes", "Until it goes back, when confirmed", Value::Number(1, 527_040)),
];

macro_rules! commands {
    ($($words:literal $help:literal, $arguments:expr => $action:expr;)*) => {
        &[$(Command { words: $words, help: $help, arguments: $arguments, class: Role::Owner, action: $action },)*]
    };
}

/// In the order of their words.
pub static COMMANDS: &[Command<Action>] = commands! {
    "activate" "Put an inactive statement into effect", THERE => |shell, given, out| edit(shell, "activate", given, out);
    "annotate" "Write a comment before a statement", ANNOTATED => |shell, given, out| edit(shell, "annotate", given, out);
    "commit" "Use the candidate: all of it or, on any error, nothing", COMMIT => commit;
    "copy" "Copy a statement", RENAMED => |shell, given, out| edit(shell, "copy", given, out);
    "deactivate" "Take a statement out of effect and keep it", THERE => |shell, given, out| edit(shell, "deactivate", given, out);
    "delete" "Delete a statement", &[statement("A statement of the candidate", Places::Present)] => |shell, given, out| edit(shell, "delete", given, out);
    "edit" "Go to a place in the configuration", &[statement("Where to", Places::Possible).needed()] => go;
    "exit" "Go back to where the last `edit` came from, or leave", &[flag("configuration-mode", "Leave configuration mode")] => exit;
    "help" "Show how to get help", &[] => |_, _, out| out.text(HELP);
    "insert" "Put a statement before or after another", MOVED => |shell, given, out| edit(shell, "insert", given, out);
    "load merge" "Add the statements of a text to those that are there", FILE => |shell, given, out| load(shell, "merge", given, out);
    "load override" "Replace the candidate by a text", FILE => |shell, given, out| load(shell, "override", given, out);
    "load replace" "Add a text; what it marks `replace:` stands for what is there", FILE => |shell, given, out| load(shell, "replace", given, out);
    "load set" "Do the commands of a text", FILE => |shell, given, out| load(shell, "set", given, out);
    "quit" "Leave configuration mode", &[] => |shell, _, out| leave(shell, out);
    "rename" "Give a statement another name", RENAMED => |shell, given, out| edit(shell, "rename", given, out);
    "replace pattern" "Replace a pattern in names and values", &[rest("pattern", "A pattern, then `with` and what stands for it", Shape::Rest)] => replace;
    "rollback" "Make the candidate an earlier configuration", &[
        alone("number", "0 is the one in force, 1 the one before it", Value::Number(0, 50)),
        flag("rescue", "The rescue configuration"),
    ] => rollback;
    "run" "Do a command of operational mode", &[rest("command", "A command of operational mode", Shape::Command)] => |_, _, _| Ok(());
    "save" "Write the candidate to a file", &[rest("file", "Name of the file", Shape::Rest)] => save;
    "set" "Set a statement", &[statement("A statement", Places::Possible).needed()] => |shell, given, out| edit(shell, "set", given, out);
    "show" "Show the candidate", &[statement("Only this part", Places::Present)] => show;
    "status" "Show who edits the candidate", &[] => status;
    "top" "Go to the top of the configuration", &[] => |shell, _, _| { shell.stand(vec![]); Ok(()) };
    "up" "Go up", &[alone("levels", "How many statements", Value::Number(1, 64))] => up;
};

const HELP: &str = "\
set, delete, rename, copy, insert, annotate, activate, deactivate change the candidate; nothing is in force before `commit`
edit, up, top, exit move; show shows what is here, `show | compare` what differs from the configuration in force
commit check looks, commit confirmed 5 goes back after 5 minutes unless `commit` comes first, rollback N goes back
?        what may follow; Tab completes, also names that are in use
";

/// `configure`
pub fn enter(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let query = OpenQuery { exclusive: given.has("exclusive"), client: Some(CLIENT.to_owned()) };
    let opened = shell.ask(&OPEN_CANDIDATE, &query)?;
    out.text("Entering configuration mode")?;
    for other in &opened.others {
        out.text(&format!(
            "Users currently editing the configuration: {} (pid {}, {})",
            other.user, other.pid, other.client
        ))?;
    }
    if opened.changed {
        let by = opened.changed_by.unwrap_or_else(|| "somebody".to_owned());
        out.text(&format!("The configuration has been changed by {by} but not committed"))?;
    }
    shell.configuring = Some(Configuring::default());
    shell.stand(vec![]);
    Ok(())
}

/// `configure private`
pub fn private(_: &mut Shell, _: &Given, _: &mut Out) -> Done {
    let why = "private candidates are not supported; `configure exclusive` keeps others out";
    Err(Failure::bad_input(why).into())
}

impl Shell {
    /// Goes to a place; statements are looked up below it.
    fn stand(&mut self, path: Vec<String>) {
        self.known.edit(self.configuring.is_some().then_some(&path[..]));
        if let Some(configuring) = &mut self.configuring {
            configuring.path = path;
        }
    }

    fn path(&self) -> Vec<String> {
        self.configuring.as_ref().map(|configuring| configuring.path.clone()).unwrap_or_default()
    }

    /// As requests have it.
    fn place(&self, below: &[String]) -> Option<String> {
        let words: Vec<String> =
            self.path().iter().map(|word| quoted(word)).chain(below.iter().cloned()).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

fn edit(shell: &mut Shell, verb: &str, given: &Given, out: &mut Out) -> Done {
    let command = [&[verb.to_owned()], &given.path[..]].concat().join(" ");
    if given.path.is_empty() && !shell.asks("Delete everything under this level?") {
        return Ok(());
    }
    send(shell, &command, out)
}

fn send(shell: &mut Shell, command: &str, out: &mut Out) -> Done {
    let query = EditQuery { path: shell.place(&[]), client: Some(CLIENT.to_owned()) };
    let edited = shell.order(&EDIT_CANDIDATE, &query, command)?;
    shell.known.forget_candidate();
    warn(&edited, out)
}

fn warn(edited: &Edited, out: &mut Out) -> Done {
    edited.warnings.iter().try_for_each(|warning| out.lines(&format!("warning: {warning}")))
}

fn replace(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    send(shell, &format!("replace pattern {}", given.get("pattern").unwrap_or_default()), out)
}

fn go(shell: &mut Shell, given: &Given, _: &mut Out) -> Done {
    let below = sluice_language::words(&given.path.join(" ")).map_err(Failure::bad_input)?;
    let path = [shell.path(), below].concat();
    if !is_block(&path) {
        let why = format!("`{}` is no place that has statements below it", path.join(" "));
        return Err(Failure::bad_input(why).into());
    }
    let from = shell.path();
    if let Some(configuring) = &mut shell.configuring {
        configuring.before.push(from);
    }
    shell.stand(path);
    Ok(())
}

fn up(shell: &mut Shell, given: &Given, _: &mut Out) -> Done {
    let mut path = shell.path();
    for _ in 0..given.number("levels").unwrap_or(1) {
        path.pop();
        // a statement may have several words; only before the first one of them is a place
        while !path.is_empty() && !is_block(&path) {
            path.pop();
        }
    }
    shell.stand(path);
    Ok(())
}

fn is_block(path: &[String]) -> bool {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    sluice_language::follows::follows(&words) == sluice_language::follows::Follows::Block
}

fn exit(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let before = shell.configuring.as_mut().and_then(|configuring| configuring.before.pop());
    match before.filter(|_| !given.has("configuration-mode")) {
        Some(path) => {
            shell.stand(path);
            Ok(())
        }
        None => leave(shell, out),
    }
}

fn leave(shell: &mut Shell, out: &mut Out) -> Done {
    let view = shell.ask(&CANDIDATE, &CandidateQuery::default())?;
    if view.changed {
        out.text("The configuration has been changed but not committed")?;
        out.flush()?;
        if !shell.asks("Exit with uncommitted changes?") {
            return Ok(());
        }
    }
    shell.ask(&CLOSE_CANDIDATE, &CloseQuery::default())?;
    shell.configuring = None;
    shell.stand(vec![]);
    out.text("Exiting configuration mode")
}

fn show(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    out.takes(&[Form::Text, Form::Json, Form::Set, Form::Inheritance, out.compares()])?;
    let path = shell.place(&given.path);
    if let Form::Compare(from) = out.form {
        let comparison = shell.ask(&COMPARE, &CompareQuery { from, to: None, path })?;
        return out.lines(&comparison.text);
    }
    let form = match out.form {
        Form::Set => "set",
        Form::Inheritance => "inheritance",
        _ => "text",
    };
    let view = shell.ask(&CANDIDATE, &CandidateQuery { path, form: Some(form.to_owned()) })?;
    if out.form == Form::Json {
        return out.show(&view, |_| String::new());
    }
    out.lines(&view.text)
}

fn status(shell: &mut Shell, _: &Given, out: &mut Out) -> Done {
    let view = shell.ask(&CANDIDATE, &CandidateQuery::default())?;
    out.show(&view, |view| {
        let mut text = String::from("Users currently editing the configuration:\n");
        for editor in &view.editors {
            let how = if editor.exclusive { ", exclusive" } else { "" };
            let since = report::unix_time(editor.since_unix_ms);
            text +=
                &format!("  {} (pid {}, {}{how}) since {since}\n", editor.user, editor.pid, editor.client);
        }
        if view.changed {
            text += "The candidate differs from the configuration in force\n";
        }
        text
    })
}

fn rollback(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let number = if given.has("rescue") { None } else { Some(given.number("number").unwrap_or(0)) };
    let query = RollbackQuery { number, rescue: given.has("rescue"), client: Some(CLIENT.to_owned()) };
    let edited = shell.ask(&ROLLBACK, &query)?;
    shell.known.forget_candidate();
    warn(&edited, out)?;
    out.text("load complete")
}

fn load(shell: &mut Shell, mode: &str, given: &Given, out: &mut Out) -> Done {
    let (text, file) = match given.get("file") {
        Some(file) => (crate::exit::read(file.as_ref())?, file),
        None if given.has("terminal") => (shell.typed(out)?, "(terminal)".to_owned()),
        None => return Err(Failure::bad_input("name a file, or `terminal`").into()),
    };
    let path = if given.has("relative") { shell.place(&[]) } else { None };
    let query = LoadQuery { mode: mode.to_owned(), path, file: Some(file), client: Some(CLIENT.to_owned()) };
    let edited = shell.order(&LOAD_CANDIDATE, &query, &text)?;
    shell.known.forget_candidate();
    warn(&edited, out)?;
    out.text("load complete")
}

impl Shell {
    /// A text up to Ctrl-D: of the terminal, or of the commands that are still to be done.
    fn typed(&mut self, out: &mut Out) -> Result<String, Stop> {
        const END: &str = "\x04";
        let end = self.coming.iter().position(|line| line.trim() == END);
        let text = self.coming.drain(..end.unwrap_or(self.coming.len())).map(|line| line + "\n");
        let mut text: String = text.collect();
        let is_ended = self.coming.pop_front().is_some();
        let Some(reader) = self.reader.as_mut().filter(|_| !is_ended) else { return Ok(text) };
        out.text("[Type ^D at a new line to end input]")?;
        out.flush()?;
        loop {
            match reader.text("") {
                Typed::Line(line) => text += &(line + "\n"),
                Typed::Cancelled => return Err(Stop::Interrupted),
                Typed::End => return Ok(text),
            }
        }
    }
}

fn save(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let name = given.get("file").unwrap_or_default();
    let view = shell.ask(&CANDIDATE, &CandidateQuery { path: shell.place(&[]), form: None })?;
    std::fs::write(&name, &view.text)
        .map_err(|error| Failure::failed(format!("cannot write {name}: {error}")))?;
    out.text(&format!("Wrote {} lines of configuration to '{name}'", view.text.lines().count()))
}

fn commit(shell: &mut Shell, given: &Given, out: &mut Out) -> Done {
    let minutes: Option<u32> = given.number("minutes");
    if minutes.is_some() && !given.has("confirmed") {
        return Err(Failure::bad_input("a number of minutes belongs to `commit confirmed`").into());
    }
    let query = CommitQuery {
        check: given.has("check"),
        confirmed: given.has("confirmed").then(|| minutes.unwrap_or(MINUTES)),
        comment: given.get("comment"),
        client: Some(CLIENT.to_owned()),
        connection: sluice_control::ssh_connection(),
        ..CommitQuery::default()
    };
    let done = forewarned(
        &query,
        |query| shell.ask(&COMMIT_CANDIDATE, query),
        |warning| {
            out.lines(&format!("warning: {warning}"))?;
            out.flush()
        },
    )?;
    shell.known.forget_candidate();
    shell.ask_name();
    for warning in &done.warnings {
        out.lines(&format!("warning: {warning}"))?;
    }
    if let Some(sessions) = done.sessions_ending.filter(|sessions| *sessions > 0) {
        let verb = if query.check { "would end" } else { "end" };
        out.lines(&format!("{sessions} sessions {verb}: no policy permits them any more"))?;
    }
    if query.check {
        return out.text("configuration check succeeds");
    }
    if let Some(minutes) = query.confirmed {
        out.text(&rolled_back(&done, minutes))?;
    }
    out.text("commit complete")?;
    if given.has("and-quit") {
        shell.ask(&CLOSE_CANDIDATE, &CloseQuery::default())?;
        shell.configuring = None;
        shell.stand(vec![]);
        out.text("Exiting configuration mode")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{Position, Wrong};
    use std::sync::Arc;

    use sluice_language::Tree;

    use super::super::known::Known;
    use super::super::known::tests::Nothing;
    use super::super::words::Line;
    use super::*;

    fn read(line: &str) -> Result<(&'static str, Vec<String>), Wrong> {
        let line = Line::read(line);
        let table = super::super::operational::COMMANDS;
        let position = Position::of(COMMANDS, table, &line.parts[0], &Nothing).map_err(|(_, wrong)| wrong)?;
        position.finish(&Nothing).map(|(command, given)| (command.words, given.path))
    }

    fn path(line: &str) -> String {
        read(line).unwrap_or_else(|wrong| panic!("{line}: {wrong:?}")).1.join(" ")
    }

    #[test]
    fn keywords_of_statements_may_be_shortened_and_names_may_not() {
        assert_eq!(
            path("set sec zones sec lan int lan0.0"),
            "security zones security-zone lan interfaces lan0.0"
        );
        assert_eq!(path("set system host-name s"), "system host-name s");
        assert_eq!(
            path(
                "set sec pol from-zone a to-zone b policy p match source-address any destination-address any"
            ),
            "security policies from-zone a to-zone b policy p match source-address any destination-address any"
        );
        assert_eq!(
            path("set applications application-set s application [ a \"b c\" ]").split(' ').nth(4),
            Some("[")
        );
        assert_eq!(path("set system host-name \"a b\""), "system host-name \"a b\"");
    }

    /// A world with a candidate.
    struct With(Arc<Tree>);

    impl Known for With {
        fn class(&self) -> usize {
            Nothing.class()
        }

        fn names(&self, _: &str) -> Vec<(String, String)> {
            vec![]
        }

        fn tree(&self, _: Places) -> Option<Arc<Tree>> {
            Some(self.0.clone())
        }

        fn place(&self) -> Vec<String> {
            vec![]
        }
    }

    #[test]
    fn what_is_deleted_is_what_was_typed() {
        let text = "set interfaces wan0 unit 10 family inet address 192.0.2.1/24\n\
                    set security zones security-zone trusted interfaces wan0.10\n";
        let known = With(Arc::new(sluice_language::parse(text, "a.conf").unwrap()));
        let path = |line: &str| {
            let words = Line::read(line).parts.remove(0);
            let position = Position::of(COMMANDS, COMMANDS, &words, &known).ok().unwrap();
            position.finish(&known).unwrap_or_else(|wrong| panic!("{line}: {wrong:?}")).1.path.join(" ")
        };
        for verb in ["delete", "deactivate", "show"] {
            assert_eq!(path(&format!("{verb} int wan0 un 1")), "interfaces wan0 unit 1");
            assert_eq!(path(&format!("{verb} int wan")), "interfaces wan");
        }
        assert_eq!(
            path("delete sec zones sec trust int wan0.10"),
            "security zones security-zone trust interfaces wan0.10",
            "which the daemon does not find"
        );
        assert_eq!(
            path("rename interfaces wan0 unit 1 to unit 2"),
            "interfaces wan0 unit 1 to unit 2",
            "nor is what gets another name"
        );
        assert_eq!(path("copy interfaces wan0 unit 1 to unit 2"), "interfaces wan0 unit 1 to unit 2");
    }

    #[test]
    fn wrong_statements_are_found_before_they_are_sent() {
        assert!(matches!(read("set bananas"), Err(Wrong::Unknown(_))));
        assert!(matches!(read("set s"), Err(Wrong::Ambiguous(_))));
        assert!(matches!(read("set"), Err(Wrong::Short(_))));
        assert!(matches!(read("set security zones bananas"), Err(Wrong::Unknown(_))));
    }

    #[test]
    fn run_leads_to_the_other_table() {
        assert_eq!(read("run sh sec fl se").unwrap().0, "show security flow session");
        assert!(matches!(read("run"), Err(Wrong::Short(_))));
        assert!(matches!(read("run bananas"), Err(Wrong::Unknown(_))));
    }

    #[test]
    fn commit_takes_what_it_is_told() {
        let given = |line: &str| {
            let words = Line::read(line).parts.remove(0);
            Position::of(COMMANDS, COMMANDS, &words, &Nothing).ok().unwrap().finish(&Nothing).ok().unwrap().1
        };
        let commit = given("commit conf 5 and-quit comment \"new office\"");
        assert!(commit.has("confirmed") && commit.has("and-quit"));
        assert_eq!(
            (commit.number("minutes"), commit.get("comment").as_deref()),
            (Some(5), Some("new office"))
        );
        assert!(given("commit check").has("check"));
    }
}
