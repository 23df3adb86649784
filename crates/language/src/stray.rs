//! Lines that stand around a configuration when it was copied from a terminal: prompts, banners, what a pager shows.
//!
//! Left in the text they would be read as words of the next statement, and the error would stand far below them.

use std::borrow::Cow;

use crate::commands::{MOVES, is_command as is_verb};

/// A line that is no statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stray {
    pub line: u32,
    pub column: u32,
    /// What it is, to go on with "this line is".
    pub what: &'static str,
    /// Statements may be missing where it stands, so that the text is not the whole of what it was copied from.
    pub hides: bool,
}

const PROMPT: &str = "the prompt of a router";
const DIFFERENCE: &str = "part of a difference (`show | compare`)";
const OMISSION: &str = "a mark for text that was left out";
const SESSION: &str = "a command, or its answer, of a terminal session";

/// The text without its stray lines; what remains stands where it stood.
pub(crate) fn take_out(text: &str) -> (Cow<'_, str>, Vec<Stray>) {
    if let Some(stray) = other_format(text) {
        return (Cow::Borrowed(""), vec![stray]);
    }
    let is_difference = text.lines().any(|line| line.trim_start().starts_with("[edit"));
    let moves = text.lines().any(goes_somewhere);
    let mut strays = Vec::new();
    let mut kept = String::new();
    let mut in_comment = false;
    let mut in_quotes = false;
    let mut copied = 0;
    let mut start = 0;
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let body = line.trim_end_matches(['\n', '\r']);
        let skips = in_comment || in_quotes || moves && is_move(body);
        let found = if skips { None } else { classify(body, is_difference, moves) };
        in_quotes ^= !in_comment && found.is_none() && ends_in_quotes(body);
        if let Some((what, hides, rest)) = found {
            let column =
                1 + body.chars().take_while(|c| c.is_whitespace() || *c == '\u{feff}').count() as u32;
            strays.push(Stray { line: number, column, what, hides });
            kept.push_str(&text[copied..start]);
            // What is kept of the line stays in its columns.
            let before = body.len() - rest.len();
            kept.extend(body[..before].chars().map(|_| ' '));
            kept.push_str(rest);
            copied = start + body.len();
        }
        in_comment = ends_in_comment(body, in_comment);
        start += line.len();
    }
    if strays.is_empty() {
        return (Cow::Borrowed(text), strays);
    }
    kept.push_str(&text[copied..]);
    (Cow::Owned(kept), strays)
}

/// Texts that are no Junos text at all.
fn other_format(text: &str) -> Option<Stray> {
    let (number, line) = (1..).zip(text.lines()).find(|(_, line)| !line.trim().is_empty())?;
    let line = line.trim_start_matches('\u{feff}').trim();
    let json = line.starts_with('{') && text.lines().nth(number as usize).is_some_and(is_json_member)
        || line.starts_with("{\"");
    let what = if ["<?xml", "<configuration", "<rpc-reply"].iter().any(|begin| line.starts_with(begin)) {
        "XML (`display xml`)"
    } else if json {
        "JSON (`display json`)"
    } else {
        return None;
    };
    Some(Stray { line: number, column: 1, what, hides: true })
}

fn is_json_member(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('"') && line.contains("\":") || line.starts_with('"') && line.contains("\" :")
}

/// Whether the next line begins inside of a comment.
fn ends_in_comment(line: &str, mut inside: bool) -> bool {
    let mut rest = line;
    loop {
        let mark = if inside { "*/" } else { "/*" };
        let Some(at) = rest.find(mark) else { return inside };
        let before = &rest[..at];
        let begins = before.is_empty() || before.ends_with([' ', '\t', ';', '{', '}']);
        let quoted = before.matches('"').count() % 2 == 1;
        inside = if inside { false } else { begins && !quoted };
        rest = &rest[at + 2..];
    }
}

/// A quoted text begins or ends on the line, and not both.
fn ends_in_quotes(line: &str) -> bool {
    let mut escaped = false;
    let mut inside = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' if !escaped => inside = !inside,
            '#' if !inside && line[..at].trim_end().len() < at || at == 0 && c == '#' => break,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    inside
}

type Found<'a> = (&'static str, bool, &'a str);

