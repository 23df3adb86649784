//! `policy-options`: lists are put in the place of their names.

use std::collections::HashMap;
use std::net::IpAddr;

use super::super::undefined;
use super::super::view::View;
use super::as_path;
use crate::error::Report;
use crate::protocols::{From, Origin, PolicyStatement, RouteFilter, RouteNextHop, Term, Then, Verdict};
use crate::schema::kind::{book_prefix, no_host_bits, number, prefix};
use crate::values::Prefix;

struct Lists<'a> {
    top: View<'a>,
    prefixes: HashMap<&'a str, Vec<Prefix>>,
    communities: HashMap<&'a str, Vec<String>>,
    as_paths: HashMap<&'a str, String>,
}

pub(super) fn compile(top: View, report: &mut Report) -> Vec<PolicyStatement> {
    let options = |name: &str| top.entries(&["policy-options", name]);
    let prefixes = |list: View| list.children().filter_map(|p| book_prefix(p.word()).ok()).collect();
    let lists = Lists {
        top,
        prefixes: options("prefix-list").map(|list| (list.word(), prefixes(list))).collect(),
        communities: options("community").map(|list| (list.word(), members(list, report))).collect(),
        as_paths: options("as-path").map(|path| (path.word(), expression(path, report))).collect(),
    };
    let policy = |view: View, report: &mut Report| {
        let mut terms: Vec<Term> = view.entries(&["term"]).map(|view| lists.term(view, report)).collect();
        if view.has("from") || view.has("then") {
            terms.push(lists.term(view, report));
        }
        PolicyStatement { name: view.word().to_owned(), terms }
    };
    options("policy-statement").map(|view| policy(view, report)).collect()
}

/// RFC 1997: two numbers of 16 bits, or a well-known one.
fn members(list: View, report: &mut Report) -> Vec<String> {
    let known = |word: &str| match word {
        "no-export" | "no-advertise" => Some(word.to_owned()),
        "no-export-subconfed" => Some("local-AS".to_owned()),
        _ => {
            let (high, low) = word.split_once(':')?;
            let part = |text| number(text, 0, 65535).ok();
            Some(format!("{}:{}", part(high)?, part(low)?))
        }
    };
    let mut members = vec![];
    for view in list.entries(&["members"]) {
        match known(view.word()) {
            Some(member) => members.push(member),
            None => report.error_help(
                &view.location(),
                format!("`{}` is no community", view.word()),
                "expected two numbers up to 65535, like `65000:100`, or a well-known name",
            ),
        }
    }
    if !list.has("members") {
        report.error_help(
            &list.location(),
            format!("community `{}` has no members", list.word()),
            "add `members`",
        );
    }
    members
}

fn expression(path: View, report: &mut Report) -> String {
    let Some(text) = path.children().next() else { return String::new() };
    as_path::translate(text.word()).unwrap_or_else(|why| {
        let message = format!("AS path `{}` is not understood: {why}", text.word());
        report.error_help(
            &text.location(),
            message,
            "numbers, `.`, groups in `( )`, `|` between choices, and `*`, `+`, `?` or `{m,n}` behind them",
        );
        String::new()
    })
}

impl<'a> Lists<'a> {
    fn term(&self, view: View, report: &mut Report) -> Term {
        let from = view.child("from").map(|from| self.from(from, report)).unwrap_or_default();
        let then = view.child("then").map(|then| self.then(then, report)).unwrap_or_default();
        Term { from, then }
    }

