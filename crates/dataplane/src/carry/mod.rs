//! A program finds the state that another one has made.
//!
//! Maps that both would make alike are shared, the others made anew in a state beside the old one: records are converted
//! by the names of fields, counters added, caches left empty. The programs of the old state go on with it until their
//! links are updated, and then what they have written meanwhile is brought over.
//!
//! Each step leaves one of the two complete: the new state counts from the moment its pin `active` is made, when its
//! programs stand in their slots and no link leads to them yet; the old one is put away when none leads to it any more.

mod btf;
mod classes;
pub(crate) mod fault;
mod fill;
pub(crate) mod home;
mod layout;
mod reasons;
mod shape;
mod totals;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapHandle};

use crate::Sizes;
use crate::error::{Doing, Error, Result};
use crate::objects::{self, ObjectKind};

use classes::Class;
pub(crate) use classes::{class_of, known};
use fill::Transfer;
use home::Home;
use layout::Layout;
use shape::{Shape, Shapes};

/// A state that is there: its maps by the names of their pins.
#[derive(Debug)]
pub(crate) struct Found {
    pub home: Home,
    pub maps: BTreeMap<String, MapHandle>,
}

impl Found {
    pub fn open(home: Home) -> Result<Found> {
        let mut maps = BTreeMap::new();
        for name in home.names()? {
            let path = home.path(&name);
            let map = MapHandle::from_pinned_path(&path).map_err(|source| Error::Damaged { path, source })?;
            maps.insert(name, map);
        }
        Ok(Found { home, maps })
    }

    fn shapes(&self) -> Result<Shapes> {
        Shapes::of_maps(self.maps.iter().map(|(name, map)| (name.as_str(), map)))
    }

    /// Ids of maps that only its own programs use.
    pub fn own_ids(&self, own: &[&str]) -> BTreeSet<u32> {
        own.iter().filter_map(|name| id(self.maps.get(*name)?)).collect()
    }
}

pub(crate) fn id(map: &MapHandle) -> Option<u32> {
    map.info().ok().map(|info| info.info.id)
}

/// What this program would make.
pub(crate) fn wanted(sizes: Sizes) -> Result<Shapes> {
    Ok(Shapes::of_object(&objects::open(ObjectKind::Tc)?, |name| sizes.entries(name)))
}

/// Which maps of a state can be shared. An error, if it cannot be carried over.
pub(crate) fn shared(found: &Found, wanted: &Shapes, sizes: Sizes) -> Result<BTreeSet<&'static str>> {
    let shapes = found.shapes()?;
    let mut shared = BTreeSet::new();
    for (name, class) in known().filter(|(_, class)| *class != Class::Own) {
        let new = wanted.maps.get(name).ok_or_else(|| Error::Object { what: name.to_owned() })?;
        let Some(old) = shapes.maps.get(name) else { continue };
        let grows = Sizes::COUNTED.contains(&name);
        if sizes.entries(name).is_some() && old.entries != new.entries && !grows {
            let (path, what) = (found.home.path(name), "room for");
            return Err(Error::Incompatible {
                path,
                what,
                found: old.entries.into(),
                wanted: new.entries.into(),
            });
        }
        let difference = difference(name, class, (old, &shapes), (new, wanted));
        let Some(difference) = difference else {
            shared.insert(name);
            continue;
        };
        check(name, class, old, new, &difference)?;
        tracing::info!(map = name, difference, "made anew");
    }
    let unknown: Vec<&str> = shapes
        .maps
        .keys()
        .map(String::as_str)
        .filter(|name| class_of(name).is_none() && !is_own(name))
        .collect();
    if !unknown.is_empty() {
        tracing::warn!(?unknown, "left behind: this version does not know these maps");
    }
    Ok(shared)
}

/// What each state has of its own, because only its programs know what it means.
fn is_own(name: &str) -> bool {
    const OWN: [&str; 5] = ["active", "programs_", "generation_", "tables_", "loaded"];
    OWN.iter().any(|own| name.starts_with(own))
}

fn difference(name: &str, class: Class, old: (&Shape, &Shapes), new: (&Shape, &Shapes)) -> Option<String> {
    let by_reason = |layout: &Option<Layout>| {
        layout.iter().flat_map(|l| &l.fields).any(|field| classes::is_by_reason(name, &field.name))
    };
    if let Some(text) = old.0.difference(new.0) {
        return Some(text);
    }
    if (class == Class::ReasonCache || by_reason(&new.0.value)) && old.1.reasons != new.1.reasons {
        return Some("reasons have other numbers".to_owned());
    }
    let of = |shapes: &Shapes| shapes.records.get(name).cloned();
    let others = of(old.1).is_none() || of(old.1) != of(new.1);
    (new.1.records.contains_key(name) && others).then(|| "its records are others".to_owned())
}

/// Whether a map that differs can be made anew.
fn check(name: &str, class: Class, old: &Shape, new: &Shape, difference: &str) -> Result<()> {
    let why = match class {
        Class::Numbers => difference.to_owned(),
        Class::Records { .. } if old.kind != new.kind => difference.to_owned(),
        Class::Records { .. } if old.value.is_none() || new.value.is_none() => {
            format!("{difference}, and the kernel does not tell its fields")
        }
        _ => return Ok(()),
    };
    Err(Error::Uncarried { map: name.to_owned(), why })
}

