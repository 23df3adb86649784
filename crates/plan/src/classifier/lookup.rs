//! The lookup as the packet path does it (bpf/lib/classifier.h), for commands that ask what a packet would match.

use std::net::IpAddr;

use sluice_abi::{self as abi, CLASS_LINE_WORDS, CLASS_TREE_KEYS, ClassLine, Context};

/// A packet as policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// Both of one family, but for source NAT behind NAT64.
    pub source: IpAddr,
    /// After destination NAT, as policies see it.
    pub destination: IpAddr,
    /// IP protocol number; of IPv6 the one behind the extension headers.
    pub protocol: u8,
    /// Host order; 0 where the protocol has no ports.
    pub source_port: u16,
    /// As the source port, after destination NAT.
    pub destination_port: u16,
    /// Of ICMP and ICMPv6 alone, else 0.
    pub icmp_type: u8,
    /// Of ICMP and ICMPv6 alone, else 0.
    pub icmp_code: u8,
}

/// The tables of a generation, wherever they are: each reads one line.
pub struct Lookup<'a> {
    /// Line n of the class trees.
    pub classes: &'a dyn Fn(u32) -> ClassLine,
    /// Line n of the rows of bits.
    pub rows: &'a dyn Fn(u32) -> ClassLine,
    /// Context n; 0 has no rules.
    pub context: &'a dyn Fn(u32) -> Context,
}

impl Lookup<'_> {
    /// Index in the rule table of the first rule of a context that matches.
    pub fn find(&self, context: u16, subject: &Subject) -> Option<u32> {
        let context = (self.context)(context.into());
        if context.chunks == 0 {
            return None;
        }
        let (from, to) = (usize::from(subject.source.is_ipv6()), usize::from(subject.destination.is_ipv6()));
        let row = |list: u32, class: u32| word(self.rows, list + class);
        let rows = [
            row(context.source[from], self.address(2 * from, subject.source)),
            row(context.destination[to], self.address(2 * to + 1, subject.destination)),
            row(context.service, self.service(subject)),
        ];
        if rows.contains(&0) {
            return None;
        }
        let found = (0..context.chunks).filter_map(|chunk| {
            let lines = rows.map(|row| (self.rows)(word(self.rows, row + chunk)));
            let first = (0..CLASS_LINE_WORDS / 2)
                .map(|lane| lines.iter().fold(u64::MAX, |common, line| common & wide(line, lane)))
                .enumerate()
                .find(|(_, common)| *common != 0)?;
            let rule = first.0 as u32 * 64 + first.1.trailing_zeros();
            let index = chunk * abi::CLASS_CHUNK_RULES as u32 + rule;
            Some(if context.orders == 0 { index } else { word(self.rows, context.orders + index) })
        });
        found.min().map(|rule| context.first_rule + rule)
    }

    /// Index in the rule table of a context's first rule.
    pub fn first_rule(&self, context: u16) -> u32 {
        (self.context)(context.into()).first_rule
    }

    fn address(&self, tree: usize, address: IpAddr) -> u32 {
        let (upper, lower) = match address {
            IpAddr::V4(address) => (u64::from(u32::from(address)), None),
            IpAddr::V6(address) => ((u128::from(address) >> 64) as u64, Some(u128::from(address) as u64)),
        };
        let (class, below) = self.search((tree * abi::CLASS_TREE_WORDS) as u32, upper);
        match lower.filter(|_| below > 0) {
            Some(lower) => self.search(below, lower).0,
            None => class,
        }
    }

    /// Class of the highest key not above `x`; where the tree below it is, if `x` is that key.
    fn search(&self, tree: u32, x: u64) -> (u32, u32) {
        let [first, nodes, values] = [0, 1, 2].map(|n| word(self.classes, tree + n));
        let (mut node, mut best) = (0, 0);
        while node < nodes {
            let line = (self.classes)(first + node);
            let below = (0..CLASS_TREE_KEYS).filter(|n| wide(&line, *n) <= x).count() as u32;
            if below > 0 {
                best = node * CLASS_TREE_KEYS as u32 + below - 1;
            }
            node = node * (CLASS_TREE_KEYS as u32 + 1) + 1 + below;
        }
        let keys = (self.classes)(first + best / CLASS_TREE_KEYS as u32);
        let is_key = wide(&keys, best as usize % CLASS_TREE_KEYS) == x;
        let value = |n: u32| word(self.classes, values + 2 * best + n);
        (value(0), if is_key { value(1) } else { 0 })
    }

    fn service(&self, subject: &Subject) -> u32 {
        let offset = abi::CLASS_PROTOCOLS + usize::from(subject.protocol) * abi::CLASS_PROTOCOL_WORDS;
        let [rows, columns, kind] = [0, 1, 2].map(|n| word(self.classes, offset as u32 + n));
        let x = match kind {
            abi::CLASS_KEY_PORT => subject.destination_port,
            abi::CLASS_KEY_ICMP => u16::from_be_bytes([subject.icmp_type, subject.icmp_code]),
            _ => u16::from(subject.protocol),
        };
        let list = word(self.classes, rows + u32::from(x));
        let column =
            if columns == 0 { 0 } else { word(self.classes, columns + u32::from(subject.source_port)) };
        word(self.classes, list + column)
    }
}

fn word(lines: &dyn Fn(u32) -> ClassLine, offset: u32) -> u32 {
    lines(offset / CLASS_LINE_WORDS as u32).word[offset as usize % CLASS_LINE_WORDS]
}

fn wide(line: &ClassLine, lane: usize) -> u64 {
    u64::from(line.word[2 * lane]) | (u64::from(line.word[2 * lane + 1]) << 32)
}
