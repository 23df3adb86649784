//! The tree of a configuration: one node a word, in the order of the text.
//!
//! `a b { c; d; }`, `set a b c` and `a b [ c d ];` all lead to the same nodes, so sources of both forms merge by
//! walking the same words. What two texts mean is what `==` compares; how they were laid out is only remembered, to
//! print statements that the schema does not know as they were written.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Error, Location, one_of};
use crate::lexer::Span;
use crate::schema::{Body, Cursor, ROOT};

/// Words between the top level and the deepest leaf. Junos stays below 30.
pub(crate) const MAX_DEPTH: usize = 64;

/// Children above this number are found through a hash table.
const MANY_CHILDREN: usize = 24;

pub(crate) type NodeId = usize;
pub(crate) const TOP: NodeId = 0;

/// Statements as they were written, each word a node below the one before it.
#[derive(Debug, Clone)]
pub struct Tree {
    files: Vec<Arc<str>>,
    nodes: Vec<Node>,
    /// What was odd about the text, and did no harm.
    warnings: Vec<Error>,
    /// The text being read is a `set` line: of several that stand for each other, its one replaces what stood there.
    pub(crate) replaces: bool,
    /// Index of the children of large nodes.
    wide: HashMap<NodeId, HashMap<String, NodeId>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub word: String,
    pub inactive: bool,
    /// Written on the line of its parent.
    pub joined: bool,
    /// Where the schema stands after this word.
    pub cursor: Cursor,
    pub parent: NodeId,
    pub children: Vec<NodeId>,
    /// The name behind `apply-groups` by which a group's statement came here.
    pub applied: Option<NodeId>,
    /// Comments that stand before the statement, as they were written.
    pub comment: Option<Box<str>>,
    depth: usize,
    file: usize,
    span: Span,
}

/// A word that is to be put into the tree.
#[derive(Debug, Clone)]
pub(crate) struct Word {
    pub text: String,
    pub span: Span,
    pub joined: bool,
}

impl Default for Tree {
    fn default() -> Self {
        let top = Node {
            word: String::new(),
            inactive: false,
            joined: false,
            cursor: Cursor::Block(&ROOT),
            parent: TOP,
            children: Vec::new(),
            applied: None,
            comment: None,
            depth: 0,
            file: 0,
            span: Span { line: 1, column: 1 },
        };
        let files = vec!["".into()];
        Tree { files, nodes: vec![top], warnings: Vec::new(), replaces: false, wide: HashMap::new() }
    }
}

/// Two trees are equal when they hold the same statements in the same order, active and inactive alike.
impl PartialEq for Tree {
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = vec![(TOP, TOP)];
        while let Some((a, b)) = pairs.pop() {
            let (a, b) = (self.node(a), other.node(b));
            if a.word != b.word || a.inactive != b.inactive || a.children.len() != b.children.len() {
                return false;
            }
            pairs.extend(a.children.iter().copied().zip(b.children.iter().copied()));
        }
        true
    }
}

impl Eq for Tree {}

impl Tree {
    /// What is read from here on stands in this file.
    pub(crate) fn begin_file(&mut self, file: &str) {
        self.files.push(file.into());
    }

    /// What was odd about the texts that were read, and did no harm: a `delete` of what is not there.
    pub fn warnings(&self) -> &[Error] {
        &self.warnings
    }

