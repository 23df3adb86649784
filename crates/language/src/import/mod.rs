//! Takes a router's configuration over: what Sluice does is kept in effect, the rest stays in the text as `inactive:`.
//!
//! `check` refuses what it does not know, so that nothing is ever ignored. This is the one place that is lenient, and it
//! says what that costs: a statement is left out as a whole, never narrowed or widened in silence. A policy that denies, or
//! permits only what something else inspects, is replaced by one that denies all it could match (`policies.rs`).

mod cost;
mod names;
mod policies;
mod scope;
mod secrets;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};

pub use cost::Cost;
pub use names::{Port, is_port};

use crate::check::{check, context};
use crate::compile::{SAME_DEFAULT_ROUTE, typed};
use crate::error::{Error, Errors, Location, Report};
use crate::schema::Kind;
use crate::schema::dhcp::PREFERENCE;
use crate::stray::Stray;
use crate::tree::{NodeId, TOP, Tree};
use scope::Scope;

/// A router's configuration, read and not yet fitted.
pub struct Import {
    tree: Tree,
    file: String,
    findings: Vec<Finding>,
    /// Comments at the top of the text, which are kept.
    heading: Vec<String>,
    /// Statements by file, line and column of the text; those that were copied stand where the first one does.
    statements: HashMap<(String, u32, u32), Vec<NodeId>>,
    /// Policies that stand in for others.
    stand_ins: HashSet<NodeId>,
    /// DHCP clients that got a `preference`.
    preferred: HashSet<NodeId>,
}

/// Something that is not as it was on the router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What kind of difference it makes.
    pub cost: Cost,
    /// In the text of the router.
    pub location: Location,
    /// The statement.
    pub what: String,
    /// What became of it, and what that means.
    pub why: String,
    /// It is not in effect, or not as it was.
    pub left_out: bool,
}

/// A configuration that Sluice accepts.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Hierarchical, as `sluice check` takes it.
    pub text: String,
    /// What is not as it was, costliest first.
    pub findings: Vec<Finding>,
    /// Interfaces of the router and the devices that they became.
    pub devices: Vec<(String, String)>,
}

impl Imported {
    /// Something is not in effect.
    pub fn is_partial(&self) -> bool {
        self.findings.iter().any(|finding| finding.left_out)
    }

    /// More may pass than did on the router.
    pub fn is_wider(&self) -> bool {
        self.findings.iter().any(|finding| finding.cost == Cost::Wider)
    }
}

/// Why there is nothing to use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "its variants and their fields are what their messages name")]
pub enum ImportError {
    #[error("{0}")]
    Syntax(Errors),
    #[error("{file}:{}:{}: this line is {what}; {help}", .line, .column, help = INCOMPLETE)]
    Incomplete { file: String, line: u32, column: u32, what: &'static str },
    #[error(
        "{0}: no statement in it; expected what `show configuration` prints, or `show configuration | display set`"
    )]
    Empty(String),
    #[error("no interface `{0}` in {1}; name those that `sluice import` lists")]
    NoInterface(String, String),
    #[error("`{0}` is no name of a network device: {1}")]
    Device(String, String),
    #[error("device `{0}` for `{1}` and `{2}`; each interface needs its own")]
    DeviceTwice(String, String, String),
    #[error("{0}\nthese could not be left out by themselves; remove what they name")]
    Stuck(Errors),
}

const INCOMPLETE: &str = "Sluice reads the text that `show configuration` prints, all of it";

impl Import {
    /// Reads what `show configuration` prints, hierarchical or `set`; `file` is what errors call the text.
    pub fn read(text: &str, file: &str) -> Result<Import, ImportError> {
        let mut tree = Tree::default();
        let (strays, read) = tree.read_foreign(text, file);
        if let Some(stray) = strays.iter().find(|stray| stray.hides) {
            let (line, column, what) = (stray.line, stray.column, stray.what);
            return Err(ImportError::Incomplete { file: file.to_owned(), line, column, what });
        }
        read.map_err(ImportError::Syntax)?;
        if tree.node(TOP).children.is_empty() {
            return Err(ImportError::Empty(file.to_owned()));
        }
        let at = |line, column| Location { file: file.into(), line, column, applied: None };
        let mut kinds: Vec<(&Stray, usize)> = Vec::new();
        for stray in &strays {
            match kinds.iter_mut().find(|(first, _)| first.what == stray.what) {
                Some((_, count)) => *count += 1,
                None => kinds.push((stray, 0)),
            }
        }
        let taken_out = kinds.iter().map(|(stray, more)| Finding {
            cost: Cost::Form,
            location: at(stray.line, stray.column),
            what: "a line that is no statement".to_owned(),
            why: match more {
                0 => format!("it is {}; taken out", stray.what),
                more => format!("it is {}; taken out, as {more} more are", stray.what),
            },
            left_out: false,
        });
        let warned = tree.warnings().iter().map(|warning| Finding {
            cost: Cost::Form,
            location: warning.location.clone(),
            what: "a line without effect".to_owned(),
            why: warning.message.clone(),
            left_out: false,
        });
        let findings = taken_out.chain(warned).collect();
        let heading = heading(text);
        let mut import = Import {
            tree,
            file: file.to_owned(),
            findings,
            heading,
            statements: HashMap::new(),
            stand_ins: HashSet::new(),
            preferred: HashSet::new(),
        };
        for id in import.all() {
            import.statements.entry(import.position(id)).or_default().push(id);
        }
        Ok(import)
    }

