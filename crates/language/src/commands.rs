//! Words that are no statements: commands of the editor, and marks.

/// Commands of `set` form that are understood.
pub(crate) const COMMANDS: &[&str] = &["set", "delete", "deactivate", "activate", "insert"];
/// Commands of the Junos editor that make no sense in a file.
pub(crate) const EDITOR_COMMANDS: &[&str] =
    &["annotate", "copy", "edit", "protect", "rename", "replace", "top", "unprotect", "up", "wildcard"];
/// Marks in front of a hierarchical statement.
pub(crate) const MARKS: &[&str] = &["inactive:", "active:", "protect:", "replace:", "delete:"];
