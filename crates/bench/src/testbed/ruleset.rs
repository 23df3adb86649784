//! Policies of one zone pair that the bench's packets hit uniformly: each packet matches exactly two of them, and the first
//! one decides, because the second one, further down, would do the opposite.
//!
//! The space of clients, servers and server ports is halved again and again until there are as many boxes as policies.
//! The boxes' sides are prefixes and port ranges of every length down to the limits, so the address and application
//! lists of the policies overlap in every way, while their products do not. A quarter of the policies, behind all the
//! others, are larger boxes of the same space.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::generator::packets::{
    CLIENTS4, CLIENTS6, SERVER_BITS, SERVER_PORT_BITS, SERVER_PORTS, SERVERS4, SERVERS6, Tuple,
};
use crate::method::stats::Rng;

/// Halvings of each side: at most 1,023 prefixes of clients, as many of servers, and 511 applications.
const DEEPEST: [u32; 3] = [9, 9, 8];
const BITS: [u32; 3] = [16, SERVER_BITS, SERVER_PORT_BITS];

/// One side of a box: the upper `length` bits of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Part {
    length: u32,
    bits: u32,
}

impl Part {
    fn halves(self) -> [Part; 2] {
        [0, 1].map(|bit| Part { length: self.length + 1, bits: self.bits << 1 | bit })
    }

    /// First number of the part, of `width` bits.
    fn first(self, width: u32) -> u32 {
        self.bits << (width - self.length)
    }

    fn name(self, prefix: &str) -> String {
        if self.length == 0 { "any".to_owned() } else { format!("{prefix}{}-{}", self.length, self.bits) }
    }
}

/// Clients, servers, server ports.
type Cell = [Part; 3];

/// As many boxes as wanted, of sizes that differ by a factor of two at most, in random order. A box is mostly halved where
/// its parent was, so that there are long and short prefixes on all sides.
fn cells(count: usize, random: &mut Rng) -> Vec<Cell> {
    let mut cells = vec![(Cell::default(), 0)];
    while cells.len() < count {
        let halved = (count - cells.len()).min(cells.len());
        for index in 0..halved {
            let (cell, before) = cells[index];
            let sides: Vec<usize> = (0..3).filter(|side| cell[*side].length < DEEPEST[*side]).collect();
            let stays = sides.contains(&before) && !random.next_u64().is_multiple_of(4);
            let side = if stays { before } else { sides[random.next_u64() as usize % sides.len()] };
            let [left, right] = cell[side].halves();
            let mut other = cell;
            (cells[index].0[side], other[side]) = (left, right);
            cells[index].1 = side;
            cells.push((other, side));
        }
    }
    for index in (1..cells.len()).rev() {
        cells.swap(index, random.next_u64() as usize % (index + 1));
    }
    cells.into_iter().map(|(cell, _)| cell).collect()
}

/// What a policy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Permit,
    Deny,
}

impl Then {
    fn word(self) -> &'static str {
        match self {
            Then::Permit => "permit",
            Then::Deny => "deny",
        }
    }

    fn opposite(self) -> Then {
        match self {
            Then::Permit => Then::Deny,
            Then::Deny => Then::Permit,
        }
    }
}

/// The policies in their order, `p0` first.
pub struct Rules {
    policies: Vec<(Cell, Then)>,
}

impl Rules {
    /// `count` policies, two at least, of which the one that a packet meets first says `decides`.
    pub fn new(count: usize, decides: Then) -> Rules {
        let behind = (count / 4).max(1);
        let first = cells(count - behind, &mut Rng::new(count as u64)).into_iter();
        let second = cells(behind, &mut Rng::new(!(count as u64))).into_iter();
        let policies = first.map(|cell| (cell, decides)).chain(second.map(|cell| (cell, decides.opposite())));
        Rules { policies: policies.collect() }
    }

    /// The policies that a first packet matches, in their order, by going through the list.
    fn matches(&self, tuple: Tuple) -> impl Iterator<Item = usize> {
        let point = [tuple.client, tuple.server, tuple.server_port - SERVER_PORTS].map(u32::from);
        let inside =
            move |cell: &Cell| (0..3).all(|n| point[n] >> (BITS[n] - cell[n].length) == cell[n].bits);
        self.policies.iter().enumerate().filter(move |(_, (cell, _))| inside(cell)).map(|(n, _)| n)
    }

    /// Number of the policy that decides about a first packet.
    pub fn first_match(&self, tuple: Tuple) -> Option<usize> {
        self.matches(tuple).next()
    }

    /// `security { policies ... }` and what the policies refer to, between `zone` and itself.
    pub fn text(&self, zone: &str) -> String {
        self.between(zone, zone)
    }

