//! Policies that cannot be taken over whole.
//!
//! Left out, a policy hands its packets to those behind it. For one that permits and nothing else this makes nothing wider:
//! what a later one permits was permitted. One that denies, or permits only into a tunnel or past an inspection, must not
//! hand over anything: where something behind it permits, one takes its place that denies all it could match.

use super::cost::inside_groups;
use super::names::{MAX_NAME, clean_name};
use super::{Cost, Finding, Import, brief};
use crate::check::context;
use crate::error::Error;
use crate::groups::{below, is_pattern};
use crate::lexer::Span;
use crate::tree::{NodeId, TOP, Tree, Word};

const PARTS: [&str; 3] = ["source-address", "destination-address", "application"];

/// Further matches that a stand-in keeps, with the part each belongs to.
const BESIDES: [(&str, &str); 4] = [
    ("source-address-excluded", "source-address"),
    ("destination-address-excluded", "destination-address"),
    ("from-zone", "from-zone"),
    ("to-zone", "to-zone"),
];

impl Import {
    /// Leaves a policy out because of what is wrong at `at`.
    pub(super) fn leave_policy(&mut self, policy: NodeId, at: NodeId, error: &Error) {
        if self.stand_ins.contains(&policy) {
            return self.widen(policy, at);
        }
        if is_pattern(&self.tree.node(policy).word) || self.may_narrow(policy) {
            return self.leave_pattern(policy, error);
        }
        let inherited = self.inherited(policy);
        let word = &self.tree.node(policy).word;
        let returns = inherited.iter().any(|&other| self.tree.node(other).word == *word);
        // Without the router's own, what a group has under its name is in effect alone.
        let same = returns.then(|| format!("`{word}` of a group"));
        let behind = self.permits_behind(policy, same);
        let must_stand = returns || hands_over_nothing(&self.tree, policy);
        let what = context(&self.tree, policy);
        let location = self.tree.location(policy);
        let reason = match brief(&error.message) {
            brief if brief == error.message => brief.to_owned(),
            brief => format!("`{}` is {brief}", self.tree.node(at).word),
        };
        let why = if must_stand && !behind.is_empty() {
            match self.stand_in(policy, &inherited) {
                Some(name) => format!(
                    "{reason}; left out, and `{name}` in its place denies all that it could match, so that {} may permit less",
                    some_of(&behind)
                ),
                None => reason.clone(),
            }
        } else if must_stand {
            format!("{reason}; left out: nothing behind it permits, so nothing more passes")
        } else {
            format!("{reason}; left out: what only it permits does not pass")
        };
        self.tree.set_inactive(policy, true);
        self.findings.push(Finding { cost: Cost::Security, location, what, why, left_out: true });
    }

    /// Active policies of groups that a policy which stands in none inherits from.
    fn inherited(&self, policy: NodeId) -> Vec<NodeId> {
        let steps = self.tree.steps(policy);
        if self.tree.path(policy).first() == Some(&"groups") {
            return Vec::new();
        }
        let follow = |group: NodeId| {
            let next = |found: Vec<NodeId>, &step: &NodeId| -> Vec<NodeId> {
                found.into_iter().flat_map(|at| below(&self.tree, at, step)).collect()
            };
            steps.iter().fold(vec![group], next)
        };
        active_groups(&self.tree).into_iter().flat_map(follow).collect()
    }

    /// Addresses and applications of which a part stands in a group: alone the other part would stand for something else.
    pub(super) fn leave_namesakes(&mut self, id: NodeId) {
        let path = self.tree.path(id);
        let path: Vec<String> = inside_groups(&path).iter().map(|&word| word.to_owned()).collect();
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let is_entry = matches!(
            words[..],
            ["security", "address-book", _, "address" | "address-set", _]
                | ["security", "zones", "security-zone", _, "address-book", "address" | "address-set", _]
                | ["applications", "application" | "application-set", _]
        );
        if !is_entry {
            return;
        }
        for top in active_groups(&self.tree).into_iter().chain([TOP]) {
            let other = find(&self.tree, top, &words).filter(|&other| !self.tree.is_inactive(other));
            if let Some(other) = other {
                self.tree.set_inactive(other, true);
                let why = "left out with what stands elsewhere by the same path: alone it would mean something else";
                self.found(other, Cost::Form, why.to_owned(), true);
            }
        }
    }