/// From a state to a later one that stands beside it.
pub(crate) struct Carry<'a> {
    old: &'a Found,
    new: &'a BTreeMap<&'static str, MapHandle>,
    then: Shapes,
    now: Shapes,
}

impl<'a> Carry<'a> {
    pub fn new(old: &'a Found, new: &'a BTreeMap<&'static str, MapHandle>) -> Result<Carry<'a>> {
        let now = Shapes::of_maps(new.iter().map(|(name, map)| (*name, map)))?;
        Ok(Carry { old, new, then: old.shapes()?, now })
    }

    /// Both states have this map, and not the same one.
    fn pair(&self, from: &str, to: &str) -> Option<(&MapHandle, &MapHandle)> {
        let (old, new) = (self.old.maps.get(from)?, self.new.get(to)?);
        (id(old) != id(new)).then_some((old, new))
    }

    fn transfers(&self) -> impl Iterator<Item = Transfer<'_>> {
        known().filter_map(|(name, class)| {
            let (stamps, lossy): (&[&str], bool) = match class {
                Class::Records { stamps } => (stamps, false),
                Class::Hints => (&["last_used"], true),
                _ => return None,
            };
            let (old, new) = self.pair(name, name)?;
            let old_layout = self.then.maps.get(name)?.value.as_ref()?;
            let new_layout = self.now.maps.get(name)?.value.as_ref()?;
            Some(Transfer { name, old, new, old_layout, new_layout, stamps, lossy })
        })
    }

    /// All records, before any program works with the new ones.
    pub fn fill(&self) -> Result<()> {
        for transfer in self.transfers() {
            let count = transfer.all()?;
            tracing::info!(map = transfer.name, count, "converted");
            fault::point("fill");
        }
        Ok(())
    }

    /// Those that programs of the old state have written since.
    pub fn follow(&self) -> Result<()> {
        for transfer in self.transfers() {
            let count = transfer.newer()?;
            tracing::info!(map = transfer.name, count, "converted once more");
        }
        Ok(())
    }

    /// What was counted. Nobody may count in the old state any more.
    pub fn add_totals(&self) -> Result<()> {
        for (to, _) in known().filter(|(_, class)| *class == Class::Counted) {
            for from in totals::origins(to) {
                if let Some((old, new)) = self.pair(from, to) {
                    totals::add(old, new, &totals::words(&self.then, from, &self.now, to))?;
                    fault::point("totals");
                }
            }
        }
        Ok(())
    }
}

/// Hash of the objects: programs that call others by slot numbers do so within one of them.
pub(crate) fn identity(objects: &[&[u8]]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = objects.iter().flat_map(|object| object.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// Pins a map in a new state.
pub(crate) fn pin(map: &MapHandle, path: PathBuf) -> Result<()> {
    sluice_libbpf::pin(map, &path).doing(|| format!("pin {}", path.display()))
}

#[cfg(test)]
mod tests {
    use sluice_abi::FlowLine4;
    use sluice_abi::stages::Reason;

    use super::*;

    fn own() -> Shapes {
        wanted(Sizes::default()).unwrap()
    }

    #[test]
    fn the_objects_tell_what_numbers_mean() {
        let shapes = own();
        assert_eq!(shapes.reasons.len(), Reason::ALL.len());
        assert_eq!(shapes.reasons[Reason::TcpNotSyn as usize], "TCP_NOT_SYN");
        assert_eq!(shapes.reasons[Reason::EgressRewrite as usize], "EGRESS_REWRITE");
        assert!(shapes.records["events"].field("session").is_some());
        assert!(shapes.records["dropped"].field("untold").is_some());
    }

    #[test]
    fn fields_stand_where_rust_has_them() {
        let shapes = own();
        let lines = shapes.maps["lines4"].value.as_ref().unwrap();
        let offset = |name: &str| lines.field(name).unwrap().offset as usize;
        assert_eq!(offset("key.be_daddr"), std::mem::offset_of!(FlowLine4, key.be_daddr));
        assert_eq!(offset("state.tag"), std::mem::offset_of!(FlowLine4, state.tag));
        assert_eq!(offset("state.last_seen"), std::mem::offset_of!(FlowLine4, state.last_seen));
        assert_eq!(lines.size as usize, size_of::<FlowLine4>());
    }

    /// What has no types cannot be converted, and a stamp that is not there compares nothing.
    #[test]
    fn records_tell_their_fields_and_stamps() {
        let shapes = own();
        for (name, class) in known() {
            let Class::Records { stamps } = class else { continue };
            let layout = shapes.maps[name].value.as_ref().unwrap_or_else(|| panic!("{name} has no types"));
            for stamp in stamps {
                assert!(layout.field(stamp).is_some(), "{name} has no {stamp}");
            }
        }
    }

    #[test]
    fn counters_tell_which_arrays_reasons_index() {
        let shapes = own();
        for (name, class) in known().filter(|(_, class)| *class == Class::Counted) {
            let layout = shapes.maps[name].value.as_ref().unwrap();
            for field in layout.fields.iter().filter(|field| field.count as usize >= Reason::ALL.len()) {
                assert!(
                    classes::is_by_reason(name, &field.name) || field.size < 8,
                    "{name}.{} {class:?}",
                    field.name
                );
            }
        }
    }
}
