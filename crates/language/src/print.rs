//! Prints a tree as hierarchical text and as `set` commands. Reading what is printed gives the same tree.

use crate::commands::{MARKS, is_command};
use crate::lexer::write_word;
use crate::schema::{Body, Cursor};
use crate::tree::{NodeId, TOP, Tree};

const INDENT: &str = "    ";

impl Tree {
    /// Hierarchical text, four spaces a level.
    pub fn to_text(&self) -> String {
        self.print(TOP, Remarks::None)
    }

    /// The same, with the comments that stood before statements where they were read.
    pub fn to_commented_text(&self) -> String {
        self.print(TOP, Remarks::Comments)
    }

    /// What stands below a word; a statement without a block as a whole.
    pub(crate) fn print(&self, id: NodeId, remarks: Remarks) -> String {
        let mut printer = Printer { tree: self, out: String::new(), header: Vec::new(), remarks };
        match self.node(id).cursor {
            _ if id == TOP => printer.statements(&self.node(TOP).children, 0),
            Cursor::Block(_) => printer.statements(&self.node(id).children, 0),
            _ => printer.whole(id),
        }
        printer.out
    }

    /// A statement with the words that begin it.
    pub(crate) fn print_statement(&self, id: NodeId, remarks: Remarks) -> String {
        let mut printer = Printer { tree: self, out: String::new(), header: Vec::new(), remarks };
        printer.whole(id);
        printer.out
    }

    /// One `set` line a leaf, then one `deactivate` line for every inactive statement.
    pub fn to_set(&self) -> String {
        self.set_lines(TOP)
    }

    /// The same for a word and what stands below it.
    pub(crate) fn set_lines(&self, id: NodeId) -> String {
        let mut lines = SetLines { tree: self, out: String::new(), deactivated: Vec::new() };
        if id == TOP {
            lines.below(TOP)
        } else {
            lines.statement(id)
        }
        for id in std::mem::take(&mut lines.deactivated) {
            lines.line("deactivate", id, None);
        }
        lines.out
    }

    /// Printed on the line of its parent.
    fn is_attached(&self, parent: NodeId, child: NodeId) -> bool {
        let above = self.node(parent);
        match above.cursor {
            Cursor::Value(_) => true,
            Cursor::Key(..) => !above.inactive,
            Cursor::Unknown => self.node(child).joined && !above.inactive,
            Cursor::Block(statement) => {
                // a mark before a block without keys would be read as its leaf's
                let is_marked = above.inactive && statement.keys.is_empty();
                let is_alone = above.children.len() == 1 && !is_marked;
                statement.one_line && is_alone && self.is_plain_leaf(child)
            }
            Cursor::Done => false,
        }
    }

    /// One leaf and nothing else, active.
    fn is_plain_leaf(&self, id: NodeId) -> bool {
        let node = self.node(id);
        match node.cursor {
            Cursor::Done => !node.inactive,
            Cursor::Value(_) => !self.has_inactive_below(id),
            Cursor::Block(_) | Cursor::Key(..) | Cursor::Unknown => false,
        }
    }

    /// Members of `[ a b ]`.
    fn is_member(&self, parent: NodeId, child: NodeId) -> bool {
        let listable = match self.node(parent).cursor {
            Cursor::Value(statement) => matches!(statement.body, Body::List(_)),
            Cursor::Unknown => parent != TOP,
            Cursor::Block(_) | Cursor::Key(..) | Cursor::Done => false,
        };
        let node = self.node(child);
        listable && node.children.is_empty() && !node.inactive && self.is_attached(parent, child)
    }
}

struct SetLines<'a> {
    tree: &'a Tree,
    out: String,
    deactivated: Vec<NodeId>,
}

impl SetLines<'_> {
    /// What stands below a statement. A `set` takes out the active one that its statement excludes, so that inactive ones
    /// of a choice come first, are deactivated at once and then moved to their places.
    fn below(&mut self, id: NodeId) {
        let tree = self.tree;
        let children = &tree.node(id).children;
        let spare = tree.spares(id);
        for &child in &spare {
            let before = self.deactivated.len();
            self.statement(child);
            for inactive in self.deactivated.split_off(before) {
                self.line("deactivate", inactive, None);
            }
        }
        children.iter().filter(|child| !spare.contains(child)).for_each(|&child| self.statement(child));
        for pair in children.windows(2).filter(|pair| spare.contains(&pair[1])) {
            self.line("insert", pair[1], Some(pair[0]));
        }
    }

    fn statement(&mut self, id: NodeId) {
        let node = self.tree.node(id);
        if node.inactive {
            self.deactivated.push(id);
        }
        if node.children.is_empty() {
            self.line("set", id, None);
        }
        self.below(id);
    }

    fn line(&mut self, verb: &str, id: NodeId, after: Option<NodeId>) {
        self.out.push_str(verb);
        for word in self.tree.path(id) {
            self.out.push(' ');
            write_word(&mut self.out, word, false);
        }
        if let Some(after) = after {
            self.out.push_str(" after ");
            write_word(&mut self.out, &self.tree.node(after).word, false);
        }
        self.out.push('\n');
    }
}