    /// It is an `apply-groups` with a group that has policies.
    pub(super) fn applies_policies(&self, id: NodeId) -> bool {
        let node = self.tree.node(id);
        let named = |group: &NodeId| {
            node.children.iter().any(|&name| self.tree.node(name).word == self.tree.node(*group).word)
        };
        node.word.starts_with("apply-groups")
            && active_groups(&self.tree)
                .into_iter()
                .filter(named)
                .any(|group| find(&self.tree, group, &["security", "policies"]).is_some())
    }

    /// It stands in a group, and the text has a policy of that name besides, which may be narrower by it.
    fn may_narrow(&self, policy: NodeId) -> bool {
        let path = self.tree.path(policy);
        let ["groups", group, rest @ ..] = &path[..] else { return false };
        let of_others = active_groups(&self.tree).into_iter().filter(|&id| self.tree.node(id).word != *group);
        let policies = of_others.chain([TOP]).filter_map(|top| find(&self.tree, top, &rest[..2]));
        let all = policies.flat_map(|policies| self.below(policies));
        let same = |id: &NodeId| {
            let other = self.tree.path(*id);
            other.last() == rest.last() && other[other.len().saturating_sub(2)] == "policy"
        };
        all.into_iter().any(|id| same(&id) && !self.tree.is_inactive(id))
    }

    /// What a group holds for many policies may make each of them narrower.
    fn leave_pattern(&mut self, policy: NodeId, error: &Error) {
        let why = format!(
            "{}; left out, and with it what policies inherit from it: those that permit may permit more",
            brief(&error.message)
        );
        self.tree.set_inactive(policy, true);
        self.found(policy, Cost::Wider, why, true);
    }

    /// Policies about the gateway itself: Sluice has `host-inbound-traffic` alone.
    pub(super) fn leave_host_policies(&mut self, pair: NodeId) {
        let mut stack = vec![pair];
        let mut denies = false;
        while let Some(id) = stack.pop() {
            let node = self.tree.node(id);
            let in_then = self.tree.node(node.parent).word == "then";
            denies |= in_then && !node.inactive && matches!(node.word.as_str(), "deny" | "reject");
            stack.extend(&node.children);
        }
        self.tree.set_inactive(pair, true);
        let (cost, why) = match denies {
            true => (
                Cost::Wider,
                "there are no policies about the gateway itself: what they deny, `host-inbound-traffic` may admit; take \
                 it out there, or let filters of the host drop it",
            ),
            false => (
                Cost::Security,
                "there are no policies about the gateway itself: `host-inbound-traffic` alone says what reaches it",
            ),
        };
        self.found(pair, cost, why.to_owned(), true);
    }

    /// What may permit packets that a policy hands over, by name; `same` comes in its place.
    fn permits_behind(&self, policy: NodeId, same: Option<String>) -> Vec<String> {
        let tree = &self.tree;
        let siblings = &tree.node(tree.node(policy).parent).children;
        let later = siblings.iter().copied().skip_while(|&id| id != policy).skip(1);
        let mut found: Vec<String> = same.into_iter().chain(permitting(tree, later)).collect();
        let path = tree.path(policy);
        if !path.contains(&"global") {
            let global = find(tree, TOP, &["security", "policies", "global", "policy"]);
            let globals = global.map(|id| tree.node(id).children.clone()).unwrap_or_default();
            found.extend(permitting(tree, globals.into_iter()));
        }
        let open = find(tree, TOP, &["security", "policies", "default-policy", "permit-all"]);
        if open.is_some_and(|id| !tree.is_inactive(id)) {
            found.push("the default policy".to_owned());
        }
        if found.is_empty() && (path.first() == Some(&"groups") || tree.find(TOP, "groups").is_some()) {
            found.push("policies of groups".to_owned());
        }
        found
    }

