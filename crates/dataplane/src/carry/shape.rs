//! What a map is: sizes, and the layouts of keys and values. Read from pins, and from the object that would make them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use libbpf_rs::{MapCore, MapHandle, OpenObject};
use sluice_libbpf::btf;
use sluice_libbpf::map::{self, MapTypes};

use super::btf::Btf;
use super::layout::Layout;
use super::reasons;
use crate::error::{Doing, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub kind: u32,
    pub flags: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub entries: u32,
    /// None where the kernel knows no types: of queues, rings and PROG_ARRAYs.
    pub key: Option<Layout>,
    pub value: Option<Layout>,
}

impl Shape {
    /// In words: the first thing that is not as in `wanted`.
    pub fn difference(&self, wanted: &Shape) -> Option<String> {
        let facts = [
            ("map type", self.kind, wanted.kind),
            ("a key size of", self.key_size, wanted.key_size),
            ("room for", self.entries, wanted.entries),
            ("flags", self.flags, wanted.flags),
        ];
        if let Some((what, found, wanted)) = facts.iter().find(|(_, found, wanted)| found != wanted) {
            return Some(format!("it has {what} {found}, and not {wanted}"));
        }
        for (found, wanted) in [(&self.key, &wanted.key), (&self.value, &wanted.value)] {
            if let (Some(found), Some(wanted)) = (found, wanted)
                && let Some(text) = found.difference(wanted)
            {
                return Some(text);
            }
        }
        (self.value_size != wanted.value_size)
            .then(|| format!("its values have {} bytes, and not {}", self.value_size, wanted.value_size))
    }
}

/// Maps of one state, or of one program's wish.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    pub maps: BTreeMap<String, Shape>,
    /// Names of reasons by their numbers.
    pub reasons: Vec<String>,
    /// Of records in rings, by the ring's name.
    pub records: BTreeMap<&'static str, Layout>,
}

fn layouts(btf: Option<&Btf>, types: MapTypes) -> (Option<Layout>, Option<Layout>) {
    let of = |id: u32| btf.filter(|_| id != 0).and_then(|btf| btf.layout(id));
    (of(types.key), of(types.value))
}

/// The kernel knows nothing of what is in a ring; the programs' types do.
fn records(btf: Option<&Btf>) -> BTreeMap<&'static str, Layout> {
    const RINGS: [(&str, &str); 2] = [("events", "event"), ("dropped", "dropped")];
    let of = |(ring, record): (&'static str, &str)| Some((ring, btf?.structure(record)?));
    RINGS.into_iter().filter_map(of).collect()
}

impl Shapes {
    /// Of maps that exist.
    pub fn of_maps<'a>(maps: impl Iterator<Item = (&'a str, &'a MapHandle)>) -> Result<Shapes> {
        let known: RefCell<HashMap<u32, Option<Rc<Btf>>>> = RefCell::default();
        let btf = |id: u32| {
            let read = || (id != 0).then(|| btf::by_id(id).ok()).flatten();
            known
                .borrow_mut()
                .entry(id)
                .or_insert_with(|| read().and_then(|b| Btf::parse(&b)).map(Rc::new))
                .clone()
        };
        let mut shapes = Shapes::default();
        for (name, map) in maps {
            let types = map::types(map).doing(|| format!("examine map {name}"))?;
            let types_of = btf(types.btf_id);
            let (key, value) = layouts(types_of.as_deref(), types);
            if name == "counters" {
                shapes.reasons = reasons::names(types_of.as_deref());
                shapes.records = records(types_of.as_deref());
            }
            let info = map.info().doing(|| format!("examine map {name}"))?;
            let shape = Shape {
                kind: u32::from(map.map_type()),
                flags: info.info.map_flags,
                key_size: map.key_size(),
                value_size: map.value_size(),
                entries: map.max_entries(),
                key,
                value,
            };
            shapes.maps.insert(name.to_owned(), shape);
        }
        Ok(shapes)
    }

    /// Of those that an object would make; `entries` are sizes that differ from the object's.
    pub fn of_object(object: &OpenObject, entries: impl Fn(&str) -> Option<u32>) -> Shapes {
        let btf = btf::of_object(object).and_then(|bytes| Btf::parse(&bytes));
        let mut shapes = Shapes {
            reasons: reasons::names(btf.as_ref()),
            records: records(btf.as_ref()),
            ..Default::default()
        };
        for map in object.maps() {
            let name = map.name().to_string_lossy().into_owned();
            let (key, value) = layouts(btf.as_ref(), btf::types_of_open_map(&map));
            let shape = Shape {
                kind: u32::from(map.map_type()),
                flags: map.map_flags(),
                key_size: map.key_size(),
                value_size: map.value_size(),
                entries: entries(&name).unwrap_or(map.max_entries()),
                key,
                value,
            };
            shapes.maps.insert(name, shape);
        }
        shapes
    }
}
