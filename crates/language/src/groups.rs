//! `groups` and `apply-groups`: statements are inherited from groups before a tree is compiled.
//!
//! A statement that stands in the configuration itself wins over what is inherited, a group applied further in over one
//! applied further out, and of several in one `apply-groups` the first. Names in groups may be patterns: `<*>`, `<ge-*>`.

use std::collections::{HashMap, HashSet};

use crate::error::{Errors, Report, closest};
use crate::print::Remarks;
use crate::schema::{APPLY_GROUPS, APPLY_GROUPS_EXCEPT, Body, Cursor, GROUPS, lookup};
use crate::tree::{NodeId, TOP, Tree};

/// What a group holds for the place that is being looked at.
#[derive(Clone, Copy)]
struct Source {
    /// The group itself, for `apply-groups-except`.
    group: NodeId,
    /// The group's statement with the same path.
    node: NodeId,
    /// The group's name behind `apply-groups`.
    reference: NodeId,
}

/// The tree with everything it inherits and without groups; None when no statement speaks of inheriting.
pub(crate) fn inherit(tree: &Tree, report: &mut Report) -> Option<Tree> {
    let groups = groups(tree);
    for group in groups.values() {
        refuse_inside(tree, *group, report);
    }
    if !applies_any(tree) {
        return None;
    }
    let mut heir = Heir { tree: tree.clone(), groups, report };
    heir.visit(TOP, Vec::new());
    let mut tree = heir.tree;
    strip(&mut tree);
    Some(tree)
}

/// Takes out `groups` and what applies them.
fn strip(tree: &mut Tree) {
    let mut stack = vec![TOP];
    while let Some(id) = stack.pop() {
        for child in tree.node(id).children.clone() {
            if is_about_groups(tree, child) { tree.detach(child) } else { stack.push(child) }
        }
    }
}

impl Tree {
    /// The configuration in effect: what groups bring in, with a comment before each statement that says so, and
    /// without `groups` and `apply-groups`.
    pub fn to_inherited_text(&self) -> Result<String, Errors> {
        self.inherited_at::<&str>(&[])
    }

    /// The same of what stands below a path; nothing where nothing does.
    pub fn inherited_at<S: AsRef<str>>(&self, path: &[S]) -> Result<String, Errors> {
        let mut report = Report::default();
        let mut tree = inherit(self, &mut report).unwrap_or_else(|| self.clone());
        strip(&mut tree);
        report
            .finish(())
            .map(|()| tree.at(path).map_or_else(String::new, |at| tree.print(at, Remarks::Inherited)))
    }

    /// The group an inherited statement comes from.
    pub(crate) fn group_of(&self, id: NodeId) -> Option<&str> {
        self.node(id).applied.map(|reference| self.node(reference).word.as_str())
    }
}

/// Active groups by name.
fn groups(tree: &Tree) -> HashMap<String, NodeId> {
    let Some(all) = tree.find(TOP, "groups").filter(|id| !tree.node(*id).inactive) else {
        return HashMap::new();
    };
    let active = tree.node(all).children.iter().filter(|id| !tree.node(**id).inactive);
    active.map(|id| (tree.node(*id).word.clone(), *id)).collect()
}

/// `groups`, `apply-groups` or `apply-groups-except`
fn is_about_groups(tree: &Tree, id: NodeId) -> bool {
    match tree.node(id).cursor {
        Cursor::Block(statement) => std::ptr::eq(statement, &GROUPS),
        Cursor::Value(statement) => {
            std::ptr::eq(statement, &APPLY_GROUPS) || std::ptr::eq(statement, &APPLY_GROUPS_EXCEPT)
        }
        _ => false,
    }
}

fn applies_any(tree: &Tree) -> bool {
    let mut stack = vec![TOP];
    while let Some(id) = stack.pop() {
        let node = tree.node(id);
        if matches!(node.cursor, Cursor::Value(_)) && is_about_groups(tree, id) && !node.inactive {
            return true;
        }
        stack.extend(&node.children);
    }
    false
}

