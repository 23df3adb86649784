//! Search trees over the starts of classes, as bpf/abi/classifier.h lays them out.

use sluice_abi::{CLASS_LINE_WORDS, CLASS_TREE_KEYS};

use super::addresses::Classes;
use super::words::Words;

/// A key, its class from there on, and where the tree of its lower halves is, or 0.
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    class: u32,
    lower: u32,
}

/// The words of `struct class_tree`.
pub(super) type Tree = [u32; 4];

pub(super) fn v4(words: &mut Words, classes: &Classes) -> Tree {
    let entry = |(start, class): &(u128, u32)| Entry { key: *start as u64, class: *class, lower: 0 };
    build(words, &classes.starts.iter().map(entry).collect::<Vec<_>>())
}

/// A tree of the upper halves; one of the lower halves below each upper half within which the class changes.
pub(super) fn v6(words: &mut Words, classes: &Classes) -> Tree {
    let mut entries = vec![];
    let mut before = 0;
    for group in classes.starts.chunk_by(|a, b| a.0 >> 64 == b.0 >> 64) {
        let after = group.last().expect("a group has members").1;
        let plain = group.len() == 1 && group[0].0 as u64 == 0;
        let lower = if plain { 0 } else { lower_halves(words, group, before) };
        entries.push(Entry { key: (group[0].0 >> 64) as u64, class: after, lower });
        before = after;
    }
    build(words, &entries)
}

fn lower_halves(words: &mut Words, group: &[(u128, u32)], before: u32) -> u32 {
    let mut entries: Vec<Entry> =
        group.iter().map(|(start, class)| Entry { key: *start as u64, class: *class, lower: 0 }).collect();
    if entries[0].key != 0 {
        entries.insert(0, Entry { key: 0, class: before, lower: 0 });
    }
    let tree = build(words, &entries);
    // Four words at a multiple of four never cross the end of a line.
    words.align(tree.len());
    words.extend(&tree)
}

fn build(words: &mut Words, entries: &[Entry]) -> Tree {
    let nodes = entries.len().div_ceil(CLASS_TREE_KEYS);
    let mut slots = vec![entries[entries.len() - 1]; nodes * CLASS_TREE_KEYS];
    let mut rest = entries.iter();
    in_order(0, nodes, &mut |slot| match rest.next() {
        Some(entry) => slots[slot] = *entry,
        // What is left over stands after the last entry and must never lead anywhere else.
        None => {
            let last = entries[entries.len() - 1];
            let lower = if last.key == u64::MAX { last.lower } else { 0 };
            slots[slot] = Entry { key: u64::MAX, class: last.class, lower };
        }
    });
    let keys: Vec<u32> = slots.iter().flat_map(|s| [s.key as u32, (s.key >> 32) as u32]).collect();
    let first = words.extend_line(&keys) as usize / CLASS_LINE_WORDS;
    let values: Vec<u32> = slots.iter().flat_map(|slot| [slot.class, slot.lower]).collect();
    let values = words.extend_line(&values);
    [first as u32, nodes as u32, values, 0]
}

/// Calls `visit` with every slot, by ascending key.
fn in_order(node: usize, nodes: usize, visit: &mut impl FnMut(usize)) {
    if node >= nodes {
        return;
    }
    let children = node * (CLASS_TREE_KEYS + 1) + 1;
    for key in 0..CLASS_TREE_KEYS {
        in_order(children + key, nodes, visit);
        visit(node * CLASS_TREE_KEYS + key);
    }
    in_order(children + CLASS_TREE_KEYS, nodes, visit);
}
