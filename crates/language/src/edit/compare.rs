//! What differs between two trees, in the form in which `show | compare` has it.
//!
//! ```text
//! [edit system]
//! -  host-name a;
//! +  host-name b;
//! [edit security zones security-zone left]
//! !  inactive: screen s;
//! ```
//!
//! `!` tells statements that are active or inactive from here on, and those that were moved among entries of the same kind.

use std::collections::{HashMap, HashSet};

use crate::print::Remarks;
use crate::schema::{Cursor, Key};
use crate::tree::{NodeId, TOP, Tree};

impl Tree {
    /// How this tree became `new`; nothing when both hold the same.
    pub fn compare(&self, new: &Tree) -> String {
        self.compare_at::<&str>(new, &[])
    }

    /// The same for what stands below a path.
    pub fn compare_at<S: AsRef<str>>(&self, new: &Tree, path: &[S]) -> String {
        let mut difference = Difference { old: self, new, out: String::new() };
        match (self.at(path), new.at(path)) {
            (Some(old), Some(new)) => difference.block(old, new),
            (Some(old), None) => difference.one('-', old),
            (None, Some(new)) => difference.one('+', new),
            (None, None) => {}
        }
        difference.out
    }
}

struct Difference<'a> {
    old: &'a Tree,
    new: &'a Tree,
    out: String,
}

/// A statement of a block: its words, and the last of them.
type Entry<'a> = (Vec<&'a str>, NodeId);

impl<'a> Difference<'a> {
    /// What differs right here under one heading, then what differs below.
    fn block(&mut self, old: NodeId, new: NodeId) {
        let (before, after) = (entries(self.old, old), entries(self.new, new));
        let by_words: HashMap<&[&str], NodeId> =
            before.iter().map(|(words, id)| (words.as_slice(), *id)).collect();
        let still: HashSet<&[&str]> = after.iter().map(|(words, _)| words.as_slice()).collect();
        let mut lines = String::new();
        for (_, id) in before.iter().filter(|(words, _)| !still.contains(words.as_slice())) {
            lines += &marked('-', &self.old.print_statement(*id, Remarks::Comments));
        }
        let moved = moved(&before, &after, self.new);
        let mut below = vec![];
        let mut last: Option<&Entry<'a>> = None;
        for entry in &after {
            let (words, id) = entry;
            match by_words.get(words.as_slice()) {
                None => {
                    self.show_preceding(&mut lines, last, *id);
                    lines += &marked('+', &self.new.print_statement(*id, Remarks::Comments));
                }
                Some(&was) => {
                    if moved.contains(id) {
                        self.show_preceding(&mut lines, last, *id);
                        lines += &format!("!  {}\n", self.outline(*id));
                    }
                    self.same(&mut lines, was, *id);
                    if matches!(self.new.node(*id).cursor, Cursor::Block(_)) {
                        below.push((was, *id));
                    }
                }
            }
            last = Some(entry);
        }
        self.heading(new, &lines);
        below.into_iter().for_each(|(was, id)| self.block(was, id));
    }

    /// Both have the statement, which may be active in one only or hold other values.
    fn same(&self, lines: &mut String, was: NodeId, id: NodeId) {
        let (old, new) = (self.old.node(was), self.new.node(id));
        if !matches!(new.cursor, Cursor::Block(_)) {
            let (before, after) =
                (self.old.print_statement(was, Remarks::None), self.new.print_statement(id, Remarks::None));
            if before != after {
                *lines += &marked('-', &before);
                *lines += &marked('+', &after);
            }
        } else if old.inactive != new.inactive {
            let mark = if new.inactive { "inactive" } else { "active" };
            *lines += &format!("!  {mark}: {}\n", self.outline(id).trim_start_matches("inactive: "));
        }
    }

    /// The entry before this one, where the order among entries of the same kind has a meaning.
    fn show_preceding(&self, lines: &mut String, last: Option<&Entry<'a>>, id: NodeId) {
        let is_like = |other: NodeId| self.new.node(other).parent == self.new.node(id).parent;
        if let Some((_, before)) = last.filter(|(_, before)| has_order(self.new, id) && is_like(*before)) {
            *lines += &format!("   {}\n", self.outline(*before));
        }
    }

