//! How much memory the kernel says its maps hold.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::MapHandle;

/// Bytes of one map, by its descriptor's fdinfo (`memlock`).
pub fn of_map(map: impl AsFd) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    memlock(&text).with_context(|| format!("{path} does not say `memlock`: is it a map?"))
}

fn memlock(fdinfo: &str) -> Option<u64> {
    fdinfo.lines().find_map(|line| line.strip_prefix("memlock:")?.trim().parse().ok())
}

/// Bytes of all maps of Sluice's IPv4 session table, pinned below `pin`, with their names.
pub fn of_sessions4(pin: &Path) -> Result<Vec<(String, u64)>> {
    ["buckets4", "stash4", "lines4", "shared4", "free4"]
        .into_iter()
        .map(|name| {
            let map = MapHandle::from_pinned_path(pin.join(name));
            let map = map.with_context(|| format!("no map {name} below {}", pin.display()))?;
            Ok((name.to_owned(), of_map(&map)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memlock_is_read_from_fdinfo() {
        assert_eq!(memlock("pos:\t0\nmap_type:\t1\nmemlock:\t4096\nmap_id:\t7\n"), Some(4096));
        assert_eq!(memlock("pos:\t0\n"), None);
    }
}