    /// Fits the configuration to Sluice; `devices` are interfaces of the router and what they are called here.
    pub fn finish(mut self, devices: &[(String, String)]) -> Result<Imported, ImportError> {
        self.check_devices(devices)?;
        self.fit_names(devices);
        self.reveal_keys();
        self.settle()?;
        self.findings.sort_by(|a, b| (a.cost, &a.location).cmp(&(b.cost, &b.location)));
        let devices: Vec<(String, String)> =
            devices.iter().filter(|(from, to)| from != to).cloned().collect();
        let mut text: String = self.heading.iter().map(|line| format!("{line}\n")).collect();
        text.push_str(&self.remarks(&devices));
        text.push_str(&self.tree.to_text());
        Ok(Imported { text, findings: self.findings, devices })
    }

    fn check_devices(&self, devices: &[(String, String)]) -> Result<(), ImportError> {
        let mut taken: HashMap<&str, &str> = HashMap::new();
        for (from, to) in devices {
            let known = self.tree.find(TOP, "interfaces").and_then(|all| self.tree.find(all, from));
            if known.is_none() {
                return Err(ImportError::NoInterface(from.clone(), self.file.clone()));
            }
            Kind::Interface.check(to).map_err(|why| ImportError::Device(to.clone(), why))?;
            if names::is_junos(to) {
                let why = "Junos calls interfaces so, and importing the result again would leave it out";
                return Err(ImportError::Device(to.clone(), why.to_owned()));
            }
            let is_there = self.tree.at(&["interfaces", to]).is_some();
            let other = taken.insert(to, from).or(Some(to.as_str()).filter(|_| from != to && is_there));
            if let Some(other) = other {
                return Err(ImportError::DeviceTwice(to.clone(), other.to_owned(), from.clone()));
            }
        }
        Ok(())
    }

    /// Leaves out what is wrong until nothing is, or until what is in effect was in effect before.
    fn settle(&mut self) -> Result<(), ImportError> {
        let mut seen = HashSet::from([self.in_effect()]);
        loop {
            let Err(errors) = self.judge() else { return Ok(()) };
            for error in errors.iter() {
                self.leave_out(error);
            }
            if !seen.insert(self.in_effect()) {
                return Err(ImportError::Stuck(errors));
            }
        }
    }

    /// A hash of every statement that is active.
    fn in_effect(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut stack = vec![(TOP, 0)];
        while let Some((id, depth)) = stack.pop() {
            (depth, &self.tree.node(id).word).hash(&mut hasher);
            let active = |child: &&NodeId| !self.tree.node(**child).inactive;
            let children = self.tree.node(id).children.iter().rev().filter(active);
            stack.extend(children.map(|&child| (child, depth + 1)));
        }
        hasher.finish()
    }

    /// Names are resolved only once every statement is a known one.
    fn judge(&self) -> Result<(), Errors> {
        let mut report = Report::of_all();
        check(&self.tree, &mut report);
        if report.is_empty() {
            typed(&self.tree, &mut report);
        }
        report.finish(())
    }

    fn leave_out(&mut self, error: &Error) {
        let at = &error.location;
        let there = self.statements.get(&(at.file.to_string(), at.line, at.column));
        // An error before it may have taken it out already.
        let mut there = there.into_iter().flatten();
        let Some(&id) = there.find(|&&id| !self.tree.is_inactive(id) && !self.is_gone(id)) else { return };
        if error.message.contains(SAME_DEFAULT_ROUTE) && self.prefer_later(id) {
            return;
        }
        if self.is_group_of_several(id) {
            return self.leave_group(id, brief(&error.message));
        }
        match scope::of(&self.tree, id) {
            Scope::Policy(policy) => self.leave_policy(policy, id, error),
            Scope::Host(pair) => self.leave_host_policies(pair),
            Scope::Route(route) => self.leave_route(route, error),
            Scope::Signed(whole) => self.leave_signed(whole, &error.message),
            Scope::Statement(statement) => self.leave_statement(statement, &error.message),
        }
    }

    fn is_gone(&self, id: NodeId) -> bool {
        let steps = self.tree.steps(id);
        let parents = std::iter::once(TOP).chain(steps.iter().copied());
        parents.zip(&steps).any(|(parent, child)| !self.tree.node(parent).children.contains(child))
    }

    /// A neighbour without its key would be believed whoever it is.
    fn leave_signed(&mut self, whole: NodeId, why: &str) {
        self.tree.set_inactive(whole, true);
        let why = format!("{}; left out whole: it is not spoken with without its key", brief(why));
        self.found(whole, Cost::Security, why, true);
    }