    /// `policy p { ... }`
    fn outline(&self, id: NodeId) -> String {
        let text = self.new.print_statement(id, Remarks::None);
        match text.split_once(" {\n") {
            Some((header, _)) => format!("{header} {{ ... }}"),
            None => text.trim_end().to_owned(),
        }
    }

    fn one(&mut self, sign: char, id: NodeId) {
        let tree = if sign == '-' { self.old } else { self.new };
        let above = tree.node(tree.header_of(id)[0]).parent;
        let path = tree.path(above).join(" ");
        let text = marked(sign, &tree.print_statement(id, Remarks::Comments));
        self.out += &format!("{}\n{text}", edit(&path));
    }

    fn heading(&mut self, at: NodeId, lines: &str) {
        if !lines.is_empty() {
            self.out += &format!("{}\n{lines}", edit(&self.new.path(at).join(" ")));
        }
    }
}

fn edit(path: &str) -> String {
    if path.is_empty() { "[edit]".to_owned() } else { format!("[edit {path}]") }
}

fn marked(sign: char, text: &str) -> String {
    text.lines().map(|line| format!("{sign}  {line}\n")).collect()
}

/// The statements of a block in the order of the text.
fn entries(tree: &Tree, block: NodeId) -> Vec<Entry<'_>> {
    let mut found = vec![];
    let mut stack: Vec<Entry<'_>> = vec![(vec![], block)];
    while let Some((words, id)) = stack.pop() {
        let node = tree.node(id);
        let goes_on = id == block || matches!(node.cursor, Cursor::Key(..)) && !node.children.is_empty();
        if !goes_on {
            found.push((words, id));
            continue;
        }
        for &child in node.children.iter().rev() {
            stack.push(([words.as_slice(), &[tree.node(child).word.as_str()]].concat(), child));
        }
    }
    found
}

/// Entries of the same statement have an order among each other.
fn has_order(tree: &Tree, id: NodeId) -> bool {
    let node = tree.node(id);
    id != TOP
        && match tree.node(node.parent).cursor {
            Cursor::Key(statement, index) => matches!(statement.keys[index], Key::Value(_)),
            _ => false,
        }
}

/// Entries in both trees that were moved among entries of the same kind: as few as explain the new order.
fn moved(before: &[Entry<'_>], after: &[Entry<'_>], new: &Tree) -> HashSet<NodeId> {
    let positions: HashMap<&[&str], usize> =
        before.iter().enumerate().map(|(position, (words, _))| (words.as_slice(), position)).collect();
    let mut groups: HashMap<NodeId, Vec<(NodeId, usize)>> = HashMap::new();
    for (words, id) in after.iter().filter(|(_, id)| has_order(new, *id)) {
        if let Some(&position) = positions.get(words.as_slice()) {
            groups.entry(new.node(*id).parent).or_default().push((*id, position));
        }
    }
    groups.values().flat_map(|group| out_of_order(group)).collect()
}

/// All but a longest increasing subsequence of positions.
fn out_of_order(group: &[(NodeId, usize)]) -> Vec<NodeId> {
    // ends[n]: index of the smallest last position of an increasing subsequence of n + 1
    let (mut ends, mut previous): (Vec<usize>, Vec<Option<usize>>) = (vec![], vec![]);
    for (index, (_, position)) in group.iter().enumerate() {
        let length = ends.partition_point(|&end| group[end].1 < *position);
        previous.push(length.checked_sub(1).map(|before| ends[before]));
        if length == ends.len() { ends.push(index) } else { ends[length] = index }
    }
    let mut kept = HashSet::new();
    let mut at = ends.last().copied();
    while let Some(index) = at {
        kept.insert(index);
        at = previous[index];
    }
    group.iter().enumerate().filter(|(index, _)| !kept.contains(index)).map(|(_, (id, _))| *id).collect()
}
