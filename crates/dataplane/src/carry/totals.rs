//! Counters of one state are added to those of another, by the names of fields and reasons.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle, ObjectBuilder};
use sluice_abi::{CARRY_WORDS, CarryOrder, CarryWord};

use super::classes::{MOVED, is_by_reason};
use super::layout::{Field, Layout};
use super::shape::Shapes;
use crate::error::{Doing, Error, Result};
use crate::mmap::{Array, array};
use crate::objects;
use crate::prog_run::{self, XdpRun};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/carry.bpf.o"));
const PROGRAM: &str = "xdp_carry";
const WIDTHS: &str = ".rodata.widths";
const XDP_PASS: u32 = 2;
/// Elements of one run, in which softirqs are off.
const RUN: u32 = 64;
const WORD: u32 = 8;

/// Where the counters of an element of one map stand in that of another.
pub(crate) fn words(old: &Shapes, from: &str, new: &Shapes, to: &str) -> Vec<CarryWord> {
    let layout = |shapes: &Shapes, map: &str| -> Option<Layout> { shapes.maps.get(map)?.value.clone() };
    let (Some(then), Some(now)) = (layout(old, from), layout(new, to)) else { return vec![] };
    let mut words = Vec::new();
    // counters have 64 bits; what is smaller beside them is something else
    for field in now.fields.iter().filter(|field| field.size == WORD) {
        let Some(origin) = origin(&then, from, to, field) else { continue };
        let mut add = |from: u32, to: u32| {
            words.push(CarryWord { from: origin.offset / WORD + from, to: field.offset / WORD + to });
        };
        if is_by_reason(to, &field.name) {
            for (index, reason) in (0..field.count).zip(&new.reasons).filter(|(_, name)| !name.is_empty()) {
                let before = (0..origin.count).zip(&old.reasons).find(|(_, name)| *name == reason);
                if let Some((before, _)) = before {
                    add(before, index);
                }
            }
        } else {
            (0..field.count.min(origin.count)).for_each(|n| add(n, n));
        }
    }
    words
}

/// The field of the old layout that counts the same.
fn origin<'a>(then: &'a Layout, from: &str, to: &str, field: &Field) -> Option<&'a Field> {
    let moved = MOVED.iter().find(|[old, new]| *new == (to, field.name.as_str()) && old.0 == from);
    let same = (from == to).then(|| then.field(&field.name)).flatten();
    same.or_else(|| then.field(moved?[0].1)).filter(|field| field.size == WORD)
}

/// Maps whose counters a map has some of.
pub(crate) fn origins(to: &str) -> Vec<&str> {
    let moved = MOVED.iter().filter(|[_, new]| new.0 == to).map(|[old, _]| old.0);
    let mut origins: Vec<&str> = std::iter::once(to).chain(moved).collect();
    origins.dedup();
    origins
}

/// Adds them, and takes them away where they were. Nobody may count in `from` any more.
pub(crate) fn add(from: &MapHandle, to: &MapHandle, words: &[CarryWord]) -> Result<()> {
    if words.is_empty() {
        return Ok(());
    }
    if words.len() > CARRY_WORDS as usize {
        return Err(Error::Object { what: format!("room for {} counters of one element", words.len()) });
    }
    let doing = || "load the program that adds counters".to_owned();
    let mut builder = ObjectBuilder::default();
    let mut object = builder.name("carry").doing(doing)?.open_memory(OBJECT).doing(doing)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "from" => map.reuse_fd(from.as_fd()).doing(doing)?,
            "to" => map.reuse_fd(to.as_fd()).doing(doing)?,
            WIDTHS => {
                let widths = [from.value_size() / WORD, to.value_size() / WORD];
                let bytes = map.initial_value_mut().ok_or_else(|| Error::Object { what: name.clone() })?;
                bytes.copy_from_slice(zerocopy::IntoBytes::as_bytes(&widths));
            }
            _ => {}
        }
    }
    let object = object.load().doing(doing)?;
    let program = objects::program(&object, PROGRAM)?;
    let list: Array<CarryWord> = array(&objects::map(&object, "carry_words")?).doing(doing)?;
    let order: Array<CarryOrder> = array(&objects::map(&object, "carry_order")?).doing(doing)?;
    (0..).zip(words).for_each(|(n, word)| list.write(n, *word));
    let elements = from.max_entries().min(to.max_entries());
    for first in (0..elements).step_by(RUN as usize) {
        let end = elements.min(first + RUN);
        order.write(0, CarryOrder { first, end, words: words.len() as u32, zero: 0 });
        let outcome = prog_run::xdp(program.as_fd(), &XdpRun::new(&[0; 64], 0))?;
        if outcome.retval != XDP_PASS {
            return Err(Error::Object { what: format!("element {first} of a map of counters") });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::shape::Shape;
    use super::*;

    fn shapes(maps: &[(&str, &[(&str, u32)])], reasons: &[&str]) -> Shapes {
        let mut shapes =
            Shapes { reasons: reasons.iter().map(|r| (*r).to_owned()).collect(), ..Default::default() };
        for (name, fields) in maps {
            let mut size = 0;
            let fields = fields.iter().map(|(name, count)| {
                let field = Field { name: (*name).to_owned(), offset: size, size: WORD, count: *count };
                size += count * WORD;
                field
            });
            let fields: Vec<Field> = fields.collect();
            let value = Some(Layout { size, fields });
            let shape =
                Shape { kind: 0, flags: 0, key_size: 4, value_size: size, entries: 1, key: None, value };
            shapes.maps.insert((*name).to_owned(), shape);
        }
        shapes
    }

    fn pairs(words: &[CarryWord]) -> Vec<(u32, u32)> {
        words.iter().map(|word| (word.from, word.to)).collect()
    }

    #[test]
    fn counters_are_found_by_their_names_and_drops_by_those_of_reasons() {
        let old = shapes(&[("counters", &[("received", 1), ("sent", 1), ("drops", 4)])], &["A", "B", "C"]);
        let new = shapes(
            &[("counters", &[("fresh", 1), ("sent", 1), ("received", 1), ("drops", 4)])],
            &["A", "X", "C", "B"],
        );
        assert_eq!(
            pairs(&words(&old, "counters", &new, "counters")),
            [(1, 1), (0, 2), (2, 3), (4, 5), (3, 6)]
        );
        let back = words(&new, "counters", &old, "counters");
        assert_eq!(pairs(&back), [(2, 0), (1, 1), (3, 2), (6, 3), (5, 4)]);
    }

    #[test]
    fn drops_follow_to_a_map_of_their_own() {
        let old = shapes(&[("counters", &[("received", 1), ("drops", 2)])], &["A", "B"]);
        let new = shapes(&[("counters", &[("received", 1)]), ("drops", &[("packets", 8)])], &["B", "A"]);
        assert_eq!(origins("drops"), ["drops", "counters"]);
        assert_eq!(origins("counters"), ["counters"]);
        assert_eq!(pairs(&words(&old, "counters", &new, "drops")), [(2, 0), (1, 1)]);
        assert_eq!(pairs(&words(&old, "counters", &new, "counters")), [(0, 0)]);
        assert_eq!(pairs(&words(&old, "drops", &new, "drops")), []);
    }
}
