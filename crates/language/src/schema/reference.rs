//! Completion and the configuration reference, printed from the schema.

use std::fmt::Write;

use super::kind::Choices;
use super::{Body, Cursor, Key, Kind, ROOT, Statement};

/// What may follow `path`: a word, or a `<placeholder>` for a value, each with help.
pub fn complete(path: &[&str]) -> Vec<(String, String)> {
    let cursor = path.iter().fold(Cursor::Block(&ROOT), |cursor, word| cursor.step(word));
    match cursor {
        Cursor::Block(block) => block.children().iter().flat_map(begins).collect(),
        Cursor::Key(statement, index) => match &statement.keys[index] {
            Key::Value(kind) => values(kind, statement.help),
            Key::Word(word) => vec![((*word).to_owned(), statement.help.to_owned())],
        },
        Cursor::Value(statement) => match &statement.body {
            Body::Value(kind) | Body::List(kind) => values(kind, statement.help),
            Body::Block(_) | Body::Flag => Vec::new(),
        },
        Cursor::Done | Cursor::Unknown => Vec::new(),
    }
}

fn begins(statement: &'static Statement) -> Vec<(String, String)> {
    match (statement.name, statement.keys.first()) {
        ("", Some(Key::Value(kind))) => values(kind, statement.help),
        (name, _) => vec![(name.to_owned(), statement.help.to_owned())],
    }
}

fn values(kind: &Kind, help: &str) -> Vec<(String, String)> {
    match kind.choices() {
        [] => vec![(kind.placeholder(), help.to_owned())],
        choices => choices.iter().map(|(name, help)| ((*name).to_owned(), (*help).to_owned())).collect(),
    }
}

/// The reference of every statement, as Markdown.
pub fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    for section in ROOT.children() {
        match section.name {
            "security" => {
                for part in section.children() {
                    write_section(&mut out, &format!("security {}", part.name), part);
                }
            }
            name => write_section(&mut out, name, section),
        }
    }
    out.push_str("\n## Predefined applications\n\n| Name | Matches |\n|---|---|\n");
    for (name, terms) in crate::predefined::PREDEFINED {
        let terms: Vec<String> = terms.iter().map(describe_service).collect();
        let _ = writeln!(out, "| `{name}` | {} |", terms.join(", "));
    }
    for (name, members) in crate::predefined::SETS {
        let members: Vec<String> = members.iter().map(|member| format!("`{member}`")).collect();
        let _ = writeln!(out, "| `{name}` | the set of {} |", members.join(", "));
    }
    out.push_str(UNSUPPORTED);
    write_unsupported(&mut out, "", &ROOT);
    out
}

const INTRODUCTION: &str = "\
# Configuration reference

<!-- Printed from the schema by `schema::markdown()`; `UPDATE=1 cargo test -p sluice-language` writes it anew. -->

The language is that of Junos. A configuration is hierarchical text, `set` commands, or a mix of both: what stands
later is merged into what stands before. `#` begins a comment that ends with its line, `/* */` encloses one. Words with
spaces or punctuation stand in double quotes. `[ a b ]` is a list. `inactive:` in front of a statement, or
`deactivate` with its path, keeps it in the text and takes it out of effect. `delete` takes a statement out (where there is
none, that is a warning), and `insert PATH before NAME` or `after NAME` changes the order of statements of one kind.
`rename A to B`, `copy A to B`, `annotate A \"comment\"` and `replace pattern REGEX with TEXT` do what they do in configuration mode, and
`edit PATH`, `up [N]`, `top` and `exit` move the place where commands are done; `top COMMAND` does one at the top. `replace:`
in front of a statement takes out first what an earlier text has below it, `delete:` takes the statement out. A statement that
is not listed here is refused, never ignored; `sluice check FILE` names the line, the column and what would be valid there.
A router's configuration is brought over by `sluice import` ([OPERATE.md](OPERATE.md)).

## groups

```
groups { <group> { any statements } }
apply-groups [ <group> ... ];
apply-groups-except [ <group> ... ];
```

`apply-groups` may stand in every block. The block then has what the named groups hold at the same place, counted from
the top level. Names in a group may be patterns in angle brackets: `<*>` is every name, `<wan?>` one more character,
`\"<lan[0-3]>\"` one of these (quoted, because of the brackets), `<ge-*>` every name that begins so. Keywords and values
are never patterns.

What stands in the configuration itself wins over what is inherited, a group applied further in over one applied further
out, and of several groups in one list the first. Lists join. Of statements that stand for each other (`permit` and `deny`,
`next-hop` and `discard`) one that is there keeps the others out. Entries that a group adds stand behind those that are
there: a policy of a group is tried last. `apply-groups-except` keeps groups that are applied further up away from a block
and all below it. Groups hold no groups. Errors in inherited statements name the line of the group and that of the
`apply-groups`. `sluice show configuration --display inheritance` writes out what is in effect and where it comes from.
";