    /// Puts a policy before `policy` that denies what it could match; its name. What it matches through a group as well is
    /// not known here.
    fn stand_in(&mut self, policy: NodeId, inherited: &[NodeId]) -> Option<String> {
        let name = self.free_name(policy);
        let parent = self.tree.node(policy).parent;
        let rejects = self.tree.find(policy, "then").is_some_and(|then| active(&self.tree, then, "reject"));
        let stand_in = self.add(parent, &name)?;
        self.tree.reorder(stand_in, policy, false);
        let matching = self.add(stand_in, "match")?;
        let original = self.tree.find(policy, "match").filter(|&id| !self.tree.node(id).inactive);
        for part in PARTS {
            let known = original.and_then(|id| self.tree.find(id, part)).filter(|&id| self.is_said(id));
            match known.filter(|_| !self.says(inherited, part)) {
                Some(known) => drop(self.copy(known, matching)?),
                None => {
                    let keyword = self.add(matching, part)?;
                    self.add(keyword, "any")?;
                }
            }
        }
        for (word, part) in BESIDES {
            let known = original.and_then(|id| self.tree.find(id, word));
            let is_alone = !self.says(inherited, word) && !self.says(inherited, part);
            if let Some(known) = known.filter(|&id| is_alone && !self.tree.node(id).inactive) {
                self.copy(known, matching)?;
            }
        }
        let then = self.add(stand_in, "then")?;
        self.add(then, if rejects { "reject" } else { "deny" })?;
        let log = self.tree.find(policy, "then").and_then(|id| self.tree.find(id, "log"));
        if log.is_some_and(|log| !self.tree.node(log).inactive) {
            let log = self.add(then, "log")?;
            self.add(log, "session-init")?;
        }
        self.stand_ins.insert(stand_in);
        Some(name)
    }

    /// One of these policies matches by it.
    fn says(&self, policies: &[NodeId], part: &str) -> bool {
        policies
            .iter()
            .any(|&policy| find(&self.tree, policy, &["match", part]).is_some_and(|id| self.is_said(id)))
    }

    /// A part of a match that says something.
    fn is_said(&self, part: NodeId) -> bool {
        let node = self.tree.node(part);
        !node.inactive && !node.children.is_empty()
    }

    /// What is wrong in a stand-in is left out of its match, which then matches more.
    fn widen(&mut self, policy: NodeId, at: NodeId) {
        let steps = self.tree.steps(at);
        let part = self.tree.find(policy, "match").and_then(|matching| {
            let part = steps.iter().skip_while(|&&step| step != matching).nth(1).copied();
            part.map(|part| (matching, part))
        });
        let Some((matching, part)) = part else {
            // It cannot be about anything else, but must not stay wrong, nor go unsaid.
            self.tree.set_inactive(policy, true);
            let why = "it stood in for a policy that denies, and is wrong itself".to_owned();
            return self.found(policy, Cost::Wider, why, true);
        };
        let word = self.tree.node(part).word.clone();
        let part =
            BESIDES.iter().find(|(name, _)| *name == word).map_or(word.as_str(), |(_, part)| part).to_owned();
        for (name, of) in BESIDES {
            if of == part
                && let Some(found) = self.tree.find(matching, name)
            {
                self.tree.detach(found);
            }
        }
        if PARTS.contains(&part.as_str())
            && let Some(found) = self.tree.find(matching, &part)
        {
            if self.tree.node(found).children.iter().any(|&word| self.tree.node(word).word == "any") {
                return self.widen_alone(policy, matching);
            }
            self.match_any(found);
        }
    }

