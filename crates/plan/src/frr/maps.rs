//! Route maps: a chain of policies, with Junos's default action at its end.
//!
//! A term is one or more entries of a map. Junos goes on to the next term with what a term has changed, FRR ends at the first
//! entry that matches; so entries of terms that do not decide say where to go on.

use std::collections::BTreeMap;

use sluice_language::protocols::{From, Origin, PolicyStatement, RouteNextHop, Term, Then, Verdict};

use super::family;
use super::lists::Lists;

/// Routes from elsewhere carry these tags within BGP, so that a map for a neighbour can tell them; received ones have none.
const TAGS: [(Origin, u32); 4] =
    [(Origin::Direct, 8301), (Origin::Ospf, 8302), (Origin::Ospf3, 8303), (Origin::Static, 8304)];

pub(super) fn tag(origin: Origin) -> Option<u32> {
    TAGS.iter().find(|(known, _)| *known == origin).map(|(_, tag)| *tag)
}

/// What a map is for.
#[derive(Clone, Copy)]
pub(super) enum Use<'a> {
    /// From BGP neighbours: what no policy rejects is taken.
    Import,
    /// To BGP neighbours, with the origins besides BGP that BGP has routes of: what no policy accepts is told if it is BGP's own.
    Export(&'a [Origin]),
    /// From one protocol into OSPF: what no policy accepts is not told.
    Redistribute(Origin),
}

pub(super) struct Maps<'a> {
    policies: &'a [PolicyStatement],
    done: BTreeMap<String, Vec<String>>,
}

struct Entry {
    permit: bool,
    lines: Vec<String>,
    onward: Option<Onward>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Onward {
    Term,
    Policy,
}

impl Entry {
    fn last(permit: bool, lines: Vec<String>) -> Self {
        Entry { permit, lines, onward: None }
    }
}

/// Entries of one term, and which policy of the chain it is of.
type Block = (usize, Vec<Entry>);

impl<'a> Maps<'a> {
    pub fn new(policies: &'a [PolicyStatement]) -> Self {
        Maps { policies, done: BTreeMap::new() }
    }

    pub fn find(&self, name: &str) -> Option<&'a PolicyStatement> {
        self.policies.iter().find(|policy| policy.name == name)
    }

    /// The terms of a chain of policies.
    pub fn terms(&self, chain: &[String]) -> impl Iterator<Item = &'a Term> {
        chain.iter().filter_map(|name| self.find(name)).flat_map(|policy| &policy.terms)
    }

    /// A map of its own lines alone.
    pub fn fixed(&mut self, name: &str, entries: Vec<(bool, Vec<String>)>) {
        let entries = entries.into_iter().map(|(permit, lines)| Entry::last(permit, lines)).collect();
        self.put(name, vec![(0, entries)]);
    }

    /// The map of a chain of policies; its name. `before` comes first.
    pub fn chain(
        &mut self,
        purpose: Use<'_>,
        chain: &[String],
        six: bool,
        lists: &mut Lists,
        before: Option<Vec<String>>,
    ) -> String {
        let name = name(purpose, chain, six);
        let mut blocks: Vec<Block> =
            before.into_iter().map(|lines| (0, vec![Entry::last(false, lines)])).collect();
        for (index, policy) in chain.iter().filter_map(|name| self.find(name)).enumerate() {
            for (number, term) in policy.terms.iter().enumerate() {
                let label = format!("{}-{}", policy.name, number + 1);
                blocks.push((index, entries(term, &label, purpose, six, lists)));
            }
        }
        blocks.push((usize::MAX, ends(purpose)));
        self.put(&name, blocks);
        name
    }

    /// Numbers the entries, and says by number where they go on.
    fn put(&mut self, name: &str, blocks: Vec<Block>) {
        let mut firsts = vec![];
        let mut next = 10;
        for (policy, entries) in &blocks {
            firsts.push((*policy, next));
            next += 10 * entries.len();
        }
        let mut lines = vec![];
        for (at, (policy, entries)) in blocks.into_iter().enumerate() {
            for (number, entry) in entries.into_iter().enumerate() {
                let action = if entry.permit { "permit" } else { "deny" };
                lines.push(format!("route-map {name} {action} {}", firsts[at].1 + 10 * number));
                lines.extend(entry.lines.iter().map(|line| format!(" {line}")));
                let to = match entry.onward {
                    Some(Onward::Term) => firsts.get(at + 1),
                    Some(Onward::Policy) => firsts[at..].iter().find(|(other, _)| *other != policy),
                    None => None,
                };
                lines.extend(to.map(|(_, number)| format!(" on-match goto {number}")));
            }
        }
        self.done.insert(name.to_owned(), lines);
    }

    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.done.values().flatten().cloned()
    }
}

/// Longer ones are cut, and told apart by a checksum.
const LONGEST_NAME: usize = 100;

fn name(purpose: Use<'_>, chain: &[String], six: bool) -> String {
    let purpose = match purpose {
        Use::Import => "import".to_owned(),
        Use::Export(_) => "export".to_owned(),
        Use::Redistribute(origin) => format!("ospf-{}", super::word(origin)),
    };
    let names = if chain.is_empty() { String::new() } else { format!("-{}", chain.join("+")) };
    let mut name = format!("{purpose}-{}{names}", family(six));
    if name.len() > LONGEST_NAME {
        // FNV-1a
        let sum = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        name.truncate(LONGEST_NAME - 17);
        name += &format!("-{sum:016x}");
    }
    name
}