fn refuse_inside(tree: &Tree, group: NodeId, report: &mut Report) {
    let mut stack = vec![group];
    while let Some(id) = stack.pop() {
        for &child in tree.node(id).children.iter().filter(|child| !tree.node(**child).inactive) {
            if is_about_groups(tree, child) {
                let message = format!("`{}` stands inside of a group", tree.node(child).word);
                let help = "groups do not build on each other; apply both where their statements belong";
                report.error_help(&tree.location(child), message, help);
            }
            stack.push(child);
        }
    }
}

struct Heir<'a> {
    tree: Tree,
    groups: HashMap<String, NodeId>,
    report: &'a mut Report,
}

impl Heir<'_> {
    /// Lets a statement and everything below it inherit; `sources` come from statements above.
    fn visit(&mut self, id: NodeId, mut sources: Vec<Source>) {
        let mut own = self.applied_here(id);
        own.append(&mut sources);
        let except = self.excepted_here(id);
        own.retain(|source| !except.contains(&source.group));
        self.take_over(id, &own);
        for child in self.tree.node(id).children.clone() {
            if !self.tree.node(child).inactive && !is_about_groups(&self.tree, child) {
                let below = own.iter().flat_map(|source| self.below(*source, child)).collect();
                self.visit(child, below);
            }
        }
    }

    fn members(&self, id: NodeId, keyword: &str) -> Vec<NodeId> {
        let statement = self
            .tree
            .find(id, keyword)
            .filter(|found| !self.tree.node(*found).inactive && is_about_groups(&self.tree, *found));
        statement.map(|found| self.tree.node(found).children.clone()).unwrap_or_default()
    }

    /// What the groups applied at this statement hold for it.
    fn applied_here(&mut self, id: NodeId) -> Vec<Source> {
        let mut sources = Vec::new();
        for reference in self.members(id, "apply-groups") {
            let Some(group) = self.group(reference) else { continue };
            let path: Vec<NodeId> = self.tree.steps(id);
            let mut found = vec![Source { group, node: group, reference }];
            for step in path {
                found = found.iter().flat_map(|source| self.below(*source, step)).collect();
            }
            sources.extend(found);
        }
        sources
    }

    fn excepted_here(&mut self, id: NodeId) -> HashSet<NodeId> {
        let members = self.members(id, "apply-groups-except");
        members.into_iter().filter_map(|reference| self.group(reference)).collect()
    }

    /// The group that a word names.
    fn group(&mut self, reference: NodeId) -> Option<NodeId> {
        let name = self.tree.node(reference).word.clone();
        let found = self.groups.get(&name).copied();
        if found.is_none() {
            let help = match closest(&name, self.groups.keys().map(String::as_str)) {
                Some(close) => format!("did you mean `{close}`?"),
                None => "define it below `groups`, or correct the name".to_owned(),
            };
            let message = format!("group `{name}` is not defined");
            self.report.error_help(&self.tree.location(reference), message, help);
        }
        found
    }

    fn below(&self, source: Source, child: NodeId) -> Vec<Source> {
        let found = below(&self.tree, source.node, child);
        found.into_iter().map(|node| Source { node, ..source }).collect()
    }

    /// Adds the children that the statement does not have itself.
    fn take_over(&mut self, id: NodeId, sources: &[Source]) {
        for source in sources {
            for offered in self.tree.node(source.node).children.clone() {
                let node = self.tree.node(offered);
                let has_words = !is_pattern(&node.word) && !self.has_patterns_alone(offered);
                if !node.inactive && has_words && self.wants(id, offered) {
                    self.add(id, offered, source.reference);
                }
            }
        }
    }

    /// A keyword that needs a name, and has only patterns of names: without a statement that they match it would be
    /// incomplete.
    fn has_patterns_alone(&self, id: NodeId) -> bool {
        let (tree, node) = (&self.tree, self.tree.node(id));
        let mut names = node.children.iter().map(|child| &tree.node(*child).word).peekable();
        matches!(node.cursor, Cursor::Key(..)) && names.peek().is_some() && names.all(|name| is_pattern(name))
    }

    fn add(&mut self, id: NodeId, offered: NodeId, reference: NodeId) {
        // An inactive statement of the same name is not in the way, and must not be found beside the inherited one.
        let word = self.tree.node(offered).word.clone();
        if let Some(inactive) = self.tree.find(id, &word) {
            self.tree.detach(inactive);
        }
        self.tree.inherit(id, offered, reference);
    }

    fn wants(&self, id: NodeId, offered: NodeId) -> bool {
        let tree = &self.tree;
        let word = tree.node(offered).word.as_str();
        let mut present = tree.node(id).children.iter().filter(|child| !tree.node(**child).inactive);
        if tree.find(id, word).is_some_and(|found| !tree.node(found).inactive)
            || is_about_groups(tree, offered)
        {
            return false;
        }
        match tree.node(id).cursor {
            Cursor::Value(statement) => matches!(statement.body, Body::List(_)) || present.next().is_none(),
            here @ Cursor::Block(_) => {
                !here.excludes(word) || !present.any(|child| here.excludes(&tree.node(*child).word))
            }
            Cursor::Key(..) => true,
            Cursor::Done | Cursor::Unknown => false,
        }
    }
}