/// What is printed between statements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remarks {
    None,
    Comments,
    /// Which group a statement comes from.
    Inherited,
}

struct Printer<'a> {
    tree: &'a Tree,
    out: String,
    /// Words of the statement being printed, so far.
    header: Vec<NodeId>,
    remarks: Remarks,
}

impl Printer<'_> {
    /// A statement with the words of its line above it.
    fn whole(&mut self, id: NodeId) {
        let mut header = self.tree.header_of(id);
        header.pop();
        self.header = header;
        self.statement(id, 0);
    }

    fn statements(&mut self, ids: &[NodeId], level: usize) {
        for &id in ids {
            self.statement(id, level);
        }
    }

    fn statement(&mut self, id: NodeId, level: usize) {
        self.header.push(id);
        let children = &self.tree.node(id).children;
        if children.is_empty() {
            self.write_header(level);
            self.out.push_str(";\n");
        }
        let mut rest = children.as_slice();
        while let Some(&first) = rest.first() {
            let run = |test: &dyn Fn(NodeId) -> bool| rest.iter().take_while(|&&child| test(child)).count();
            let members = run(&|child| self.tree.is_member(id, child));
            let inside = run(&|child| !self.tree.is_attached(id, child));
            let taken = if members > 1 {
                self.list(&rest[..members], level);
                members
            } else if inside > 0 {
                self.nested(&rest[..inside], level);
                inside
            } else {
                self.statement(first, level);
                1
            };
            rest = &rest[taken..];
        }
        self.header.pop();
    }

    fn list(&mut self, members: &[NodeId], level: usize) {
        if !self.header.iter().any(|&id| self.tree.node(id).applied.is_some()) {
            members.iter().for_each(|&member| self.annotate(member, level));
        }
        self.write_header(level);
        self.out.push_str(" [");
        for &member in members {
            self.out.push(' ');
            write_word(&mut self.out, &self.tree.node(member).word, false);
        }
        self.out.push_str(" ];\n");
    }

    fn nested(&mut self, children: &[NodeId], level: usize) {
        self.write_header(level);
        self.out.push_str(" {\n");
        let header = std::mem::take(&mut self.header);
        self.statements(children, level + 1);
        self.header = header;
        self.indent(level);
        self.out.push_str("}\n");
    }

    fn indent(&mut self, level: usize) {
        for _ in 0..level {
            self.out.push_str(INDENT);
        }
    }

    /// `## 'WORD' was inherited from group 'GROUP'`, as Junos says it.
    fn annotate(&mut self, id: NodeId, level: usize) {
        if let Some(group) = self.tree.group_of(id).filter(|_| self.remarks == Remarks::Inherited) {
            let word = &self.tree.node(id).word;
            self.indent(level);
            // Words and names may hold anything but must not end the comment.
            let line = format!("## '{word}' was inherited from group '{group}'").replace(['\n', '\r'], " ");
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn comments(&mut self, level: usize) {
        if self.remarks != Remarks::Comments {
            return;
        }
        let tree = self.tree;
        let comments: Vec<&str> =
            self.header.iter().filter_map(|&id| tree.node(id).comment.as_deref()).collect();
        for line in comments.iter().flat_map(|comment| comment.lines()) {
            self.indent(level);
            self.out.push_str(line.trim_start());
            self.out.push('\n');
        }
    }

    fn write_header(&mut self, level: usize) {
        if let Some(&id) = self.header.iter().find(|&&id| self.tree.node(id).applied.is_some()) {
            self.annotate(id, level);
        }
        self.comments(level);
        self.indent(level);
        if self.header.iter().any(|&id| self.tree.node(id).inactive) {
            self.out.push_str("inactive: ");
        }
        for (index, &id) in self.header.iter().enumerate() {
            if index > 0 {
                self.out.push(' ');
            }
            let word = self.tree.node(id).word.as_str();
            write_word(&mut self.out, word, index == 0 && is_special(word));
        }
    }
}

/// At the start of a statement these would not be read as plain words.
fn is_special(word: &str) -> bool {
    MARKS.contains(&word) || is_command(word)
}