    /// Two clients keep their addresses, and take their default routes one after the other. False when it cannot be so.
    fn prefer_later(&mut self, client: NodeId) -> bool {
        let value = |tree: &Tree, id: NodeId| {
            let value = tree.node(id).children.first().copied()?;
            tree.node(value).word.parse::<u32>().ok()
        };
        let is_own = self.tree.path(client).first() == Some(&"interfaces");
        let own = self.tree.find(client, "preference").filter(|&id| !self.tree.node(id).inactive);
        let own = own.and_then(|id| value(&self.tree, id)).unwrap_or(PREFERENCE);
        let all = self.all().into_iter().filter(|&id| self.tree.node(id).word == "preference");
        let taken: HashSet<u32> = all.filter_map(|id| value(&self.tree, id)).chain([PREFERENCE]).collect();
        let free = (own..u32::MAX).find(|number| *number != own && !taken.contains(number));
        let Some(free) = free.filter(|_| is_own && self.preferred.insert(client)) else { return false };
        let Some(preference) = self.add(client, "preference") else { return false };
        self.tree.set_inactive(preference, false);
        self.add(preference, &free.to_string());
        let why = format!(
            "`preference {free}` here: two default routes cannot have {own}, and this one is taken when the other is gone"
        );
        self.found(client, Cost::Traffic, why, false);
        true
    }

    fn leave_statement(&mut self, id: NodeId, why: &str) {
        let (cost, means) = match self.applies_policies(id) {
            true => (Cost::Wider, "policies of the group do not deny there any more: copy them"),
            false => cost::of(&self.tree.path(id)),
        };
        self.tree.set_inactive(id, true);
        self.found(id, cost, format!("{}; {means}", brief(why)), true);
        self.leave_members(id);
        self.leave_namesakes(id);
    }

    /// Without its next hop a route would hand its packets to a wider one, or to a way that was its second: out of a
    /// tunnel, into the clear. It discards alone.
    fn leave_route(&mut self, route: NodeId, error: &Error) {
        let (location, what) = (self.tree.location(route), context(&self.tree, route));
        for word in ["next-hop", "next-table", "qualified-next-hop", "reject"] {
            let Some(way) = self.tree.find(route, word).filter(|&way| !self.tree.is_off(way)) else {
                continue;
            };
            self.tree.set_inactive(way, true);
            if word != "next-hop" {
                let why = "left out with `next-hop`: its packets take no other way".to_owned();
                self.found(way, Cost::Traffic, why, true);
            }
        }
        let discard = match self.tree.find(route, "discard") {
            Some(discard) => {
                self.tree.set_inactive(discard, false);
                Some(discard)
            }
            None => self.add(route, "discard"),
        };
        let why = match discard {
            Some(_) => "it discards instead, so that its packets take no other way",
            None => "what it routed takes another way",
        };
        let why = format!("{}; {why}", brief(&error.message));
        self.findings.push(Finding { cost: Cost::Traffic, location, what, why, left_out: true });
    }

    fn found(&mut self, id: NodeId, cost: Cost, why: String, left_out: bool) {
        let (location, what) = (self.tree.location(id), context(&self.tree, id));
        self.findings.push(Finding { cost, location, what, why, left_out });
    }

    fn position(&self, id: NodeId) -> (String, u32, u32) {
        let at = self.tree.location(id);
        (at.file.to_string(), at.line, at.column)
    }

    /// Every statement, in the order of the text.
    fn all(&self) -> Vec<NodeId> {
        self.below(TOP)
    }

    /// A statement and all below it.
    fn below(&self, id: NodeId) -> Vec<NodeId> {
        let mut found = Vec::new();
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            found.push(id);
            stack.extend(self.tree.node(id).children.iter().rev());
        }
        found
    }

    /// Comments for those who read the result.
    fn remarks(&self, devices: &[(String, String)]) -> String {
        let mut out = String::new();
        let line = |out: &mut String, text: String| {
            let _ = writeln!(out, "# {}", text.replace(|c: char| c.is_control(), " "));
        };
        if devices.is_empty() && self.findings.is_empty() {
            return out;
        }
        line(&mut out, format!("Taken over from {} by `sluice import`.", self.file));
        for (from, to) in devices {
            line(&mut out, format!("interface {from} = {to}"));
        }
        for finding in &self.findings {
            let (at, cost) = (&finding.location, finding.cost.name());
            line(&mut out, format!("{cost}: line {}: `{}`: {}", at.line, finding.what, finding.why));
        }
        out
    }
}

/// What is wrong, where the statement itself is named beside it.
fn brief(message: &str) -> &str {
    let is_path_named = message.ends_with(NOT_SUPPORTED) || message.starts_with("unknown statement");
    if is_path_named { "not done by Sluice" } else { message }
}

/// As `check` says it.
const NOT_SUPPORTED: &str = "is not supported by Sluice";

/// Comments before the first statement.
fn heading(text: &str) -> Vec<String> {
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines = lines.map(|line| line.replace(|c: char| c.is_control(), " ").trim().to_owned());
    lines.take_while(|line| line.starts_with('#')).collect()
}
