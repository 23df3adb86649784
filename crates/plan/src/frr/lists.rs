//! Prefix lists, community lists and AS path lists of FRR. Names say which term has them, so that what changes within a list
//! leaves its route maps as they are.

use std::collections::BTreeMap;

use sluice_language::config::Prefix;
use sluice_language::protocols::RouteFilter;

/// Lines by name; the same name always has the same lines.
#[derive(Default)]
pub(super) struct Lists {
    prefixes: BTreeMap<(bool, String), Vec<String>>,
    others: BTreeMap<(&'static str, String), Vec<String>>,
}

impl Lists {
    /// Routes of these prefixes and lengths; false when none is of the family.
    pub fn prefixes(&mut self, name: &str, filters: &[RouteFilter], six: bool) -> bool {
        let of_family = filters.iter().filter(|filter| filter.prefix.addr.is_ipv6() == six);
        let lines: Vec<String> = of_family.map(|filter| format!("permit {}", range(filter))).collect();
        let any = !lines.is_empty();
        if any {
            self.prefixes.insert((six, name.to_owned()), lines);
        }
        any
    }

    /// All routes but those to these very prefixes.
    pub fn all_but(&mut self, name: &str, but: &[Prefix], six: bool) {
        let mut lines: Vec<String> =
            but.iter().map(|prefix| format!("deny {}/{}", prefix.addr, prefix.len)).collect();
        lines.push("permit any".to_owned());
        self.prefixes.insert((six, name.to_owned()), lines);
    }

    /// Routes that have all members of any of these.
    pub fn communities(&mut self, name: &str, any: &[Vec<String>]) {
        let line = |all: &Vec<String>| {
            let mut all = all.clone();
            // as FRR prints them
            all.sort_by_key(|community| community_value(community));
            format!("permit {}", all.join(" "))
        };
        let lines = any.iter().map(line).collect();
        self.others.insert(("bgp community-list standard", name.to_owned()), lines);
    }

    pub fn as_paths(&mut self, name: &str, any: &[String]) {
        let lines = any.iter().map(|expression| format!("permit {expression}")).collect();
        self.others.insert(("bgp as-path access-list", name.to_owned()), lines);
    }

    pub fn lines(&self) -> Vec<String> {
        let prefixes = self.prefixes.iter().flat_map(|((six, name), lines)| {
            numbered(format!("{} prefix-list {name}", if *six { "ipv6" } else { "ip" }), lines)
        });
        let others =
            self.others.iter().flat_map(|((kind, name), lines)| numbered(format!("{kind} {name}"), lines));
        prefixes.chain(others).collect()
    }
}

/// RFC 1997; its names are those of the last AS number.
fn community_value(text: &str) -> u32 {
    let half = |text: &str| text.parse::<u32>().unwrap_or(0);
    match (text, text.split_once(':')) {
        (_, Some((autonomous_system, value))) => half(autonomous_system) << 16 | half(value),
        ("no-export", _) => 0xffff_ff01,
        ("no-advertise", _) => 0xffff_ff02,
        _ => 0xffff_ff03,
    }
}

fn numbered(list: String, lines: &[String]) -> impl Iterator<Item = String> {
    lines.iter().enumerate().map(move |(index, line)| format!("{list} seq {} {line}", 5 * (index + 1)))
}

/// `10.0.0.0/8 ge 16 le 24`; FRR prints every length of all addresses as `any`.
fn range(filter: &RouteFilter) -> String {
    let RouteFilter { prefix, least, most } = filter;
    let longest = if prefix.addr.is_ipv4() { 32 } else { 128 };
    if (prefix.len, *least, *most) == (0, 0, longest) {
        return "any".to_owned();
    }
    let mut text = format!("{}/{}", prefix.addr, prefix.len);
    if *least > prefix.len {
        text += &format!(" ge {least}");
    }
    if *most > prefix.len {
        text += &format!(" le {most}");
    }
    text
}