    pub(crate) fn warn(&mut self, span: Span, message: String, help: &str) {
        let location = span.in_file(self.file());
        self.warnings.push(Error { location, message, help: Some(help.to_owned()) });
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id]
    }

    /// The file being read.
    pub(crate) fn file(&self) -> &Arc<str> {
        &self.files[self.files.len() - 1]
    }

    pub(crate) fn location(&self, id: NodeId) -> Location {
        let node = self.node(id);
        let applied = node.applied.map(|reference| Arc::new(self.location(reference)));
        Location { applied, ..node.span.in_file(&self.files[node.file]) }
    }

    /// Where a statement stands that is written out, by its words from the top level on.
    pub fn place_of(&self, words: &[&str]) -> Option<Location> {
        let id = words.iter().try_fold(TOP, |at, word| self.find(at, word))?;
        Some(self.location(id))
    }

    pub(crate) fn find(&self, parent: NodeId, word: &str) -> Option<NodeId> {
        match self.wide.get(&parent) {
            Some(index) => index.get(word).copied(),
            None => self.node(parent).children.iter().copied().find(|&child| self.node(child).word == word),
        }
    }

    /// The child of `parent` that is `word`, made when missing. `None` when the tree gets too deep.
    pub(crate) fn child(&mut self, parent: NodeId, word: &Word) -> Option<NodeId> {
        if let Some(found) = self.find(parent, &word.text) {
            return Some(found);
        }
        let above = self.node(parent);
        if above.depth >= MAX_DEPTH {
            return None;
        }
        let (cursor, depth) = (above.cursor.step(&word.text), above.depth + 1);
        if let Cursor::Value(statement) = above.cursor
            && matches!(statement.body, Body::Value(_))
        {
            // The last value written wins, as in Junos.
            self.nodes[parent].children.clear();
        }
        if self.replaces {
            self.detach_rivals(parent, &word.text);
        }
        let id = self.nodes.len();
        self.nodes.push(Node {
            word: word.text.clone(),
            inactive: false,
            joined: word.joined,
            cursor,
            parent,
            children: Vec::new(),
            applied: None,
            comment: None,
            depth,
            file: self.files.len() - 1,
            span: word.span,
        });
        self.nodes[parent].children.push(id);
        self.index(parent, id);
        Some(id)
    }

    /// Children of which only one may be active, as a Junos choice has it.
    fn rivals(&self, parent: NodeId) -> impl Iterator<Item = NodeId> {
        let node = self.node(parent);
        let is_rival = move |id: &NodeId| node.cursor.excludes(&self.node(*id).word);
        node.children.iter().copied().filter(is_rival)
    }

    /// Inactive as a whole: an entry is marked behind its key.
    pub(crate) fn is_off(&self, id: NodeId) -> bool {
        let node = self.node(id);
        let is_header = matches!(node.cursor, Cursor::Key(..)) && !node.children.is_empty();
        node.inactive || is_header && node.children.iter().all(|&child| self.is_off(child))
    }

    /// Those of them that are inactive, where there are others.
    pub(crate) fn spares(&self, parent: NodeId) -> Vec<NodeId> {
        match self.rivals(parent).nth(1) {
            Some(_) => self.rivals(parent).filter(|&id| self.is_off(id)).collect(),
            None => Vec::new(),
        }
    }

    /// Takes out what `word` stands for instead of; what is inactive stands for nothing.
    fn detach_rivals(&mut self, parent: NodeId, word: &str) {
        if !self.node(parent).cursor.excludes(word) {
            return;
        }
        let rivals: Vec<NodeId> = self.rivals(parent).filter(|&id| !self.is_off(id)).collect();
        rivals.into_iter().for_each(|rival| self.detach(rival));
    }

    /// Makes a child of `parent` that is inherited from a group's statement `from`.
    pub(crate) fn inherit(&mut self, parent: NodeId, from: NodeId, applied: NodeId) -> NodeId {
        let id = self.copy_word(parent, from);
        self.nodes[id].applied = Some(applied);
        id
    }

    /// Makes a child of `parent` like `from`, without what stands below that.
    pub(crate) fn copy_word(&mut self, parent: NodeId, from: NodeId) -> NodeId {
        let source = self.node(from);
        let node = Node {
            cursor: self.node(parent).cursor.step(&source.word),
            parent,
            children: Vec::new(),
            depth: self.node(parent).depth + 1,
            ..source.clone()
        };
        let id = self.nodes.len();
        self.nodes.push(node);
        self.nodes[parent].children.push(id);
        self.index(parent, id);
        id
    }

    /// Takes a statement out, and nothing else.
    pub(crate) fn detach(&mut self, id: NodeId) {
        let parent = self.node(id).parent;
        self.nodes[parent].children.retain(|&child| child != id);
        if let Some(index) = self.wide.get_mut(&parent) {
            index.remove(&self.nodes[id].word);
        }
    }

    /// Gives a word another text, unless a sibling has it: false then.
    pub(crate) fn reword_if_free(&mut self, id: NodeId, word: String) -> bool {
        let is_free = self.find(self.node(id).parent, &word).is_none();
        if is_free {
            self.reword(id, word);
        }
        is_free
    }

    /// A statement is as active, and commented, as another.
    pub(crate) fn take_marks(&mut self, from: NodeId, to: NodeId) {
        let (inactive, comment) = (self.nodes[from].inactive, self.nodes[from].comment.clone());
        (self.nodes[to].inactive, self.nodes[to].comment) = (inactive, comment);
    }

    /// Takes out everything below a statement.
    pub(crate) fn clear(&mut self, id: NodeId) {
        self.nodes[id].children.clear();
        self.wide.remove(&id);
    }

    /// Gives a word of the tree another text; none of its siblings may have it.
    pub(crate) fn reword(&mut self, id: NodeId, text: String) {
        let parent = self.nodes[id].parent;
        let cursor = self.nodes[parent].cursor.step(&text);
        let node = &mut self.nodes[id];
        let before = std::mem::replace(&mut node.word, text);
        node.cursor = cursor;
        if let Some(index) = self.wide.get_mut(&parent) {
            index.remove(&before);
            index.insert(self.nodes[id].word.clone(), id);
        }
    }

    /// Puts a comment before a statement, in place of the one there; that of a value stands before its keyword. An empty one
    /// is none.
    pub(crate) fn set_comment(&mut self, id: NodeId, comment: &str) {
        let parent = self.nodes[id].parent;
        let is_value = matches!(self.nodes[parent].cursor, Cursor::Value(_));
        self.nodes[if is_value { parent } else { id }].comment =
            (!comment.is_empty()).then(|| comment.into());
    }

    fn index(&mut self, parent: NodeId, child: NodeId) {
        let children = &self.nodes[parent].children;
        if let Some(index) = self.wide.get_mut(&parent) {
            index.insert(self.nodes[child].word.clone(), child);
        } else if children.len() > MANY_CHILDREN {
            let index = children.iter().map(|&id| (self.nodes[id].word.clone(), id)).collect();
            self.wide.insert(parent, index);
        }
    }

    /// Marks a statement; a value is not one by itself, so its keyword is marked instead.
    pub(crate) fn set_inactive(&mut self, id: NodeId, inactive: bool) {
        let parent = self.nodes[id].parent;
        let is_value = matches!(self.nodes[parent].cursor, Cursor::Value(_));
        self.nodes[if is_value { parent } else { id }].inactive = inactive;
    }

    /// Takes the statement out, and what it leaves without meaning: a keyword without its value, an empty block.
    pub(crate) fn remove(&mut self, mut id: NodeId) {
        while id != TOP {
            let parent = self.node(id).parent;
            self.detach(id);
            let above = self.node(parent);
            let empty = above.children.is_empty()
                && match above.cursor {
                    Cursor::Value(_) | Cursor::Key(..) => true,
                    Cursor::Block(statement) => statement.keys.is_empty(),
                    Cursor::Done | Cursor::Unknown => false,
                };
            if !empty {
                return;
            }
            id = parent;
        }
    }

    /// Moves a statement before or after one of the same parent.
    pub(crate) fn reorder(&mut self, id: NodeId, sibling: NodeId, after: bool) {
        let parent = self.node(id).parent;
        if id == sibling {
            return;
        }
        let children = &mut self.nodes[parent].children;
        children.retain(|&child| child != id);
        let index = children.iter().position(|&child| child == sibling).unwrap_or(children.len());
        children.insert((index + usize::from(after)).min(children.len()), id);
    }

    /// The words that one statement begins with, from its keyword to `id`: a name stands behind its keyword, a value too.
    pub(crate) fn header_of(&self, id: NodeId) -> Vec<NodeId> {
        let mut header = vec![id];
        let mut at = id;
        while at != TOP
            && matches!(self.node(self.node(at).parent).cursor, Cursor::Key(..) | Cursor::Value(_))
        {
            at = self.node(at).parent;
            header.push(at);
        }
        header.reverse();
        header
    }

    /// `there is: a, b`, for messages.
    pub(crate) fn what_is_there(&self, id: NodeId) -> String {
        let words: Vec<&str> =
            self.node(id).children.iter().map(|&child| self.node(child).word.as_str()).collect();
        match words.as_slice() {
            [] => "nothing stands there".to_owned(),
            words => format!("there is: {}", one_of(words)),
        }
    }

    /// The word that a path leads to.
    pub(crate) fn at<S: AsRef<str>>(&self, path: &[S]) -> Option<NodeId> {
        path.iter().try_fold(TOP, |at, word| self.find(at, word.as_ref()))
    }

    /// Words from the top level down to `id`.
    pub(crate) fn path(&self, id: NodeId) -> Vec<&str> {
        self.steps(id).into_iter().map(|step| self.node(step).word.as_str()).collect()
    }

    /// Statements from below the top level down to `id`.
    pub(crate) fn steps(&self, mut id: NodeId) -> Vec<NodeId> {
        let mut steps = Vec::new();
        while id != TOP {
            steps.push(id);
            id = self.node(id).parent;
        }
        steps.reverse();
        steps
    }

    /// The statement, or one that it stands in, is inactive.
    pub(crate) fn is_inactive(&self, id: NodeId) -> bool {
        self.steps(id).into_iter().any(|step| self.node(step).inactive)
    }

    /// The node, or something below it, is inactive.
    pub(crate) fn has_inactive_below(&self, id: NodeId) -> bool {
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let node = self.node(id);
            if node.inactive {
                return true;
            }
            stack.extend(&node.children);
        }
        false
    }
}
