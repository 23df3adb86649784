//! `security address-book` and the books of zones: every name becomes the ranges of addresses it stands for.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::nesting::Nesting;
use super::undefined;
use super::view::View;
use crate::config::{Ranges, Zone};
use crate::error::Report;
use crate::schema::kind::{address, book_prefix, first_address, last_address};

const GLOBAL: &str = "global";

/// Names policies use without defining them.
const RESERVED: &[&str] = &["any", "any-ipv4", "any-ipv6"];

/// One book: its names, and those that are there but inactive.
#[derive(Default)]
struct AddressBook<'a> {
    ranges: HashMap<&'a str, Ranges>,
    inactive: HashSet<&'a str>,
}

/// The global book and those of zones.
#[derive(Default)]
pub(super) struct AddressBooks<'a> {
    global: AddressBook<'a>,
    books: Vec<AddressBook<'a>>,
    /// Number of the zone's book among `books`, and the statement that gave it to the zone.
    zones: HashMap<&'a str, (usize, View<'a>)>,
}

impl<'a> AddressBooks<'a> {
    /// The book of a zone first, then the global one.
    fn seen_from(&self, zone: Option<&str>) -> impl Iterator<Item = &AddressBook<'a>> {
        let own = zone.and_then(|zone| self.zones.get(zone)).map(|(number, _)| &self.books[*number]);
        own.into_iter().chain([&self.global])
    }

    /// What `name` means to a policy of `zone`; global policies have none.
    pub fn find(&self, zone: Option<&str>, name: &str) -> Option<&Ranges> {
        self.seen_from(zone).find_map(|book| book.ranges.get(name))
    }

    /// Reports a name that `find` does not know.
    pub fn undefined(&self, report: &mut Report, member: View, zone: Option<&str>) {
        let name = member.word();
        let elsewhere =
            self.zones.iter().filter(|(_, (number, _))| self.books[*number].ranges.contains_key(name));
        if let Some(other) = elsewhere.map(|(zone, _)| *zone).min() {
            let reader = match zone {
                Some(zone) => format!("policies look here into the books of zone `{zone}` and of all zones"),
                None => "global policies look into the book of all zones only".to_owned(),
            };
            report.error_help(
                &member.location(),
                format!(
                    "address `{name}` in `{}` is in the book of zone `{other}` only",
                    member.above().context()
                ),
                format!("{reader}; define it in `security address-book global`"),
            );
            return;
        }
        let inactive = self.seen_from(zone).flat_map(|book| book.inactive.iter().copied()).collect();
        let known = self.seen_from(zone).flat_map(|book| book.ranges.keys().copied());
        undefined(report, member, "address", known.chain(RESERVED.iter().copied()), &inactive);
    }

    /// Makes book `number` that of a zone, which has one at most.
    fn give(&mut self, zone: &'a str, number: usize, by: View<'a>, report: &mut Report) {
        match self.zones.get(zone) {
            None => drop(self.zones.insert(zone, (number, by))),
            Some((_, other)) => {
                let at = other.location();
                let message = format!("zone `{zone}` has another address book at {}:{}", at.line, at.column);
                report.error_help(&by.location(), message, "keep one; the global book is read besides it");
            }
        }
    }
}

pub(super) fn compile<'a>(top: View<'a>, zones: &[Zone], report: &mut Report) -> AddressBooks<'a> {
    let mut books = AddressBooks::default();
    let inactive_zones: HashSet<&str> = top.inactive_names(&["security", "zones", "security-zone"]).collect();
    for kind in ["address", "address-set"] {
        books.global.inactive.extend(top.inactive_names(&["security", "address-book", GLOBAL, kind]));
    }
    for zone in top.entries(&["security", "zones", "security-zone"]) {
        let Some(view) = zone.child("address-book") else { continue };
        books.give(zone.word(), books.books.len(), view, report);
        let book = book(view, report);
        books.books.push(book);
    }
    for view in top.entries(&["security", "address-book"]) {
        let book = book(view, report);
        if view.word() == GLOBAL {
            books.global = AddressBook { ranges: book.ranges, ..books.global };
            if let Some(attach) = view.child("attach") {
                let help = "every zone reads it without being attached; remove `attach`";
                report.error_help(&attach.location(), "the global address book is attached to a zone", help);
            }
            continue;
        }
        for zone in view.entries(&["attach", "zone"]) {
            if !zones.iter().any(|known| known.name == zone.word()) {
                undefined(report, zone, "zone", zones.iter().map(|zone| zone.name.as_str()), &inactive_zones);
            }
            books.give(zone.word(), books.books.len(), zone, report);
        }
        books.books.push(book);
    }
    books
}

fn book<'a>(view: View<'a>, report: &mut Report) -> AddressBook<'a> {
    let mut book = AddressBook::default();
    book.inactive.extend(view.inactive_names(&["address"]).chain(view.inactive_names(&["address-set"])));
    for entry in view.entries(&["address"]) {
        reserved(entry, report);
        book.ranges.insert(entry.word(), address_entry(entry, report));
    }
    let sets: HashMap<&str, View> = view.entries(&["address-set"]).map(|set| (set.word(), set)).collect();
    let mut nesting = Nesting::default();
    for set in view.entries(&["address-set"]) {
        reserved(set, report);
        if view.path(&["address"]).is_some_and(|addresses| addresses.has(set.word())) {
            let message = format!("`{}` is both an address and an address-set", set.word());
            report.error_help(&set.location(), message, "rename one of them");
            continue;
        }
        flatten(set, &sets, &mut book, &mut nesting, report);
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

/// Resolves a set and the sets inside it.
fn flatten<'a>(
    set: View<'a>,
    sets: &HashMap<&'a str, View<'a>>,
    book: &mut AddressBook<'a>,
    nesting: &mut Nesting<'a>,
    report: &mut Report,
) {
    if book.ranges.contains_key(set.word()) {
        return;
    }
    nesting.enter(set.word());
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
            Some(inner) if nesting.takes("address-set", member, report) => {
                flatten(*inner, sets, book, nesting, report);
                ranges.add(&book.ranges.get(member.word()).cloned().unwrap_or_default());
            }
            Some(_) => {}
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
    nesting.leave();
    ranges.normalise();
    book.ranges.insert(set.word(), ranges);
}
