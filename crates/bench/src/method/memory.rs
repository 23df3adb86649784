//! How much memory the kernel says its maps hold.

use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::MapHandle;
use sluice_libbpf::map::bytes as map_bytes;

/// Bytes of all maps of Sluice's IPv4 session table, pinned below `pin`, with their names.
pub fn of_sessions4(pin: &Path) -> Result<Vec<(String, u64)>> {
    ["buckets4", "stash4", "lines4", "shared4", "free4"]
        .into_iter()
        .map(|name| {
            let map = MapHandle::from_pinned_path(pin.join(name));
            let map = map.with_context(|| format!("no map {name} below {}", pin.display()))?;
            Ok((name.to_owned(), map_bytes(&map)?))
        })
        .collect()
}
