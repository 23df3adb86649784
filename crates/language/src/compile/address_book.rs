//! `security address-book`: every name becomes the ranges of addresses it stands for.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::undefined;
use super::view::View;
use crate::error::Report;
use crate::schema::kind::{address, book_prefix, first_address, last_address};

const ADDRESS: &[&str] = &["security", "address-book", "global", "address"];
const ADDRESS_SET: &[&str] = &["security", "address-book", "global", "address-set"];

/// Names policies use without defining them.
const RESERVED: &[&str] = &["any", "any-ipv4", "any-ipv6"];

/// Inclusive ranges of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    pub v4: Vec<(Ipv4Addr, Ipv4Addr)>,
    pub v6: Vec<(Ipv6Addr, Ipv6Addr)>,
}

impl Ranges {
    pub fn all_v4() -> Self {
        Ranges { v4: vec![(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST)], v6: Vec::new() }
    }

    pub fn all_v6() -> Self {
        Ranges { v4: Vec::new(), v6: vec![(Ipv6Addr::UNSPECIFIED, Ipv6Addr::from_bits(u128::MAX))] }
    }

    pub fn add(&mut self, other: &Ranges) {
        self.v4.extend(&other.v4);
        self.v6.extend(&other.v6);
    }

    /// Sorts, and joins ranges that touch or overlap.
    pub fn normalise(&mut self) {
        self.v4 = joined(&mut self.v4, |end| end.to_bits().checked_add(1).map(Ipv4Addr::from_bits));
        self.v6 = joined(&mut self.v6, |end| end.to_bits().checked_add(1).map(Ipv6Addr::from_bits));
    }
}

fn joined<T: Copy + Ord>(ranges: &mut [(T, T)], next: impl Fn(T) -> Option<T>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut joined: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for &(low, high) in ranges.iter() {
        match joined.last_mut() {
            Some(last) if next(last.1).is_none_or(|next| low <= next) => last.1 = last.1.max(high),
            _ => joined.push((low, high)),
        }
    }
    joined
}

#[derive(Default)]
pub(super) struct AddressBook<'a> {
    pub ranges: HashMap<&'a str, Ranges>,
    pub inactive: HashSet<&'a str>,
}

pub(super) fn compile<'a>(top: View<'a>, report: &mut Report) -> AddressBook<'a> {
    let mut book = AddressBook::default();
    book.inactive.extend(top.inactive_names(ADDRESS).chain(top.inactive_names(ADDRESS_SET)));
    for entry in top.entries(ADDRESS) {
        reserved(entry, report);
        book.ranges.insert(entry.word(), address_entry(entry, report));
    }
    let sets: HashMap<&str, View> = top.entries(ADDRESS_SET).map(|set| (set.word(), set)).collect();
    for set in top.entries(ADDRESS_SET) {
        reserved(set, report);
        if top.path(ADDRESS).is_some_and(|addresses| addresses.has(set.word())) {
            let message = format!("`{}` is both an address and an address-set", set.word());
            report.error_help(&set.location(), message, "rename one of them");
            continue;
        }
        flatten(set, &sets, &mut book, &mut Vec::new(), report);
    }
    book
}

fn reserved(entry: View, report: &mut Report) {
    if RESERVED.contains(&entry.word()) {
        let message = format!("`{}` is a reserved name and cannot be defined", entry.word());
        report.error_help(&entry.location(), message, "choose another name");
    }
}

/// The one prefix or range of an address.
fn address_entry(entry: View, report: &mut Report) -> Ranges {
    let mut found: Option<Ranges> = None;
    for child in entry.children() {
        let (ranges, at) = match child.word() {
            "description" => continue,
            "range-address" => match child.children().next() {
                Some(low) => (range(low, report), low),
                None => continue,
            },
            prefix => match book_prefix(prefix) {
                Ok(prefix) => (bounds(first_address(prefix), last_address(prefix)), child),
                Err(_) => continue,
            },
        };
        if found.is_some() {
            let message = format!("address `{}` has more than one prefix or range", entry.word());
            report.error_help(&at.location(), message, "use an `address-set` for several");
        }
        found = Some(ranges.unwrap_or_default());
    }
    if found.is_none() && entry.children().all(|child| child.word() == "description") {
        let message = format!("address `{}` has no prefix", entry.word());
        report.error_help(&entry.location(), message, "expected a prefix or `range-address LOW to HIGH`");
    }
    found.unwrap_or_default()
}