/// What a line is if it is no statement, whether it hides some, and what of it is one.
fn classify(line: &str, is_difference: bool, moves: bool) -> Option<Found<'_>> {
    let text = line.trim_start_matches('\u{feff}').trim();
    let end = &line[line.len()..];
    if text.is_empty() || text.starts_with('#') || text.starts_with("/*") {
        return None;
    }
    if let Some(rest) = pager(line.trim_start()) {
        return Some(("what a pager shows between two pages", false, statement_of(rest)));
    }
    if let Some(rest) = node_state(text) {
        let is_alone = rest.is_empty() || is_edit_banner(rest);
        let found = if is_alone { None } else { classify(rest, is_difference, moves) };
        return is_alone
            .then_some(("what a router shows before its prompt", false, end))
            .or(found.map(|(what, hides, _)| (what, hides, end)));
    }
    if is_edit_banner(text) {
        return Some(("what a router shows before its prompt", false, end));
    }
    if is_difference && text.starts_with(['+', '-']) && !text.starts_with("---") {
        return Some((DIFFERENCE, true, end));
    }
    if text.ends_with([';', '{', '}']) {
        return None;
    }
    if let Some(rest) = prompt(line) {
        let is_kept = is_command(rest) || moves && is_move(rest);
        return Some((PROMPT, false, if is_kept { rest } else { end }));
    }
    if is_omission(text) {
        return Some((OMISSION, true, end));
    }
    let is_rule = text.len() >= 3 && ['-', '=', '*', '_', '~'].iter().any(|c| text.chars().all(|d| d == *c));
    if is_rule || text.starts_with("```") {
        return Some(("a rule between parts of a document", false, end));
    }
    if text.starts_with('!') || text.starts_with("//") {
        return Some(("a comment of another language (here `#` begins one)", false, end));
    }
    is_session(text).then_some((SESSION, false, end))
}

/// Behind `---(more 12%)---` or `--- more ---`.
fn pager(text: &str) -> Option<&str> {
    let inner = text.strip_prefix("---")?.trim_start();
    let inner = inner.strip_prefix("(more").or_else(|| inner.strip_prefix("more"))?;
    let at = inner.find("---")?;
    let percent = inner[..at].trim().trim_end_matches(')').trim();
    let is_percent = percent.trim_end_matches('%').chars().all(|c| c.is_ascii_digit());
    is_percent.then(|| inner[at..].trim_start_matches('-'))
}

/// What follows a pager's line when it was overwritten in place.
fn statement_of(rest: &str) -> &str {
    rest.trim_start_matches(|c: char| c.is_whitespace() || c.is_control())
}

/// Behind `{primary:node0}`.
fn node_state(text: &str) -> Option<&str> {
    const STATES: &[&str] = &[
        "primary",
        "secondary",
        "master",
        "backup",
        "linecard",
        "hold",
        "secondary-hold",
        "ineligible",
        "disabled",
        "lost",
    ];
    let (inside, rest) = text.strip_prefix('{')?.split_once('}')?;
    let state = inside.split(':').next().unwrap_or(inside);
    STATES.contains(&state).then(|| rest.trim())
}

fn is_edit_banner(text: &str) -> bool {
    let inside = text.strip_prefix("[edit").and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|inside| inside.is_empty() || inside.starts_with(' '))
}

/// Behind `user@host>`.
fn prompt(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '~' | '/');
    let end = text.find(|c: char| !valid(c))?;
    let name = &text[..end];
    let is_name = name.find('@').is_some_and(|at| at > 0 && at + 1 < name.len());
    let rest = text[end..].strip_prefix(['>', '#', '%', '$'])?;
    (is_name && (rest.is_empty() || rest.starts_with([' ', '\t']))).then(|| rest.trim())
}

fn is_command(rest: &str) -> bool {
    let mut words = rest.split_whitespace();
    words.next().is_some_and(is_verb) && words.next().is_some()
}

/// `edit PATH`, perhaps behind a prompt: what follows is meant below it, and `top` and the like have a meaning.
fn goes_somewhere(line: &str) -> bool {
    let command = prompt(line).unwrap_or_else(|| line.trim());
    command.starts_with("edit ") && !command.ends_with([';', '{', '}'])
}