const UNSUPPORTED: &str = "
## Junos statements that are refused

Sluice knows these by name and refuses them as not supported.

";

fn write_section(out: &mut String, title: &str, section: &'static Statement) {
    let _ = writeln!(out, "\n## {title}\n\n{}\n\n```", section.help);
    write_syntax(out, section, 0);
    out.push_str("```\n\n| Statement | Value | Meaning |\n|---|---|---|\n");
    write_rows(out, "", section, &mut vec![]);
}

/// The grammar, in the form it is written in.
fn write_syntax(out: &mut String, statement: &Statement, level: usize) {
    let indent = "    ".repeat(level);
    let header = header(statement);
    match &statement.body {
        Body::Block([]) | Body::Flag => drop(writeln!(out, "{indent}{header};")),
        Body::Value(kind) => drop(writeln!(out, "{indent}{header} {};", kind.placeholder())),
        Body::List(kind) => drop(writeln!(out, "{indent}{header} [ {} ... ];", kind.placeholder())),
        Body::Block(children) => {
            let _ = writeln!(out, "{indent}{header} {{");
            for child in *children {
                write_syntax(out, child, level + 1);
            }
            let _ = writeln!(out, "{indent}}}");
        }
    }
}

fn header(statement: &Statement) -> String {
    let keys = statement.keys.iter().map(|key| match key {
        Key::Value(kind) => kind.placeholder(),
        Key::Word(word) => (*word).to_owned(),
    });
    let name = Some(statement.name.to_owned()).filter(|name| !name.is_empty());
    name.into_iter().chain(keys).collect::<Vec<_>>().join(" ")
}

/// Choices that the section has told already are not told again.
fn write_rows(out: &mut String, path: &str, block: &Statement, told: &mut Vec<Choices>) {
    for child in block.children() {
        let (path, choices) = (format!("{path}{}", header(child)), choices(child));
        let is_told = !choices.is_empty() && told.contains(&choices);
        let value = match kind(child) {
            Some(kind) if is_told => format!("`{}`, as above", kind.placeholder()),
            _ => value(child),
        };
        let _ = writeln!(out, "| `{path}` | {value} | {} |", child.help);
        if !is_told {
            told.push(choices);
            for (name, help) in choices {
                let _ = writeln!(out, "| | `{name}` | {help} |");
            }
        }
        write_rows(out, &format!("{path} "), child, told);
    }
}

/// The kind an operator fills in: the value, else the last key.
fn kind(statement: &Statement) -> Option<&Kind> {
    match &statement.body {
        Body::Value(kind) | Body::List(kind) => Some(kind),
        Body::Block(_) | Body::Flag => statement.keys.iter().rev().find_map(|key| match key {
            Key::Value(kind) => Some(kind),
            Key::Word(_) => None,
        }),
    }
}

fn value(statement: &Statement) -> String {
    match kind(statement) {
        Some(Kind::Choice(..)) => "one of:".to_owned(),
        Some(kind) => kind.describe(),
        None => String::new(),
    }
}

fn choices(statement: &Statement) -> Choices {
    kind(statement).map_or(&[], Kind::choices)
}

fn describe_service(service: &crate::config::Service) -> String {
    let name = match service.protocol {
        Some(1) => "ICMP".to_owned(),
        Some(6) => "TCP".to_owned(),
        Some(17) => "UDP".to_owned(),
        Some(58) => "ICMPv6".to_owned(),
        Some(number) => format!("IP protocol {number}"),
        None => "anything".to_owned(),
    };
    let range =
        |(low, high): (u16, u16)| if low == high { low.to_string() } else { format!("{low} to {high}") };
    match (service.icmp_type, service.icmp_code) {
        (Some((kind, _)), Some((code, _))) => format!("{name} type {kind} code {code}"),
        (Some((kind, _)), None) => format!("{name} type {kind}"),
        _ if service.destination_port == (0, 65535) => name,
        _ => format!("{name} {}", range(service.destination_port)),
    }
}

fn write_unsupported(out: &mut String, path: &str, block: &Statement) {
    if !block.unsupported.is_empty() {
        let place = if path.is_empty() { "At the top level".to_owned() } else { format!("In `{path}`") };
        let names: Vec<String> = block.unsupported.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(out, "- {place}: {}.", names.join(", "));
    }
    for child in block.children() {
        let path = format!("{path} {}", header(child));
        write_unsupported(out, path.trim_start(), child);
    }
}