    /// What it inherits does not go with `any`: it inherits nothing then, and matches everything.
    fn widen_alone(&mut self, policy: NodeId, matching: NodeId) {
        for (word, _) in BESIDES {
            if let Some(found) = self.tree.find(matching, word) {
                self.tree.detach(found);
            }
        }
        for part in PARTS {
            if let Some(found) = self.tree.find(matching, part) {
                self.match_any(found);
            }
        }
        let Some(except) = self.add(policy, "apply-groups-except") else { return };
        for group in active_groups(&self.tree) {
            self.add(except, &self.tree.node(group).word.clone());
        }
    }

    fn match_any(&mut self, part: NodeId) {
        self.tree.clear(part);
        self.add(part, "any");
    }

    fn free_name(&self, policy: NodeId) -> String {
        let node = self.tree.node(policy);
        let taken = |name: &str| self.tree.find(node.parent, name).is_some();
        let named = |end: &str| {
            let kept: String = clean_name(&node.word).chars().take(MAX_NAME - end.len()).collect();
            kept + end
        };
        let numbered = (2..).map(|number| named(&format!("-widest-{number}")));
        std::iter::once(named("-widest")).chain(numbered).find(|name| !taken(name)).unwrap_or_default()
    }

    /// A statement of this import's own, which errors find.
    pub(super) fn add(&mut self, parent: NodeId, text: &str) -> Option<NodeId> {
        let word = self.new_word(text);
        let id = self.tree.child(parent, &word)?;
        self.statements.insert(self.position(id), vec![id]);
        Some(id)
    }

    fn copy(&mut self, from: NodeId, parent: NodeId) -> Option<NodeId> {
        let copy = self.add(parent, &self.tree.node(from).word.clone())?;
        for child in self.tree.node(from).children.clone() {
            if !self.tree.node(child).inactive {
                self.copy(child, copy)?;
            }
        }
        Some(copy)
    }

    /// Each has a line of its own, by which `statements` tells it.
    pub(super) fn new_word(&mut self, text: &str) -> Word {
        self.tree.begin_file("sluice import");
        let line = self.statements.len() as u32 + 1;
        Word { text: text.to_owned(), span: Span { line, column: 1 }, joined: true }
    }
}

/// A policy whose packets must not be judged by those behind it.
fn hands_over_nothing(tree: &Tree, policy: NodeId) -> bool {
    let Some(then) = tree.find(policy, "then") else { return true };
    let permit = tree.find(then, "permit").filter(|&id| !tree.node(id).inactive);
    // A permit that holds anything permits into a tunnel, past an inspection, or to whom has signed in.
    permit.is_none_or(|permit| !tree.node(permit).children.is_empty())
        || active(tree, then, "deny")
        || active(tree, then, "reject")
}

fn active(tree: &Tree, parent: NodeId, word: &str) -> bool {
    tree.find(parent, word).is_some_and(|id| !tree.node(id).inactive)
}

fn permitting(tree: &Tree, policies: impl Iterator<Item = NodeId>) -> Vec<String> {
    let permits = |&policy: &NodeId| {
        let then = tree.find(policy, "then").filter(|&then| !tree.node(then).inactive);
        !tree.is_inactive(policy) && then.is_some_and(|then| active(tree, then, "permit"))
    };
    policies.filter(permits).map(|policy| format!("`{}`", tree.node(policy).word)).collect()
}

/// Five names at most: a policy may stand before thousands.
fn some_of(names: &[String]) -> String {
    let shown = names[..names.len().min(5)].join(", ");
    match names.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn active_groups(tree: &Tree) -> Vec<NodeId> {
    let all = tree.find(TOP, "groups").filter(|&all| !tree.node(all).inactive);
    let all = all.map(|all| &tree.node(all).children).into_iter().flatten();
    all.copied().filter(|&group| !tree.node(group).inactive).collect()
}

fn find(tree: &Tree, from: NodeId, words: &[&str]) -> Option<NodeId> {
    words.iter().try_fold(from, |id, word| tree.find(id, word))
}