/// `top` and the like, alone; `edit` alone goes nowhere.
fn is_move(line: &str) -> bool {
    line.trim() != "edit" && MOVES.contains(&line.trim())
}

fn is_omission(text: &str) -> bool {
    let bare = text.trim_matches(|c| matches!(c, '<' | '>' | '[' | ']' | '(' | ')' | '-' | '*' | ' '));
    let lower = bare.to_ascii_lowercase();
    matches!(bare, "..." | "…" | "....")
        || matches!(lower.as_str(), "snip" | "output omitted" | "truncated" | "omitted")
}

/// Commands that only begin a statement elsewhere, and what a router says of itself.
fn is_session(text: &str) -> bool {
    const ALONE: &[&str] =
        &["cli", "commit", "conf", "configure", "edit", "end", "exit", "quit", "rollback", "top", "up"];
    const FIRST: &[&[&str]] = &[
        &["show"],
        &["commit"],
        &["configure"],
        &["run"],
        &["rollback"],
        &["load", "merge"],
        &["load", "set"],
        &["load", "override"],
        &["load", "replace"],
        &["load", "patch"],
        &["load", "complete"],
        &["load", "factory-default"],
    ];
    const BEGINS: &[&str] = &[
        "--- JUNOS",
        "Last login:",
        "Entering configuration mode",
        "Exiting configuration mode",
        "Exiting cli",
        "Users currently editing",
        "The configuration has been",
        "configuration check succeeds",
        "warning:",
        "error:",
        "Connected to ",
        "Escape character is",
        "Trying ",
        "Password:",
        "login:",
        "spawn ssh",
        "Warning: Permanently added",
        "JUNOS ",
    ];
    let words: Vec<&str> = text.split_whitespace().collect();
    ALONE.contains(&text)
        || BEGINS.iter().any(|begin| text.starts_with(begin))
        || FIRST
            .iter()
            .any(|first| words.len() > first.len() - usize::from(first.len() > 1) && words.starts_with(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_session_are_known() {
        for (line, kept) in [
            ("root@srx-1> show configuration | no-more", ""),
            ("root@srx# set system host-name a", "set system host-name a"),
            ("{primary:node0}", ""),
            ("{primary:node0}[edit]", ""),
            ("{master:0}root@sw> show configuration", ""),
            ("[edit security zones]", ""),
            ("---(more 12%)---", ""),
            ("--- more ---   a b;", "a b;"),
            ("--- JUNOS 15.1X49-D40.6 built 2016", ""),
            ("Entering configuration mode", ""),
            ("commit and-quit", ""),
            ("```", ""),
            ("! old", ""),
            ("   ...", ""),
        ] {
            assert_eq!(classify(line, false, false).map(|found| found.2), Some(kept), "{line}");
        }
    }

    #[test]
    fn statements_are_left_alone() {
        for line in [
            "system {",
            "}",
            "    show;",
            "commit {",
            "set system commit",
            "user@host> a;",
            "--description;",
            "# ...",
            "members [ a b ];",
            "delete: a;",
            "exit-code",
            "{",
            "[ a ]",
            "top-level",
            "\"...\"",
        ] {
            assert_eq!(classify(line, false, false), None, "{line}");
        }
    }

    #[test]
    fn what_remains_stands_where_it_stood() {
        let (text, strays) = take_out("a@b> show\n a { /*\nc@d> x\n*/ }\n  e@f# set g h\n");
        assert_eq!(text, "         \n a { /*\nc@d> x\n*/ }\n       set g h\n");
        assert_eq!(
            strays.iter().map(|stray| (stray.line, stray.column)).collect::<Vec<_>>(),
            [(1, 1), (5, 3)]
        );
        assert!(take_out("a \"b\n****\nc@d> x\n\";\n# it's \"\n# \"\n").1.is_empty());
        assert_eq!(take_out("a \"b\";\n****\n").1.len(), 1);
        assert_eq!(take_out("<?xml version=\"1.0\"?>\n<a/>").1.len(), 1);
        assert!(take_out("{\n  \"configuration\" : {}\n}").1[0].hides);
        assert!(take_out("[edit]\n- a;\n+ b;\n").1[1].hides);
    }
}