    /// The same from one zone to another.
    pub fn between(&self, from: &str, to: &str) -> String {
        let side =
            |n: usize| self.policies.iter().map(move |(cell, _)| cell[n]).filter(|part| part.length > 0);
        let (clients, servers, ports): (BTreeSet<Part>, BTreeSet<Part>, BTreeSet<Part>) =
            (side(0).collect(), side(1).collect(), side(2).collect());
        let mut text = String::from("security {\naddress-book {\nglobal {\n");
        addresses(&mut text, "c", &clients, BITS[0], CLIENTS4, CLIENTS6);
        addresses(&mut text, "s", &servers, BITS[1], SERVERS4, SERVERS6);
        write!(text, "}}\n}}\npolicies {{\nfrom-zone {from} to-zone {to} {{\n").expect("text");
        for (n, (cell, then)) in self.policies.iter().enumerate() {
            text += &policy(n, cell, *then);
        }
        text += "}\n}\n}\napplications {\n";
        ports.iter().for_each(|port| text += &application(*port));
        text + "}\n"
    }
}

fn policy(n: usize, [client, server, port]: &Cell, then: Then) -> String {
    let list = |side: Part, name: &str| match side.length {
        0 => "any".to_owned(),
        _ => format!("[ {name} {name}-6 ]"),
    };
    let (source, destination) = (list(*client, &client.name("c")), list(*server, &server.name("s")));
    format!(
        "policy p{n} {{ match {{ source-address {source}; destination-address {destination}; application {}; }} \
         then {{ {}; }} }}\n",
        port.name("a"),
        then.word()
    )
}

fn application(port: Part) -> String {
    let first = u32::from(SERVER_PORTS) + port.first(BITS[2]);
    let last = first + (1 << (BITS[2] - port.length)) - 1;
    let term = |n: u32, protocol: &str| {
        format!("term t{n} {{ protocol {protocol}; destination-port {first}-{last}; }}")
    };
    format!("application {} {{ {} {} }}\n", port.name("a"), term(1, "tcp"), term(2, "udp"))
}

/// Both families' prefixes of the same machines.
fn addresses(text: &mut String, letter: &str, parts: &BTreeSet<Part>, width: u32, v4: [u8; 2], v6: u16) {
    for part in parts {
        let (name, first) = (part.name(letter), part.first(width));
        let (high, low) = (first >> 8, first & 0xff);
        let (length4, length6) = (32 - width + part.length, 128 - width + part.length);
        writeln!(text, "address {name} {}.{}.{high}.{low}/{length4};", v4[0], v4[1]).expect("text");
        writeln!(text, "address {name}-6 fd00:{v6:x}::{first:x}/{length6};").expect("text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_has_one_policy_and_policies_are_alike() {
        for count in [10, 1000, 10_000] {
            let cells = cells(count, &mut Rng::new(1));
            assert_eq!(cells.len(), count);
            let size = |cell: &Cell| cell.iter().map(|part| 0.5f64.powi(part.length as i32)).product::<f64>();
            let sizes: Vec<f64> = cells.iter().map(size).collect();
            let (least, most) = sizes.iter().fold((1.0f64, 0.0f64), |(l, m), s| (l.min(*s), m.max(*s)));
            assert!(most <= 2.0 * least, "{least} to {most}");
            assert!((sizes.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            let mut random = Rng::new(2);
            for _ in 0..200 {
                let point = BITS.map(|bits| random.next_u64() as u32 & ((1 << bits) - 1));
                let inside =
                    |cell: &&Cell| (0..3).all(|n| point[n] >> (BITS[n] - cell[n].length) == cell[n].bits);
                assert_eq!(cells.iter().filter(inside).count(), 1);
            }
        }
    }

    #[test]
    fn ten_thousand_policies_use_overlapping_lists() {
        let cells = cells(10_000, &mut Rng::new(10_000));
        let lists = |n: usize| {
            cells.iter().map(|cell| cell[n]).filter(|part| part.length > 0).collect::<BTreeSet<_>>()
        };
        let (prefixes, applications) = (lists(0).len() + lists(1).len(), lists(2).len());
        assert!((1_000..2_100).contains(&prefixes), "{prefixes}");
        assert!((300..=511).contains(&applications), "{applications}");
    }

    #[test]
    fn the_first_of_two_policies_decides_and_the_second_says_the_opposite() {
        for (count, decides) in [(2, Then::Permit), (10, Then::Deny), (1000, Then::Permit)] {
            let rules = Rules::new(count, decides);
            assert_eq!(rules.policies.len(), count);
            for session in 0..200 {
                let tuple = Tuple::of_session(session * 7919);
                let [first, second] = rules.matches(tuple).collect::<Vec<_>>()[..] else {
                    panic!("{tuple:?} does not match two policies of {count}")
                };
                assert_eq!(rules.first_match(tuple), Some(first));
                assert_eq!(
                    (rules.policies[first].1, rules.policies[second].1),
                    (decides, decides.opposite())
                );
            }
        }
    }

    #[test]
    fn the_text_compiles() {
        let text =
            Rules::new(100, Then::Permit).text("inside") + "security { zones { security-zone inside; } }";
        let config = sluice_language::compile(&sluice_language::parse(&text, "rules").unwrap()).unwrap();
        assert_eq!(config.policies[0].policies.len(), 100);
    }
}