/// Where a group goes on from `at` below `child`: by the same word, then by patterns.
pub(crate) fn below(tree: &Tree, at: NodeId, child: NodeId) -> Vec<NodeId> {
    let word = tree.node(child).word.as_str();
    let active = |id: &NodeId| !tree.node(*id).inactive;
    let mut found: Vec<NodeId> = tree.find(at, word).into_iter().filter(active).collect();
    if is_name(tree, child) {
        let patterns = tree.node(at).children.iter().copied().filter(active);
        found.extend(patterns.filter(|id| {
            let pattern = tree.node(*id).word.as_str();
            is_pattern(pattern) && pattern != word && matches_pattern(pattern, word)
        }));
    }
    found
}

/// Keywords are never matched by patterns.
fn is_name(tree: &Tree, id: NodeId) -> bool {
    let node = tree.node(id);
    match tree.node(node.parent).cursor {
        Cursor::Block(block) => lookup(block, &node.word).is_some_and(|statement| statement.name.is_empty()),
        Cursor::Key(..) => true,
        _ => false,
    }
}

/// `<...>`, which stands for every name that the pattern inside matches.
pub(crate) fn is_pattern(word: &str) -> bool {
    word.len() > 2 && word.starts_with('<') && word.ends_with('>')
}

/// `*` is any number of characters, `?` any one, `[a-z]` one of these and `[!a-z]` none of them.
fn matches_pattern(pattern: &str, word: &str) -> bool {
    let pattern: Vec<char> = pattern[1..pattern.len() - 1].chars().collect();
    let word: Vec<char> = word.chars().collect();
    // Where to go on when the last `*` has to take one character more.
    let mut retry: Option<(usize, usize)> = None;
    let (mut p, mut w) = (0, 0);
    while w < word.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, w));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], word[w]) {
            p += length;
            w += 1;
        } else if let Some((after, taken)) = retry {
            retry = Some((after, taken + 1));
            (p, w) = (after, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// How much of the pattern matches one character.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => {
            let end = rest.iter().position(|c| *c == ']').filter(|end| *end > 0)?;
            let (negated, set) = match &rest[..end] {
                ['!', set @ ..] => (true, set),
                set => (false, set),
            };
            (is_in(set, c) != negated).then_some(end + 2)
        }
        [first, ..] if *first == c => Some(1),
        _ => None,
    }
}

fn is_in(mut set: &[char], c: char) -> bool {
    loop {
        match set {
            [low, '-', high, rest @ ..] => {
                if (*low..=*high).contains(&c) {
                    return true;
                }
                set = rest;
            }
            [one, rest @ ..] => {
                if *one == c {
                    return true;
                }
                set = rest;
            }
            [] => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, word) in [
            ("<*>", "ge0"),
            ("<ge-*>", "ge-0"),
            ("<*0>", "wan0"),
            ("<*a*b>", "xaayb"),
            ("<wan?>", "wan1"),
            ("<wan[0-2x]>", "wanx"),
            ("<wan[!0-2]>", "wan3"),
        ] {
            assert!(is_pattern(pattern) && matches_pattern(pattern, word), "{pattern} {word}");
        }
        for (pattern, word) in
            [("<ge-*>", "xe-0"), ("<wan?>", "wan"), ("<wan[0-2]>", "wan3"), ("<*a*b>", "xaay"), ("<a>", "aa")]
        {
            assert!(!matches_pattern(pattern, word), "{pattern} {word}");
        }
        assert!(!is_pattern("<>") && !is_pattern("ge-*"));
    }
}
