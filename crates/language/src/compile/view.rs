//! A look at the active part of a tree.

use crate::check::context;
use crate::error::Location;
use crate::tree::{NodeId, TOP, Tree};

#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    tree: &'a Tree,
    id: NodeId,
}

impl<'a> View<'a> {
    pub fn top(tree: &'a Tree) -> Self {
        View { tree, id: TOP }
    }

    pub fn word(self) -> &'a str {
        &self.tree.node(self.id).word
    }

    pub fn number<T: TryFrom<u64>>(self) -> Option<T> {
        self.word().parse::<u64>().ok().and_then(|number| T::try_from(number).ok())
    }

    pub fn location(self) -> Location {
        self.tree.location(self.id)
    }

    /// The path of this statement.
    pub fn context(self) -> String {
        context(self.tree, self.id)
    }

    pub fn above(self) -> View<'a> {
        View { tree: self.tree, id: self.tree.node(self.id).parent }
    }

    fn at(self, id: NodeId) -> View<'a> {
        View { tree: self.tree, id }
    }

    /// Active children in the order of the text.
    pub fn children(self) -> impl Iterator<Item = View<'a>> {
        let children = self.tree.node(self.id).children.iter();
        children.map(move |&id| self.at(id)).filter(|child| !self.tree.node(child.id).inactive)
    }

    pub fn child(self, word: &str) -> Option<View<'a>> {
        let child = self.tree.find(self.id, word)?;
        (!self.tree.node(child).inactive).then(|| self.at(child))
    }

    pub fn has(self, word: &str) -> bool {
        self.child(word).is_some()
    }

    pub fn path(self, words: &[&str]) -> Option<View<'a>> {
        words.iter().try_fold(self, |view, word| view.child(word))
    }

    /// The first word below a path: the value of a leaf.
    pub fn value(self, words: &[&str]) -> Option<View<'a>> {
        self.path(words)?.children().next()
    }

    /// Everything directly below a path: the entries of a keyed statement, the members of a list.
    pub fn entries(self, words: &[&str]) -> impl Iterator<Item = View<'a>> + use<'a> {
        self.path(words).into_iter().flat_map(View::children)
    }

    /// Names of entries below a path that are inactive, or whose block is.
    pub fn inactive_names(self, words: &[&str]) -> impl Iterator<Item = &'a str> + use<'a> {
        let (mut at, mut inactive) = (Some(self.id), false);
        for word in words {
            at = at.and_then(|id| self.tree.find(id, word));
            inactive |= at.is_some_and(|id| self.tree.node(id).inactive);
        }
        let children = at.map_or(&[][..], |id| &self.tree.node(id).children);
        let nodes = children.iter().map(|&id| self.tree.node(id));
        nodes.filter(move |node| inactive || node.inactive).map(|node| node.word.as_str())
    }
}
