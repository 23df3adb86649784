//! Policies of one zone pair that the bench's packets hit uniformly: each packet matches exactly one of them.
//!
//! The space of clients, servers and server ports is halved again and again until there are as many boxes as policies.
//! The boxes' sides are prefixes and port ranges of every length down to the limits, so the address and application
//! lists of the policies overlap in every way, while their products do not.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::packets::{CLIENTS4, CLIENTS6, SERVER_BITS, SERVER_PORT_BITS, SERVER_PORTS, SERVERS4, SERVERS6};
use crate::stats::Rng;

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
        for place in 0..halved {
            let (cell, before) = cells[place];
            let sides: Vec<usize> = (0..3).filter(|side| cell[*side].length < DEEPEST[*side]).collect();
            let stays = sides.contains(&before) && !random.next_u64().is_multiple_of(4);
            let side = if stays { before } else { sides[random.next_u64() as usize % sides.len()] };
            let [left, right] = cell[side].halves();
            let mut other = cell;
            (cells[place].0[side], other[side]) = (left, right);
            cells[place].1 = side;
            cells.push((other, side));
        }
    }
    for place in (1..cells.len()).rev() {
        cells.swap(place, random.next_u64() as usize % (place + 1));
    }
    cells.into_iter().map(|(cell, _)| cell).collect()
}

/// `security { policies ... }` and what the policies refer to, between `zone` and itself.
pub fn policies(zone: &str, count: usize) -> String {
    let cells = cells(count, &mut Rng::new(count as u64));
    let side = |n: usize| cells.iter().map(move |cell| cell[n]).filter(|part| part.length > 0);
    let (clients, servers, ports): (BTreeSet<Part>, BTreeSet<Part>, BTreeSet<Part>) =
        (side(0).collect(), side(1).collect(), side(2).collect());
    let mut text = String::from("security {\naddress-book {\nglobal {\n");
    addresses(&mut text, "c", &clients, BITS[0], CLIENTS4, CLIENTS6);
    addresses(&mut text, "s", &servers, BITS[1], SERVERS4, SERVERS6);
    write!(text, "}}\n}}\npolicies {{\nfrom-zone {zone} to-zone {zone} {{\n").expect("text");
    for (n, [client, server, port]) in cells.iter().enumerate() {
        let list = |side: Part, name: &str| match side.length {
            0 => "any".to_owned(),
            _ => format!("[ {name} {name}-6 ]"),
        };
        let (source, destination) = (list(*client, &client.name("c")), list(*server, &server.name("s")));
        writeln!(
            text,
            "policy p{n} {{ match {{ source-address {source}; destination-address {destination}; application {}; }} \
             then {{ permit; }} }}",
            port.name("a")
        )
        .expect("text");
    }
    text += "}\n}\n}\napplications {\n";
    for port in &ports {
        let first = u32::from(SERVER_PORTS) + port.first(BITS[2]);
        let last = first + (1 << (BITS[2] - port.length)) - 1;
        let name = port.name("a");
        let term = |n: u32, protocol: &str| {
            format!("term t{n} {{ protocol {protocol}; destination-port {first}-{last}; }}")
        };
        writeln!(text, "application {name} {{ {} {} }}", term(1, "tcp"), term(2, "udp")).expect("text");
    }
    text + "}\n"
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
    fn the_text_compiles() {
        let text = policies("inside", 100) + "security { zones { security-zone inside; } }";
        let config = sluice_language::compile(&sluice_language::parse(&text, "rules").unwrap()).unwrap();
        assert_eq!(config.policies[0].policies.len(), 100);
    }
}