    fn find<'l, T>(
        &'l self,
        list: &'l HashMap<&'a str, T>,
        (what, statement): (&str, &str),
        name: View,
        report: &mut Report,
    ) -> Option<&'l T> {
        let found = list.get(name.word());
        if found.is_none() {
            let inactive = self.top.inactive_names(&["policy-options", statement]).collect();
            undefined(report, name, what, list.keys().copied(), &inactive);
        }
        found
    }

    fn from(&self, view: View, report: &mut Report) -> From {
        let mut from = From::default();
        for entry in view.entries(&["protocol"]) {
            from.protocols.extend(match entry.word() {
                "bgp" => Some(Origin::Bgp),
                "direct" => Some(Origin::Direct),
                "ospf" => Some(Origin::Ospf),
                "ospf3" => Some(Origin::Ospf3),
                "static" => Some(Origin::Static),
                _ => None,
            });
        }
        from.inet6 = view.value(&["family"]).map(|family| family.word() == "inet6");
        from.neighbors = view.entries(&["neighbor"]).filter_map(|n| n.word().parse().ok()).collect();
        for name in view.entries(&["community"]) {
            from.communities
                .extend(self.find(&self.communities, ("community", "community"), name, report).cloned());
        }
        for name in view.entries(&["as-path"]) {
            from.as_paths.extend(self.find(&self.as_paths, ("AS path", "as-path"), name, report).cloned());
        }
        from.prefixes = self.prefixes(view, report);
        from
    }

    fn prefixes(&self, view: View, report: &mut Report) -> Option<Vec<RouteFilter>> {
        let (list, filter) = (view.child("prefix-list"), view.child("route-filter"));
        if let (Some(_), Some(filter)) = (list, filter) {
            let message = format!("`{}` has both `prefix-list` and `route-filter`", view.context());
            report.error_help(&filter.location(), message, "write two terms");
        }
        if list.is_none() && filter.is_none() {
            return None;
        }
        let mut filters = vec![];
        for name in view.entries(&["prefix-list"]) {
            let found = self.find(&self.prefixes, ("prefix list", "prefix-list"), name, report);
            let exact =
                |prefix: &Prefix| RouteFilter { prefix: *prefix, least: prefix.len, most: prefix.len };
            filters.extend(found.into_iter().flatten().map(exact));
        }
        filters.extend(view.entries(&["route-filter"]).filter_map(|filter| route_filter(filter, report)));
        Some(filters)
    }

    fn then(&self, view: View, report: &mut Report) -> Then {
        let number = |name| view.value(&[name]).and_then(View::number);
        let mut communities = |name| -> Vec<String> {
            let names = view.entries(&["community", name]);
            let found = names.filter_map(|name| {
                self.find(&self.communities, ("community", "community"), name, report).cloned()
            });
            found.flatten().collect()
        };
        let [add, set, delete] = ["add", "set", "delete"].map(&mut communities);
        Then {
            verdict: match view.value(&["next"]).map(View::word) {
                _ if view.has("accept") => Verdict::Accept,
                _ if view.has("reject") => Verdict::Reject,
                Some("policy") => Verdict::NextPolicy,
                _ => Verdict::NextTerm,
            },
            metric: number("metric"),
            local_preference: number("local-preference"),
            add,
            set,
            delete,
            prepend: view.value(&["as-path-prepend"]).and_then(|numbers| prepend(numbers, report)),
            next_hop: view.value(&["next-hop"]).and_then(|hop| next_hop(hop, report)),
        }
    }
}

fn prepend(view: View, report: &mut Report) -> Option<String> {
    let numbers: Option<Vec<u64>> =
        view.word().split_whitespace().map(|word| number(word, 1, u32::MAX.into()).ok()).collect();
    match numbers {
        Some(numbers) if (1..=32).contains(&numbers.len()) => {
            Some(numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
        }
        _ => {
            let message = format!("`{}` are no AS numbers", view.word());
            report.error_help(&view.location(), message, "one to 32 of them, like `\"65000 65000\"`");
            None
        }
    }
}

fn next_hop(view: View, report: &mut Report) -> Option<RouteNextHop> {
    match (view.word(), view.word().parse::<IpAddr>()) {
        ("self", _) => Some(RouteNextHop::Own),
        ("peer-address", _) => Some(RouteNextHop::Peer),
        (_, Ok(address)) => Some(RouteNextHop::Address(address)),
        (word, Err(_)) => {
            let message = format!("`{word}` is no next hop of a route");
            report.error_help(&view.location(), message, "expected `self`, `peer-address` or an address");
            None
        }
    }
}

fn route_filter(view: View, report: &mut Report) -> Option<RouteFilter> {
    let prefix = prefix(view.word()).and_then(no_host_bits).ok()?;
    let (len, most) = (prefix.len, if prefix.addr.is_ipv4() { 32 } else { 128 });
    let length = |text: &str| {
        let digits = text.strip_prefix('/')?;
        number(digits, len.into(), most.into()).ok().map(|length| length as u8)
    };
    let range = |text: &str| {
        let (least, longest) = text.split_once('-')?;
        let (least, longest) = (length(least)?, length(longest)?);
        (least <= longest).then_some((least, longest))
    };
    let chosen = view.children().next();
    let value = |name| view.value(&[name]).map_or("", View::word);
    let lengths = match chosen.map(View::word) {
        Some("exact") => Some((len, len)),
        Some("orlonger") => Some((len, most)),
        Some("longer") if len < most => Some((len + 1, most)),
        Some("upto") => length(value("upto")).map(|longest| (len, longest)),
        Some("prefix-length-range") => range(value("prefix-length-range")),
        _ => None,
    };
    let Some((least, most)) = lengths else {
        let message = format!("route filter `{}` matches no length from /{len} to /{most}", view.word());
        let help =
            "add `exact`, `orlonger`, `longer`, `upto /LENGTH` or `prefix-length-range /LENGTH-/LENGTH`";
        report.error_help(&view.location(), message, help);
        return None;
    };
    Some(RouteFilter { prefix, least, most })
}
