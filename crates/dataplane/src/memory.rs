//! The account of memory: what each pinned map takes, as the kernel counts it.

use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::Dataplane;
use crate::error::{Doing, Result};

/// What a map takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapMemory {
    /// Of the pin.
    pub name: String,
    /// `max_entries` of the map.
    pub entries: u32,
    /// As the kernel accounts them to it.
    pub bytes: u64,
}

impl Dataplane {
    /// Every pinned map: the state's, and those of both slots. What is in the slots' tables is
    /// [`crate::Generation::tables_account`].
    pub fn memory(&self) -> Result<Vec<MapMemory>> {
        let state = self.state.maps().map(|(name, map)| account(name, map));
        let slots = self.slots.maps()?;
        state.chain(slots.iter().map(|(name, map)| account(name, map))).collect()
    }
}

fn account(name: &str, map: &MapHandle) -> Result<MapMemory> {
    let bytes = sluice_libbpf::map::bytes(map).doing(|| format!("read what map {name} takes"))?;
    Ok(MapMemory { name: name.to_owned(), entries: map.max_entries(), bytes })
}
