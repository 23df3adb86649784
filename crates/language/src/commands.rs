//! Words that are no statements: commands of the editor, and marks.

/// Commands of `set` form that are understood.
pub(crate) const COMMANDS: &[&str] = &["set", "delete", "deactivate", "activate", "insert"];
/// Others of configuration mode that change what was written before.
pub(crate) const EDITOR_COMMANDS: &[&str] = &["annotate", "copy", "rename", "replace"];
/// Commands of configuration mode that change where others are done.
pub(crate) const MOVES: &[&str] = &["edit", "exit", "quit", "top", "up"];
/// Commands of the Junos editor that are not followed.
pub(crate) const REFUSED_COMMANDS: &[&str] = &["protect", "unprotect", "wildcard"];

/// A word that begins a command, if others follow it on its line.
pub(crate) fn is_command(word: &str) -> bool {
    [COMMANDS, EDITOR_COMMANDS, MOVES, REFUSED_COMMANDS].iter().any(|commands| commands.contains(&word))
}
/// Marks in front of a hierarchical statement.
pub(crate) const MARKS: &[&str] = &["inactive:", "active:", "protect:", "replace:", "delete:"];
