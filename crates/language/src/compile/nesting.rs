//! Sets that stand in sets.

use std::collections::HashMap;

use super::view::View;
use crate::error::Report;

/// Sets inside of each other; the bound keeps the recursion shallow.
const MAX_NESTING: usize = 64;

/// The sets that are being resolved, and how deep those are that have been.
#[derive(Default)]
pub(super) struct Nesting<'a> {
    /// From the outermost on, with the depth of what was met in each.
    open: Vec<(&'a str, usize)>,
    depths: HashMap<&'a str, usize>,
}

impl<'a> Nesting<'a> {
    pub fn enter(&mut self, set: &'a str) {
        self.open.push((set, 0));
    }

    pub fn leave(&mut self) {
        let Some((set, inside)) = self.open.pop() else { return };
        self.depths.insert(set, inside + 1);
        self.met(set);
    }

    /// Whether the innermost open set may hold the set that `member` names; says why not.
    pub fn takes(&mut self, what: &str, member: View<'a>, report: &mut Report) -> bool {
        let name = member.word();
        if self.open.iter().any(|(open, _)| *open == name) {
            let message = format!("{what} `{name}` contains itself: {}", self.chain(name));
            report.error_help(&member.location(), message, "remove one of these uses");
            return false;
        }
        if self.open.len() + self.depths.get(name).copied().unwrap_or(1) > MAX_NESTING {
            let message = format!("`{name}` is in more than {MAX_NESTING} {what}s inside of each other");
            report.error_help(&member.location(), message, "name its members in the outer set");
            return false;
        }
        self.met(name);
        true
    }

    fn met(&mut self, set: &str) {
        if let (Some(depth), Some((_, inside))) = (self.depths.get(set), self.open.last_mut()) {
            *inside = (*inside).max(*depth);
        }
    }

    /// `a -> b -> a`
    fn chain(&self, name: &str) -> String {
        let from = self.open.iter().map(|(set, _)| *set).skip_while(|set| *set != name);
        from.chain([name]).collect::<Vec<_>>().join(" -> ")
    }
}
