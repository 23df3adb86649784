//! Policies as classes and rows of bits, so that the first match is found without a scan (bpf/abi/classifier.h).
//!
//! Rules are products of sets: source addresses, destination addresses, services. Each family and direction gets one
//! class space that all zone pairs share: addresses that lie in the same sets have the same class. A context then has, for
//! each class, a row of bits that says which of its rules the class satisfies; identical lines of bits are stored once,
//! which is what keeps the table small, because most classes satisfy no rules but those that say `any`.

mod addresses;
mod cluster;
mod lookup;
mod rows;
mod services;
#[cfg(test)]
mod tests;
mod tree;
mod words;

use std::collections::BTreeMap;

use sluice_abi::{self as abi, ClassLine, Context};
use sluice_language::config::{Ranges, Service};

pub use lookup::{Lookup, Subject};

use addresses::{Classes, Sets};
use rows::Rows;
use words::Words;

/// What one rule wants of a packet; None = any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Normalised.
    pub source: Option<Ranges>,
    /// Normalised.
    pub destination: Option<Ranges>,
    /// Any of them; None = every protocol and port.
    pub services: Option<Vec<Service>>,
}

/// Rules that are tried in order, for instance those of a zone pair.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// How to name them in an error.
    pub name: String,
    /// Index of the first in the rule table.
    pub first: u32,
    /// The first that matches decides.
    pub rules: Vec<Wanted>,
}

/// The tables; `contexts[0]` has no rules, `contexts[n + 1]` those of the n-th list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Classifier {
    /// Trees that lead from an address or a port to its class.
    pub classes: Vec<ClassLine>,
    /// Lists of classes' rows, and rows: one bit a rule, `CLASS_CHUNK_RULES` rules a line.
    pub rows: Vec<ClassLine>,
    /// Where each list of rules has its rows.
    pub contexts: Vec<Context>,
}

/// The policies need more memory than they may have.
#[allow(missing_docs, reason = "the fields of its variants are what their messages name")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    /// Over `limit` lines of 64 bytes.
    #[error(
        "{owner}: the policies' tables would take more than {} MiB; use fewer policies with lists of their own",
        limit / 16384
    )]
    Lines { owner: String, limit: usize },
    /// The table of ports of one IP protocol grows too large.
    #[error(
        "IP protocol {protocol}: the applications' destination ports ({rows} ranges) times source ports ({columns}) are too \
         many; use fewer source ports"
    )]
    Services { protocol: u8, rows: usize, columns: usize },
}

/// The four class spaces of addresses, in the order of their trees.
const SPACES: usize = 4;
const MAX: [u128; SPACES] = [u32::MAX as u128, u32::MAX as u128, u128::MAX, u128::MAX];

/// Numbers of the sets that a rule wants; None = any.
#[derive(Debug, Clone, Copy)]
struct Numbered {
    /// As [`SPACES`].
    addresses: [Option<u32>; SPACES],
    services: Option<u32>,
}

/// Compiles lists of rules.
pub fn compile(lists: &[Rules]) -> Result<Classifier, TooMuch> {
    let mut address_sets: [Sets; SPACES] = std::array::from_fn(|_| Sets::default());
    let mut service_sets = services::Sets::default();
    let numbered: Vec<Vec<Numbered>> = lists
        .iter()
        .map(|list| {
            list.rules.iter().map(|rule| number(rule, &mut address_sets, &mut service_sets)).collect()
        })
        .collect();

    let mut classes = Words::new(abi::MAX_CLASS_LINES);
    classes.extend(&[0; abi::CLASS_PROTOCOLS + 256 * abi::CLASS_PROTOCOL_WORDS]);
    let spaces: [Classes; SPACES] = std::array::from_fn(|n| address_sets[n].classify(MAX[n]));
    for (n, space) in spaces.iter().enumerate() {
        let offset = n * abi::CLASS_TREE_WORDS;
        let tree = if n < 2 { tree::v4(&mut classes, space) } else { tree::v6(&mut classes, space) };
        classes.write(offset, &tree);
    }
    let service_members = service_sets.classify(&mut classes)?;
    let classes = classes.lines().map_err(|limit| TooMuch::Lines { owner: "addresses".to_owned(), limit })?;

    let mut rows = Rows::new();
    let mut contexts = vec![Context::default()];
    for (list, rules) in lists.iter().zip(&numbered) {
        let order = cluster::order(&list.rules);
        let stored: Vec<Numbered> = order.iter().map(|rule| rules[*rule as usize]).collect();
        let rules = if order.is_empty() { rules } else { &stored };
        let rows_of = |pick: &dyn Fn(&Numbered) -> Option<u32>, members: &[Vec<u32>], rows: &mut Rows| {
            rows.space(rules.len(), &by_set(rules, pick), members)
        };
        let address = |n: usize, rows: &mut Rows| {
            rows_of(&|rule: &Numbered| rule.addresses[n], &spaces[n].members, rows)
        };
        contexts.push(Context {
            source: [address(0, &mut rows), address(2, &mut rows)],
            destination: [address(1, &mut rows), address(3, &mut rows)],
            service: rows_of(&|rule: &Numbered| rule.services, &service_members, &mut rows),
            first_rule: list.first,
            rules: rules.len() as u32,
            chunks: rules.len().div_ceil(abi::CLASS_CHUNK_RULES) as u32,
            orders: if order.is_empty() { 0 } else { rows.orders(order) },
            ..Context::default()
        });
        rows.check().map_err(|limit| TooMuch::Lines { owner: list.name.clone(), limit })?;
    }
    let rows =
        rows.lines_of_table().map_err(|limit| TooMuch::Lines { owner: "policies".to_owned(), limit })?;
    Ok(Classifier { classes, rows, contexts })
}

fn number(rule: &Wanted, sets: &mut [Sets; SPACES], services: &mut services::Sets) -> Numbered {
    let mut numbers = [None; SPACES];
    for (n, side) in [&rule.source, &rule.destination].into_iter().enumerate() {
        if let Some(ranges) = side {
            numbers[n] = Some(sets[n].number(addresses::v4(ranges)));
            numbers[n + 2] = Some(sets[n + 2].number(addresses::v6(ranges)));
        }
    }
    Numbered { addresses: numbers, services: rule.services.as_ref().map(|list| services.number(list)) }
}

/// Rules by the set that they want; None = any.
fn by_set(rules: &[Numbered], pick: &dyn Fn(&Numbered) -> Option<u32>) -> BTreeMap<Option<u32>, Vec<u32>> {
    let mut map: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        map.entry(pick(rule)).or_default().push(index as u32);
    }
    map
}