fn bounds(low: IpAddr, high: IpAddr) -> Option<Ranges> {
    match (low, high) {
        (IpAddr::V4(low), IpAddr::V4(high)) => Some(Ranges { v4: vec![(low, high)], v6: Vec::new() }),
        (IpAddr::V6(low), IpAddr::V6(high)) => Some(Ranges { v4: Vec::new(), v6: vec![(low, high)] }),
        _ => None,
    }
}

/// `LOW to HIGH`, seen from LOW.
fn range(low: View, report: &mut Report) -> Option<Ranges> {
    let high = low.value(&["to"])?;
    let (from, to) = (address(low.word()).ok()?, address(high.word()).ok()?);
    if from.is_ipv4() != to.is_ipv4() {
        report.error(&high.location(), format!("`{from}` and `{to}` are of different address families"));
    } else if from > to {
        let help = format!("did you mean `{to} to {from}`?");
        report.error_help(&high.location(), format!("the range `{from} to {to}` runs backwards"), help);
    }
    bounds(from, to)
}

/// Resolves a set and the sets inside it; `open` are the sets being resolved.
fn flatten<'a>(
    set: View<'a>,
    sets: &HashMap<&'a str, View<'a>>,
    book: &mut AddressBook<'a>,
    open: &mut Vec<&'a str>,
    report: &mut Report,
) {
    if book.ranges.contains_key(set.word()) {
        return;
    }
    open.push(set.word());
    let mut ranges = Ranges::default();
    for member in set.entries(&["address"]) {
        match book.ranges.get(member.word()) {
            Some(address) if !sets.contains_key(member.word()) => ranges.add(address),
            _ => {
                let known = book.ranges.keys().copied().filter(|name| !sets.contains_key(name));
                undefined(report, member, "address", known, &book.inactive);
            }
        }
    }
    for member in set.entries(&["address-set"]) {
        match sets.get(member.word()) {
            Some(_) if open.contains(&member.word()) => {
                let message = format!(
                    "address-set `{}` contains itself: {}",
                    member.word(),
                    chain(open, member.word())
                );
                report.error_help(&member.location(), message, "remove one of these uses");
            }
            Some(inner) => {
                flatten(*inner, sets, book, open, report);
                ranges.add(&book.ranges.get(member.word()).cloned().unwrap_or_default());
            }
            None => undefined(report, member, "address-set", sets.keys().copied(), &book.inactive),
        }
    }
    if set.entries(&["address"]).chain(set.entries(&["address-set"])).next().is_none() {
        report.error_help(
            &set.location(),
            format!("address-set `{}` has no members", set.word()),
            "add an `address` or an `address-set`",
        );
    }
    open.pop();
    ranges.normalise();
    book.ranges.insert(set.word(), ranges);
}

/// `a -> b -> a`
pub(super) fn chain(open: &[&str], name: &str) -> String {
    let start = open.iter().position(|set| *set == name).unwrap_or(0);
    let mut names = open[start..].to_vec();
    names.push(name);
    names.join(" -> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_when_they_touch() {
        let v4 =
            |low: &str, high: &str| (low.parse::<Ipv4Addr>().unwrap(), high.parse::<Ipv4Addr>().unwrap());
        let mut ranges = Ranges {
            v4: vec![
                v4("10.0.1.0", "10.0.1.255"),
                v4("10.0.0.0", "10.0.0.255"),
                v4("10.0.0.7", "10.0.0.9"),
                v4("10.0.3.0", "10.0.3.1"),
                v4("255.255.255.255", "255.255.255.255"),
                v4("255.0.0.0", "255.255.255.255"),
            ],
            v6: Vec::new(),
        };
        ranges.normalise();
        let expected =
            [v4("10.0.0.0", "10.0.1.255"), v4("10.0.3.0", "10.0.3.1"), v4("255.0.0.0", "255.255.255.255")];
        assert_eq!(ranges.v4, expected);
    }
}