/// Junos's default actions.
fn ends(purpose: Use<'_>) -> Vec<Entry> {
    let tagged = |origin: &Origin| Some(Entry::last(false, vec![format!("match tag {}", tag(*origin)?)]));
    match purpose {
        Use::Import => vec![Entry::last(true, vec![])],
        Use::Export(origins) => {
            let mut ends: Vec<Entry> = origins.iter().filter_map(tagged).collect();
            ends.push(Entry::last(true, vec![]));
            ends
        }
        Use::Redistribute(_) => vec![Entry::last(false, vec![])],
    }
}

fn entries(term: &Term, label: &str, purpose: Use<'_>, six: bool, lists: &mut Lists) -> Vec<Entry> {
    let Some(matches) = conditions(&term.from, label, six, lists) else { return vec![] };
    let changes = changes(&term.then, label, six, lists);
    let (permit, onward) = match term.then.verdict {
        Verdict::Accept => (true, None),
        Verdict::Reject => (false, None),
        Verdict::NextTerm if changes.is_empty() => return vec![],
        Verdict::NextTerm => (true, Some(Onward::Term)),
        Verdict::NextPolicy => (true, Some(Onward::Policy)),
    };
    let (skipped, origins) = origins(&term.from.protocols, purpose);
    let mut entries: Vec<Entry> = skipped
        .into_iter()
        .map(|line| Entry { permit: true, lines: vec![line], onward: Some(Onward::Term) })
        .collect();
    for origin in &origins {
        for peer in alternatives(&term.from.neighbors) {
            let lines =
                [origin.clone(), matches.clone(), peer, if permit { changes.clone() } else { vec![] }];
            entries.push(Entry { permit, lines: lines.concat(), onward });
        }
    }
    entries
}

fn alternatives(neighbors: &[std::net::IpAddr]) -> Vec<Vec<String>> {
    if neighbors.is_empty() {
        return vec![vec![]];
    }
    neighbors.iter().map(|address| vec![format!("match peer {address}")]).collect()
}

/// What keeps routes of other origins from the entries of a term, and what each of those must match besides.
fn origins(wanted: &[Origin], purpose: Use<'_>) -> (Vec<String>, Vec<Vec<String>>) {
    let any = wanted.is_empty();
    let by_tag = |origin: &Origin| Some(format!("match tag {}", tag(*origin)?));
    match purpose {
        Use::Import if any || wanted.contains(&Origin::Bgp) => (vec![], vec![vec![]]),
        Use::Redistribute(origin) if any || wanted.contains(&origin) => (vec![], vec![vec![]]),
        Use::Import | Use::Redistribute(_) => (vec![], vec![]),
        Use::Export(_) if any => (vec![], vec![vec![]]),
        // no match is for routes without a tag: the others go past the term
        Use::Export(there) if wanted.contains(&Origin::Bgp) => {
            let others = there.iter().filter(|origin| !wanted.contains(origin));
            (others.filter_map(by_tag).collect(), vec![vec![]])
        }
        Use::Export(there) => {
            let wanted = there.iter().filter(|origin| wanted.contains(origin));
            (vec![], wanted.filter_map(by_tag).map(|line| vec![line]).collect())
        }
    }
}

/// None when no route of the family can match.
fn conditions(from: &From, label: &str, six: bool, lists: &mut Lists) -> Option<Vec<String>> {
    if from.inet6.is_some_and(|wanted| wanted != six) {
        return None;
    }
    let mut matches = vec![];
    if let Some(filters) = &from.prefixes {
        if !lists.prefixes(label, filters, six) {
            return None;
        }
        matches.push(format!("match {} address prefix-list {label}", if six { "ipv6" } else { "ip" }));
    }
    if !from.communities.is_empty() {
        lists.communities(label, &from.communities);
        matches.push(format!("match community {label}"));
    }
    if !from.as_paths.is_empty() {
        lists.as_paths(label, &from.as_paths);
        matches.push(format!("match as-path {label}"));
    }
    Some(matches)
}

fn changes(then: &Then, label: &str, six: bool, lists: &mut Lists) -> Vec<String> {
    let mut lines = vec![];
    lines.extend(then.metric.map(|metric| format!("set metric {metric}")));
    lines.extend(then.local_preference.map(|preference| format!("set local-preference {preference}")));
    lines.extend(then.prepend.as_ref().map(|numbers| format!("set as-path prepend {numbers}")));
    if !then.delete.is_empty() {
        let name = format!("{label}-delete");
        // each of them by itself
        let each: Vec<Vec<String>> = then.delete.iter().map(|member| vec![member.clone()]).collect();
        lists.communities(&name, &each);
        lines.push(format!("set comm-list {name} delete"));
    }
    let mut given = [then.set.as_slice(), then.add.as_slice()].concat();
    if !given.is_empty() {
        // as FRR prints them
        given.sort_by_key(|member| numbers(member));
        given.dedup();
        let additive = if then.set.is_empty() { " additive" } else { "" };
        lines.push(format!("set community {}{additive}", given.join(" ")));
    }
    let (word, global) = if six { ("ipv6", " global") } else { ("ip", "") };
    lines.extend(then.next_hop.and_then(|hop| match hop {
        // FRR's word for our end of the session in maps for what is told, and for the other one where it is taken
        RouteNextHop::Own | RouteNextHop::Peer => Some(format!("set {word} next-hop peer-address")),
        RouteNextHop::Address(address) if address.is_ipv6() == six => {
            Some(format!("set {word} next-hop{global} {address}"))
        }
        RouteNextHop::Address(_) => None,
    }));
    lines
}

/// Well-known communities are the last ones (RFC 1997).
fn numbers(member: &str) -> (u16, u16) {
    let parts = member.split_once(':').map(|(high, low)| (high.parse(), low.parse()));
    match parts {
        Some((Ok(high), Ok(low))) => (high, low),
        _ => (u16::MAX, 0),
    }
}
