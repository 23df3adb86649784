//! Compares a tree with the schema: every active statement is listed there and has the words it needs.

use crate::error::{Report, closest, one_of};
use crate::groups::is_pattern;
use crate::schema::{Body, Cursor, GROUPS, Key, Kind, Statement, reason};
use crate::tree::{NodeId, TOP, Tree};

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    // Inside of groups, names may be patterns.
    let mut stack = vec![(TOP, false)];
    while let Some((id, in_group)) = stack.pop() {
        let node = tree.node(id);
        match node.cursor {
            Cursor::Key(statement, index) if node.children.is_empty() => {
                missing_key(tree, report, id, statement, index);
            }
            Cursor::Value(statement) if node.children.is_empty() => {
                missing_value(tree, report, id, statement)
            }
            _ => {}
        }
        for &child in node.children.iter().rev() {
            let pattern = in_group && is_pattern(&tree.node(child).word) && is_name(tree, id, child);
            if !tree.node(child).inactive && (pattern || check_word(tree, report, id, child)) {
                let begins_groups =
                    matches!(tree.node(child).cursor, Cursor::Block(block) if std::ptr::eq(block, &GROUPS));
                stack.push((child, in_group || begins_groups));
            }
        }
    }
}

/// Whether the word is what names an entry.
fn is_name(tree: &Tree, parent: NodeId, child: NodeId) -> bool {
    match tree.node(parent).cursor {
        Cursor::Block(block) => {
            !std::ptr::eq(block, &GROUPS) && anonymous_key(block, &tree.node(child).word).is_some()
        }
        Cursor::Key(statement, index) => matches!(statement.keys[index], Key::Value(_)),
        _ => false,
    }
}

/// Checks one word against what its parent expects; false when what follows it cannot be judged.
fn check_word(tree: &Tree, report: &mut Report, parent: NodeId, child: NodeId) -> bool {
    let word = tree.node(child).word.as_str();
    match (tree.node(parent).cursor, tree.node(child).cursor) {
        (Cursor::Block(block), Cursor::Unknown) => {
            unknown_statement(tree, report, parent, child, block);
            false
        }
        (Cursor::Block(block), _) => match anonymous_key(block, word) {
            Some(kind) => check_value(tree, report, parent, child, kind),
            None => true,
        },
        (Cursor::Key(statement, index), _) => match &statement.keys[index] {
            Key::Value(kind) if statement.unsupported.contains(&word) => {
                let message = format!("`{word}` in `{}` is not supported by Sluice", context(tree, parent));
                report.error_help(&tree.location(child), message, format!("expected {}", kind.describe()));
                false
            }
            Key::Value(kind) => check_value(tree, report, parent, child, kind),
            Key::Word(expected) if *expected == word => true,
            Key::Word(expected) => {
                let message = format!("unexpected `{word}` in `{}`", context(tree, parent));
                report.error_help(&tree.location(child), message, format!("expected `{expected}`"));
                false
            }
        },
        (Cursor::Value(statement), _) => match &statement.body {
            Body::Value(kind) | Body::List(kind) => check_value(tree, report, parent, child, kind),
            _ => true,
        },
        // Refused where it began; the parser gives complete statements no children.
        (Cursor::Done | Cursor::Unknown, _) => false,
    }
}

/// The kind of a statement that begins with its key, if `word` begins one.
fn anonymous_key(block: &'static Statement, word: &str) -> Option<&'static Kind> {
    let statement = crate::schema::lookup(block, word)?;
    match statement.keys.first() {
        Some(Key::Value(kind)) if statement.name.is_empty() => Some(kind),
        _ => None,
    }
}

fn check_value(tree: &Tree, report: &mut Report, parent: NodeId, child: NodeId, kind: &Kind) -> bool {
    let word = &tree.node(child).word;
    let Err(why) = kind.check(word) else { return true };
    let message = format!("bad value `{word}` in `{}`: {why}", context(tree, parent));
    report.error_help(&tree.location(child), message, format!("expected {}", kind.describe()));
    // What stands below is still checked, so that one slip does not hide the next.
    // Below a wrong choice nothing is known.
    kind.choices().is_empty()
}

fn unknown_statement(
    tree: &Tree,
    report: &mut Report,
    parent: NodeId,
    child: NodeId,
    block: &'static Statement,
) {
    let word = tree.node(child).word.as_str();
    let names: Vec<String> = block.children().iter().map(Statement::placeholder).collect();
    let context = match parent {
        TOP => "at the top level".to_owned(),
        _ => format!("in `{}`", context(tree, parent)),
    };
    let expected = match names.as_slice() {
        [] => "nothing may stand there".to_owned(),
        [name] => format!("expected: {name}"),
        names => format!("expected one of: {}", one_of(names)),
    };
    let at = tree.location(child);
    if block.unsupported.contains(&word) {
        let help = reason(word).map_or(expected, str::to_owned);
        report.error_help(&at, format!("`{word}` {context} is not supported by Sluice"), help);
        return;
    }
    let message = format!("unknown statement `{word}` {context}");
    let help = match closest(word, block.children().iter().map(|child| child.name)) {
        Some(name) => format!("did you mean `{name}`? {expected}"),
        None => expected,
    };
    report.error_help(&at, message, help);
}

fn missing_key(tree: &Tree, report: &mut Report, id: NodeId, statement: &Statement, index: usize) {
    let message = format!("`{}` is incomplete", context(tree, id));
    let expected = match &statement.keys[index] {
        Key::Value(kind) => format!("it should go on with {}", kind.describe()),
        Key::Word(word) => format!("it should go on with `{word}`"),
    };
    report.error_help(&tree.location(id), message, expected);
}

fn missing_value(tree: &Tree, report: &mut Report, id: NodeId, statement: &Statement) {
    let message = format!("`{}` has no value", context(tree, id));
    match &statement.body {
        Body::Value(kind) | Body::List(kind) => {
            report.error_help(&tree.location(id), message, format!("expected {}", kind.describe()));
        }
        _ => report.error(&tree.location(id), message),
    }
}

/// The path of a statement, as it is named in messages.
pub(crate) fn context(tree: &Tree, id: NodeId) -> String {
    tree.path(id).join(" ")
}
